//! The mixes of conc-map-bench: reads, insertions, removals and updates. No key is used by two
//! threads.

use std::ops::Range;

use serde::Serialize;

use crate::harness::keys::{Indices, seed};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Mix {
    pub name: &'static str,
    /// The percentage of lookups of keys that are present.
    pub read: u8,
    /// The percentage of insertions of keys that are absent.
    pub insert: u8,
    /// The percentage of removals of keys that are present.
    pub remove: u8,
    /// The percentage of updates, which give new values to keys that are present.
    pub update: u8,
    /// The share of the entries that are inserted beforehand, in quarters.
    pub prefilled_quarters: u8,
}

/// The three mixes of conc-map-bench.
pub const MIXES: [Mix; 3] = [
    Mix { name: "read-heavy", read: 98, insert: 1, remove: 1, update: 0, prefilled_quarters: 3 },
    Mix { name: "exchange", read: 10, insert: 40, remove: 40, update: 10, prefilled_quarters: 3 },
    Mix { name: "rapid-grow", read: 5, insert: 80, remove: 5, update: 10, prefilled_quarters: 0 },
];

/// Inserts and removes in equal parts, so that entries are replaced while their number stays the
/// same.
pub const CHURN: Mix = Mix { name: "churn", read: 0, insert: 50, remove: 50, update: 0, prefilled_quarters: 4 };

/// An operation and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Look up a key that is present.
    Read(u64),
    /// Insert a key that is absent.
    Insert(u64),
    /// Remove a key that is present.
    Remove(u64),
    /// Give a key that is present a new value.
    Update(u64),
}

/// The range of keys of one thread in a table. The thread inserts at one end of the range and
/// removes at the other.
#[derive(Clone, Debug)]
pub struct Own {
    present: Range<u64>,
    draws: Indices,
}

impl Own {
    /// Returns the keys of `thread` in `round`. The first `count` are present.
    pub fn new(round: usize, thread: usize, count: u64) -> Self {
        let first = (thread as u64 + 1) << 40;
        // Draws numbers below 2^32. Multiplied by the number of keys, the high half of the product
        // selects a key.
        Self { present: first..first + count, draws: Indices::new(0..1 << 32, seed(round, thread)) }
    }

    pub fn present(&self) -> Range<u64> {
        self.present.clone()
    }

    /// Draws the next operation. If no key is present to read, remove or update, it is an insertion
    /// instead.
    #[inline(always)]
    pub fn choose(&mut self, mix: Mix) -> Choice {
        let (draw, coin) = self.draws.draw_with_coin();
        let percent = (u32::from(coin) * 100) >> 16;
        let width = self.present.end - self.present.start;
        let (read, remove, update) = (u32::from(mix.read), u32::from(mix.remove), u32::from(mix.update));
        if width == 0 || percent >= read + remove + update {
            self.present.end += 1;
            return Choice::Insert(self.present.end - 1);
        }
        let some = self.present.start + ((draw * width) >> 32);
        if percent < read {
            Choice::Read(some)
        } else if percent < read + update {
            Choice::Update(some)
        } else {
            self.present.start += 1;
            Choice::Remove(self.present.start - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn mixes_are_whole() {
        for mix in MIXES {
            assert_eq!(mix.read + mix.insert + mix.remove + mix.update, 100, "{mix:?}");
        }
    }

    #[test]
    fn choices_come_in_the_shares_asked_for_and_suit_the_keys() {
        for mix in MIXES {
            let mut own = Own::new(1, 0, 1000);
            let mut present: HashSet<u64> = own.present().collect();
            let mut counts = [0usize; 4];
            for _ in 0..100_000 {
                let (kind, right) = match own.choose(mix) {
                    Choice::Read(key) => (0, present.contains(&key)),
                    Choice::Insert(key) => (1, present.insert(key)),
                    Choice::Remove(key) => (2, present.remove(&key)),
                    Choice::Update(key) => (3, present.contains(&key)),
                };
                assert!(right, "{mix:?}");
                counts[kind] += 1;
            }
            for (count, percent) in counts.into_iter().zip([mix.read, mix.insert, mix.remove, mix.update]) {
                // If no key is present, other operations become insertions. This happens only in
                // mixes that remove as many keys as they insert.
                assert!(count.abs_diff(usize::from(percent) * 1000) < 800, "{mix:?}: {counts:?}");
            }
            assert_eq!(own.present().collect::<HashSet<_>>(), present);
        }
    }

    #[test]
    fn threads_have_different_keys() {
        let (one, other) = (Own::new(0, 0, 1 << 32), Own::new(0, 1, 1 << 32));
        assert!(one.present().end <= other.present().start);
    }
}
