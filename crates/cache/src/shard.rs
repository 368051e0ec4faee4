//! A shard of a cache: the entries of some hashes, and all that an update of one of them changes.
//! One lock protects it.
//!
//! An entry is in the table and in a queue, or in neither. When it leaves both, it is *retired*: it
//! waits for the readers that may have found it, and is freed when two grace periods have begun and
//! ended since. `invalidate_all` takes all entries out of both at once. Until they are retired, one
//! after the other, they are *detached*.
//!
//! No code of the user runs under the lock: keys are compared before ([`Compared`]).

use std::collections::{BTreeMap, VecDeque};
use std::mem::{replace, take};
use std::ops::RangeInclusive;
use std::ptr::{self, NonNull};
use std::sync::{Arc, PoisonError};

use equivalent::Equivalent;
use relativist_bucket::{Different, Hash};
use relativist_core::eviction;
use relativist_core::prefetch::prefetch_for_write;
use relativist_core::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Relaxed, fence_after_exchange};
use relativist_rcu::{Guard, clock};

use super::array::Array;
use super::cause::RemovalCause;
use super::flight::Flight;
use super::node::{Indexed, Lifespan, Node, NodePtr};
use super::queues::{Left, Look, NoneToEvict, Queues, Taken, turn};
use super::table::Table;

/// The lock of a shard and its counts, on cache lines of their own.
#[repr(align(128))]
pub(super) struct Shard<K, V, L> {
    state: Mutex<State<K, V, L>>,
    /// The number of entries and the sum of their weights, and the weight of those that are
    /// retired. Written under the lock.
    len: AtomicU64,
    weight: AtomicU64,
    retired: AtomicU64,
    /// The share of this shard in the weight that may wait for readers.
    most_retired: AtomicU64,
    /// The priority of the entry to evict next, or [`NOTHING`], if weights may differ.
    lowest: AtomicU64,
}

/// No priority.
const NOTHING: u64 = u64::MAX;

/// The number of entries with different weights from which on a shard has enough to choose from
/// when it evicts. A heavy entry makes room for itself: with a sixteenth of them, a seventh more
/// requests miss (`relativist-bench replay --generate etc --sizes 1%`).
pub(super) const ENOUGH_WEIGHED: u64 = 4096;

struct State<K, V, L> {
    queues: Queues<Node<K, V, L>>,
    /// The loads in progress, by their hashes and addresses.
    flights: BTreeMap<(u64, usize), Arc<Flight<K, V>>>,
    detached: Taken<Node<K, V, L>>,
    retired: Pieces<Retired<K, V, L>>,
    /// Whether a deferred function will free what is retired.
    drain_is_deferred: bool,
    /// The numbers of entries that were evicted to make room, and that had expired.
    evicted: u64,
    expired: u64,
}

/// An entry that waits for readers.
struct Retired<K, V, L> {
    node: NodePtr<K, V, L>,
    weight: u64,
    /// The grace period in which it has left.
    begun: u64,
}

// SAFETY: the pointer is to a node, which may be dropped on any thread.
unsafe impl<K: Send + Sync, V: Send + Sync, L: Lifespan> Send for Retired<K, V, L> {}

/// A queue in pieces. One deque would be moved as a whole when it grows, while others wait for the
/// lock. The first piece is empty only if all are.
struct Pieces<T> {
    first: VecDeque<T>,
    later: VecDeque<VecDeque<T>>,
}

impl<T> Pieces<T> {
    const MAX_PIECE: usize = 1024;

    fn new() -> Self {
        Self { first: VecDeque::new(), later: VecDeque::new() }
    }

    #[inline(always)]
    fn push(&mut self, value: T) {
        if self.first.len() < Self::MAX_PIECE && self.later.is_empty() {
            self.first.push_back(value);
        } else {
            self.push_later(value);
        }
    }

