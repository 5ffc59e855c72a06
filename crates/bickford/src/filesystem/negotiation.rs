//! What the kernel offers at INIT, and what the file system takes of it.

use bickford_abi::{InitFlags, InitIn};

/// The kernel's offer and the file system's choice (`struct fuse_init_in`, `struct fuse_init_out`).
#[derive(Clone, Debug)]
pub struct Negotiation {
    offered: InitFlags,
    withheld: InitFlags,
    wanted: InitFlags,
    kernel_minor: u32,
    max_write: u32,
    max_readahead: u32,
    read_ahead: Option<u32>,
    max_background: u16,
    congestion_threshold: u16,
    time_granularity: u32,
    max_stack_depth: u32,
    splice_writes: bool,
    request_timeout: u16,
}

/// Largest payload of a request that the kernel sends by default limits (256 pages).
pub const MAX_WRITE: u32 = 1 << 20;

impl Negotiation {
    /// Flags that suit every file system; nothing here changes what its methods are asked.
    ///
    /// Not `ASYNC_DIO`: the kernel drops cached pages when a write past the cache ends, but not when one does
    /// that nobody waits for in write(2) (io_submit(2), io_uring). What was read meanwhile would stay cached,
    /// and be wrong. It suits files that are opened with `FOPEN_DIRECT_IO`.
    ///
    /// Not `ATOMIC_O_TRUNC`: open(2) with `O_RDONLY | O_TRUNC` of a program that runs is refused (ETXTBSY) after
    /// the file system has emptied it. And it does nothing where OPEN is not answered, or without its flags read.
    const DEFAULT: InitFlags = InitFlags::ASYNC_READ
        .union(InitFlags::BIG_WRITES)
        .union(InitFlags::MAX_PAGES)
        .union(InitFlags::PARALLEL_DIROPS)
        .union(InitFlags::INIT_EXT)
        .union(InitFlags::HAS_EXPIRE_ONLY)
        .union(InitFlags::HAS_RESEND)
        .union(InitFlags::SPLICE_READ)
        .union(InitFlags::ABORT_ERROR)
        .union(InitFlags::CACHE_SYMLINKS)
        .union(InitFlags::SETXATTR_EXT)
        .union(InitFlags::AUTO_INVAL_DATA);

    /// From what the kernel says, with default choices.
    #[must_use]
    pub fn new(init: &InitIn) -> Self {
        let offered = InitFlags::from_words(init.flags, init.flags2);
        Self {
            offered,
            withheld: InitFlags::empty(),
            wanted: offered & Self::DEFAULT.difference(InitFlags::CACHE_SYMLINKS),
            kernel_minor: init.minor,
            max_write: MAX_WRITE,
            max_readahead: init.max_readahead,
            read_ahead: None,
            max_background: 64,
            congestion_threshold: 48,
            time_granularity: 1,
            max_stack_depth: 0,
            splice_writes: false,
            request_timeout: 0,
        }
    }

    /// What the kernel offers.
    #[must_use]
    pub fn offered(&self) -> InitFlags {
        self.offered
    }

    /// What will be answered.
    #[must_use]
    pub fn wanted(&self) -> InitFlags {
        self.wanted
    }

    /// The kernel's minor version.
    #[must_use]
    pub fn kernel_minor(&self) -> u32 {
        self.kernel_minor
    }

    /// Wants flags, as far as they are offered. Answers whether all were.
    pub fn want(&mut self, flags: InitFlags) -> bool {
        self.wanted |= self.offered & flags;
        self.offered.contains(flags)
    }

    /// Does not want flags.
    pub fn refuse(&mut self, flags: InitFlags) {
        self.wanted -= flags;
    }

    /// Lets mounts of the file system be id-mapped (mount_setattr(2), `FUSE_ALLOW_IDMAP`). Answers whether
    /// they can be: from Linux 6.12 on. The kernel has to check permissions, so either
    /// [`InitFlags::POSIX_ACL`] is wanted as well or the mount has
    /// [`default_permissions`](crate::mount::MountOptions::default_permissions).
    ///
    /// Owners in requests and answers stay those of the file system: the kernel maps them. It tells the
    /// caller's ids only where something is made, mapped as well, whichever mount it comes through:
    /// [`Context::has_ids`](crate::Context::has_ids).
    pub fn allow_idmap(&mut self) -> bool {
        self.want(InitFlags::ALLOW_IDMAP)
    }

    /// Takes flags out of what the kernel offers, so that nobody asked later can want them: how a
    /// layer keeps the file system below from what it cannot stand.
    pub fn withhold(&mut self, flags: InitFlags) {
        self.withheld |= self.offered & flags;
        self.offered -= flags;
        self.wanted -= flags;
    }

    /// What the kernel offers and [`Self::withhold`] took out.
    #[must_use]
    pub fn withheld(&self) -> InitFlags {
        self.withheld
    }

    /// Bytes of data that a WRITE or READ may carry, from 4 KiB to 1 MiB.
    pub fn set_max_write(&mut self, bytes: u32) {
        self.max_write = bytes.clamp(4096, MAX_WRITE);
    }

