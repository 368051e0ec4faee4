//! Resizing: the entries move to an array of another size, bucket by bucket, while lookups and
//! updates continue.
//!
//! No thread waits for readers in order to grow the table. A thread begins a resize by linking an
//! empty array to the present one. From then on each insertion and each removal moves a few
//! buckets, and so does the worker. The thread that moves the last buckets publishes the new array.
//! So growth keeps up with the threads that insert entries. To move a bucket, a thread locks it,
//! copies its entries, and sets the flag *moved* in its word. Lookups that find the flag go on in
//! the next array.
//!
//! Several growths may follow each other while a reader stays in its section. Each lookup of that
//! reader begins at the present array. It goes on to a later array at most once, and once more for
//! each resize that begins during the lookup. The arrays that the reader keeps from being freed are
//! those of growths, each at most half as large as the next, and that of one shrink: a shrink
//! begins only when two grace periods have ended since the last resize. Without this wait, a map
//! that grows and shrinks in turn could collect arrays without bound.

use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, PoisonError, TryLockError, Weak};

use relativist_core::unwind::contain;
use relativist_rcu::{Guard, clock, read, wait_for_readers, without_reclaiming};

use super::array::{Array, for_each_live};
use super::bucket::{lock, unlock};
use super::chain::append_to_bucket;
use super::iter::PREFETCHED;
use super::relocate::Relocatable;
use super::segment::{Link, Segment};
use super::table::Table;
use super::word::Word;
use relativist_core::reentrancy;
use relativist_core::sync::{AcqRel, MutexGuard, Relaxed, yield_now};
use relativist_table::Resizing;
use relativist_table::worker::{self, Progress};
use relativist_table::{self as raw, AllocError};

/// The maximum number of bits by which a resize shrinks a table. It is small, because a thread
/// locks all buckets that become one at the same time.
pub(super) const MAX_SHRINK: u32 = 3;

/// Whether a resize is in progress after [`Table::begin`].
enum Begun {
    Yes,
    /// The array already has the wanted size.
    NotNeeded,
    /// Readers have to leave before the table can shrink.
    MustWait,
}

impl<K, V, S> Table<K, V, S> {
    /// Called when an array is published.
    pub(super) fn size_changed(&self, array: Array<'_, K, V>) {
        self.count.size_changed(array.len());
        // Seldom enough that grace periods cost removals little, and often enough that few slots
        // stay vacated.
        let drive_interval = (array.len() / 32).clamp(256, 1024);
        // Relaxed: a heuristic.
        self.drive_interval.store(drive_interval, Relaxed);
    }

    /// Returns the number of bits of the array that the entries need, if it is not `bits`.
    fn wanted(&self, bits: u32) -> Option<u32> {
        self.policy.wanted_bits(self.len(), bits)
    }

    fn try_lock_resizer(&self) -> Option<MutexGuard<'_, ()>> {
        match self.resizer.try_lock() {
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Ok(guard) => Some(guard),
        }
    }

    /// Begins a resize, unless one is in progress. `wanted` is called with the number of bits of
    /// the present array, and returns that of the new one. If it returns `None` or the same number,
    /// no resize begins. A shrink goes down by [`MAX_SHRINK`] bits at most.
    ///
    /// The caller holds the resizer's mutex. So no other thread begins a resize between the look at
    /// the present array and its replacement.
    fn begin(&self, wanted: impl FnOnce(u32) -> Option<u32>, guard: &Guard) -> Result<Begun, AllocError> {
        let array = self.array(guard);
        if array.next().is_some() {
            return Ok(Begun::Yes);
        }
        let present = array.bits();
        let Some(wanted) = wanted(present).filter(|&wanted| wanted != present) else { return Ok(Begun::NotNeeded) };
        if wanted < present && !self.has_settled() {
            return Ok(Begun::MustWait);
        }
        let next = Array::allocate(wanted.max(present.saturating_sub(MAX_SHRINK)))?;
        self.count.check_always();
        array.begin_move(next);
        Ok(Begun::Yes)
    }

    /// Returns whether all readers have left that may use arrays older than the present one.
    fn has_settled(&self) -> bool {
        // Relaxed: ordered by `AtomicArray::publish`, which follows the store, and by the load of
        // the array in the caller.
        let settled = clock::ended() >= self.published.load(Relaxed) + clock::GRACE_PERIODS;
        if !settled {
            clock::drive();
        }
        settled
    }

    /// Publishes the array to which all buckets have moved.
    fn finish(&self, array: Array<'_, K, V>, next: Array<'_, K, V>, guard: &Guard) {
        let counter = if next.bits() > array.bits() { &self.grows } else { &self.shrinks };
        // Relaxed, both: the counter is a statistic, and `publish` below releases `published`.
        counter.fetch_add(1, Relaxed);
        self.published.store(clock::begun(guard), Relaxed);
        self.size_changed(next);
        self.array.publish(next);
        // SAFETY: all buckets have moved, and lookups that begin now start at the next array.
        unsafe { array.retire() };
    }
}

