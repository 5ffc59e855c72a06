//! Joins the events of kernels that trace the sending of a request before they give it its number (Linux 6.12 is
//! one): such an event has the number 0, and only the end tells which it was.
//!
//! Numbers rise in the order in which requests are sent, by two or, where FORGET and INTERRUPT come between, by
//! more. Whenever nothing is under way, the ends in the order of their numbers are those of what was sent, in that
//! order. Where something always is, a request keeps its place by the least number that it can have had; then the
//! end of one of those that were under way at once may be taken for that of another.

use std::collections::{HashMap, VecDeque};

use bickford_abi::Opcode;

use super::KernelRequest;
use super::join::{Answer, HALVES_MAX};

/// How much the number of a request is above that of the one before, at least.
const STEP: u64 = 2;
/// How long requests wait for a moment in which nothing is under way.
const PATIENCE_NS: u64 = 100_000_000;

#[derive(Debug)]
struct Sent {
    request: KernelRequest,
    /// The least number that it can have.
    least: u64,
    /// Whether that is its number, since its daemon told it.
    is_known: bool,
}

/// What was read of one connection. Events are taken in as they are read, and looked at once all are there that
/// happened before some moment.
#[derive(Debug, Default)]
pub(super) struct Unnumbered {
    read: Vec<Event>,
    sent: VecDeque<Sent>,
    ended: Vec<Answer>,
    /// The least number that the next request can have.
    next: u64,
    pub(super) lost: u64,
}

#[derive(Debug)]
enum Event {
    Sent(KernelRequest),
    Ended(Answer),
}

impl Event {
    fn time(&self) -> u64 {
        match self {
            Self::Sent(request) => request.sent_ns,
            Self::Ended(answer) => answer.ended_ns,
        }
    }
}

impl Unnumbered {
    pub(super) fn send(&mut self, request: KernelRequest) {
        self.take_in(Event::Sent(request));
    }

    pub(super) fn end(&mut self, answer: Answer) {
        self.take_in(Event::Ended(answer));
    }

    fn take_in(&mut self, event: Event) {
        if self.read.len() + self.sent.len() + self.ended.len() < HALVES_MAX {
            self.read.push(event);
        } else {
            self.lost += 1;
        }
    }

    /// Joins what happened before `until`, when all events from before then were read.
    pub(super) fn join(&mut self, until: u64, done: &mut Vec<KernelRequest>) {
        self.read.sort_by_key(Event::time);
        let later = self.read.partition_point(|event| event.time() < until);
        let later = self.read.split_off(later);
        for event in std::mem::replace(&mut self.read, later) {
            match event {
                Event::Sent(request) => {
                    let least = self.next;
                    self.next += STEP;
                    self.sent.push_back(Sent {
                        request,
                        least,
                        is_known: false,
                    });
                }
                Event::Ended(answer) => {
                    self.ended.push(answer);
                    if self.ended.len() == self.sent.len() {
                        self.settle(done);
                    }
                }
            }
        }
        let oldest = self.ended.first().map_or(u64::MAX, |end| end.ended_ns);
        if oldest.saturating_add(PATIENCE_NS) < until {
            self.settle(done);
        }
    }

    pub(super) fn open(&self) -> impl Iterator<Item = &KernelRequest> {
        let read = self.read.iter().filter_map(|event| match event {
            Event::Sent(request) => Some(request),
            Event::Ended(_) => None,
        });
        self.sent.iter().map(|sent| &sent.request).chain(read)
    }

    /// A request of which its daemon tells the number; one that was not read is taken in.
    pub(super) fn expect(&mut self, told: KernelRequest) {
        let is_it = |request: &KernelRequest| {
            request.pid == told.pid && request.opcode == told.opcode && !request.before
        };
        let known = self.sent.iter_mut().find(|sent| is_it(&sent.request));
        if let Some(sent) = known {
            sent.least = told.unique;
            sent.is_known = true;
        } else if !self.open().any(is_it) {
            self.sent.push_front(Sent {
                least: told.unique,
                request: told,
                is_known: true,
            });
        }
    }

