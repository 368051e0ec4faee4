//! The table itself: its numbers, and resizes by hand.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use relativist_core::sync::Relaxed;
use relativist_rcu::{Guard, is_reading, read};

use super::array::AllocError;
use super::head::Head;
use super::inner::TableInner;
#[cfg(relativist_loom)]
use super::inner::bits_for;
use super::link::{AnyLink, links_from};
use super::policy::Policy;
use super::stats::Stats;
use super::{CompactLink, Hash, Link};

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

impl Table {
    /// The size of a bucket in memory.
    pub const BYTES_PER_BUCKET: usize = size_of::<Head>();

    /// Creates a table of `buckets` buckets, rounded up to a power of two, at least 2. The
    /// [`Policy`], or just a [`Resizing`](crate::Resizing), determines how it is resized. An
    /// automatic table never shrinks below its initial size, unless the policy says otherwise.
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
        Ok(Self { inner: Arc::new(TableInner::create(buckets, policy, dispose)?) })
    }

    #[inline(always)]
    pub(super) fn inner(&self) -> &TableInner<L> {
        &self.inner
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
    /// Lookups and updates can run at the same time. An automatic table that is too small for its
    /// links then grows again soon.
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
        self.resize_by_hand(|_| buckets)
    }

    fn resize_by_hand(&self, wanted: impl FnOnce(&TableInner<L>) -> usize) -> Result<(), AllocError> {
        assert_outside_sections("resizing");
        self.inner.resize_by_hand(wanted)?;
        // Entries that were inserted before the new size took effect have checked the old one.
        self.inner.ask_worker(|wanted, buckets| wanted > buckets);
        Ok(())
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

    /// Grows as insertions do when the worker lags behind: begins if no growth is in progress, and
    /// continues with about this number of heads.
    #[cfg(relativist_loom)]
    pub fn grow_a_bit(&self, buckets: usize, heads: usize) -> Result<(), AllocError> {
        let resizer = &mut self.inner.lock_resizer();
        if !resizer.is_growing() {
            self.inner.begin_growth(bits_for(buckets), resizer)?;
        }
        self.inner.continue_growth(heads, &Head::try_lock_now, resizer);
        Ok(())
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
        let wanted = |inner: &TableInner<L>| inner.policy.buckets_for(inner.count.sum().saturating_add(additional));
        if wanted(&self.inner) <= self.buckets() {
            return Ok(());
        }
        self.resize_by_hand(|inner| wanted(inner).max(1 << inner.bits()))
    }

    /// Shrinks to the size for the number of links that there are when it has waited for readers.
    /// Otherwise like [`Table::resize_to`].
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
        let wanted = |inner: &TableInner<L>| inner.policy.buckets_for(inner.count.sum());
        if wanted(&self.inner) >= self.buckets() {
            return Ok(());
        }
        self.resize_by_hand(|inner| wanted(inner).min(1 << inner.bits()))
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
            self.inner.ask_worker(helps);
        }
    }
}

impl<L: AnyLink> fmt::Debug for Table<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("len", &self.len()).field("buckets", &self.buckets()).finish_non_exhaustive()
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
