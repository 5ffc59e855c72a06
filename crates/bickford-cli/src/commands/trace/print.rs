//! How a request is printed.

use std::io::{self, Write};

use bickford::trace::Event;
use bickford::trace::kernel::KernelRequest;
use bickford_program::terminal::printable;
use serde_json::{Value, json};

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// A line for each request
    Text,
    /// A JSON object for each request; "open": true if it has no answer yet
    Json,
    /// For chrome://tracing and Perfetto; what has no answer lasts until the end
    Chrome,
}

/// A request without an answer.
pub(super) struct Open {
    /// The moment of which the age is told.
    pub(super) at_ns: u64,
    /// Whether the daemon has it, where the daemon says so.
    pub(super) received: Option<bool>,
    /// Whether its answer may be among events that were lost.
    may_have_ended: bool,
}

impl Open {
    /// `lost` tells whether any events were lost.
    pub(super) fn new(at_ns: u64, received: Option<bool>, lost: bool) -> Self {
        let may_have_ended = lost && received != Some(true);
        Self {
            at_ns,
            received: received.filter(|_| !may_have_ended),
            may_have_ended,
        }
    }

    fn remark(&self) -> &'static str {
        match self.received {
            Some(true) => ", the daemon has it",
            Some(false) => ", the daemon has not taken it",
            None if self.may_have_ended => ", or its end is among the events that were lost",
            None => "",
        }
    }
}

/// The kernel's view of a request, and the daemon's where it is known.
pub(super) struct Request {
    pub(super) kernel: KernelRequest,
    pub(super) daemon: Option<Event>,
    /// For how long of the handler its thread was in system calls, where that is known.
    pub(super) lower_ns: Option<u64>,
    pub(super) open: Option<Open>,
}

/// Microseconds in each stage.
struct Stages {
    /// Not known of a request from before tracing began.
    queued: Option<f64>,
    decode: f64,
    handler: f64,
    /// The part of `handler` in system calls.
    lower: Option<f64>,
    reply: f64,
}

impl Request {
    /// When it was sent, or received if that is all that is known.
    fn sent_ns(&self) -> u64 {
        match &self.daemon {
            Some(event) if self.kernel.before => event.received,
            _ => self.kernel.sent_ns,
        }
    }

    fn total_us(&self) -> f64 {
        let until = self
            .open
            .as_ref()
            .map_or(self.kernel.ended_ns, |open| open.at_ns);
        until.saturating_sub(self.sent_ns()) as f64 / 1e3
    }

    fn stages(&self) -> Option<Stages> {
        let event = self.daemon.as_ref()?;
        let end = self.kernel.ended_ns;
        // The daemon returns from sending after the kernel has ended the request. The daemon's clock may be
        // off by fractions of a microsecond.
        let received = event.received.max(self.sent_ns()).min(end);
        let decoded = event.decoded.clamp(received, end);
        let handled = event.handled.clamp(decoded, end);
        let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
        Some(Stages {
            queued: (!self.kernel.before).then(|| us(self.sent_ns(), received)),
            decode: us(received, decoded),
            handler: us(decoded, handled),
            lower: self
                .lower_ns
                .map(|lower| (lower as f64 / 1e3).min(us(decoded, handled))),
            reply: us(handled, end),
        })
    }

    fn text(&self) -> String {
        let kernel = &self.kernel;
        let mut line = format!(
            "{:>16.6} {:<16} {:>10} {}-{} ",
            self.sent_ns() as f64 / 1e9,
            kernel.name(),
            kernel.unique,
            printable(&kernel.comm),
            kernel.pid,
        );
        let total = self.total_us();
        line += &match &self.open {
            Some(_) => format!("open for {total:.1} us"),
            None => format!("{total:.1} us error {}", kernel.error),
        };
        if kernel.before {
            line += ", sent before tracing began";
        }
        line += self.open.as_ref().map_or("", Open::remark);
        if let Some(stages) = self.stages() {
            line += ": ";
            if let Some(queued) = stages.queued {
                line += &format!("queued {queued:.1}, ");
            }
            line += &format!("decode {:.1}, handler {:.1}", stages.decode, stages.handler);
            if let Some(lower) = stages.lower {
                line += &format!(" (lower {lower:.1})");
            }
            line += &format!(", reply {:.1}", stages.reply);
        }
        line
    }

