//! Growing and shrinking: the entries move to an array of another size, bucket by bucket, while
//! lookups and updates continue.
//!
//! A thread begins a resize by linking an empty array to the present one. From then on each thread
//! that inserts or removes entries moves some buckets now and then. No thread waits for readers in
//! order to grow a table, and there is no background thread. Whoever moves the last bucket
//! publishes the new array, and passes the old one to the domain, which frees it after a grace
//! period.
//!
//! To move a bucket, a thread locks it, copies its slots, and marks it as moved. Lookups and
//! updates that find the mark go on in the next array. A growth takes one bucket at a time. A
//! shrink takes all buckets that become one: none of them is marked before all are copied. No other
//! thread can find the new bucket before a mark, so it needs no lock.
//!
//! **Hashing.** Boxed slots have 16 bits of the hash, which show where entries go until the table
//! has grown by a factor of 2^16. Otherwise keys are hashed, by user code, before the bucket is
//! locked. Under the lock, the entries are compared with those that were hashed by their addresses.
//! If `Hash` panics, the bucket stays as it is, and another thread tries again. As long as `Hash`
//! panics, the resize does not end, and lookups and updates stay right. The table cannot grow
//! further, so operations take time in proportion to the entries per bucket.
//!
//! **Locks of entries.** Inline entries may have locks ([`Keys::close`]). A bucket moves when none
//! of its entries is locked. As long as one is, the resize does not end, as above.
//!
//! **Several resizes.** The next one begins when the array of the last one is published. So a
//! growth may begin while readers are in sections that saw earlier arrays. A shrink begins only
//! when no earlier array is left. Otherwise a table that grows and shrinks behind one reader could
//! collect arrays. So those that wait for readers take less memory together than the present one,
//! and one that was replaced to shrink the table, if that waits, too.

use std::ops::Range;
use std::ptr::NonNull;

use relativist_core::hint::cold_path;
use relativist_core::sync::{Backoff, Cell, Relaxed, local, yield_now};
use relativist_core::unwind::contain;
use relativist_rcu::without_reclaiming;

use crate::array::{AllocError, Array, Segment};
use crate::form::{Expected, Form, Readers};
use crate::table::{Keys, Locked, Section, Table, lock, wake_all};
use crate::word::{Hash, Tag, Word};

/// The maximum number of bits by which one resize changes the number of buckets. A thread that
/// shrinks a table locks all buckets that become one.
const MAX_STEP: u32 = 3;
/// The number of buckets that a thread moves at a time.
const CHUNK: usize = if cfg!(relativist_loom) { 1 } else { 64 };
/// The number of buckets that a thread locks together. Their words share a cache line.
const BATCH: usize = 8;
/// A thread moves a chunk after as many insertions and removals.
const INTERVAL: u32 = if cfg!(relativist_loom) { 1 } else { 16 };

/// The maximum number of turns without an attempt if a bucket stays locked again and again.
const MAX_PAUSE: u32 = if cfg!(relativist_loom) { 1 } else { 1024 / INTERVAL };

local! {
    /// Stands for the number of insertions and removals of this thread during resizes.
    static HELPED: Cell<u32> = Cell::new(0);
    /// Stands for how often this thread has considered to move buckets whose entries have locks.
    static CONSIDERED: Cell<u32> = Cell::new(0);
}

/// Counts a call, and returns true once in `interval` calls, a power of two.
///
/// A thread may use several tables in turn, each of which must have its turn. So the calls that
/// return true are not each sixteenth, say: of any two, three or more calls in turn, each returns
/// true as often. Multiples of the golden ratio are distributed like this.
#[inline(always)]
pub(crate) fn is_turn(calls: &Cell<u32>, interval: u32) -> bool {
    let call = calls.get().wrapping_add(0x9E37_79B9);
    calls.set(call);
    call <= u32::MAX / interval
}

/// How an update has changed the number of entries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Inserted,
    Removed,
}

