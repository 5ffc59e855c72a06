//! CPU time and I/O before and after a row.

use crate::host::device::Device;
use crate::measure::cpu::{ProcessTime, SystemTime};
use crate::measure::disk::Counters;
use crate::target::Target;

/// The counters at one moment. To find the daemon all processes are looked through, which natively is not done: the
/// machine's time is read on the other side of that, so that it is not counted to the row.
pub(super) struct Moment {
    pub(super) system: SystemTime,
    daemon: Option<ProcessTime>,
    pub(super) disk: Option<Counters>,
}

impl Moment {
    pub(super) fn before(device: &Device, target: &Target) -> Self {
        let daemon = target.daemon_time();
        Self {
            daemon,
            ..Self::of_machine(device)
        }
    }

    pub(super) fn after(device: &Device, target: &Target) -> Self {
        let machine = Self::of_machine(device);
        Self {
            daemon: target.daemon_time(),
            ..machine
        }
    }

    fn of_machine(device: &Device) -> Self {
        Self {
            system: SystemTime::now(),
            daemon: None,
            disk: device.counters().and_then(|path| Counters::read(&path)),
        }
    }

    pub(super) fn daemon_since(&self, earlier: &Self) -> Option<ProcessTime> {
        let (now, then) = (self.daemon?, earlier.daemon?);
        Some(ProcessTime {
            user_s: (now.user_s - then.user_s).max(0.0),
            system_s: (now.system_s - then.system_s).max(0.0),
        })
    }
}
