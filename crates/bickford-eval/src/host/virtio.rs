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
    any_reports(Path::new("/sys/bus/virtio/devices"))
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
}
