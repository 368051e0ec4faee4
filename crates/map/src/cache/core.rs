//! The core of a cache: how entries come into it and leave it, within the limit.
//!
//! **The limit.** [`Limit`] has the room that the entries in the map, and those that are about to
//! be, leave of the capacity. A thread that inserts an entry first takes room for its weight, and
//! evicts until there is enough. A thread that unlinks an entry from the map gives its room back
//! afterwards. A thread that lowers the capacity takes room first, and lowers it by what it took.
//! So the entries in the map never exceed the capacity, not even briefly. Lookups read neither
//! number.
//!
//! **Queues.** Each entry belongs to a shard, by its hash, which has queues and a lock. The shards
//! share the capacity. An insertion evicts from the shard of its key, and from the next ones if
//! that is empty. So every shard keeps its share, and yet a shard may use all of the capacity, if
//! the keys hash to it.
//!
//! **Lifecycle.** A thread puts an entry into the map, and then into a queue. Another thread may
//! unlink it in between; [`State`](super::entry::State) says what happens then. Unlinking from the
//! map is one atomic step, so exactly one thread does it. That thread takes the entry out of its
//! queue, subtracts its weight, and retires it, in this order. A thread that finds an entry in a
//! queue has entered its read section before it locked the shard. So it did so before the entry was
//! retired, which keeps the entry alive as long as the section.
//!
//! **Locks.** No code of the user runs under the lock of a shard. No thread holds two of these
//! locks, or one of them and that of a bucket. `Eq` of keys runs under the lock of a bucket, as in
//! a map.

use std::hash::{BuildHasher, Hash};
use std::ptr::NonNull;
use std::sync::PoisonError;

use equivalent::Equivalent;
use relativist_rcu::{Guard, read};

use super::entry::{Entry, NEVER, Slot, node_of, prefetch_node, slot_of};
use super::expiry::{Expiry, Purpose};
use super::flight::Flights;
use super::limit::{Limit, Reservation};
use super::queues::Queues;
use super::stats::{LoadCounts, Recorder};
use super::{Eviction, TooHeavy};
use crate::eviction;
use crate::map::HashMap;
use crate::node;
use crate::raw::{self, Entry as Place, Link};
use crate::sync::{Mutex, MutexGuard, yield_now};

pub(super) type Node<K, V> = node::Node<K, Entry<V>>;
pub(super) type Weigher<K, V> = Box<dyn Fn(&K, &V) -> u64 + Send + Sync>;
pub(super) type Listener<K, V> = Box<dyn Fn(&K, &V, Eviction) + Send + Sync>;

/// The number of entries that [`Core::remove_all`] visits in one read section.
const PIECE: usize = 256;

pub(super) struct Core<K, V, S> {
    pub(super) map: HashMap<K, Entry<V>, S>,
    shards: Box<[Shard]>,
    pub(super) weigher: Option<Weigher<K, V>>,
    pub(super) on_evict: Option<Listener<K, V>>,
    pub(super) expiry: Option<Expiry<K, V>>,
    pub(super) recorder: Option<Recorder>,
    pub(super) flights: Flights<K, V>,
    pub(super) loads: LoadCounts,
    limit: Limit,
}

/// The lock of a shard, on a cache line of its own.
#[repr(align(128))]
struct Shard(Mutex<Queues>);

/// What to do with an entry that is present when a node with its key is inserted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Present {
    Replace,
    /// Keep it, unless it has expired.
    Keep,
}

