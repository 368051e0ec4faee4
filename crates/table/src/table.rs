//! The table itself: what it owns, its counters, and requests to the resizer.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, TryLockError, Weak};

use relativist_rcu::contention::Site;
use relativist_rcu::{Guard, active_barrier, is_reading, read};

use super::array::{AllocError, Array, AtomicArray};
use super::contents::dispose_of_all;
use super::head::Head;
use super::link::{AnyLink, links_from};
use super::resize::{Resizer, free_later};
use super::{CompactLink, Hash, Link};
use crate::policy::{Policy, Resizing};
use crate::stats::Stats;
use crate::worker;
use relativist_core::counter::Counter;
use relativist_core::reentrancy;
use relativist_core::sync::{AcqRel, AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Mutex, MutexGuard, Relaxed};

/// A concurrent hash table of links. Lookups are wait-free, also while the table grows or shrinks.
///
/// The table is intrusive: it knows only [`Link`]s (or [`CompactLink`]s), which callers embed in
/// their own objects.
/// Callers also define which objects are equal. Any number of links may have the same hash, or even
/// the same key.
///
/// Memory: 8 bytes per bucket, and 16 for the link in each object, or 8 for a [`CompactLink`].
/// Links must lie below address 2^48.
///
/// ```
/// use std::ptr::NonNull;
/// use relativist_table::{Entry, Hash, Link, Table};
/// use relativist_table::Resizing;
/// use relativist_rcu::{defer_raw, read};
///
/// #[repr(C)]
/// struct Object {
///     link: Link,
///     name: &'static str,
/// }
///
/// unsafe fn dispose(link: NonNull<Link>) {
///     // SAFETY: all links of this table are in boxed objects.
///     drop(unsafe { Box::from_raw(link.cast::<Object>().as_ptr()) });
/// }
///
/// let table = Table::new(2, Resizing::Automatic, dispose)?;
/// let hash = Hash::new(42); // stands for the hash of "forty-two"
/// // SAFETY: found links stay alive while the guard does.
/// let is_it = |link: NonNull<Link>| unsafe { link.cast::<Object>().as_ref() }.name == "forty-two";
///
/// let guard = read();
/// match table.entry(hash, is_it, &guard) {
///     Entry::Vacant(vacant) => {
///         let object = Box::new(Object { link: Link::new(hash), name: "forty-two" });
///         // SAFETY: a fresh object, which `dispose` can free.
///         unsafe { vacant.insert(NonNull::from(Box::leak(object)).cast()) };
///     }
///     Entry::Occupied(_) => unreachable!("the table was empty"),
/// }
/// assert!(table.find(hash, is_it, &guard).is_some());
///
/// if let Entry::Occupied(entry) = table.entry(hash, is_it, &guard) {
///     let removed = entry.remove();
///     // SAFETY: lookups no longer find it, and a grace period passes for those that have.
///     unsafe { defer_raw(removed.cast(), size_of::<Object>(), |object| dispose(object.cast())) };
/// }
/// assert!(table.find(hash, is_it, &guard).is_none());
/// # Ok::<(), relativist_table::AllocError>(())
/// ```
pub struct Table<L: AnyLink = Link> {
    inner: Arc<TableInner<L>>,
}

/// The state that the table shares with the resize worker. Small, because a program may have many
/// tables that stay empty (`tests/empty.rs`).
///
/// Lookups read the first field, and the count comes last. So lookups in a small table, for which
/// each update changes the count, do not lose their cache line.
#[repr(C)]
pub(crate) struct TableInner<L: AnyLink = Link> {
    /// Only the resizer replaces it, and frees the old one after a grace period.
    pub(super) array: AtomicArray,
    dispose: unsafe fn(NonNull<L>),
    pub(super) policy: Policy,
    /// Set while updates need not ask the worker to check this table: a request is pending, or the
    /// worker will check the table again anyway.
    requested: AtomicBool,
    pub(super) resizing: AtomicBool,
    /// The binary logarithm of the number of buckets of the published array. Only the holder of the
    /// resizer's mutex changes it.
    bits: AtomicU8,
    /// Locked before the resizer's mutex, to make that fair: otherwise a thread that resizes in a
    /// loop could starve the others.
    turn: Mutex<()>,
    resizer: Mutex<Resizer>,
    pub(super) counts: Counts,
    pub(super) count: Counter,
}

/// The mutexes of resizers.
static RESIZER: Site = Site::new("map_resizer");