impl<E, F: Form> Table<E, F> {
    /// The maximum number of entries in as many buckets, before a table grows: 4.5 per bucket, or
    /// 4.25 if entries are boxed.
    const MAX_LOAD: (usize, usize) = if F::BOXED { (17, 4) } else { (9, 2) };

    /// Returns the number of entries that this number of buckets has room for.
    pub(crate) fn room(bits: u32) -> usize {
        let (entries, buckets) = Self::MAX_LOAD;
        ((1usize << bits) * entries) / buckets
    }

    /// Returns the binary logarithm of the smallest number of buckets with room for this number of
    /// entries. A number beyond all memory has no room: its array cannot be allocated.
    pub(crate) fn bits_for(entries: usize) -> u32 {
        let bounds = Array::<E, F>::MIN_BITS..=Array::<E, F>::MAX_BITS;
        bounds.into_iter().find(|&bits| Self::room(bits) >= entries).unwrap_or(Array::<E, F>::MAX_BITS + 1)
    }
}

impl<E, F: Form> Section<'_, E, F> {
    /// Counts an insertion or a removal in an array, and begins a resize if one is needed.
    #[inline(always)]
    pub(crate) fn count<'g>(&'g self, array: Array<'g, E, F>, change: Change) {
        // The table may have been cleared since the entry came into the array.
        let count = &array.family().count;
        let n = if change == Change::Inserted { 1 } else { -1 };
        if F::Domain::with_index(self.guard(), |index| count.add(n, || index)) {
            self.check_size(change);
        }
    }

    #[cold]
    fn check_size(&self, change: Change) {
        /// Small tables grow by more: less is moved, and the memory hardly counts.
        const SMALL_BITS: u32 = 8;
        let array = self.array();
        let (entries, bits) = (array.family().count.sum(), array.bits());
        let wanted = match change {
            Change::Inserted if entries > Table::<E, F>::room(bits) => {
                let wanted = Table::<E, F>::bits_for(entries);
                if bits < SMALL_BITS { wanted.max(bits + 2) } else { wanted }
            }
            // After shrinking, the number of entries may still double before the table grows.
            Change::Removed if entries < Table::<E, F>::room(bits) / 16 && bits > self.table.floor => {
                Table::<E, F>::bits_for(2 * entries).max(self.table.floor)
            }
            _ => return,
        };
        // Without memory the table stays as it is, and a later update tries again.
        _ = self.table.begin(array, wanted);
    }

    /// Moves some buckets now and then, if a resize is in progress.
    #[inline(always)]
    pub fn help(&self, keys: &impl Keys<E>) {
        self.help_in(self.array(), keys);
    }

    #[inline(always)]
    pub(crate) fn help_in<'g>(&'g self, array: Array<'g, E, F>, keys: &impl Keys<E>) {
        if let Some(next) = array.next() {
            self.help_in_turn(array, next, keys);
        }
    }

    /// Moves the next bucket, if a resize is in progress.
    #[cfg(relativist_loom)]
    pub fn move_a_bucket(&self, keys: &impl Keys<E>) {
        self.help(keys);
    }

    #[cold]
    fn help_in_turn<'g>(&'g self, array: Array<'g, E, F>, next: Array<'g, E, F>, keys: &impl Keys<E>) {
        // If an entry stays locked, its bucket is tried again and again.
        let is_small = array.len() <= CHUNK && !has_locks(keys);
        if HELPED.with(|helped| is_turn(helped, INTERVAL)) || is_small {
            if !has_locks(keys) {
                // What stays is tried again.
                _ = self.move_chunk(array, next, keys);
                return;
            }
            // If a bucket had to stay, pauses follow: the longer, the more often. Each attempt
            // costs as much as the bucket has entries, and more and more are inserted there.
            let pause = array.pause();
            if CONSIDERED.with(|considered| is_turn(considered, pause)) {
                let stays = self.move_chunk(array, next, keys).is_err();
                array.set_pause(if stays { (2 * pause).min(MAX_PAUSE) } else { 1 });
            }
        }
    }

    /// Moves the next chunk of buckets. When each chunk was claimed by some thread, chunks are
    /// claimed again: a thread may have failed, or may not run for long. Fails if a bucket of the
    /// chunk had to stay.
    #[inline(never)]
    fn move_chunk<'g>(
        &'g self,
        array: Array<'g, E, F>,
        next: Array<'g, E, F>,
        keys: &impl Keys<E>,
    ) -> Result<(), Stays> {
        let targets = array.len().min(next.len());
        let chunk = CHUNK.min(targets);
        let sources = array.len() / targets;
        let first = array.claim() % (targets / chunk) * chunk;
        let (mut moved, mut in_use, mut has_panicked) = (0, false, false);
        if next.len() > array.len() {
            let mut hashed = Hashed::new();
            let mut split = |buckets| {
                contain(|| {
                    let (count, is_used) = self.split(array, buckets, next, keys, &mut hashed);
                    moved += count;
                    in_use |= is_used;
                })
            };
            for start in (first..first + chunk).step_by(BATCH) {
                let batch = start..(start + BATCH).min(first + chunk);
                (batch.end..(batch.end + BATCH).min(first + chunk))
                    .for_each(|bucket| array.bucket_at(bucket).prefetch());
                if !split(batch.clone()) {
                    // Moves those whose keys can be hashed.
                    has_panicked |=
                        batch.map(|bucket| split(bucket..bucket + 1)).filter(|is_done| !is_done).count() > 0;
                }
            }
        } else {
            for bucket in first..first + chunk {
                match self.merge(array, bucket * sources..(bucket + 1) * sources, next, keys) {
                    Ok(is_moved) => moved += if is_moved { sources } else { 0 },
                    Err(InUse) => in_use = true,
                }
            }
        }
        self.settle(array, first * sources..(first + chunk) * sources, next, moved);
        match (has_panicked, in_use) {
            (true, _) => Err(Stays::Unhashed),
            (false, true) => Err(Stays::InUse),
            (false, false) => Ok(()),
        }
    }

    /// Wakes threads that wait for these buckets, of which `moved` have moved, and counts those.
    fn settle<'g>(&'g self, array: Array<'g, E, F>, buckets: Range<usize>, next: Array<'g, E, F>, moved: usize) {
        if moved == 0 {
            return;
        }
        wake_all(buckets.map(|bucket| array.bucket_at(bucket)));
        if array.count_moved(moved) {
            self.finish(array, next);
        }
    }

    /// Publishes the array to which all buckets have moved, unless the table was cleared meanwhile.
    fn finish<'g>(&'g self, array: Array<'g, E, F>, next: Array<'g, E, F>) {
        let statistic = if next.len() > array.len() { &self.table.grows } else { &self.table.shrinks };
        // Relaxed: a statistic.
        statistic.fetch_add(1, Relaxed);
        next.family().count.size_changed(next.len());
        if self.table.array.replace(array, next) {
            // The bytes count as none. A bound on them would let insertions wait for readers, and
            // few arrays wait: see above.
            // SAFETY: lookups that begin now start at the next array.
            unsafe {
                self.table.domain.defer(self.guard(), array.into_raw(), 0, |raw| Array::<E, F>::from_raw(raw).free())
            };
        }
    }

    /// Moves a batch of buckets to a larger array. Returns how many are still to be settled, and
    /// whether one had to stay because of a locked entry. Others were moved by other threads. If
    /// `Hash` panics, all stay as they are.
    ///
    /// The buckets are locked together, and then copied. Each lock waits until the stores before it
    /// are done, and copies to memory that is in no cache take long.
    fn split<'g>(
        &'g self,
        array: Array<'g, E, F>,
        buckets: Range<usize>,
        next: Array<'g, E, F>,
        keys: &impl Keys<E>,
        hashed: &mut Hashed<E>,
    ) -> (usize, bool) {
        let by_windows = array.moves_by_windows(next.bits());
        let added_bits = next.bits() - array.bits();
        let (mut moved, mut in_use) = (0, false);
        loop {
            hashed.clear();
            for bucket in buckets.clone() {
                let first = array.bucket_at(bucket);
                if !by_windows {
                    hashed.hash_all(first, keys);
                }
                (0..1 << added_bits).for_each(|part| next.bucket_at(bucket << added_bits | part).prefetch_for_write());
            }
            let mut locked: [Option<Locked<'g, E, F>>; BATCH] = [const { None }; BATCH];
            let mut has_changed = false;
            for (index, bucket) in buckets.clone().enumerate() {
                let Some(source) = lock(array, array.bucket_at(bucket)) else { continue };
                let is_hashed = by_windows || hashed.are_all_of(index, &source);
                let is_closed = is_hashed && source.close(keys).is_ok();
                if is_closed {
                    locked[index] = Some(source);
                } else {
                    source.unlock();
                }
                has_changed |= !is_hashed;
                in_use |= is_hashed && !is_closed;
            }
            let mut targets = [Target::new(next.bucket_at(0)); 1 << MAX_STEP];
            let targets = &mut targets[..1 << added_bits];
            for (index, (source, bucket)) in locked.iter().zip(buckets.clone()).enumerate() {
                let Some(source) = source else { continue };
                for (part, target) in targets.iter_mut().enumerate() {
                    *target = Target::new(next.bucket_at(bucket << added_bits | part));
                }
                let mut hashes = hashed.hashes_of(index);
                for_each_live(source.first, source.word, |segment, slot, tag| {
                    let from = segment.slot(slot);
                    // SAFETY: the slot is live, under the lock.
                    let window = unsafe { F::window::<E>(from) };
                    // Uses only the added bits of the hash. The others might differ from those of
                    // the bucket, if `Hash` returns something else each time.
                    let (part, window) = if by_windows {
                        (array.part_by_window(window, next), window)
                    } else {
                        let hash = hashes.next().expect("all live entries were hashed");
                        (next.bucket_of(hash) & ((1 << added_bits) - 1), next.window(hash))
                    };
                    // SAFETY: no other thread can find the bucket before the mark; the slot is
                    // live.
                    unsafe { targets[part].add(from, tag, window, keys) };
                });
                targets.iter().for_each(Target::finish);
            }
            for source in locked.iter().flatten() {
                // SAFETY: all live slots are copied.
                unsafe { self.leave_behind(source) };
                moved += 1;
            }
            if !by_windows {
                // User code runs next, which may panic, or block while other threads go on.
                self.settle(array, buckets.clone(), next, std::mem::take(&mut moved));
            }
            if !has_changed {
                return (moved, in_use);
            }
        }
    }

    /// Moves several buckets to one of a smaller array. Returns false if another thread has moved
    /// them, and an error if an entry is locked. Threads that hold several locks take them in this
    /// order, and no thread that holds one waits for an earlier one.
    fn merge<'g>(
        &'g self,
        array: Array<'g, E, F>,
        sources: Range<usize>,
        next: Array<'g, E, F>,
        keys: &impl Keys<E>,
    ) -> Result<bool, InUse> {
        let mut target = Target::new(next.bucket_at(sources.start / sources.len()));
        let mut locked: [Option<Locked<'g, E, F>>; 1 << MAX_STEP] = [const { None }; 1 << MAX_STEP];
        for (index, source) in sources.enumerate() {
            let Some(source) = lock(array, array.bucket_at(source)) else {
                // This is the first one, because all are marked under all locks.
                return Ok(false);
            };
            if source.close(keys).is_err() {
                source.unlock();
                for closed in locked.into_iter().flatten() {
                    closed.reopen(keys, usize::MAX);
                    closed.unlock();
                }
                return Err(InUse);
            }
            locked[index] = Some(source);
        }
        for source in locked.iter().flatten() {
            for_each_live(source.first, source.word, |segment, slot, tag| {
                let from = segment.slot(slot);
                // SAFETY: as in `split`.
                unsafe { target.add(from, tag, F::window::<E>(from), keys) };
            });
        }
        target.finish();
        // SAFETY: all live slots are copied.
        locked.iter().flatten().for_each(|source| unsafe { self.leave_behind(source) });
        Ok(true)
    }

    /// Marks a bucket as moved, and so unlocks it. The caller wakes threads that wait for the lock.
    ///
    /// # Safety
    ///
    /// All live slots of the bucket were copied to the next array.
    unsafe fn leave_behind<'g>(&'g self, locked: &Locked<'g, E, F>) {
        let later = locked.first.chain(locked.word).nth(1).map(|(segment, _)| segment);
        locked.first.set_word(Word::MOVED_AWAY);
        let Some(later) = later else { return };
        let segments = std::iter::successors(Some(later), |segment| segment.later()).count();
        // Destructors, which a private domain may run now, may wait for other locks of this thread.
        // SAFETY: lookups that begin now do not find the segments.
        without_reclaiming(|| unsafe {
            self.table.domain.defer(self.guard(), later.into_raw(), segments * Segment::<E, F>::BYTES, |raw| {
                Segment::<E, F>::free_chain(Some(Segment::from_raw(raw)));
            });
        });
    }
}

