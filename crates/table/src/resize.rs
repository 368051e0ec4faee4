//! Grows and shrinks a table by any power of two, during lookups and updates, and without waiting
//! for readers.
//!
//! Chains are sorted by hash and buckets are ranges of hashes. So joining buckets means linking
//! ends to beginnings, and splitting a bucket means cutting its chain (ATC 2011, section 4.3).
//! Between the two, the buckets of a group share one merged chain, into which the heads of both
//! arrays lead (see `group.rs`). Only the cut needs a wait for readers: a lookup that entered by a
//! coarse head needs the links between the finer buckets, and one that entered by a fine head does
//! not.
//!
//! **Grow:** fill the fine heads, bucket by bucket; publish the fine array, so that lookups have
//! short chains; when all readers from before have left, cut, group by group. A table need not wait
//! for the cut to grow again: the heads of the next array are filled from the same chains, and one
//! cut is made, for the array that is published then. So a reader that stays in its section, even
//! the thread that fills the table, does not delay growth.
//!
//! **Shrink:** join the chains of each group, and make the fine heads follow the coarse one;
//! publish the coarse array. If a group takes several steps, they begin with the last heads.
//!
//! Replaced arrays are freed after a grace period.
//!
//! **Who resizes:** the background worker or the caller of a resize. If a table has become four
//! times too small, the worker lags behind, because it is busy or blocked. Then insertions begin to
//! grow the table, and each goes on with a bounded number of heads ([`TableInner::grow_a_bit`]).
//! Whoever resizes next finishes what insertions have begun.
//!
//! Updates continue during a resize. Each waits for at most one *step*, during which the resizer
//! holds locks: a step covers the chain of one bucket, or [`STEP`] heads.
//!
//! **Cost:** links lie anywhere in memory, so the resizer prefetches the links of many chains at
//! once, and reads a link only where it has to. (Reading links of chains that are not locked takes
//! a read section. If the links are those of a private domain, only the first ones are prefetched.)
//! If all links of a bucket go to the same finer bucket, the summary of the head shows it, and the
//! chain is not walked; this holds for most short chains. The finer summary is less exact then. The
//! cut makes summaries exact again, except where nothing has to be cut in a table that the
//! background worker is about to grow again.

use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::time::Instant;

use relativist_core::prefetch::prefetch_for_write;
use relativist_core::sync::Relaxed;
use relativist_rcu::GracePeriod;
#[cfg(not(relativist_loom))]
use relativist_rcu::read;

use super::Hash;
use super::array::{AllocError, Array, DetachedArray};
use super::hash::Scale;
use super::head::{Head, Word};
use super::inner::{TableInner, bits_for};
use super::link::{AnyLink, links_from};
use super::resizer::{Growing, Resizer, Uncut, free_later};

/// The maximum number of heads of the finer array that the resizer changes under one lock.
const STEP: usize = if cfg!(relativist_loom) { 2 } else { 64 };

