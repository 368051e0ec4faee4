//! A shard of a cache: the entries of some hashes, and all that an update of one of them changes.
//! One lock protects it.
//!
//! An entry is in the table and in a queue, or in neither. When it leaves both, it is *retired*: it
//! waits for the readers that may have found it, and is freed when two grace periods have begun and
//! ended since. `invalidate_all` takes all entries out of both at once. Until they are retired, one
//! after the other, they are *detached*.
//!
//! No code of the user runs under the lock: keys are compared before ([`Compared`]).

use std::collections::BTreeMap;
use std::mem::take;
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use equivalent::Equivalent;
use relativist_bucket::Hash;
use relativist_core::eviction;
use relativist_core::sync::{AtomicU64, Mutex, MutexGuard, Relaxed, fence_after_exchange};
use relativist_rcu::{Guard, clock};

use super::RemovalCause;
use super::flight::Flight;
use super::node::{Lifespan, Node, NodePtr, Slot};
use super::queues::{Chain, Queues};
use super::table::Table;

/// The number of entries of a shard from which on [`Locked::prefetch_evictions`] pays. Fewer are
/// probably in the processor's cache, and prefetching would take lines from other threads.
const MIN_PREFETCHED: usize = 8;

/// The lock of a shard and its counts, on cache lines of their own.
#[repr(align(128))]
pub(super) struct Shard<K, V> {
    state: Mutex<State<K, V>>,
    /// The number of entries and the sum of their weights, and the weight of those that are
    /// detached and of those that are retired. Written under the lock.
    len: AtomicU64,
    weight: AtomicU64,
    detached: AtomicU64,
    retired: AtomicU64,
}

struct State<K, V> {
    queues: Queues,
    /// The loads in progress, by their hashes and addresses.
    flights: BTreeMap<(u64, usize), Arc<Flight<K, V>>>,
    detached: Chain,
    retired: Chain,
    /// Whether a deferred function will free what is retired.
    drain_is_deferred: bool,
    /// The numbers of entries that were evicted to make room, and that had expired.
    evicted: u64,
    expired: u64,
}

/// A number of a [`Shard`] that changes under its lock.
fn change(count: &AtomicU64, change: impl FnOnce(u64) -> u64) {
    // Relaxed, both: written under the lock only. Others read it as a statistic.
    count.store(change(count.load(Relaxed)), Relaxed);
}

impl<K, V> Shard<K, V> {
    pub(super) fn new() -> Self {
        let state = State {
            queues: Queues::new(),
            flights: BTreeMap::new(),
            detached: Chain::default(),
            retired: Chain::default(),
            drain_is_deferred: false,
            evicted: 0,
            expired: 0,
        };
        let [len, weight, detached, retired] = [(); 4].map(|()| AtomicU64::new(0));
        Self { state: Mutex::new(state), len, weight, detached, retired }
    }

    pub(super) fn len(&self) -> u64 {
        // Relaxed, here and below: statistics.
        self.len.load(Relaxed)
    }

    pub(super) fn weight(&self) -> u64 {
        self.weight.load(Relaxed)
    }

    /// Returns the weight of the entries that wait for readers.
    pub(super) fn retired(&self) -> u64 {
        self.retired.load(Relaxed)
    }
}

/// The result of comparing a key with the entries of its hash, outside of the lock.
pub(super) struct Compared<N> {
    /// The entry that has the key.
    pub(super) found: Option<NonNull<N>>,
    /// Entries with the same hash and other keys.
    different: Vec<NonNull<N>>,
}

impl<K, V, L> Compared<Node<K, V, L>> {
    /// The guard must live until the result is dropped: it keeps addresses from being used again.
    #[inline(always)]
    pub(super) fn new<Q: Equivalent<K> + ?Sized>(
        table: &Table<Node<K, V, L>>,
        hash: Hash,
        key: &Q,
        guard: &Guard,
    ) -> Self {
        let mut different = Vec::new();
        let found = table.array(guard).find(hash, |node| {
            if node.slot.hash != hash {
                return false;
            }
            let is_same = key.equivalent(&node.key);
            if !is_same {
                different.push(NonNull::from(node));
            }
            is_same
        });
        Self { found, different }
    }
}

