//! `stats detail`: what happens to the items of each prefix of the key, up to the delimiter `-D`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Prefixes counted; keys of further ones are not. Clients choose the keys, and memory must stay bounded.
const MOST_PREFIXES: usize = 1 << 14;

/// Counts by prefix. They cost a lock per command while they are on.
#[derive(Debug)]
pub struct Prefixes {
    is_counting: AtomicBool,
    delimiter: u8,
    counts: Mutex<BTreeMap<Box<[u8]>, Counts>>,
}

/// What happened to the items of a prefix.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) gets: u64,
    pub(super) hits: u64,
    pub(super) sets: u64,
    pub(super) deletes: u64,
}

impl Prefixes {
    /// Nothing counted yet.
    pub fn new(delimiter: u8, is_counting: bool) -> Prefixes {
        Prefixes { is_counting: AtomicBool::new(is_counting), delimiter, counts: Mutex::default() }
    }

    pub(super) fn is_counting(&self) -> bool {
        // Relaxed: a command more or less around a change is fine.
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
        let has_room = counts.len() < MOST_PREFIXES;
        match counts.get_mut(&key[..end]) {
            Some(counts) => count(counts),
            None if has_room => count(counts.entry(key[..end].into()).or_default()),
            None => (),
        }
    }

    /// Forgets all counts.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// Adds a line for each of the `most` prefixes that follow `last`. Returns the last one told if there are more.
    pub(super) fn dump_after(&self, last: &[u8], most: usize, out: &mut Vec<u8>) -> Option<Box<[u8]>> {
        let counts = self.lock();
        let mut rest = counts.range::<[u8], _>((Bound::Excluded(last), Bound::Unbounded));
        let mut last = None;
        for (prefix, counts) in rest.by_ref().take(most) {
            let Counts { gets, hits, sets, deletes } = counts;
            out.extend_from_slice(b"PREFIX ");
            out.extend_from_slice(prefix);
            write!(out, " get {gets} hit {hits} set {sets} del {deletes}\r\n").expect("writing to a Vec does not fail");
            last = Some(prefix);
        }
        rest.next().and(last).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<[u8]>, Counts>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