    /// Bytes of data that a WRITE or READ may carry.
    #[must_use]
    pub fn max_write(&self) -> u32 {
        self.max_write
    }

    /// Bytes that the kernel may read ahead; no more than it offers.
    pub fn set_max_readahead(&mut self, bytes: u32) {
        self.max_readahead = self.max_readahead.min(bytes);
    }

    /// Bytes that the kernel may read ahead.
    #[must_use]
    pub fn max_readahead(&self) -> u32 {
        self.max_readahead
    }

    /// Bytes that the kernel shall read ahead, also above what it offers: a mounting session that
    /// may then raises the mount's `read_ahead_kb` in sysfs. More than a request carries becomes
    /// several requests at once.
    pub fn set_read_ahead(&mut self, bytes: u32) {
        self.set_max_readahead(bytes);
        self.read_ahead = Some(bytes);
    }

    /// Bytes that the kernel shall read ahead, where [`Negotiation::set_read_ahead`] has said so.
    #[must_use]
    pub fn read_ahead(&self) -> Option<u32> {
        self.read_ahead
    }

    /// How many requests of the background queue (read-ahead, write-back, RELEASE) may be here at
    /// once, and from how many on the kernel takes the device to be congested.
    pub fn set_background(&mut self, max: u16, congestion_threshold: u16) {
        self.max_background = max.max(1);
        self.congestion_threshold = congestion_threshold.min(self.max_background);
    }

    /// The limit of background requests, and the threshold of congestion.
    #[must_use]
    pub fn background(&self) -> (u16, u16) {
        (self.max_background, self.congestion_threshold)
    }

    /// Resolution of timestamps in nanoseconds.
    pub fn set_time_granularity(&mut self, nanoseconds: u32) {
        self.time_granularity = nanoseconds.clamp(1, 1_000_000_000);
    }

    /// Resolution of timestamps in nanoseconds.
    #[must_use]
    pub fn time_granularity(&self) -> u32 {
        self.time_granularity
    }

    /// How deep the file systems of backing files may be stacked themselves; one allows the usual
    /// file systems, two an overlay. Must be above zero for pass-through.
    pub fn set_max_stack_depth(&mut self, depth: u32) {
        self.max_stack_depth = depth.min(2);
    }

    /// How deep the file systems of backing files may be stacked themselves.
    #[must_use]
    pub fn max_stack_depth(&self) -> u32 {
        self.max_stack_depth
    }

    /// Lets the transport hand the data of WRITE over in a pipe ([`crate::ops::Payload`]), so that
    /// [`crate::ops::Payload::write_to`] moves pages instead of copying bytes. Only /dev/fuse does,
    /// and only where the largest request fits into a pipe: a process without CAP_SYS_RESOURCE,
    /// whose pipes hold 1 MiB, sets [`Negotiation::set_max_write`] to at most 512 KiB too.
    pub fn set_splice_writes(&mut self, splice: bool) {
        self.splice_writes = splice;
    }

    /// Whether data of WRITE may come in a pipe.
    #[must_use]
    pub fn splice_writes(&self) -> bool {
        self.splice_writes
    }

    /// After how many seconds without an answer the kernel aborts the connection; zero for never. Answers whether it
    /// does: from Linux 6.15 on. It looks every 15 seconds: less counts as 15, and it may take 15 more. Sysctls
    /// (`fs.fuse.default_request_timeout`, `fs.fuse.max_request_timeout`) bound it, also where it is never.
    pub fn set_request_timeout(&mut self, seconds: u16) -> bool {
        self.request_timeout = 0;
        if seconds == 0 {
            self.refuse(InitFlags::REQUEST_TIMEOUT);
            return true;
        }
        let offered = self.want(InitFlags::REQUEST_TIMEOUT);
        if offered {
            self.request_timeout = seconds;
        }
        offered
    }

    /// After how many seconds without an answer the kernel aborts the connection.
    #[must_use]
    pub fn request_timeout(&self) -> u16 {
        self.request_timeout
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn truncation_on_open_is_left_to_setattr() {
        let mut init = InitIn::new_zeroed();
        (init.flags, init.flags2) = (u32::MAX, u32::MAX);
        let mut negotiation = Negotiation::new(&init);
        assert!(negotiation.offered().contains(InitFlags::ATOMIC_O_TRUNC));
        assert!(!negotiation.wanted().contains(InitFlags::ATOMIC_O_TRUNC));
        assert!(negotiation.want(InitFlags::ATOMIC_O_TRUNC));
        assert!(negotiation.wanted().contains(InitFlags::ATOMIC_O_TRUNC));
    }

    #[test]
    fn a_request_timeout_of_zero_is_none() {
        let mut init = InitIn::new_zeroed();
        (init.flags, init.flags2) = (u32::MAX, u32::MAX);
        let mut negotiation = Negotiation::new(&init);
        for seconds in [30, 0] {
            assert!(negotiation.set_request_timeout(seconds));
            let wanted = negotiation.wanted().contains(InitFlags::REQUEST_TIMEOUT);
            assert_eq!(
                (negotiation.request_timeout(), wanted),
                (seconds, seconds > 0)
            );
        }
    }
}