impl<E, F: Form> Table<E, F> {
    /// Begins a resize of `array` if none is in progress, and if it may begin now. Returns whether
    /// one is in progress.
    fn begin(&self, array: Array<'_, E, F>, wanted: u32) -> Result<bool, AllocError> {
        let bits = array.bits();
        if array.next().is_some() {
            return Ok(true);
        }
        if wanted == bits || wanted < bits && array.has_ancestors() {
            return Ok(false);
        }
        let next = array.successor(wanted.clamp(bits.saturating_sub(MAX_STEP), bits + MAX_STEP))?;
        if !array.set_next(next) {
            // SAFETY: no other thread has found it.
            unsafe { next.free() };
        }
        Ok(true)
    }

    /// Begins a resize to 2^`bits` buckets, of which models move each by an update or by
    /// [`Section::move_a_bucket`].
    #[cfg(relativist_loom)]
    pub fn begin_resize(&self, bits: u32) {
        assert!(self.begin(self.enter().array(), bits).unwrap());
    }

    /// Resizes by hand until the table has `wanted` bits, which is asked for again after each step,
    /// because entries come and go meanwhile. Waits for readers if the table has to shrink. Gives
    /// up if `Hash` panics again and again, or an entry is locked.
    ///
    /// The caller is not in a read section of the domain, if the table may have to shrink.
    fn resize(&self, wanted: impl Fn(&Self, u32) -> u32, keys: &impl Keys<E>) -> Result<(), AllocError> {
        /// The number of attempts at chunks that have to stay. Most locks are held for a moment.
        const MAX_PANICS: u32 = 3;
        const MAX_WAITS: u32 = if cfg!(relativist_loom) { 3 } else { 8 };
        let mut backoff = Backoff::new();
        let (mut panics, mut waits) = (0, 0);
        loop {
            let section = self.enter();
            let array = section.array();
            if let Some(next) = array.next() {
                match section.move_chunk(array, next, keys) {
                    Ok(()) => {}
                    Err(Stays::Unhashed) => panics += 1,
                    Err(Stays::InUse) => {
                        waits += 1;
                        backoff.wait();
                    }
                }
                if panics == MAX_PANICS || waits == MAX_WAITS {
                    // All other buckets have moved by now, or nearly so.
                    return Ok(());
                }
                if section.array() == array && array.is_claimed(array.len().min(next.len()).div_ceil(CHUNK)) {
                    // Other threads move the last buckets.
                    yield_now();
                }
                continue;
            }
            let wanted = wanted(self, array.bits());
            if wanted == array.bits() {
                return Ok(());
            }
            if !self.begin(array, wanted)? {
                drop(section);
                self.domain.wait();
                backoff.wait();
            }
        }
    }

