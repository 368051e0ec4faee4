//! An update of a cache: its read section, and what it has to do when it holds no lock any more.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use equivalent::Equivalent;
use relativist_bucket::Hash;
use relativist_core::sync::{Backoff, Relaxed, local, yield_now};
use relativist_core::unwind::contain;
use relativist_rcu::{Guard, clock, defer, is_reading, read};

use super::background::{self, Swept};
use super::cause::RemovalCause;
use super::core::Core;
use super::flight::{Flight, Outcome};
use super::limit::Reservation;
use super::node::{Lifespan, Node, NodePtr};
use super::queues::NoneToEvict;
use super::shard::{Compared, IsInUse, LeftOf, Locked};

/// The number of entries that an update evicts under one lock.
const MAX_EVICTIONS: usize = 16;

/// The number of entries that an update frees for each one that it retires. More than one, so that
/// a backlog shrinks.
const FREED_PER_RETIRED: usize = 2;

/// The number of entries that the background frees under one lock.
const FREED_AT_ONCE: usize = 256;

local! {
    /// The number of entries that this thread has retired since it last drove grace periods.
    static RETIRED: Cell<u32> = Cell::new(0);
    /// What waits until a listener returns that this thread calls.
    static REPORTS: Cell<Option<NonNull<VecDeque<Report>>>> = Cell::new(None);
    /// What waits until a destructor returns that this thread calls.
    static FREED: Cell<Option<NonNull<Vec<Freed>>>> = Cell::new(None);
}

/// Returns whether a destructor or a listener of a cache has called this.
pub(super) fn is_in_user_code() -> bool {
    FREED.with(Cell::get).is_some() || REPORTS.with(Cell::get).is_some()
}

/// An entry that has left the cache, and why.
type Removed<K, V, L> = (NodePtr<K, V, L>, RemovalCause);

/// The same, of any cache.
struct Report {
    cache: Arc<dyn Swept>,
    node: NonNull<()>,
    cause: RemovalCause,
}

/// A node of any cache, and the function that frees it.
type Freed = (NonNull<()>, unsafe fn(NonNull<()>));

/// How often an update looks for the shard that is to evict. After that it evicts from its own, so
/// that its cost is bounded, even if all entries are visited again and again.
const MAX_TURNS: u32 = 256;

/// An update of a cache.
///
/// When it is dropped, it first calls what is code of the user: it wakes those that wait for loads
/// that it has cancelled, passes the entries that it has removed to the listener, and, outside of
/// its read section, runs destructors. Then it waits for readers, if the entries that wait for them
/// have become too heavy.
pub(super) struct Update<'c, K, V, S, L: Lifespan> {
    pub(super) core: &'c Core<K, V, S, L>,
    guard: ManuallyDrop<Guard>,
    pub(super) reservation: Reservation<'c>,
    later: Option<Box<Later<K, V, L>>>,
    /// To be freed.
    due: Due<K, V, L>,
    /// A bit for each shard for which a deferred function is missing that frees what is retired.
    drains: u64,
    retired: u32,
    /// Whether a shard has half of what may wait for readers, and whether all have too much.
    is_half_full: bool,
    is_crowded: bool,
    /// How often it has looked for the shard that is to evict, since its last eviction.
    turns: u32,
}

/// What most updates do not have.
struct Later<K, V, L> {
    /// Loads that were cancelled. Those that wait for them must be woken.
    cancelled: Vec<Arc<Flight<K, V>>>,
    /// For the listener, in the order in which they have left the cache.
    removed: Vec<Removed<K, V, L>>,
}

impl<K, V, L> Default for Later<K, V, L> {
    fn default() -> Self {
        Self { cancelled: Vec::new(), removed: Vec::new() }
    }
}

/// Entries that no thread uses any more. In most cases they are few.
struct Due<K, V, L> {
    few: [Option<NodePtr<K, V, L>>; FREED_PER_RETIRED],
    more: Vec<NodePtr<K, V, L>>,
}

impl<K, V, L> Due<K, V, L> {
    #[inline(always)]
    fn new() -> Self {
        Self { few: [None; FREED_PER_RETIRED], more: Vec::new() }
    }

