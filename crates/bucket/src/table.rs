//! The table: lookups, and how an update finds its entry under the lock of a bucket.

use std::marker::PhantomData;
use std::ptr::NonNull;

#[cfg(not(relativist_loom))]
use relativist_core::sleepers::Sleepers;
use relativist_core::sync::{AtomicU64, full_fence};
use relativist_rcu::Guard;
use relativist_rcu::contention::Site;

use crate::array::{AllocError, Array, Current, Segment, Wanted};
use crate::form::{Form, Process, Readers};
use crate::word::{Hash, Word};

/// The guard of a form's domain.
pub type GuardOf<'d, F> = <<F as Form>::Domain as Readers>::Guard<'d>;

/// A concurrent hash table. Callers define which entries are equal, and pass hashes of entries.
///
/// Lookups are wait-free, also while the table grows or shrinks. [`design`](crate::design) explains
/// how.
pub struct Table<E, F: Form> {
    pub(crate) array: Current,
    pub(crate) domain: F::Domain,
    /// The binary logarithm of the number of buckets below which the table does not shrink by
    /// itself.
    pub(crate) floor: u32,
    pub(crate) grows: AtomicU64,
    pub(crate) shrinks: AtomicU64,
    /// The table owns entries, and the function makes it invariant in their type.
    _owns: PhantomData<Owned<E>>,
}

/// The function makes the table invariant in the type of its entries.
type Owned<E> = (E, fn(E) -> E);

// SAFETY: the table shares references to entries, moves them, and drops them on any thread. The
// domain is `Send`.
unsafe impl<E: Send + Sync, F: Form> Send for Table<E, F> {}
// SAFETY: as above.
unsafe impl<E: Send + Sync, F: Form> Sync for Table<E, F> {}

/// A table together with a read section of its domain. It has all operations on entries, and what
/// they return lives as long.
pub struct Section<'t, E, F: Form> {
    pub(crate) table: &'t Table<E, F>,
    guard: Held<'t, F>,
}

enum Held<'t, F: Form> {
    Own(GuardOf<'t, F>),
    Borrowed(&'t GuardOf<'t, F>),
}

/// How keys of entries are hashed and compared, when the table needs it itself. Both functions may
/// run user code; they run outside of locks.
///
/// Inline entries may have locks of their own, and change while they are locked. The table then
/// *closes* the entries of a bucket before it moves them. If a thread has locked one of them, the
/// bucket stays where it is for now. These functions run under the lock of the bucket.
pub trait Keys<E> {
    /// Whether inline entries have locks.
    const HAVE_LOCKS: bool = false;

    /// Returns the hash of an entry.
    fn hash(&self, entry: &E) -> Hash;

    /// Returns whether two entries have the same key.
    fn same(&self, one: &E, other: &E) -> bool;

    /// Closes an entry: nobody can lock it any more, or change it. Returns false if it is locked.
    fn close(&self, _entry: &E) -> bool {
        true
    }

    /// Opens an entry that was closed, and stays where it is.
    fn reopen(&self, _entry: &E) {}

    /// Opens the copy of an entry that was closed.
    ///
    /// # Safety
    ///
    /// No other thread can find the copy.
    unsafe fn open_copy(&self, _copy: NonNull<E>) {}
}

/// The locks of buckets.
static BUCKET: Site = Site::new("map_bucket");

impl<E, F: Form> Table<E, F> {
    /// Creates an empty table with room for `capacity` entries, below which it does not shrink by
    /// itself.
    ///
    /// # Errors
    ///
    /// Returns an error if the buckets cannot be allocated.
    pub fn new(capacity: usize) -> Result<Self, AllocError> {
        let bits = Self::bits_for(capacity);
        let array = Array::<E, F>::first(bits)?;
        array.family().count.size_changed(array.len());
        Ok(Self {
            array: Current::new(array),
            domain: F::Domain::new(),
            floor: bits,
            grows: AtomicU64::new(0),
            shrinks: AtomicU64::new(0),
            _owns: PhantomData,
        })
    }

