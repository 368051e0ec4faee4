//! A bitmap of the buckets of an array that may have links. With it, iterating over a sparse table
//! takes time proportional to its links, not to its buckets. It is the list of potentially
//! non-empty buckets of Mosberger's "Map Library Design Notes" (1996, section 2.4), as a bitmap of
//! two levels that many threads can use.
//!
//! There is a bit for each bucket, and on the level above a bit for each word of these bits. The
//! bitmap is built lazily:
//!
//! * *Installed* empty, by an iteration that finds the table sparse. A table that is dense, or over
//!   which no thread iterates, has none; its updates only pay a load when they fill an empty
//!   bucket. After the installation they also set the bits of that bucket, unless these are set,
//!   *before* lookups can find the new link.
//! * *Opened* after a grace period: updates that did not see it ran in sections that began before
//!   the installation, and these have ended.
//! * *Filled* word by word, by the iterations that follow: they set the bits of all buckets in
//!   which they find links, and then mark the word as complete. This misses no bucket: the first
//!   link of a bucket was inserted either by an update that set the bit, or before the bitmap was
//!   opened. In the second case the iteration that filled the word found a link there, unless all
//!   were removed and an update that set the bit filled the bucket again.
//! * *Never cleared:* removals do not touch it. An iteration that finds that most of the bits are
//!   stale replaces it by an empty bitmap.
//!
//! During a resize an update sets the bits in each array that it changes. So this argument concerns
//! one array and its heads: an iteration skips a bucket only if it could have found the head empty.

use std::alloc::Layout;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

use relativist_rcu::{GracePeriod, defer_raw};

use super::Hash;
use super::array::Array;
use super::head::Head;
use relativist_core::memory;
use relativist_core::sync::{AcqRel, Acquire, AtomicBits, Relaxed, Release};

/// Smaller arrays get no bitmap, because iterating over them is fast enough.
const MIN_BUCKETS: usize = if cfg!(relativist_loom) { 4 } else { 1 << 12 };
/// A table is sparse when it has less than one link for this many buckets.
const SPARSE: usize = if cfg!(relativist_loom) { 2 } else { 8 };
/// Bits in a word.
const BITS: usize = u64::BITS as usize;

/// The bitmap of an array.
pub(super) struct Occupancy {
    /// Begins when the bitmap is installed. Set once, by the thread that installed it.
    grace: OnceLock<GracePeriod>,
    /// 0 until the grace period has passed; from then on, one more than the number of complete
    /// words at the start of `buckets`.
    progress: AtomicBits,
    /// A bit for each bucket. The bit in `words` is set first.
    buckets: Box<[AtomicBits]>,
    /// A bit for each word of `buckets`.
    words: Box<[AtomicBits]>,
}

impl<'a> Array<'a> {
    /// Returns whether an iteration over this number of links should skip empty buckets.
    pub(super) fn is_sparse(self, links: usize) -> bool {
        self.len() >= MIN_BUCKETS && links < self.len() / SPARSE
    }

    /// # Safety
    ///
    /// The caller is in a read section that lasts for `'a`.
    #[inline]
    pub(super) unsafe fn occupancy(self) -> Option<&'a Occupancy> {
        // Acquire: pairs with the Release in `replace_occupancy`.
        // litmus: occupancy-installed
        let occupancy = self.occupancy_pointer().load(Acquire);
        // SAFETY: freed with the array, or a grace period after it was replaced.
        unsafe { occupancy.as_ref() }
    }

    /// Called by an update that fills an empty bucket, before lookups can find the new link.
    ///
    /// # Safety
    ///
    /// The same as for [`Array::occupancy`].
    #[inline]
    pub(super) unsafe fn mark_occupied(self, hash: Hash) {
        // SAFETY: guaranteed by the caller.
        if let Some(occupancy) = unsafe { self.occupancy() } {
            occupancy.mark(hash.bucket(self.scale()));
        }
    }

    /// Installs a bitmap, or opens it if it is installed. This iteration may not be able to use it
    /// yet.
    ///
    /// # Safety
    ///
    /// The same as for [`Array::occupancy`].
    #[cold]
    pub(super) unsafe fn prepare_occupancy(self) {
        // SAFETY: guaranteed by the caller.
        match unsafe { self.occupancy() } {
            Some(occupancy) => occupancy.open_if_known(),
            // SAFETY: guaranteed by the caller.
            None => unsafe { self.replace_occupancy(None) },
        }
    }

    /// Replaces `old` by an empty bitmap. Does nothing if there is no memory for it, or if another
    /// thread has replaced it first.
    ///
    /// # Safety
    ///
    /// The same as for [`Array::occupancy`].
    #[cold]
    unsafe fn replace_occupancy(self, old: Option<&'a Occupancy>) {
        let Some(new) = Occupancy::allocate(self.len()) else { return };
        let old = old.map_or(null_mut(), |old| std::ptr::from_ref(old).cast_mut());
        // Release: pairs with the Acquire in `occupancy`.
        // litmus: occupancy-installed
        if self.occupancy_pointer().compare_exchange(old, new.as_ptr(), Release, Relaxed).is_err() {
            // SAFETY: no other thread has seen it.
            return unsafe { Occupancy::free(new) };
        }
        // SAFETY: installed, and this thread is in a read section.
        let new = unsafe { new.as_ref() };
        // This comes after the installation, so that updates in sections that begin later find the
        // bitmap.
        new.grace.set(GracePeriod::start()).expect("only the thread that installed it sets it");
        if let Some(old) = NonNull::new(old) {
            // SAFETY: this thread has just replaced it, and no other did.
            unsafe { Occupancy::retire(old) };
        }
    }

    /// Frees the bitmap with the array.
    ///
    /// # Safety
    ///
    /// No thread uses the array any more.
    pub(super) unsafe fn free_occupancy(self) {
        // Acquire: pairs with the Release in `replace_occupancy`.
        // litmus: occupancy-installed
        if let Some(occupancy) = NonNull::new(self.occupancy_pointer().load(Acquire)) {
            // SAFETY: it can only be found through the array, which no thread uses any more.
            unsafe { Occupancy::free(occupancy) };
        }
    }
}

