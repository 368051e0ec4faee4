//! The head of a bucket: one word that holds the chain, its lock, its state and its summary.
//!
//! ```text
//!  63                                        19   18      17        16   15           0
//! +--------------------------------------------+-------+---------+--------+----------+
//! | first link                                 | finer | follows | locked | summary  |
//! +--------------------------------------------+-------+---------+--------+----------+
//! ```
//!
//! * *summary:* bit *n* is set when some link of the bucket has *n* in the four hash bits that
//!   follow those of the bucket. A bit may be set needlessly, but is never clear while the bucket
//!   has such a link.
//! * *follows:* the head can't be locked. The head in a coarser array, the *base*, is the lock of
//!   its chain. If the link bits are all ones, the head itself was the base of a group that was
//!   cut, and a finer array is published.
//! * *finer:* the heads of a finer array that this bucket covers are filled. An update maintains
//!   them as well.
//! * *locked:* an update or the resizer holds the lock. Readers ignore it. Until it is released, no
//!   other thread writes to the head.
//!
//! Locking and unlocking take one atomic read-modify-write each.

use super::hash::{Hash, Scale};
use relativist_core::prefetch::prefetch;
#[cfg(not(relativist_loom))]
use relativist_core::sleepers::Sleepers;
use relativist_core::sync::{AcqRel, Acquire, AtomicPtr, Relaxed, Release};
use relativist_rcu::contention::Site;

/// The value of a [`Head`]. Pointers keep their provenance, so this is a tagged pointer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(*mut ());

impl Word {
    /// Links lie below 2^48 and are aligned to 8, so 45 bits identify one.
    const LINK: usize = !0 << 19;
    const LINK_SHIFT: u32 = 16;
    const FINER: usize = 1 << 18;
    const FOLLOWS: usize = 1 << 17;
    const LOCKED: usize = 1 << 16;
    const SUMMARY_BITS: usize = 16;

    /// An empty, settled bucket.
    pub(super) const EMPTY: Self = Self(std::ptr::null_mut());

    /// An empty bucket that follows a coarser one.
    pub(super) const EMPTY_FOLLOWER: Self = Self(std::ptr::without_provenance_mut(Self::FOLLOWS));

    /// Returns the word of a head whose group was cut: its links belong to the finer heads now.
    pub(super) fn moved() -> Self {
        Self(std::ptr::without_provenance_mut(Self::LINK | Self::FOLLOWS))
    }

    /// Returns the first link, of the kind that the table has.
    #[inline(always)]
    pub(super) fn first<L>(self) -> *mut L {
        self.0.map_addr(|word| (word & Self::LINK) >> Self::LINK_SHIFT).cast()
    }

