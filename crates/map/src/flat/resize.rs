//! Resizing: the entries move to an array of another size, bucket by bucket, while lookups and
//! updates continue.
//!
//! No thread waits for readers in order to grow the table. A thread begins a resize by linking an
//! empty array to the present one. From then on each update moves a few buckets, and so does the
//! worker, until all have moved; the last thread publishes the new array. So threads that make the
//! map grow pay for it, and growth keeps up with them. A mover locks a bucket, copies its entries,
//! and sets the flag *moved* in its word. Lookups that find the flag go on in the next array.
//!
//! Several growths may follow each other while a reader stays in its section. Then a lookup of that
//! reader still begins at the present array, and passes on at most as often as the map grows during
//! the lookup. The arrays that the reader keeps from being freed are together smaller than the
//! present one. To shrink, a grace period has to pass since the last resize. Otherwise a map that
//! grows and shrinks in turn could collect arrays without bound.

use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, PoisonError, TryLockError, Weak};

use relativist_rcu::unwind::contain;
use relativist_rcu::{Guard, clock, read, wait_for_readers, without_reclaiming};

use super::array::{Array, for_each_live};
use super::bucket::{lock, unlock};
use super::chain::append_to_bucket;
use super::relocate::Relocatable;
use super::segment::{Link, Segment};
use super::table::Table;
use super::word::Word;
use crate::policy::Resizing;
use crate::raw::{self, AllocError};
use crate::reentrancy;
use crate::sync::{AcqRel, MutexGuard, Relaxed, yield_now};
use crate::worker;

/// The number of bits by which a table shrinks at most in one step. A mover locks the buckets that
/// become one all together.
const MAX_SHRINK: u32 = 3;

/// Whether a resize is in progress after [`Table::begin`].
enum Begun {
    Yes,
    /// The array has the size that is wanted.
    NotNeeded,
    /// Readers have to leave before the table can shrink.
    MustWait,
}

impl<K, V, S> Table<K, V, S> {
    /// Called when an array is published.
    pub(super) fn size_changed(&self, array: Array<'_, K, V>) {
        self.count.size_changed(array.len());
        let drive_interval = (array.len() / 32).clamp(64, 1024);
        // Relaxed: a heuristic.
        self.drive_interval.store(drive_interval, Relaxed);
    }

    /// Returns the number of bits of the array that the entries need, if it differs.
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

    /// Begins to move the entries to an array of as many bits as `wanted` returns for the bits of
    /// the present array; does nothing if it returns `None` or the same. The caller holds the
    /// resizer's mutex, so no other thread begins a resize meanwhile: the present array is the one
    /// that is replaced.
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
        array.begin_move(Array::allocate(wanted.max(present.saturating_sub(MAX_SHRINK)))?);
        Ok(Begun::Yes)
    }

    /// Returns whether a grace period has passed since the present array was published.
    fn has_settled(&self) -> bool {
        // Relaxed: written before the array was published, which the caller has loaded.
        let settled = clock::ended() >= self.published.load(Relaxed) + clock::GRACE_PERIODS;
        if !settled {
            clock::drive();
        }
        settled
    }

    /// Publishes the array to which all buckets have moved.
    fn finish(&self, array: Array<'_, K, V>, next: Array<'_, K, V>, guard: &Guard) {
        let counter = if next.bits() > array.bits() { &self.grows } else { &self.shrinks };
        // Relaxed, all: a statistic, and what `publish` below releases.
        counter.fetch_add(1, Relaxed);
        self.published.store(clock::begun(guard), Relaxed);
        self.size_changed(next);
        self.array.publish(next);
        // SAFETY: lookups that begin now start at the next array.
        unsafe { array.retire() };
    }
}

impl<K: Hash, V, S: BuildHasher> Table<K, V, S> {
    /// Moves a few buckets if a resize is in progress.
    #[inline(always)]
    pub(super) fn help_to_move(&self, guard: &Guard) {
        let array = self.array(guard);
        if let Some(next) = array.next() {
            self.move_some(array, next, guard);
        }
    }