    /// Makes room for `additional` more entries. Waits for no reader.
    ///
    /// # Errors
    ///
    /// Returns an error if the buckets cannot be allocated: the table stays as it was.
    pub fn reserve(&self, additional: usize, keys: &impl Keys<E>) -> Result<(), AllocError> {
        let wanted = Self::bits_for(self.len().saturating_add(additional));
        // Growth takes several steps, none of which begins if the last one cannot be made.
        if wanted > self.enter().array().bits() {
            Array::<E, F>::check(wanted)?;
        }
        self.resize(|_, bits| wanted.max(bits), keys)
    }

    /// Shrinks the table as far as its entries permit, and waits for readers.
    ///
    /// The caller is not in a read section of the domain: it would wait for itself.
    ///
    /// # Errors
    ///
    /// Returns an error if the buckets cannot be allocated: the table stays as it was.
    pub fn shrink_to_fit(&self, keys: &impl Keys<E>) -> Result<(), AllocError> {
        self.resize(|table, bits| Self::bits_for(table.len()).min(bits), keys)
    }
}

/// An entry is locked, so its bucket stays where it is.
struct InUse;

/// Why a bucket stays where it is for now.
enum Stays {
    /// `Hash` has panicked.
    Unhashed,
    /// An entry is locked.
    InUse,
}