    /// Returns whether the head leads to no link.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0.addr() & Self::LINK == 0
    }

    /// Returns whether a link with this hash may be in the chain.
    #[inline(always)]
    pub(super) fn may_contain(self, hash: Hash, scale: Scale) -> bool {
        self.0.addr() >> hash.summary_slot(scale) & 1 != 0
    }

    #[inline]
    fn summary_bit(hash: Hash, scale: Scale) -> usize {
        1 << hash.summary_slot(scale)
    }

    /// Returns whether the summary shows that all links of the chain come after this hash.
    #[inline(always)]
    pub(super) fn is_after(self, hash: Hash, scale: Scale) -> bool {
        self.0.addr() & ((2 << hash.summary_slot(scale)) - 1) == 0
    }

    /// Returns the only one of the `factor` finer buckets into which this one is split that has
    /// links, if the summary shows that it is the only one. If there are no links, returns any.
    pub(super) fn sole_part(self, factor: usize) -> Option<usize> {
        let width = Self::SUMMARY_BITS.checked_div(factor).filter(|&width| width > 0)?;
        let summary = self.summary();
        if self.is_empty() || summary == 0 {
            return Some(0);
        }
        let part = summary.trailing_zeros() as usize / width;
        (summary >> (part * width) >> width == 0).then_some(part)
    }

    /// Returns the word for the head of that part. The summary of the finer bucket covers hash bits
    /// that are not known here, so it has the bits for all their values.
    pub(super) fn of_sole_part(self, part: usize, factor: usize) -> Self {
        if self.is_empty() {
            return Self::EMPTY;
        }
        let width = Self::SUMMARY_BITS / factor;
        let of_part = self.summary() >> (part * width);
        let spread = (0..width).filter(|bit| of_part >> bit & 1 != 0).map(|bit| ((1 << factor) - 1) << (bit * factor));
        Self::EMPTY.with_first(self.first::<()>()).with(spread.sum())
    }

    fn summary(self) -> usize {
        self.0.addr() & ((1 << Self::SUMMARY_BITS) - 1)
    }

    #[inline]
    pub(super) fn without_summary(self) -> Self {
        self.without((1 << Self::SUMMARY_BITS) - 1)
    }

    pub(super) fn is_locked(self) -> bool {
        self.0.addr() & Self::LOCKED != 0
    }

    /// Returns whether the head cannot be locked, because the head of a coarser array, its *base*,
    /// is the lock of the chain.
    pub(super) fn follows(self) -> bool {
        self.0.addr() & Self::FOLLOWS != 0
    }

    /// Returns whether the heads of a finer array that this bucket covers are filled, so that
    /// updates have to maintain them.
    pub(super) fn has_finer(self) -> bool {
        self.0.addr() & Self::FINER != 0
    }

    /// Returns whether the head is neither locked nor part of a resize.
    #[inline(always)]
    fn is_free_and_settled(self) -> bool {
        self.0.addr() & (Self::LOCKED | Self::FOLLOWS | Self::FINER) == 0
    }

    pub(super) fn is_moved(self) -> bool {
        self.0.addr() & Self::LINK == Self::LINK
    }

    #[inline]
    fn with(self, bits: usize) -> Self {
        Self(self.0.map_addr(|word| word | bits))
    }

    #[inline]
    fn without(self, bits: usize) -> Self {
        Self(self.0.map_addr(|word| word & !bits))
    }

    pub(super) fn with_follows(self) -> Self {
        self.with(Self::FOLLOWS)
    }

    pub(super) fn without_follows(self) -> Self {
        self.without(Self::FOLLOWS)
    }

    pub(super) fn with_finer(self) -> Self {
        self.with(Self::FINER)
    }

    #[inline(always)]
    pub(super) fn with_first<L>(self, link: *mut L) -> Self {
        #[cold]
        fn refuse(link: *mut ()) -> ! {
            panic!("a link must be aligned to 8 and lie below 2^48: {link:p}")
        }
        let shifted = link.addr() << Self::LINK_SHIFT;
        if shifted & !Self::LINK != 0 || shifted >> Self::LINK_SHIFT != link.addr() {
            refuse(link.cast());
        }
        Self(link.map_addr(|_| self.0.addr() & !Self::LINK | shifted).cast())
    }

    #[inline]
    pub(super) fn with_summary_of(self, hash: Hash, scale: Scale) -> Self {
        self.with(Self::summary_bit(hash, scale))
    }

    #[inline]
    pub(super) fn without_summary_of(self, hash: Hash, scale: Scale) -> Self {
        self.without(Self::summary_bit(hash, scale))
    }
}

/// The locks of heads.
static BUCKET: Site = Site::new("map_bucket");

/// A bucket's head.
#[repr(transparent)]
pub(super) struct Head(AtomicPtr<()>);

impl Head {
    /// The number of heads in a cache line of 64 bytes.
    pub(super) const PER_LINE: usize = 64usize.div_ceil(size_of::<Self>());

    #[cfg(relativist_loom)]
    pub(super) fn empty() -> Self {
        Self(AtomicPtr::new(Word::EMPTY.0))
    }

    #[inline(always)]
    pub(super) fn load(&self) -> Word {
        // Acquire: pairs with the Release of `store` and `unlock`. This thread sees the first link
        // as it was published, and if it sees a mark, what was prepared before the mark was set.
        // litmus: chain-head, chain-unlock, chain-relocked, chain-continued, array-filled
        // litmus: cut-moved
        Word(self.0.load(Acquire))
    }

    /// Stores into a head that no other thread may write to: the caller holds its lock, or it is
    /// not published yet, or it follows a coarser head whose lock the caller holds.
    #[inline]
    pub(super) fn store(&self, word: Word) {
        // Release: pairs with the Acquire in `load` and `lock`.
        // litmus: chain-head, array-filled, base-found, summary-announced, newest-first
        // litmus: chain-relocked
        self.0.store(word.0, Release);
    }

    /// Locks a head that is unlocked and not part of a resize, and returns what it held. `None` if
    /// it is locked or part of a resize, or if another thread changes it first.
    #[inline(always)]
    pub(super) fn try_lock_if_settled(&self) -> Option<Word> {
        let word = self.load();
        // The exchange below waits for all loads before it, and delays all that come after.
        prefetch(word.first::<()>());
        let is_locked = word.is_free_and_settled() && self.try_lock(word);
        if is_locked {
            BUCKET.attempt().acquired();
        }
        is_locked.then_some(word)
    }

