//! An update of a cache: its read section, and what it has to do when it holds no lock any more.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::{ManuallyDrop, take};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use equivalent::Equivalent;
use relativist_bucket::Hash;
use relativist_core::sync::{Backoff, Relaxed, local};
use relativist_core::unwind::contain;
use relativist_rcu::{Guard, clock, defer, is_reading, read};

use super::RemovalCause;
use super::core::Core;
use super::flight::{Flight, Outcome};
use super::limit::Reservation;
use super::node::{Lifespan, Node, NodePtr};
use super::queues::Chain;
use super::shard::{Compared, Locked, Removed};

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
    /// The cache whose listener this thread calls, and the [`Reports`] that wait.
    static REPORTING: Cell<Option<(NonNull<()>, NonNull<()>)>> = Cell::new(None);
}

/// Entries that have left a cache, for its listener.
type Reports<K, V, L> = VecDeque<Removed<K, V, L>>;

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
    pub(super) cancelled: Vec<Arc<Flight<K, V>>>,
    /// For the listener, in the order in which they have left the cache.
    removed: Vec<Removed<K, V, L>>,
    /// To be freed.
    due: Chain,
    /// A bit for each shard for which a deferred function is missing that frees what is retired.
    drains: u64,
    retired: u32,
    is_crowded: bool,
}

/// Whether there is room for an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Enough,
    /// The update has evicted enough for one lock.
    TooLittle,
    /// There is nothing to evict in this shard.
    NoneHere,
}

impl<'c, K, V, S, L: Lifespan> Update<'c, K, V, S, L> {
    #[inline(always)]
    pub(super) fn new(core: &'c Core<K, V, S, L>, guard: Guard) -> Self {
        Self {
            core,
            guard: ManuallyDrop::new(guard),
            reservation: core.limit.reservation(),
            cancelled: Vec::new(),
            removed: Vec::new(),
            due: Chain::default(),
            drains: 0,
            retired: 0,
            is_crowded: false,
        }
    }

    #[inline(always)]
    pub(super) fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Compares a key with the entries of its hash, outside of locks.
    #[inline(always)]
    pub(super) fn compare<Q: Equivalent<K> + ?Sized>(&self, hash: Hash, key: &Q) -> Compared<Node<K, V, L>> {
        Compared::new(self.core.table(hash), hash, key, &self.guard)
    }

    /// Notes that an entry has left the table and its queue, under the lock of its shard.
    #[inline(always)]
    pub(super) fn left(
        &mut self,
        locked: &mut Locked<'_, K, V, L>,
        index: usize,
        node: NodePtr<K, V, L>,
        cause: RemovalCause,
    ) {
        if locked.retire(node, &self.guard) {
            self.drains |= 1 << index;
        }
        self.retired += 1;
        locked.collect(FREED_PER_RETIRED, &mut self.due);
        self.is_crowded |= self.core.is_crowded(index);
        if self.core.listener.is_some() {
            self.removed.push((node, cause));
        }
    }

