//! Which inodes are open for writing.

use std::collections::HashMap;

use crate::sharded::Sharded;

/// Counts opens by inode; bounded by the number of open files.
#[derive(Default)]
pub(crate) struct Writers(Sharded<HashMap<u64, usize>>);

impl Writers {
    /// One more; whether there were others.
    pub(crate) fn add(&self, node: u64) -> bool {
        let mut counts = self.0.of(node);
        let count = counts.entry(node).or_default();
        *count += 1;
        *count > 1
    }

    pub(crate) fn remove(&self, node: u64) {
        let mut counts = self.0.of(node);
        if let Some(count) = counts.get_mut(&node) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&node);
            }
        }
    }

    pub(crate) fn any(&self, node: u64) -> bool {
        self.0.of(node).contains_key(&node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_written_until_the_last_writer_closes() {
        let writers = Writers::default();
        assert!(!writers.add(1) && writers.add(1));
        writers.remove(1);
        assert!(writers.any(1) && !writers.any(2));
        writers.remove(1);
        assert!(!writers.any(1));
        assert!(writers.0.of(1).is_empty());
    }
}
