//! Set-user-id and set-group-id bits of what is written: they stay or go as the lower file system has it for the caller.

use std::os::fd::OwnedFd;

use bickford::Context;
use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;

use crate::Inner;
use crate::caller::{groups, keeps_set_id};
use crate::credentials::Acting;
use crate::invalidation::Unheard;

/// Bits that change of owner or group takes away, see chown(2).
pub(crate) fn has_bits_to_lose(stat: &Stat) -> bool {
    let mode = Mode::from_raw_mode(stat.st_mode);
    let directory = FileType::from_raw_mode(stat.st_mode).is_dir();
    !directory && (mode.contains(Mode::SUID) || mode.contains(Mode::SGID | Mode::XGRP))
}

pub(crate) fn has_set_id(stat: &Stat) -> bool {
    Mode::from_raw_mode(stat.st_mode).intersects(Mode::SUID | Mode::SGID)
}

/// Whether the set-group-id bit stays for who is in the file's group: `setattr_should_drop_sgid` of the kernel.
pub(crate) fn is_for_members_to_keep(stat: &Stat) -> bool {
    let mode = Mode::from_raw_mode(stat.st_mode);
    let file = FileType::from_raw_mode(stat.st_mode).is_file();
    file && mode.contains(Mode::SGID) && !mode.contains(Mode::XGRP)
}

impl Inner {
    /// Until this is dropped, set-id bits of the file with `stat` stay with what is done to it, or go (`drops`) as they
    /// would for the caller.
    pub(crate) fn dropping_set_id(
        &self,
        cx: &Context<'_>,
        stat: &Stat,
        drops: bool,
    ) -> Result<Acting<'_>, Errno> {
        self.identity.dropping_set_id(drops)?;
        match drops && is_for_members_to_keep(stat) {
            true => self.identity.as_in_groups(&groups(cx), stat.st_gid),
            false => Ok(self.identity.as_itself()),
        }
    }

    /// For operations whose request does not say whether the set-id bits of `file` go.
    pub(crate) fn as_powerful_as(
        &self,
        cx: &Context<'_>,
        file: &OwnedFd,
    ) -> Result<(Acting<'_>, Unheard), Errno> {
        let stat = rustix::fs::fstat(file)?;
        if !has_set_id(&stat) {
            self.identity.without_excess()?;
            return Ok((self.identity.as_itself(), Unheard(false)));
        }
        let drops = !keeps_set_id(cx);
        Ok((self.dropping_set_id(cx, &stat, drops)?, Unheard(drops)))
    }

    /// For a write that says itself whether set-id bits go. `unknown`: the kernel does not find out by itself that they
    /// have.
    pub(crate) fn writing(
        &self,
        cx: &Context<'_>,
        file: &OwnedFd,
        drops: bool,
        unknown: bool,
    ) -> Result<(Acting<'_>, Unheard), Errno> {
        if !drops {
            self.identity.with_fsetid()?;
            return Ok((self.identity.as_itself(), Unheard(false)));
        }
        let stat = rustix::fs::fstat(file)?;
        let acting = self.dropping_set_id(cx, &stat, true)?;
        Ok((acting, Unheard(unknown && has_set_id(&stat))))
    }
}
