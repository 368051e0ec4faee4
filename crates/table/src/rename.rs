//! Renaming: an entry gets another key, and so another place. At every instant lookups find it
//! under exactly one of the two keys.
//!
//! The ATC 2011 paper names this as future work (section 8). No store can change two places at
//! once, so a third one, the [link in flight](super::in_flight), determines under which key lookups
//! find the entry:
//!
//! 1. put the link in flight under the old key, and unlink it from the chain of its old hash;
//! 2. **wait for readers**: after that no lookup is traversing the link, so its place can change;
//! 3. switch the link in flight to the new key, under which alone it is found from then on; insert
//!    it into the chain of the new hash;
//! 4. **wait for readers**: after that no lookup is left that walked the new chain before the link
//!    was in it.
//!
//! If another link takes its place, no lookup is traversing that one, and the first wait is not
//! needed.
//!
//! A rename holds the resizer's mutex, and first waits until chains are cut. So a table has at most
//! one rename at a time, and no resize during it: each bucket has its own lock and chain, and there
//! is one link in flight. Only renames and the resizer hold two bucket locks at a time, so a rename
//! may take them in any order.

use std::fmt;
use std::ptr::NonNull;

use relativist_rcu::{Guard, is_reading, read, wait_for_readers, without_reclaiming};

use super::group::{Change, LockedGroup, Place};
use super::head::Word;
use super::resize::Resizer;
use super::table::{TableInner, assert_outside_sections};
use super::{Hash, Link, Table};
use relativist_core::sync::MutexGuard;

/// The reason why a link was not renamed. The table is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameError {
    /// No link matched the old key.
    NotFound,
    /// A link matches the new key.
    Taken,
    /// The hashes are equal ([`Table::rename`] only).
    SameHash,
}

impl fmt::Display for RenameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "the old key is not in the table",
            Self::Taken => "the new key is in the table",
            Self::SameHash => "the old key and the new key have the same hash",
        })
    }
}

impl std::error::Error for RenameError {}

impl Table {
    /// Moves the link that matches the old key to the place of a new key: the link itself, not a
    /// copy.
    ///
    /// At every instant lookups find it under exactly one of the two keys. Within one read section
    /// at most one rename takes effect: of three lookups there, of the old key, the new key, and
    /// the old key again, at least one finds the link and at least one does not.
    ///
    /// `rekey` changes the key of the object. Until `rename` returns, lookups and updates may
    /// compare the object with the old key, and after `rekey` has returned, with the new one. So
    /// after `rekey` the object must match both keys; once `rename` has returned, only the new key
    /// counts. (An object can have a field for each.)
    ///
    /// Lookups are as fast as usual, except that one that misses may walk its chain twice. Updates
    /// can run during a rename, also those of the old key: they may remove the link while it is in
    /// flight, or replace it, and then the new one is moved. Iterations, [`Table::find_all`] and
    /// [`Table::stats`] may miss the link, but never see it twice within one read section. A rename
    /// waits for readers twice, and for other renames and resizes of the table. `is_old`, `is_new`
    /// and `rekey` run under the locks of both buckets; [`Table::entry`] says what they may do.
    ///
    /// ATC 2011, section 8.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    /// use relativist_table::{Hash, Link, Table};
    /// use relativist_table::{Resizing, read};
    ///
    /// #[repr(C)]
    /// struct Object {
    ///     link: Link,
    ///     key: AtomicU64,
    ///     former: AtomicU64,
    /// }
    ///
    /// // SAFETY, all: the table has such objects only, and asks about those that are alive.
    /// let object = |link: NonNull<Link>| unsafe { link.cast::<Object>().as_ref() };
    /// let matches = |key| move |link| [&object(link).key, &object(link).former].iter().any(|its| its.load(Relaxed) == key);
    /// unsafe fn dispose(link: NonNull<Link>) {
    ///     drop(unsafe { Box::from_raw(link.cast::<Object>().as_ptr()) });
    /// }
    ///
    /// let table = Table::new(2, Resizing::Automatic, dispose)?;
    /// let (old, new) = (Hash::new(1), Hash::new(2));
    /// let link = Box::leak(Box::new(Object { link: Link::new(old), key: 1.into(), former: 0.into() }));
    /// unsafe { table.insert(NonNull::from(link).cast(), &read()) };
    ///
    /// let rekey = |link| {
    ///     object(link).former.store(1, Relaxed);
    ///     object(link).key.store(2, Relaxed);
    /// };
    /// table.rename((old, matches(1)), (new, matches(2)), rekey).unwrap();
    /// assert!(table.find(old, matches(1), &read()).is_none());
    /// assert!(table.find(new, matches(2), &read()).is_some());
    /// # Ok::<(), relativist_table::AllocError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if no link matches the old key (or another thread removes it), if one
    /// matches the new key, or if the hashes are equal, because then the places cannot be
    /// distinguished. `rekey` has not been called.
    ///
    /// # Panics
    ///
    /// * Inside a read section (a `Guard` of this thread is alive): it would wait for
    ///   itself.
    /// * When one of the functions panics. Then the link stays where it was.
    /// * When one of the functions leaves a read section open on this thread, by leaking the guard
    ///   or storing it in a thread-local variable. Then the link may or may not have been renamed.
    pub fn rename(
        &self,
        (old, is_old): (Hash, impl FnMut(NonNull<Link>) -> bool),
        (new, mut is_new): (Hash, impl FnMut(NonNull<Link>) -> bool),
        rekey: impl FnOnce(NonNull<Link>),
    ) -> Result<(), RenameError> {
        if old == new {
            return Err(RenameError::SameHash);
        }
        assert_outside_sections("renaming");
        without_reclaiming(|| self.rename_link((old, is_old), (new, &mut is_new), rekey))
    }