    /// Enters a read section of the table's domain, in which operations on entries are possible.
    #[inline(always)]
    pub fn enter(&self) -> Section<'_, E, F> {
        Section { table: self, guard: Held::Own(self.domain.enter()) }
    }

    /// Like [`Table::enter`], in the read section of a guard.
    #[inline(always)]
    pub fn enter_with<'t>(&'t self, guard: &'t Guard) -> Section<'t, E, F>
    where
        F: Form<Domain = Process>,
    {
        Section { table: self, guard: Held::Borrowed(guard) }
    }

    /// Returns the table's domain.
    pub fn domain(&self) -> &F::Domain {
        &self.domain
    }

    /// Returns the number of entries. It is exact if no thread updates the table meanwhile.
    pub fn len(&self) -> usize {
        self.enter().array().family().count.sum()
    }

    /// Returns whether the table has no entries; see [`Table::len`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> usize {
        self.enter().array().len()
    }

    /// Returns the number of entries that the table has room for before it grows.
    pub fn capacity(&self) -> usize {
        Self::room(self.enter().array().bits())
    }
}

impl<'t, E, F: Form> Section<'t, E, F> {
    /// Returns the table.
    pub fn table(&self) -> &'t Table<E, F> {
        self.table
    }

    /// Returns the same section, which ends with this one and not with the result.
    pub fn borrow(&self) -> Section<'_, E, F> {
        Section { table: self.table, guard: Held::Borrowed(F::Domain::shorten(self.guard())) }
    }

    /// Returns the guard.
    #[inline(always)]
    pub fn guard(&self) -> &GuardOf<'t, F> {
        match &self.guard {
            Held::Own(guard) => guard,
            Held::Borrowed(guard) => guard,
        }
    }

    #[inline(always)]
    pub(crate) fn array(&self) -> Array<'_, E, F> {
        // SAFETY: an array is freed a grace period after it was replaced, and the guard was taken
        // before this loads it.
        unsafe { self.table.array.load() }
    }

    /// Finds the entry with this hash that `is_match` accepts. Wait-free.
    #[inline(always)]
    pub fn find(&self, hash: Hash, is_match: impl FnMut(&E) -> bool) -> Option<&E> {
        find_in(self.array(), hash, is_match)
    }

    /// Prefetches the word of a hash's bucket. To look up many keys, prefetch the words of all,
    /// then the slots, then the entries.
    #[inline(always)]
    pub fn prefetch_word(&self, hash: Hash) {
        self.array().prefetch_word(hash);
    }

    /// Prefetches the slots of a hash's bucket.
    #[inline(always)]
    pub fn prefetch_slots(&self, hash: Hash) {
        self.array().bucket(hash).prefetch();
    }

    /// Prefetches the entry that a lookup of this hash will compare first, if entries have memory
    /// of their own.
    #[inline(always)]
    pub fn prefetch_entry(&self, hash: Hash) {
        if !F::BOXED {
            return;
        }
        let array = self.array();
        let first = array.bucket(hash);
        let matches = first.word().matches(hash.tag());
        // SAFETY: the word was loaded under the guard.
        if let Some((_, entry)) = unsafe { first.find(matches, array.expected(hash), |_| true) } {
            relativist_core::prefetch::prefetch(entry.as_ptr());
        }
    }
}

/// See [`Section::find`].
#[inline(always)]
pub(crate) fn find_in<'g, E, F: Form>(
    array: Array<'g, E, F>,
    hash: Hash,
    mut is_match: impl FnMut(&E) -> bool,
) -> Option<&'g E> {
    let first = array.bucket(hash);
    // Most lookups need a slot. So its cache miss overlaps with that of the word.
    first.prefetch();
    let word = first.word();
    let wanted = Wanted { tag: hash.tag(), expected: array.expected(hash) };
    // SAFETY: the word was loaded under the guard.
    if let Some((_, entry)) = unsafe { first.find(word.matches(wanted.tag), wanted.expected, &mut is_match) } {
        // SAFETY: it lives as long as the guard.
        return Some(unsafe { entry.as_ref() });
    }
    // If the bucket has moved, no slot is live, and the filter has all bits.
    if !word.leads_on(wanted.tag) {
        return None;
    }
    find_further(array, first, word, hash, is_match)
}