    #[inline(always)]
    fn push(&mut self, node: NodePtr<K, V, L>) {
        match self.few.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(node),
            None => self.more.push(node),
        }
    }

    fn is_empty(&self) -> bool {
        self.few[0].is_none()
    }

    /// Runs the destructors. A panic ends only its call. If a destructor updates a cache in turn,
    /// what that frees is freed after it has returned, and not on top of its call.
    #[inline(always)]
    fn free(&mut self) {
        if self.is_empty() {
            return;
        }
        // SAFETY: a node of this type.
        let free: unsafe fn(NonNull<()>) = |node| unsafe { Node::<K, V, L>::free(node.cast()) };
        let all = self.few.iter_mut().map_while(Option::take).chain(self.more.drain(..));
        let mut all = all.map(|node| (node.cast(), free));
        if let Some(outer) = FREED.with(Cell::get) {
            // SAFETY: of an outer call of this function on this thread, which uses it only between
            // calls of destructors.
            return unsafe { (*outer.as_ptr()).extend(all) };
        }
        let mut nested: Vec<Freed> = Vec::new();
        let nested = NonNull::from(&mut nested);
        FREED.with(|outer| outer.set(Some(nested)));
        // SAFETY: the reference ends before a destructor is called.
        while let Some((node, free)) = all.next().or_else(|| unsafe { (*nested.as_ptr()).pop() }) {
            // SAFETY: guaranteed by who has pushed it.
            contain(|| unsafe { free(node) });
        }
        FREED.with(|outer| outer.set(None));
    }
}

/// Whether there is room for an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Enough,
    /// The update has evicted enough for one lock.
    TooLittle,
    /// There is nothing to evict in this shard.
    NoneHere(NoneToEvict),
    /// This shard has the entry to evict next.
    Elsewhere(usize),
}

impl<'c, K, V, S, L: Lifespan> Update<'c, K, V, S, L> {
    #[inline(always)]
    pub(super) fn new(core: &'c Core<K, V, S, L>, guard: Guard) -> Self {
        Self {
            core,
            guard: ManuallyDrop::new(guard),
            reservation: core.limit.reservation(),
            later: None,
            due: Due::new(),
            drains: 0,
            retired: 0,
            is_half_full: false,
            is_crowded: false,
            turns: 0,
        }
    }

    #[inline(always)]
    pub(super) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Wakes those that wait for these loads, when no lock is held any more.
    #[inline(always)]
    pub(super) fn wake_later(&mut self, cancelled: Vec<Arc<Flight<K, V>>>) {
        if !cancelled.is_empty() {
            self.later.get_or_insert_default().cancelled.extend(cancelled);
        }
    }

    /// Compares a key with the entries of its hash, outside of locks.
    #[inline(always)]
    pub(super) fn compare<Q: Equivalent<K> + ?Sized>(&self, hash: Hash, key: &Q) -> Compared<K, V, L> {
        Compared::new(self.core.table(hash), hash, key, &self.guard)
    }

    /// Notes that an entry has left the table and its queue, under the lock of its shard.
    #[inline(always)]
    pub(super) fn left(
        &mut self,
        locked: &mut Locked<'_, K, V, L>,
        index: usize,
        left: &LeftOf<K, V, L>,
        cause: RemovalCause,
    ) {
        if locked.retire(left, &self.guard) {
            self.drains |= 1 << index;
        }
        self.retired += 1;
        let due = &mut self.due;
        locked.collect(FREED_PER_RETIRED, |node| due.push(node));
        self.is_half_full |= locked.is_half_full();
        self.is_crowded |= self.core.is_crowded(index);
        if self.core.listener.is_some() {
            self.later.get_or_insert_default().removed.push((left.node, cause));
        }
    }

    /// Takes room of this weight, and evicts entries of the shard for it, apart from `kept`. If
    /// shards have few entries, it leaves the choice among them to `make_more_room`.
    #[inline(always)]
    pub(super) fn make_room(
        &mut self,
        locked: &mut Locked<'_, K, V, L>,
        index: usize,
        weight: u64,
        kept: Option<NodePtr<K, V, L>>,
        now: Option<u64>,
    ) -> Room {
        for _ in 0..MAX_EVICTIONS {
            if self.reservation.try_reach(weight) {
                return Room::Enough;
            }
            let evicted = if locked.has_few() && self.turns < MAX_TURNS {
                self.turns += 1;
                let others = self.core.lowest_but(index);
                if let Some((_, other)) = others.filter(|&(priority, _)| locked.comes_after(priority)) {
                    return Room::Elsewhere(other);
                }
                match self.evict_in_turn(locked, index, kept, now, others.map(|(priority, _)| priority)) {
                    Err(NoneToEvict::Empty | NoneToEvict::InUse) => {
                        // There may be others, whose turn comes later.
                        self.turns = MAX_TURNS;
                        continue;
                    }
                    evicted => evicted,
                }
            } else {
                match self.core.is_in_use {
                    None => self.evict(locked, index, (kept, None), now, |_| false),
                    Some(is_in_use) => self.evict_unused(locked, index, (kept, None), now, is_in_use),
                }
            };
            match evicted {
                Ok(()) | Err(NoneToEvict::Later) => {}
                Err(reason) => return Room::NoneHere(reason),
            }
        }
        if self.reservation.try_reach(weight) { Room::Enough } else { Room::TooLittle }
    }