    /// Ends the requests whose numbers are known.
    fn settle_known(&mut self, done: &mut Vec<KernelRequest>) {
        if !self.sent.iter().any(|sent| sent.is_known) {
            return;
        }
        let ended = std::mem::take(&mut self.ended);
        let mut ends: HashMap<u64, Answer> =
            ended.into_iter().map(|end| (end.key.1, end)).collect();
        self.sent.retain(|sent| {
            let end = sent.is_known.then(|| ends.remove(&sent.least)).flatten();
            done.extend(end.map(|end| end.to(sent.request.clone())));
            end.is_none()
        });
        self.ended = ends.into_values().collect();
    }

    /// Events were lost, and with them what the order says.
    pub(super) fn forget(&mut self) {
        let requests = self.sent.len() + self.ended.len() + self.read.len();
        self.lost += requests as u64;
        self.sent.clear();
        self.ended.clear();
        self.read.clear();
    }

    /// Gives every end to a request, as far as there is one that can have it.
    fn settle(&mut self, done: &mut Vec<KernelRequest>) {
        self.settle_known(done);
        let mut ended = std::mem::take(&mut self.ended);
        ended.sort_by_key(|answer| answer.key.1);
        // Of what was sent before tracing began only the end is seen. Its number is below all others.
        ended.drain(..self.sent_before(&ended));
        let latest = self.latest_places(&ended);
        let ends_by = self.ends_by();
        let mut ended = ended.into_iter().zip(latest).peekable();
        let mut open = self.sent.len().saturating_sub(ended.len());
        let mut left = VecDeque::new();
        let mut least = 0;
        let sent = std::mem::take(&mut self.sent);
        let mut sent = sent.into_iter().zip(ends_by).enumerate().peekable();
        while let Some((place, (mut this, by))) = sent.next() {
            this.least = this.least.max(least);
            least = this.least + STEP;
            let Some((answer, latest)) = ended.peek() else {
                left.push_back(this);
                continue;
            };
            let next_fits = sent.peek().is_some_and(|(_, (next, by))| {
                let number = next.least.max(least);
                place < *latest && number <= answer.key.1 && answer.ended_ns <= *by
            });
            let may_be_open = by == u64::MAX || this.is_known;
            if this.is_known || (open > 0 && next_fits && may_be_open) {
                open = open.saturating_sub(1);
                left.push_back(this);
            } else if open > 0 && place < *latest && answer.ended_ns > by {
                // One that was given up before its daemon had it has no end.
                open -= 1;
                self.lost += 1;
            } else if let Some((answer, _)) = ended.next() {
                least = least.max(answer.key.1 + STEP);
                done.push(answer.to(this.request));
            }
        }
        self.sent = left;
        self.next = self.next.max(least);
    }

    /// How many of `ended`, which are in order, ended what is not in `sent`: given to the requests in order, one
    /// would have ended before it was sent.
    fn sent_before(&self, ended: &[Answer]) -> usize {
        let fits = |skipped: &usize| {
            let ended = ended.iter().skip(*skipped);
            ended.len() <= self.sent.len()
                && ended
                    .zip(&self.sent)
                    .all(|(end, sent)| sent.request.sent_ns <= end.ended_ns)
        };
        (0..ended.len()).find(fits).unwrap_or(ended.len())
    }

    /// The last place in `sent` that each of `ended` can have, so that it and those after it were sent before they
    /// ended.
    fn latest_places(&self, ended: &[Answer]) -> Vec<usize> {
        let mut bound = self.sent.len();
        let mut latest: Vec<usize> = ended
            .iter()
            .rev()
            .map(|answer| {
                let sent = |sent: &Sent| sent.request.sent_ns <= answer.ended_ns;
                bound = self.sent.partition_point(sent).min(bound).saturating_sub(1);
                bound
            })
            .collect();
        latest.reverse();
        latest
    }

    /// When each request had ended, as far as its thread tells: it sent another, which it does not while it waits.
    fn ends_by(&self) -> Vec<u64> {
        let mut next = HashMap::new();
        let mut by: Vec<u64> = self
            .sent
            .iter()
            .rev()
            .map(|Sent { request, .. }| {
                let by = next.insert(request.pid, request.sent_ns);
                by.filter(|_| is_waited_for(request.opcode))
                    .unwrap_or(u64::MAX)
            })
            .collect();
        by.reverse();
        by
    }
}