/// What has become of a node that was to be inserted.
enum Put<'g, K, V> {
    /// It is in the map.
    Done(&'g Node<K, V>),
    /// This entry was kept instead.
    Kept(&'g Node<K, V>),
    /// It is heavier than the capacity.
    TooHeavy(Box<Node<K, V>>),
}

impl<K, V, S> Core<K, V, S> {
    pub(super) fn new(map: HashMap<K, Entry<V>, S>, capacity: u64, shards: usize) -> Self {
        Self {
            map,
            shards: (0..shards).map(|_| Shard(Mutex::new(Queues::new()))).collect(),
            weigher: None,
            on_evict: None,
            expiry: None,
            recorder: None,
            flights: Flights::new(),
            loads: LoadCounts::default(),
            limit: Limit::new(capacity),
        }
    }

    pub(super) fn weight(&self) -> u64 {
        self.limit.weight()
    }

    pub(super) fn capacity(&self) -> u64 {
        self.limit.capacity()
    }

    /// Returns the weight of an entry, which is never 0, so that the number of entries is bounded
    /// too.
    pub(super) fn weigh(&self, key: &K, value: &V) -> u64 {
        self.weigher.as_ref().map_or(1, |weigher| weigher(key, value).max(1))
    }

    /// Returns whether the entry has not expired. Reads the clock only if it can expire.
    #[inline(always)]
    pub(super) fn is_alive(&self, slot: &Slot, purpose: Purpose) -> bool {
        match &self.expiry {
            None => true,
            Some(expiry) => expiry.is_alive(slot, purpose),
        }
    }

    /// Returns the numbers of entries that were evicted to make room, and that had expired.
    pub(super) fn evictions(&self) -> (u64, u64) {
        let count = |shard: &Shard| {
            let queues = lock(shard);
            (queues.evicted, queues.expired)
        };
        self.shards.iter().map(count).fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1))
    }

    fn shard_of(&self, hash: raw::Hash) -> usize {
        (hash.get() >> 24) as usize & (self.shards.len() - 1)
    }

    fn queues(&self, hash: raw::Hash) -> MutexGuard<'_, Queues> {
        lock(&self.shards[self.shard_of(hash)])
    }
}