/// Continues a lookup in the later segments of a bucket, or in the next array. Not inlined, so that
/// most lookups take few instructions: then the processor overlaps the cache misses of more of
/// them.
#[inline(never)]
fn find_further<'g, E, F: Form>(
    mut array: Array<'g, E, F>,
    mut first: Segment<'g, E, F>,
    mut word: Word,
    hash: Hash,
    mut is_match: impl FnMut(&E) -> bool,
) -> Option<&'g E> {
    let tag = hash.tag();
    // Tags and the mark that the bucket has moved come from the same load. Otherwise the bucket
    // could move, and an update change it in the next array, in between.
    while word.is_moved() {
        array = array.next().expect("a bucket moves to the next array");
        first = array.bucket(hash);
        word = first.word();
        // SAFETY: the word was loaded under the guard.
        if let Some((_, entry)) = unsafe { first.find(word.matches(tag), array.expected(hash), &mut is_match) } {
            // SAFETY: it lives as long as the guard.
            return Some(unsafe { entry.as_ref() });
        }
    }
    if !word.leads_on(tag) {
        return None;
    }
    let mut later = first.later();
    while let Some(segment) = later {
        let matches = segment.word().matches(tag);
        // SAFETY: as above.
        if let Some((_, entry)) = unsafe { segment.find(matches, array.expected(hash), &mut is_match) } {
            // SAFETY: as above.
            return Some(unsafe { entry.as_ref() });
        }
        later = segment.later();
    }
    None
}

/// A bucket whose lock the thread holds. No user code runs meanwhile, so nothing unwinds.
pub(crate) struct Locked<'g, E, F> {
    pub(crate) array: Array<'g, E, F>,
    pub(crate) first: Segment<'g, E, F>,
    /// The word as it will be when the bucket is unlocked.
    pub(crate) word: Word,
}

/// The place of an entry.
pub(crate) struct Place<'g, E, F> {
    pub(crate) segment: Segment<'g, E, F>,
    pub(crate) slot: usize,
    pub(crate) entry: NonNull<E>,
}

/// Locks the bucket of a hash, in the array to which it has moved, if its word shows that no entry
/// has the hash and the lock is free.
///
/// The word is the same when the bucket is locked. So no slot of the first segment has the tag
/// then, and the filter shows that no later segment has. (Whether the word has changed meanwhile
/// and back makes no difference.)
#[inline(always)]
pub(crate) fn lock_if_absent<'g, E, F: Form>(mut array: Array<'g, E, F>, hash: Hash) -> Option<Locked<'g, E, F>> {
    let (mut first, tag) = (array.bucket(hash), hash.tag());
    let mut word = first.word();
    while word.is_moved() {
        array = array.next().expect("a bucket moves to the next array");
        first = array.bucket(hash);
        first.prefetch_for_write();
        word = first.word();
    }
    let may_lock = !word.is_locked() && !word.leads_on(tag) && word.matches(tag).is_empty();
    if !may_lock || !first.try_exchange(word, word.locked()) {
        return None;
    }
    BUCKET.attempt().acquired();
    Some(Locked { array, first, word })
}