/// Statistics of the resizer.
#[derive(Default)]
pub(super) struct Counts {
    /// Bytes of the buckets of all arrays that are allocated.
    pub(super) bucket_bytes: AtomicUsize,
    pub(super) grows: AtomicU64,
    pub(super) shrinks: AtomicU64,
    pub(super) grace_periods: AtomicU64,
}

impl Table {
    /// The size of a bucket in memory.
    pub const BYTES_PER_BUCKET: usize = size_of::<Head>();

    /// Creates a table of `buckets` buckets, rounded up to a power of two, at least 2. The
    /// [`Policy`], or just a [`Resizing`], determines how it is resized. An automatic table never
    /// shrinks below its initial size, unless the policy says otherwise.
    ///
    /// While a link is in the table it belongs to the table: when the table is dropped, `dispose`
    /// is called for each link that is left. (If a background resize is in progress then, the
    /// worker calls it when the resize is done.)
    ///
    /// # Errors
    ///
    /// Returns an error if the buckets cannot be allocated.
    pub fn new(
        buckets: usize,
        policy: impl Into<Policy>,
        dispose: unsafe fn(NonNull<Link>),
    ) -> Result<Self, AllocError> {
        Self::create(buckets, policy.into(), dispose)
    }
}

impl Table<CompactLink> {
    /// Creates a table of [`CompactLink`]s, which have half the size. Otherwise like
    /// [`Table::new`], but it does not grow by itself beyond 2^27 buckets (or the floor of its
    /// policy), because links have 27 bits of their hash.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use relativist_table::Resizing;
    /// use relativist_table::{CompactLink, Hash, Table};
    /// use relativist_rcu::read;
    ///
    /// unsafe fn dispose(link: NonNull<CompactLink>) {
    ///     // SAFETY: all links of this table are boxed.
    ///     drop(unsafe { Box::from_raw(link.as_ptr()) });
    /// }
    ///
    /// let table = Table::with_compact_links(2, Resizing::Automatic, dispose)?;
    /// let (hash, guard) = (Hash::new(42), read());
    /// let link = NonNull::from(Box::leak(Box::new(CompactLink::new(hash))));
    /// // SAFETY: a fresh link, which `dispose` can free. It is alone, hence within the range.
    /// unsafe { table.insert(link, &guard) };
    /// assert_eq!(table.find(hash, |found| found == link, &guard), Some(link));
    /// # Ok::<(), relativist_table::AllocError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Table::new`].
    pub fn with_compact_links(
        buckets: usize,
        policy: impl Into<Policy>,
        dispose: unsafe fn(NonNull<CompactLink>),
    ) -> Result<Self, AllocError> {
        Self::create(buckets, policy.into().up_to_bits(CompactLink::HASH_BITS), dispose)
    }
}

impl<L: AnyLink> Table<L> {
    fn create(buckets: usize, policy: Policy, dispose: unsafe fn(NonNull<L>)) -> Result<Self, AllocError> {
        let bits = bits_for(buckets);
        let array = Array::allocate(bits)?;
        let inner = TableInner {
            array: AtomicArray::new(array),
            dispose,
            policy: policy.starting_with(array.len()),
            requested: AtomicBool::new(false),
            resizing: AtomicBool::new(false),
            bits: AtomicU8::new(0),
            count: Counter::new(),
            turn: Mutex::new(()),
            resizer: Mutex::new(Resizer::default()),
            counts: Counts::default(),
        };
        inner.size_changed(array.len());
        // Relaxed: a statistic.
        inner.counts.bucket_bytes.store(array.bucket_bytes(), Relaxed);
        // Unlocking a bucket relies on RCU having chosen its barrier.
        active_barrier();
        Ok(Self { inner: Arc::new(inner) })
    }

    #[inline(always)]
    pub(super) fn inner(&self) -> &TableInner<L> {
        &self.inner
    }

    /// # Panics
    ///
    /// Panics if an update would: this thread holds the lock of a bucket of this table, or locks of
    /// too many others.
    pub fn assert_unlocked(&self) {
        reentrancy::assert_outside(self.inner());
    }

    /// Returns the number of links. It is exact if no thread updates the table meanwhile. Reads a
    /// few counters.
    pub fn len(&self) -> usize {
        self.inner.count.sum()
    }