    fn object(&self) -> Value {
        let kernel = &self.kernel;
        let mut object = json!({
            "connection": kernel.connection, "unique": kernel.unique, "opcode": kernel.name(),
            "comm": kernel.comm, "pid": kernel.pid, "sent_us": self.sent_ns() as f64 / 1e3,
            "before": kernel.before, "open": self.open.is_some(),
        });
        let rest = match &self.open {
            Some(open) => json!({
                "age_us": self.total_us(), "received": open.received,
                "may_have_ended": open.may_have_ended,
            }),
            None => json!({
                "total_us": self.total_us(), "bytes_in": kernel.bytes_in,
                "bytes_out": kernel.bytes_out, "error": kernel.error,
                "stages_us": self.stages().map(|stages| json!({
                    "queued": stages.queued, "decode": stages.decode,
                    "handler": stages.handler, "reply": stages.reply,
                })),
                "lower_us": self.stages().and_then(|stages| stages.lower),
            }),
        };
        if let (Value::Object(object), Value::Object(rest)) = (&mut object, rest) {
            object.extend(rest);
        }
        object
    }
}

/// Prints requests as they end.
pub(super) struct Printer<W> {
    format: Format,
    first: bool,
    out: W,
}

impl<W: Write> Printer<W> {
    pub(super) fn begin(format: Format, mut out: W) -> io::Result<Self> {
        if format == Format::Chrome {
            writeln!(out, "[")?;
        }
        Ok(Self {
            format,
            first: true,
            out,
        })
    }

    /// Whether a request may be printed twice: as open, and when it has ended.
    pub(super) fn tells_changes(&self) -> bool {
        self.format != Format::Chrome
    }

    pub(super) fn print(&mut self, request: &Request) -> io::Result<()> {
        match self.format {
            Format::Text => writeln!(self.out, "{}", request.text()),
            Format::Json => writeln!(self.out, "{}", request.object()),
            Format::Chrome => {
                let comma = if std::mem::take(&mut self.first) {
                    ""
                } else {
                    ",\n"
                };
                let mark = |phase: &str, ts: f64| {
                    json!({
                        "name": request.kernel.name(), "cat": "fuse", "ph": phase, "ts": ts,
                        // A number of JSON may have 53 bits only.
                        "id": request.kernel.unique.to_string(),
                        "pid": request.kernel.connection, "tid": request.kernel.pid,
                    })
                };
                let sent_us = request.sent_ns() as f64 / 1e3;
                // Requests of one caller may overlap, which spans of one thread ("X") must not.
                let mut begin = mark("b", sent_us);
                begin["args"] = request.object();
                let end = mark("e", sent_us + request.total_us());
                write!(self.out, "{comma}{begin},\n{end}")
            }
        }
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        if self.format == Format::Chrome {
            writeln!(self.out, "\n]")?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_events_were_lost_nothing_is_said_not_to_be_taken() {
        let told = |received, lost| {
            let open = Open::new(1, received, lost);
            (open.received, open.may_have_ended, open.remark())
        };
        let lost = (
            None,
            true,
            ", or its end is among the events that were lost",
        );
        assert_eq!(told(Some(false), true), lost);
        assert_eq!(told(None, true), lost);
        let has = (Some(true), false, ", the daemon has it");
        assert_eq!([told(Some(true), true), told(Some(true), false)], [has; 2]);
        let waits = (Some(false), false, ", the daemon has not taken it");
        assert_eq!(told(Some(false), false), waits);
        assert_eq!(told(None, false), (None, false, ""));
    }
}