/// Locks the bucket of a first segment. `None` if it has moved.
#[inline(always)]
pub(crate) fn lock<'g, E, F: Form>(array: Array<'g, E, F>, first: Segment<'g, E, F>) -> Option<Locked<'g, E, F>> {
    let mut spins = 0;
    let mut attempt = BUCKET.attempt();
    loop {
        let word = first.word();
        if word.is_moved() {
            return None;
        }
        if word.is_locked() {
            attempt.contended();
            wait(first, &mut spins);
            continue;
        }
        if first.try_exchange(word, word.locked()) {
            attempt.acquired();
            return Some(Locked { array, first, word });
        }
    }
}

#[cfg(not(relativist_loom))]
static SLEEPERS: Sleepers = Sleepers::new();

/// Wakes the threads that wait for the lock of one of these buckets, which were marked as moved by
/// plain stores.
pub(crate) fn wake_all<'g, E: 'g, F: Form + 'g>(buckets: impl Iterator<Item = Segment<'g, E, F>>) {
    // Makes the stores visible before this looks for sleeping threads.
    // litmus: bucket-wake
    full_fence();
    #[cfg(not(relativist_loom))]
    if SLEEPERS.any() {
        buckets.for_each(|first| SLEEPERS.wake(first.key()));
    }
}

#[cfg(not(relativist_loom))]
#[cold]
fn wait<E, F: Form>(first: Segment<'_, E, F>, spins: &mut u32) {
    SLEEPERS.wait(spins, first.key(), || first.word().is_locked());
}

#[cfg(relativist_loom)]
fn wait<E, F: Form>(_: Segment<'_, E, F>, _: &mut u32) {
    relativist_core::sync::yield_now();
}

impl<'g, E, F: Form> Locked<'g, E, F> {
    /// Sets the word of the first segment, and unlocks the bucket. Returns the array.
    #[inline(always)]
    pub(crate) fn unlock(self) -> Array<'g, E, F> {
        self.first.exchange_word(self.word);
        // Also makes the exchange a full barrier.
        #[cfg(not(relativist_loom))]
        SLEEPERS.wake(self.first.key());
        #[cfg(relativist_loom)]
        relativist_core::sync::fence_after_exchange();
        self.array
    }

    /// Sets the word of the first segment, and keeps the lock.
    #[inline(always)]
    pub(crate) fn publish(&self) {
        self.first.set_word(self.word.locked());
    }
}

/// The entries of a bucket that an update has compared with its key, and found different. A read
/// section keeps their addresses from being used again, so an address is the identity of an entry.
pub struct Different<E> {
    few: [Option<NonNull<E>>; 4],
    count: usize,
    more: Vec<NonNull<E>>,
    /// The number of the entry that is expected next: entries are mostly asked for in the order in
    /// which they were added.
    cursor: usize,
}

impl<E> Default for Different<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Different<E> {
    /// Returns a list of no entries.
    #[inline(always)]
    pub fn new() -> Self {
        Self { few: [None; 4], count: 0, more: Vec::new(), cursor: 0 }
    }

    /// Adds an entry.
    pub fn add(&mut self, entry: NonNull<E>) {
        match self.few.get_mut(self.count) {
            Some(place) => *place = Some(entry),
            None => self.more.push(entry),
        }
        self.count += 1;
    }

    fn get(&self, index: usize) -> Option<NonNull<E>> {
        self.few.get(index).copied().unwrap_or_else(|| self.more.get(index - self.few.len()).copied())
    }

    /// Returns whether the entry was added. Takes constant time for one that comes next, so that
    /// buckets with many equal hashes take linear time.
    pub fn has(&mut self, entry: NonNull<E>) -> bool {
        let is_it = |&index: &usize| self.get(index) == Some(entry);
        let index = (self.cursor..self.count).chain(0..self.cursor).find(is_it);
        if let Some(index) = index {
            self.cursor = index + 1;
        }
        index.is_some()
    }
}

