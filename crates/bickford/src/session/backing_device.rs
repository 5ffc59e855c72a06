//! Where sysfs has the settings of a mount's backing device (sysfs-class-bdi of the kernel).

/// Its directory: `0:N`, of a mount of a block device `MAJOR:MINOR-fuseblk` (`fuse_bdi_init` of fs/fuse/inode.c), by the
/// numbers of the device.
pub(super) fn directory(connection: u32) -> String {
    // A `dev_t` of the kernel.
    let (major, minor) = (connection >> 20, connection & 0xf_ffff);
    match major {
        0 => format!("/sys/class/bdi/0:{minor}"),
        _ => format!("/sys/class/bdi/{major}:{minor}-fuseblk"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_device_has_another_beside_its_own() {
        assert_eq!(directory(53), "/sys/class/bdi/0:53");
        assert_eq!(directory(7 << 20 | 3), "/sys/class/bdi/7:3-fuseblk");
    }
}