    fn rename_link(
        &self,
        (old, is_old): (Hash, impl FnMut(NonNull<Link>) -> bool),
        (new, mut is_new): (Hash, impl FnMut(NonNull<Link>) -> bool),
        rekey: impl FnOnce(NonNull<Link>),
    ) -> Result<(), RenameError> {
        let rename = self.begin_rename(old, new);
        rename.take(is_old, &mut is_new)?;
        wait_for_readers();
        let guard = read();
        let mut pair = rename.lock(&guard);
        let link = self.inner().in_flight.old_link(old).ok_or(RenameError::NotFound)?;
        pair.check_vacant(new, &mut is_new)?;
        rekey(link);
        // SAFETY: in flight under the lock of its hash: not removed, hence alive.
        unsafe { link.as_ref() }.set_hash(new);
        rename.finish(pair, link);
        drop(guard);
        assert_outside_sections("renaming");
        Ok(())
    }

    /// Replaces the link that matches the old key by another one, at the place of a new key, in one
    /// step as lookups see it. Returns the old link, which belongs to the caller: readers have left
    /// it, so it can be reclaimed at once.
    ///
    /// Use this for objects that cannot match two keys. `make` gets the old link and returns the
    /// new one. A concurrent iteration may see either, both, or none. Waits for readers once. The
    /// hashes may be equal. Otherwise like [`Table::rename`].
    ///
    /// # Errors
    ///
    /// Returns an error if no link matches the old key, or if one matches the new key. `make` has
    /// not been called.
    ///
    /// # Panics
    ///
    /// Panics where [`Table::rename`] does, and if the hash of the new link is not `new`. The table
    /// stays as it was, unless a read section was left open: then the link may have been replaced,
    /// and the old one is leaked.
    ///
    /// # Safety
    ///
    /// The link that `make` returns fulfils the contract of
    /// [`VacantEntry::insert`](super::VacantEntry::insert).
    pub unsafe fn rename_to(
        &self,
        (old, is_old): (Hash, impl FnMut(NonNull<Link>) -> bool),
        (new, is_new): (Hash, impl FnMut(NonNull<Link>) -> bool),
        make: impl FnOnce(NonNull<Link>) -> NonNull<Link>,
    ) -> Result<NonNull<Link>, RenameError> {
        assert_outside_sections("renaming");
        // SAFETY: guaranteed by the caller.
        without_reclaiming(|| unsafe { self.replace_renamed((old, is_old), (new, is_new), make) })
    }

    /// # Safety
    ///
    /// The same as for [`Table::rename_to`].
    unsafe fn replace_renamed(
        &self,
        (old, is_old): (Hash, impl FnMut(NonNull<Link>) -> bool),
        (new, is_new): (Hash, impl FnMut(NonNull<Link>) -> bool),
        make: impl FnOnce(NonNull<Link>) -> NonNull<Link>,
    ) -> Result<NonNull<Link>, RenameError> {
        let rename = self.begin_rename(old, new);
        let guard = read();
        let mut pair = rename.lock(&guard);
        let (place, link) = pair.find((old, is_old), (new, is_new))?;
        let other = make(link);
        // SAFETY: the caller guarantees that it is valid.
        let hash = unsafe { other.as_ref() }.hash();
        assert!(hash == new, "the link's hash is {hash:?}, the new key's {new:?}");
        // Panics if a head cannot hold this address, before anything has changed.
        let _ = Word::EMPTY.with_first(other.as_ptr());
        rename.unlink(&mut pair, place, link);
        rename.finish(pair, other);
        drop(guard);
        // If one of the caller's functions has left a section open, then this rename has not waited
        // for readers, and the old link must not be returned.
        assert_outside_sections("renaming");
        Ok(link)
    }

