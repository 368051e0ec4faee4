//! The one transition by which a table grows and shrinks, by any power of two, under lookups and updates.
//!
//! Growing and shrinking are the same thing seen from two ends: fine buckets become one coarse bucket or the other way
//! round, and in between the group has one merged chain with entries from both arrays (see `group.rs`). Chains are sorted
//! by hash and buckets are ranges of hashes, so merging is linking ends to beginnings, and splitting is cutting
//! (ATC 2011, section 4.3). No cut hides anything from a lookup that came by a fine head; only those who came by the coarse
//! head need the links between. Hence one wait for readers is enough, whatever the factor, where unsorted chains need one
//! for each pass of unzipping.
//!
//! **Grow:** fill and mark the fine heads, group by group; publish the fine array; wait for readers; cut, group by group;
//! free the coarse array after another grace period, because updaters look at marks in it.
//!
//! **Shrink:** mark the fine heads and join their chains, group by group; publish the coarse array; wait for readers; free
//! the fine array.
//!
//! Updates go on meanwhile, each waiting at most for the step of its own group.
//!
//! **What it costs:** links lie anywhere in memory, so the resizer brings them near for many chains at once, and looks at them only
//! where it must: the summary of a head tells where its links go as long as they go to one place, which is the case for most
//! short chains. Summaries get less exact by that, and the last step makes up for it; but not where nothing is to be cut in a table that
//! the background worker has to grow again at once.

use std::ops::Range;
use std::ptr::{NonNull, null_mut};

#[cfg(not(relativist_loom))]
use relativist_rcu::read;
use relativist_rcu::{GracePeriod, defer_raw, wait_for_readers};

use super::array::{AllocError, Array};
use super::hash::Scale;
use super::head::{Head, Word};
use super::link::links_from;
use super::table::{Core, Resizer};
use super::{Hash, Link};
use crate::mutation;
use crate::sync::Relaxed;
use relativist_rcu::prefetch::prefetch_for_write;

impl Core {
    /// Resizes to 2^`bits` buckets. The caller is outside of read sections and holds `resizer`; when it has let go of that, it has
    /// to [`retire`] the array that is returned.
    pub(super) fn resize(&self, bits: u32, resizer: &mut Resizer) -> Result<Option<Array<'_>>, AllocError> {
        if bits == resizer.bits {
            return Ok(None);
        }
        // Updaters that began during the last transition may still take its marks and arrays for the present ones.
        if let Some(previous) = resizer.previous.take().filter(|_| !mutation::is("skip-previous-wait")) {
            previous.wait();
        }
        // SAFETY: only the resizer frees arrays, and we are it.
        let old = unsafe { self.array.load() };
        let new = Array::allocate(bits)?;
        old.set_partner(Some(new));
        new.set_partner(Some(old));
        let grows = bits > old.bits();
        if grows {
            self.grow(old, new, resizer);
        } else {
            self.shrink(old, new);
        }
        resizer.bits = bits;
        self.size_changed(new.len());
        Ok(grows.then_some(old))
    }

    fn wait_for_readers(&self) {
        wait_for_readers();
        // Relaxed: a statistic.
        self.counts.grace_periods.fetch_add(1, Relaxed);
    }

    fn grow(&self, coarse: Array<'_>, fine: Array<'_>, resizer: &mut Resizer) {
        if mutation::is("publish-before-fill") {
            self.array.publish(fine);
        }
        let factor = fine.len() / coarse.len();
        let is_mixed = |word: Word| word.sole_part(factor).is_none();
        for_each_group(coarse, fine, coarse, is_mixed, |head, fines| fill(head, fines, fine.scale()));
        self.array.publish(fine);
        if !mutation::is("skip-grow-wait") {
            self.wait_for_readers();
        }
        let haste = self.wants_more_than(fine.len());
        for_each_group(
            coarse,
            fine,
            coarse,
            |word| !haste || is_mixed(word),
            |head, fines| {
                cut(head, fines, fine.scale(), haste);
            },
        );
        fine.set_partner(None);
        resizer.previous = Some(GracePeriod::start());
        // Relaxed: a statistic.
        self.counts.grows.fetch_add(1, Relaxed);
    }

    fn shrink(&self, fine: Array<'_>, coarse: Array<'_>) {
        if mutation::is("publish-before-join") {
            self.array.publish(coarse);
        }
        for_each_group(coarse, fine, fine, |_| true, |head, fines| join(head, fines, coarse.scale()));
        self.array.publish(coarse);
        if !mutation::is("skip-shrink-wait") {
            self.wait_for_readers();
        }
        coarse.set_partner(None);
        // Relaxed: a statistic.
        self.counts.shrinks.fetch_add(1, Relaxed);
        // SAFETY: readers and updaters enter by the coarse array since it was published, and those from before have left.
        unsafe { fine.free() };
    }
}

