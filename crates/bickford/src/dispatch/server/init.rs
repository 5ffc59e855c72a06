//! INIT: what the kernel offers, what the file system chooses, and what comes of it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use bickford_abi::{self as abi, InitFlags, InitIn, InitOut};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::{Admission, Negotiated, Server, respond, respond_error};
use crate::decode::Incoming;
use crate::filesystem::Negotiation;
use crate::ops::Protocol;
use crate::transport::{DATA_MIN, Responder, Ticket};

impl Server {
    pub(super) fn initialize(
        &self,
        mut incoming: Incoming<'_>,
        responder: &Arc<dyn Responder>,
        ticket: Ticket,
    ) {
        // Before 7.36 the structure ends after `flags`.
        let known = incoming.length.saturating_sub(size_of::<abi::InHeader>());
        let input: InitIn = match incoming.body.read_old(known.min(size_of::<InitIn>())) {
            Ok(input) if known >= 8 => input,
            _ => {
                tracing::warn!(bytes = known, "malformed INIT");
                return respond_error(responder, ticket, Errno::INVAL);
            }
        };
        if input.major < abi::KERNEL_VERSION {
            tracing::error!(
                major = input.major,
                minor = input.minor,
                "the kernel's ABI is too old"
            );
            self.refused_with(io::Error::other("the kernel's ABI is too old"));
            return respond_error(responder, ticket, Errno::PROTO);
        }
        if input.major > abi::KERNEL_VERSION {
            // The kernel answers with another INIT of our version.
            let out = InitOut {
                major: abi::KERNEL_VERSION,
                minor: abi::MINOR_VERSION,
                ..InitOut::default()
            };
            return respond(responder, ticket, 0, out.as_bytes());
        }
        if self.shared.negotiated.get().is_some() {
            tracing::warn!("a second INIT");
            return respond_error(responder, ticket, Errno::INVAL);
        }
        let mut offer = input;
        if input.minor < 6 {
            offer.flags = 0;
            offer.flags2 = 0;
        }
        let offered = InitFlags::from_words(offer.flags, offer.flags2) & self.config.allowed;
        (offer.flags, offer.flags2) = offered.to_words();
        let mut negotiation = Negotiation::new(&offer);
        // Allowed only where the transport has its rings ready.
        negotiation.want(InitFlags::OVER_IO_URING);
        if let Err(errno) = self.ask(&mut negotiation) {
            return respond_error(responder, ticket, errno);
        }
        if let Err(reason) = self.config.limits.apply(&mut negotiation) {
            tracing::error!("{reason}");
            self.refused_with(io::Error::new(io::ErrorKind::Unsupported, reason));
            return respond_error(responder, ticket, Errno::PROTO);
        }
        if let Some(reason) = self.cannot_be_mapped(negotiation.wanted()) {
            tracing::error!("allow id-mapped mounts: {reason}");
            self.refused_with(io::Error::new(io::ErrorKind::InvalidInput, reason));
            return respond_error(responder, ticket, Errno::INVAL);
        }
        self.settle(&input, negotiation, responder, ticket);
    }