impl<K: Hash, V, S: BuildHasher> Table<K, V, S> {
    /// Moves a few buckets if a resize is in progress.
    pub(super) fn help_to_move(&self, guard: &Guard) {
        let array = self.array(guard);
        if let Some(next) = array.next() {
            self.move_some(array, next, guard);
        }
    }

    /// Moves a few buckets. Returns false if other threads have claimed all of them.
    ///
    /// # Panics
    ///
    /// Panics if this thread holds a lock of the table.
    #[cold]
    fn move_some(&self, array: Array<'_, K, V>, next: Array<'_, K, V>, guard: &Guard) -> bool {
        // `Hash` of keys runs under the locks. If it updated this table, the update might wait for
        // this thread.
        reentrancy::enter(self);
        let claim = array.claim(&next);
        let is_claimed = claim.is_some();
        if let Some(range) = claim {
            let mut chains = Vec::new();
            if next.bits() > array.bits() {
                range.for_each(|bucket| self.split(array, bucket, next, &mut chains));
            } else {
                range.for_each(|bucket| self.merge(array, bucket, next, &mut chains));
            }
            array.keep_chains(chains);
        }
        reentrancy::leave(self);
        if is_claimed && array.complete_claim(&next) {
            self.finish(array, next, guard);
        }
        is_claimed
    }

    /// Moves one bucket to several of a larger array. Adds its later segments to `chains`.
    fn split(&self, array: Array<'_, K, V>, bucket: usize, next: Array<'_, K, V>, chains: &mut Vec<Link<K, V>>) {
        let added_bits = next.bits() - array.bits();
        let hash_of = |key: &K| {
            // A panic of `Hash` must not leave the bucket locked, or half moved. The entry moves as
            // if its hash were 0: lookups may not find it, but iterations do.
            let mut hash = 0;
            contain(|| hash = self.hash(key).get());
            raw::Hash::from_mixed(hash)
        };
        array.prefetch_later(bucket + PREFETCHED);
        let first = array.bucket_at(bucket);
        let word = lock(first).expect("moved by the thread that has claimed it, once");
        for_each_live(first, word, |place, tag| {
            // SAFETY: the entry is live, and the bucket is locked.
            let hash = hash_of(&unsafe { place.entry() }.key);
            // Uses only the added bits of the hash. The others might differ from those of the
            // bucket, if `Hash` returns something else each time. Then this would write to a bucket
            // that another thread moves.
            let part = next.bucket_of(hash) & ((1 << added_bits) - 1);
            let to = next.bucket_at((bucket << added_bits) + part);
            // SAFETY: no other thread has access before the flag is set, and the entry is live.
            let done = unsafe { append_to_bucket(to, tag, place.bits()) };
            done.unwrap_or_else(|| Segment::<K, V>::abort());
        });
        chains.extend(first.later());
        leave_behind(first);
    }

    /// Moves several buckets to one of a smaller array. Adds their later segments to `chains`.
    ///
    /// Holds the locks of all of them until the last one is copied: once one has the flag *moved*,
    /// updates may write to the bucket of the smaller array. There is no deadlock: other movers
    /// lock other buckets, and no other thread waits for a bucket while it holds one.
    fn merge(&self, array: Array<'_, K, V>, to: usize, next: Array<'_, K, V>, chains: &mut Vec<Link<K, V>>) {
        let lost_bits = array.bits() - next.bits();
        assert!(lost_bits <= MAX_SHRINK);
        let parts = || (to << lost_bits..(to + 1) << lost_bits).map(|bucket| array.bucket_at(bucket));
        for first in parts() {
            let word = lock(first).expect("moved by the thread that has claimed it, once");
            for_each_live(first, word, |place, tag| {
                // SAFETY: no other thread has access before a flag is set, and the entry is live.
                let done = unsafe { append_to_bucket(next.bucket_at(to), tag, place.bits()) };
                done.unwrap_or_else(|| Segment::<K, V>::abort());
            });
            chains.extend(first.later());
        }
        // Lookups find an entry in its part until that has the flag. A clear that comes from a part
        // with the flag must not remove the entry from the new bucket before that.
        let merged = next.bucket_at(to);
        let word = lock(merged).expect("the next array is not being resized yet");
        parts().for_each(leave_behind);
        unlock(merged, word);
    }

    /// Finishes a resize in progress: moves the buckets that no thread has claimed, and waits until
    /// other threads have moved theirs.
    fn finish_resize(&self) {
        loop {
            let guard = read();
            let array = self.array(&guard);
            let Some(next) = array.next() else { return };
            if !self.move_some(array, next, &guard) {
                drop(guard);
                yield_now();
            }
        }
    }

    /// Resizes on the calling thread, in several steps if necessary. `wanted` is called with the
    /// number of bits of the present array, and returns the number that it should have. The resize
    /// ends when they are the same, or `wanted` returns `None`. Waits for readers if the table
    /// shrinks.
    ///
    /// # Panics
    ///
    /// Panics if this thread holds a lock of the table: the thread that holds the resizer's mutex
    /// may be waiting for that lock.
    pub(crate) fn resize_now(&self, wanted: impl Fn(u32) -> Option<u32>) -> Result<(), AllocError> {
        reentrancy::assert_outside(self);
        // No thread waits for readers, or runs deferred functions, while it holds the mutex: a
        // reader or a deferred function may resize the table, and would wait for the mutex.
        while !without_reclaiming(|| self.resize_if_settled(&wanted))? {
            wait_for_readers();
        }
        Ok(())
    }