    /// Moves a few buckets. Returns false if other threads have moved them all, or are about to.
    ///
    /// # Panics
    ///
    /// Panics if this thread holds a lock of the table.
    #[cold]
    fn move_some(&self, array: Array<'_, K, V>, next: Array<'_, K, V>, guard: &Guard) -> bool {
        // `Hash` of keys runs under the locks.
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

    /// Moves one bucket to several of a larger array, and adds its later segments to `chains`.
    fn split(&self, array: Array<'_, K, V>, bucket: usize, next: Array<'_, K, V>, chains: &mut Vec<Link<K, V>>) {
        let added_bits = next.bits() - array.bits();
        let hash_of = |key: &K| {
            // A panic must not leave the bucket locked, or half moved. Lookups will not find the
            // entry, but iterations will.
            let mut hash = 0;
            contain(|| hash = self.hash(key).get());
            raw::Hash::from_mixed(hash)
        };
        let first = array.bucket_at(bucket);
        let word = lock(first).expect("moved by the thread that has claimed it, once");
        for_each_live(first, word, |place, tag| {
            // SAFETY: live under the lock.
            let hash = hash_of(&unsafe { place.entry() }.key);
            // Only the bits that are new: a `Hash` that returns something else each time must not
            // make this write to a bucket of another thread.
            let part = next.bucket_of(hash) & ((1 << added_bits) - 1);
            let to = next.bucket_at((bucket << added_bits) + part);
            // SAFETY: no other thread has access before the flag is set, and the entry is live.
            let done = unsafe { append_to_bucket(to, tag, place.bits()) };
            done.unwrap_or_else(|| Segment::<K, V>::abort());
        });
        chains.extend(first.later());
        unlock(first, word.moved());
    }

    /// Moves several buckets to one of a smaller array, and adds their later segments to
    /// `chains`.
    fn merge(&self, array: Array<'_, K, V>, to: usize, next: Array<'_, K, V>, chains: &mut Vec<Link<K, V>>) {
        let lost_bits = array.bits() - next.bits();
        assert!(lost_bits <= MAX_SHRINK);
        let mut words = [Word::EMPTY; 1 << MAX_SHRINK];
        let parts = || (to << lost_bits..(to + 1) << lost_bits).map(|bucket| array.bucket_at(bucket));
        for (first, locked) in parts().zip(&mut words) {
            *locked = lock(first).expect("moved by the thread that has claimed it, once");
            for_each_live(first, *locked, |place, tag| {
                // SAFETY: no other thread has access before a flag is set, and the entry is live.
                let done = unsafe { append_to_bucket(next.bucket_at(to), tag, place.bits()) };
                done.unwrap_or_else(|| Segment::<K, V>::abort());
            });
            chains.extend(first.later());
        }
        parts().zip(words).for_each(|(first, word)| unlock(first, word.moved()));
    }

    /// Moves the buckets that are left of a resize in progress, and waits until other threads have
    /// moved theirs.
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

    /// Resizes on the calling thread until the array has as many bits as `wanted` returns for its
    /// bits, or it returns `None`. Waits for readers if the table shrinks.
    ///
    /// # Panics
    ///
    /// Panics if this thread holds a lock of the table, for which the holder of the mutex may wait.
    pub(crate) fn resize_now(&self, wanted: impl Fn(u32) -> Option<u32>) -> Result<(), AllocError> {
        reentrancy::assert_outside(self);
        // No thread waits for readers, or runs deferred functions, while it holds the mutex:
        // functions may resize the table, too.
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
        if self.count.add(1, guard) {
            self.grow_if_needed(guard);
        }
    }

    #[inline(always)]
    pub(super) fn count_removed(self: &Arc<Self>, removed: usize, guard: &Guard) {
        if self.count.add(-removed.cast_signed(), guard) {
            self.shrink_if_needed(guard);
        }
    }

    #[cold]
    fn grow_if_needed(self: &Arc<Self>, guard: &Guard) {
        let array = self.array(guard);
        if self.policy.resizing != Resizing::Automatic || array.next().is_some() {
            return;
        }
        let Some(_resizer) = self.try_lock_resizer() else { return };
        let wanted = |present| self.wanted(present).filter(|&wanted| wanted > present);
        // Without memory the table stays as it is, and a later update tries again.
        if let Ok(Begun::Yes) = self.begin(wanted, guard) {
            self.ask_worker();
        }
    }

    #[cold]
    fn shrink_if_needed(self: &Arc<Self>, guard: &Guard) {
        let bits = self.array(guard).bits();
        if self.policy.resizing == Resizing::Automatic && self.wanted(bits).is_some_and(|wanted| wanted < bits) {
            self.ask_worker();
        }
    }

    fn ask_worker(self: &Arc<Self>) {
        // AcqRel: pairs with the one in `advance_resize`.
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
    fn advance_resize(&self) -> bool {
        // Cleared before this thread reads the count, so that a later update makes a new request.
        // AcqRel: pairs with the one in `ask_worker`. This thread sees the updates that found it
        // set.
        self.requested.swap(false, AcqRel);
        loop {
            let guard = read();
            let array = self.array(&guard);
            if let Some(next) = array.next() {
                if !self.move_some(array, next, &guard) {
                    return true;
                }
                continue;
            }
            if self.wanted(array.bits()).is_none() {
                return false;
            }
            let Some(_resizer) = self.try_lock_resizer() else { return true };
            match self.begin(|present| self.wanted(present), &guard) {
                Ok(Begun::Yes) => {}
                // Without memory the table stays as it is, and a later update makes a new request.
                Ok(Begun::NotNeeded) | Err(_) => return false,
                Ok(Begun::MustWait) => {
                    // Updates need not make requests, because the worker will look again. Relaxed:
                    // a hint.
                    self.requested.store(true, Relaxed);
                    return true;
                }
            }
        }
    }
}

pub(crate) fn bits_for(buckets: usize) -> u32 {
    // `ilog2` of the next power of two, without overflow for the largest.
    buckets.max(2).saturating_sub(1).ilog2().saturating_add(1)
}
