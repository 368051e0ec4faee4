//! The eviction policy of the server's store and of `relativist_cache::Cache`: functions of a few
//! numbers, without queues or items, so that traces can be replayed with them
//! (`relativist-bench replay`).
//!
//! # Blocks of items
//!
//! Items are in *blocks*, in the order of their arrival. A block holds items of one *class*, whose
//! sizes are within a factor of four, and is evicted as a whole: items that were visited since the
//! last sweep move to a younger block, the others go. So a hit costs no more than a mark, and items
//! need no place in a list.
//!
//! The choice of the next block follows GreedyDual-Size (Cao and Irani, USITS 1997), with queues
//! for similar sizes as in CAMP (Ghandeharizadeh et al., Middleware 2014). Each class has two FIFO
//! queues of blocks: one of new items, which are *on probation*, and one of *protected* items,
//! which have moved. A block that closes is stamped with the current *level*; its priority is the
//! stamp plus its worth. The block with the lowest priority is evicted, and its priority becomes
//! the level. The worth of protected items is that of one hit per byte, the inverse of the mean
//! size of the items that were swept from the queue lately ([`MeanSizes`]). So a small item
//! outlives a large one by the ratio of their sizes, and unused items go in the end, however small.
//! New items have a quarter of that worth, because most of them are never requested again, as in
//! the segmented LRU of Karedla, Love and Wherry (IEEE Computer, 1994). Each sweep that finds an
//! item visited lets it survive one more sweep, up to [`MAX_VISITS`]; each other sweep takes one
//! away. So sweeps count the hits, as in GCLOCK.
//!
//! Measured on the trace of Twitter's cluster 52 that comes with libCacheSim (10^6 requests for
//! 143,542 objects, median 54 bytes); request miss ratios with the cache at 1, 10 and 30 % of the
//! objects' bytes, in blocks of at most 1/64 of the cache. First with the sizes as they are, and
//! then with 20 bytes more for each object, about as many as the server's items have:
//!
//! | policy | 1 % | 10 % | 30 % | 1 %, 20 bytes | 10 %, 20 bytes | 30 %, 20 bytes |
//! |---|---|---|---|---|---|---|
//! | LRU | .3415 | .2091 | .1640 | .3467 | .2133 | .1666 |
//! | FIFO | .3673 | .2328 | .1807 | .3727 | .2382 | .1846 |
//! | S3-FIFO | .3086 | .1881 | .1599 | .3145 | .1914 | .1619 |
//! | GDSF, exact, with a heap | **.2792** | **.1778** | **.1508** | **.2911** | .1856 | **.1539** |
//! | this one | .2796 | .1783 | .1516 | .2915 | .1853 | .1545 |
//! | the same, with more classes for items below 22 bytes, as in all rows below | .2822 | .1788 | .1517 |  |  |  |
//! | and with classes that begin at powers of four | **.2789** | .1791 | **.1510** | .2977 | .1901 | .1567 |
//! | and with the middle of the class for the mean size | .2801 | **.1782** | **.1511** | .3004 | .1905 | .1570 |
//! | the same, new items with the half of a hit's worth | .2841 | .1790 | **.1513** |  |  |  |
//! | the same, with an eighth | .2830 | .1799 | .1525 |  |  |  |
//! | the same, without probation | .2899 | .1814 | .1520 |  |  |  |
//! | the same, with the mean size of each block for its queue's | .2817 | .1788 | .1517 |  |  |  |
//!
//! Bold: fewer misses than this one. Where classes begin matters as much as the rest, and depends
//! on the sizes: a class treats items near both of its ends alike. With the headers of the server's
//! items, a third of the powers of four suits the common sizes. Ignoring sizes costs most: .3172,
//! .2007, .1640. A queue of ghosts as large as the cache would gain up to .002, and cost memory.
//! Items that move have 0.56, 0.77 and 0.60 of the bytes that are stored.
//!
//! # Entries
//!
//! `relativist_cache::Cache` applies the policy to single entries, by their weights, and remembers
//! as many ghosts as it has entries. Its classes begin at powers of four, and all entries of a
//! class count as equally heavy ([`worth_of_entry`]): its weights have no headers. The worth of a
//! hit is the inverse of the weight to the power of 3/8, so that few bytes miss. That of a new
//! entry is the inverse to the power of 3/4, so that few requests miss: most new entries are never
//! requested again, and heavy ones would displace many others until then. It is far less than a
//! hit's, because a ghost that comes back corrects what was evicted too early.

use std::array;

/// The number of classes: one for each factor of four of an item's size.
const CLASSES: usize = 24;

/// The number of queues: two per class, of new items and of protected ones.
pub const QUEUES: usize = 2 * CLASSES;

/// What eviction makes as few of as it can.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum EvictFor {
    /// Requests that miss. Among items with equally many hits, large ones go first.
    #[default]
    Requests,
    /// Bytes of values that miss. Sizes don't count.
    Bytes,
}

/// The worth of a hit, in that of a new item.
const PROBATION: u64 = 4;