/// Whether the thread that sends such a request waits for its end.
fn is_waited_for(opcode: u32) -> bool {
    !matches!(
        Opcode::from_u32(opcode),
        None | Some(
            Opcode::Read | Opcode::Write | Opcode::Release | Opcode::Releasedir | Opcode::Init
        )
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A connection that requests are sent over and answered on, and what is known of each.
    #[derive(Default)]
    struct Connection {
        now: u64,
        number: u64,
        true_ends: HashMap<u64, KernelRequest>,
        under_way: Vec<KernelRequest>,
        traced: Unnumbered,
        done: Vec<KernelRequest>,
    }

    impl Connection {
        fn send(&mut self, pid: u32, opcode: Opcode) {
            self.now += 10;
            self.number += STEP;
            let request = KernelRequest {
                connection: 1,
                unique: self.number,
                opcode: opcode as u32,
                comm: String::new(),
                pid,
                bytes_in: 0,
                bytes_out: 0,
                error: 0,
                sent_ns: self.now,
                ended_ns: 0,
                before: false,
            };
            self.under_way.push(request.clone());
            self.traced.send(KernelRequest {
                unique: 0,
                ..request
            });
        }

        fn forget(&mut self) {
            self.number += STEP;
        }

        /// Ends the request of this place in `under_way`.
        fn end(&mut self, place: usize) {
            let request = self.end_unseen(place);
            self.traced.end(Answer {
                key: (1, request.unique),
                bytes_out: 0,
                error: request.error,
                ended_ns: self.now,
            });
        }

        fn end_unseen(&mut self, place: usize) -> KernelRequest {
            self.now += 10;
            let mut request = self.under_way.remove(place);
            request.ended_ns = self.now;
            self.true_ends.insert(request.unique, request.clone());
            request
        }

        fn read(&mut self) {
            self.traced.join(self.now + 1, &mut self.done);
        }

        fn finish(&mut self) {
            self.traced.join(u64::MAX, &mut self.done);
        }

        fn open(&self) -> Vec<u32> {
            self.traced.open().map(|request| request.pid).collect()
        }

        /// How many were joined with another's end.
        fn wrong(&self) -> usize {
            let is_wrong = |request: &&KernelRequest| self.true_ends[&request.unique] != **request;
            self.done.iter().filter(is_wrong).count()
        }

        /// Every thread sends again as soon as it has its answer; of each `forgets` a FORGET is sent before.
        fn work(&mut self, threads: u32, choices: &[u8], forgets: Option<u8>) {
            for (round, choice) in choices.iter().enumerate() {
                let idle = (1..=threads).find(|pid| self.under_way.iter().all(|r| r.pid != *pid));
                if let Some(pid) = idle {
                    if forgets.is_some_and(|of| choice % of == 0) {
                        self.forget();
                    }
                    self.send(pid, Opcode::ALL[usize::from(choice % 6)]);
                } else {
                    self.end(usize::from(*choice) % self.under_way.len());
                }
                if round % 50 == 0 {
                    self.read();
                }
            }
        }

        fn rest(&mut self) {
            while !self.under_way.is_empty() {
                self.end(0);
            }
        }

        fn opcodes(requests: impl Iterator<Item = u32>) -> HashMap<u32, usize> {
            let mut counts = HashMap::new();
            requests.for_each(|opcode| *counts.entry(opcode).or_default() += 1);
            counts
        }
    }

    fn choices() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 1..600)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn one_after_the_other_each_has_its_own_end(choices in choices()) {
            let mut connection = Connection::default();
            connection.work(1, &choices, Some(2));
            connection.rest();
            connection.finish();
            prop_assert_eq!(connection.wrong(), 0);
            prop_assert_eq!(connection.done.len(), connection.true_ends.len());
        }

        #[test]
        fn without_forgets_many_at_once_have_their_own_ends(choices in choices()) {
            let mut connection = Connection::default();
            connection.send(99, Opcode::Getattr);
            connection.end(0);
            connection.send(100, Opcode::Getattr);
            connection.work(8, &choices, None);
            connection.finish();
            prop_assert_eq!(connection.wrong(), 0);
            let under_way: Vec<_> = connection.under_way.iter().map(|r| r.pid).collect();
            prop_assert_eq!(connection.open(), under_way);
        }

        #[test]
        fn where_nothing_is_under_way_all_before_have_their_own_ends(
            bursts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..60), 1..20)
        ) {
            let mut connection = Connection::default();
            for burst in bursts {
                connection.work(8, &burst, Some(3));
                connection.rest();
                connection.now += PATIENCE_NS / 100;
            }
            connection.finish();
            prop_assert_eq!(connection.wrong(), 0);
            prop_assert_eq!(connection.done.len(), connection.true_ends.len());
        }

        #[test]
        fn in_any_case_every_request_ends_once(choices in choices(), before in 0usize..9) {
            let mut connection = Connection::default();
            for pid in 1..=before {
                connection.send(u32::try_from(pid).unwrap(), Opcode::Lookup);
            }
            // Tracing begins only here.
            connection.traced = Unnumbered::default();
            connection.work(8, &choices, Some(3));
            connection.rest();
            connection.now += 2 * PATIENCE_NS;
            connection.send(9, Opcode::Getattr);
            connection.end(0);
            connection.finish();
            let seen = connection.true_ends.values().filter(|r| r.unique > 2 * before as u64);
            let seen = Connection::opcodes(seen.map(|r| r.opcode));
            let told = Connection::opcodes(connection.done.iter().map(|r| r.opcode));
            prop_assert_eq!(connection.open(), Vec::<u32>::new());
            prop_assert!(connection.done.iter().all(|r| r.sent_ns <= r.ended_ns));
            // Each that was under way before tracing may cost one that is given up.
            let missing = seen.iter().map(|(opcode, count)| count - told.get(opcode).unwrap_or(&0));
            let missing: usize = missing.sum();
            prop_assert!(missing <= before, "{} of {:?}", missing, seen);
            prop_assert_eq!(missing as u64, connection.traced.lost);
        }
    }

    #[test]
    fn what_hangs_is_told_from_what_goes_on() {
        let mut connection = Connection::default();
        connection.send(1, Opcode::Read);
        connection.send(2, Opcode::Lookup);
        for round in 0..1_000 {
            if round % 7 == 0 {
                connection.forget();
            }
            connection.send(3, Opcode::Getattr);
            connection.end(2);
            connection.now += PATIENCE_NS / 10;
            connection.read();
        }
        connection.finish();
        assert_eq!(connection.open(), [1, 2]);
        assert_eq!((connection.wrong(), connection.done.len()), (0, 1_000));
    }

    #[test]
    fn a_request_that_never_ended_is_given_up() {
        let mut connection = Connection::default();
        connection.send(1, Opcode::Lookup);
        connection.end_unseen(0);
        for _ in 0..100 {
            connection.now += 3 * PATIENCE_NS;
            connection.send(1, Opcode::Getattr);
            connection.end(0);
            connection.read();
        }
        connection.finish();
        assert_eq!(connection.traced.lost, 1);
        assert_eq!(connection.open(), Vec::<u32>::new());
        assert!(connection.wrong() < 8, "{}", connection.wrong());
    }

    #[test]
    fn what_the_daemon_tells_is_exact() {
        let mut connection = Connection::default();
        connection.send(1, Opcode::Lookup);
        let before = KernelRequest {
            before: true,
            ..connection.under_way[0].clone()
        };
        connection.traced = Unnumbered::default();
        connection.forget();
        connection.send(2, Opcode::Getattr);
        connection.send(3, Opcode::Lookup);
        connection.read();
        let known = [before, connection.under_way[2].clone()];
        for told in known {
            connection.traced.expect(told);
        }
        assert_eq!(connection.open().len(), 3);
        for place in [2, 0] {
            connection.end(place);
            connection.now += 2 * PATIENCE_NS;
            connection.read();
        }
        let done: Vec<_> = connection.done.iter().map(|r| r.unique).collect();
        assert_eq!((done, connection.open()), (vec![8, 2], vec![2]));
    }
}
