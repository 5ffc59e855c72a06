//! Devices that the host of a virtual machine gives it.

use std::fs;
use std::path::Path;

/// `VIRTIO_ID_BALLOON` of linux/virtio_ids.h, as sysfs writes it.
const BALLOON: &str = "0x0005";
/// `VIRTIO_BALLOON_F_REPORTING` of linux/virtio_balloon.h.
const REPORTING: usize = 5;

/// Whether a balloon tells the host of freed memory, which it then takes away until it is used again.
#[must_use]
pub(crate) fn reports_free_pages() -> bool {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    any_reports(Path::new("/sys/bus/virtio/devices"))
        && is_reported(
            &text("/sys/module/page_reporting/parameters/page_reporting_order"),
            &text("/proc/buddyinfo"),
        )
}

/// Whether free memory comes in blocks that are as large as those that are reported, by the least
/// order of these and a line for each zone with the number of its free blocks by order.
fn is_reported(least: &str, zones: &str) -> bool {
    let of_zone = |line: &str| {
        let (_, zone) = line.split_once("zone")?;
        Some(zone.split_whitespace().skip(1).count())
    };
    let orders = zones.lines().filter_map(of_zone).max();
    match (least.trim().parse::<usize>(), orders) {
        (Ok(least), Some(orders)) => least < orders,
        _ => true,
    }
}

fn any_reports(devices: &Path) -> bool {
    let entries = fs::read_dir(devices).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|device| {
        let text = |name: &str| fs::read_to_string(device.join(name)).unwrap_or_default();
        // Without a driver nothing is told.
        text("device").trim() == BALLOON
            && device.join("driver").exists()
            && text("features").as_bytes().get(REPORTING) == Some(&b'1')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_balloon_that_reports_counts() {
        let bus = tempfile::tempdir().unwrap();
        let device = |name: &str, kind: &str, features: &str, driven: bool| {
            let path = bus.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("device"), format!("{kind}\n")).unwrap();
            fs::write(path.join("features"), format!("{features}\n")).unwrap();
            if driven {
                fs::create_dir(path.join("driver")).unwrap();
            }
        };
        device("virtio0", "0x0002", "111111", true);
        device("virtio1", BALLOON, "111110", true);
        device("virtio2", BALLOON, "000001", false);
        assert!(!any_reports(bus.path()));
        device("virtio3", BALLOON, "000001", true);
        assert!(any_reports(bus.path()));
        assert!(!any_reports(&bus.path().join("none")));
    }

    #[test]
    fn an_order_that_no_block_has_is_not_reported() {
        let zones = "Node 0, zone      DMA      1      0      3\nNode 0, zone   Normal     12     10      7\n";
        assert!(is_reported("0\n", zones));
        assert!(is_reported("2\n", zones));
        assert!(!is_reported("3\n", zones));
        // Nothing says that it is not.
        assert!(is_reported("", zones));
        assert!(is_reported("3\n", ""));
    }
}