/// The same for an entry of a `relativist_cache::Cache` whose weight is 1 (up to 3).
const UNWEIGHED_PROBATION: u32 = 32;

/// The maximum number of visits to an item's credit; more gain nothing (.2822 at 1 % with 7, .2818
/// with 15, .2847 with 3).
pub const MAX_VISITS: u8 = 7;

/// The queue of items of `size` bytes that have `visits` to their credit. Class n has the sizes
/// from 4^n / 3 up to 4^(n+1) / 3; the first class also has all smaller ones.
pub fn queue(size: usize, visits: u8) -> usize {
    queue_of_class(class(size.saturating_mul(3)).max(FIRST_CLASS), visits)
}

/// The first class that [`queue`] uses: few items are smaller than 22 bytes, and a block would not
/// fill with them.
const FIRST_CLASS: usize = 3;

/// The queue of an entry of a `relativist_cache::Cache`. Class n has the weights from 4^n up to
/// 4^(n+1).
#[inline]
pub fn queue_of_entry(weight: usize, visits: u8) -> usize {
    queue_of_class(class(weight), visits)
}

/// The class that begins at the power of four that is `size`, or the next one below.
#[inline]
fn class(size: usize) -> usize {
    ((size.max(1).ilog2() / 2) as usize).min(CLASSES - 1)
}

#[inline]
fn queue_of_class(class: usize, visits: u8) -> usize {
    2 * class + usize::from(visits > 0)
}

/// Returns the queue of protected items of the same class.
#[inline]
pub fn protected(queue: usize) -> usize {
    queue | 1
}

/// Returns whether the items of a queue are protected: they have moved, and have visits to their
/// credit.
#[inline]
pub fn is_protected(queue: usize) -> bool {
    queue % 2 == 1
}

/// The mean size of the items in each queue, as swept lately.
#[derive(Clone, Debug)]
pub struct MeanSizes {
    /// In [`FRACTION`]s of a byte.
    means: [u64; QUEUES],
}

/// The parts of a byte in which means are kept, so that those of small items are exact enough.
const FRACTION: u64 = 1 << 8;

/// The weight of the last block in the mean of its queue is the inverse of this. Any number from 2
/// to 32 does: misses differ by less than .0003.
const MEMORY: u64 = 8;

/// The worth of a hit on an item of one byte, if requests count.
const UNIT: u64 = 1 << 38;

impl MeanSizes {
    /// Before a queue was swept, the middle of the sizes of its class counts.
    pub fn new() -> Self {
        let middle = |queue: usize| ((2 * FRACTION) << (2 * (queue / 2))) / 3;
        Self { means: array::from_fn(middle) }
    }

    /// Notes that a block of a queue was swept, and how many items it had, and how many bytes.
    pub fn note(&mut self, queue: usize, items: u64, bytes: u64) {
        if let Some(size) = (FRACTION * bytes).checked_div(items) {
            let mean = &mut self.means[queue];
            *mean = (*mean * (MEMORY - 1) + size.max(FRACTION)) / MEMORY;
        }
    }

    /// The worth of a block in a queue, or a quarter of that for new items. If requests count, it
    /// is the worth of one hit per byte, the inverse of the mean size. If bytes count, a hit on an
    /// item is worth its size, which per byte is the same for all items. In units that leave room
    /// for a billion rounds through items of 24 bytes.
    pub fn worth(&self, queue: usize, goal: EvictFor) -> u64 {
        let hit = match goal {
            EvictFor::Requests => UNIT * FRACTION / self.means[queue],
            EvictFor::Bytes => 1 << 20,
        };
        if is_protected(queue) { hit } else { hit / PROBATION }
    }
}

impl Default for MeanSizes {
    fn default() -> Self {
        Self::new()
    }
}

/// The worth of an entry of a `relativist_cache::Cache` in a queue, whose weight takes the place of
/// the size: the inverse of the weight to the power of 3/8, and to the power of 3/4 for new
/// entries, but at least 1. The largest is 2^30, so that an entry can be stamped with 32 bits.
#[inline]
pub fn worth_of_entry(queue: usize) -> u32 {
    WORTH_OF_ENTRY[queue]
}

const WORTH_OF_ENTRY: [u32; QUEUES] = {
    /// Returns 2^30, divided by this power of 2^(1/4), but at least 1.
    const fn divided(quarters: usize) -> u32 {
        const QUARTERS: [u32; 4] = [1 << 30, 902_905_651, 759_250_125, 638_450_708];
        let worth = if quarters < 4 * 31 { QUARTERS[quarters % 4] >> (quarters / 4) } else { 0 };
        if worth > 0 { worth } else { 1 }
    }
    let mut worth = [0; QUEUES];
    let mut class = 0;
    while class < CLASSES {
        // Weights of the next class are four times as large: to the power of 3/8 that is 2^(3/4).
        let hit = divided(3 * class);
        // An eighth for an entry of weight 1, so a 64th at a weight of 256.
        let new = divided(4 * 3 + 6 * class);
        worth[2 * class] = if class == 0 { hit / UNWEIGHED_PROBATION } else { new };
        worth[2 * class + 1] = hit;
        class += 1;
    }
    worth
};