    /// Why mounts cannot be id-mapped, where the file system wants to let them. The kernel itself would end the
    /// connection without a word.
    fn cannot_be_mapped(&self, wanted: InitFlags) -> Option<&'static str> {
        if !wanted.contains(InitFlags::ALLOW_IDMAP) {
            return None;
        }
        let unchecked = self.config.default_permissions == Some(false);
        if self.config.access != Admission::Kernel {
            Some(
                "allow_root asks who calls, and the kernel does not tell then; leave one of the two out",
            )
        } else if unchecked && !wanted.contains(InitFlags::POSIX_ACL) {
            Some("the kernel has to check permissions then; mount with default_permissions")
        } else {
            None
        }
    }

    fn settle(
        &self,
        input: &InitIn,
        negotiation: Negotiation,
        responder: &Arc<dyn Responder>,
        ticket: Ticket,
    ) {
        let (flags, flags2) = negotiation.wanted().to_words();
        let (max_background, congestion_threshold) = negotiation.background();
        let page = u32::try_from(rustix::param::page_size()).unwrap_or(u32::MAX);
        let (max_write, max_pages) = sizes(&negotiation, page);
        let minor = input.minor.min(abi::MINOR_VERSION);
        let out = InitOut {
            major: abi::KERNEL_VERSION,
            minor: abi::MINOR_VERSION,
            max_readahead: negotiation.max_readahead(),
            flags,
            max_background,
            congestion_threshold,
            max_write,
            time_gran: negotiation.time_granularity(),
            max_pages,
            flags2,
            max_stack_depth: negotiation.max_stack_depth(),
            request_timeout: negotiation.request_timeout(),
            ..InitOut::default()
        };
        let known = match minor {
            0..5 => abi::COMPAT_INIT_OUT_SIZE,
            5..23 => abi::COMPAT_22_INIT_OUT_SIZE,
            _ => size_of::<InitOut>(),
        };
        let protocol = Protocol {
            minor,
            flags: negotiation.wanted(),
        };
        if self
            .shared
            .negotiated
            .set(Negotiated {
                protocol,
                negotiation,
            })
            .is_err()
        {
            return respond_error(responder, ticket, Errno::INVAL);
        }
        let out = out.as_bytes().get(..known).unwrap_or_default();
        respond(responder, ticket, 0, out);
    }

    fn ask(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        let call = AssertUnwindSafe(|| self.filesystem.init(negotiation));
        let Ok(answer) = catch_unwind(call) else {
            let text = "the file system panicked in init";
            tracing::error!("{text}");
            self.refused_with(io::Error::other(text));
            return Err(Errno::IO);
        };
        answer.inspect_err(|errno| {
            tracing::error!("the file system refused to begin: {errno}");
            self.refused_with((*errno).into());
        })
    }

    fn refused_with(&self, reason: io::Error) {
        let refusal = self.refusal.lock();
        *refusal.unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    /// Why INIT was refused; tells it once.
    pub(crate) fn take_refusal(&self) -> Option<io::Error> {
        let refusal = self.refusal.lock();
        refusal.unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// `max_write` and `max_pages`, of `page` bytes each, as they are answered.
///
/// An entry of io_uring has for the kernel the larger of the two. Linux 6.18 does not look whether a request fits:
/// with a value of an extended attribute that does not, the thread that takes it and its caller are lost until the
/// machine is restarted (`BUG_ON` in `fuse_copy_fill` of fs/fuse/dev.c). A request for data has neither more bytes
/// nor more pages than are answered; so over io_uring the pages bound it where `max_write` must be larger.
fn sizes(negotiation: &Negotiation, page: u32) -> (u32, u16) {
    let max_write = negotiation.max_write();
    let pages = |count| u16::try_from(count).unwrap_or(u16::MAX);
    let bounded = InitFlags::OVER_IO_URING | InitFlags::MAX_PAGES;
    if negotiation.wanted().contains(bounded) && max_write < DATA_MIN {
        return (DATA_MIN, pages(max_write / page));
    }
    (max_write, pages(max_write.div_ceil(page)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::MAX_WRITE;
    use zerocopy::FromZeros;

    #[test]
    fn an_entry_of_io_uring_has_room_for_extended_attributes() {
        let mut init = InitIn::new_zeroed();
        (init.flags, init.flags2) = (u32::MAX, u32::MAX);
        let sizes_of = |max_write, over_io_uring| {
            let mut negotiation = Negotiation::new(&init);
            negotiation.set_max_write(max_write);
            if over_io_uring {
                negotiation.want(InitFlags::OVER_IO_URING);
            }
            sizes(&negotiation, 4096)
        };
        for max_write in [4096, 5000, 65_536, DATA_MIN - 1] {
            let pages = u16::try_from(max_write / 4096).unwrap();
            assert_eq!(sizes_of(max_write, true), (DATA_MIN, pages));
            let (answered, pages) = sizes_of(max_write, false);
            assert_eq!(answered, max_write);
            assert!(u32::from(pages) * 4096 >= max_write);
        }
        for max_write in [DATA_MIN, 1 << 20] {
            assert_eq!(sizes_of(max_write, true), sizes_of(max_write, false));
        }
    }

    #[test]
    fn requests_are_no_larger_where_pages_are() {
        let mut init = InitIn::new_zeroed();
        (init.flags, init.flags2) = (u32::MAX, u32::MAX);
        let negotiation = Negotiation::new(&init);
        for (page, pages) in [(4096, 256), (16 << 10, 64), (64 << 10, 16)] {
            assert_eq!(sizes(&negotiation, page), (MAX_WRITE, pages));
        }
    }

    #[test]
    fn without_a_number_of_pages_there_is_room_anyway() {
        let mut init = InitIn::new_zeroed();
        (init.flags, init.flags2) = (u32::MAX, u32::MAX);
        let mut negotiation = Negotiation::new(&init);
        negotiation.set_max_write(4096);
        negotiation.want(InitFlags::OVER_IO_URING);
        negotiation.refuse(InitFlags::MAX_PAGES);
        // The kernel takes 32.
        assert_eq!(sizes(&negotiation, 4096).0, 4096);
    }
}
