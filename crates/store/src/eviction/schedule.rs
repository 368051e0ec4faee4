//! When to sweep a block for expired items.

use crate::expiry::Expiry;
use crate::item::item_ref::ItemRef;

/// Least seconds between two sweeps of a block for expired items.
const MIN_SWEEP_INTERVAL: u32 = 5;

/// A block is swept when 1/`SHARE` of its live bytes has expired.
const SHARE: usize = 16;

/// A block is swept at the latest this many seconds after its first item has expired.
const MAX_SWEEP_DELAY: u32 = 300;

/// Computes when to sweep a block again, from the items that stay in it.
#[derive(Default)]
pub(crate) struct Schedule {
    /// The seconds in which items expire, and their sizes.
    ends: Vec<(u32, usize)>,
    /// Bytes of all items that stay.
    alive: usize,
}

impl Schedule {
    /// Adds an item that stays in a block that is swept for expired items.
    pub(crate) fn note(&mut self, item: ItemRef<'_>) {
        let (expiry, size) = (item.expiry_when_swept(), item.footprint());
        item.block().note_number(item.number());
        self.alive += size;
        if expiry != Expiry::NEVER {
            self.ends.push((expiry.to_bits(), size));
        }
    }

    /// The second in which it pays to sweep the block again after a sweep at `now`; none if nothing
    /// expires. A sweep reads the whole block. So each sweep either frees a share of the live
    /// bytes, or comes long after the previous one. This bounds the bytes that sweeps of an idle
    /// cache read by its size and by time, even if items expire in every second.
    pub(crate) fn next(mut self, now: u32) -> Option<u32> {
        self.ends.sort_unstable();
        let &(first, _) = self.ends.first()?;
        let mut dead = 0;
        let pays = self.ends.iter().find(|(_, size)| {
            dead += size;
            dead * SHARE >= self.alive
        });
        let latest = first.saturating_add(MAX_SWEEP_DELAY);
        let second = pays.map_or(latest, |&(second, _)| second.min(latest));
        Some(second.max(now.saturating_add(MIN_SWEEP_INTERVAL)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Items of 10 bytes that expire in these seconds, and `others` bytes of items that don't.
    fn next(ends: &[u32], others: usize, now: u32) -> Option<u32> {
        let alive = 10 * ends.len() + others;
        Schedule { ends: ends.iter().map(|&second| (second, 10)).collect(), alive }.next(now)
    }

    #[test]
    fn a_block_is_swept_when_a_share_has_expired_or_after_a_delay() {
        assert_eq!(next(&[], 1000, 100), None);
        assert_eq!(next(&[200], 0, 100), Some(200), "all of it");
        assert_eq!(next(&[101], 0, 100), Some(105), "not at once again");
        assert_eq!(next(&[300, 250, 200], 290, 100), Some(250), "two of 32");
        assert_eq!(next(&[200, 250, 300], 1000, 100), Some(200 + MAX_SWEEP_DELAY), "too little ever expires");
        assert_eq!(next(&[200, 250, 9000], 290, 100), Some(250));
        assert_eq!(next(&[200, 9000, 9001], 290, 100), Some(200 + MAX_SWEEP_DELAY), "the share is late");
    }
}
