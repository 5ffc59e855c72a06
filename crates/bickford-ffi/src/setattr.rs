//! SETATTR as a flat request: the operation with the most optional fields.

use bickford::NodeId;
use bickford::ops::{SetTime, Setattr};

use crate::abi::*;
use crate::parameters::{
    Changed, Parameters, from_time, handle, has, owner, put_handle, put_owner, to_time,
};

/// Says whether there is a number to set; it, or zero.
pub(crate) fn take_number(request: &mut bickford_request, number: Option<u32>, bit: u32) -> u32 {
    if number.is_some() {
        request.present |= bit;
    }
    number.unwrap_or_default()
}

/// A size to set.
pub(crate) fn put_size(request: &mut bickford_request, size: u64) {
    request.size = size;
    request.present |= BICKFORD_HAS_SIZE;
}

/// Times to set.
pub(crate) fn put_times(
    request: &mut bickford_request,
    accessed: Option<SetTime>,
    modified: Option<SetTime>,
) {
    let mut put = |time: Option<SetTime>, set, now| match time {
        Some(SetTime::At(at)) => {
            request.present |= set;
            to_time(at)
        }
        Some(SetTime::Now) => {
            request.present |= now;
            bickford_time::default()
        }
        None => bickford_time::default(),
    };
    let accessed = put(accessed, BICKFORD_HAS_ACCESSED, BICKFORD_HAS_ACCESSED_NOW);
    let modified = put(modified, BICKFORD_HAS_MODIFIED, BICKFORD_HAS_MODIFIED_NOW);
    (request.accessed, request.modified) = (accessed, modified);
}

impl<'a> Parameters<'a> for Setattr {
    fn fill(&self, request: &mut bickford_request) {
        request.present = 0;
        request.mode = take_number(request, self.mode, BICKFORD_HAS_MODE);
        request.new_uid = take_number(request, self.uid, BICKFORD_HAS_UID);
        request.new_gid = take_number(request, self.gid, BICKFORD_HAS_GID);
        put_times(request, self.accessed, self.modified);
        if let Some(changed) = self.changed {
            request.changed = to_time(changed);
            request.present |= BICKFORD_HAS_CHANGED;
        }
        if self.kill_suidgid {
            request.present |= BICKFORD_HAS_KILL_SUIDGID;
        }
        if let Some(size) = self.size {
            put_size(request, size);
        }
        request.node = self.node.0;
        put_handle(request, self.handle);
        put_owner(request, self.lock_owner);
    }

    fn apply(&mut self, request: &bickford_request, _: &'a Changed<'a>) {
        let time = |at, set, now| match () {
            () if has(request, now) => Some(SetTime::Now),
            () if has(request, set) => Some(SetTime::At(from_time(at))),
            () => None,
        };
        self.node = NodeId(request.node);
        self.handle = handle(request);
        self.mode = has(request, BICKFORD_HAS_MODE).then_some(request.mode);
        self.uid = has(request, BICKFORD_HAS_UID).then_some(request.new_uid);
        self.gid = has(request, BICKFORD_HAS_GID).then_some(request.new_gid);
        self.size = has(request, BICKFORD_HAS_SIZE).then_some(request.size);
        self.accessed = time(
            request.accessed,
            BICKFORD_HAS_ACCESSED,
            BICKFORD_HAS_ACCESSED_NOW,
        );
        self.modified = time(
            request.modified,
            BICKFORD_HAS_MODIFIED,
            BICKFORD_HAS_MODIFIED_NOW,
        );
        self.changed = has(request, BICKFORD_HAS_CHANGED).then_some(from_time(request.changed));
        self.lock_owner = owner(request);
        self.kill_suidgid = has(request, BICKFORD_HAS_KILL_SUIDGID);
    }
}