    /// Returns whether the table has no links. It is exact if no thread updates the table
    /// meanwhile.
    ///
    /// In a small table this reads one counter. In a larger one it reads a few buckets, which show
    /// that most tables are not empty, and otherwise the counters that [`Table::len`] reads.
    pub fn is_empty(&self) -> bool {
        (self.inner.count.is_one() || !self.has_link_in_first_buckets()) && self.len() == 0
    }

    /// Looks at so many buckets that this finds a link in nearly all tables that have links.
    fn has_link_in_first_buckets(&self) -> bool {
        let guard = read();
        let heads = self.inner.array(&guard).all();
        heads.iter().take(2 * Head::PER_LINE).any(|head| !head.load().is_empty())
    }

    /// Returns the policy by which the table is resized.
    pub fn policy(&self) -> Policy {
        self.inner.policy
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> usize {
        1 << self.inner.bits()
    }

    /// Returns the bytes of the buckets of all arrays: the present array, one that a resize is
    /// filling, and replaced ones that lookups may still use.
    pub fn bucket_bytes(&self) -> usize {
        // Relaxed: a statistic.
        self.inner.counts.bucket_bytes.load(Relaxed)
    }

    /// Returns whether a resize is in progress.
    pub fn is_resizing(&self) -> bool {
        // Relaxed: a statistic.
        self.inner.resizing.load(Relaxed)
    }

    /// Resizes on the calling thread, to `buckets` rounded up to a power of two, at least 2.
    /// Lookups and updates can run at the same time. An automatic table may be resized again soon,
    /// if this size doesn't fit.
    ///
    /// It may wait for readers three times: first, if an automatic growth has left chains uncut;
    /// then, if the table grows, after the new array is published and before chains are cut; and
    /// last, if the replaced array is larger than [`relativist_rcu::MAX_DEFERRED_BYTES`], before
    /// that is freed.
    ///
    /// # Errors
    ///
    /// Returns an error if the buckets cannot be allocated: the table stays as it was.
    ///
    /// # Panics
    ///
    /// Panics inside a read section (a `Guard` of this thread is alive): it would wait for itself.
    pub fn resize_to(&self, buckets: usize) -> Result<(), AllocError> {
        assert_outside_sections("resizing");
        self.inner.resize_now(bits_for(buckets))
    }

    /// Grows like the background worker, without waiting for readers, so that chains stay uncut.
    /// The next resize by hand cuts them, to whatever size it resizes.
    ///
    /// # Errors
    ///
    /// See [`Table::resize_to`].
    #[cfg(relativist_loom)]
    pub fn grow_uncut(&self, buckets: usize) -> Result<(), AllocError> {
        self.inner.grow(bits_for(buckets), &mut self.inner.lock_resizer())
    }

    /// Makes room for `additional` more links, so that inserting them starts no resize, up to the
    /// policy's ceiling. Otherwise like [`Table::resize_to`].
    ///
    /// # Errors
    ///
    /// See [`Table::resize_to`].
    ///
    /// # Panics
    ///
    /// See [`Table::resize_to`].
    pub fn reserve(&self, additional: usize) -> Result<(), AllocError> {
        assert_outside_sections("resizing");
        let wanted = self.inner.policy.buckets_for(self.len().saturating_add(additional));
        if wanted > self.buckets() { self.resize_to(wanted) } else { Ok(()) }
    }

    /// Shrinks to the size for the current number of links. Otherwise like [`Table::resize_to`].
    ///
    /// # Errors
    ///
    /// See [`Table::resize_to`].
    ///
    /// # Panics
    ///
    /// See [`Table::resize_to`].
    pub fn shrink_to_fit(&self) -> Result<(), AllocError> {
        assert_outside_sections("resizing");
        let wanted = self.inner.policy.buckets_for(self.len());
        if wanted < self.buckets() { self.resize_to(wanted) } else { Ok(()) }
    }

    /// Returns statistics about the table. Walks the whole table.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        self.add_stats(&mut stats, 0, usize::MAX);
        stats
    }