impl Occupancy {
    fn allocate(buckets: usize) -> Option<NonNull<Self>> {
        let words = buckets.div_ceil(BITS);
        let occupancy = Self {
            grace: OnceLock::new(),
            progress: AtomicBits::new(0),
            buckets: zeroed(words)?,
            words: zeroed(words.div_ceil(BITS))?,
        };
        let memory = memory::allocate_zeroed(Layout::new::<Self>())?.cast();
        // SAFETY: fresh memory of this layout.
        unsafe { memory.write(occupancy) };
        Some(memory)
    }

    /// # Safety
    ///
    /// It came from [`Occupancy::allocate`], no thread uses it any more, and it is freed once.
    unsafe fn free(occupancy: NonNull<Self>) {
        // SAFETY: valid, and no thread uses it any more.
        unsafe { occupancy.drop_in_place() };
        // SAFETY: allocated with this layout.
        unsafe { memory::free(occupancy.cast(), Layout::new::<Self>()) };
    }

    /// # Safety
    ///
    /// No array leads to it any more, and no other thread frees it.
    unsafe fn retire(occupancy: NonNull<Self>) {
        // SAFETY: readers and updates find it through the array, within a section; it is freed
        // once.
        unsafe {
            let bytes = occupancy.as_ref().buckets.len() * size_of::<AtomicBits>();
            defer_raw(occupancy.cast(), bytes, |occupancy| Self::free(occupancy.cast()));
        }
    }

    fn progress(&self) -> usize {
        // Acquire: pairs with the Release in `open_if_known` and `fill`: the caller sees the bits
        // of the complete words.
        // litmus: occupancy-opened, occupancy-filled
        self.progress.load(Acquire) as usize
    }

    /// Opens the bitmap, so that it can be filled and used, if all updates see it.
    fn open_if_known(&self) {
        let is_known = || self.grace.get().is_some_and(GracePeriod::has_passed);
        if self.progress() == 0 && is_known() {
            // Release: pairs with the Acquire in `progress`: the caller of that sees what was done
            // in the sections for which the grace period has waited. If the exchange fails, another
            // thread has opened it.
            // litmus: occupancy-opened
            let _ = self.progress.compare_exchange(0, 1, Release, Relaxed);
        }
    }

    /// Sets the bits of a bucket.
    fn mark(&self, bucket: usize) {
        let (word, bit) = (bucket / BITS, 1 << (bucket % BITS));
        // Acquire: pairs with the Release in `set`: the bit above was set before.
        // litmus: occupancy-marked
        if self.buckets[word].load(Acquire) & bit == 0 {
            self.set(word, bit);
        }
    }

    #[cold]
    fn set(&self, word: usize, bits: u64) {
        // Relaxed: published by a later store of this thread, of a bit below or of the link.
        self.words[word / BITS].fetch_or(1 << (word % BITS), Relaxed);
        // Release: pairs with the Acquire in `mark`. Loom would not notice Relaxed here or there:
        // the bit above matters only with two or more words, and tables under loom have one.
        // litmus: occupancy-marked
        self.buckets[word].fetch_or(bits, Release);
    }

