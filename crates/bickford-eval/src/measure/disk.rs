//! Traffic and utilisation of a block device, from its `stat` in /sys.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Counters of a block device since it appeared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Reads and writes.
    pub operations: u64,
    /// Milliseconds with at least one I/O under way.
    pub busy_ms: u64,
}

impl Counters {
    /// Reads `directory/stat`.
    #[must_use]
    pub fn read(directory: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(directory.join("stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let fields: Vec<u64> = stat
            .split_whitespace()
            .map_while(|f| f.parse().ok())
            .collect();
        // Sectors are 512 bytes here whatever the device's own are.
        Some(Self {
            read_bytes: fields.get(2)?.saturating_mul(512),
            written_bytes: fields.get(6)?.saturating_mul(512),
            operations: fields.first()?.saturating_add(*fields.get(4)?),
            busy_ms: *fields.get(9)?,
        })
    }

    /// What was added since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            operations: self.operations.saturating_sub(earlier.operations),
            busy_ms: self.busy_ms.saturating_sub(earlier.busy_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_line() {
        let line = "  116141    21152  3999114    44506    95292    50857  4495328    22398        0    40016    71374";
        let counters = Counters::parse(line).unwrap();
        assert_eq!(counters.read_bytes, 3_999_114 * 512);
        assert_eq!(counters.written_bytes, 4_495_328 * 512);
        assert_eq!(counters.operations, 116_141 + 95_292);
        assert_eq!(counters.busy_ms, 40_016);
        assert_eq!(Counters::parse("1 2 3"), None);
    }
}