    /// Evicts an entry of the shard, apart from `kept` and those that are in use, and holds its
    /// room.
    #[inline(always)]
    fn evict(
        &mut self,
        locked: &mut Locked<'_, K, V, L>,
        index: usize,
        (kept, bound): (Option<NodePtr<K, V, L>>, Option<u32>),
        now: Option<u64>,
        is_in_use: impl Fn(&V) -> bool,
    ) -> Result<(), NoneToEvict> {
        let (left, cause) = locked.evict(kept, bound, now, is_in_use)?;
        self.reservation.held += left.weight;
        self.left(locked, index, &left, cause);
        Ok(())
    }

    /// Looks at the entries of the shard whose turn comes before those of other shards, but at
    /// least at one, and evicts it or one of the next.
    #[cold]
    fn evict_in_turn(
        &mut self,
        locked: &mut Locked<'_, K, V, L>,
        index: usize,
        kept: Option<NodePtr<K, V, L>>,
        now: Option<u64>,
        others: Option<u32>,
    ) -> Result<(), NoneToEvict> {
        let bound = others.map(|others| locked.lowest().filter(|_| locked.comes_after(others)).unwrap_or(others));
        let is_in_use = self.core.is_in_use.unwrap_or(|_| false);
        self.evict_unused(locked, index, (kept, bound), now, is_in_use).inspect(|()| self.turns = 0)
    }

    /// Like `evict`. Not inlined, so that caches that spare no entries evict in fewer instructions.
    #[inline(never)]
    fn evict_unused(
        &mut self,
        locked: &mut Locked<'_, K, V, L>,
        index: usize,
        (kept, bound): (Option<NodePtr<K, V, L>>, Option<u32>),
        now: Option<u64>,
        is_in_use: IsInUse<V>,
    ) -> Result<(), NoneToEvict> {
        self.evict(locked, index, (kept, bound), now, is_in_use)
    }

    /// Goes on after `make_room` has not made enough: if there was nothing to evict in the shard,
    /// evicts from others until the update holds room of this weight. Returns false if entries in
    /// use leave no room.
    #[cold]
    pub(super) fn make_more_room(&mut self, room: Room, index: usize, weight: u64, now: Option<u64>) -> bool {
        let reason = match room {
            Room::NoneHere(reason) => reason,
            Room::Enough | Room::TooLittle => return true,
            Room::Elsewhere(other) => {
                let others = self.core.lowest_but(other).map(|(priority, _)| priority);
                let mut locked = self.core.lock(other);
                let evicted = self.evict_in_turn(&mut locked, other, None, now, others);
                locked.unlock();
                if matches!(evicted, Err(NoneToEvict::Empty | NoneToEvict::InUse)) {
                    // The next attempt is that of the own shard.
                    self.turns = MAX_TURNS;
                }
                return true;
            }
        };
        match self.evict_elsewhere(reason, index, weight, now) {
            Ok(()) => true,
            Err(NoneToEvict::InUse) => false,
            Err(NoneToEvict::Empty | NoneToEvict::Later) => {
                // Other threads are about to insert or to remove entries.
                self.reservation.release();
                yield_now();
                true
            }
        }
    }

    /// Evicts from the shards but this one, in which there was nothing for this `reason`. Returns
    /// an error if it has found nothing.
    fn evict_elsewhere(
        &mut self,
        mut reason: NoneToEvict,
        index: usize,
        weight: u64,
        now: Option<u64>,
    ) -> Result<(), NoneToEvict> {
        let core = self.core;
        self.turns = MAX_TURNS;
        let mut found = false;
        for next in 1..core.shards() {
            let other = (index + next) & (core.shards() - 1);
            let mut locked = core.lock(other);
            let before = self.reservation.held;
            let room = self.make_room(&mut locked, other, weight, None, now);
            locked.unlock();
            found |= self.reservation.held > before;
            match room {
                Room::Enough | Room::TooLittle | Room::Elsewhere(_) => return Ok(()),
                Room::NoneHere(NoneToEvict::InUse) => reason = NoneToEvict::InUse,
                Room::NoneHere(NoneToEvict::Empty | NoneToEvict::Later) => {}
            }
        }
        if found { Ok(()) } else { Err(reason) }
    }