impl<E, F: Form> Section<'_, E, F> {
    /// Locks the bucket of a hash, and finds the entry that `is_match` accepts. `is_match` is
    /// called outside of the lock.
    ///
    /// The keys that have the hash are compared first, and the bucket is locked afterwards. Another
    /// thread may have changed it in between, even so that its word is the same. So this looks at
    /// the slots again under the lock. Entries that were compared are known by their addresses. If
    /// there is another one, this unlocks the bucket, compares that one, and locks again.
    #[inline(always)]
    pub(crate) fn lock_and_find<'g>(
        &'g self,
        hash: Hash,
        mut is_match: impl FnMut(&E) -> bool,
    ) -> (Locked<'g, E, F>, Option<Place<'g, E, F>>) {
        let mut different = Different::new();
        let compare = |entry: &E| {
            let is_it = is_match(entry);
            if !is_it {
                different.add(NonNull::from(entry));
            }
            is_it
        };
        let mut same = self.find(hash, compare).map(NonNull::from);
        loop {
            let locked = self.lock(hash);
            let mut unknown = None;
            let place = find_locked(&locked, hash, |entry| {
                let entry = NonNull::from(entry);
                if same == Some(entry) {
                    return true;
                }
                let is_known = different.has(entry);
                if !is_known {
                    unknown = Some(entry);
                }
                !is_known
            });
            let Some(unknown) = unknown else { return (locked, place) };
            locked.unlock();
            // SAFETY: it was in the table under the guard.
            if is_match(unsafe { unknown.as_ref() }) {
                same = Some(unknown);
            } else {
                different.add(unknown);
            }
        }
    }

    /// Locks the bucket of a hash.
    #[inline(always)]
    pub(crate) fn lock<'g>(&'g self, hash: Hash) -> Locked<'g, E, F> {
        let mut array = self.array();
        loop {
            if let Some(locked) = lock(array, array.bucket(hash)) {
                return locked;
            }
            array = array.next().expect("a bucket moves to the next array");
        }
    }
}

/// Finds the first entry of a locked bucket that has the hash and that `is_it` accepts.
#[inline(always)]
pub(crate) fn find_locked<'g, E, F: Form>(
    locked: &Locked<'g, E, F>,
    hash: Hash,
    mut is_it: impl FnMut(&E) -> bool,
) -> Option<Place<'g, E, F>> {
    let (tag, expected) = (hash.tag(), locked.array.expected(hash));
    // SAFETY: under the lock.
    if let Some((slot, entry)) = unsafe { locked.first.find(locked.word.matches(tag), expected, &mut is_it) } {
        return Some(Place { segment: locked.first, slot, entry });
    }
    if !locked.word.leads_on(tag) {
        return None;
    }
    locked.first.chain(locked.word).skip(1).find_map(|(segment, word)| {
        // SAFETY: as above.
        let found = unsafe { segment.find(word.matches(tag), expected, &mut is_it) };
        found.map(|(slot, entry)| Place { segment, slot, entry })
    })
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::form::Inline;
    use crate::relocate::Relocatable;

    struct Number(u64);

    // SAFETY: the field does not change through a shared reference.
    unsafe impl Relocatable for Number {}

    struct Numbers;

    impl Keys<Number> for Numbers {
        fn hash(&self, entry: &Number) -> Hash {
            Hash::new(entry.0)
        }

        fn same(&self, one: &Number, other: &Number) -> bool {
            one.0 == other.0
        }
    }

    /// B4: a thread that sleeps until a bucket is unlocked continues.
    #[test]
    fn sleepers_are_woken() {
        let table: Arc<Table<Number, Inline>> = Arc::new(Table::new(0).unwrap());
        let (sender, done) = mpsc::channel();
        let section = table.enter();
        let locked = section.lock(Hash::new(1));
        let updater = Arc::clone(&table);
        thread::spawn(move || {
            updater.enter().insert(Hash::new(1), Number(1), &Numbers);
            sender.send(()).unwrap();
        });
        assert!(done.recv_timeout(Duration::from_millis(200)).is_err(), "the bucket is locked");
        locked.unlock();
        done.recv_timeout(relativist_testing::patience()).expect("the bucket is unlocked");
    }
}
