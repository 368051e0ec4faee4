//! The core of a cache: lookups, and how entries come into the cache and leave it, within the
//! limit.
//!
//! **Shards.** An entry belongs to a [shard](super::shard), by its hash. Lookups take no lock. An
//! update of an entry takes the lock of its shard once, in most cases. An insertion into a full
//! cache evicts from its own shard, and from others only if that is empty. So every shard keeps its
//! share of the capacity, and yet a shard may use all of it, if the keys hash to it.
//!
//! **The limit.** [`Limit`] has the room that the entries leave of the capacity. A thread that
//! inserts an entry first takes room for its weight, and evicts until there is enough. The room of
//! what it evicts is its own. In a full cache of equally heavy entries, no update of the limit is
//! needed. A thread that removes an entry gives its room back afterwards. A thread that lowers the
//! capacity takes room first, and lowers it by what it took. So the entries never exceed the
//! capacity, not even briefly.
//!
//! **User code.** Keys are compared before the shard is locked. Under the lock this looks whether
//! the shard has another entry of the same hash since, and if so begins again. Weigher, clock and
//! the functions of the expiry run before; listeners, wakers and destructors after
//! ([`Update`](super::update::Update)).

use std::hash::{BuildHasher, Hash};
use std::mem::take;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock, Weak};

use equivalent::Equivalent;
use relativist_bucket as bucket;
use relativist_core::sync::{Acquire, AtomicBool, AtomicU32, AtomicU64, Backoff, Relaxed, Release, yield_now};
use relativist_core::unwind::contain;
use relativist_rcu::{Guard, is_reading, read};

use super::TooHeavy;
use super::background::{self, Swept};
use super::cause::RemovalCause;
use super::expiry::{Expiry, Purpose};
use super::flight::Flight;
use super::limit::Limit;
use super::node::{Lifespan, NEVER, Node, NodePtr, Times};
use super::queues::turn;
use super::shard::{Compared, IsInUse, Locked, Shard, free_all};
use super::stats::{LoadCounts, Recorder, Stats};
use super::table::Table;
use super::update::{Room, Update, is_in_user_code};

pub(super) type Weigher<K, V> = Box<dyn Fn(&K, &V) -> u64 + Send + Sync>;
pub(super) type Listener<K, V> = Box<dyn Fn(&K, &V, RemovalCause) + Send + Sync>;

/// The number of entries that a walk over the cache visits in one read section.
const PIECE: usize = 256;

/// The number of detached entries that are freed in one read section, under one lock.
const SLICE: usize = 64;

pub(super) struct Core<K, V, S, L: Lifespan> {
    /// The tables of the shards, apart from their locks: few lines for lookups.
    tables: Box<[Table<Node<K, V, L>>]>,
    pub(super) hasher: S,
    pub(super) weigher: Option<Weigher<K, V>>,
    pub(super) listener: Option<Listener<K, V>>,
    pub(super) expiry: Option<Expiry<K, V>>,
    /// Entries whose values are in use are not evicted.
    pub(super) is_in_use: Option<IsInUse<V>>,
    pub(super) recorder: Option<Recorder>,
    pub(super) loads: LoadCounts,
    pub(super) limit: Limit,
    shards: Box<[Shard<K, V, L>]>,
    /// The level of the shards, if weights may differ. So shards with few entries can choose the
    /// one that evicts the next entry. (Without weights, each has enough entries.)
    pub(super) level: Option<AtomicU32>,
    /// The weight that may wait for readers even if the capacity is small.
    min_waiting: u64,
    /// Whether there may be detached entries.
    has_detached: AtomicBool,
    /// The number of threads that free entries in the background.
    background: AtomicU64,
    /// How often an update has waited for readers.
    pub(super) stalls: AtomicU64,
    /// The cache itself, set when it is built.
    pub(super) own: OnceLock<Weak<dyn Swept>>,
}

/// On which condition an entry is inserted.
pub(super) enum Condition<'a, K, V, L> {
    Always,
    /// The key has exactly this entry, or none.
    Instead(Option<NodePtr<K, V, L>>),
    /// This load was not cancelled. It ends in the same step.
    Loaded(&'a Arc<Flight<K, V>>),
}

