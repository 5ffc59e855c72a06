//! Joins the two events of each request by its number. They come from a buffer per CPU, so the end may be read first.

use std::collections::HashMap;

use super::KernelRequest;
use super::unnumbered::Unnumbered;

/// Connection and number of a request.
pub(super) type Key = (u32, u64);

/// Requests whose other half is missing, and no more.
pub(super) const HALVES_MAX: usize = 1 << 20;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) key: Key,
    pub(super) bytes_out: u32,
    pub(super) error: i32,
    pub(super) ended_ns: u64,
}

impl Answer {
    pub(super) fn to(self, request: KernelRequest) -> KernelRequest {
        KernelRequest {
            unique: self.key.1,
            bytes_out: self.bytes_out,
            error: self.error,
            ended_ns: self.ended_ns,
            ..request
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Join {
    sent: HashMap<Key, KernelRequest>,
    ended: HashMap<Key, Answer>,
    /// Ends that were there at the last pause already.
    stale: HashMap<Key, Answer>,
    /// Connections whose requests are sent without a number.
    unnumbered: HashMap<u32, Unnumbered>,
    lost: u64,
}

impl Join {
    pub(super) fn send(&mut self, request: KernelRequest) -> Option<KernelRequest> {
        let key = (request.connection, request.unique);
        if request.unique == 0 {
            self.without_number(request.connection).send(request);
            return None;
        }
        if let Some(answer) = self.ended.remove(&key).or_else(|| self.stale.remove(&key)) {
            return Some(answer.to(request));
        }
        if self.sent.len() < HALVES_MAX {
            self.sent.insert(key, request);
        } else {
            self.lost += 1;
        }
        None
    }

    fn without_number(&mut self, connection: u32) -> &mut Unnumbered {
        self.unnumbered.entry(connection).or_insert_with(|| {
            let mut of_it = Unnumbered::default();
            for ended in [&mut self.stale, &mut self.ended] {
                let ended = ended.extract_if(|key, _| key.0 == connection);
                ended.for_each(|(_, answer)| of_it.end(answer));
            }
            of_it
        })
    }

    /// A request that somebody else tells of; what was read of it is known better.
    pub(super) fn expect(&mut self, request: KernelRequest) -> Option<KernelRequest> {
        if let Some(unnumbered) = self.unnumbered.get_mut(&request.connection) {
            unnumbered.expect(request);
            return None;
        }
        let known = self
            .sent
            .contains_key(&(request.connection, request.unique));
        if known { None } else { self.send(request) }
    }

    pub(super) fn end(&mut self, answer: Answer) -> Option<KernelRequest> {
        if let Some(request) = self.sent.remove(&answer.key) {
            return Some(answer.to(request));
        }
        if let Some(unnumbered) = self.unnumbered.get_mut(&answer.key.0) {
            unnumbered.end(answer);
            return None;
        }
        if self.ended.len() < HALVES_MAX {
            self.ended.insert(answer.key, answer);
        } else {
            self.lost += 1;
        }
        None
    }

    /// All buffers were empty: an end that was read before the last such moment has its beginning
    /// before tracing began, and is given up.
    pub(super) fn settle(&mut self) {
        self.stale = std::mem::take(&mut self.ended);
    }

    /// Joins what was sent without a number, when all was read that happened before `until`.
    pub(super) fn join_unnumbered(&mut self, until: u64, done: &mut Vec<KernelRequest>) {
        for unnumbered in self.unnumbered.values_mut() {
            unnumbered.join(until, done);
        }
    }

    /// The kernel has dropped events.
    pub(super) fn forget_unnumbered(&mut self) {
        self.unnumbered.values_mut().for_each(Unnumbered::forget);
    }

    pub(super) fn open(&self) -> impl Iterator<Item = &KernelRequest> {
        let unnumbered = self.unnumbered.values().flat_map(Unnumbered::open);
        self.sent.values().chain(unnumbered)
    }

    /// Events for which there was no room, or whose other half was lost.
    pub(super) fn lost(&self) -> u64 {
        let unnumbered = self.unnumbered.values();
        self.lost + unnumbered.map(|of_it| of_it.lost).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(unique: u64, sent_ns: u64) -> KernelRequest {
        KernelRequest {
            connection: 1,
            unique,
            opcode: 15,
            comm: String::new(),
            pid: 1,
            bytes_in: 0,
            bytes_out: 0,
            error: 0,
            sent_ns,
            ended_ns: 0,
            before: false,
        }
    }

    fn answer(unique: u64, ended_ns: u64) -> Answer {
        Answer {
            key: (1, unique),
            bytes_out: 3,
            error: -2,
            ended_ns,
        }
    }

    #[test]
    fn halves_are_joined_in_any_order() {
        let mut join = Join::default();
        assert_eq!(join.send(request(1, 1000)), None);
        assert_eq!(join.end(answer(1, 3000)).unwrap().duration_ns(), 2000);
        assert_eq!(join.end(answer(2, 9000)), None);
        join.settle();
        let second = join.send(request(2, 8000)).unwrap();
        assert_eq!((second.duration_ns(), second.error), (1000, -2));
        join.send(request(3, 10));
        let open: Vec<u64> = join.open().map(|request| request.unique).collect();
        assert_eq!((open, join.lost()), (vec![3], 0));
    }

    #[test]
    fn what_is_expected_ends_and_never_hides_what_was_read() {
        let mut join = Join::default();
        assert_eq!(join.expect(request(1, 1000)), None);
        assert_eq!(join.end(answer(1, 3000)).unwrap().duration_ns(), 2000);
        join.send(request(2, 10));
        join.expect(request(2, 99));
        assert_eq!(join.end(answer(2, 20)).unwrap().duration_ns(), 10);
        join.end(answer(3, 50));
        assert_eq!(join.expect(request(3, 20)).unwrap().duration_ns(), 30);
        assert_eq!(join.open().count(), 0);
    }

    #[test]
    fn an_end_without_a_beginning_is_given_up() {
        let mut join = Join::default();
        join.end(answer(1, 5));
        join.settle();
        join.settle();
        assert!(join.ended.is_empty() && join.stale.is_empty());
    }
}