    /// Computes [`stats`](Self::stats) in parts, for callers that must not block that long: adds
    /// the next `buckets` buckets to `stats`. The first call takes cursor 0. Returns the cursor for
    /// the next call, or `None` after the last bucket. Links that are inserted or removed between
    /// two calls may be counted or not, and links may be counted twice if the table is resized.
    pub fn add_stats(&self, stats: &mut Stats, cursor: u64, buckets: usize) -> Option<u64> {
        let guard = read();
        let array = self.inner.array(&guard);
        let first = Hash::from_mixed(cursor).bucket(array.scale());
        let end = first.saturating_add(buckets).min(array.len());
        for (bucket, head) in (first..end).zip(&array.all()[first..]) {
            let here = |hash: Hash| hash.bucket(array.scale()) == bucket;
            // SAFETY: found in this section.
            let links = unsafe { links_from(head.load().first::<L>()) };
            stats.count_chain(links.take_while(|&(_, hash)| here(hash)).count());
        }
        // Relaxed, all: statistics.
        let counts = &self.inner.counts;
        stats.grows = counts.grows.load(Relaxed);
        stats.shrinks = counts.shrinks.load(Relaxed);
        stats.grace_periods = counts.grace_periods.load(Relaxed);
        (end < array.len()).then(|| Hash::start_of_bucket(end, array.scale()).get())
    }

    /// Returns the links to which each bucket's head leads, in the order of the chains: the links
    /// that a lookup may have to pass. During a resize chains may be *imprecise* (ATC 2011, section
    /// 4) and continue into links of other buckets. Use it for diagrams and debugging. Takes time
    /// proportional to the length of all chains.
    ///
    /// Links stay alive as long as the guard.
    ///
    /// ```
    /// use relativist_table::Resizing;
    /// use relativist_table::Table;
    /// use relativist_rcu::read;
    ///
    /// let table = Table::new(4, Resizing::Manual, |_| ())?;
    /// assert_eq!(table.chains(&read()), vec![vec![]; 4]);
    /// # Ok::<(), relativist_table::AllocError>(())
    /// ```
    pub fn chains(&self, guard: &Guard) -> Vec<Vec<NonNull<L>>> {
        // SAFETY: found in this section.
        let chain = |head: &Head| unsafe { links_from(head.load().first::<L>()) }.map(|(link, _)| link).collect();
        self.inner.array(guard).all().iter().map(chain).collect()
    }

    #[inline]
    pub(super) fn count_inserted(&self, guard: &Guard) {
        // Does not check for shrinking, so that reserved room is kept while it fills.
        self.count(1, |wanted, buckets| wanted > buckets, guard);
    }

    #[inline]
    pub(super) fn count_removed(&self, count: usize, guard: &Guard) {
        self.count(-(count as isize), |wanted, buckets| wanted < buckets, guard);
    }

    #[inline(always)]
    fn count(&self, n: isize, helps: fn(usize, usize) -> bool, guard: &Guard) {
        if self.inner.count.add(n, || guard.thread_index()) {
            self.ask_worker(helps);
        }
    }

    #[cold]
    fn ask_worker(&self, helps: fn(usize, usize) -> bool) {
        let inner = &self.inner;
        let is_wanted = || inner.wanted().is_some_and(|wanted| helps(wanted, self.buckets()));
        let automatic = inner.policy.resizing == Resizing::Automatic;
        // AcqRel: pairs with the one in `advance_resize`.
        // litmus: resize-requested
        let ours = automatic && is_wanted() && !inner.requested.swap(true, AcqRel);
        if ours && !worker::request(Arc::downgrade(inner) as Weak<dyn worker::Resize>) {
            // Relaxed: no request was made. A later update makes one.
            inner.requested.store(false, Relaxed);
        }
    }
}

impl<L: AnyLink> fmt::Debug for Table<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("len", &self.len()).field("buckets", &self.buckets()).finish_non_exhaustive()
    }
}