/// An entry that has left the cache, and why.
pub(super) type Removed<K, V, L> = (NodePtr<K, V, L>, RemovalCause);

/// The entry of a key, if there is one.
type Verified<K, V, L> = Result<Option<NodePtr<K, V, L>>, Uncompared>;

/// The shard has an entry with the hash of a key that was not compared with it yet.
pub(super) struct Uncompared;

/// A shard that this thread has locked.
pub(super) struct Locked<'c, K, V, L: Lifespan> {
    table: &'c Table<Node<K, V, L>>,
    shard: &'c Shard<K, V>,
    state: MutexGuard<'c, State<K, V>>,
}

impl<'c, K, V, L: Lifespan> Locked<'c, K, V, L> {
    #[inline(always)]
    pub(super) fn new(table: &'c Table<Node<K, V, L>>, shard: &'c Shard<K, V>) -> Self {
        // No code that panics runs under the lock.
        Self { table, shard, state: shard.state.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Unlocks the shard. Lookups that begin later, on any thread, see what was done.
    #[inline(always)]
    pub(super) fn unlock(self) {
        drop(self);
        // Makes the exchange that unlocks the mutex a full barrier.
        // litmus: bucket-update-then-lookup
        fence_after_exchange();
    }

    /// Returns the entry that has the key, if it is the one that was found when keys were compared.
    #[inline(always)]
    pub(super) fn verify(&self, hash: Hash, compared: &Compared<Node<K, V, L>>) -> Verified<K, V, L> {
        let mut is_compared = true;
        // In most cases they come in the order in which they were compared.
        let mut different = compared.different.iter().copied();
        let mut is_different = |node| different.next() == Some(node) || compared.different.contains(&node);
        let is_found = |node: NodePtr<K, V, L>| {
            if compared.found == Some(node) {
                return true;
            }
            // SAFETY: it is in the table.
            is_compared &= unsafe { node.as_ref() }.slot.hash != hash || is_different(node);
            false
        };
        // SAFETY: this holds the lock.
        let found = unsafe { self.table.find_locked(hash, is_found) };
        if found.is_some() || is_compared { Ok(found) } else { Err(Uncompared) }
    }

    /// Inserts an entry whose key is not in the table.
    #[inline(always)]
    pub(super) fn insert(&mut self, node: NodePtr<K, V, L>, guard: &Guard) {
        // SAFETY: the caller has made the node, and no other thread has it yet. It stays alive
        // until it is retired.
        unsafe {
            let Slot { hash, weight, .. } = node.as_ref().slot;
            self.table.insert(hash, node);
            self.state.queues.admit(Node::slot_of(node), 0);
            change(&self.shard.weight, |sum| sum + weight);
        }
        change(&self.shard.len, |len| len + 1);
        self.fit(guard);
    }

    /// Replaces an entry by another one with the same key, which takes over its visits.
    pub(super) fn replace(&mut self, old: NodePtr<K, V, L>, new: NodePtr<K, V, L>) {
        // SAFETY: the old one is in the table and in a queue; for the new one as in `insert`.
        unsafe {
            self.table.replace(new.as_ref().slot.hash, old, new);
            let visits = self.state.queues.take_out(Node::slot_of(old));
            let (old, new_slot) = (&old.as_ref().slot, &new.as_ref().slot);
            if old.is_visited() {
                new_slot.visit();
            }
            self.state.queues.admit(Node::slot_of(new), visits);
            change(&self.shard.weight, |sum| sum - old.weight + new_slot.weight);
        }
    }

    /// Removes an entry, unless it has left the cache. Returns whether it did.
    pub(super) fn remove(&mut self, node: NodePtr<K, V, L>, guard: &Guard) -> bool {
        // SAFETY: alive, because the guard of the caller is older than its removal.
        let Slot { hash, weight, .. } = unsafe { node.as_ref() }.slot;
        // SAFETY: this holds the lock.
        if !unsafe { self.table.remove(hash, node) } {
            return false;
        }
        self.state.queues.take_out(Node::slot_of(node));
        change(&self.shard.len, |len| len - 1);
        change(&self.shard.weight, |sum| sum - weight);
        self.fit(guard);
        true
    }

    /// Resizes the table if its entries need another size.
    #[inline(always)]
    fn fit(&self, guard: &Guard) {
        // SAFETY: this holds the lock. Nodes in the table are alive.
        unsafe {
            if let Some(wanted) = self.table.wanted_size(self.shard.len() as usize) {
                self.table.resize(wanted, |node| node.slot.hash, guard);
            }
        }
    }

    /// Takes the entry to evict next out of the shard, apart from `kept`. Entries whose deadline is
    /// not after `now` are expired.
    #[inline(always)]
    pub(super) fn evict(
        &mut self,
        kept: Option<NodePtr<K, V, L>>,
        now: Option<u64>,
        guard: &Guard,
    ) -> Option<Removed<K, V, L>> {
        if let Some(node) = self.pop_detached() {
            return Some((node, RemovalCause::Explicit));
        }
        let is_expired = |slot| {
            // SAFETY: a slot of this shard, whose nodes in queues are alive.
            let node: &Node<K, V, L> = unsafe { Node::of_slot(slot).as_ref() };
            now.is_some_and(|now| node.lifespan.deadline() <= now)
        };
        let popped = self.state.queues.pop(kept.map(Node::slot_of), is_expired)?;
        // SAFETY: as above. It is in the table, because it was in a queue.
        let node: NodePtr<K, V, L> = unsafe { Node::of_slot(popped.slot) };
        // SAFETY: as above.
        let Slot { hash, weight, .. } = unsafe { node.as_ref() }.slot;
        // SAFETY: this holds the lock.
        let is_removed = unsafe { self.table.remove(hash, node) };
        debug_assert!(is_removed);
        change(&self.shard.len, |len| len - 1);
        change(&self.shard.weight, |sum| sum - weight);
        if popped.expired {
            self.state.expired += 1;
        } else {
            self.state.evicted += 1;
            if !eviction::is_protected(popped.queue) {
                self.state.queues.remember(hash.get());
            }
        }
        self.prefetch_evictions(popped.queue, guard);
        Some((node, if popped.expired { RemovalCause::Expired } else { RemovalCause::Size }))
    }

    /// Prefetches what the next evictions from a queue will use. Goes in steps, so that it never
    /// waits for memory: prefetches the third entry of the queue, and for the second its bucket and
    /// its ghosts.
    #[inline(always)]
    fn prefetch_evictions(&mut self, queue: usize, guard: &Guard) {
        if self.state.queues.len() < MIN_PREFETCHED {
            return;
        }
        let [_, second, third] = self.state.queues.upcoming(queue);
        if let Some(slot) = third {
            Node::<K, V, L>::prefetch(slot);
        }
        // SAFETY: slots in queues are those of living nodes.
        if let Some(hash) = second.map(|slot: NonNull<Slot>| unsafe { slot.as_ref() }.hash) {
            self.state.queues.prefetch_ghost(hash.get());
            self.table.array(guard).prefetch(hash);
        }
    }

    /// Prefetches what the insertion of this hash will use.
    #[inline(always)]
    pub(super) fn prefetch_ghost(&mut self, hash: Hash) {
        self.state.queues.prefetch_ghost(hash.get());
    }

    /// Takes a detached entry.
    #[inline(always)]
    pub(super) fn pop_detached(&mut self) -> Option<NodePtr<K, V, L>> {
        let slot = self.state.detached.pop()?;
        // SAFETY: a slot of this shard.
        let node: NodePtr<K, V, L> = unsafe { Node::of_slot(slot) };
        // SAFETY: not retired yet.
        let weight = unsafe { node.as_ref() }.slot.weight;
        change(&self.shard.detached, |sum| sum - weight);
        Some(node)
    }

    /// Counts an entry that had expired, and was removed.
    pub(super) fn count_expired(&mut self) {
        self.state.expired += 1;
    }

    /// Frees an entry, which has left the table and its queue, after a grace period. Returns true if
    /// the caller has to defer a call of [`Locked::drain`].
    #[inline(always)]
    pub(super) fn retire(&mut self, node: NodePtr<K, V, L>, guard: &Guard) -> bool {
        let slot = Node::slot_of(node);
        // SAFETY: it is in no queue, and alive until it is taken out of this chain.
        unsafe {
            // The number of a grace period. It wraps around; see `is_due`.
            *slot.as_ref().place().stamp = clock::begun(guard) as u32;
            self.state.retired.append(slot, slot);
            change(&self.shard.retired, |sum| sum.saturating_add(slot.as_ref().weight));
        }
        !std::mem::replace(&mut self.state.drain_is_deferred, true)
    }

    /// Moves up to `count` retired entries, for whose readers has been waited, to `due`.
    #[inline(always)]
    pub(super) fn collect(&mut self, count: usize, due: &mut Chain) {
        let ended = clock::ended() as u32;
        for _ in 0..count {
            let Some(slot) = self.state.retired.first() else { return };
            // SAFETY: retired nodes are alive.
            let entry = unsafe { slot.as_ref() };
            // SAFETY: under the lock.
            let age = ended.wrapping_sub(*unsafe { entry.place() }.stamp) as i32;
            // A number that has wrapped around looks too young, which only delays.
            if age < clock::GRACE_PERIODS as i32 {
                return;
            }
            change(&self.shard.retired, |sum| sum.saturating_sub(entry.weight));
            self.state.retired.pop();
            // SAFETY: no other thread has it any more.
            unsafe { due.append(slot, slot) };
        }
    }

    /// The same for the deferred function. Returns whether it must be deferred again.
    pub(super) fn drain(&mut self, count: usize, due: &mut Chain) -> bool {
        self.collect(count, due);
        self.state.drain_is_deferred = self.state.retired.first().is_some();
        self.state.drain_is_deferred
    }

    /// Takes all entries out of the table and the queues, in constant time. Returns whether there
    /// are detached ones now. If there is no memory for an empty table, takes none out, and returns
    /// `None`.
    pub(super) fn detach_all(&mut self, guard: &Guard) -> Option<bool> {
        if self.shard.len() > 0 {
            // SAFETY: this holds the lock.
            if !unsafe { self.table.clear(guard) } {
                return None;
            }
            let all = self.state.queues.take_all();
            self.state.detached.append_all(all);
            let weight = self.shard.weight();
            change(&self.shard.detached, |sum| sum + weight);
            change(&self.shard.weight, |_| 0);
            change(&self.shard.len, |_| 0);
        }
        Some(self.shard.detached.load(Relaxed) > 0)
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
    pub(super) fn cancel(&mut self, hash: Hash, cancelled: &mut Vec<Arc<Flight<K, V>>>) {
        if self.state.flights.is_empty() {
            return;
        }
        while let Some((&place, _)) = self.state.flights.range(of_hash(hash)).next() {
            cancelled.extend(self.state.flights.remove(&place));
        }
    }

    pub(super) fn cancel_all(&mut self, cancelled: &mut Vec<Arc<Flight<K, V>>>) {
        cancelled.extend(take(&mut self.state.flights).into_values());
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

/// Frees the entries that are left when the cache is dropped.
///
/// # Safety
///
/// No thread uses the entries any more.
pub(super) unsafe fn free_all<K, V, L: Lifespan>(
    table: &mut Table<Node<K, V, L>>,
    shard: &mut Shard<K, V>,
    free: impl Fn(NodePtr<K, V, L>),
) {
    table.drain(&free);
    let mut state = shard.state.lock().unwrap_or_else(PoisonError::into_inner);
    let mut chain = take(&mut state.detached);
    chain.append_all(take(&mut state.retired));
    drop(state);
    while let Some(slot) = chain.pop() {
        // SAFETY: a slot of this shard.
        free(unsafe { Node::of_slot(slot) });
    }
}
