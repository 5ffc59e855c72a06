//! Pages of the kernel's trace buffer (`trace_pipe_raw`), as `events/header_page` and
//! `events/header_event` describe them.

/// The event's payload is of this type length: it stands in the first word instead.
const LENGTH_IN_WORD: u32 = 0;
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// The lower bits of `commit` are the length of the data.
const COMMIT_LENGTH: u64 = 0xf_ffff;
/// Set in it where events before the page were lost.
const MISSED_EVENTS: u64 = 1 << 31;

/// Reads little- or big-endian as the machine is; `None` past the end.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Whether events before this page were lost.
pub(super) fn follows_loss(page: &[u8]) -> bool {
    long(page, 8).is_some_and(|commit| commit & MISSED_EVENTS != 0)
}

/// Calls `event` with time and payload of each event of `page`. A page that ends early or makes no sense is
/// read as far as it does.
pub(super) fn read_page(page: &[u8], mut event: impl FnMut(u64, &[u8])) {
    let (Some(mut time), Some(commit)) = (long(page, 0), long(page, 8)) else {
        return;
    };
    let length = usize::try_from(commit & COMMIT_LENGTH).unwrap_or(0);
    let data = page.get(16..).unwrap_or_default();
    let data = data.get(..length).unwrap_or(data);
    let mut at = 0;
    while let Some(header) = word(data, at) {
        let (kind, delta) = (header & 0x1f, u64::from(header >> 5));
        let first = u64::from(word(data, at + 4).unwrap_or(0));
        match kind {
            PADDING if delta == 0 => break,
            PADDING => at += 4 + first as usize,
            TIME_EXTEND => {
                time = time.wrapping_add((first << 27) + delta);
                at += 8;
            }
            TIME_STAMP => {
                time = (first << 27) + delta;
                at += 8;
            }
            _ => {
                time = time.wrapping_add(delta);
                let (start, size) = if kind == LENGTH_IN_WORD {
                    (at + 8, (first as usize).saturating_sub(4))
                } else {
                    (at + 4, kind as usize * 4)
                };
                let Some(payload) = data.get(start..start.saturating_add(size)) else {
                    break;
                };
                event(time, payload);
                at = start + size;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(events: &[&[u32]]) -> Vec<u8> {
        let data: Vec<u8> = events
            .concat()
            .iter()
            .flat_map(|w| w.to_ne_bytes())
            .collect();
        let mut page = 1000_u64.to_ne_bytes().to_vec();
        // Events before this page were lost: the upper bits are no length.
        page.extend((data.len() as u64 | 1 << 31).to_ne_bytes());
        page.extend(data);
        page
    }

    fn header(kind: u32, delta: u32) -> u32 {
        kind | delta << 5
    }

    #[test]
    fn reads_every_form_of_event() {
        let page = page(&[
            &[header(1, 5), 11],
            &[header(TIME_EXTEND, 1), 1],
            &[header(PADDING, 3), 8, 0],
            &[header(0, 2), 12, 21, 22],
            &[header(TIME_STAMP, 7), 2],
            &[header(1, 1), 31],
            &[header(PADDING, 0), 0],
            &[header(1, 1), 99],
        ]);
        assert!(follows_loss(&page) && !follows_loss(&page[..9]));
        let mut seen = Vec::new();
        read_page(&page, |time, payload| {
            seen.push((time, payload.len(), payload[0]));
        });
        let extended = 1005 + (1 << 27) + 1;
        assert_eq!(
            seen,
            [(1005, 4, 11), (extended + 2, 8, 21), ((2 << 27) + 8, 4, 31)]
        );
    }

    proptest::proptest! {
        #[test]
        fn no_page_panics(page in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..600)) {
            read_page(&page, |_, _| {});
        }
    }
}