    /// Fills and completes `word`, which is the first that is not complete.
    fn fill(&self, word: usize, heads: &[Head]) {
        let heads = heads[word * BITS..].iter().take(BITS).enumerate();
        let bits = heads.fold(0, |bits, (n, head)| bits | u64::from(!head.load().is_empty()) << n);
        if bits != 0 {
            self.set(word, bits);
        }
        // AcqRel: Release pairs with the Acquire in `progress`; Acquire passes on what other
        // threads have filled before. If the exchange fails, another thread has filled the word.
        // litmus: occupancy-filled
        let _ = self.progress.compare_exchange(word as u64 + 1, word as u64 + 2, AcqRel, Relaxed);
    }

    /// Returns whether `next` may be called with this bucket: its word is complete, or the next to
    /// be filled.
    fn covers(&self, bucket: usize) -> bool {
        bucket / BITS < self.progress()
    }

    /// Returns the first bucket from this one on that may have links. The bucket must be covered.
    /// Fills words on the way.
    fn next(&self, mut bucket: usize, heads: &[Head]) -> Option<usize> {
        while bucket < heads.len() {
            let word = bucket / BITS;
            if word + 1 == self.progress() {
                self.fill(word, heads);
            }
            // Relaxed: a caller that must not miss a bit has seen the progress, or something that
            // happened after the bit was set.
            let bits = self.buckets[word].load(Relaxed) & !0 << (bucket % BITS);
            if bits != 0 {
                return Some(word * BITS + bits.trailing_zeros() as usize);
            }
            bucket = self.next_word(word + 1) * BITS;
        }
        None
    }

    /// Returns the first word from this one on that has bits or is not complete.
    fn next_word(&self, mut word: usize) -> usize {
        let good = self.progress() - 1;
        while word < good {
            // Relaxed: as in `next`.
            let bits = self.words[word / BITS].load(Relaxed) & !0 << (word % BITS);
            if bits != 0 {
                return good.min(word / BITS * BITS + bits.trailing_zeros() as usize);
            }
            word = (word / BITS + 1) * BITS;
        }
        good
    }
}

fn zeroed(words: usize) -> Option<Box<[AtomicBits]>> {
    let mut zeroed = Vec::new();
    zeroed.try_reserve_exact(words).ok()?;
    zeroed.resize_with(words, || AtomicBits::new(0));
    Some(zeroed.into_boxed_slice())
}

/// The state of an iteration that skips empty buckets: the bitmap that it uses, and how many of its
/// bits were stale.
#[derive(Default)]
pub(super) struct OccupancyCursor<'a> {
    occupancy: Option<&'a Occupancy>,
    followed: usize,
    stale: usize,
}

/// The next bucket of an iteration.
pub(super) enum NextBucket {
    /// The next bucket that may have links.
    At(usize),
    /// No more buckets with links.
    End,
}

impl<'a> OccupancyCursor<'a> {
    /// Returns the next bucket to visit, starting with one that was not visited yet.
    ///
    /// # Safety
    ///
    /// The same as for [`Array::occupancy`].
    pub(super) unsafe fn step(&mut self, array: Array<'a>, bucket: usize) -> NextBucket {
        // SAFETY: guaranteed by the caller.
        let covering = unsafe { array.occupancy() }.filter(|occupancy| occupancy.covers(bucket));
        let Some(occupancy) = covering else { return NextBucket::At(bucket) };
        if !self.occupancy.is_some_and(|its| std::ptr::eq(its, occupancy)) {
            *self = Self { occupancy: Some(occupancy), followed: 0, stale: 0 };
        }
        let Some(next) = occupancy.next(bucket, array.all()) else { return NextBucket::End };
        self.followed += 1;
        self.stale += usize::from(array.all()[next].load().is_empty());
        NextBucket::At(next)
    }

    /// Replaces the bitmap if most of its bits were stale. Called when the iteration ends or stops.
    /// Ignores small numbers of stale bits, because after a replacement the next iteration has to
    /// visit all buckets.
    ///
    /// # Safety
    ///
    /// The same as for [`Array::occupancy`].
    pub(super) unsafe fn replace_if_stale(&mut self, array: Array<'a>) {
        let Self { occupancy, followed, stale } = std::mem::take(self);
        if let Some(occupancy) = occupancy.filter(|its| stale > followed / 2 && stale >= its.buckets.len() / 16) {
            // SAFETY: guaranteed by the caller. (If the array has another bitmap, because of a
            // resize, nothing happens.)
            unsafe { array.replace_occupancy(Some(occupancy)) };
        }
    }
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use relativist_rcu::{read, wait_for_readers};