/// Does a step to each coarse head with the fine heads that it covers, in the order of the hashes. `chained` is the array whose heads
/// lead to the links at present: those that the step will walk are brought near for some groups at a time, before any of these is locked.
fn for_each_group(
    coarse: Array<'_>,
    fine: Array<'_>,
    chained: Array<'_>,
    walks: impl Fn(Word) -> bool,
    step: impl Fn(&Head, &[Head]),
) {
    let factor = fine.len() / coarse.len();
    let per_group = chained.len() / coarse.len();
    let batch = (Array::BATCH / per_group).max(1);
    let batches = coarse.all().chunks(batch).zip(fine.all().chunks(batch * factor));
    for (number, (coarse, fine)) in batches.enumerate() {
        let first = number * batch * per_group;
        let buckets = first..first + coarse.len() * per_group;
        bring_near(chained, buckets, &walks);
        // About to be written, all of them.
        [coarse, fine]
            .iter()
            .for_each(|heads| heads.iter().step_by(Head::PER_LINE).for_each(|head| prefetch_for_write(head)));
        coarse.iter().zip(fine.chunks_exact(factor)).for_each(|(head, fines)| step(head, fines));
    }
}

/// [`Array::bring_near`] for who is not in a read section.
#[cfg(not(relativist_loom))]
fn bring_near(array: Array<'_>, buckets: Range<usize>, is_wanted: impl Fn(Word) -> bool) {
    let _guard = read();
    // SAFETY: in a read section.
    unsafe { array.bring_near(buckets, is_wanted) };
}

