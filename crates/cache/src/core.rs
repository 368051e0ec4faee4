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
//! unlink it in between; [`State`](super::entry::State) says what happens then. If the thread
//! evicts another entry to make room, it queues the new one before it inserts it, while it still
//! holds the lock of the shard; see [`Incoming`]. Unlinking from the map is one atomic step, so
//! exactly one thread does it. That thread takes the entry out of its queue, subtracts its weight,
//! and retires it, in this order. A thread that finds an entry in a queue has entered its read
//! section before it locked the shard. So it did so before the entry was retired, which keeps the
//! entry alive as long as the section.
//!
//! **Locks.** No code of the user runs under the lock of a shard, and no thread holds two of these
//! locks. An eviction tries to lock a bucket under the lock of the shard. If that fails, it unlocks
//! the shard, and then waits for the bucket. `Eq` of keys runs under the lock of a bucket, as in a
//! map.

use std::cell::Cell;
use std::hash::{BuildHasher, Hash};
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use equivalent::Equivalent;
use relativist_rcu::{Guard, read};

use super::entry::{Deadlines, Entry, Lifespan, NEVER, Slot, Unlimited, node_of, prefetch_node, slot_of};
use super::expiry::{Expiry, Purpose, Sweep};
use super::flight::{Flights, Lead};
use super::incoming::Incoming;
use super::limit::{Limit, Reservation};
use super::queues::Queues;
use super::stats::{LoadCounts, Recorder, Stats};
use super::{Eviction, TooHeavy};
use crate::nodes::Nodes;
use relativist_core::eviction;
use relativist_core::sync::{Mutex, MutexGuard, full_fence, yield_now};
use relativist_core::unwind::contain;
use relativist_table::node;
use relativist_table::{self as table, Entry as Place, Link, Unsettled};

pub(super) type Node<K, V, L> = node::Node<K, Entry<V, L>>;
pub(super) type Weigher<K, V> = Box<dyn Fn(&K, &V) -> u64 + Send + Sync>;
pub(super) type Listener<K, V> = Box<dyn Fn(&K, &V, Eviction) + Send + Sync>;

/// The number of entries that [`Core::remove_all`] visits in one read section.
const PIECE: usize = 256;

/// The number of entries of a shard from which on [`Core::prefetch_evictions`] pays. Fewer are
/// probably in the processor's cache, and prefetching would take lines from other threads.
const MIN_PREFETCHED: usize = 1024;

/// The core of a cache whose entries can expire, or of one whose entries cannot. They differ in the
/// size of an entry.
pub(super) enum AnyCore<K, V, S> {
    Plain(Arc<Core<K, V, S, Unlimited>>),
    Expiring(Arc<Core<K, V, S, Deadlines>>),
}

/// Evaluates an expression with the core of a cache, whichever kind it is.
macro_rules! with_core {
    ($cache:expr, $core:ident => $result:expr) => {
        match &$cache.core {
            $crate::core::AnyCore::Plain($core) => $result,
            $crate::core::AnyCore::Expiring($core) => $result,
        }
    };
}

pub(super) use with_core;

pub(super) struct Core<K, V, S, L> {
    pub(super) map: Nodes<K, Entry<V, L>, S>,
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

/// What has become of a node that was to be inserted.
enum Put<'g, K, V, L> {
    /// It is in the map.
    Done(&'g Node<K, V, L>),
    /// Its load was cancelled, or the key has an entry, which is kept.
    OutOfDate,
    /// It is heavier than the capacity.
    TooHeavy(Box<Node<K, V, L>>),
}

/// An entry that is about to be inserted, and the weight for which it has no room yet.
type Need<'i, 'g, K, V, S, L> = (&'i Incoming<'g, K, V, S, L>, u64);

/// The node that is in the map now, or the one that could not be inserted.
pub(super) type PutInstead<'g, K, V, L> = Result<&'g Node<K, V, L>, Box<Node<K, V, L>>>;

impl<K, V, S, L: Lifespan> Core<K, V, S, L> {
    pub(super) fn new(map: Nodes<K, Entry<V, L>, S>, capacity: u64, shards: usize) -> Self {
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
    pub(super) fn is_alive(&self, entry: &Entry<V, L>, purpose: Purpose) -> bool {
        match &self.expiry {
            Some(expiry) if L::IS_LIMITED => expiry.is_alive(&entry.lifespan, purpose),
            _ => true,
        }
    }

    pub(super) fn stats(&self) -> Stats {
        let (hits, misses) = self.recorder.as_ref().map_or((0, 0), |recorder| recorder.sums());
        let (evictions, expirations) = self.evictions();
        let mut stats = Stats { hits, misses, evictions, expirations, ..Stats::default() };
        self.loads.add_to(&mut stats);
        stats
    }

    /// Returns the numbers of entries that were evicted to make room, and that had expired.
    fn evictions(&self) -> (u64, u64) {
        let count = |shard: &Shard| {
            let queues = lock(shard);
            (queues.evicted, queues.expired)
        };
        self.shards.iter().map(count).fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1))
    }

