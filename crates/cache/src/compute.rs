//! An update that depends on the present value, as one atomic step.
//!
//! As in a map, it is optimistic: it looks the entry up, computes the new one outside of locks, and
//! replaces *exactly the entry* that it looked up. If that is gone, it starts again.

use std::convert::Infallible;
use std::hash::{self, BuildHasher};

use relativist_bucket::Hash;

use super::Cache;
use super::cause::RemovalCause;
use super::core::{Condition, Core, Unput};
use super::expiry::Purpose;
use super::node::Lifespan;
use super::shard::Compared;
use super::update::Update;
use super::with_core;

impl<K, V, S> Cache<K, V, S>
where
    K: hash::Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Calls `decide` with the value of a key, or `None`, and applies the result as one atomic
    /// step: `Some(value)` sets the value like [`Cache::insert`], and `None` removes the entry like
    /// [`Cache::remove`]. Returns a clone of the new value.
    ///
    /// `decide` runs outside of locks, and runs again if its result could not be applied, because
    /// another thread has changed or evicted the entry. So it may see `None` where it has seen a
    /// value before. Only its last result is applied, so no update is lost. It may use the cache,
    /// and load. It runs in a read section: it must not wait for a thread that updates a cache.
    ///
    /// Finding the entry counts as a hit for eviction and for its lifetime, but not in
    /// [`Cache::stats`]. A value that is too heavy for the cache is returned, but not kept.
    ///
    /// Costs a lookup and an insertion or a removal for each attempt, and blocks as they do.
    ///
    /// # Panics
    ///
    /// See [`Cache::insert`]. If `decide` panics, nothing is changed.
    ///
    /// ```
    /// use relativist_cache::Cache;
    ///
    /// let visits: Cache<&str, u64> = Cache::new(1000);
    /// let add = |n: Option<&u64>| Some(n.map_or(1, |n| n + 1));
    /// assert_eq!(visits.compute("/", add), Some(1));
    /// assert_eq!(visits.compute("/", add), Some(2));
    /// assert_eq!(visits.compute("/", |n| n.filter(|n| **n > 2).copied()), None);
    /// assert_eq!(visits.get("/"), None);
    /// ```
    #[doc(alias = "entry")]
    #[doc(alias = "and_compute_with")]
    #[doc(alias = "and_upsert_with")]
    pub fn compute(&self, key: K, mut decide: impl FnMut(Option<&V>) -> Option<V>) -> Option<V> {
        match self.try_compute(key, |value| Ok::<_, Infallible>(decide(value))) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// Like [`Cache::compute`], but `decide` may fail. Then nothing is changed.
    ///
    /// # Errors
    ///
    /// Returns the error of `decide`.
    ///
    /// # Panics
    ///
    /// See [`Cache::compute`].
    ///
    /// ```
    /// use relativist_cache::Cache;
    ///
    /// let stock: Cache<&str, u32> = Cache::new(1000);
    /// stock.insert("tea", 1);
    /// let take = |n: Option<&u32>| n.and_then(|n| n.checked_sub(1)).map(Some).ok_or("sold out");
    /// assert_eq!(stock.try_compute("tea", take), Ok(Some(0)));
    /// assert_eq!(stock.try_compute("tea", take), Err("sold out"));
    /// ```
    #[doc(alias = "and_try_compute_with")]
    pub fn try_compute<E>(
        &self,
        key: K,
        decide: impl FnMut(Option<&V>) -> Result<Option<V>, E>,
    ) -> Result<Option<V>, E> {
        with_core!(self, core => core.compute(key, decide))
    }
}

impl<K, V, S, L> Core<K, V, S, L>
where
    K: hash::Hash + Eq,
    V: Clone,
    S: BuildHasher,
    L: Lifespan,
{
    /// Removes exactly the entry that was found, or none, and cancels the loads of the key. Returns
    /// false if the key has another entry now.
    fn remove_compared(
        &self,
        update: &mut Update<'_, K, V, S, L>,
        hash: Hash,
        compared: &mut Compared<K, V, L>,
        cause: RemovalCause,
    ) -> bool {
        match compared.found {
            Some(node) => update.remove_exactly(self.shard_of(hash), node, cause, true),
            None => update.cancel_if_absent(hash, compared),
        }
    }

    /// See [`Cache::try_compute`].
    fn compute<E>(
        &self,
        mut key: K,
        mut decide: impl FnMut(Option<&V>) -> Result<Option<V>, E>,
    ) -> Result<Option<V>, E> {
        let hash = self.hash(&key);
        loop {
            let mut update = self.update();
            let mut compared = update.compare(hash, &key);
            // SAFETY: found under the guard of the update.
            let found = compared.found.map(|node| unsafe { node.as_ref() });
            let alive = found.filter(|node| self.is_alive(node, Purpose::Hit));
            if let Some(node) = alive {
                node.visit();
            }
            let decision = match decide(alive.map(|node| &node.value)) {
                Ok(decision) => decision,
                Err(error) => {
                    // The key is dropped first: if its destructor panicked later, the error would
                    // be leaked.
                    drop(key);
                    return Err(error);
                }
            };
            let Some(value) = decision else {
                let cause = if alive.is_some() { RemovalCause::Explicit } else { RemovalCause::Expired };
                if self.remove_compared(&mut update, hash, &mut compared, cause) {
                    return Ok(None);
                }
                continue;
            };
            let made = self.make(hash, key, value.clone());
            match update.put(made, &Condition::Instead(compared.found)) {
                Ok(()) => return Ok(Some(value)),
                Err(Unput::Refused(made)) => (key, _) = made.node.into_parts(),
                Err(Unput::TooHeavy(made)) => {
                    if self.remove_compared(&mut update, hash, &mut compared, RemovalCause::Explicit) {
                        return Ok(Some(value));
                    }
                    (key, _) = made.node.into_parts();
                }
            }
        }
    }
}