    /// Locks a head and returns what it held. If the head follows a coarser one, or its group was
    /// cut, returns what it holds as the error.
    pub(super) fn lock_owner(&self) -> Result<Word, Word> {
        self.lock_unless(Word::follows)
    }

    /// Locks a head in any state, and returns what it held.
    pub(super) fn lock(&self) -> Word {
        self.lock_unless(|_| false).unwrap_or_else(|word| word)
    }

    /// Locks a head in any state, and returns what it held. `None` if another thread holds the lock
    /// or changes the head first.
    pub(super) fn try_lock_now(&self) -> Option<Word> {
        let word = self.load();
        let is_locked = !word.is_locked() && self.try_lock(word);
        if is_locked {
            BUCKET.attempt().acquired();
        }
        is_locked.then_some(word)
    }

    fn lock_unless(&self, refused: impl Fn(Word) -> bool) -> Result<Word, Word> {
        let mut spins = 0;
        let mut attempt = BUCKET.attempt();
        loop {
            let word = self.load();
            if refused(word) {
                return Err(word);
            }
            if word.is_locked() {
                attempt.contended();
                self.wait(&mut spins);
                continue;
            }
            if self.try_lock(word) {
                attempt.acquired();
                return Ok(word);
            }
        }
    }

    /// Sets the mark that finer heads are filled, if the head is not locked and still holds `word`.
    /// Returns whether it did.
    pub(super) fn try_mark_finer(&self, word: Word) -> bool {
        // AcqRel, Relaxed: as in `try_lock`; an update that sees the mark sees the finer heads as
        // they were filled.
        // litmus: mark-finer, mark-unchanged
        !word.is_locked() && self.0.compare_exchange(word.0, word.with_finer().0, AcqRel, Relaxed).is_ok()
    }

    /// Replaces what a head holds. The caller holds its lock, and keeps it.
    #[inline]
    pub(super) fn set_locked(&self, word: Word) {
        self.store(word.with(Word::LOCKED));
    }

    /// Sets what the head holds from now on, and unlocks it.
    #[inline(always)]
    pub(super) fn unlock(&self, word: Word) {
        // AcqRel: Release pairs with the Acquire in `load` and `try_lock`. A Release store would be
        // enough for that. But it could still be in the store buffer of the processor when the
        // update has returned and the thread's next lookup reads. Two threads that each insert and
        // then look up what the other inserted could both miss (T3). An exchange is a full barrier
        // on x86-64; elsewhere `wake_waiters` has a fence.
        // litmus: chain-unlock, lock, lock-reads, cut-moved, base-left, update-then-lookup
        // litmus: chain-relocked, chain-continued
        self.0.swap(word.without(Word::LOCKED).0, AcqRel);
        self.wake_waiters();
    }

    #[inline(always)]
    fn try_lock(&self, word: Word) -> bool {
        // AcqRel: Acquire pairs with the Release in `unlock`; Release keeps publishing the chain to
        // readers, which may load this word. On failure the caller loads again, hence Relaxed.
        // litmus: lock, lock-reads, lock-once, chain-continued, cut-lockable, base-left, mark-finer
        // litmus: chain-relocked
        self.0.compare_exchange(word.0, word.with(Word::LOCKED).0, AcqRel, Relaxed).is_ok()
    }
}

#[cfg(not(relativist_loom))]
static SLEEPERS: Sleepers = Sleepers::new();

#[cfg(not(relativist_loom))]
impl Head {
    #[cold]
    fn wait(&self, spins: &mut u32) {
        SLEEPERS.wait(spins, std::ptr::from_ref(self).addr(), || self.load().is_locked());
    }

    /// Called after the exchange that unlocks, which this makes a full barrier.
    #[inline(always)]
    fn wake_waiters(&self) {
        SLEEPERS.wake(std::ptr::from_ref(self).addr());
    }
}

#[cfg(relativist_loom)]
impl Head {
    fn wait(&self, _: &mut u32) {
        relativist_core::sync::yield_now();
    }

    fn wake_waiters(&self) {}
}

#[cfg(all(test, not(relativist_loom)))]
mod tests {
    use super::*;

    const SCALE: Scale = Scale::of_bits(10);

