//! `stats detail`: operations counted by key prefix. A prefix ends at the delimiter of `-D`.

use relativist_memcache::encode_percent;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of prefixes of the users without a tenant. Keys with further prefixes are not
/// counted: clients choose the keys, and memory must stay bounded.
pub(super) const MAX_PREFIXES: usize = 1 << 14;

/// Counts by prefix. While counting is on, it costs each command a lock.
#[derive(Debug)]
pub struct Prefixes {
    is_counting: AtomicBool,
    delimiter: u8,
    max_prefixes: usize,
    counts: Mutex<BTreeMap<Box<[u8]>, Counts>>,
}

/// The counts of a prefix.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) gets: u64,
    pub(super) hits: u64,
    pub(super) sets: u64,
    pub(super) deletes: u64,
}

impl Prefixes {
    /// Creates a registry without counts, for at most `max_prefixes`.
    pub fn new(delimiter: u8, is_counting: bool, max_prefixes: usize) -> Prefixes {
        Prefixes { is_counting: AtomicBool::new(is_counting), delimiter, max_prefixes, counts: Mutex::default() }
    }

    pub(super) fn is_counting(&self) -> bool {
        // Relaxed: a command concurrent with a change may be counted or not.
        self.is_counting.load(Ordering::Relaxed)
    }

    pub(super) fn set_counting(&self, is_counting: bool) {
        // Relaxed: as above.
        self.is_counting.store(is_counting, Ordering::Relaxed);
    }

    pub(super) fn delimiter(&self) -> char {
        self.delimiter.into()
    }

    /// Counts for the prefix of `key`, if it has one.
    pub(super) fn count(&self, key: &[u8], count: impl FnOnce(&mut Counts)) {
        let Some(end) = memchr::memchr(self.delimiter, key).filter(|_| self.is_counting()) else { return };
        let mut counts = self.lock();
        let has_room = counts.len() < self.max_prefixes;
        match counts.get_mut(&key[..end]) {
            Some(counts) => count(counts),
            None if has_room => count(counts.entry(key[..end].into()).or_default()),
            None => (),
        }
    }

    /// Removes all counts.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// Appends a line for each of at most `most` prefixes that follow `last`. Returns the last one
    /// printed if there are more.
    pub(super) fn dump_after(&self, last: Option<&[u8]>, most: usize, out: &mut Vec<u8>) -> Option<Box<[u8]>> {
        let counts = self.lock();
        let mut rest = counts.range::<[u8], _>((last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded));
        let mut last = None;
        for (prefix, counts) in rest.by_ref().take(most) {
            let Counts { gets, hits, sets, deletes } = counts;
            out.extend_from_slice(b"PREFIX ");
            // Keys of the binary protocol may have bytes that would end the word or the line.
            if prefix.iter().any(|byte| matches!(byte, b' ' | b'\n')) {
                write!(out, "{}", encode_percent(prefix)).expect("writing to a Vec does not fail");
            } else {
                out.extend_from_slice(prefix);
            }
            write!(out, " get {gets} hit {hits} set {sets} del {deletes}\r\n").expect("writing to a Vec does not fail");
            last = Some(prefix);
        }
        rest.next().and(last).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<[u8]>, Counts>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_prefixes_are_printed_piece_by_piece_and_the_empty_one() {
        let prefixes = Prefixes::new(b':', true, 5);
        for key in [":a", "b:c", "a:b", "a:c", "none", "x\r\nEND y:"] {
            prefixes.count(key.as_bytes(), |counts| counts.gets += 1);
        }
        let (mut out, mut last) = (Vec::new(), None);
        for is_last in [false, false, false, true] {
            last = prefixes.dump_after(last.as_deref(), 1, &mut out);
            assert_eq!(last.is_none(), is_last);
        }
        let line = |prefix: &str, gets| format!("PREFIX {prefix} get {gets} hit 0 set 0 del 0\r\n");
        assert_eq!(
            String::from_utf8(out).unwrap(),
            [line("", 1), line("a", 2), line("b", 1), line("x%0D%0AEND%20y", 1)].concat()
        );
    }
}
