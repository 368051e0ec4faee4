//! Two updates of a bucket that is not part of a resize: insertion of a link whose key is absent,
//! and removal of a given link. They do what an [`Entry`] does, in fewer instructions: an entry
//! has to be prepared for a resize, and is moved through memory. They also need fewer
//! read-modify-write operations, which cost more than all other instructions. A cache that is full
//! does both updates for each new key.
//!
//! If another thread holds the lock of the bucket, or the bucket is part of a resize, an entry does
//! the update.

use std::ptr::NonNull;

use relativist_rcu::Guard;

use super::group::{Change, Place, prepare, walk};
use super::hash::Scale;
use super::head::{Head, Word};
use super::inner::TableInner;
use super::link::AnyLink;
use super::{Entry, Hash, Table};
use relativist_core::reentrancy;
use relativist_core::sync::full_fence;

/// The lock of a bucket that is not part of a resize. Unlocks when dropped, unless it was unlocked
/// before, and leaves the bucket as it was.
///
/// Methods that unlock take `&mut self`: passing the struct by value would copy it through memory.
struct LockedBucket<'g, L: AnyLink> {
    inner: &'g TableInner<L>,
    head: &'g Head,
    /// What `head` held when it was locked.
    word: Word,
    scale: Scale,
    is_locked: bool,
}

impl<L: AnyLink> TableInner<L> {
    /// Locks the bucket of this hash, unless it is locked or part of a resize.
    ///
    /// # Panics
    ///
    /// Panics if this thread holds another lock of the table.
    #[inline(always)]
    fn try_lock_bucket<'g>(&'g self, hash: Hash, guard: &'g Guard) -> Option<LockedBucket<'g, L>> {
        reentrancy::enter(self);
        let (head, scale) = self.array(guard).head_and_scale(hash);
        match head.try_lock_if_settled() {
            Some(word) => Some(LockedBucket { inner: self, head, word, scale, is_locked: true }),
            None => {
                reentrancy::leave(self);
                None
            }
        }
    }
}

impl<L: AnyLink> TableInner<L> {
    /// Inserts a link whose hash comes before all others of its bucket, in one step and without a
    /// lock. Returns whether it did: the summary has to show where the link belongs, and the bucket
    /// must be neither locked nor part of a resize.
    ///
    /// The exchange succeeds only if the head holds what was read. So at that instant the bucket is
    /// unlocked and not part of a resize, and it has no link with this hash, because its bit in the
    /// summary is clear.
    ///
    /// # Panics
    ///
    /// Panics if this thread holds a lock of the table.
    ///
    /// # Safety
    ///
    /// The same as for [`VacantEntry::insert`](super::VacantEntry::insert).
    #[inline(always)]
    unsafe fn try_insert_first(&self, new: NonNull<L>, hash: Hash, guard: &Guard) -> bool {
        reentrancy::assert_outside(self);
        let (head, scale) = self.array(guard).head_and_scale(hash);
        let word = head.load();
        if !word.is_free_and_settled() || !word.is_after(hash, scale) {
            return false;
        }
        prepare(new, hash, word.first());
        head.try_replace(word, word.with_first(new.as_ptr()).with_summary_of(hash, scale))
    }
}

impl<'g, L: AnyLink> LockedBucket<'g, L> {
    /// Sets what the head holds from now on, and unlocks it.
    #[inline(always)]
    fn unlock(&mut self, word: Word) {
        self.head.unlock(word);
        self.leave();
    }

    /// Like [`unlock`](Self::unlock), without a full barrier. The caller executes one before it
    /// wakes the threads that wait for the lock, and before it looks anything up (T3).
    #[inline(always)]
    fn unlock_without_barrier(&mut self, word: Word) -> Waiters<'g> {
        self.head.unlock_without_barrier(word);
        self.leave();
        Waiters(self.head)
    }

    #[inline(always)]
    fn leave(&mut self) {
        reentrancy::leave(self.inner);
        self.is_locked = false;
    }
}

impl<L: AnyLink> Drop for LockedBucket<'_, L> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.is_locked {
            self.unlock(self.word);
        }
    }
}

/// The threads that wait for the lock of a bucket that was unlocked without a full barrier.
#[must_use = "a thread may sleep until it is woken"]
pub struct Waiters<'g>(&'g Head);