    /// Returns a hash of bucket 0. The four bits after those of the bucket are `slot`, and the four
    /// bits after these are `next`.
    fn hash(slot: usize, next: usize) -> Hash {
        Hash::from_mixed((slot << 50 | next << 46) as u64)
    }

    fn word(summary: usize) -> Word {
        Word::EMPTY.with_first(std::ptr::without_provenance_mut::<()>(8)).with(summary)
    }

    /// Returns a word that leads to this address.
    fn word_of(address: usize) -> Word {
        Word::EMPTY.with_first(std::ptr::without_provenance_mut::<()>(address))
    }

    #[test]
    fn the_highest_address_has_room() {
        assert_eq!(word_of((1 << 48) - 8).first::<()>().addr(), (1 << 48) - 8);
    }

    #[test]
    #[should_panic(expected = "lie below 2^48: 0x1000000000000")]
    fn an_address_above_2_48_is_refused() {
        word_of(1 << 48);
    }

    #[test]
    #[should_panic(expected = "lie below 2^48")]
    fn the_highest_bits_of_an_address_are_not_dropped() {
        word_of(1 << 63 | 8);
    }

    #[test]
    #[should_panic(expected = "aligned to 8")]
    fn an_address_that_is_not_aligned_is_refused() {
        word_of(4);
    }

    /// If a summary shows the sole part, then all links that the summary may stand for are in this
    /// part, and the summary of the part has their bits.
    #[test]
    fn a_summary_tells_the_sole_part() {
        for factor_bits in 1..=5 {
            let factor = 1 << factor_bits;
            let fine = Scale::of_bits(SCALE.bits() + factor_bits);
            for summary in 1..1 << Word::SUMMARY_BITS {
                let word = word(summary);
                let links = (0..16).filter(|slot| summary >> slot & 1 != 0);
                let links = links.flat_map(|slot| (0..16).map(move |next| hash(slot, next)));
                let mut parts: Vec<usize> = links.clone().map(|link| link.bucket(fine)).collect();
                parts.dedup();
                let sole = (parts.len() == 1).then(|| parts[0]);
                assert_eq!(word.sole_part(factor), sole, "{summary:#b} in {factor} parts");
                let Some(part) = sole else { continue };
                let fine_word = word.of_sole_part(part, factor);
                assert_eq!(fine_word.first::<()>(), word.first());
                let announced = (0..16).filter(|&slot| fine_word.summary() >> slot & 1 != 0).count();
                let mut needed: Vec<u32> = links.map(|link| link.summary_slot(fine)).collect();
                assert!(needed.iter().all(|slot| fine_word.summary() >> slot & 1 != 0), "{summary:#b}");
                needed.sort_unstable();
                needed.dedup();
                assert_eq!(announced, needed.len(), "{summary:#b} in {factor} parts: no more than needed");
            }
        }
    }

    #[cfg(feature = "contention")]
    #[test]
    fn contention_is_counted() {
        use relativist_rcu::contention::{Counts, counts};

        let counts = || counts().into_iter().find(|counts| counts.site == BUCKET.name());
        let head = Head(AtomicPtr::new(Word::EMPTY.0));
        let word = head.try_lock_if_settled().expect("no thread has locked it");
        let before = counts().expect("a bucket was locked");
        std::thread::scope(|scope| {
            scope.spawn(|| head.unlock(head.lock()));
            // It waits when it has found the head locked.
            for _ in 0..100_000_000 {
                if counts().is_some_and(|now| now.contended > before.contended) {
                    break;
                }
                std::thread::yield_now();
            }
            head.unlock(word);
        });
        let Counts { acquisitions, contended, .. } = counts().unwrap().since(&[before]);
        assert!(acquisitions >= 1 && contended >= 1);
    }

    #[test]
    fn no_links_are_anywhere() {
        let empty = Word::EMPTY.with(0b100);
        assert_eq!(empty.sole_part(4), Some(0));
        assert!(empty.of_sole_part(0, 4) == Word::EMPTY);
        assert_eq!(empty.sole_part(32), None, "more parts than a summary distinguishes");
    }

    #[test]
    fn a_summary_tells_what_comes_after() {
        for summary in 0..1 << Word::SUMMARY_BITS {
            for slot in 0..16 {
                let is_after = (0..=slot).all(|before| summary >> before & 1 == 0);
                assert_eq!(word(summary).is_after(hash(slot, 7), SCALE), is_after, "{summary:#b} {slot}");
            }
        }
    }
}