impl<E, F: Form> Locked<'_, E, F> {
    /// Closes all entries, if they have locks. Fails if one is locked: then none is closed.
    fn close(&self, keys: &impl Keys<E>) -> Result<(), InUse> {
        if F::BOXED || !has_locks(keys) {
            return Ok(());
        }
        let (mut closed, mut in_use) = (0, false);
        self.for_each_entry(|entry| {
            in_use = in_use || !keys.close(entry);
            closed += usize::from(!in_use);
        });
        if in_use {
            self.reopen(keys, closed);
            return Err(InUse);
        }
        Ok(())
    }

    /// Opens the first `count` entries again.
    fn reopen(&self, keys: &impl Keys<E>, mut count: usize) {
        self.for_each_entry(|entry| {
            if count > 0 {
                keys.reopen(entry);
                count -= 1;
            }
        });
    }

    fn for_each_entry(&self, mut visit: impl FnMut(&E)) {
        for_each_live(self.first, self.word, |segment, slot, _| {
            // SAFETY: the slot is live, under the lock.
            if let Some(entry) = unsafe { F::get::<E>(segment.slot(slot), Expected::Any) } {
                // SAFETY: as above.
                visit(unsafe { entry.as_ref() });
            }
        });
    }
}

const fn has_locks<E, K: Keys<E>>(_: &K) -> bool {
    K::HAVE_LOCKS
}