    #[cold]
    fn push_later(&mut self, value: T) {
        match self.later.back_mut().filter(|piece| piece.len() < Self::MAX_PIECE) {
            Some(piece) => piece.push_back(value),
            None => self.later.push_back(VecDeque::from([value])),
        }
    }

    #[inline(always)]
    fn pop(&mut self) {
        self.first.pop_front();
        if self.first.is_empty() && !self.later.is_empty() {
            self.first = self.later.pop_front().unwrap_or_default();
        }
    }
}

/// Changes a number of a [`Shard`], under its lock.
#[inline(always)]
fn change(count: &AtomicU64, change: impl FnOnce(u64) -> u64) {
    // Relaxed, both: written under the lock only. Others read it as a statistic.
    count.store(change(count.load(Relaxed)), Relaxed);
}

impl<K, V, L> Shard<K, V, L> {
    pub(super) fn new() -> Self {
        let state = State {
            queues: Queues::new(),
            flights: BTreeMap::new(),
            detached: Taken::default(),
            retired: Pieces::new(),
            drain_is_deferred: false,
            evicted: 0,
            expired: 0,
        };
        let [len, weight, retired, most_retired] = [(); 4].map(|()| AtomicU64::new(0));
        Self { state: Mutex::new(state), len, weight, retired, most_retired, lowest: AtomicU64::new(NOTHING) }
    }

    pub(super) fn len(&self) -> u64 {
        // Relaxed, here and below: statistics.
        self.len.load(Relaxed)
    }

    pub(super) fn weight(&self) -> u64 {
        self.weight.load(Relaxed)
    }

    /// Sets the share of this shard in the weight that may wait for readers.
    pub(super) fn set_most_retired(&self, most: u64) {
        self.most_retired.store(most, Relaxed);
    }

    /// Returns the priority of the entry to evict next, if weights may differ.
    #[inline(always)]
    pub(super) fn lowest(&self) -> Option<u32> {
        u32::try_from(self.lowest.load(Relaxed)).ok()
    }

    /// Returns whether more than its share waits for readers.
    #[inline(always)]
    pub(super) fn has_many_retired(&self) -> bool {
        self.retired.load(Relaxed) > self.most_retired.load(Relaxed)
    }

    /// Returns the weight of the entries that wait for readers.
    pub(super) fn retired(&self) -> u64 {
        self.retired.load(Relaxed)
    }
}

/// The result of comparing a key with the entries of its tag, outside of the lock.
pub(super) struct Compared<K, V, L> {
    /// The entry that has the key.
    pub(super) found: Option<NodePtr<K, V, L>>,
    /// Entries with other keys, if there were some.
    different: Option<Box<Different<Node<K, V, L>>>>,
}

impl<K, V, L> Compared<K, V, L> {
    /// A key that was compared with no entry.
    #[inline(always)]
    pub(super) fn with_none() -> Self {
        Self { found: None, different: None }
    }

    /// The guard must live until the result is dropped: it keeps addresses from being used again.
    #[inline(always)]
    pub(super) fn new<Q: Equivalent<K> + ?Sized>(
        table: &Table<Node<K, V, L>>,
        hash: Hash,
        key: &Q,
        guard: &Guard,
    ) -> Self {
        let mut different: Option<Box<Different<_>>> = None;
        let found = table.array(guard).find(hash, |node| {
            let is_same = key.equivalent(&node.key);
            if !is_same {
                different.get_or_insert_default().add(NonNull::from(node));
            }
            is_same
        });
        Self { found, different }
    }
}

/// An entry that has left the queues.
pub(super) type LeftOf<K, V, L> = Left<Node<K, V, L>>;

/// The entry that is there now, and the one that it has replaced.
type Replaced<K, V, L> = (NodePtr<K, V, L>, LeftOf<K, V, L>);

/// A function that returns whether the program uses a value. It calls no code of the user.
pub(super) type IsInUse<V> = fn(&V) -> bool;