impl<L: AnyLink> TableInner<L> {
    /// Resizes by hand, and returns with all chains cut. The caller is outside of read sections.
    /// `wanted` returns the number of buckets. It is called when chains are cut, because entries
    /// may come and go while this waits for readers.
    pub(super) fn resize_by_hand(&self, wanted: impl FnOnce(&Self) -> usize) -> Result<(), AllocError> {
        let mut resizer = self.lock_resizer();
        // Relaxed, both: a statistic.
        self.resizing.store(true, Relaxed);
        let result = self.resize(wanted, &mut resizer);
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

    fn resize(&self, wanted: impl FnOnce(&Self) -> usize, resizer: &mut Resizer) -> Result<(), AllocError> {
        self.settle(resizer);
        let bits = bits_for(wanted(self));
        if bits > self.bits() {
            self.grow(bits, resizer)?;
            self.settle(resizer);
        } else if bits < self.bits() {
            self.shrink(bits, resizer)?;
        }
        Ok(())
    }

    /// Waits for readers and cuts chains, if any are uncut. The caller is outside of read sections.
    fn settle(&self, resizer: &mut Resizer) {
        self.finish_growth(resizer);
        if let Some(uncut) = resizer.uncut() {
            uncut.readers.wait();
        }
        if let Some(uncut) = resizer.take_uncut_if(|_| true) {
            self.cut(&uncut.base, resizer);
        }
    }

    /// Cuts chains if that takes no wait. No growth is in progress.
    pub(super) fn cut_if_unused(&self, resizer: &mut Resizer) {
        if let Some(uncut) = resizer.take_uncut_if(|uncut| uncut.readers.has_passed()) {
            self.cut(&uncut.base, resizer);
        }
    }

    pub(super) fn allocate_array<'a>(&self, bits: u32) -> Result<Array<'a>, AllocError> {
        let array = Array::allocate(bits)?;
        // Relaxed: a statistic.
        self.counts.bucket_bytes.fetch_add(array.bucket_bytes(), Relaxed);
        Ok(array)
    }

    /// Grows to 2^`bits` buckets, without waiting for readers. Chains stay uncut.
    pub(super) fn grow(&self, bits: u32, resizer: &mut Resizer) -> Result<(), AllocError> {
        self.begin_growth(bits, resizer)?;
        self.finish_growth(resizer);
        Ok(())
    }

    /// Finishes the growth that is in progress, if any.
    pub(super) fn finish_growth(&self, resizer: &mut Resizer) {
        self.continue_growth(usize::MAX, &|head| Some(head.lock()), resizer);
    }

    /// Begins to grow if the worker lags behind, and continues with about `heads` heads. Returns if
    /// another thread resizes the table, or holds the lock of the next head: it waits for no lock.
    pub(super) fn grow_a_bit(&self, heads: usize) {
        let Some(mut resizer) = self.try_lock_resizer() else { return };
        if !resizer.is_growing() {
            let wanted = self.wanted().map(bits_for).filter(|&bits| self.worker_lags() && bits > self.bits());
            // Without memory the table stays as it is.
            let Some(()) = wanted.and_then(|bits| self.begin_growth(bits, &mut resizer).ok()) else { return };
        }
        self.continue_growth(heads, &Head::try_lock_now, &mut resizer);
        // Relaxed: a statistic.
        self.resizing.store(resizer.is_growing() || resizer.is_waiting(), Relaxed);
    }

    /// Makes the finer array, whose heads are to be filled. No growth is in progress.
    pub(super) fn begin_growth(&self, bits: u32, resizer: &mut Resizer) -> Result<(), AllocError> {
        debug_assert!(!resizer.is_growing());
        // SAFETY: only the holder of the resizer's mutex frees arrays, and that is this thread.
        let coarse = unsafe { self.array.load() };
        // SAFETY: as above.
        let base = resizer.uncut().map_or(coarse, |uncut| unsafe { uncut.base.get() });
        // Room for the coarse array now, and for the base when chains are cut.
        resizer.reserve(2, bits)?;
        let fine = self.allocate_array(bits)?;
        fine.set_base(Some(base));
        coarse.set_finer(Some(fine));
        resizer.set_growing(Growing { fine: DetachedArray::of(fine), filled: 0 });
        Ok(())
    }

    /// Fills the fine heads of about this number of heads. Stops if `lock` returns none. When all
    /// are filled, publishes the finer array.
    pub(super) fn continue_growth(&self, heads: usize, lock: &impl Fn(&Head) -> Option<Word>, resizer: &mut Resizer) {
        let Some(Growing { fine: detached, mut filled }) = resizer.take_growing() else { return };
        // SAFETY: as in `begin_growth`.
        let (coarse, fine) = unsafe { (self.array.load(), detached.get()) };
        // SAFETY: as above.
        let base = resizer.uncut().map_or(coarse, |uncut| unsafe { uncut.base.get() });
        let end = filled.saturating_add(heads).min(coarse.len());
        while filled < end {
            let chunk = Chunk::at(filled, (base, coarse, fine));
            chunk.prefetch::<L>();
            let done = if base == coarse { chunk.fill_settled::<L>(lock) } else { chunk.fill_uncut::<L>(lock) };
            filled += done;
            if done < chunk.heads.len() {
                break;
            }
        }
        if filled < coarse.len() {
            resizer.set_growing(Growing { fine: detached, filled });
            return;
        }
        self.array.publish(fine);
        if base != coarse {
            // This comes after the publication: an update that sees it no longer maintains the
            // coarse heads, which are replaced by now.
            base.set_finer(Some(fine));
            resizer.retire(coarse);
        }
        let base = DetachedArray::of(base);
        resizer.reserved().uncut = Some(Uncut { base, readers: GracePeriod::start(), since: Instant::now() });
        self.size_changed(fine.len());
        // Relaxed: a statistic.
        self.counts.grows.fetch_add(1, Relaxed);
    }

    /// Completes growing: cuts the chains of `base` between the buckets of the published array. No
    /// lookup may be left that entered by an older array.
    pub(super) fn cut(&self, base: &DetachedArray, resizer: &mut Resizer) {
        // SAFETY: as in `grow`.
        let (base, fine) = unsafe { (base.get(), self.array.load()) };
        let factor = fine.len() / base.len();
        let skips_exact_summaries = self.wants_more_than(fine.len());
        let walks = |word: Word| !skips_exact_summaries || word.sole_part(factor).is_none();
        let chains = Chains { array: base, walks };
        for_each_step::<L>((base, fine), &chains, Order::Ascending, |step| {
            cut::<L>(step, fine.scale(), skips_exact_summaries)
        });
        fine.set_base(None);
        resizer.retire(base);
        // Relaxed: a statistic.
        self.counts.grace_periods.fetch_add(1, Relaxed);
    }

    /// Shrinks to 2^`bits` buckets, without waiting for readers. The table has no uncut chains.
    pub(super) fn shrink(&self, bits: u32, resizer: &mut Resizer) -> Result<(), AllocError> {
        debug_assert!(resizer.uncut().is_none());
        // SAFETY: as in `grow`.
        let fine = unsafe { self.array.load() };
        resizer.reserve(1, bits)?;
        let coarse = self.allocate_array(bits)?;
        fine.set_base(Some(coarse));
        // The order is descending, so that a step links the chains of its heads in front of those
        // that are joined already, and needs no other heads.
        let chains = Chains { array: fine, walks: |_| true };
        for_each_step::<L>((coarse, fine), &chains, Order::Descending, |step| join::<L>(&step, coarse.scale()));
        self.array.publish(coarse);
        resizer.retire(fine);
        self.size_changed(coarse.len());
        // Relaxed: a statistic.
        self.counts.shrinks.fetch_add(1, Relaxed);
        Ok(())
    }
}

/// A head, and the heads that it covers in a finer array, or [`STEP`] of them if it covers more.
struct Step<'a> {
    head: &'a Head,
    fines: &'a [Head],
    /// The bucket of the first of `fines`.
    first: usize,
    /// The first bucket that the head covers.
    group: usize,
    /// Whether `fines` are the last ones that the head covers.
    is_last: bool,
}