impl<K, V, L: Lifespan> Condition<'_, K, V, L> {
    /// Returns whether the key may be inserted in place of `old`.
    #[inline(always)]
    fn is_met(&self, old: Option<NodePtr<K, V, L>>, locked: &Locked<'_, K, V, L>) -> bool {
        match self {
            Self::Always => true,
            Self::Instead(wanted) => old == *wanted,
            Self::Loaded(flight) => locked.has_flight(flight),
        }
    }
}

impl RemovalCause {
    /// Returns `cause`, unless the entry of a living node has expired.
    #[inline(always)]
    pub(super) fn of<K, V, L: Lifespan>(node: NodePtr<K, V, L>, now: Option<u64>, cause: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        let has_expired = now.is_some_and(|now| unsafe { node.as_ref() }.lifespan.deadline() <= now);
        if has_expired { Self::Expired } else { cause }
    }
}

/// An entry that is about to be inserted.
pub(super) struct Made<K, V, L> {
    pub(super) node: Box<Node<K, V, L>>,
    hash: bucket::Hash,
    weight: u64,
    /// Whether its lifetime is that of an entry that replaces another one.
    is_update: bool,
}

/// An entry that was not inserted.
pub(super) enum Unput<K, V, L> {
    /// Its condition is not met.
    Refused(Made<K, V, L>),
    /// It is heavier than the capacity, or than what entries in use leave of it.
    TooHeavy(Made<K, V, L>),
}

impl<K, V, S, L: Lifespan> Core<K, V, S, L> {
    /// Creates a cache of this many shards, a power of two.
    ///
    /// # Panics
    ///
    /// Panics if the tables cannot be allocated.
    pub(super) fn new(hasher: S, capacity: u64, shards: usize, min_waiting: u64) -> Self {
        let table = |_| Table::new().expect("there is memory for an empty table");
        let core = Self {
            tables: (0..shards).map(table).collect(),
            hasher,
            weigher: None,
            listener: None,
            expiry: None,
            is_in_use: None,
            recorder: None,
            loads: LoadCounts::default(),
            limit: Limit::new(capacity),
            shards: (0..shards).map(|_| Shard::new()).collect(),
            level: None,
            min_waiting,
            has_detached: AtomicBool::new(false),
            background: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            own: OnceLock::new(),
        };
        core.share_most_waiting();
        core
    }

    pub(super) fn len(&self) -> u64 {
        self.shards.iter().map(Shard::len).sum()
    }

    pub(super) fn weight(&self) -> u64 {
        // While entries move between shards, the sum may have both the old one and the new one.
        self.shards.iter().map(Shard::weight).fold(0, u64::saturating_add).min(self.limit.capacity())
    }

    /// Returns the weight of an entry, which is never 0, so that the number of entries is bounded
    /// too.
    pub(super) fn weigh(&self, key: &K, value: &V) -> u64 {
        self.weigher.as_ref().map_or(1, |weigher| weigher(key, value).max(1))
    }

    /// Returns whether the entry has not expired. Reads the clock only if it can expire.
    #[inline(always)]
    pub(super) fn is_alive(&self, node: &Node<K, V, L>, purpose: Purpose) -> bool {
        match &self.expiry {
            Some(expiry) if L::IS_LIMITED => {
                let never_expires = node.lifespan.deadline() == NEVER;
                let is_alive = expiry.is_alive(node, purpose);
                if never_expires {
                    // A hit may have given it a deadline.
                    self.schedule_sweep(node);
                }
                is_alive
            }
            _ => true,
        }
    }

    /// Returns the time by the clock of the cache, if entries expire.
    pub(super) fn now(&self) -> Option<u64> {
        self.expiry.as_ref().map(Expiry::now)
    }

    pub(super) fn stats(&self) -> Stats {
        let (hits, misses) = self.recorder.as_ref().map_or((0, 0), |recorder| recorder.sums());
        let mut stats = Stats { hits, misses, ..Stats::default() };
        for index in 0..self.shards.len() {
            let (evicted, expired) = self.lock(index).evictions();
            stats.evictions += evicted;
            stats.expirations += expired;
        }
        // Relaxed: a statistic.
        stats.stalls = self.stalls.load(Relaxed);
        self.loads.add_to(&mut stats);
        stats
    }

    /// Returns the index of the shard of a hash. Tables use the high bits, and tags the lowest.
    #[inline(always)]
    pub(super) fn shard_of(&self, hash: bucket::Hash) -> usize {
        (hash.get() >> 8) as usize & (self.tables.len() - 1)
    }