/// An entry that was evicted, and why.
type Evicted<K, V, L> = (LeftOf<K, V, L>, RemovalCause);

/// The entry of a key, if there is one.
type Verified<K, V, L> = Result<Option<NodePtr<K, V, L>>, Uncompared>;

/// The shard has an entry with the tag of a key that was not compared with it yet.
pub(super) struct Uncompared;

/// Returns whether a level is so far ahead of another one that shards with many entries follow it.
#[inline(always)]
fn is_ahead(one: u32, other: u32) -> bool {
    // A 64th of the largest worth.
    (one.wrapping_sub(other) as i32) > 1 << 24
}

/// A shard that this thread has locked.
pub(super) struct Locked<'c, K, V, L: Lifespan> {
    table: &'c Table<Node<K, V, L>>,
    shard: &'c Shard<K, V, L>,
    state: MutexGuard<'c, State<K, V, L>>,
    /// The level of all shards, if they share one.
    level: Option<&'c AtomicU32>,
}

impl<'c, K, V, L: Lifespan> Locked<'c, K, V, L> {
    #[inline(always)]
    pub(super) fn new(
        table: &'c Table<Node<K, V, L>>,
        shard: &'c Shard<K, V, L>,
        level: Option<&'c AtomicU32>,
    ) -> Self {
        // No code that panics runs under the lock.
        let mut state = shard.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(level) = level {
            // Relaxed, here and below: a heuristic.
            let (shared, own) = (level.load(Relaxed), *state.queues.level());
            if shard.len() < ENOUGH_WEIGHED || is_ahead(shared, own) {
                *state.queues.level() = shared;
            }
        }
        Self { table, shard, state, level }
    }

    /// Unlocks the shard. Lookups that begin later, on any thread, see what was done.
    #[inline(always)]
    pub(super) fn unlock(mut self) {
        if let Some(level) = self.level {
            let (shared, own) = (level.load(Relaxed), *self.state.queues.level());
            self.shard.lowest.store(self.lowest().map_or(NOTHING, u64::from), Relaxed);
            // Another thread may have raised it more.
            if is_ahead(own, shared) || (self.has_few() && (own.wrapping_sub(shared) as i32) > 0) {
                level.store(own, Relaxed);
            }
        }
        drop(self);
        // Makes the exchange that unlocks the mutex a full barrier.
        // litmus: bucket-update-then-lookup
        fence_after_exchange();
    }

