//! The head of a bucket: one word that holds the chain, its lock, its state and its summary.
//!
//! ```text
//!  63                                        19   18       17        16   15           0
//! +--------------------------------------------+--------+------------+--------+----------+
//! | first link                                 | parked | transition | locked | summary  |
//! +--------------------------------------------+--------+------------+--------+----------+
//! ```
//!
//! * *summary:* bit *n* is set when some link of the bucket has *n* in the four hash bits that follow those of the bucket.
//!   A bit may be set without need, never clear against it.
//! * *parked:* some thread sleeps until the lock is free.
//! * *transition:* the bucket is in a group that is being resized. On the coarse head of a growing group: keep the fine
//!   head right as well. On a fine head: the lock of the coarse head stands in for this one, which can't be locked.
//! * *locked:* one updater is at work. Readers don't care.

use super::Link;
use super::hash::{Hash, Scale};
use crate::mutation;
use crate::sync::{AcqRel, Acquire, AtomicPtr, Release};

/// What a [`Head`] holds. Pointers keep their provenance, so this is a tagged pointer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(*mut Link);

impl Word {
    /// Links lie below 2^48 and are aligned to 8, so 45 bits tell which.
    const LINK: usize = !0 << 19;
    const LINK_SHIFT: u32 = 16;
    const PARKED: usize = 1 << 18;
    const TRANSITION: usize = 1 << 17;
    const LOCKED: usize = 1 << 16;

    /// An empty, settled bucket.
    pub(super) const EMPTY: Self = Self(std::ptr::null_mut());

    /// What is left in the coarse head of a group that has grown: its links belong to the fine heads now.
    pub(super) fn moved() -> Self {
        Self(std::ptr::without_provenance_mut(Self::LINK | Self::TRANSITION))
    }

    #[inline(always)]
    pub(super) fn first(self) -> *mut Link {
        self.0.map_addr(|word| (word & Self::LINK) >> Self::LINK_SHIFT)
    }

    /// Whether a link with this hash may be in the chain.
    #[inline(always)]
    pub(super) fn may_contain(self, hash: Hash, scale: Scale) -> bool {
        self.0.addr() >> hash.nibble(scale) & 1 != 0
    }

    fn summary_bit(hash: Hash, scale: Scale) -> usize {
        1 << hash.nibble(scale)
    }

    pub(super) fn is_locked(self) -> bool {
        self.0.addr() & Self::LOCKED != 0
    }

    pub(super) fn in_transition(self) -> bool {
        self.0.addr() & Self::TRANSITION != 0
    }

    pub(super) fn is_moved(self) -> bool {
        self.0.addr() & Self::LINK == Self::LINK
    }

    fn is_parked(self) -> bool {
        self.0.addr() & Self::PARKED != 0
    }

    fn with(self, bits: usize) -> Self {
        Self(self.0.map_addr(|word| word | bits))
    }

    fn without(self, bits: usize) -> Self {
        Self(self.0.map_addr(|word| word & !bits))
    }

    pub(super) fn with_transition(self) -> Self {
        self.with(Self::TRANSITION)
    }

    pub(super) fn without_transition(self) -> Self {
        self.without(Self::TRANSITION)
    }

    pub(super) fn with_first(self, link: *mut Link) -> Self {
        let shifted = link.addr() << Self::LINK_SHIFT;
        assert!(
            shifted & !Self::LINK == 0 && shifted >> Self::LINK_SHIFT == link.addr(),
            "a link must be aligned to 8 and lie below 2^48: {link:p}"
        );
        Self(link.map_addr(|_| self.0.addr() & !Self::LINK | shifted))
    }

    pub(super) fn with_summary_of(self, hash: Hash, scale: Scale) -> Self {
        self.with(Self::summary_bit(hash, scale))
    }

    pub(super) fn without_summary_of(self, hash: Hash, scale: Scale) -> Self {
        self.without(Self::summary_bit(hash, scale))
    }
}

/// A bucket's head.
#[repr(transparent)]
pub(super) struct Head(AtomicPtr<Link>);

impl Head {
    #[cfg(relativist_loom)]
    pub(super) fn empty() -> Self {
        Self(AtomicPtr::new(Word::EMPTY.0))
    }