    #[inline(always)]
    pub(super) fn table(&self, hash: bucket::Hash) -> &Table<Node<K, V, L>> {
        &self.tables[self.shard_of(hash)]
    }

    #[inline(always)]
    pub(super) fn lock(&self, index: usize) -> Locked<'_, K, V, L> {
        Locked::new(&self.tables[index], &self.shards[index], self.level.as_ref())
    }

    /// Returns the lowest priority of an entry of some shards, but not this one, and its shard.
    #[cold]
    pub(super) fn lowest_but(&self, index: usize) -> Option<(u32, usize)> {
        /// The number of shards to choose from. More choose hardly better, unless each has so few
        /// entries that one of the others is often worth less.
        const CHOICES: usize = 8;
        const MAX_FEW: u64 = 64;
        let choices = if self.shards[index].len() < MAX_FEW { self.shards() } else { CHOICES };
        // Relaxed: a heuristic.
        let level = self.level.as_ref()?.load(Relaxed);
        // It differs from eviction to eviction.
        let first = (level.wrapping_mul(0x9E37_79B9) >> 16) as usize;
        let others = (0..self.shards()).map(|n| (first + n) & (self.shards() - 1)).filter(|&other| other != index);
        let choices = others.filter_map(|other| Some((self.shards[other].lowest()?, other))).take(choices);
        choices.min_by_key(|&(lowest, _)| turn(lowest, level))
    }

    /// Begins an update.
    #[inline(always)]
    pub(super) fn update(&self) -> Update<'_, K, V, S, L> {
        Update::new(self, read())
    }

    /// Schedules a sweep if an entry can expire.
    #[inline(always)]
    fn schedule_sweep(&self, node: &Node<K, V, L>) {
        if L::IS_LIMITED && node.lifespan.deadline() < NEVER {
            if let Some(expiry) = &self.expiry {
                expiry.schedule(|| self.own.get().map(Weak::clone));
            }
        }
    }

    /// Returns the weight that may wait for readers.
    fn most_waiting(&self) -> u64 {
        (self.limit.capacity() / 4).max(self.min_waiting)
    }

    fn share_most_waiting(&self) {
        // The lock orders concurrent calls, so the last one sees the last capacity.
        let locked = self.lock(0);
        let share = self.most_waiting() / self.shards.len() as u64;
        self.shards.iter().for_each(|shard| shard.set_most_retired(share));
        locked.unlock();
    }

    /// Returns whether too much weight waits for readers, of which some is in this shard.
    #[inline(always)]
    pub(super) fn is_crowded(&self, index: usize) -> bool {
        self.shards[index].has_many_retired() && self.are_crowded()
    }

    #[cold]
    fn are_crowded(&self) -> bool {
        self.shards.iter().map(Shard::retired).fold(0, u64::saturating_add) > self.most_waiting()
    }

    /// Visits entries of a shard from the hash `from` on, some of them in one read section. Returns
    /// where to go on. An entry that is in the table throughout a walk is visited exactly once.
    pub(super) fn visit_piece(
        &self,
        index: usize,
        from: u64,
        guard: &Guard,
        mut visit: impl FnMut(NodePtr<K, V, L>),
    ) -> Option<u64> {
        // The table may have another size than in the last piece. But it is in the order of hashes.
        let array = self.tables[index].array(guard);
        let (mut next, mut visited) = (Some(from), 0);
        while let Some(start) = next.filter(|_| visited < PIECE) {
            let bucket = array.bucket_at(start);
            // The bucket also has entries that were visited, if the table has shrunk.
            let is_next = |node: &NodePtr<K, V, L>| {
                bucket.begins || self.lock(index).hash_of(*node).is_some_and(|hash| hash.get() >= start)
            };
            bucket.nodes().filter(is_next).for_each(|node| {
                visited += 1;
                visit(node);
            });
            // An empty bucket counts, too.
            visited += 1;
            next = bucket.next;
        }
        next
    }

    /// Passes an entry that has left to the listener. A panic ends only this call.
    pub(super) fn pass_on(&self, node: &Node<K, V, L>, cause: RemovalCause) {
        if let Some(listener) = &self.listener {
            contain(|| listener(&node.key, &node.value, cause));
        }
    }

    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Removes the entries for which `condition` returns true. Leaves its read section between
    /// pieces. Takes a piece of each shard in turn: a mutex is not fair, and another thread would
    /// wait long for one that this thread locks again and again. `condition` runs outside of locks.
    pub(super) fn remove_all(&self, cause: RemovalCause, mut condition: impl FnMut(&Node<K, V, L>) -> bool) {
        let mut left: Vec<(usize, u64)> = (0..self.shards.len()).map(|index| (index, 0)).collect();
        while !left.is_empty() {
            left.retain_mut(|(index, from)| {
                let mut update = self.update();
                let mut found = Vec::new();
                let next = self.visit_piece(*index, *from, update.guard(), |node| {
                    // SAFETY: nodes in the table are alive.
                    if condition(unsafe { node.as_ref() }) {
                        found.push(node);
                    }
                });
                for node in found {
                    update.remove_exactly(*index, node, cause, cause == RemovalCause::Explicit);
                }
                *from = next.unwrap_or_default();
                next.is_some()
            });
        }
    }

    /// Removes the entries that have expired. Returns whether there are others that can expire.
    fn remove_expired_at(&self, now: u64) -> bool {
        let mut others = false;
        self.remove_all(RemovalCause::Expired, |node| {
            let deadline = node.lifespan.deadline();
            others |= now < deadline && deadline < NEVER;
            deadline <= now
        });
        others
    }

    /// See [`Cache::run_pending_tasks`](super::Cache::run_pending_tasks).
    pub(super) fn run_pending_tasks(&self) {
        if let Some(now) = self.now() {
            self.remove_expired_at(now);
        }
        self.free_detached_entries();
        Update::free_all_retired(self);
        self.wait_for_background();
    }

    /// Waits until entries are dropped that other threads have taken to free them in the
    /// background.
    fn wait_for_background(&self) {
        let mut backoff = Backoff::new();
        // A destructor or a listener would perhaps wait for itself, and what another thread frees
        // may wait until this one has left its read sections.
        // Acquire: pairs with the Release in `in_background`: what destructors did is seen. Threads
        // count before they lock the shard from which they take entries.
        // litmus: cache-drained
        while !is_in_user_code() && !is_reading() && self.background.load(Acquire) > 0 {
            backoff.wait();
        }
    }

    /// Counts a call while it frees entries in the background.
    fn in_background<R>(&self, free: impl FnOnce() -> R) -> R {
        struct Counted<'c>(&'c AtomicU64);
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                // Release: pairs with the Acquire in `wait_for_background`.
                // litmus: cache-drained
                self.0.fetch_sub(1, Release);
            }
        }
        // Relaxed: the lock of the shard orders it before what is taken there.
        self.background.fetch_add(1, Relaxed);
        let _counted = Counted(&self.background);
        free()
    }

    /// Changes the capacity. Evicts entries until they fit; those that are in use when no shard has
    /// others any more.
    pub(super) fn set_capacity(&self, capacity: u64) {
        let mut shards = (0..self.shards.len()).cycle();
        let now = self.now();
        // The number of shards in a row in which there was nothing to evict.
        let mut fruitless = 0;
        while !self.limit.try_set_capacity(capacity) {
            let mut update = self.update();
            let index = shards.next().expect("there is a shard");
            let spares = fruitless < self.shards.len();
            let is_evicted = update.evict_one(index, now, spares);
            fruitless = if is_evicted && spares { 0 } else { fruitless + 1 };
            // If nothing is left, other threads are about to insert or to remove entries.
            if !is_evicted && self.len() == 0 {
                drop(update);
                yield_now();
            }
        }
        self.share_most_waiting();
    }

    /// Removes all entries that were inserted before the call, cancels all loads, and forgets what
    /// was evicted.
    pub(super) fn invalidate_all(&self) {
        // Relaxed: a heuristic.
        self.has_detached.store(true, Relaxed);
        let mut update = self.update();
        let are_detached = (0..self.shards.len()).fold(true, |all, index| update.detach_all(index) & all);
        drop(update);
        if !are_detached {
            self.remove_all(RemovalCause::Explicit, |_| true);
        }
        if let Some(own) = self.own.get() {
            background::free_detached(Weak::clone(own));
        }
    }

    fn free_detached_entries(&self) {
        // A slice of each shard in turn: see `remove_all`.
        let free_slices =
            || (0..self.shards.len()).map(|index| self.update().free_detached(index, SLICE)).sum::<usize>();
        let free_all = || while free_slices() > 0 {};
        free_all();
        // Relaxed: a heuristic.
        self.has_detached.store(false, Relaxed);
        // What was detached meanwhile. (Whoever does so has another call made.)
        free_all();
    }
}