    #[inline(always)]
    fn array(&self) -> Array<'_, Node<K, V, L>> {
        // SAFETY: this holds the lock.
        unsafe { self.table.locked() }
    }

    /// Returns the entry that has the key, if it is the one that was found when keys were compared.
    #[inline(always)]
    pub(super) fn verify(&self, hash: Hash, compared: &mut Compared<K, V, L>) -> Verified<K, V, L> {
        let Compared { found, different } = compared;
        let mut is_compared = true;
        let is_found = |node: &Node<K, V, L>| {
            let node = NonNull::from(node);
            let is_found = *found == Some(node);
            is_compared &= is_found || different.as_mut().is_some_and(|different| different.has(node));
            is_found
        };
        let found = self.array().find(hash, is_found);
        if found.is_some() || is_compared { Ok(found) } else { Err(Uncompared) }
    }

    /// Returns whether there are so few entries that the one to evict next is to be looked for in
    /// other shards, too.
    #[inline(always)]
    pub(super) fn has_few(&self) -> bool {
        self.level.is_some() && self.shard.len() < ENOUGH_WEIGHED
    }

    /// Returns the priority of the entry to evict next.
    pub(super) fn lowest(&self) -> Option<u32> {
        self.state.queues.lowest()
    }

    /// Returns whether the entry to evict next comes after one of this priority in another shard.
    pub(super) fn comes_after(&mut self, other: u32) -> bool {
        let level = *self.state.queues.level();
        self.lowest().is_none_or(|own| turn(other, level) < turn(own, level))
    }

    /// Returns the weight of an entry that is in the cache.
    #[inline(always)]
    pub(super) fn weight_of(&self, node: NodePtr<K, V, L>) -> u64 {
        // SAFETY: in the table, so alive.
        self.state.queues.weight(unsafe { node.as_ref() }.index())
    }

    /// Inserts an entry whose key is not in the table.
    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        node: Box<Node<K, V, L>>,
        hash: Hash,
        weight: u64,
        guard: &Guard,
    ) -> NodePtr<K, V, L> {
        let node = self.add(node, hash, weight, 0);
        // SAFETY: this holds the lock. The node stays alive until it is retired.
        unsafe { self.array().insert(hash, node) };
        change(&self.shard.weight, |sum| sum + weight);
        change(&self.shard.len, |len| len + 1);
        self.fit(guard);
        node
    }

    /// Adds an entry to the queues.
    #[inline(always)]
    fn add(&mut self, node: Box<Node<K, V, L>>, hash: Hash, weight: u64, visits: u8) -> NodePtr<K, V, L> {
        let node = NonNull::from(Box::leak(node));
        // SAFETY: it stays alive until it is retired, and that is after it has left the queues.
        unsafe { self.state.queues.add(node, hash, weight, visits) };
        node
    }

    /// Replaces an entry by another one with the same key, which takes over its visits.
    pub(super) fn replace(
        &mut self,
        old: NodePtr<K, V, L>,
        node: Box<Node<K, V, L>>,
        hash: Hash,
        weight: u64,
    ) -> Replaced<K, V, L> {
        // SAFETY: in the table, so alive.
        let old_node = unsafe { old.as_ref() };
        if old_node.take_visit() {
            node.visit();
        }
        let left = self.state.queues.remove(old_node.index());
        let node = self.add(node, hash, weight, left.visits);
        // SAFETY: this holds the lock, and the old one is in the table. The new one stays alive
        // until it is retired.
        unsafe { self.array().replace(hash, old, node) };
        change(&self.shard.weight, |sum| sum - left.weight + weight);
        (node, left)
    }

    /// Returns the hash of an entry, unless it has left the cache.
    #[inline(always)]
    pub(super) fn hash_of(&self, node: NodePtr<K, V, L>) -> Option<Hash> {
        // SAFETY: alive, because the guard of the caller is older than its removal.
        self.state.queues.hash(node, unsafe { node.as_ref() }.index())
    }

    /// Removes an entry, unless it has left the cache.
    pub(super) fn remove(&mut self, node: NodePtr<K, V, L>, guard: &Guard) -> Option<LeftOf<K, V, L>> {
        let hash = self.hash_of(node)?;
        // SAFETY: this holds the lock. It is in a queue, so it is in the table.
        let is_removed = unsafe { self.array().remove(hash, node) };
        debug_assert!(is_removed);
        // SAFETY: it is alive.
        let left = self.state.queues.remove(unsafe { node.as_ref() }.index());
        self.gone(&left);
        self.fit(guard);
        Some(left)
    }

    /// Counts an entry that has left.
    #[inline(always)]
    fn gone(&self, left: &LeftOf<K, V, L>) {
        change(&self.shard.len, |len| len - 1);
        change(&self.shard.weight, |sum| sum - left.weight);
    }

    /// Resizes the table if its entries need another size, or goes on with that.
    #[inline(always)]
    pub(super) fn fit(&self, guard: &Guard) {
        let hash = |node: NodePtr<K, V, L>| self.hash_of(node).expect("it is in a queue");
        // SAFETY: nodes in the table are alive.
        let prefetch_hash = |node: NodePtr<K, V, L>| self.state.queues.prefetch_hash(unsafe { node.as_ref() }.index());
        // SAFETY: this holds the lock.
        unsafe { self.table.fit(self.shard.len() as usize, hash, prefetch_hash, guard) };
    }

    /// Takes the entry to evict next out of the shard, apart from `kept` and those that are in use,
    /// unless its priority is above `bound`. Entries whose deadline is not after `now` are expired.
    #[inline(always)]
    pub(super) fn evict(
        &mut self,
        kept: Option<NodePtr<K, V, L>>,
        bound: Option<u32>,
        now: Option<u64>,
        is_in_use: impl Fn(&V) -> bool,
    ) -> Result<Evicted<K, V, L>, NoneToEvict> {
        if let Some(left) = self.pop_detached() {
            return Ok((left, RemovalCause::Explicit));
        }
        let popped = self.state.queues.pop(kept, bound, |node| {
            // SAFETY: nodes in queues are alive.
            let node = unsafe { node.as_ref() };
            let has_expired = now.is_some_and(|now| node.lifespan.deadline() <= now);
            Look { is_visited: node.take_visit(), has_expired, is_in_use: is_in_use(&node.value) }
        })?;
        let left = popped.left;
        // SAFETY: this holds the lock. It was in a queue, so it is in the table.
        let is_removed = unsafe { self.array().remove(left.hash, left.node) };
        debug_assert!(is_removed);
        self.gone(&left);
        if popped.has_expired {
            self.state.expired += 1;
        } else {
            self.state.evicted += 1;
            if !eviction::is_protected(popped.queue) {
                self.state.queues.remember(left.hash);
            }
        }
        if let Some(hash) = self.state.queues.prefetch(popped.queue) {
            self.array().prefetch(hash);
        }
        Ok((left, if popped.has_expired { RemovalCause::Expired } else { RemovalCause::Size }))
    }

    /// Prefetches what an insertion will write: another thread may have written it last.
    #[inline(always)]
    pub(super) fn prefetch_for(&mut self, hash: Hash, weight: u64) {
        self.state.queues.prefetch_for(hash, weight);
        if let Some(last) = self.state.retired.first.back() {
            prefetch_for_write(ptr::from_ref(last).wrapping_add(1));
        }
    }

    /// Takes a detached entry.
    #[inline(always)]
    pub(super) fn pop_detached(&mut self) -> Option<LeftOf<K, V, L>> {
        self.state.detached.pop()
    }

    /// Counts an entry that had expired, and was removed.
    pub(super) fn count_expired(&mut self) {
        self.state.expired += 1;
    }

    /// Frees an entry that has left, after a grace period. Returns true if the caller has to defer
    /// a call of [`Locked::drain`].
    #[inline(always)]
    pub(super) fn retire(&mut self, left: &LeftOf<K, V, L>, guard: &Guard) -> bool {
        let &Left { node, weight, .. } = left;
        self.state.retired.push(Retired { node, weight, begun: clock::begun(guard) });
        change(&self.shard.retired, |sum| sum.saturating_add(weight));
        !replace(&mut self.state.drain_is_deferred, true)
    }

    /// Returns whether half of this shard's share waits for readers.
    #[inline(always)]
    pub(super) fn is_half_full(&self) -> bool {
        // Relaxed, both: a heuristic.
        self.shard.retired.load(Relaxed) > self.shard.most_retired.load(Relaxed) / 2
    }

    /// Passes up to `count` retired entries to `free`, for whose readers has been waited. `free`
    /// must not drop them yet.
    #[inline(always)]
    pub(super) fn collect(&mut self, count: usize, mut free: impl FnMut(NodePtr<K, V, L>)) {
        let ended = clock::ended();
        for _ in 0..count {
            let Some(first) = self.state.retired.first.front() else { return };
            if ended < first.begun + clock::GRACE_PERIODS {
                return;
            }
            change(&self.shard.retired, |sum| sum.saturating_sub(first.weight));
            free(first.node);
            self.state.retired.pop();
        }
    }

    /// The same for the deferred function. Returns whether it must be deferred again.
    pub(super) fn drain(&mut self, count: usize, free: impl FnMut(NodePtr<K, V, L>)) -> bool {
        self.collect(count, free);
        let is_empty = self.state.retired.first.is_empty();
        if is_empty {
            self.state.retired = Pieces::new();
        }
        self.state.drain_is_deferred = !is_empty;
        self.state.drain_is_deferred
    }

    /// Takes all entries out of the table and the queues, in constant time. Returns false if there
    /// is no memory for an empty table, and takes none out then.
    pub(super) fn detach_all(&mut self, guard: &Guard) -> bool {
        // SAFETY: this holds the lock.
        if !unsafe { self.table.clear(guard) } {
            return false;
        }
        change(&self.shard.weight, |_| 0);
        change(&self.shard.len, |_| 0);
        let all = self.state.queues.take_all();
        self.state.detached.append(all);
        true
    }

    /// Returns the loads of keys with this hash.
    #[inline(always)]
    pub(super) fn flights(&self, hash: Hash) -> Vec<Arc<Flight<K, V>>> {
        self.state.flights.range(of_hash(hash)).map(|(_, flight)| Arc::clone(flight)).collect()
    }

    pub(super) fn add_flight(&mut self, flight: Arc<Flight<K, V>>) {
        self.state.flights.insert(place_of(&flight), flight);
    }

    /// Takes a load out. Returns false if it was cancelled.
    pub(super) fn remove_flight(&mut self, flight: &Arc<Flight<K, V>>) -> bool {
        // The caller keeps it, so no destructor runs here.
        self.state.flights.remove(&place_of(flight)).is_some()
    }

    pub(super) fn has_flight(&self, flight: &Arc<Flight<K, V>>) -> bool {
        self.state.flights.contains_key(&place_of(flight))
    }

    /// Takes the loads of keys with this hash out. The caller wakes those that wait for them. (Keys
    /// are not compared. A load of another key is in vain then, which is very rare.)
    #[inline(always)]
    pub(super) fn cancel(&mut self, hash: Hash) -> Vec<Arc<Flight<K, V>>> {
        let mut cancelled = Vec::new();
        if !self.state.flights.is_empty() {
            while let Some((&place, _)) = self.state.flights.range(of_hash(hash)).next() {
                cancelled.extend(self.state.flights.remove(&place));
            }
        }
        cancelled
    }

    pub(super) fn cancel_all(&mut self) -> Vec<Arc<Flight<K, V>>> {
        take(&mut self.state.flights).into_values().collect()
    }

    /// Returns the numbers of entries that were evicted, and that had expired.
    pub(super) fn evictions(&self) -> (u64, u64) {
        (self.state.evicted, self.state.expired)
    }
}

/// Returns the place of a load among those of its shard.
fn place_of<K, V>(flight: &Arc<Flight<K, V>>) -> (u64, usize) {
    (flight.hash.get(), Arc::as_ptr(flight).addr())
}

/// Returns the places of the loads of keys with this hash.
fn of_hash(hash: Hash) -> RangeInclusive<(u64, usize)> {
    (hash.get(), 0)..=(hash.get(), usize::MAX)
}

/// Passes the entries that are left when the cache is dropped to `free`, and whether they are
/// detached.
pub(super) fn free_all<K, V, L: Lifespan>(
    table: &mut Table<Node<K, V, L>>,
    shard: &mut Shard<K, V, L>,
    free: impl Fn(NodePtr<K, V, L>, bool),
) {
    table.drain(|node| free(node, false));
    let mut state = shard.state.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut detached, retired) = (take(&mut state.detached), replace(&mut state.retired, Pieces::new()));
    drop(state);
    while let Some(entry) = detached.pop() {
        free(entry.node, true);
    }
    retired.first.into_iter().chain(retired.later.into_iter().flatten()).for_each(|retired| free(retired.node, false));
}
