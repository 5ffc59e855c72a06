//! How data of open files travel.

use std::str::FromStr;

use bickford::Negotiation;
use bickford::abi::InitFlags;
use rustix::io::Errno;

use crate::beneath::Beneath;
use crate::presets::{Settings, UnknownName};

/// How data of open files travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMode {
    /// The best that this kernel and these privileges allow: [`Self::Passthrough`], or else
    /// [`Self::Cached`] for an exclusive lower directory with `CAP_DAC_OVERRIDE`, and [`Self::Plain`]
    /// otherwise.
    #[default]
    Auto,
    /// The kernel reads and writes the lower file itself (Linux 6.9, `CAP_SYS_ADMIN`). A file that
    /// cannot go so goes through the daemon. Excludes the write-back cache. Attributes that are asked
    /// for while a file is open for reading and writing, or mapped so, are not cached: what is written
    /// to the mapping changes them unheard. Those cached before go with the first stat(2) after the
    /// mapping was made, or else when the file is closed; until then statx(2) that does not ask for the
    /// time of last access, as of ls(1), may tell an older time of modification.
    Passthrough,
    /// Through the page cache and the daemon; opening and closing cost no request. What open(2)
    /// would refuse for the lower file alone (it is immutable, its file system read-only) is
    /// refused by the first read or write instead. With the write-back cache what is appended to an
    /// append-only file (chattr(1)) more than a page at a time may be refused so, too. The lower file is opened when
    /// it is read or written first: without `CAP_DAC_OVERRIDE` what is written after the right to write was taken
    /// from the file may be lost, with an error of fsync(2) and close(2), where many such files are used at once.
    Cached,
    /// Through the daemon without the page cache (`FOPEN_DIRECT_IO`).
    Direct,
    /// Through the page cache and the daemon; each open and close is a request.
    Plain,
}

impl IoMode {
    pub(crate) const ALL: [Self; 5] = [
        Self::Auto,
        Self::Passthrough,
        Self::Cached,
        Self::Direct,
        Self::Plain,
    ];

    /// The name as it is given to `--io`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Passthrough => "passthrough",
            Self::Cached => "cached",
            Self::Direct => "direct",
            Self::Plain => "plain",
        }
    }
}

impl FromStr for IoMode {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == name)
            .ok_or_else(|| UnknownName::new(name, "auto, passthrough, cached, direct or plain"))
    }
}

/// What is in force once the kernel has said what it offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InForce {
    pub(crate) io: IoMode,
    pub(crate) write_back: bool,
    /// The kernel opens directories without asking ([`crate::listings`]).
    pub(crate) opens_directories: bool,
    /// When the kernel drops pages, what was written back of them before has been answered. Older kernels write back
    /// copies of pages, for which nothing waits.
    pub(crate) drops_what_is_written: bool,
}

/// The minor version since which the kernel writes back pages themselves: Linux 6.16.
const WRITES_PAGES_SINCE: u32 = 44;

/// What this process may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Powers {
    /// Register files for pass-through.
    pub(crate) register: bool,
    /// Open files whatever their mode says.
    pub(crate) override_modes: bool,
}

/// Why a mode that was asked for cannot be, and what to do.
fn impossible(wanted: IoMode, powers: Powers, negotiation: &Negotiation) -> Option<String> {
    let (offered, withheld) = (negotiation.offered(), negotiation.withheld());
    match wanted {
        IoMode::Passthrough if withheld.contains(InitFlags::PASSTHROUGH) => {
            Some("io=passthrough: a layer needs READ and WRITE to come; use io=auto".to_owned())
        }
        IoMode::Cached if withheld.contains(InitFlags::NO_OPEN_SUPPORT) => {
            Some("io=cached: a layer needs OPEN and RELEASE to come; use io=plain".to_owned())
        }
        IoMode::Passthrough if !powers.register || !offered.contains(InitFlags::PASSTHROUGH) => {
            Some(format!(
                "io=passthrough: Linux 6.9 and CAP_SYS_ADMIN are needed (kernel offers it: {}, capability held: \
                 {}); use io=cached",
                offered.contains(InitFlags::PASSTHROUGH),
                powers.register,
            ))
        }
        IoMode::Cached if !offered.contains(InitFlags::NO_OPEN_SUPPORT) => {
            Some("io=cached: Linux 3.16 is needed; use io=plain".to_owned())
        }
        _ => None,
    }
}