    fn shard_of(&self, hash: table::Hash) -> usize {
        (hash.get() >> 24) as usize & (self.shards.len() - 1)
    }

    pub(super) fn queues(&self, hash: table::Hash) -> MutexGuard<'_, Queues> {
        lock(&self.shards[self.shard_of(hash)])
    }
}

#[inline(always)]
fn lock(shard: &Shard) -> MutexGuard<'_, Queues> {
    // No code that panics runs under the lock.
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K, V, S, L: Lifespan> Core<K, V, S, L>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Finds the value of a key, marks its entry, and counts the lookup.
    #[inline(always)]
    pub(super) fn visit<'g, Q>(&'g self, hash: table::Hash, key: &Q, guard: &'g Guard) -> Option<&'g V>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let entry = self.find(hash, key, Purpose::Hit, guard).map(|node| &node.value);
        if let Some(recorder) = &self.recorder {
            recorder.record(entry.is_some(), guard);
        }
        let entry = entry?;
        entry.slot.visit();
        Some(&entry.value)
    }

    /// The same for entries that may expire, which read the clock. Not inlined, so that there is
    /// only one lookup in the code of [`Cache::get`](super::Cache::get), which is inlined then.
    #[inline(never)]
    pub(super) fn visit_expiring<'g, Q>(&'g self, hash: table::Hash, key: &Q, guard: &'g Guard) -> Option<&'g V>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.visit(hash, key, guard)
    }

    /// Finds an entry that has not expired.
    #[inline(always)]
    pub(super) fn find<'g, Q>(
        &'g self,
        hash: table::Hash,
        key: &Q,
        purpose: Purpose,
        guard: &'g Guard,
    ) -> Option<&'g Node<K, V, L>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.map.find_hashed(hash, key, guard).filter(|node| self.is_alive(&node.value, purpose))
    }

    /// Sets the value of a key, as [`Cache::insert`](super::Cache::insert) does.
    pub(super) fn set(&self, key: K, value: V) -> Result<(), TooHeavy<K, V>> {
        let (hash, guard) = (self.map.hash(&key), read());
        self.cancel_load(hash, &key, &guard);
        self.insert(hash, key, value, &guard).map(|_| ())
    }

    /// Cancels the load of a key, before an update that replaces what it would insert.
    #[inline]
    pub(super) fn cancel_load<Q>(&self, hash: table::Hash, key: &Q, guard: &Guard)
    where
        Q: Equivalent<K> + ?Sized,
    {
        if self.flights.may_be_any() {
            self.map.table.assert_unlocked();
            self.flights.cancel(hash, key, guard);
        }
    }

    /// Cancels the load of a key, before its entry is removed.
    pub(super) fn cancel_load_for_removal<Q>(&self, hash: table::Hash, key: &Q, guard: &Guard)
    where
        Q: Equivalent<K> + ?Sized,
    {
        // The program may have changed what loaders read just before, by a store. Pairs with the
        // full barrier of the update that inserts a flight: either this sees the flight, or its
        // loader sees that store. An update that inserts goes without it, because a load keeps the
        // entry that it finds. Only if the load began while that store was not visible yet, and
        // the entry is gone again before the load ends, is an older value kept.
        // litmus: flight-begun
        full_fence();
        self.cancel_load(hash, key, guard);
    }

    /// Cancels all loads, before all entries are removed.
    pub(super) fn cancel_all_loads(&self) {
        // As above.
        // litmus: flight-begun
        full_fence();
        self.map.table.assert_unlocked();
        self.flights.cancel_all();
    }

    /// Removes the entry of a key, as [`Cache::invalidate`](super::Cache::invalidate) does. Returns
    /// it, also if it has expired.
    pub(super) fn invalidate<'g, Q>(&'g self, key: &Q, guard: &'g Guard) -> Option<&'g Entry<V, L>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let hash = self.map.hash(key);
        self.cancel_load_for_removal(hash, key, guard);
        self.remove(hash, key, guard).map(|node| &node.value)
    }

    /// Makes an entry. Calls the weigher and the function of the expiry.
    #[inline(always)]
    pub(super) fn make(&self, key: &K, value: V) -> Entry<V, L> {
        let weight = self.weigh(key, &value);
        let deadlines = self.expiry.as_ref().map(|expiry| expiry.deadlines(key, &value));
        let (deadline, last_deadline) = deadlines.unwrap_or((NEVER, NEVER));
        Entry { value, lifespan: L::new(deadline, last_deadline), slot: Slot::new(weight) }
    }

    /// Puts an entry into the cache, in place of one with the same key. Returns it if it is heavier
    /// than the cache; then one with the same key is removed.
    pub(super) fn insert<'g>(
        &'g self,
        hash: table::Hash,
        key: K,
        value: V,
        guard: &'g Guard,
    ) -> Result<&'g Node<K, V, L>, TooHeavy<K, V>> {
        self.map.table.prefetch_head(hash, guard);
        let entry = self.make(&key, value);
        let node = Node::new(hash, key, entry);
        match self.put(node, None, guard) {
            Put::Done(node) => Ok(node),
            Put::OutOfDate => unreachable!("it comes from no load"),
            Put::TooHeavy(node) => {
                let (key, entry) = node.into_parts();
                self.cancel_load_for_removal(hash, &key, guard);
                self.remove(hash, &key, guard);
                Err(TooHeavy { key, value: entry.value, weight: entry.slot.weight })
            }
        }
    }

    /// Inserts a value that was loaded, unless it is too heavy, or out of date.
    pub(super) fn insert_loaded(&self, hash: table::Hash, key: K, value: V, lead: &Lead<'_, K, V>) {
        let entry = self.make(&key, value);
        self.put(Node::new(hash, key, entry), Some(lead), &read());
    }

    /// Inserts a node. One that comes from a load, that of `lead`, is inserted only if it is not
    /// out of date.
    fn put<'g>(
        &'g self,
        mut node: Box<Node<K, V, L>>,
        lead: Option<&Lead<'_, K, V>>,
        guard: &'g Guard,
    ) -> Put<'g, K, V, L> {
        let hash = node.link().hash();
        loop {
            let old = self.map.find_hashed(hash, &node.key, guard);
            let is_alive = |old: &Node<K, V, L>| self.is_alive(&old.value, Purpose::Peek);
            if lead.is_some_and(|lead| lead.is_cancelled() || old.is_some_and(is_alive)) {
                return Put::OutOfDate;
            }
            if node.value.slot.weight > self.capacity() {
                return Put::TooHeavy(node);
            }
            match self.put_instead(old, node, lead, guard) {
                Ok(node) => return Put::Done(node),
                Err(unused) => node = unused,
            }
        }
    }

    /// Inserts a node in place of exactly the entry `old`, or of none. Returns the node if this
    /// fails: another thread has inserted, replaced, removed or evicted the key, other threads hold
    /// the room, or the load of this lead was cancelled. Then the caller looks at the key, the
    /// capacity and the lead again.
    pub(super) fn put_instead<'g>(
        &'g self,
        old: Option<&'g Node<K, V, L>>,
        node: Box<Node<K, V, L>>,
        lead: Option<&Lead<'_, K, V>>,
        guard: &'g Guard,
    ) -> PutInstead<'g, K, V, L> {
        let weight = node.value.slot.weight;
        let old_weight = old.map_or(0, |old| old.value.slot.weight);
        let missing = weight.saturating_sub(old_weight);
        let incoming = Incoming::new(self, node, old, guard);
        let Some(reservation) = self.reserve(missing, &incoming, guard) else { return Err(incoming.into_box()) };
        // After all code of the user that runs before the insertion, except for `Eq` of keys.
        let permit = lead.map(Lead::permit);
        if matches!(permit, Some(None)) {
            return Err(incoming.into_box());
        }
        match old {
            None => {
                let is_inserted = incoming.insert();
                drop(permit);
                if is_inserted {
                    reservation.use_up(weight);
                    // SAFETY: it was inserted.
                    let (node, is_queued) = unsafe { incoming.into_node() };
                    if !is_queued {
                        self.admit(node, None);
                    }
                    self.schedule_sweep(node);
                    return Ok(node);
                }
            }
            Some(old) => {
                if let Place::Occupied(place) = self.map.entry_of(old, guard) {
                    // SAFETY: a node of this map's type that no box owns any more, as in
                    // `Incoming::insert`.
                    let old_link = unsafe { place.replace(incoming.link) };
                    drop(permit);
                    // SAFETY: it is in the map.
                    let (node, _) = unsafe { incoming.into_node() };
                    reservation.use_up(missing);
                    self.admit(node, Some(old));
                    self.limit.release(old_weight.saturating_sub(weight));
                    // SAFETY: this thread has unlinked it, and taken it out of its queue.
                    unsafe { self.map.retire(old_link, guard) };
                    self.schedule_sweep(node);
                    return Ok(node);
                }
            }
        }
        Err(incoming.into_box())
    }

    /// Schedules a sweep if an entry that was just inserted can expire.
    #[inline(always)]
    fn schedule_sweep(&self, node: &Node<K, V, L>) {
        let can_expire = L::IS_LIMITED && node.value.lifespan.deadline() < NEVER;
        if let Some(expiry) = self.expiry.as_ref().filter(|_| can_expire) {
            expiry.schedule();
        }
    }

    /// Puts an entry that is in the map into a queue, and takes the one that it has replaced out of
    /// its queue. A replaced entry passes its visits on.
    #[inline(always)]
    fn admit(&self, node: &Node<K, V, L>, replaced: Option<&Node<K, V, L>>) {
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

    /// Takes room of this weight for an entry. Evicts others until there is enough, beginning in
    /// its shard. Returns `None` if [`Core::evict`] found nothing. Then the caller checks the
    /// capacity, and tries again.
    fn reserve<'c>(
        &'c self,
        weight: u64,
        incoming: &Incoming<'c, K, V, S, L>,
        guard: &Guard,
    ) -> Option<Reservation<'c>> {
        let shard = self.shard_of(incoming.node().link().hash());
        let mut reservation = self.limit.reservation();
        let mut now = None;
        loop {
            let missing = weight.saturating_sub(reservation.held);
            if self.limit.try_take(missing) {
                reservation.held += missing;
                return Some(reservation);
            }
            // Read once, before this thread holds any room: the clock may be code of the user, and
            // insert.
            let now = *now.get_or_insert_with(|| self.now());
            match self.evict(shard, Some((incoming, missing)), now, guard) {
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

    /// Returns the time by the clock of the cache, if entries expire.
    fn now(&self) -> Option<u64> {
        self.expiry.as_ref().map(Expiry::now)
    }

    /// Evicts one entry, in most cases from the given shard. `now` is from [`Core::now`]. Returns
    /// the weight that it has released for the caller, which still counts. Returns `None` if each
    /// shard was empty, apart from the entry that the incoming one replaces, or the next entry to
    /// evict is one that another thread is inserting or removing.
    ///
    /// If the evicted entry makes enough room for the incoming one, that may be queued at once, so
    /// that the shard need not be locked again. A thread that pops it before it is in the map puts
    /// it back.
    fn evict(
        &self,
        shard: usize,
        incoming: Option<Need<'_, '_, K, V, S, L>>,
        now: Option<u64>,
        guard: &Guard,
    ) -> Option<u64> {
        // Now, and not when a popped entry is unlinked: that must not panic.
        self.map.table.assert_unlocked();
        (0..self.shards.len()).find_map(|next| {
            let shard = &self.shards[(shard + next) & (self.shards.len() - 1)];
            // The incoming entry belongs to the first shard, and is queued only there.
            self.evict_from(shard, now, incoming.filter(|_| next == 0), guard)
        })
    }

    /// Evicts one entry from a shard; see [`Core::evict`].
    #[inline(always)]
    fn evict_from(
        &self,
        shard: &Shard,
        now: Option<u64>,
        incoming: Option<Need<'_, '_, K, V, S, L>>,
        guard: &Guard,
    ) -> Option<u64> {
        let mut queues = lock(shard);
        if let Some((incoming, _)) = incoming {
            queues.prefetch_ghost(incoming.node().link().hash().get());
        }
        let is_expired = |slot| {
            // SAFETY: an entry of this cache in a queue, which is alive.
            let node: &Node<K, V, L> = unsafe { node_of(slot) };
            now.is_some_and(|now| node.value.lifespan.deadline() <= now)
        };
        let kept = incoming.and_then(|(incoming, _)| incoming.replaced);
        let popped = queues.pop(kept, is_expired)?;
        // SAFETY: an entry of this cache, which is alive as long as the guard: see `Queues::pop`.
        let node: &Node<K, V, L> = unsafe { node_of(popped.slot) };
        let unlinked = match self.map.table.try_unlink(node.link(), guard) {
            Ok(unlinked) => unlinked.map(|unlinked| (unlinked.link, Some(unlinked.waiters))),
            Err(Unsettled) => {
                // Waits for the bucket, so not under the lock of the shard.
                drop(queues);
                let unlinked = self.map.unlink_exactly(node, guard);
                queues = lock(shard);
                unlinked.map(|link| (link, None))
            }
        };
        let Some((link, waiters)) = unlinked else {
            // It is not in the map. Either another thread has removed it and will take it out of
            // its queue, or another thread has queued it and is about to insert it.
            // SAFETY: popped from this shard in this section.
            unsafe { queues.put_back(popped.slot) };
            return None;
        };
        if popped.expired {
            queues.expired += 1;
        } else {
            queues.evicted += 1;
            if !eviction::is_protected(popped.queue) {
                queues.remember(node.link().hash().get());
            }
        }
        let weight = node.value.slot.weight;
        if let Some((incoming, _)) = incoming.filter(|&(_, missing)| weight >= missing) {
            incoming.queue(&mut queues);
        }
        self.prefetch_evictions(&mut queues, popped.queue, guard);
        // Unlocking the mutex is the read-modify-write operation that `wake` requires: it has to
        // see whether threads sleep.
        drop(queues);
        if let Some(waiters) = waiters {
            waiters.wake();
        }
        // SAFETY: this thread has unlinked it, and has taken it out of its queue. Its state stays
        // `Popped`: only the thread that has unlinked an entry, or popped it, changes its state.
        unsafe { self.map.retire(link, guard) };
        if self.on_evict.is_none() {
            return Some(weight);
        }
        // Released first, because the listener may insert.
        self.limit.release(weight);
        self.report(node, if popped.expired { Eviction::Expired } else { Eviction::Capacity });
        Some(0)
    }

    /// Passes an entry that this thread has removed to the listener. A panic ends only this call.
    fn report(&self, node: &Node<K, V, L>, why: Eviction) {
        if let Some(listener) = &self.on_evict {
            contain(|| listener(&node.key, &node.value.value, why));
        }
    }

    /// Prefetches what the next evictions from a queue will use. Goes in steps, so that it never
    /// waits for memory: prefetches the third entry of the queue; for the second, the head of its
    /// bucket and its ghosts; for the first, the link at which its chain begins.
    ///
    /// Without this, an eviction from a large shard waits for most of these one after the other,
    /// because its locked instructions keep loads from overlapping.
    #[inline(always)]
    fn prefetch_evictions(&self, queues: &mut Queues, queue: usize, guard: &Guard) {
        if queues.len() < MIN_PREFETCHED {
            return;
        }
        let [first, second, third] = queues.upcoming(queue);
        // SAFETY: entries of this cache in queues are alive, at least until the guard is dropped.
        let hash = |slot| unsafe { node_of::<K, V, L>(slot) }.link().hash();
        if let Some(slot) = third {
            prefetch_node::<K, V, L>(slot);
        }
        if let Some(hash) = second.map(hash) {
            queues.prefetch_ghost(hash.get());
            self.map.table.prefetch_head(hash, guard);
        }
        if let Some(hash) = first.map(hash) {
            self.map.table.prefetch_first_link(hash, guard);
        }
    }

    /// Removes the entry of a key, also if it has expired.
    pub(super) fn remove<'g, Q>(&'g self, hash: table::Hash, key: &Q, guard: &'g Guard) -> Option<&'g Node<K, V, L>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let link = self.map.table.remove(hash, self.map.has_key(key), guard)?;
        // SAFETY: this thread has unlinked it, and its guard keeps it alive.
        Some(unsafe { self.forget(link, guard) })
    }

    /// Removes exactly this entry, and returns whether it was in the cache.
    pub(super) fn remove_exactly(&self, node: &Node<K, V, L>, guard: &Guard) -> bool {
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
    unsafe fn forget<'g>(&'g self, link: NonNull<Link>, guard: &'g Guard) -> &'g Node<K, V, L> {
        // SAFETY: a node of this map, which is retired at the end of this function, or later by the
        // caller: alive as long as the guard.
        let node = unsafe { self.map.node(link) };
        // SAFETY: an entry of this shard, which the caller has unlinked.
        unsafe { self.queues(node.link().hash()).unlink(slot_of(node)) };
        self.limit.release(node.value.slot.weight);
        // SAFETY: unlinked by this thread, and no longer in a queue.
        unsafe { self.map.retire(link, guard) }
    }

    /// Removes the entries for which `condition` returns true, and calls `removed` with each.
    /// Leaves its read section between pieces.
    pub(super) fn remove_all(&self, condition: impl Fn(&Node<K, V, L>) -> bool, removed: impl Fn(&Node<K, V, L>)) {
        let mut next = Some(0);
        while let Some(cursor) = next {
            let guard = read();
            next = self.map.table.scan(cursor, PIECE, &guard, |link| {
                // SAFETY: reached in this map's table under the guard.
                let node: &Node<K, V, L> = unsafe { self.map.node(link) };
                if condition(node) && self.remove_exactly(node, &guard) {
                    removed(node);
                }
            });
        }
    }

    /// Removes the entries that have expired. Returns whether there are others that can expire.
    fn remove_expired_at(&self, now: u64) -> bool {
        let others = Cell::new(false);
        let expired = |node: &Node<K, V, L>| {
            let deadline = node.value.lifespan.deadline();
            others.set(others.get() || (now < deadline && deadline < NEVER));
            deadline <= now
        };
        self.remove_all(expired, |node| {
            self.queues(node.link().hash()).expired += 1;
            self.report(node, Eviction::Expired);
        });
        others.get()
    }

    /// See [`Cache::remove_expired`](super::Cache::remove_expired).
    pub(super) fn remove_expired(&self) {
        if let Some(now) = self.now() {
            self.remove_expired_at(now);
        }
    }

    /// Changes the capacity. Evicts entries until they fit.
    pub(super) fn set_capacity(&self, capacity: u64) {
        self.map.table.assert_unlocked();
        let mut shards = (0..self.shards.len()).cycle();
        while !self.limit.try_set_capacity(capacity) {
            let shard = shards.next().expect("there is a shard");
            match self.evict(shard, None, self.now(), &read()) {
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

impl<K, V, S, L: Lifespan> Sweep for Core<K, V, S, L>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync,
{
    fn sweep(&self) -> bool {
        let Some(expiry) = &self.expiry else { return false };
        // Before the sweep begins, because the clock may panic.
        let now = expiry.now();
        expiry.begin_sweep();
        self.remove_expired_at(now) && expiry.reschedule()
    }
}