    /// Evicts one entry of a shard, and gives its room back. `spares` says whether entries in use
    /// stay. Returns false if there was none.
    pub(super) fn evict_one(&mut self, index: usize, now: Option<u64>, spares: bool) -> bool {
        let mut locked = self.core.lock(index);
        let is_in_use = self.core.is_in_use.filter(|_| spares).unwrap_or(|_| false);
        let evicted = self.evict_unused(&mut locked, index, (None, None), now, is_in_use);
        locked.fit(&self.guard);
        locked.unlock();
        self.reservation.release();
        evicted.is_ok()
    }

    /// Removes the entry of a key, also if it has expired, and cancels the loads of the key.
    pub(super) fn remove<Q: Equivalent<K> + ?Sized>(&mut self, hash: Hash, key: &Q) -> Option<NodePtr<K, V, L>> {
        let now = self.core.now();
        let index = self.core.shard_of(hash);
        loop {
            let mut compared = self.compare(hash, key);
            let mut locked = self.core.lock(index);
            let Ok(found) = locked.verify(hash, &mut compared) else {
                locked.unlock();
                continue;
            };
            self.wake_later(locked.cancel(hash));
            let left = found.and_then(|node| locked.remove(node, &self.guard));
            if let Some(left) = &left {
                self.left(&mut locked, index, left, RemovalCause::of(left.node, now, RemovalCause::Explicit));
            }
            locked.unlock();
            self.core.limit.release(left.map_or(0, |left| left.weight));
            return found;
        }
    }

    /// Removes exactly this entry of a shard, and returns whether it was in the cache. `cancels`
    /// says whether this also cancels the loads of its key.
    pub(super) fn remove_exactly(
        &mut self,
        index: usize,
        node: NodePtr<K, V, L>,
        cause: RemovalCause,
        cancels: bool,
    ) -> bool {
        let mut locked = self.core.lock(index);
        let left = locked.remove(node, &self.guard);
        if let Some(left) = &left {
            if cause == RemovalCause::Expired {
                locked.count_expired();
            }
            if cancels {
                self.wake_later(locked.cancel(left.hash));
            }
            self.left(&mut locked, index, left, cause);
        }
        locked.unlock();
        self.core.limit.release(left.as_ref().map_or(0, |left| left.weight));
        left.is_some()
    }

    /// Cancels the loads of a key that is absent. Returns false if the key has an entry that was
    /// not compared.
    pub(super) fn cancel_if_absent(&mut self, hash: Hash, compared: &mut Compared<K, V, L>) -> bool {
        let mut locked = self.core.lock(self.core.shard_of(hash));
        let is_absent = matches!(locked.verify(hash, compared), Ok(None));
        if is_absent {
            self.wake_later(locked.cancel(hash));
        }
        locked.unlock();
        is_absent
    }

    /// Takes all entries of a shard out, and cancels its loads. Returns false if there is no memory
    /// for that.
    pub(super) fn detach_all(&mut self, index: usize) -> bool {
        let mut locked = self.core.lock(index);
        self.wake_later(locked.cancel_all());
        let is_detached = locked.detach_all(&self.guard);
        locked.unlock();
        is_detached
    }

    /// Frees up to `count` of the entries that `detach_all` has taken out. Returns how many.
    pub(super) fn free_detached(&mut self, index: usize, count: usize) -> usize {
        let mut locked = self.core.lock(index);
        let mut weight = 0;
        let mut freed = 0;
        while let Some(left) = (freed < count).then(|| locked.pop_detached()).flatten() {
            weight += left.weight;
            self.left(&mut locked, index, &left, RemovalCause::Explicit);
            freed += 1;
        }
        locked.unlock();
        self.core.limit.release(weight);
        freed
    }

    /// Frees those entries of a shard that wait for readers no longer.
    pub(super) fn drain(core: &Core<K, V, S, L>, index: usize) {
        let mut is_done = false;
        while !is_done {
            let mut update = Update::new(core, read());
            let mut locked = core.lock(index);
            let must_come_again = locked.drain(FREED_AT_ONCE, |node| update.due.push(node));
            locked.unlock();
            is_done = update.due.is_empty() || !must_come_again;
            if is_done && must_come_again {
                update.drains |= 1 << index;
            }
        }
    }

    /// Waits for readers and frees what has been retired. Does nothing if the thread may not wait.
    pub(super) fn free_all_retired(core: &Core<K, V, S, L>) {
        if !may_wait() {
            return;
        }
        wait_for_readers();
        for index in 0..core.shards() {
            let mut is_done = false;
            while !is_done {
                let mut update = Update::new(core, read());
                let mut locked = core.lock(index);
                locked.collect(FREED_AT_ONCE, |node| update.due.push(node));
                locked.unlock();
                is_done = update.due.is_empty();
            }
        }
    }
}