fn lock(shard: &Shard) -> MutexGuard<'_, Queues> {
    // No code that panics runs under the lock.
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Finds an entry that has not expired.
    #[inline(always)]
    pub(super) fn find<'g, Q>(
        &'g self,
        hash: raw::Hash,
        key: &Q,
        purpose: Purpose,
        guard: &'g Guard,
    ) -> Option<&'g Node<K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.map.find_hashed(hash, key, guard).filter(|node| self.is_alive(&node.value.slot, purpose))
    }

    /// Makes an entry. Calls the weigher and the function of the expiry.
    pub(super) fn make(&self, key: &K, value: V) -> Entry<V> {
        let weight = self.weigh(key, &value);
        let deadlines = self.expiry.as_ref().map(|expiry| expiry.deadlines(key, &value));
        let (deadline, last_deadline) = deadlines.unwrap_or((NEVER, NEVER));
        Entry::new(value, Slot::new(weight, deadline, last_deadline))
    }

    /// Puts an entry into the cache, in place of one with the same key. Returns it if it is heavier
    /// than the cache; then one with the same key is removed.
    pub(super) fn insert<'g>(
        &'g self,
        hash: raw::Hash,
        key: K,
        value: V,
        guard: &'g Guard,
    ) -> Result<&'g Node<K, V>, TooHeavy<K, V>> {
        self.map.table.prefetch_head(hash, guard);
        let entry = self.make(&key, value);
        let node = Node::new(hash, key, entry);
        match self.put(node, Present::Replace, guard) {
            Put::Done(node) | Put::Kept(node) => Ok(node),
            Put::TooHeavy(node) => {
                let (key, entry) = node.into_parts();
                self.remove(hash, &key, guard);
                Err(TooHeavy { key, value: entry.value, weight: entry.slot.weight })
            }
        }
    }

    /// Inserts a value that was loaded, unless it is too heavy, or there is an entry, which is
    /// newer than the load. Returns the entry if it was inserted.
    pub(super) fn insert_loaded<'g>(
        &'g self,
        hash: raw::Hash,
        key: K,
        value: V,
        guard: &'g Guard,
    ) -> Option<&'g Node<K, V>> {
        let entry = self.make(&key, value);
        match self.put(Node::new(hash, key, entry), Present::Keep, guard) {
            Put::Done(node) => Some(node),
            Put::Kept(_) | Put::TooHeavy(_) => None,
        }
    }

    /// Inserts a node.
    fn put<'g>(&'g self, mut node: Box<Node<K, V>>, present: Present, guard: &'g Guard) -> Put<'g, K, V> {
        let hash = node.link().hash();
        loop {
            let old = self.map.find_hashed(hash, &node.key, guard);
            let is_kept = |old: &&Node<K, V>| present == Present::Keep && self.is_alive(&old.value.slot, Purpose::Peek);
            if let Some(old) = old.filter(is_kept) {
                return Put::Kept(old);
            }
            if node.value.slot.weight > self.capacity() {
                return Put::TooHeavy(node);
            }
            match self.put_instead(old, node, guard) {
                Ok(node) => return Put::Done(node),
                Err(unused) => node = unused,
            }
        }
    }

    /// Inserts a node in place of exactly the entry `old`, or of none. Returns the node if this
    /// fails: another thread has inserted, replaced, removed or evicted the key, this thread has
    /// evicted it to make room, or other threads hold the room. Then the caller looks at the key
    /// and the capacity again.
    pub(super) fn put_instead<'g>(
        &'g self,
        old: Option<&'g Node<K, V>>,
        node: Box<Node<K, V>>,
        guard: &'g Guard,
    ) -> Result<&'g Node<K, V>, Box<Node<K, V>>> {
        // Otherwise this thread might evict without end, if the code that holds the lock of a
        // bucket has also reserved the whole capacity.
        self.map.table.assert_unlocked();
        let (hash, weight) = (node.link().hash(), node.value.slot.weight);
        let old_weight = old.map_or(0, |old| old.value.slot.weight);
        let missing = weight.saturating_sub(old_weight);
        let Some(reservation) = self.reserve(missing, hash, guard) else { return Err(node) };
        match old {
            None => {
                if let Place::Vacant(place) = self.map.table.entry(hash, self.map.has_key(&node.key), guard) {
                    let link = node.into_link();
                    // SAFETY: as in `HashMap::put_node`: a node of this map's type that no box owns
                    // any more. The guard keeps it alive for `'g`.
                    let node = unsafe {
                        place.insert(link);
                        self.map.node(link)
                    };
                    reservation.use_up(weight);
                    self.admit(node, None);
                    return Ok(node);
                }
            }
            Some(old) => {
                if let Place::Occupied(place) = self.map.entry_of(old, guard) {
                    let link = node.into_link();
                    // SAFETY: as above.
                    let (old_link, node) = unsafe { (place.replace(link), self.map.node(link)) };
                    reservation.use_up(missing);
                    self.admit(node, Some(old));
                    self.limit.release(old_weight.saturating_sub(weight));
                    // SAFETY: this thread has unlinked it, and taken it out of its queue.
                    unsafe { self.map.retire(old_link) };
                    return Ok(node);
                }
            }
        }
        Err(node)
    }

    /// Puts an entry that is in the map into a queue, and takes the one that it has replaced out of
    /// its queue. A replaced entry passes its visits on.
    fn admit(&self, node: &Node<K, V>, replaced: Option<&Node<K, V>>) {
        let hash = node.link().hash();
        let mut queues = self.queues(hash);
        let mut visits = 0;
        if let Some(old) = replaced {
            // SAFETY: an entry of this shard, which the caller has unlinked, and which its guard
            // keeps alive.
            visits = unsafe { queues.unlink(slot_of(old)) };
            if old.value.slot.is_visited() {
                node.value.slot.visit();
            }
        }
        // SAFETY: an entry of this shard, by its hash, which the caller's guard keeps alive now. It
        // is retired only after `unlink`.
        unsafe { queues.admit(slot_of(node), hash.get(), visits) };
    }

    /// Takes room for this weight. Evicts entries until there is enough, beginning in the shard of
    /// this hash. Returns `None` if there was nothing to evict: other threads are about to insert
    /// or to remove entries. Then the caller checks the capacity, and tries again.
    fn reserve<'c>(&'c self, weight: u64, hash: raw::Hash, guard: &Guard) -> Option<Reservation<'c>> {
        let mut reservation = self.limit.reservation();
        loop {
            if self.limit.try_take(weight.saturating_sub(reservation.held)) {
                reservation.held = reservation.held.max(weight);
                return Some(reservation);
            }
            match self.evict(self.shard_of(hash), Some(hash), guard) {
                // Kept, so that no other thread gets it first.
                Some(released) => reservation.held += released,
                None => {
                    reservation.release();
                    yield_now();
                    return None;
                }
            }
        }
    }

    /// Evicts one entry, from the given shard if it has one. Returns the weight that it has
    /// released for the caller, which still counts; `None` if there is no entry in any queue.
    /// `incoming` is the hash of the entry for which it makes room.
    fn evict(&self, shard: usize, incoming: Option<raw::Hash>, guard: &Guard) -> Option<u64> {
        // Before a shard is locked, because the clock may be code of the user.
        let now = self.expiry.as_ref().map(Expiry::now);
        (0..self.shards.len()).find_map(|next| {
            let mut queues = lock(&self.shards[(shard + next) & (self.shards.len() - 1)]);
            let popped = queues.pop(|slot| now.is_some_and(|now| slot.deadline() <= now))?;
            // SAFETY: an entry of this cache, which is alive as long as the guard: see
            // `Queues::pop`.
            let node: &Node<K, V> = unsafe { node_of(popped.slot) };
            if popped.expired {
                queues.expired += 1;
            } else {
                queues.evicted += 1;
                if !eviction::is_protected(popped.queue) {
                    queues.remember(node.link().hash().get());
                }
            }
            self.prefetch(queues, popped.queue, incoming, guard);
            Some(self.remove_popped(node, popped.expired, guard))
        })
    }

    /// Prefetches what the admission of the incoming entry and the next evictions will use, and
    /// releases the lock. Goes in steps, so that it waits for no memory: prefetches the third entry
    /// of the queue; for the second, the head of its bucket and its ghosts; for the first, the link
    /// at which its chain begins.
    ///
    /// Without this, an eviction waits for most of these one after the other, because its locked
    /// instructions keep loads from overlapping.
    fn prefetch(&self, mut queues: MutexGuard<'_, Queues>, queue: usize, incoming: Option<raw::Hash>, guard: &Guard) {
        let [first, second, third] = queues.upcoming(queue);
        // SAFETY: entries of this cache in queues are alive, at least until the guard is dropped.
        let hash = |slot| unsafe { node_of::<K, V>(slot) }.link().hash();
        let [first, second] = [first, second].map(|slot| slot.map(hash));
        if let Some(hash) = incoming {
            queues.prefetch_ghost(hash.get());
        }
        if let Some(hash) = second {
            queues.prefetch_ghost(hash.get());
        }
        drop(queues);
        if let Some(slot) = third {
            prefetch_node::<K, V>(slot);
        }
        if let Some(hash) = second {
            self.map.table.prefetch_head(hash, guard);
        }
        if let Some(hash) = first {
            self.map.table.prefetch_first_link(hash, guard);
        }
    }

    /// Removes an entry that this thread has popped. Returns the weight that it has released for
    /// the caller: 0 if another thread has removed the entry.
    fn remove_popped(&self, node: &Node<K, V>, expired: bool, guard: &Guard) -> u64 {
        let put_back = PutBack { core: self, node };
        let unlinked = self.map.unlink_exactly(node, guard);
        std::mem::forget(put_back);
        let Some(link) = unlinked else { return 0 };
        // SAFETY: this thread has unlinked it, and has taken it out of its queue. No other thread
        // looks at its state from now on: only the one that has unlinked an entry does.
        unsafe { self.map.retire(link) };
        let weight = node.value.slot.weight;
        let Some(listener) = &self.on_evict else { return weight };
        // Released first, because the listener may insert.
        self.limit.release(weight);
        listener(&node.key, &node.value.value, if expired { Eviction::Expired } else { Eviction::Capacity });
        0
    }

    /// Removes the entry of a key, also if it has expired.
    pub(super) fn remove<'g, Q>(&'g self, hash: raw::Hash, key: &Q, guard: &'g Guard) -> Option<&'g Node<K, V>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let link = self.map.table.remove(hash, self.map.has_key(key), guard)?;
        // SAFETY: this thread has unlinked it, and its guard keeps it alive.
        Some(unsafe { self.forget(link, guard) })
    }

    /// Removes exactly this entry, and returns whether it was in the cache.
    pub(super) fn remove_exactly(&self, node: &Node<K, V>, guard: &Guard) -> bool {
        let Some(link) = self.map.unlink_exactly(node, guard) else { return false };
        // SAFETY: this thread has just unlinked it.
        unsafe { self.forget(link, guard) };
        true
    }

    /// Takes an entry that this thread has unlinked out of its queue, releases its weight, and
    /// retires it.
    ///
    /// # Safety
    ///
    /// The caller has unlinked it from the map in the section of the guard.
    unsafe fn forget<'g>(&'g self, link: NonNull<Link>, _: &'g Guard) -> &'g Node<K, V> {
        // SAFETY: a node of this map, which is retired at the end of this function, or later by the
        // caller: alive as long as the guard.
        let node = unsafe { self.map.node(link) };
        // SAFETY: an entry of this shard, which the caller has unlinked.
        unsafe { self.queues(node.link().hash()).unlink(slot_of(node)) };
        self.limit.release(node.value.slot.weight);
        // SAFETY: unlinked by this thread, and no longer in a queue.
        unsafe { self.map.retire(link) }
    }

    /// Removes the entries for which `condition` returns true, and calls `removed` with each.
    /// Leaves its read section between pieces.
    pub(super) fn remove_all(&self, condition: impl Fn(&Node<K, V>) -> bool, removed: impl Fn(&Node<K, V>)) {
        let mut next = Some(0);
        while let Some(cursor) = next {
            let guard = read();
            next = self.map.table.scan(cursor, PIECE, &guard, |link| {
                // SAFETY: reached in this map's table under the guard.
                let node: &Node<K, V> = unsafe { self.map.node(link) };
                if condition(node) && self.remove_exactly(node, &guard) {
                    removed(node);
                }
            });
        }
    }

    /// Removes the entries that have expired.
    pub(super) fn remove_expired(&self) {
        let Some(expiry) = &self.expiry else { return };
        let now = expiry.now();
        let expired = |node: &Node<K, V>| node.value.slot.deadline() <= now;
        self.remove_all(expired, |node| {
            self.queues(node.link().hash()).expired += 1;
            if let Some(listener) = &self.on_evict {
                listener(&node.key, &node.value.value, Eviction::Expired);
            }
        });
    }

    /// Changes the capacity. Evicts entries until they fit.
    pub(super) fn set_capacity(&self, capacity: u64) {
        self.map.table.assert_unlocked();
        let mut shards = (0..self.shards.len()).cycle();
        while !self.limit.try_set_capacity(capacity) {
            let shard = shards.next().expect("there is a shard");
            match self.evict(shard, None, &read()) {
                Some(released) => self.limit.release(released),
                // Other threads are about to insert or to remove entries.
                None => yield_now(),
            }
        }
    }

    /// Removes all entries that were inserted before the call, and forgets what was evicted.
    pub(super) fn clear(&self) {
        self.remove_all(|_| true, |_| {});
        self.shards.iter().for_each(|shard| lock(shard).forget_ghosts());
    }
}

#[cfg(not(relativist_loom))]
impl<K, V, S> super::background::Sweep for Core<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync,
{
    fn sweep(&self) {
        self.remove_expired();
    }
}

/// Puts a popped entry back if unlinking it panics, because this thread holds the lock of a bucket.
struct PutBack<'c, K, V, S> {
    core: &'c Core<K, V, S>,
    node: &'c Node<K, V>,
}

impl<K, V, S> Drop for PutBack<'_, K, V, S> {
    fn drop(&mut self) {
        // SAFETY: popped from this shard in the section of the guard that keeps `node` alive.
        unsafe { self.core.queues(self.node.link().hash()).put_back(slot_of(self.node)) };
    }
}