impl<L: AnyLink> TableInner<L> {
    #[inline(always)]
    pub(super) fn array<'g>(&self, _guard: &'g Guard) -> Array<'g> {
        // SAFETY: an array is freed a grace period after it was replaced, and the guard was taken
        // before it was found.
        unsafe { self.array.load() }
    }

    fn try_lock_resizer(&self) -> Option<MutexGuard<'_, Resizer>> {
        let _turn = try_lock(&self.turn)?;
        try_lock(&self.resizer)
    }

    pub(super) fn lock_resizer(&self) -> MutexGuard<'_, Resizer> {
        RESIZER.acquire(
            || self.try_lock_resizer(),
            || {
                let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
                self.resizer.lock().unwrap_or_else(PoisonError::into_inner)
            },
        )
    }

    fn wanted(&self) -> Option<usize> {
        self.policy.wanted(self.count.sum(), 1 << self.bits())
    }

    /// Returns the binary logarithm of the number of buckets.
    pub(super) fn bits(&self) -> u32 {
        // Relaxed: the holder of the resizer's mutex has written it or acquired it with the mutex.
        // For all others it is a statistic.
        self.bits.load(Relaxed).into()
    }

    /// Returns whether the worker will grow the table again when it has `buckets` buckets.
    pub(super) fn wants_more_than(&self, buckets: usize) -> bool {
        let wanted = || self.policy.wanted(self.count.sum(), buckets);
        self.policy.resizing == Resizing::Automatic && wanted().is_some_and(|wanted| wanted > buckets)
    }

    fn resize_now(&self, bits: u32) -> Result<(), AllocError> {
        let mut resizer = self.lock_resizer();
        // Relaxed, both: a statistic.
        self.resizing.store(true, Relaxed);
        let result = self.resize(bits, &mut resizer);
        let retired = resizer.take_retired();
        self.resizing.store(false, Relaxed);
        // `free_later` may run deferred destructors, which may resize this table.
        drop(resizer);
        retired.for_each(|array| {
            // SAFETY: only `free_later` frees it.
            let bytes = unsafe { array.get() }.bucket_bytes();
            // Relaxed: a statistic.
            self.counts.bucket_bytes.fetch_sub(bytes, Relaxed);
            free_later(array);
        });
        result
    }

    /// Called when the size of the table has changed.
    pub(super) fn size_changed(&self, buckets: usize) {
        self.count.size_changed(buckets);
        // Relaxed: see `bits`.
        self.bits.store(buckets.ilog2() as u8, Relaxed);
    }
}

impl<L: AnyLink> worker::Resize for TableInner<L> {
    fn advance_resize(&self) -> bool {
        // A resize by hand may hold the mutex as long as readers stay.
        let Some(mut resizer) = self.try_lock_resizer() else { return true };
        // Cleared before this thread reads the count, so that a later update makes a new request.
        // AcqRel: pairs with the one in `ask_worker`. This thread sees the updates that found it
        // set.
        // litmus: resize-requested
        self.requested.swap(false, AcqRel);
        // Relaxed, both: a statistic.
        self.resizing.store(true, Relaxed);
        let is_blocked = loop {
            self.cut_if_unused(&mut resizer);
            // Relaxed: a statistic.
            self.counts.bucket_bytes.fetch_sub(resizer.free_retired(), Relaxed);
            let Some(wanted) = self.wanted().map(bits_for) else { break false };
            let resized = if wanted > self.bits() {
                if resizer.is_recently_uncut() {
                    break true;
                }
                self.grow(wanted, &mut resizer)
            } else {
                // Shrinking waits until earlier resizes are complete. This bounds the arrays that
                // readers keep from being freed.
                if resizer.is_waiting() {
                    // Updates need not make requests, because the worker will check again. Relaxed:
                    // a hint.
                    self.requested.store(true, Relaxed);
                    break true;
                }
                self.shrink(wanted, &mut resizer)
            };
            // Without memory the table stays as it is, and a later update makes a new request.
            if resized.is_err() {
                break false;
            }
        };
        self.resizing.store(resizer.is_waiting(), Relaxed);
        is_blocked || resizer.is_waiting()
    }
}

impl<L: AnyLink> Drop for TableInner<L> {
    fn drop(&mut self) {
        // The resizer is taken first, because a destructor below may panic.
        let resizer = self.resizer.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: no thread uses the table any more, nor does the worker.
        unsafe { resizer.free_all() };
        // SAFETY: as above.
        let array = unsafe { self.array.load() };
        // An empty table may have many buckets, which need not be read.
        if self.count.sum() == 0 {
            // SAFETY: as above.
            return unsafe { array.free() };
        }
        // SAFETY: as above. The links in the table are the table's own, by the contract of
        // `VacantEntry::insert`; no reader is left, because lookups borrow the table.
        unsafe { dispose_of_all(array, self.dispose) };
    }
}

/// Ignores poisoning: a thread that panicked with the lock has left the data in a consistent state.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Ok(guard) => Some(guard),
    }
}

/// Panics inside a read section: a reader must not wait for readers, nor for a resizer that does.
pub fn assert_outside_sections(doing: &str) {
    assert!(
        !is_reading(),
        "{doing} waits for readers, and inside a read section it would wait for itself: drop the Guard or the pinned handle \
         of this thread first"
    );
}

pub(super) fn bits_for(buckets: usize) -> u32 {
    // `ilog2` of the next power of two, without overflow for the largest.
    buckets.max(2).saturating_sub(1).ilog2().saturating_add(1).max(Array::MIN_BITS)
}