/// The entries of a batch of buckets and their hashes.
struct Hashed<E> {
    /// For each bucket the word of its first segment, and where its entries end.
    buckets: Vec<(Word, usize)>,
    entries: Vec<(NonNull<E>, Hash)>,
}

impl<E> Hashed<E> {
    fn new() -> Self {
        Self { buckets: Vec::with_capacity(BATCH), entries: Vec::with_capacity(BATCH * Word::SLOTS) }
    }

    fn clear(&mut self) {
        self.buckets.clear();
        self.entries.clear();
    }

    /// Hashes the entries of the next bucket.
    fn hash_all<F: Form>(&mut self, first: Segment<'_, E, F>, keys: &impl Keys<E>) {
        let word = first.word();
        for_each_live(first, word, |segment, slot, _| {
            // SAFETY: the words were loaded in a read section that lasts.
            let Some(entry) = (unsafe { F::get::<E>(segment.slot(slot), Expected::Any) }) else { return };
            // SAFETY: as above.
            self.entries.push((entry, keys.hash(unsafe { entry.as_ref() })));
        });
        self.buckets.push((word, self.entries.len()));
    }

    fn range_of(&self, index: usize) -> Range<usize> {
        let end_of = |index: usize| self.buckets.get(index).map_or(0, |&(_, end)| end);
        index.checked_sub(1).map_or(0, end_of)..end_of(index)
    }