    /// Locks the resizer's mutex. While it is held, no deferred function may run, because a
    /// destructor may resize the table.
    fn begin_rename(&self, old: Hash, new: Hash) -> Rename<'_> {
        let inner = self.inner();
        let mut resizer = inner.lock_resizer();
        inner.settle(&mut resizer);
        inner.in_flight.prepare();
        let rename = Rename { inner, old, new, _turn: resizer };
        if !inner.in_flight.is_empty() {
            // The last rename could not wait, because it ran in a read section.
            wait_for_readers();
            inner.in_flight.clear();
        }
        rename
    }
}

/// A rename in progress. Dropping it restores a consistent state, at any stage.
struct Rename<'t> {
    inner: &'t TableInner,
    old: Hash,
    new: Hash,
    _turn: MutexGuard<'t, Resizer>,
}

impl Rename<'_> {
    fn lock<'g>(&'g self, guard: &'g Guard) -> Pair<'g> {
        self.inner.lock_pair(self.old, self.new, guard)
    }

    /// Takes the link out of its chain and puts it in flight.
    fn take(
        &self,
        is_old: impl FnMut(NonNull<Link>) -> bool,
        is_new: impl FnMut(NonNull<Link>) -> bool,
    ) -> Result<(), RenameError> {
        let guard = read();
        let mut pair = self.lock(&guard);
        let (place, link) = pair.find((self.old, is_old), (self.new, is_new))?;
        self.unlink(&mut pair, place, link);
        Ok(())
    }

    /// Puts the link in flight before it unlinks it, so that lookups find it at every instant. Its
    /// summary bit stays.
    fn unlink(&self, pair: &mut Pair<'_>, place: Place, link: NonNull<Link>) {
        self.inner.in_flight.answer_old_key(self.old, link);
        pair.old.splice_locked(place, place.after, Change::Unlink, self.old);
    }

    /// Makes lookups find `link`, which has the new hash and is in no chain, under the new hash,
    /// instead of the link that is in flight under the old one.
    fn finish(&self, mut pair: Pair<'_>, link: NonNull<Link>) {
        let new = pair.renamed();
        // The bit is set first, so that a lookup that has seen the switch passes the summary of the
        // head.
        new.announce_locked(self.new);
        self.inner.in_flight.answer_new_key(self.new, link);
        new.insert_locked(link, self.new);
        self.inner.in_flight.recheck();
        pair.old.forget_locked(self.old);
    }

    /// Puts the link back into the chain of the old hash, unless an update has removed it. The
    /// switch to the new key has not happened.
    fn put_back(&self) {
        let guard = read();
        let mut group = self.inner.lock_group(self.old, &guard);
        if let Some(link) = self.inner.in_flight.old_link(self.old) {
            group.insert_locked(link, self.old);
            self.inner.in_flight.recheck();
        }
    }
}

impl Drop for Rename<'_> {
    fn drop(&mut self) {
        if self.inner.in_flight.is_empty() {
            return;
        }
        if self.inner.in_flight.answers_old_key() {
            self.put_back();
        }
        // A function of the caller, such as a key's `Eq`, may have left a section open on this
        // thread. Waiting here would then never end. The next rename waits instead, and until then
        // lookups that miss walk twice.
        if is_reading() {
            return;
        }
        wait_for_readers();
        self.inner.in_flight.clear();
    }
}

/// The locked buckets of both hashes.
struct Pair<'g> {
    old: LockedGroup<'g>,
    /// `None` if it is the same.
    new: Option<LockedGroup<'g>>,
}

impl TableInner {
    /// Locks the buckets of both hashes. The caller holds the resizer's mutex.
    fn lock_pair<'g>(&'g self, old: Hash, new: Hash, guard: &'g Guard) -> Pair<'g> {
        let is_one = old.shares_bucket(new, self.array(guard).scale());
        Pair { old: self.lock_group(old, guard), new: (!is_one).then(|| self.lock_second_group(new, guard)) }
    }
}

impl<'g> Pair<'g> {
    fn renamed(&mut self) -> &mut LockedGroup<'g> {
        self.new.as_mut().unwrap_or(&mut self.old)
    }

    /// Returns the link to rename and its place, if it can be renamed.
    fn find(
        &mut self,
        (old, is_old): (Hash, impl FnMut(NonNull<Link>) -> bool),
        (new, is_new): (Hash, impl FnMut(NonNull<Link>) -> bool),
    ) -> Result<(Place, NonNull<Link>), RenameError> {
        let place = self.old.search(old, is_old);
        let link = place.found.ok_or(RenameError::NotFound)?;
        self.check_vacant(new, is_new)?;
        Ok((place, link))
    }

    fn check_vacant(&mut self, new: Hash, is_new: impl FnMut(NonNull<Link>) -> bool) -> Result<(), RenameError> {
        match self.renamed().search(new, is_new).found {
            Some(_) => Err(RenameError::Taken),
            None => Ok(()),
        }
    }
}