/// The order of the steps for one head.
#[derive(Clone, Copy)]
enum Order {
    Ascending,
    Descending,
}

/// The chains that steps are about to walk.
struct Chains<'a, W> {
    /// The array whose heads lead to the links at present.
    array: Array<'a>,
    /// Returns, for the word of such a head, whether a step will walk its chain.
    #[cfg_attr(relativist_loom, expect(dead_code, reason = "loom does not model caches"))]
    walks: W,
}

impl<W: Fn(Word) -> bool> Chains<'_, W> {
    /// Prefetches the chains of these buckets that steps will walk. Call this before any of them is
    /// locked, outside of read sections.
    #[cfg(not(relativist_loom))]
    fn prefetch<L: AnyLink>(&self, buckets: Range<usize>) {
        let _guard = read();
        // SAFETY: in a read section, in which links stay alive that are followed.
        unsafe { self.array.prefetch_chains::<L>(buckets, &self.walks) };
    }

    /// Does nothing, because loom does not model caches.
    #[cfg(relativist_loom)]
    fn prefetch<L: AnyLink>(&self, _: Range<usize>) {}
}

/// Calls `step` once for each coarse head, or several times, in this order, if the head covers more
/// than [`STEP`] fine ones. Chains are prefetched, together with those of other groups, before any
/// of them is locked.
fn for_each_step<L: AnyLink>(
    (coarse, fine): (Array<'_>, Array<'_>),
    chains: &Chains<'_, impl Fn(Word) -> bool>,
    order: Order,
    mut step: impl FnMut(Step<'_>),
) {
    let factor = fine.len() / coarse.len();
    if factor <= STEP {
        for_each_group::<L>(coarse, fine, chains, |head, fines, group| {
            step(Step { head, fines, first: group, group, is_last: true });
        });
        return;
    }
    let fine_chains = Chains { array: fine, walks: |_| true };
    let take_step = |first| {
        fine_chains.prefetch::<L>(first..first + STEP);
        let group = first / factor * factor;
        let is_last = first + STEP == group + factor;
        step(Step {
            head: &coarse.all()[first / factor],
            fines: &fine.all()[first..first + STEP],
            first,
            group,
            is_last,
        });
    };
    let firsts = (0..fine.len()).step_by(STEP);
    match order {
        Order::Ascending => firsts.for_each(take_step),
        Order::Descending => firsts.rev().for_each(take_step),
    }
}

/// Calls `visit` with each coarse head, the fine heads that it covers, and the bucket of the first
/// of these.
fn for_each_group<L: AnyLink>(
    coarse: Array<'_>,
    fine: Array<'_>,
    chains: &Chains<'_, impl Fn(Word) -> bool>,
    mut visit: impl FnMut(&Head, &[Head], usize),
) {
    let factor = fine.len() / coarse.len();
    let per_group = chains.array.len() / coarse.len();
    let batch = (Array::BATCH / per_group).max(1);
    let mut group = 0;
    for (coarse, fine) in coarse.all().chunks(batch).zip(fine.all().chunks(batch * factor)) {
        let first = group / factor * per_group;
        chains.prefetch::<L>(first..first + coarse.len() * per_group);
        // The steps will write to all of these heads soon.
        for heads in [coarse, fine] {
            heads.iter().take(STEP * Array::BATCH).step_by(Head::PER_LINE).for_each(|head| prefetch_for_write(head));
        }
        for (head, fines) in coarse.iter().zip(fine.chunks_exact(factor)) {
            visit(head, fines, group);
            group += factor;
        }
    }
}

fn store_all(heads: &[Head], word: Word) {
    heads.iter().for_each(|head| head.store(word));
}

/// Some heads of the published array, and the heads of a finer array that are filled from them.
struct Chunk<'a> {
    /// The array whose heads are the locks.
    base: Array<'a>,
    coarse: Array<'a>,
    scale: Scale,
    /// The bucket of the first of `heads`.
    first: usize,
    heads: &'a [Head],
    fines: &'a [Head],
}

