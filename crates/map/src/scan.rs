//! Iteration in pieces.

use relativist_rcu::Guard;

use crate::map::HashMap;
use relativist_table::node::Node;

impl<K, V, S> HashMap<K, V, S> {
    /// Performs one piece of an iteration: visits about `n` entries from `cursor` on, and returns
    /// the cursor of the next piece, or `None` after the last entry. The first cursor is 0.
    ///
    /// Use it if an iteration has to be interrupted: by other work, by a network protocol, or
    /// because a guard must not be held that long. Between the calls no guard or lock is held, and
    /// a scan that is not completed leaves nothing to clean up. The cursor is a number, valid as
    /// long as the map, on any thread.
    ///
    /// *What is seen:* an entry that is in the map from the first call to the last is visited
    /// exactly once, however much the map is resized and updated, during the calls or between them.
    /// One that is inserted or removed during the scan may be visited or not. Entries come in the
    /// order of their mixed hashes, which is the same for any size.
    ///
    /// *How much:* `n` entries, at least one, and any others that have the same hash as the last of
    /// them; fewer at the end. Each step is wait-free, except for the empty buckets that it passes,
    /// as in [`iter`](HashMap::iter).
    ///
    /// ```
    /// let map: relativist::HashMap<u32, u32> = (0..1000).map(|n| (n, n * n)).collect();
    /// let mut sum = 0;
    /// let mut next = Some(0);
    /// while let Some(cursor) = next {
    ///     next = map.pin().scan(cursor, 100, |_, square| sum += square);
    ///     map.resize_to(sum as usize % 5000)?; // not while a guard is held
    /// }
    /// assert_eq!(sum, (0..1000).map(|n| n * n).sum());
    /// # Ok::<(), relativist::AllocError>(())
    /// ```
    pub fn scan<'g>(
        &'g self,
        cursor: u64,
        n: usize,
        guard: &'g Guard,
        mut visit: impl FnMut(&'g K, &'g V),
    ) -> Option<u64> {
        self.table.scan(cursor, n, guard, |link| {
            // SAFETY: reached in this map's table under the guard.
            let node: &'g Node<K, V> = unsafe { self.node(link) };
            visit(&node.key, &node.value);
        })
    }
}