impl Waiters<'_> {
    /// Wakes the threads. Call after a full barrier, or after a read-modify-write operation on any
    /// atomic, such as unlocking a mutex, which this makes a full barrier.
    #[inline(always)]
    pub fn wake(self) {
        self.0.wake_waiters();
    }
}

/// Another thread holds the lock of the bucket, or the bucket is part of a resize.
pub struct Unsettled;

/// A link that was unlinked, and now belongs to the caller.
pub struct Unlinked<'g, L> {
    /// The pointer with which it was inserted.
    pub link: NonNull<L>,
    /// Those that wait for the bucket.
    pub waiters: Waiters<'g>,
}

impl<L: AnyLink> Table<L> {
    /// Inserts `new`, unless there is a link with its hash for which `is_match` returns true.
    /// Returns whether it did. Faster than [`Table::entry`]: in most cases it takes no lock.
    ///
    /// Blocks like [`Table::entry`], and `is_match` runs under the lock of the bucket.
    ///
    /// # Safety
    ///
    /// The same as for [`VacantEntry::insert`](super::VacantEntry::insert).
    ///
    /// # Panics
    ///
    /// Panics where [`Table::entry`] does, and if `new` is a [`CompactLink`](super::CompactLink)
    /// that is too far from another link of the table.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use relativist_table::{Hash, Link, Table};
    /// use relativist_table::{Resizing, read};
    ///
    /// unsafe fn dispose(link: NonNull<Link>) {
    ///     drop(unsafe { Box::from_raw(link.as_ptr()) });
    /// }
    /// let table = Table::new(64, Resizing::Automatic, dispose)?;
    /// let guard = read();
    /// let link = NonNull::from(Box::leak(Box::new(Link::new(Hash::new(7)))));
    /// // SAFETY: a fresh link, which `dispose` can free.
    /// assert!(unsafe { table.insert_if_absent(link, |_| true, &guard) });
    ///
    /// let other = NonNull::from(Box::leak(Box::new(Link::new(Hash::new(7)))));
    /// // SAFETY: as above. It is not inserted, so it still belongs to this code.
    /// unsafe {
    ///     assert!(!table.insert_if_absent(other, |_| true, &guard));
    ///     dispose(other);
    /// }
    /// # Ok::<(), relativist_table::AllocError>(())
    /// ```
    #[inline(always)]
    pub unsafe fn insert_if_absent(
        &self,
        new: NonNull<L>,
        mut is_match: impl FnMut(NonNull<L>) -> bool,
        guard: &Guard,
    ) -> bool {
        // SAFETY: the caller guarantees that it is valid.
        let hash = unsafe { new.as_ref() }.hash();
        // SAFETY: guaranteed by the caller.
        if unsafe { self.inner().try_insert_first(new, hash, guard) } {
            self.count_inserted(guard);
            return true;
        }
        let Some(mut bucket) = self.inner().try_lock_bucket(hash, guard) else {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.insert_entry_if_absent(new, is_match, guard) };
        };
        let place = walk(bucket.word.first(), hash, &mut is_match);
        if place.found.is_some() {
            return false;
        }
        // SAFETY: guaranteed by the caller. The bucket is still locked.
        unsafe { bucket.insert(place, new, hash) };
        self.count_inserted(guard);
        true
    }

    /// # Safety
    ///
    /// The same as for [`Table::insert_if_absent`].
    #[cold]
    unsafe fn insert_entry_if_absent(
        &self,
        new: NonNull<L>,
        is_match: impl FnMut(NonNull<L>) -> bool,
        guard: &Guard,
    ) -> bool {
        // SAFETY: the caller guarantees that it is valid.
        match self.entry(unsafe { new.as_ref() }.hash(), is_match, guard) {
            Entry::Vacant(entry) => {
                // SAFETY: guaranteed by the caller.
                unsafe { entry.insert(new) };
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// Unlinks exactly this link, and returns the pointer with which it was inserted; it now
    /// belongs to the caller. Returns `None` if it is not in the table.
    /// [`OccupiedEntry::replace`](super::OccupiedEntry::replace) says how to reclaim it.
    ///
    /// Blocks like [`Table::entry`].
    ///
    /// # Panics
    ///
    /// Panics where [`Table::entry`] does.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use relativist_table::{Hash, Link, Table};
    /// use relativist_table::{Resizing, read};
    ///
    /// unsafe fn dispose(link: NonNull<Link>) {
    ///     drop(unsafe { Box::from_raw(link.as_ptr()) });
    /// }
    /// let table = Table::new(64, Resizing::Automatic, dispose)?;
    /// let link = NonNull::from(Box::leak(Box::new(Link::new(Hash::new(7)))));
    /// // SAFETY: a fresh link, which `dispose` can free.
    /// unsafe { table.insert(link, &read()) };
    /// // SAFETY: in the table, and so alive.
    /// assert_eq!(table.unlink(unsafe { link.as_ref() }, &read()), Some(link));
    ///
    /// relativist_rcu::wait_for_readers();
    /// // SAFETY: unlinked, and no lookup can be using it any more.
    /// unsafe { dispose(link) };
    /// # Ok::<(), relativist_table::AllocError>(())
    /// ```
    pub fn unlink(&self, link: &L, guard: &Guard) -> Option<NonNull<L>> {
        match self.try_unlink(link, guard) {
            Ok(unlinked) => unlinked.map(|Unlinked { link, waiters }| {
                // Pairs with the full barrier of another update: two threads that each update and
                // then look up what the other updated do not both miss (T3).
                // litmus: unlink-then-lookup, sleep
                full_fence();
                waiters.wake();
                link
            }),
            Err(Unsettled) => self.unlink_entry(link, guard),
        }
    }

    /// Unlinks exactly this link. Returns `None` if it is not in the table, and an error if another
    /// thread holds the lock of its bucket, or the bucket is part of a resize. So it never waits.
    ///
    /// # Panics
    ///
    /// Panics if this thread holds another lock of the table.
    #[inline(always)]
    pub fn try_unlink<'g>(&'g self, link: &L, guard: &'g Guard) -> Result<Option<Unlinked<'g, L>>, Unsettled> {
        let (hash, this) = (link.hash(), NonNull::from(link));
        let Some(mut bucket) = self.inner().try_lock_bucket(hash, guard) else { return Err(Unsettled) };
        let first = NonNull::new(bucket.word.first()).filter(|&first| first == this);
        let unlinked = match first {
            Some(only) if link.next().is_null() => {
                Some(Unlinked { link: only, waiters: bucket.unlock_without_barrier(Word::EMPTY) })
            }
            _ => bucket.unlink_among_others(this, hash),
        };
        if unlinked.is_some() {
            self.count_removed(1, guard);
        }
        Ok(unlinked)
    }

    #[cold]
    fn unlink_entry(&self, link: &L, guard: &Guard) -> Option<NonNull<L>> {
        match self.entry(link.hash(), |other| other == NonNull::from(link), guard) {
            Entry::Occupied(entry) => Some(entry.remove()),
            Entry::Vacant(_) => None,
        }
    }
}

impl<L: AnyLink> LockedBucket<'_, L> {
    /// Inserts a link at its place, and unlocks.
    ///
    /// # Safety
    ///
    /// `new` is valid, and may be inserted. The place was found under this lock.
    unsafe fn insert(&mut self, place: Place<L>, new: NonNull<L>, hash: Hash) {
        prepare(new, hash, place.after);
        // Announced before its predecessor leads to it: see `group.rs`.
        if place.before.is_some() && !self.word.may_contain(hash, self.scale) {
            self.head.set_locked(self.word.with_summary_of(hash, self.scale));
        }
        let word = place.updated(self.word, self.scale, new.as_ptr(), Change::Insert, hash);
        place.link(new.as_ptr());
        self.unlock(word);
    }
}

impl<'g, L: AnyLink> LockedBucket<'g, L> {
    /// Unlinks a link that may have neighbours, and unlocks. Returns `None` if it is not there.
    fn unlink_among_others(&mut self, link: NonNull<L>, hash: Hash) -> Option<Unlinked<'g, L>> {
        let place = walk(self.word.first(), hash, |other| other == link);
        let found = place.found?;
        let word = place.updated(self.word, self.scale, place.after, Change::Remove, hash);
        place.link(place.after);
        Some(Unlinked { link: found, waiters: self.unlock_without_barrier(word) })
    }
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::thread;
    use std::time::Duration;

    use relativist_rcu::{barrier, defer_raw, read};

    use super::*;
    use crate::Link;
    use crate::policy::Resizing;
    use relativist_core::sync::{AtomicUsize, Relaxed};

    #[repr(C)]
    struct Object {
        link: Link,
        key: u64,
    }

    /// The number of objects that were made, and of those that were freed.
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static FREED: AtomicUsize = AtomicUsize::new(0);

    /// The top 16 bits of a hash: few enough that buckets have several links, and that some have
    /// equal hashes.
    fn hash_of(key: u64) -> Hash {
        Hash::from_mixed((key % 96).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48 << 48)
    }

    fn object(key: u64) -> NonNull<Link> {
        MADE.fetch_add(1, Relaxed);
        NonNull::from(Box::leak(Box::new(Object { link: Link::new(hash_of(key)), key }))).cast()
    }

    fn is(key: u64) -> impl FnMut(NonNull<Link>) -> bool {
        // SAFETY: the tables of these tests have such objects only.
        move |link| unsafe { link.cast::<Object>().as_ref() }.key == key
    }

    unsafe fn dispose(link: NonNull<Link>) {
        FREED.fetch_add(1, Relaxed);
        // SAFETY: guaranteed by the caller; all links are those of such objects.
        drop(unsafe { Box::from_raw(link.cast::<Object>().as_ptr()) });
    }

    fn retire(link: NonNull<Link>) {
        // SAFETY: unlinked, and any thread may drop it.
        unsafe { defer_raw(link.cast(), size_of::<Object>(), |link| dispose(link.cast())) };
    }

    /// Inserts a key, and returns whether it was absent.
    fn insert(table: &Table, key: u64) -> bool {
        let new = object(key);
        // SAFETY: a fresh object. If it was not inserted, no other code has it.
        let is_inserted = unsafe { table.insert_if_absent(new, is(key), &read()) };
        if !is_inserted {
            // SAFETY: as above.
            unsafe { dispose(new) };
        }
        is_inserted
    }

    /// Unlinks a key, and returns whether this thread did.
    fn unlink(table: &Table, key: u64) -> bool {
        let guard = read();
        let Some(found) = table.find(hash_of(key), is(key), &guard) else { return false };
        // SAFETY: found under the guard.
        let unlinked = table.unlink(unsafe { found.as_ref() }, &guard);
        assert!(unlinked.is_none_or(|unlinked| unlinked == found));
        unlinked.inspect(|&link| retire(link)).is_some()
    }

    /// T1, T8: threads insert and unlink keys of their own, and the same keys as other threads,
    /// while the table grows and shrinks. No update is lost, and no link is unlinked twice.
    #[test]
    fn updates_are_exact_during_resizes() {
        const ROUNDS: u64 = if cfg!(miri) { 20 } else { 4000 };
        const OWN: u64 = 64;
        let table = Table::new(2, Resizing::Manual, dispose).expect("memory for two buckets");
        let (inserted, unlinked) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let all_here = Barrier::new(4);
        thread::scope(|scope| {
            for number in 1..=3 {
                let (table, inserted, unlinked, all_here) = (&table, &inserted, &unlinked, &all_here);
                scope.spawn(move || {
                    all_here.wait();
                    for round in 0..ROUNDS {
                        let own = number * 1000 + round % OWN;
                        let is_first = round / OWN % 2 == 0;
                        assert_eq!(insert(table, own), is_first, "the turn of {own} in round {round}");
                        if !is_first {
                            assert!(unlink(table, own), "{own} was inserted");
                            assert!(!unlink(table, own), "{own} was unlinked");
                        }
                        let shared = round.wrapping_mul(number + 2) % 16;
                        inserted.fetch_add(usize::from(insert(table, shared)), Relaxed);
                        unlinked.fetch_add(usize::from(unlink(table, shared + 1)), Relaxed);
                    }
                });
            }
            scope.spawn(|| {
                all_here.wait();
                for round in 0..ROUNDS / 20 {
                    table.resize_to(2 << (round % 4 * 2)).expect("memory for some buckets");
                }
            });
        });
        let own = (1..=3).flat_map(|number| (0..OWN).map(move |n| number * 1000 + n));
        let own = own.filter(|&key| table.find(hash_of(key), is(key), &read()).is_some()).count();
        let shared = inserted.load(Relaxed) - unlinked.load(Relaxed);
        assert_eq!((table.len(), table.iter(&read()).count()), (own + shared, own + shared));
        drop(table);
        barrier();
        assert_eq!(MADE.load(Relaxed), FREED.load(Relaxed));
    }

    /// T9: if `is_match` panics, or updates the table, no lock is held and nothing has changed.
    #[test]
    fn a_panic_in_a_comparison_leaves_the_table_unlocked() {
        unsafe fn drop_link(link: NonNull<Link>) {
            // SAFETY: all links of this table are boxed.
            drop(unsafe { Box::from_raw(link.as_ptr()) });
        }
        let link = || NonNull::from(Box::leak(Box::new(Link::new(hash_of(1)))));
        let table = Table::new(2, Resizing::Manual, drop_link).expect("memory for two buckets");
        let (first, second) = (link(), link());
        // SAFETY: a fresh link.
        assert!(unsafe { table.insert_if_absent(first, |_| panic!("there is none to compare with"), &read()) });
        let compare = |is_match: &mut dyn FnMut() -> bool| {
            // SAFETY: a fresh link, or one that was not inserted.
            let insert = || unsafe { table.insert_if_absent(second, |_| is_match(), &read()) };
            catch_unwind(AssertUnwindSafe(insert))
        };
        assert!(compare(&mut || panic!("for the test")).is_err());
        // SAFETY: it is in the table.
        assert!(compare(&mut || table.unlink(unsafe { first.as_ref() }, &read()).is_some()).is_err());
        assert!(matches!(compare(&mut || true), Ok(false)));
        assert_eq!((table.len(), table.find(hash_of(1), |_| true, &read())), (1, Some(first)));
        assert!(matches!(compare(&mut || false), Ok(true)));
        // SAFETY: both are in the table, which gives them back here.
        unsafe {
            assert_eq!(table.unlink(second.as_ref(), &read()), Some(second));
            assert_eq!(table.unlink(second.as_ref(), &read()), None);
            drop_link(second);
        }
        assert_eq!((table.len(), table.iter(&read()).collect::<Vec<_>>()), (1, vec![first]));
    }

    /// Without the lock, a link is inserted only if no other thread has the lock, and only before
    /// all others.
    #[test]
    fn only_an_insertion_before_all_others_needs_no_lock() {
        unsafe fn drop_link(link: NonNull<Link>) {
            // SAFETY: all links of this table are boxed.
            drop(unsafe { Box::from_raw(link.as_ptr()) });
        }
        // All are in the same bucket, two for each bit of the summary.
        const PLACES: u64 = 32;
        let hash = |place: u64| Hash::from_mixed(place << 58);
        let link = |place| NonNull::from(Box::leak(Box::new(Link::new(hash(place)))));
        let table = Table::new(2, Resizing::Manual, drop_link).expect("memory for two buckets");
        let insert = |place| {
            let new = link(place);
            // SAFETY: a fresh link. If it was not inserted, no other code has it.
            unsafe {
                let is_inserted = table.insert_if_absent(new, |_| true, &read());
                if !is_inserted {
                    drop_link(new);
                }
                is_inserted
            }
        };
        thread::scope(|scope| {
            let guard = read();
            let Entry::Vacant(locked) = table.entry(hash(11), |_| true, &guard) else { panic!("it is empty") };
            // In an order in which some come first, and some behind others.
            let places = (0..PLACES).map(|n| n * 7 % PLACES).filter(|&place| place != 11);
            let inserting = scope.spawn(move || places.for_each(|place| assert!(insert(place))));
            // Long enough for a thread that does not wait.
            thread::sleep(Duration::from_millis(50));
            assert!(!inserting.is_finished());
            // SAFETY: a fresh link.
            unsafe { locked.insert(link(11)) };
        });
        assert!(!(0..PLACES).any(insert));
        let guard = read();
        // SAFETY: found under the guard.
        let found = table.iter(&guard).map(|link| unsafe { link.as_ref() }.hash());
        assert!(found.eq((0..PLACES).map(hash)));
    }
}
