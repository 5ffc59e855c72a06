//! Memory of entries. What many large requests have gone through comes to lie in huge pages.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::param::page_size;

use super::mapping::Mapping;

/// A huge page of most processors.
const HUGE: usize = 2 << 20;
/// Entries whose memory lies together, at most.
const TOGETHER: usize = 2;
/// Room for what comes before a payload and is not part of it.
const HEAD: usize = 2048;
/// Requests of this size gain from huge pages: fewer entries of page tables are looked up for them.
const LARGE: usize = 64 << 10;
/// Bytes of large requests after which huge pages pay.
const MUCH: usize = 64 << 20;
/// How often huge pages are tried to be had for the same memory.
const ATTEMPTS: u8 = 4;

const POLICY: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const SIZE: &str = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";

/// The memory of a few entries: heads in a page of their own, and payloads side by side.
#[derive(Debug)]
struct Block {
    mapping: Mapping,
    payload: usize,
    /// Bytes of large requests since huge pages were tried last.
    moved: AtomicUsize,
    attempts: AtomicU8,
}

impl Block {
    fn new(payload: usize) -> io::Result<Self> {
        let payload = payload.next_multiple_of(page_size()).max(page_size());
        let length = (entries(payload) * payload).next_multiple_of(HUGE);
        let heads = page_size();
        let mapping = Mapping::aligned(heads + length, heads, HUGE)?;
        // Else the first small request might take a whole one.
        mapping.use_small_pages();
        Ok(Self {
            mapping,
            payload,
            moved: AtomicUsize::new(0),
            attempts: AtomicU8::new(0),
        })
    }

    /// Counts a request of `bytes`; whether huge pages should be tried now.
    fn moved(&self, bytes: usize) -> bool {
        let before = self.moved.fetch_add(bytes, Ordering::Relaxed);
        before < MUCH && before + bytes >= MUCH
    }

    fn is_due(&self) -> bool {
        self.moved.load(Ordering::Relaxed) >= MUCH
            && self.attempts.load(Ordering::Relaxed) < ATTEMPTS
    }

    fn collapse(&self) {
        let heads = page_size();
        match self.mapping.use_huge_pages(heads) {
            Ok(()) => self.attempts.store(ATTEMPTS, Ordering::Relaxed),
            Err(error) => {
                tracing::debug!("huge pages for entries: {error}");
                self.failed();
            }
        }
    }

    fn failed(&self) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        self.moved.store(0, Ordering::Relaxed);
    }
}

/// How many entries share a block.
fn entries(payload: usize) -> usize {
    (HUGE / payload).clamp(1, TOGETHER)
}

/// Memory of one entry: [`Area::HEAD`] bytes and the payload.
#[derive(Debug)]
pub(crate) struct Area {
    block: Arc<Block>,
    number: usize,
    payload: usize,
}

impl Area {
    /// Bytes at [`Area::head`].
    pub(crate) const HEAD: usize = HEAD;

    /// Aligned to [`Area::HEAD`].
    pub(crate) fn head(&self) -> *mut u8 {
        // SAFETY: a page holds the heads of all entries of a block.
        unsafe { self.block.mapping.start().add(self.number * HEAD) }
    }

    pub(crate) fn payload(&self) -> *mut u8 {
        let at = page_size() + self.number * self.block.payload;
        // SAFETY: the mapping has the payloads of all entries of the block behind the heads.
        unsafe { self.block.mapping.start().add(at) }
    }

    pub(crate) fn payload_size(&self) -> usize {
        self.payload
    }

    /// Counts a request that brought, or an answer that takes, so many bytes. Whether the one who gave this out
    /// should [`Areas::collapse`].
    pub(crate) fn moved(&self, bytes: usize) -> bool {
        bytes >= LARGE && self.block.moved(bytes)
    }
}

/// Gives out the memory of entries.
#[derive(Debug)]
pub(crate) struct Areas {
    payload: usize,
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    blocks: Vec<Weak<Block>>,
    /// Of blocks, what nobody has.
    free: Vec<Area>,
}

impl Areas {
    /// For entries with so many bytes of payload.
    pub(crate) fn new(payload: usize) -> Self {
        Self {
            payload,
            given: Mutex::default(),
        }
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn area(&self) -> io::Result<Area> {
        let free = self.given().free.pop();
        if let Some(area) = free {
            return Ok(area);
        }
        let block = Arc::new(Block::new(self.payload)?);
        let area = |number| Area {
            block: Arc::clone(&block),
            number,
            payload: self.payload,
        };
        let mut given = self.given();
        given.blocks.retain(|block| block.strong_count() > 0);
        given.blocks.push(Arc::downgrade(&block));
        given.free.extend((1..entries(block.payload)).map(area));
        Ok(area(0))
    }

    /// Puts what much has gone through into huge pages, where the system has any for programs. This may take
    /// milliseconds where they have to be made first.
    pub(crate) fn collapse(&self) {
        let blocks = self.given().blocks.clone();
        let due: Vec<_> = blocks
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|block| block.is_due())
            .collect();
        if due.is_empty() || !has_huge_pages() {
            return;
        }
        for block in due {
            block.collapse();
        }
    }
}