/// Why the kernel is to ask for every open, which io=cached does without.
fn unfit_for_cached(beneath: Beneath) -> Option<&'static str> {
    if beneath.source.computed {
        // Only an answer to open(2) can keep the kernel from believing sizes.
        return Some("SOURCE computes what its files contain, and they are read past the cache");
    }
    let reports = beneath.source.reports_on_close;
    reports.then_some("SOURCE tells what became of writes when a file is closed")
}

/// Settles the mode and asks the kernel for what it takes.
pub(crate) fn settle(
    settings: &Settings,
    powers: Powers,
    beneath: Beneath,
    negotiation: &mut Negotiation,
) -> Result<InForce, Errno> {
    let offered = negotiation.offered();
    let passthrough = powers.register && offered.contains(InitFlags::PASSTHROUGH);
    let cached = offered.contains(InitFlags::NO_OPEN_SUPPORT);
    let io = match settings.io {
        // What the kernel writes itself would come back as a change of somebody else.
        IoMode::Auto if passthrough && !settings.watch => IoMode::Passthrough,
        // A file that is open stays so, whatever becomes of its mode. That takes a handle, or this power.
        IoMode::Auto if settings.exclusive && cached && powers.override_modes => IoMode::Cached,
        IoMode::Auto => IoMode::Plain,
        wanted => {
            if let Some(reason) = impossible(wanted, powers, negotiation) {
                tracing::error!("{reason}");
                return Err(Errno::OPNOTSUPP);
            }
            wanted
        }
    };
    let io = match (io, unfit_for_cached(beneath)) {
        (IoMode::Cached, Some(reason)) => {
            tracing::warn!("StackFS: {reason}: io=plain instead of io=cached");
            IoMode::Plain
        }
        _ => io,
    };
    match io {
        IoMode::Passthrough => {
            negotiation.want(InitFlags::PASSTHROUGH);
            negotiation.set_max_stack_depth(if beneath.stacked { 2 } else { 1 });
        }
        // A shared mapping needs the page cache all the same.
        IoMode::Direct => {
            negotiation.want(InitFlags::DIRECT_IO_ALLOW_MMAP | InitFlags::ASYNC_DIO);
        }
        _ => {}
    }
    // With a write-back cache the kernel knows sizes and times better than we do, whoever changes
    // the file below.
    let may_write_back = match io {
        IoMode::Plain => !settings.watch,
        // Nobody asks us for open(2): write(2) is to refuse it, for few look at what close(2) says.
        IoMode::Cached => !settings.watch && !beneath.read_only,
        _ => false,
    };
    let write_back =
        settings.write_back && may_write_back && negotiation.want(InitFlags::WRITEBACK_CACHE);
    let exclusive = settings.exclusive;
    let opens_directories =
        exclusive && (beneath.lister).lets_the_kernel_open(powers.override_modes, negotiation);
    Ok(InForce {
        io,
        write_back,
        opens_directories,
        drops_what_is_written: negotiation.kernel_minor() >= WRITES_PAGES_SINCE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Preset;
    use crate::magic::Traits;
    use bickford::abi::InitIn;

    fn settled(io: IoMode, offered: InitFlags, register: bool) -> Result<InForce, Errno> {
        let powers = Powers {
            register,
            override_modes: true,
        };
        settled_with(io, offered, powers, Beneath::default())
    }

    fn settled_with(
        io: IoMode,
        offered: InitFlags,
        powers: Powers,
        beneath: Beneath,
    ) -> Result<InForce, Errno> {
        let mut settings = Preset::Fast.settings();
        settings.io = io;
        let mut negotiation = Negotiation::new(&offer(45, offered));
        settle(&settings, powers, beneath, &mut negotiation)
    }

    fn offer(minor: u32, offered: InitFlags) -> InitIn {
        let (flags, flags2) = (offered | InitFlags::INIT_EXT).to_words();
        InitIn {
            major: 7,
            minor,
            flags,
            flags2,
            ..InitIn::default()
        }
    }

    #[test]
    fn older_kernels_drop_pages_before_they_are_written() {
        let powers = Powers {
            register: false,
            override_modes: true,
        };
        for minor in [WRITES_PAGES_SINCE - 1, WRITES_PAGES_SINCE] {
            let mut negotiation = Negotiation::new(&offer(minor, InitFlags::NO_OPEN_SUPPORT));
            let settings = Preset::Fast.settings();
            let in_force = settle(&settings, powers, Beneath::default(), &mut negotiation);
            let waits = in_force.unwrap().drops_what_is_written;
            assert_eq!(waits, minor == WRITES_PAGES_SINCE, "7.{minor}");
        }
    }

    #[test]
    fn auto_takes_the_best_there_is() {
        let both = InitFlags::PASSTHROUGH | InitFlags::NO_OPEN_SUPPORT;
        let io = |offered, privileged| settled(IoMode::Auto, offered, privileged).unwrap().io;
        assert_eq!(io(both, true), IoMode::Passthrough);
        assert_eq!(io(both, false), IoMode::Cached);
        assert_eq!(io(InitFlags::empty(), true), IoMode::Plain);
    }

    #[test]
    fn auto_keeps_handles_where_modes_cannot_be_overridden() {
        let none = Powers {
            register: false,
            override_modes: false,
        };
        let io = |io| {
            let offered = InitFlags::NO_OPEN_SUPPORT;
            let settled = settled_with(io, offered, none, Beneath::default());
            settled.unwrap().io
        };
        assert_eq!(io(IoMode::Auto), IoMode::Plain);
        assert_eq!(io(IoMode::Cached), IoMode::Cached, "as it was asked for");
    }

    #[test]
    fn a_mode_that_cannot_be_is_refused() {
        let nothing = InitFlags::empty();
        assert_eq!(
            settled(IoMode::Passthrough, nothing, true),
            Err(Errno::OPNOTSUPP)
        );
        assert_eq!(
            settled(IoMode::Cached, nothing, true),
            Err(Errno::OPNOTSUPP)
        );
    }

    #[test]
    fn files_are_opened_by_request_where_source_wants_it() {
        let powers = Powers {
            register: true,
            override_modes: true,
        };
        for (asked, source, io) in [
            (IoMode::Cached, "proc", IoMode::Plain),
            (IoMode::Cached, "nfs4", IoMode::Plain),
            (IoMode::Cached, "ext4", IoMode::Cached),
            (IoMode::Auto, "proc", IoMode::Passthrough),
        ] {
            let beneath = Beneath {
                source: Traits::of_type(source),
                ..Beneath::default()
            };
            let settled = settled_with(asked, InitFlags::all(), powers, beneath);
            assert_eq!(settled.unwrap().io, io);
        }
    }

    #[test]
    fn passthrough_and_write_back_exclude_each_other() {
        let all = InitFlags::all();
        assert!(!settled(IoMode::Passthrough, all, true).unwrap().write_back);
        assert!(settled(IoMode::Cached, all, true).unwrap().write_back);
    }

    #[test]
    fn names_are_read_back() {
        for name in ["auto", "passthrough", "cached", "direct", "plain"] {
            assert_eq!(name.parse::<IoMode>().unwrap().name(), name);
        }
        let error = "fast".parse::<IoMode>().unwrap_err().to_string();
        assert!(
            error.contains("\"fast\"") && error.contains("passthrough"),
            "{error}"
        );
    }
}