/// Decides about an item with `visits` to its credit when its block is evicted. Returns its new
/// visits if it moves, or none if it goes.
#[inline]
pub fn verdict(visits: u8, was_visited: bool) -> Option<u8> {
    // Without branches that depend on the visit, because they would often be predicted wrongly.
    let left = if was_visited { (visits + 1).min(MAX_VISITS) } else { visits.saturating_sub(1) };
    (left > 0).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_factors_of_four() {
        let classes = |queue: fn(usize, u8) -> usize, sizes: [usize; 8]| sizes.map(|size| queue(size, 0) / 2);
        assert_eq!(classes(queue, [1, 16, 21, 22, 85, 86, 341, 342]), [3, 3, 3, 3, 3, 4, 4, 5]);
        assert_eq!(classes(queue_of_entry, [0, 3, 4, 15, 16, 64, 255, 256]), [0, 0, 1, 1, 2, 3, 3, 4]);
        assert!(queue(usize::MAX, 1) < QUEUES && queue_of_entry(usize::MAX, 1) < QUEUES);
    }

    #[test]
    fn an_item_is_worth_four_times_one_of_the_next_class() {
        let sizes = MeanSizes::new();
        for queue in 2..2 * 14 {
            let [one, next] = [queue, queue + 2].map(|queue| sizes.worth(queue, EvictFor::Requests));
            assert!(one.abs_diff(4 * next) <= one / 100, "{one} and {next}");
        }
        let largest = queue(1 << 30, 0);
        assert!(sizes.worth(largest, EvictFor::Requests) > 0);
    }

    #[test]
    fn the_worth_follows_the_sizes_that_are_swept() {
        let (mut sizes, queue, other) = (MeanSizes::new(), queue(100, 1), queue(100, 0));
        let untouched = sizes.worth(other, EvictFor::Requests);
        let mut of_size = |size: u64, blocks: usize| {
            (0..blocks).for_each(|_| sizes.note(queue, 10, 10 * size));
            sizes.note(queue, 0, 0);
            assert_eq!(sizes.worth(other, EvictFor::Requests), untouched);
            UNIT / sizes.worth(queue, EvictFor::Requests)
        };
        assert!(of_size(100, 100).abs_diff(100) <= 1);
        assert!((101..130).contains(&of_size(200, 1)), "one block changes it a little");
        assert!(of_size(200, 100).abs_diff(200) <= 1);
    }

    #[test]
    fn items_without_bytes_count_as_one() {
        let mut sizes = MeanSizes::new();
        (0..100).for_each(|_| sizes.note(0, 5, 0));
        let expected = UNIT / PROBATION;
        assert!(sizes.worth(0, EvictFor::Requests).abs_diff(expected) <= expected / 16);
    }

    #[test]
    fn the_worth_of_an_entry_falls_with_its_weight() {
        assert_eq!(worth_of_entry(1), 1 << 30);
        assert_eq!(worth_of_entry(0), 1 << 25);
        for class in 1..CLASSES {
            let [lighter, heavier, new] = [2 * class - 1, 2 * class + 1, 2 * class].map(worth_of_entry);
            assert!(lighter > heavier && heavier / 8 >= new && new > 0);
            let factor = f64::from(lighter) / f64::from(heavier);
            assert!((factor / 4_f64.powf(0.375) - 1.0).abs() < 0.01, "{class}: {factor}");
            if class < 12 {
                let factor = f64::from(new) / f64::from(worth_of_entry(2 * class + 2));
                assert!((factor / 4_f64.powf(0.75) - 1.0).abs() < 0.01, "{class}: {factor}");
            }
        }
    }

    #[test]
    fn sizes_do_not_count_if_bytes_do() {
        let sizes = MeanSizes::new();
        for queue in 2..QUEUES {
            assert_eq!(sizes.worth(queue, EvictFor::Bytes), sizes.worth(queue - 2, EvictFor::Bytes));
        }
    }

    #[test]
    fn a_new_item_is_worth_a_quarter_until_it_has_visits() {
        let sizes = MeanSizes::new();
        let [new, protected] = [0, 1].map(|visits| queue(100, visits));
        assert_eq!([new, protected].map(is_protected), [false, true]);
        for goal in [EvictFor::Requests, EvictFor::Bytes] {
            assert_eq!(sizes.worth(new, goal), sizes.worth(protected, goal) / 4);
        }
        assert_eq!(queue(100, MAX_VISITS), protected);
    }

    #[test]
    fn visits_are_spent_one_by_one() {
        assert_eq!(verdict(0, false), None);
        assert_eq!(verdict(0, true), Some(1));
        assert_eq!(verdict(1, false), None);
        assert_eq!(verdict(3, false), Some(2));
        assert_eq!(verdict(MAX_VISITS, true), Some(MAX_VISITS));
    }
}
