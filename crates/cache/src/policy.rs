//! The eviction policy: pure functions of a few numbers, so that traces can be replayed with them
//! (`relativist-bench replay`).
//!
//! Items are in *blocks*, in the order of their arrival. A block holds items of one *class*, whose
//! sizes are within a factor of four, and is evicted as a whole: items that were visited since the
//! last sweep move to a younger block, the others go. So a hit costs no more than a mark, and items
//! need no place in a list.
//!
//! The choice of the next block follows GreedyDual-Size (Cao and Irani, USITS 1997), with queues
//! for rounded sizes as in CAMP (Ghandeharizadeh et al., Middleware 2014). Each class is a FIFO
//! queue of blocks. A block that closes is stamped with the current *level*; its priority is the
//! stamp plus the worth of one hit per byte, the inverse of the size. The block with the lowest
//! priority is evicted, and its priority becomes the level. So a small item outlives a large one by
//! the ratio of their sizes, and unused items go in the end, however small. Each sweep that finds
//! an item visited lets it survive one more sweep, up to [`MAX_VISITS`]; each other sweep takes one
//! away. So sweeps count the hits, as in GCLOCK.
//!
//! Measured on the trace of Twitter's cluster 52 that comes with libCacheSim (10^6 requests for
//! 143,542 objects, median 54 bytes); request miss ratios with the cache at 1, 10 and 30 % of the
//! objects' bytes, sizes taken as they are:
//!
//! | policy | 1 % | 10 % | 30 % |
//! |---|---|---|---|
//! | LRU | .3415 | .2091 | .1640 |
//! | FIFO | .3673 | .2328 | .1807 |
//! | S3-FIFO, as published for this trace | .309 | .188 | .160 |
//! | GDSF, exact, with a heap | .2792 | .1778 | .1508 |
//! | this one, items one by one, sizes rounded to 1 % | .2890 | .1810 | .1518 |
//! | the same, classes of factor 2 | .2880 | .1806 | .1520 |
//! | the same, classes of factor 4 | .2868 | .1810 | .1523 |
//! | the same, in blocks of 1/64 of the cache | .2873 | .1811 | .1523 |
//!
//! So neither rounding sizes nor evicting whole blocks costs hits. A queue of ghosts does not help
//! (.2900, .1808, .1516 with one as large as the cache and visits up to 3). Ignoring sizes costs
//! most: .3397, .2078, .1658. Items that move have 0.57, 0.75 and 0.66 of the bytes that are
//! stored.

/// The number of classes: one for each factor of four of an item's size.
pub const CLASSES: usize = 24;

/// The maximum number of visits to an item's credit; more gain nothing (.2868 at 1 % with 7, .2863
/// with 15).
pub const MAX_VISITS: u8 = 7;

/// The class of items of `size` bytes. Class n has the sizes from 4^n up to 4^(n+1).
pub fn class(size: usize) -> usize {
    (size.max(1).ilog2() / 2) as usize
}

/// The worth of one hit per byte of items of `class`: the inverse of the middle of their sizes, in
/// units that leave room for two billion rounds through the smallest class.
pub fn worth(class: usize) -> u64 {
    (1 << 40) >> (2 * class.min(19) + 1)
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
        for class in 0..19 {
            assert_eq!(worth(class), 4 * worth(class + 1));
        }
        assert!(worth(CLASSES) > 0);
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
