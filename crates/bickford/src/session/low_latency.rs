//! Keeps the CPUs from sleeping while requests come, by a hold on /dev/cpu_dma_latency
//! (Documentation/power/pm_qos_interface of the kernel).
//!
//! A CPU that has gone to sleep takes its time to wake up, in a virtual machine longer than a
//! request takes to be handled. Whoever holds the device with the value 0 keeps all CPUs of the
//! machine polling instead: they use power, and a virtual machine its host's CPUs, as if they were
//! busy. So the hold is let go soon after the last request.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::dispatch::{Activity, InFlight};

/// Requests that have been here for so many idle times with no other coming wait for something else
/// than a CPU: a lock, a device, another process.
const LONG: u32 = 10;

/// When the CPUs are kept from sleeping; see [`super::SessionConfig::low_latency`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowLatency {
    /// For how long after the last request.
    pub idle: Duration,
    /// What is held: a file that takes a 32-bit number of microseconds.
    pub device: &'static str,
}

impl Default for LowLatency {
    fn default() -> Self {
        Self {
            idle: Duration::from_millis(100),
            device: "/dev/cpu_dma_latency",
        }
    }
}

impl LowLatency {
    /// Holds the device until the result is dropped.
    fn hold(self) -> io::Result<File> {
        let mut device = OpenOptions::new().write(true).open(self.device)?;
        device.write_all(&0_i32.to_ne_bytes())?;
        Ok(device)
    }

    /// Whether the device can be held by this process; says why not.
    ///
    /// # Errors
    /// With what is missing and what to do about it.
    pub fn probe(self) -> io::Result<()> {
        self.hold().map(drop).map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::NotFound => {
                    "the kernel needs CONFIG_CPU_IDLE, or the container the device"
                }
                io::ErrorKind::PermissionDenied => "run as root, or let this user write to it",
                _ => "it must be the kernel's device of PM QoS",
            };
            io::Error::new(
                error.kind(),
                format!("{} cannot be held: {error}; {advice}", self.device),
            )
        })
    }
}

/// Holds while requests come, until it is dropped.
#[derive(Debug)]
pub(super) struct Holder {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Holder {
    /// Begins, if the device can be held.
    pub(super) fn start(wanted: LowLatency, in_flight: &Arc<InFlight>) -> io::Result<Self> {
        wanted.probe()?;
        let activity = in_flight.activity();
        let ended = Arc::new(AtomicBool::new(false));
        let (end, requests) = (Arc::clone(&ended), Arc::clone(in_flight));
        let thread = thread::Builder::new()
            .name("bickford-awake".into())
            .spawn(move || run(wanted, &activity, &end, &requests))?;
        Ok(Self {
            ended,
            thread: Some(thread),
        })
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the thread that keeps the CPUs awake panicked");
            }
        }
    }
}

fn run(wanted: LowLatency, activity: &Activity, ended: &AtomicBool, in_flight: &InFlight) {
    while activity.wait(ended) {
        let held = match wanted.hold() {
            Ok(held) => held,
            Err(error) => {
                return tracing::warn!("{}: {error}; the CPUs may sleep", wanted.device);
            }
        };
        let mut quiet = 0;
        while !ended.load(Ordering::SeqCst) {
            pause(wanted.idle, ended);
            quiet = if activity.take() { 0 } else { quiet + 1 };
            if quiet >= LONG || (quiet > 0 && in_flight.is_empty()) {
                break;
            }
        }
        drop(held);
    }
}

fn pause(length: Duration, ended: &AtomicBool) {
    let begin = Instant::now();
    while !ended.load(Ordering::SeqCst) {
        match length.checked_sub(begin.elapsed()) {
            Some(rest) if !rest.is_zero() => thread::park_timeout(rest),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_held_is_said_with_advice() {
        let missing = LowLatency {
            device: "/nonexistent/device",
            ..LowLatency::default()
        };
        let text = missing.probe().unwrap_err().to_string();
        assert!(
            text.contains("/nonexistent/device cannot be held") && text.contains("CONFIG_CPU_IDLE"),
            "{text}"
        );
    }
}
