//! What the kernel offers: its INIT request, read and not answered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use bickford_abi::{InHeader, InitFlags, InitIn};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use zerocopy::FromBytes;

use super::{MountError, MountOptions, Unmount, direct, mount};

/// How long the kernel may take to send INIT. It is queued before the mount call returns.
const INIT_DEADLINE: Duration = Duration::from_secs(10);

/// A request of INIT and more: the device refuses shorter reads.
const BUFFER_LEN: usize = 8192 + 4096;

/// What this kernel offers to a FUSE server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelOffer {
    /// Major version of the protocol.
    pub major: u32,
    /// Minor version of the protocol.
    pub minor: u32,
    /// Largest read-ahead in bytes.
    pub max_readahead: u32,
    /// The features.
    pub flags: InitFlags,
}

/// Asks the kernel what it offers.
///
/// With CAP_SYS_ADMIN nothing is mounted for it; without, a temporary directory is for a moment.
pub fn probe_kernel() -> Result<KernelOffer, MountError> {
    let options = MountOptions::new().fsname("bickford-probe");
    if let Ok((device, _context)) = direct::connect(&options) {
        return read_offer(device.as_fd()).map_err(|source| MountError::Device { source });
    }
    let directory = std::env::temp_dir().join(format!("bickford-probe-{}", std::process::id()));
    let unusable = |source| MountError::Unusable {
        mountpoint: directory.clone(),
        source,
    };
    std::fs::create_dir(&directory).map_err(unusable)?;
    let offer = mount(&directory, &options).and_then(|mounted| {
        let offer = read_offer(mounted.device.as_fd());
        let unmounted = mounted.unmount(Unmount::Lazy).map_err(io::Error::other);
        offer
            .and_then(|offer| unmounted.map(|()| offer))
            .map_err(|source| MountError::Device { source })
    });
    std::fs::remove_dir(&directory).map_err(unusable)?;
    offer
}

fn read_offer(device: BorrowedFd<'_>) -> io::Result<KernelOffer> {
    let deadline = Timespec::try_from(INIT_DEADLINE).map_err(io::Error::other)?;
    let mut waiting = [PollFd::new(&device, PollFlags::IN)];
    if rustix::event::poll(&mut waiting, Some(&deadline))? == 0 {
        return Err(Errno::TIMEDOUT.into());
    }
    let mut buffer = vec![0_u8; BUFFER_LEN];
    let len = rustix::io::retry_on_intr(|| rustix::io::read(device, &mut buffer))?;
    parse_offer(buffer.get(..len).unwrap_or_default())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the first request is not INIT"))
}

fn parse_offer(request: &[u8]) -> Option<KernelOffer> {
    let (header, body) = InHeader::read_from_prefix(request).ok()?;
    if header.opcode != bickford_abi::Opcode::Init as u32 {
        return None;
    }
    // Kernels before 7.36 send the first four words only.
    let mut whole = [0_u8; size_of::<InitIn>()];
    let len = body.len().min(whole.len());
    whole.get_mut(..len)?.copy_from_slice(body.get(..len)?);
    let init = InitIn::read_from_bytes(&whole).ok()?;
    Some(KernelOffer {
        major: init.major,
        minor: init.minor,
        max_readahead: init.max_readahead,
        flags: InitFlags::from_words(init.flags, init.flags2),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn short_and_foreign_requests_are_no_offer() {
        let header = InHeader {
            opcode: 26,
            ..InHeader::default()
        };
        let init = InitIn {
            major: 7,
            minor: 45,
            flags: 1 << 30,
            flags2: 1 << 9,
            ..InitIn::default()
        };
        let whole = [header.as_bytes(), init.as_bytes()].concat();
        let offer = parse_offer(&whole).unwrap();
        assert_eq!((offer.major, offer.minor), (7, 45));
        assert!(offer.flags.contains(InitFlags::OVER_IO_URING));
        let old = parse_offer(&whole[..56]).unwrap();
        assert!(!old.flags.contains(InitFlags::OVER_IO_URING));
        assert_eq!(parse_offer(&whole[..39]), None);
        let lookup = InHeader {
            opcode: 1,
            ..InHeader::default()
        };
        assert_eq!(parse_offer(lookup.as_bytes()), None);
    }

    #[test]
    fn this_kernel_makes_an_offer() {
        match probe_kernel() {
            Ok(offer) => assert!(offer.major == 7 && offer.minor >= 12, "{offer:?}"),
            Err(error) => crate::watchdog::say(format_args!("left out: no FUSE here: {error}")),
        }
    }
}