/// Whether the system gives programs huge pages of the size that is meant here.
fn has_huge_pages() -> bool {
    let size = fs::read_to_string(SIZE).ok();
    let size = size.and_then(|size| size.trim().parse().ok());
    size == Some(HUGE) && fs::read_to_string(POLICY).is_ok_and(|policy| allows(&policy))
}

/// The kernel's choices, with the one in force in brackets.
fn allows(policy: &str) -> bool {
    policy.contains("[always]") || policy.contains("[madvise]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(area: &Area, byte: u8) {
        // SAFETY: the memory is the area's alone.
        unsafe {
            area.head().write_bytes(byte, Area::HEAD);
            area.payload().write_bytes(byte, area.payload_size());
        }
    }

    fn holds(area: &Area, byte: u8) -> bool {
        // SAFETY: as above.
        let (head, payload) = unsafe {
            (
                std::slice::from_raw_parts(area.head(), Area::HEAD),
                std::slice::from_raw_parts(area.payload(), area.payload_size()),
            )
        };
        head.iter().chain(payload).all(|found| *found == byte)
    }

    /// KiB of huge pages where the payload of `area` lies.
    fn huge(area: &Area) -> usize {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let address = area.payload() as usize;
        let mut inside = false;
        for line in maps.lines() {
            let first = line.split(' ').next().unwrap_or_default();
            if let Some((from, to)) = first.split_once('-')
                && let Ok(from) = usize::from_str_radix(from, 16)
                && let Ok(to) = usize::from_str_radix(to, 16)
            {
                inside = (from..to).contains(&address);
            }
            if let Some(found) = line.strip_prefix("AnonHugePages:")
                && inside
            {
                let number = found.trim().trim_end_matches(" kB");
                return number.parse().unwrap();
            }
        }
        panic!("{address:x} is not mapped:\n{maps}");
    }

    #[test]
    fn areas_lie_apart_whatever_their_size() {
        for payload in [0, 1, 5000, 1 << 20, (1 << 20) + 1, (2 << 20) + 1] {
            let areas = Areas::new(payload);
            let all: Vec<_> = (1..6).map(|_| areas.area().unwrap()).collect();
            for (area, byte) in all.iter().zip(1..) {
                assert_eq!(area.payload_size(), payload);
                assert_eq!(area.head() as usize % Area::HEAD, 0);
                assert_eq!(area.payload() as usize % page_size(), 0);
                fill(area, byte);
            }
            for (area, byte) in all.iter().zip(1..) {
                assert!(holds(area, byte), "{payload}: {byte}");
            }
        }
    }

    #[test]
    fn what_much_went_through_lies_in_huge_pages() {
        if !has_huge_pages() {
            return crate::watchdog::say(format_args!(
                "SKIPPED: no huge pages of {HUGE} bytes for programs"
            ));
        }
        let areas = Areas::new(1 << 20);
        let (first, second, third) = (
            areas.area().unwrap(),
            areas.area().unwrap(),
            areas.area().unwrap(),
        );
        for (area, byte) in [(&first, 1), (&second, 2), (&third, 3)] {
            fill(area, byte);
        }
        for _ in 0..10_000 {
            assert!(!third.moved(LARGE - 1), "small requests gain nothing");
        }
        for bytes in 0..MUCH / LARGE - 1 {
            assert!(!first.moved(LARGE), "{bytes}");
        }
        areas.collapse();
        assert_eq!(huge(&first) + huge(&second) + huge(&third), 0);
        assert!(second.moved(LARGE), "the two lie together");
        areas.collapse();
        assert_eq!((huge(&first), huge(&third)), (HUGE >> 10, 0));
        assert!(holds(&first, 1) && holds(&second, 2) && holds(&third, 3));
        assert!(!first.moved(MUCH) && !first.block.is_due(), "once");
    }

    #[test]
    fn what_cannot_be_had_is_tried_again_a_few_times() {
        let areas = Areas::new(1 << 20);
        let area = areas.area().unwrap();
        for attempt in 0..ATTEMPTS {
            assert!(area.moved(MUCH) && area.block.is_due(), "{attempt}");
            area.block.failed();
        }
        assert!(!area.block.is_due());
    }

    #[test]
    fn the_policy_of_the_system_counts() {
        assert!(allows("always [madvise] never\n") && allows("[always] madvise never\n"));
        assert!(!allows("always madvise [never]\n") && !allows(""));
    }

    #[test]
    fn memory_goes_with_its_last_entry() {
        let areas = Areas::new(1 << 20);
        let area = areas.area().unwrap();
        assert_eq!(areas.given().free.len(), 1);
        drop((area, areas.area().unwrap()));
        assert_eq!(areas.given().blocks[0].strong_count(), 0);
        let _another = areas.area().unwrap();
        assert_eq!(areas.given().blocks.len(), 1);
    }
}