    fn hashes_of(&self, index: usize) -> impl Iterator<Item = Hash> {
        self.entries[self.range_of(index)].iter().map(|&(_, hash)| hash)
    }

    /// Returns whether a bucket still has the same entries, in the same order.
    fn are_all_of<F: Form>(&self, index: usize, locked: &Locked<'_, E, F>) -> bool {
        // A slot that is live in both words has the same entry, because this is the same section.
        if !F::BOXED && !locked.word.has_later() && locked.word == self.buckets[index].0 {
            return true;
        }
        let mut entries = self.entries[self.range_of(index)].iter();
        let mut are_same = true;
        for_each_live(locked.first, locked.word, |segment, slot, _| {
            // SAFETY: the slot is live, and the bucket is locked.
            let entry = unsafe { F::get::<E>(segment.slot(slot), Expected::Any) };
            are_same &= entry == entries.next().map(|&(entry, _)| entry);
        });
        are_same && entries.next().is_none()
    }
}

/// Calls a function with each live slot of a bucket and its tag. `word` is the word of the first
/// segment.
#[inline(always)]
fn for_each_live<'g, E, F: Form>(
    first: Segment<'g, E, F>,
    word: Word,
    mut visit: impl FnMut(Segment<'g, E, F>, usize, Tag),
) {
    word.live().for_each(|slot| visit(first, slot, word.tag(slot)));
    if !word.has_later() || word.is_moved() {
        return;
    }
    for (segment, word) in first.chain(word).skip(1) {
        word.live().for_each(|slot| visit(segment, slot, word.tag(slot)));
    }
}

/// A bucket of the next array that is being filled, and that no other thread can find.
struct Target<'g, E, F> {
    first: Segment<'g, E, F>,
    word: Word,
    /// The last segment, in which slots are free from `used` on.
    last: Segment<'g, E, F>,
    used: usize,
}

impl<E, F> Clone for Target<'_, E, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E, F> Copy for Target<'_, E, F> {}

impl<'g, E, F: Form> Target<'g, E, F> {
    fn new(first: Segment<'g, E, F>) -> Self {
        Self { first, word: Word::EMPTY, last: first, used: 0 }
    }

    /// Adds a copy of a slot.
    ///
    /// # Safety
    ///
    /// No other thread can find the bucket, and the slot is live and its bucket locked.
    unsafe fn add(&mut self, from: *const F::Slot<E>, tag: Tag, window: u16, keys: &impl Keys<E>) {
        if self.used == Word::SLOTS {
            cold_path();
            let added = Segment::allocate();
            self.last.set_later(Some(added));
            (self.last, self.used) = (added, 0);
        }
        let to = self.last.slot(self.used);
        // SAFETY: guaranteed by the caller. An inline slot always has an entry.
        unsafe {
            F::copy::<E>(from, to, window);
            if !F::BOXED && has_locks(keys) {
                keys.open_copy(F::get(to, Expected::Any).expect("it was put there"));
            }
        }
        if self.last == self.first {
            self.word = self.word.with_tag(self.used, tag);
        } else {
            self.last.set_word(self.last.word().with_tag(self.used, tag));
            self.word = self.word.with_filter_of(tag);
        }
        self.used += 1;
    }

    /// Sets the word of the bucket.
    fn finish(&self) {
        self.first.set_word(self.word);
    }
}