impl<K, V, S, L: Lifespan> Core<K, V, S, L>
where
    S: BuildHasher,
{
    #[inline(always)]
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> bucket::Hash {
        bucket::Hash::new(self.hasher.hash_one(key))
    }

    /// Finds the value of a key, marks its entry, and counts the lookup.
    #[inline(always)]
    pub(super) fn visit<'g, Q>(&'g self, hash: bucket::Hash, key: &Q, guard: &'g Guard) -> Option<&'g Node<K, V, L>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let node = self.find(hash, key, Purpose::Hit, guard);
        if let Some(recorder) = &self.recorder {
            recorder.record(node.is_some(), guard);
        }
        let node = node?;
        node.visit();
        Some(node)
    }

    /// Finds an entry that has not expired.
    #[inline(always)]
    pub(super) fn find<'g, Q>(
        &'g self,
        hash: bucket::Hash,
        key: &Q,
        purpose: Purpose,
        guard: &'g Guard,
    ) -> Option<&'g Node<K, V, L>>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let node = self.table(hash).array(guard).find(hash, |node| key.equivalent(&node.key))?;
        // SAFETY: found under the guard. A node that is removed stays alive as long as the guard.
        Some(unsafe { node.as_ref() }).filter(|node| self.is_alive(node, purpose))
    }

    /// Makes an entry. Calls the weigher and the function of the expiry.
    #[inline(always)]
    pub(super) fn make(&self, hash: bucket::Hash, key: K, value: V) -> Made<K, V, L> {
        let weight = self.weigh(&key, &value);
        let times = self.expiry.as_ref().map_or(Times::NEVER, |expiry| expiry.times(&key, &value, None));
        Made { node: Node::new(key, value, times), hash, weight, is_update: false }
    }

    /// Puts an entry into the cache, in place of one with the same key. Returns it if it is heavier
    /// than the cache; then one with the same key is removed.
    pub(super) fn insert(&self, key: K, value: V) -> Result<(), TooHeavy<K, V>>
    where
        K: Hash + Eq,
    {
        let hash = self.hash(&key);
        let made = self.make(hash, key, value);
        let mut update = self.update();
        match update.put(made, &Condition::Always) {
            Ok(()) => Ok(()),
            Err(Unput::Refused(_)) => unreachable!("there is no condition"),
            Err(Unput::TooHeavy(Made { node, weight, .. })) => {
                update.remove(hash, &node.key);
                drop(update);
                let (key, value) = node.into_parts();
                Err(TooHeavy { key, value, weight })
            }
        }
    }
}