impl<'a> Chunk<'a> {
    /// Returns the chunk that begins at this bucket. If chains are uncut, one lock covers it.
    fn at(first: usize, (base, coarse, fine): (Array<'a>, Array<'a>, Array<'a>)) -> Self {
        let factor = fine.len() / coarse.len();
        let len = if base == coarse { STEP } else { STEP.min(coarse.len() / base.len()) };
        let end = coarse.len().min(first + len - first % len);
        let (heads, fines) = (&coarse.all()[first..end], &fine.all()[first * factor..end * factor]);
        Self { base, coarse, scale: fine.scale(), first, heads, fines }
    }

    /// Prefetches what filling reads and writes. Call this before a head is locked.
    fn prefetch<L: AnyLink>(&self) {
        let factor = self.factor();
        let chains = Chains { array: self.coarse, walks: |word: Word| word.sole_part(factor).is_none() };
        chains.prefetch::<L>(self.first..self.first + self.heads.len());
        for heads in [self.heads, self.fines] {
            heads.iter().take(STEP * STEP).step_by(Head::PER_LINE).for_each(|head| prefetch_for_write(head));
        }
    }

    fn factor(&self) -> usize {
        self.fines.len() / self.heads.len()
    }

    /// Makes each fine head lead to the first link of its bucket, in a table whose chains are cut.
    /// Returns for how many heads it did so before `lock` returned none.
    fn fill_settled<L: AnyLink>(&self, lock: &impl Fn(&Head) -> Option<Word>) -> usize {
        let mut heads = self.heads.iter().zip(self.fines.chunks_exact(self.factor()));
        let unfilled = heads.position(|(head, fines)| !fill_bucket::<L>(head, fines, self.scale, lock));
        unfilled.unwrap_or(self.heads.len())
    }

    /// The same in a table whose chains are those of a coarser array, which has the locks.
    fn fill_uncut<L: AnyLink>(&self, lock: &impl Fn(&Head) -> Option<Word>) -> usize {
        store_all(self.fines, Word::EMPTY_FOLLOWER);
        let head_of_group = &self.base.all()[self.first / (self.coarse.len() / self.base.len())];
        let Some(locked) = lock(head_of_group) else { return 0 };
        for (bucket, (head, fines)) in (self.first..).zip(self.heads.iter().zip(self.fines.chunks_exact(self.factor())))
        {
            fill_follower::<L>(head, bucket, self.coarse.scale(), fines, self.scale);
        }
        head_of_group.unlock(locked);
        self.heads.len()
    }
}

/// Makes each fine head lead to the first link of its bucket. Returns false if `lock` returned
/// none.
fn fill_bucket<L: AnyLink>(coarse: &Head, fines: &[Head], scale: Scale, lock: &impl Fn(&Head) -> Option<Word>) -> bool {
    // No other thread reads the fine heads before the coarse one is marked.
    store_all(fines, Word::EMPTY_FOLLOWER);
    // If the head shows that all links go to one fine bucket, the chain need be neither locked nor
    // read. Updates may change the chain before the mark is set. The mark is set only if the head
    // still has the same value, which then shows the same.
    let word = coarse.load();
    if let Some(part) = word.sole_part(fines.len()) {
        fines[part].store(word.of_sole_part(part, fines.len()).with_follows());
        if coarse.try_mark_finer(word) {
            return true;
        }
        store_all(fines, Word::EMPTY_FOLLOWER);
    }
    let Some(word) = lock(coarse) else { return false };
    // SAFETY: the chain is locked.
    fill_by_chain(unsafe { links_from(word.first::<L>()) }, fines, scale);
    // Updates maintain the fine heads after this.
    coarse.unlock(word.with_finer());
    true
}

/// Fills the heads that `head` covers. The caller holds the lock of the group.
fn fill_follower<L: AnyLink>(head: &Head, bucket: usize, head_scale: Scale, fines: &[Head], scale: Scale) {
    let word = head.load();
    if let Some(part) = word.sole_part(fines.len()) {
        fines[part].store(word.of_sole_part(part, fines.len()).with_follows());
    } else {
        // SAFETY: the chain is locked.
        let links = unsafe { links_from(word.first::<L>()) };
        fill_by_chain(links.take_while(|(_, hash)| hash.bucket(head_scale) == bucket), fines, scale);
    }
    head.store(word.with_finer());
}

/// Makes each fine head lead to the first of these links that is in its bucket.
fn fill_by_chain<L: AnyLink>(links: impl Iterator<Item = (NonNull<L>, Hash)>, fines: &[Head], scale: Scale) {
    let mut last = None;
    for (link, hash) in links {
        let fine = &fines[hash.bucket(scale) % fines.len()];
        let is_first = !last.replace(hash).is_some_and(|last| hash.shares_bucket(last, scale));
        let head = if is_first { fine.load().with_first(link.as_ptr()) } else { fine.load() };
        fine.store(head.with_summary_of(hash, scale));
    }
}

/// Performs a step of the cut: cuts the chain between fine buckets, makes summaries exact, and
/// makes the fine heads lockable. If nothing has to be cut, and the table is about to grow again,
/// the chain is not walked.
fn cut<L: AnyLink>(step: Step<'_>, scale: Scale, skips_exact_summaries: bool) {
    let Step { head, fines, first, is_last, .. } = step;
    let word = head.lock();
    let is_whole = is_last && first == step.group;
    let mut rest = null_mut::<L>();
    if !(is_whole && skips_exact_summaries && word.sole_part(fines.len()).is_some()) {
        rest = cut_chain(word.first(), fines, first, scale);
    }
    // All cuts come before the first head is lockable, because an update that locks a fine head
    // does not lock the group.
    fines.iter().for_each(|fine| fine.store(fine.load().without_follows()));
    head.unlock(if is_last { Word::moved() } else { word.with_first(rest) });
}

/// Cuts the chain into those of the fine heads, and returns the first link that belongs to none of
/// them. `bucket` is the bucket of the first of these heads. No link of the chain belongs to an
/// earlier bucket.
fn cut_chain<L: AnyLink>(first: *mut L, fines: &[Head], bucket: usize, scale: Scale) -> *mut L {
    let mut last: Option<(NonNull<L>, Hash, Word)> = None;
    let fine_of = |hash: Hash| fines.get(hash.bucket(scale) - bucket);
    // A summary is stored only when it is complete, because lookups rely on it.
    let finish = |hash: Hash, word| fine_of(hash).expect("one of these heads").store(word);
    let finish_chain = |(link, hash, word): (NonNull<L>, Hash, Word), is_end: bool| {
        if !is_end {
            // SAFETY: alive, because it is in the chain that the caller has locked.
            unsafe { link.as_ref().set_next(null_mut()) };
        }
        finish(hash, word);
    };
    // SAFETY: the chain is locked.
    for (link, hash) in unsafe { links_from(first) } {
        let word = match last {
            Some((_, its, word)) if its.shares_bucket(hash, scale) => word,
            before => {
                if let Some(before) = before {
                    finish_chain(before, false);
                }
                match fine_of(hash) {
                    Some(fine) => fine.load().without_summary(),
                    None => return link.as_ptr(),
                }
            }
        };
        let word = word.with_summary_of(hash, scale);
        last = Some((link, hash, word));
    }
    if let Some(last) = last {
        finish_chain(last, true);
    }
    null_mut()
}

/// Performs a step of shrinking: links the chains of the fine heads in front of that of the coarse
/// head, which has the chains of later heads, and makes the fine heads follow it.
fn join<L: AnyLink>(step: &Step<'_>, scale: Scale) {
    let Step { head, fines, .. } = *step;
    // An update that has found its fine head following in an earlier resize may mistake this head
    // for the base. It then holds the lock until it sees that the fine head does not follow.
    let mut joined = head.lock();
    let later: *mut L = joined.first();
    let mut last: Option<NonNull<L>> = None;
    for fine in fines {
        let word = fine.lock();
        match last {
            _ if word.is_empty() => continue,
            None => joined = joined.with_first(word.first::<L>()),
            // SAFETY: alive: in a chain that is locked, as is that of its new successor.
            Some(last) => unsafe { last.as_ref().set_next(word.first()) },
        }
        // SAFETY: the chain is locked.
        for (link, hash) in unsafe { links_from(word.first::<L>()) } {
            joined = joined.with_summary_of(hash, scale);
            last = Some(link);
        }
    }
    if let Some(last) = last.filter(|_| !later.is_null()) {
        // SAFETY: as above.
        unsafe { last.as_ref().set_next(later) };
    }
    for fine in fines {
        let word = fine.load();
        fine.unlock(word.with_follows());
    }
    head.unlock(joined);
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use relativist_testing::wait_until;

    use super::*;
    use crate::policy::Resizing;
    use crate::worker::Resize;
    use crate::{Link, Table};

    /// T4: steps cover each fine head once, in order, with the coarse head that is its lock. A step
    /// covers at most [`STEP`] of them, however large the factor.
    #[test]
    fn steps_are_bounded() {
        for (coarse_bits, fine_bits) in [(1, 2), (1, 7), (1, 8), (3, 14), (5, 6), (9, 10)] {
            let arrays = [coarse_bits, fine_bits].map(|bits| Array::allocate(bits).expect("memory for a few buckets"));
            let [coarse, fine] = arrays;
            let factor = fine.len() / coarse.len();
            for order in [Order::Ascending, Order::Descending] {
                let mut steps = Vec::new();
                let take_step = |step: Step<'_>| {
                    assert!(step.fines.len() <= STEP);
                    assert!(std::ptr::eq(&raw const step.fines[0], &raw const fine.all()[step.first]));
                    assert!(std::ptr::eq(step.head, &raw const coarse.all()[step.first / factor]));
                    assert_eq!(step.group, step.first / factor * factor);
                    let end = step.first + step.fines.len();
                    assert_eq!(step.is_last, end % factor == 0);
                    steps.push(step.first..end);
                };
                let chains = Chains { array: coarse, walks: |_| true };
                for_each_step::<Link>((coarse, fine), &chains, order, take_step);
                if matches!(order, Order::Descending) && factor > STEP {
                    steps.reverse();
                }
                assert!(steps.into_iter().flatten().eq(0..fine.len()));
            }
            // SAFETY: no other code has the arrays.
            arrays.into_iter().for_each(|array| unsafe { array.free() });
        }
    }

