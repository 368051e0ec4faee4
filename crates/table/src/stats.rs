//! Statistics about the chains and resizes of a table.

/// Statistics about a table and its resizes, with the bucket histogram of Lever's paper (ALS 2000,
/// section 3).
///
/// ```
/// use relativist_table::{Resizing, Table};
/// let table = Table::new(16, Resizing::Manual, |_| ())?;
/// let stats = table.stats();
/// assert_eq!((stats.buckets, stats.entries), (16, 0));
/// assert_eq!(stats.chain_lengths.iter().sum::<usize>(), stats.buckets);
/// # Ok::<(), relativist_table::AllocError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of buckets.
    pub buckets: usize,
    /// The number of entries in them.
    pub entries: usize,
    /// At index *n*, the number of buckets with *n* entries.
    pub chain_lengths: Vec<usize>,
    /// The largest number of entries in a bucket.
    pub longest_chain: usize,
    /// Resizes to more buckets since the table was made.
    pub grows: u64,
    /// Resizes to fewer buckets since the table was made.
    pub shrinks: u64,
    /// The number of times that chains were cut after growth, each after a grace period. Growths in
    /// quick succession share one.
    pub grace_periods: u64,
}

impl Stats {
    /// Counts a bucket with this number of entries.
    pub fn count_chain(&mut self, length: usize) {
        if length >= self.chain_lengths.len() {
            self.chain_lengths.resize(length + 1, 0);
        }
        self.chain_lengths[length] += 1;
        self.buckets += 1;
        self.entries += length;
        self.longest_chain = self.longest_chain.max(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_buckets_by_the_length_of_their_chain() {
        let mut stats = Stats::default();
        [0, 3, 0, 1].into_iter().for_each(|length| stats.count_chain(length));
        assert_eq!(stats.chain_lengths, [2, 1, 0, 1]);
        assert_eq!((stats.buckets, stats.entries, stats.longest_chain), (4, 4, 3));
    }
}
