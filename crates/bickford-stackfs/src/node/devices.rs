//! The inode numbers that are shown: a mount has one device, and below it are as many as have been met.
//!
//! Each lower file system has a device of its own, and so has each subvolume of btrfs, which is no mount.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use rustix::fs::Statx;

use crate::sharded::spread;

/// Devices that are told apart for certain.
const DEVICES_MAX: usize = 4096;

/// See the module.
pub(crate) struct Devices {
    source: u64,
    /// What tells the inode numbers of further devices from those of the others.
    tags: RwLock<HashMap<u64, u64>>,
}

/// The device number of a `statx` answer as one word.
pub(crate) fn device(statx: &Statx) -> u64 {
    u64::from(statx.stx_dev_major) << 32 | u64::from(statx.stx_dev_minor)
}

impl Devices {
    /// Numbers of the device that `source` is on are shown as they are.
    pub(crate) fn new(source: &Statx) -> Self {
        Self {
            source: device(source),
            tags: RwLock::default(),
        }
    }

    /// The inode number shown for the object that `statx` is of.
    pub(crate) fn shown_inode(&self, statx: &Statx) -> u64 {
        statx.stx_ino ^ self.tag(device(statx))
    }

    /// Bits 48 to 62 of the numbers on a device: what they are to be changed with (xor) to be shown.
    pub(crate) fn tag(&self, device: u64) -> u64 {
        if device == self.source {
            return 0;
        }
        let known = self.tags.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(&tag) = known.get(&device) {
            return tag;
        }
        drop(known);
        let mut tags = self.tags.write().unwrap_or_else(PoisonError::into_inner);
        let full = tags.len() >= DEVICES_MAX;
        let tag = *tags.get(&device).unwrap_or(&new_tag(&tags, device, full));
        if !full {
            tags.insert(device, tag);
        }
        tag
    }
}

/// As far as the order of discovery allows the same from one run to the next. One that no other device has,
/// unless the table is `full`.
fn new_tag(tags: &HashMap<u64, u64>, device: u64, full: bool) -> u64 {
    let mut tag = spread(device, 15) as u64;
    while tag == 0 || (!full && tags.values().any(|&other| other == tag << 48)) {
        tag = (tag + 1) & 0x7fff;
    }
    tag << 48
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices() -> Devices {
        Devices {
            source: 7,
            tags: RwLock::default(),
        }
    }

    #[test]
    fn each_device_has_numbers_of_its_own() {
        let devices = devices();
        assert_eq!(devices.tag(7), 0);
        let met = (8..8 + DEVICES_MAX as u64).map(|device| devices.tag(device));
        let tags: std::collections::HashSet<_> = met.collect();
        assert_eq!(tags.len(), DEVICES_MAX);
        assert!(tags.iter().all(|tag| tag & 0x8000_ffff_ffff_ffff == 0));
        assert_eq!(devices.tag(9), devices.tag(9));
    }

    #[test]
    fn further_devices_are_not_remembered_and_keep_their_tag() {
        let devices = devices();
        for device in 8..8 + DEVICES_MAX as u64 {
            devices.tag(device);
        }
        assert_eq!(devices.tag(1 << 40), devices.tag(1 << 40));
        let known = devices.tags.read().unwrap();
        assert_eq!(known.len(), DEVICES_MAX);
    }
}
