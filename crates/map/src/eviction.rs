//! The eviction policy of the server's cache and of [`Cache`](crate::Cache): pure functions of a
//! few numbers, so that traces can be replayed with them (`relativist-bench replay`).
//!
//! # Blocks of items
//!
//! Items are in *blocks*, in the order of their arrival. A block holds items of one *class*, whose
//! sizes are within a factor of four, and is evicted as a whole: items that were visited since the
//! last sweep move to a younger block, the others go. So a hit costs no more than a mark, and items
//! need no place in a list.
//!
//! The choice of the next block follows GreedyDual-Size (Cao and Irani, USITS 1997), with queues
//! for rounded sizes as in CAMP (Ghandeharizadeh et al., Middleware 2014). Each class has two FIFO
//! queues of blocks: one of new items, which are *on probation*, and one of *protected* items,
//! which have moved. A block that closes is stamped with the current *level*; its priority is the
//! stamp plus its worth. The block with the lowest priority is evicted, and its priority becomes
//! the level. The worth of protected items is that of one hit per byte, the inverse of the size. So
//! a small item outlives a large one by the ratio of their sizes, and unused items go in the end,
//! however small. New items have a quarter of that worth, because most of them are never requested
//! again, as in the segmented LRU of Karedla, Love and Wherry (IEEE Computer, 1994). Each sweep
//! that finds an item visited lets it survive one more sweep, up to [`MAX_VISITS`]; each other
//! sweep takes one away. So sweeps count the hits, as in GCLOCK.
//!
//! Measured on the trace of Twitter's cluster 52 that comes with libCacheSim (10^6 requests for
//! 143,542 objects, median 54 bytes); request miss ratios with the cache at 1, 10 and 30 % of the
//! objects' bytes, sizes taken as they are, in blocks of at most 1/64 of the cache:
//!
//! | policy | 1 % | 10 % | 30 % |
//! |---|---|---|---|
//! | LRU | .3415 | .2091 | .1640 |
//! | FIFO | .3673 | .2328 | .1807 |
//! | S3-FIFO, as published for this trace | .309 | .188 | .160 |
//! | GDSF, exact, with a heap | .2792 | .1778 | .1508 |
//! | this one | .2801 | .1782 | .1511 |
//! | the same, new items with the half of a hit's worth | .2815 | .1785 | .1515 |
//! | the same, with an eighth | .2817 | .1792 | .1517 |
//! | the same, without probation | .2873 | .1811 | .1523 |
//!
//! Without probation, items one by one with sizes rounded to 1 % missed .2890, .1810 and .1518. So
//! neither rounding sizes nor evicting whole blocks costs hits. Ignoring sizes costs most: .3397,
//! .2078, .1658. A queue of ghosts as large as the cache would gain up to .002, and cost memory.
//! Items that move have 0.52, 0.74 and 0.62 of the bytes that are stored.
//!
//! # Entries
//!
//! [`Cache`](crate::Cache) applies the policy to single entries, by their weights, and remembers
//! as many ghosts as it has entries. It differs in two numbers ([`worth_of_entry`]). The worth of a
//! hit is the inverse of the *root* of the weight: then fewer requests miss than if weights were
//! ignored, and hardly more bytes. New entries have a thirty-second of that worth, because a ghost
//! that comes back corrects what was evicted too early.

/// The number of classes: one for each factor of four of an item's size.
pub const CLASSES: usize = 24;

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

/// The same for an entry of a [`Cache`](crate::Cache).
const ENTRY_PROBATION: u32 = 32;

/// The maximum number of visits to an item's credit; more gain nothing (.2868 at 1 % with 7, .2863
/// with 15).
pub const MAX_VISITS: u8 = 7;

/// The class of items of `size` bytes. Class n has the sizes from 4^n up to 4^(n+1).
pub fn class(size: usize) -> usize {
    ((size.max(1).ilog2() / 2) as usize).min(CLASSES - 1)
}

/// The smallest size of a class.
pub fn class_start(class: u32) -> u64 {
    1 << (2 * class)
}

/// The queue of items of `size` bytes that have `visits` to their credit.
pub fn queue(size: usize, visits: u8) -> usize {
    2 * class(size) + usize::from(visits > 0)
}

/// Returns whether the items of a queue are protected: they have moved, and have visits to their
/// credit.
pub fn is_protected(queue: usize) -> bool {
    queue % 2 == 1
}

/// The worth of a block in a queue, or a quarter of that for new items. If requests count, it is
/// the worth of one hit per byte, the inverse of the middle of the sizes of the class. If bytes
/// count, a hit on an item is worth its size, which per byte is the same for all items. In units
/// that leave room for two billion rounds through the most valuable class.
pub fn worth(queue: usize, goal: EvictFor) -> u64 {
    let hit = match goal {
        EvictFor::Requests => (1 << 40) >> (2 * (queue / 2).min(18) + 1),
        EvictFor::Bytes => 1 << 20,
    };
    if is_protected(queue) { hit } else { hit / PROBATION }
}

/// The worth of an entry of a [`Cache`](crate::Cache) in a queue, whose weight takes the place of
/// the size: the inverse of the root of the weight, and a thirty-second of that for new entries.
/// The largest is 2^30, so that an entry can be stamped with 32 bits.
pub fn worth_of_entry(queue: usize) -> u32 {
    let hit = (1 << 31) >> (queue / 2 + 1);
    if is_protected(queue) { hit } else { hit / ENTRY_PROBATION }
}

/// Decides about an item with `visits` to its credit when its block is evicted. Returns its new
/// visits if it moves, or none if it goes.
pub fn verdict(visits: u8, was_visited: bool) -> Option<u8> {
    if was_visited { Some((visits + 1).min(MAX_VISITS)) } else { visits.checked_sub(1).filter(|&left| left > 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_factors_of_four() {
        assert_eq!([1, 3, 4, 15, 16, 64, 255, 256].map(class), [0, 0, 1, 1, 2, 3, 3, 4]);
        assert!(class(1 << 40) < CLASSES);
    }

    #[test]
    fn an_item_is_worth_four_times_one_of_the_next_class() {
        for queue in 0..2 * 18 {
            assert_eq!(worth(queue, EvictFor::Requests), 4 * worth(queue + 2, EvictFor::Requests));
        }
        assert!(worth(QUEUES - 2, EvictFor::Requests) > 0);
    }

    #[test]
    fn an_entry_is_worth_two_of_the_next_class() {
        assert_eq!(worth_of_entry(1), 1 << 30);
        for queue in 2..QUEUES {
            assert_eq!(worth_of_entry(queue - 2), 2 * worth_of_entry(queue));
        }
        assert!((0..CLASSES).all(|class| worth_of_entry(2 * class + 1) == 32 * worth_of_entry(2 * class)));
        assert!(worth_of_entry(QUEUES - 2) > 0);
    }

    #[test]
    fn sizes_do_not_count_if_bytes_do() {
        for queue in 2..QUEUES {
            assert_eq!(worth(queue, EvictFor::Bytes), worth(queue - 2, EvictFor::Bytes));
        }
    }

    #[test]
    fn a_new_item_is_worth_a_quarter_until_it_has_visits() {
        let [new, protected] = [0, 1].map(|visits| queue(100, visits));
        assert_eq!([new, protected].map(is_protected), [false, true]);
        for goal in [EvictFor::Requests, EvictFor::Bytes] {
            assert_eq!(4 * worth(new, goal), worth(protected, goal));
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