    unsafe fn dispose(link: NonNull<Link>) {
        // SAFETY: all links of these tables are boxed.
        drop(unsafe { Box::from_raw(link.as_ptr()) });
    }

    /// The worker and a resize by hand do not replace an array while the heads of a finer one are
    /// filled from it.
    #[test]
    fn whoever_resizes_next_finishes_what_insertions_have_begun() {
        let whoever: [fn(&Table); 2] = [
            |table| _ = table.inner().advance_resize(),
            |table| table.resize_to(256).expect("memory for some buckets"),
        ];
        for resize in whoever {
            let table = Table::new(256, Resizing::Manual, dispose).expect("memory for some buckets");
            let mut resizer = table.inner().lock_resizer();
            table.inner().begin_growth(9, &mut resizer).expect("memory for some buckets");
            table.inner().continue_growth(1, &Head::try_lock_now, &mut resizer);
            assert!(resizer.is_growing());
            drop(resizer);
            resize(&table);
            assert!(!table.inner().lock_resizer().is_growing());
        }
    }

    /// T5: an insertion does not wait for a resize, which may wait for readers.
    #[test]
    fn insertions_do_not_wait_for_a_resize() {
        let table = Table::new(2, Resizing::Automatic, dispose).expect("memory for two buckets");
        let _resizer = table.inner().lock_resizer();
        table.inner().grow_a_bit(1);
    }

    /// Links that are inserted while `shrink_to_fit` waits for readers count.
    #[test]
    fn shrinking_to_fit_counts_when_it_has_waited() {
        let table = Table::new(2, Resizing::Manual, dispose).expect("memory for two buckets");
        let insert = |n| {
            let link = NonNull::from(Box::leak(Box::new(Link::new(Hash::new(n)))));
            // SAFETY: a fresh link.
            unsafe { table.insert(link, &read()) };
        };
        let guard = read();
        table.inner().grow(12, &mut table.inner().lock_resizer()).expect("memory for some buckets");
        std::thread::scope(|scope| {
            // Waits for this thread, because chains are uncut.
            let shrunk = scope.spawn(|| table.shrink_to_fit());
            wait_until("the other thread to wait", || table.is_resizing());
            (0..1000).for_each(insert);
            drop(guard);
            shrunk.join().expect("it does not panic").expect("memory for some buckets");
        });
        assert_eq!((table.len(), table.buckets()), (1000, table.policy().buckets_for(1000)));
    }
}