impl<K, V, S, L: Lifespan> Update<'_, K, V, S, L> {
    /// Inserts an entry on a condition, in place of one with the same key, and cancels the loads of
    /// the key.
    pub(super) fn put(
        &mut self,
        mut made: Made<K, V, L>,
        condition: &Condition<'_, K, V, L>,
    ) -> Result<(), Unput<K, V, L>>
    where
        K: Eq,
    {
        let core = self.core;
        let Made { hash, weight, .. } = made;
        let index = core.shard_of(hash);
        // Relaxed: a heuristic.
        if core.has_detached.load(Relaxed) && weight <= core.limit.capacity() {
            self.free_detached_for(weight);
        }
        // All code of the user, before this thread holds any room.
        let now = core.now();
        let mut compared = self.compare_for(&mut made);
        loop {
            let mut locked = core.lock(index);
            locked.prefetch_for(hash, weight);
            let verified = locked.verify(hash, &mut compared).ok();
            let Some(old) = verified.filter(|old| old.is_some() || !made.is_update) else {
                locked.unlock();
                self.reservation.release();
                compared = self.compare_for(&mut made);
                continue;
            };
            let is_met = condition.is_met(old, &locked);
            if !is_met || weight > core.limit.capacity() {
                locked.unlock();
                // The caller may run code of the user.
                self.reservation.release();
                return Err(if is_met { Unput::TooHeavy(made) } else { Unput::Refused(made) });
            }
            let old_weight = old.map_or(0, |old| locked.weight_of(old));
            let missing = weight.saturating_sub(old_weight);
            let room = self.make_room(&mut locked, index, missing, old, now);
            if room != Room::Enough {
                locked.unlock();
                if !self.make_more_room(room, index, missing, now) {
                    self.reservation.release();
                    return Err(Unput::TooHeavy(made));
                }
                continue;
            }
            match condition {
                Condition::Loaded(flight) => _ = locked.remove_flight(flight),
                Condition::Always | Condition::Instead(_) => self.wake_later(locked.cancel(hash)),
            }
            let node = match old {
                None => locked.insert(made.node, hash, weight, self.guard()),
                Some(old) => {
                    let (node, left) = locked.replace(old, made.node, hash, weight);
                    self.left(&mut locked, index, &left, RemovalCause::of(old, now, RemovalCause::Replaced));
                    node
                }
            };
            locked.unlock();
            self.reservation.use_up(missing);
            core.limit.release(old_weight.saturating_sub(weight));
            // SAFETY: alive as long as the guard.
            core.schedule_sweep(unsafe { node.as_ref() });
            return Ok(());
        }
    }

    /// Frees some detached entries, and then as many as make room for this weight, so that no
    /// others are evicted for it.
    #[cold]
    fn free_detached_for(&mut self, weight: u64) {
        loop {
            let is_freed = (0..self.core.shards()).any(|index| self.free_detached(index, SLICE) > 0);
            if !is_freed {
                // Relaxed: a heuristic.
                self.core.has_detached.store(false, Relaxed);
            }
            if !is_freed || self.core.limit.has_room(weight) {
                return;
            }
        }
    }

    /// Compares the key of a node that is about to be inserted, outside of locks. Sets the lifetime
    /// of an entry that replaces another one, if that depends on it.
    #[inline(always)]
    fn compare_for(&self, Made { node, hash, is_update, .. }: &mut Made<K, V, L>) -> Compared<K, V, L>
    where
        K: Eq,
    {
        if !self.core.table(*hash).array(self.guard()).may_have(*hash) && !*is_update {
            return Compared::with_none();
        }
        let compared = self.compare(*hash, &node.key);
        let expiry = self.core.expiry.as_ref().filter(|expiry| expiry.after_update.is_some());
        if let Some(expiry) = expiry.filter(|_| *is_update || compared.found.is_some()) {
            // SAFETY: found under the guard.
            let found = compared.found.map(|found| unsafe { found.as_ref() });
            let replaced = found.filter(|found| self.core.is_alive(found, Purpose::Peek));
            let replaced = replaced.map(|replaced| expiry.time_left(replaced));
            node.lifespan = L::new(expiry.times(&node.key, &node.value, replaced));
            *is_update = found.is_some();
        }
        compared
    }
}