    #[inline(always)]
    pub(super) fn load(&self) -> Word {
        // Acquire: pairs with the Release of `store`, `set_locked` and `unlock`: the first link is seen as it was
        // published; and whoever sees a mark sees what was prepared before it was set.
        Word(self.0.load(Acquire))
    }

    /// Stores into a head that nobody can lock: it isn't published yet, or it is fine and in transition and the caller
    /// holds the coarse lock.
    pub(super) fn store(&self, word: Word) {
        // Release: pairs with the Acquire in `load` and `lock`.
        self.0.store(word.0, Release);
    }

    /// Locks a head that is not in transition, and returns what it held; `None` when it is.
    #[inline]
    pub(super) fn lock_if_settled(&self) -> Option<Word> {
        self.lock_unless(Word::in_transition)
    }

    /// Locks a head in whatever state, and returns what it held.
    pub(super) fn lock(&self) -> Word {
        loop {
            if let Some(word) = self.lock_unless(|_| false) {
                return word;
            }
        }
    }

    #[inline]
    fn lock_unless(&self, refused: impl Fn(Word) -> bool) -> Option<Word> {
        let mut spins = 0;
        loop {
            let word = self.load();
            if refused(word) {
                return None;
            }
            if word.is_locked() {
                self.wait(word, &mut spins);
            } else if self.exchange(word, word.with(Word::LOCKED)) {
                return Some(word);
            }
        }
    }

    /// Replaces what a head holds whose lock the caller holds and keeps.
    pub(super) fn set_locked(&self, word: Word) {
        loop {
            let held = self.load();
            let parked = Word::PARKED & held.0.addr();
            // Only a waiter's mark can come between.
            if self.exchange(held, word.with(Word::LOCKED | parked)) {
                return;
            }
        }
    }

    /// Sets what the head holds from now on, and unlocks it.
    #[inline]
    pub(super) fn unlock(&self, word: Word) {
        let word = word.without(Word::LOCKED | Word::PARKED);
        // AcqRel: Release pairs with the Acquire in `load` and in the next locker's exchange. Acquire because this store
        // stands between a waiter's mark and the next locker.
        let held = Word(self.0.swap(word.0, mutation::unless("relaxed-unlock", AcqRel)));
        if held.is_parked() {
            self.wake_all();
        }
    }

    #[inline(always)]
    fn exchange(&self, from: Word, to: Word) -> bool {
        // AcqRel: Acquire pairs with the Release in `unlock`; Release keeps publishing the chain to readers, who may find this
        // word. On failure the caller loads again.
        self.0.compare_exchange(from.0, to.0, AcqRel, Acquire).is_ok()
    }
}

#[cfg(not(relativist_loom))]
impl Head {
    /// How often a locker looks before it goes to sleep.
    const SPINS: u32 = 64;

    #[cold]
    fn wait(&self, word: Word, spins: &mut u32) {
        if *spins < Self::SPINS {
            *spins += 1;
            std::hint::spin_loop();
        } else if word.is_parked() || self.exchange(word, word.with(Word::PARKED)) {
            self.park();
        }
    }

    /// Sleeps while the head is locked and marked.
    fn park(&self) {
        let key = std::ptr::from_ref(self).addr();
        let still = || {
            let word = self.load();
            word.is_locked() && word.is_parked()
        };
        let token = parking_lot_core::DEFAULT_PARK_TOKEN;
        // SAFETY: the key is an address of ours that no other code parks at; `still` and the callbacks neither panic nor
        // park.
        unsafe { parking_lot_core::park(key, still, || {}, |_, _| {}, token, None) };
    }

    #[cold]
    fn wake_all(&self) {
        let key = std::ptr::from_ref(self).addr();
        // SAFETY: the key is an address of ours that no other code parks at.
        unsafe { parking_lot_core::unpark_all(key, parking_lot_core::DEFAULT_UNPARK_TOKEN) };
    }
}

#[cfg(relativist_loom)]
impl Head {
    fn wait(&self, _: Word, _: &mut u32) {
        loom::thread::yield_now();
    }

    fn wake_all(&self) {}
}