    /// Resizes like [`resize_now`](Self::resize_now). Returns false if readers have to leave before
    /// the table can shrink.
    fn resize_if_settled(&self, wanted: impl Fn(u32) -> Option<u32>) -> Result<bool, AllocError> {
        let _resizer = self.resizer.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            self.finish_resize();
            match self.begin(&wanted, &read())? {
                Begun::Yes => {}
                Begun::NotNeeded => return Ok(true),
                Begun::MustWait => return Ok(false),
            }
        }
    }
}

impl<K, V, S> Table<K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
    #[inline(always)]
    pub(super) fn count_inserted(self: &Arc<Self>, guard: &Guard) {
        if self.count.add(1, || guard.thread_index()) {
            self.check_size(1, guard);
        }
    }

    #[inline(always)]
    pub(super) fn count_removed(self: &Arc<Self>, removed: usize, guard: &Guard) {
        if self.count.add(-(removed as isize), || guard.thread_index()) {
            self.check_size(-1, guard);
        }
    }

    /// Moves a few buckets if a resize is in progress. Otherwise begins a resize if one is needed.
    /// `change` is positive if the number of entries has grown.
    #[cold]
    fn check_size(self: &Arc<Self>, change: i32, guard: &Guard) {
        let array = self.array(guard);
        if let Some(next) = array.next() {
            self.move_some(array, next, guard);
        } else if change > 0 {
            self.grow_if_needed(guard);
        } else {
            self.shrink_if_needed(guard);
        }
    }

    fn grow_if_needed(self: &Arc<Self>, guard: &Guard) {
        if self.policy.resizing() != Resizing::Automatic {
            return;
        }
        let Some(_resizer) = self.try_lock_resizer() else { return };
        let wanted = |present| self.wanted(present).filter(|&wanted| wanted > present);
        // Without memory the table stays as it is, and a later update tries again.
        if let Ok(Begun::Yes) = self.begin(wanted, guard) {
            self.ask_worker();
        }
    }

    pub(super) fn shrink_if_needed(self: &Arc<Self>, guard: &Guard) {
        let bits = self.array(guard).bits();
        if self.policy.resizing() == Resizing::Automatic && self.wanted(bits).is_some_and(|wanted| wanted < bits) {
            self.ask_worker();
        }
    }

    fn ask_worker(self: &Arc<Self>) {
        // AcqRel: pairs with the exchange in `advance_resize`.
        // litmus: resize-requested
        if !self.requested.swap(true, AcqRel) && !worker::request(Arc::downgrade(self) as Weak<dyn worker::Resize>) {
            // Relaxed: no request was made. A later update makes one.
            self.requested.store(false, Relaxed);
        }
    }
}

impl<K, V, S> worker::Resize for Table<K, V, S>
where
    K: Hash + Eq + Relocatable,
    V: Relocatable,
    S: BuildHasher + Send + Sync + 'static,
{
    fn advance_resize(&self) -> Progress {
        // Cleared before this thread reads the count, so that a later update makes a new request.
        // AcqRel: pairs with the exchange in `ask_worker`. This thread sees the updates that found
        // the flag set, and so made no request.
        // litmus: resize-requested
        self.requested.swap(false, AcqRel);
        loop {
            let guard = read();
            let array = self.array(&guard);
            if let Some(next) = array.next() {
                if !self.move_some(array, next, &guard) {
                    return Progress::WaitsBriefly;
                }
                continue;
            }
            if self.wanted(array.bits()).is_none() {
                return Progress::Done;
            }
            let Some(_resizer) = self.try_lock_resizer() else { return Progress::WaitsBriefly };
            match self.begin(|present| self.wanted(present), &guard) {
                Ok(Begun::Yes) => {}
                // Without memory the table stays as it is, and a later update makes a new request.
                Ok(Begun::NotNeeded) | Err(_) => return Progress::Done,
                Ok(Begun::MustWait) => {
                    // The worker will look again, so updates need not make requests. Relaxed: a
                    // hint.
                    self.requested.store(true, Relaxed);
                    return Progress::WaitsForReaders;
                }
            }
        }
    }
}

/// Unlocks a bucket that has moved.
fn leave_behind<K, V>(first: &Segment<K, V>) {
    // A lookup that finds no entry in the first segment looks at the link next. If the word shows
    // that the bucket has moved, the link sends the lookup to the next array.
    first.set_next(first.next().with_full_filter());
    unlock(first, Word::MOVED_AWAY);
}

/// Returns the number of bits of the smallest array that has at least this number of buckets.
pub(crate) fn bits_for(buckets: usize) -> u32 {
    // `ilog2` of the next power of two, without overflow for the largest.
    buckets.max(2).saturating_sub(1).ilog2().saturating_add(1)
}