impl<K, V, S, L> Swept for Core<K, V, S, L>
where
    K: Send + Sync,
    V: Send + Sync,
    S: Send + Sync,
    L: Lifespan,
{
    fn sweep(&self) -> bool {
        let Some(expiry) = &self.expiry else { return false };
        // Before the sweep begins, because the clock may panic.
        let now = expiry.now();
        expiry.begin_sweep();
        self.in_background(|| self.remove_expired_at(now)) && expiry.reschedule()
    }

    fn free_detached(&self) {
        self.in_background(|| self.free_detached_entries());
    }

    fn drain(&self, shard: usize) {
        self.in_background(|| Update::drain(self, shard));
    }

    unsafe fn report(&self, node: NonNull<()>, cause: RemovalCause) {
        // SAFETY: guaranteed by the caller.
        self.pass_on(unsafe { node.cast::<Node<K, V, L>>().as_ref() }, cause);
    }
}

impl<K, V, S, L: Lifespan> Drop for Core<K, V, S, L> {
    fn drop(&mut self) {
        let (mut tables, mut shards) = (take(&mut self.tables), take(&mut self.shards));
        for (table, shard) in tables.iter_mut().zip(&mut shards) {
            free_all(table, shard, |node, is_detached| {
                if is_detached {
                    // SAFETY: not freed yet.
                    self.pass_on(unsafe { node.as_ref() }, RemovalCause::Explicit);
                }
                // A panic in a destructor does not keep the others from being freed. The memory
                // goes to the allocator: see `recycle::free_of_many`.
                // SAFETY: this thread alone uses the cache, and each node is freed once.
                contain(|| drop(unsafe { Box::from_raw(node.as_ptr()) }));
            });
        }
    }
}