/// There is nothing in it for loom.
#[cfg(relativist_loom)]
fn bring_near(_: Array<'_>, _: Range<usize>, _: impl Fn(Word) -> bool) {}

/// First step of growing: lets the fine heads enter the coarse chain, and marks all of them.
fn fill(coarse: &Head, fines: &[Head], scale: Scale) {
    let fill_all = |word: Word| fines.iter().for_each(|fine| fine.store(word));
    // Nobody looks at fine heads before the coarse one is marked.
    fill_all(Word::EMPTY.with_transition());
    // Where the head tells it all, the chain need not be locked, nor looked at. If links came and went until the mark is set, and the head is
    // as it was, it tells the same.
    let word = coarse.load();
    if let Some(part) = word.sole_part(fines.len()) {
        fines[part].store(word.of_sole_part(part, fines.len()).with_transition());
        if mutation::is("unmarked-coarse") || coarse.try_mark(word) {
            return;
        }
        fill_all(Word::EMPTY.with_transition());
    }
    let word = if mutation::is("fill-unlocked") { coarse.load() } else { coarse.lock() };
    fill_by_chain(word.first(), fines, scale);
    // The mark tells updaters that the fine heads are there to be kept right.
    coarse.unlock(if mutation::is("unmarked-coarse") { word } else { word.with_transition() });
}

fn fill_by_chain(first: *mut Link, fines: &[Head], scale: Scale) {
    let mut last = None;
    // SAFETY: the chain is locked.
    for (link, hash) in unsafe { links_from(first) } {
        let fine = &fines[hash.bucket(scale) % fines.len()];
        let is_first = !last.replace(hash).is_some_and(|last| hash.shares_bucket(last, scale));
        let head = if is_first { fine.load().with_first(link.as_ptr()) } else { fine.load() };
        fine.store(head.with_summary_of(hash, scale));
    }
}

/// Last step of growing: cuts the chain between fine buckets, and makes the fine heads lockable. No reader is left who
/// came by the coarse head. In haste, a chain that need not be cut is not looked at; otherwise its summaries are made exact.
fn cut(coarse: &Head, fines: &[Head], scale: Scale, haste: bool) {
    if mutation::is("clear-before-cut") {
        fines.iter().for_each(|fine| fine.store(fine.load().without_transition()));
    }
    let word = if mutation::is("cut-unlocked") { coarse.load() } else { coarse.lock() };
    if !(haste && word.sole_part(fines.len()).is_some()) {
        cut_chain(word.first(), fines, scale);
    }
    // All cuts come before the first mark is cleared: from then on the fine bucket's own lock counts.
    if !mutation::is("clear-before-cut") {
        fines.iter().for_each(|fine| fine.store(fine.load().without_transition()));
    }
    coarse.unlock(Word::moved());
}

fn cut_chain(first: *mut Link, fines: &[Head], scale: Scale) {
    let mut last: Option<(NonNull<Link>, Hash, Word)> = None;
    // A summary is stored when it is complete: lookups go by it.
    let finish = |hash: Hash, word| fines[hash.bucket(scale) % fines.len()].store(word);
    // SAFETY: the chain is locked.
    for (link, hash) in unsafe { links_from(first) } {
        let word = match last {
            Some((_, its, word)) if its.shares_bucket(hash, scale) => word,
            before => {
                if let Some((before, its, word)) = before {
                    // SAFETY: in the chain that we have locked.
                    unsafe { before.as_ref() }.set_next(null_mut());
                    finish(its, word);
                }
                fines[hash.bucket(scale) % fines.len()].load().without_summary()
            }
        };
        let word = word.with_summary_of(hash, scale);
        if mutation::is("partial-summary") {
            finish(hash, word);
        }
        last = Some((link, hash, word));
    }
    if let Some((_, hash, word)) = last {
        finish(hash, word);
    }
}

/// The step of shrinking: links the fine chains to one, enters it into the coarse head, and sends updaters there.
fn join(coarse: &Head, fines: &[Head], scale: Scale) {
    let mut joined = Word::EMPTY;
    let mut last: Option<NonNull<Link>> = None;
    for fine in fines {
        let word = if mutation::is("join-unlocked") { fine.load() } else { fine.lock() };
        match last {
            _ if word.first().is_null() => continue,
            None => joined = joined.with_first(word.first()),
            // SAFETY: in a chain that we have locked.
            Some(last) => unsafe { last.as_ref() }.set_next(word.first()),
        }
        // SAFETY: the chain is locked.
        for (link, hash) in unsafe { links_from(word.first()) } {
            joined = joined.with_summary_of(hash, scale);
            last = Some(link);
        }
    }
    coarse.store(joined);
    for fine in fines {
        let word = fine.load();
        fine.unlock(if mutation::is("unmarked-fine") { word } else { word.with_transition() });
    }
}

/// Frees an array that is not the published one any more, after a grace period.
pub(super) fn retire(array: Array<'_>) {
    let raw = array.into_raw();
    if mutation::is("free-at-once") {
        // SAFETY: none; that is the point.
        return unsafe { Array::from_raw(raw).free() };
    }
    // SAFETY: nobody who enters from now on can find the array, and it is freed once.
    unsafe { defer_raw(raw, array.bytes(), |raw| Array::from_raw(raw).free()) };
}
