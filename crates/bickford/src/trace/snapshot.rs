//! Statistics in a form for other programs.

use serde::{Deserialize, Serialize};

use super::{STAGES, Stats};
use crate::dispatch::Server;

/// What a session did so far, and what it is doing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// The process that serves.
    pub pid: u32,
    /// The transport in force.
    pub transport: String,
    /// A row for each opcode that came at least once.
    pub opcodes: Vec<OpcodeRow>,
    /// Requests without an answer, the oldest first.
    pub in_flight: Vec<InFlightRow>,
}

/// Statistics of one opcode.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OpcodeRow {
    /// The kernel's name of it, such as `LOOKUP`.
    pub name: String,
    /// Requests that were answered.
    pub count: u64,
    /// Those among them that were answered with an error.
    pub errors: u64,
    /// Bytes of answers without headers.
    pub bytes_out: u64,
    /// Nanoseconds spent in each stage: before the handler, in it, sending.
    pub nanoseconds: [u64; STAGES],
    /// For each stage, column N counts durations of 2^N to 2^(N+1) nanoseconds.
    pub histogram: Vec<Vec<u64>>,
}

/// A request without an answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct InFlightRow {
    /// Number of the request.
    pub unique: u64,
    /// The kernel's name of its opcode.
    pub name: String,
    /// The inode that is asked about.
    pub node: u64,
    /// The calling thread.
    pub pid: u32,
    /// Microseconds since it was received.
    pub age_us: u64,
    /// Whether its caller wants it to end.
    pub interrupted: bool,
}

impl Snapshot {
    /// Of a session now.
    #[must_use]
    pub fn of(server: &Server, transport: &str) -> Self {
        let stats = server.stats();
        let in_flight = server
            .in_flight()
            .list()
            .into_iter()
            .map(|request| InFlightRow {
                unique: request.unique.0,
                name: request.opcode.name().into(),
                node: request.node.0,
                pid: request.pid,
                age_us: u64::try_from(request.age.as_micros()).unwrap_or(u64::MAX),
                interrupted: request.interrupted,
            });
        Self {
            pid: std::process::id(),
            transport: transport.into(),
            opcodes: rows(&stats),
            in_flight: in_flight.collect(),
        }
    }
}

fn rows(stats: &Stats) -> Vec<OpcodeRow> {
    let named = bickford_abi::Opcode::ALL
        .iter()
        .map(|opcode| (opcode.name(), stats.of(*opcode)));
    named
        .filter(|(_, row)| row.count > 0)
        .map(|(name, row)| OpcodeRow {
            name: name.into(),
            count: row.count,
            errors: row.errors,
            bytes_out: row.bytes_out,
            nanoseconds: row.nanoseconds,
            histogram: row.histogram.iter().map(|column| column.to_vec()).collect(),
        })
        .collect()
}
