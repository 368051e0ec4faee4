//! When to resize, and to what: a pure function of the numbers of entries and buckets.
//!
//! A table grows past 3/4 of an entry per bucket and shrinks below 1/8; either brings it to between 1/4 and 1/2. So the number of
//! entries has to change by half before the next resize, and a table whose size swings a little does not resize all the time.

/// Who resizes a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resizing {
    /// A background thread, one per process: it grows the table past 3/4 of an entry per bucket and shrinks it below 1/8, never
    /// below the size it was made with.
    #[default]
    Automatic,
    /// Nobody, until `resize_to` is called.
    Manual,
}

/// The number of buckets that so many entries should have, if not what they have now.
pub(crate) fn wanted(entries: usize, buckets: usize, floor: usize) -> Option<usize> {
    let overloaded = entries > buckets / 4 * 3;
    let wasteful = entries < buckets / 8 && buckets > floor;
    (overloaded || wasteful).then(|| buckets_for(entries).max(floor)).filter(|&wanted| wanted != buckets)
}

/// The number of buckets to make for so many entries: a power of two, two to four for each.
pub(crate) fn buckets_for(entries: usize) -> usize {
    entries.saturating_mul(2).checked_next_power_of_two().unwrap_or(1 << 62).max(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_past_three_quarters_and_shrinks_below_an_eighth() {
        assert_eq!(wanted(96, 128, 2), None);
        assert_eq!(wanted(97, 128, 2), Some(256));
        assert_eq!(wanted(16, 128, 2), None);
        assert_eq!(wanted(15, 128, 2), Some(32));
        assert_eq!(wanted(0, 128, 2), Some(2));
    }

    #[test]
    fn stays_above_the_floor() {
        assert_eq!(wanted(0, 128, 64), Some(64));
        assert_eq!(wanted(0, 64, 64), None);
        assert_eq!(
            wanted(1, 32, 64),
            None,
            "a table resized below its floor by hand stays there while it is not overloaded"
        );
        assert_eq!(wanted(25, 32, 64), Some(64));
    }

    #[test]
    fn catches_up_in_one_step() {
        assert_eq!(wanted(1 << 20, 2, 2), Some(1 << 21));
        assert_eq!(wanted(usize::MAX, 2, 2), Some(1 << 62));
    }

    /// After any resize the next one is far: nothing is wanted for half as many or nearly half again as many entries.
    #[test]
    fn has_hysteresis() {
        for entries in 8..5000 {
            let buckets = buckets_for(entries);
            assert_eq!(wanted(entries, buckets, 2), None, "{entries}");
            assert_eq!(wanted(entries * 3 / 2, buckets, 2), None, "{entries}");
            assert_eq!(wanted(entries / 2 + 1, buckets, 2), None, "{entries}");
        }
    }
}