    /// Takes room of this weight, and evicts entries of the shard for it, apart from `kept`.
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
            let Some((node, cause)) = locked.evict(kept, now, &self.guard) else { return Room::NoneHere };
            // SAFETY: alive as long as the guard.
            self.reservation.held += unsafe { node.as_ref() }.slot.weight;
            self.left(locked, index, node, cause);
        }
        if self.reservation.try_reach(weight) { Room::Enough } else { Room::TooLittle }
    }

    /// Evicts from other shards until the update holds room of this weight. Returns false if it has
    /// found nothing.
    #[cold]
    pub(super) fn evict_elsewhere(&mut self, index: usize, weight: u64, now: Option<u64>) -> bool {
        let core = self.core;
        let mut found = false;
        for next in 1..core.shards() {
            let other = (index + next) & (core.shards() - 1);
            let mut locked = core.lock(other);
            let before = self.reservation.held;
            let room = self.make_room(&mut locked, other, weight, None, now);
            locked.unlock();
            found |= self.reservation.held > before;
            if room != Room::NoneHere {
                return true;
            }
        }
        found
    }

    /// Evicts one entry of a shard. Returns its weight.
    pub(super) fn evict_one(&mut self, index: usize, now: Option<u64>) -> u64 {
        let mut locked = self.core.lock(index);
        let Some((node, cause)) = locked.evict(None, now, &self.guard) else { return 0 };
        self.left(&mut locked, index, node, cause);
        locked.unlock();
        self.gone(node)
    }

    /// Gives the room of an entry back that has left the cache. Returns its weight.
    fn gone(&self, node: NodePtr<K, V, L>) -> u64 {
        // SAFETY: alive as long as the guard.
        let weight = unsafe { node.as_ref() }.slot.weight;
        self.core.limit.release(weight);
        weight
    }

    /// Removes the entry of a key, also if it has expired, and cancels the loads of the key.
    pub(super) fn remove<Q: Equivalent<K> + ?Sized>(&mut self, hash: Hash, key: &Q) -> Option<NodePtr<K, V, L>> {
        let now = self.core.now();
        loop {
            let compared = self.compare(hash, key);
            let index = self.core.shard_of(hash);
            let mut locked = self.core.lock(index);
            let Ok(found) = locked.verify(hash, &compared) else {
                locked.unlock();
                continue;
            };
            locked.cancel(hash, &mut self.cancelled);
            if let Some(node) = found {
                locked.remove(node, &self.guard);
                self.left(&mut locked, index, node, RemovalCause::of(node, now, RemovalCause::Explicit));
            }
            locked.unlock();
            return found.inspect(|&node| _ = self.gone(node));
        }
    }

    /// Removes exactly this entry, and returns whether it was in the cache. `cancels` says whether
    /// this also cancels the loads of its key.
    pub(super) fn remove_exactly(&mut self, node: NodePtr<K, V, L>, cause: RemovalCause, cancels: bool) -> bool {
        // SAFETY: alive as long as the guard.
        let hash = unsafe { node.as_ref() }.slot.hash;
        let index = self.core.shard_of(hash);
        let mut locked = self.core.lock(index);
        let is_removed = locked.remove(node, &self.guard);
        if is_removed {
            if cause == RemovalCause::Expired {
                locked.count_expired();
            }
            if cancels {
                locked.cancel(hash, &mut self.cancelled);
            }
            self.left(&mut locked, index, node, cause);
        }
        locked.unlock();
        if is_removed {
            self.gone(node);
        }
        is_removed
    }

    /// Cancels the loads of a key that is absent. Returns false if the key has an entry that was
    /// not compared.
    pub(super) fn cancel_if_absent(&mut self, hash: Hash, compared: &Compared<Node<K, V, L>>) -> bool {
        let mut locked = self.core.lock(self.core.shard_of(hash));
        let is_absent = matches!(locked.verify(hash, compared), Ok(None));
        if is_absent {
            locked.cancel(hash, &mut self.cancelled);
        }
        locked.unlock();
        is_absent
    }

    /// Takes all entries of a shard out, and cancels its loads. Returns whether there are entries
    /// now that must be freed, or `None` if there is no memory for that.
    pub(super) fn detach_all(&mut self, index: usize) -> Option<bool> {
        let mut locked = self.core.lock(index);
        locked.cancel_all(&mut self.cancelled);
        let has_detached = locked.detach_all(&self.guard);
        locked.unlock();
        has_detached
    }

    /// Frees up to `count` of the entries that `detach_all` has taken out. Returns how many.
    pub(super) fn free_detached(&mut self, index: usize, count: usize) -> usize {
        let mut locked = self.core.lock(index);
        let mut weight = 0;
        let mut freed = 0;
        while let Some(node) = (freed < count).then(|| locked.pop_detached()).flatten() {
            // SAFETY: alive as long as the guard.
            weight += unsafe { node.as_ref() }.slot.weight;
            self.left(&mut locked, index, node, RemovalCause::Explicit);
            freed += 1;
        }
        locked.unlock();
        self.core.limit.release(weight);
        freed
    }

    /// Frees those entries of a shard that wait for readers no longer.
    pub(super) fn drain(core: &Core<K, V, S, L>, index: usize) {
        let mut update = Update::new(core, read());
        let mut locked = core.lock(index);
        if locked.drain(FREED_AT_ONCE, &mut update.due) {
            update.drains |= 1 << index;
        }
        locked.unlock();
    }

    /// Waits for readers, unless the thread is one, and frees what has been retired.
    pub(super) fn free_all_retired(core: &Core<K, V, S, L>) {
        if is_reading() {
            return;
        }
        wait_for_readers();
        for index in 0..core.shards() {
            let mut is_done = false;
            while !is_done {
                let mut update = Update::new(core, read());
                let mut locked = core.lock(index);
                locked.collect(FREED_AT_ONCE, &mut update.due);
                locked.unlock();
                is_done = update.due.first().is_none();
            }
        }
    }
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
        if !self.cancelled.is_empty() {
            self.land();
        }
        if !self.removed.is_empty() {
            self.report();
        }
        if self.drains != 0 {
            self.defer_drains();
        }
        // SAFETY: it is not used any more.
        unsafe { ManuallyDrop::drop(&mut self.guard) };
        while let Some(slot) = self.due.pop() {
            // SAFETY: a slot of a node of this cache that no thread uses any more.
            contain(|| unsafe { Node::<K, V, L>::free(Node::of_slot(slot)) });
        }
        if self.retired > 0 {
            self.drive();
        }
    }
}

impl<K, V, S, L: Lifespan> Update<'_, K, V, S, L> {
    #[cold]
    fn land(&mut self) {
        for flight in take(&mut self.cancelled) {
            flight.land(Outcome::Nothing);
        }
    }

    /// Passes the removed entries to the listener. If the listener updates the cache in turn, the
    /// entries that it removes are reported after those that are waiting, and not on top of its own
    /// call. So a listener that always inserts something does not fill the stack.
    fn report(&mut self) {
        let Some(listener) = &self.core.listener else { return };
        let core = NonNull::from(self.core).cast();
        if let Some((_, reports)) = REPORTING.with(Cell::get).filter(|(reporting, _)| *reporting == core) {
            // SAFETY: an outer call of this function for the same cache, so with the same types, on
            // this thread. It uses the queue only between calls of the listener. Its guard keeps
            // the entries alive.
            unsafe { reports.cast::<Reports<K, V, L>>().as_mut() }.extend(take(&mut self.removed));
            return;
        }
        let reports = NonNull::from(Box::leak(Box::new(Reports::<K, V, L>::from(take(&mut self.removed)))));
        let outer = REPORTING.with(|reporting| reporting.replace(Some((core, reports.cast()))));
        // SAFETY: the reference ends before the listener is called.
        while let Some((node, cause)) = unsafe { (*reports.as_ptr()).pop_front() } {
            // SAFETY: alive as long as the guard.
            let node = unsafe { node.as_ref() };
            contain(|| listener(&node.key, &node.value, cause));
        }
        REPORTING.with(|reporting| reporting.set(outer));
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
        /// The number of entries that a thread retires between two calls.
        const INTERVAL: u32 = 256;
        let retired = RETIRED.with(|retired| {
            retired.set(retired.get() + self.retired);
            retired.get()
        });
        if retired >= INTERVAL {
            RETIRED.with(|retired| retired.set(0));
            clock::drive();
        }
        if self.is_crowded && !is_reading() {
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