/// Returns whether this thread may wait for readers: it is not a reader itself, and not the
/// background thread, for which others may wait.
fn may_wait() -> bool {
    !is_reading() && !background::is_current()
}

/// Waits until all entries can be freed that were retired before.
fn wait_for_readers() {
    let wanted = clock::begun(&read()) + clock::GRACE_PERIODS;
    let mut backoff = Backoff::new();
    while clock::ended() < wanted {
        clock::drive();
        backoff.wait();
    }
}

impl<K, V, S, L: Lifespan> Drop for Update<'_, K, V, S, L> {
    #[inline]
    fn drop(&mut self) {
        // The listener may insert.
        self.reservation.release();
        if let Some(later) = self.later.take() {
            let Later { cancelled, removed } = *later;
            for flight in cancelled {
                flight.land(Outcome::Nothing);
                // The destructor of its key is code of the user.
                contain(|| drop(flight));
            }
            self.report(removed);
        }
        if self.drains != 0 {
            self.defer_drains();
        }
        // SAFETY: it is not used any more.
        unsafe { ManuallyDrop::drop(&mut self.guard) };
        self.due.free();
        if self.retired > 0 {
            self.drive();
        }
    }
}

impl<K, V, S, L: Lifespan> Update<'_, K, V, S, L> {
    /// Passes the removed entries to the listener. If a listener updates a cache in turn, the
    /// entries that it removes are reported after it has returned, and not on top of its call.
    /// So listeners that always insert something do not fill the stack.
    #[cold]
    fn report(&self, removed: Vec<Removed<K, V, L>>) {
        let own = self.core.own.get().and_then(Weak::upgrade);
        let (Some(own), false) = (own, removed.is_empty() || self.core.listener.is_none()) else { return };
        let report = |(node, cause): Removed<K, V, L>| Report { cache: Arc::clone(&own), node: node.cast(), cause };
        if let Some(outer) = REPORTS.with(Cell::get) {
            // SAFETY: of an outer call of this function on this thread, which uses it only between
            // calls of listeners. Its guard keeps the entries alive.
            unsafe { (*outer.as_ptr()).extend(removed.into_iter().map(report)) };
            return;
        }
        let reports = NonNull::from(Box::leak(Box::new(VecDeque::<Report>::new())));
        REPORTS.with(|outer| outer.set(Some(reports)));
        for (node, cause) in removed {
            // SAFETY: alive as long as the guard.
            self.core.pass_on(unsafe { node.as_ref() }, cause);
        }
        // SAFETY: the reference ends before a listener is called.
        while let Some(Report { cache, node, cause }) = unsafe { (*reports.as_ptr()).pop_front() } {
            // SAFETY: a node of this cache, which is alive as long as the guard. If this was the
            // last handle of the cache, its destructor may run code of the user.
            contain(|| unsafe { cache.report(node, cause) });
            contain(|| drop(cache));
        }
        REPORTS.with(|outer| outer.set(None));
        // SAFETY: from the box above, and nothing uses it any more.
        drop(unsafe { Box::from_raw(reports.as_ptr()) });
    }

    #[cold]
    fn defer_drains(&self) {
        let Some(own) = self.core.own.get() else { return };
        for index in (0..self.core.shards()).filter(|index| self.drains >> index & 1 == 1) {
            let own = Weak::clone(own);
            defer(move || {
                if let Some(core) = own.upgrade() {
                    core.drain(index);
                }
            });
        }
    }

    /// Drives grace periods now and then, because stamps alone drive none. Waits for them if too
    /// much waits.
    #[inline(always)]
    fn drive(&self) {
        /// The number of entries that a thread retires between two calls: the smaller one if half
        /// of what may wait for readers does. Each call may interrupt all processors that run this
        /// program: with 256, insertions on two took a tenth longer.
        const MIN_INTERVAL: u32 = 256;
        const MAX_INTERVAL: u32 = 1024;
        let retired = RETIRED.with(|retired| {
            retired.set(retired.get() + self.retired);
            retired.get()
        });
        if retired >= MAX_INTERVAL || (retired >= MIN_INTERVAL && self.is_half_full) {
            RETIRED.with(|retired| retired.set(0));
            clock::drive();
        }
        if self.is_crowded && may_wait() {
            self.stall();
        }
    }

    #[cold]
    fn stall(&self) {
        // Relaxed: a statistic.
        self.core.stalls.fetch_add(1, Relaxed);
        Update::free_all_retired(self.core);
    }
}
