//! An update that depends on the present value, as one atomic step.
//!
//! As in a map, it is optimistic: it looks the entry up, computes the new one outside of locks, and
//! replaces *exactly the entry* that it looked up. If that is gone, it starts again.
//!
//! It cancels the load of its key before it changes the entry, as insertions and removals do, so
//! that no older value that is being loaded replaces the new one, or comes back after a removal.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use relativist_rcu::Guard;
use relativist_table as table;

use super::core::{Core, Node, with_core};
use super::entry::Lifespan;
use super::expiry::Purpose;
use super::{Cache, TooHeavy};

/// The result of [`Cache::compute`]: the value before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'g, V> {
    /// The value that was replaced or removed; `None` if the key was absent.
    pub old: Option<&'g V>,
    /// The value that was inserted; `None` if the entry was removed.
    pub new: Option<&'g V>,
}

/// The error of [`Cache::compute`].
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ComputeError<K, V, E> {
    /// The new entry is heavier than the cache. The previous entry of the key was removed.
    TooHeavy(TooHeavy<K, V>),
    /// The function has returned this error. Nothing was changed.
    Failed(E),
}

impl<K, V, E: fmt::Debug> fmt::Debug for ComputeError<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooHeavy(refused) => f.debug_tuple("TooHeavy").field(refused).finish(),
            Self::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
        }
    }
}

impl<K, V, E: fmt::Display> fmt::Display for ComputeError<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooHeavy(refused) => refused.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<K, V, E: std::error::Error> std::error::Error for ComputeError<K, V, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::TooHeavy(_) => None,
            // Its message is that of this error.
            Self::Failed(error) => error.source(),
        }
    }
}

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Calls `decide` with the value of a key, or `None`, and applies the result as one atomic
    /// step: `Ok(Some(value))` sets the value like [`Cache::insert`], `Ok(None)` removes the entry
    /// like [`Cache::remove`], and `Err` changes nothing and is returned. Returns the values before
    /// and after.
    ///
    /// `decide` runs outside of locks, and runs again if its result could not be applied: because
    /// another thread has changed or evicted the entry, or because other threads held the room for
    /// the new one. So it may see `None` where it has seen a value before. Only its last result is
    /// applied, so no update is lost. It may use the cache, and load.
    ///
    /// Finding the entry counts as a hit for eviction and for the [time to
    /// idle](super::Builder::time_to_idle), but not in [`Cache::stats`]. A new value begins a new
    /// [time to live](super::Builder::time_to_live).
    ///
    /// Costs a lookup and an insertion or a removal for each attempt, and blocks as they do. If
    /// `decide` returns an error, it is wait-free, apart from `decide`.
    ///
    /// # Errors
    ///
    /// Returns the error of `decide`. Returns the new entry if it is heavier than the whole cache;
    /// then the previous entry of the key is removed, as [`Cache::insert`] does.
    ///
    /// # Panics
    ///
    /// See [`Cache::insert`]. If `decide` panics, nothing is changed.
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use relativist_cache::Cache;
    ///
    /// let visits: Cache<&str, u64> = Cache::new(1000);
    /// let guard = relativist_cache::read();
    /// let add = |n: Option<&u64>| Ok::<_, Infallible>(Some(n.map_or(1, |n| n + 1)));
    /// assert_eq!(visits.compute("/", add, &guard).unwrap().new, Some(&1));
    /// assert_eq!(visits.compute("/", add, &guard).unwrap().new, Some(&2));
    ///
    /// // Takes one back, and removes the entry when none is left.
    /// let subtract = |n: Option<&u64>| match n {
    ///     None => Err("no visits"),
    ///     Some(1) => Ok(None),
    ///     Some(n) => Ok(Some(n - 1)),
    /// };
    /// assert_eq!(visits.compute("/", subtract, &guard).unwrap().new, Some(&1));
    /// assert_eq!(visits.compute("/", subtract, &guard).unwrap().new, None);
    /// assert_eq!(visits.compute("/", subtract, &guard).unwrap_err().to_string(), "no visits");
    /// ```
    pub fn compute<'g, E>(
        &'g self,
        key: K,
        decide: impl FnMut(Option<&'g V>) -> Result<Option<V>, E>,
        guard: &'g Guard,
    ) -> Result<Change<'g, V>, ComputeError<K, V, E>> {
        with_core!(self, core => core.compute(key, decide, guard))
    }
}

impl<K, V, S, L: Lifespan> Core<K, V, S, L>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Removes exactly the entry that a lookup has found, if it has found one. Returns false if the
    /// key has another entry now.
    fn remove_found(&self, found: Option<&Node<K, V, L>>, hash: table::Hash, key: &K, guard: &Guard) -> bool {
        match found {
            Some(node) => self.remove_exactly(node, guard),
            // A load may have inserted its value after the lookup, before it could be cancelled.
            None => self.find(hash, key, Purpose::Peek, guard).is_none(),
        }
    }

    /// See [`Cache::compute`].
    fn compute<'g, E>(
        &'g self,
        mut key: K,
        mut decide: impl FnMut(Option<&'g V>) -> Result<Option<V>, E>,
        guard: &'g Guard,
    ) -> Result<Change<'g, V>, ComputeError<K, V, E>> {
        let hash = self.map.hash(&key);
        loop {
            let present = self.map.find_hashed(hash, &key, guard);
            let alive = present.filter(|node| self.is_alive(&node.value, Purpose::Hit));
            let old = alive.map(|node| &node.value.value);
            if let Some(node) = alive {
                node.value.slot.visit();
            }
            let decision = match decide(old) {
                Ok(decision) => decision,
                Err(error) => {
                    // The key is dropped first: if its destructor panicked later, the error would
                    // be leaked.
                    drop(key);
                    return Err(ComputeError::Failed(error));
                }
            };
            let Some(value) = decision else {
                self.cancel_load_for_removal(hash, &key, guard);
                if self.remove_found(alive, hash, &key, guard) {
                    return Ok(Change { old, new: None });
                }
                continue;
            };
            self.cancel_load(hash, &key, guard);
            let entry = self.make(&key, value);
            let weight = entry.slot.weight;
            let node = Node::new(hash, key, entry);
            if weight > self.capacity() {
                self.cancel_load_for_removal(hash, &node.key, guard);
                let is_removed = self.remove_found(present, hash, &node.key, guard);
                let (unused, entry) = node.into_parts();
                if is_removed {
                    return Err(ComputeError::TooHeavy(TooHeavy { key: unused, value: entry.value, weight }));
                }
                key = unused;
                continue;
            }
            match self.put_instead(present, node, None, guard) {
                Ok(node) => return Ok(Change { old, new: Some(&node.value.value) }),
                Err(node) => (key, _) = node.into_parts(),
            }
        }
    }
}