    use super::*;
    use crate::policy::Resizing;
    use crate::{Entry, Link, Table};

    const BUCKETS: usize = 1 << 14;

    /// Leaks its links, which are few.
    fn table(links: u64) -> Table {
        let table = Table::new(BUCKETS, Resizing::Manual, |_| ()).unwrap();
        (0..links).for_each(|n| insert(&table, n));
        table
    }

    fn insert(table: &Table, n: u64) {
        let link = Box::leak(Box::new(Link::new(Hash::new(n))));
        let guard = read();
        let Entry::Vacant(entry) = table.entry(Hash::new(n), |_| false, &guard) else { unreachable!() };
        // SAFETY: a fresh link that is never freed.
        unsafe { entry.insert(NonNull::from(link)) };
    }

    fn remove(table: &Table, n: u64) {
        let guard = read();
        let Entry::Occupied(entry) = table.entry(Hash::new(n), |_| true, &guard) else { panic!("{n} is lost") };
        entry.remove();
    }

    /// Iterates, checks the number of links, and returns the progress of the bitmap, if there is
    /// one.
    #[track_caller]
    fn iterate(table: &Table, links: usize) -> Option<usize> {
        let guard = read();
        assert_eq!(table.iter(&guard).count(), links);
        // SAFETY: the guard lives.
        unsafe { table.inner().array(&guard).occupancy() }.map(Occupancy::progress)
    }

    /// Returns the number of bits that are set for buckets, and for the words above.
    fn bits(table: &Table) -> (u32, u32) {
        let guard = read();
        // SAFETY: the guard lives.
        let occupancy = unsafe { table.inner().array(&guard).occupancy() }.expect("there is one");
        let count = |words: &[AtomicBits]| words.iter().map(|word| word.load(Relaxed).count_ones()).sum();
        (count(&occupancy.buckets), count(&occupancy.words))
    }

    const ALL: Option<usize> = Some(BUCKETS / BITS + 1);

    #[test]
    fn is_installed_opened_filled_and_followed() {
        let table = table(100);
        assert_eq!(iterate(&table, 100), Some(0));
        wait_for_readers();
        assert_eq!(iterate(&table, 100), ALL);
        let stats = table.stats();
        let occupied = (stats.buckets - stats.chain_lengths[0]) as u32;
        assert_eq!(bits(&table).0, occupied);
        assert!(bits(&table).1 <= occupied);
        insert(&table, 1000);
        assert_eq!(iterate(&table, 101), ALL);
    }

    #[test]
    fn is_not_opened_while_an_update_may_not_know_of_it() {
        let table = table(100);
        let old = read();
        iterate(&table, 100);
        std::thread::scope(|scope| {
            let others = scope.spawn(|| (0..10).map(|_| iterate(&table, 100)).collect::<Vec<_>>());
            assert_eq!(others.join().unwrap(), [Some(0); 10]);
        });
        drop(old);
        wait_for_readers();
        assert_eq!(iterate(&table, 100), ALL);
    }

    #[test]
    fn is_not_made_for_dense_or_small_tables() {
        let table = table(BUCKETS as u64 / 8);
        assert_eq!(iterate(&table, BUCKETS / 8), None);
        (0..BUCKETS as u64 / 8).for_each(|n| remove(&table, n));
        table.resize_to(MIN_BUCKETS / 2).unwrap();
        assert_eq!(iterate(&table, 0), None);
        table.resize_to(MIN_BUCKETS).unwrap();
        assert_eq!(iterate(&table, 0), Some(0));
    }

    #[test]
    fn is_made_anew_when_most_of_it_is_stale() {
        let table = table(1000);
        iterate(&table, 1000);
        wait_for_readers();
        assert_eq!(iterate(&table, 1000), ALL);
        let before = bits(&table);
        (0..400).for_each(|n| remove(&table, n));
        assert_eq!(iterate(&table, 600), ALL);
        assert_eq!(bits(&table), before, "removals clear nothing, and less than half is not enough");
        (400..900).for_each(|n| remove(&table, n));
        assert_eq!(iterate(&table, 100), Some(0), "a new one");
        assert_eq!(bits(&table), (0, 0));
        wait_for_readers();
        assert_eq!(iterate(&table, 100), ALL);
        assert!(bits(&table).0 <= 100);
    }

    /// The calls of a scan fill it as well.
    #[test]
    fn is_filled_by_scans() {
        let table = table(100);
        iterate(&table, 100);
        wait_for_readers();
        let mut next = Some(0);
        while let Some(cursor) = next {
            next = table.scan(cursor, 1, &read(), |_| ());
        }
        assert_eq!(iterate(&table, 100), ALL);
    }
}
