//! A small hash table of RCU chains that moves an entry from one key to another in one step
//! (section 8).
//!
//! A move changes two places: the chain that the entry leaves, and the chain that it joins. No
//! single store changes both, and lookups take no lock. The authors' earlier algorithm makes the
//! entry appear in both chains, and may have to copy it (section 2). Section 8 announces a simpler
//! one that does not copy, from the paper's rule for writers: wait for readers between two stores
//! that a reader could otherwise see in the wrong order. The paper does not print the algorithm.
//! The one here is this project's own. (A patent concerns such moves: US 7,668,851.)
//!
//! # The table
//!
//! The table is an array of chains. It cannot be resized. Updates ([`KeyMove::insert`],
//! [`KeyMove::remove`] and [`KeyMove::move_key`]) take one mutex. Lookups take none: they walk a
//! chain inside a read section. New entries are put at the beginning of their chain.
//!
//! # The move
//!
//! The table has one more pointer, `in_flight`, which leads to the entry that is being moved. A
//! lookup that finds nothing in its chain compares this entry, too. So while an entry is in flight,
//! lookups find it under the key that it has, whatever chain it is in. The entry's own key decides,
//! and the key changes with a single store. The steps of [`KeyMove::move_key`]:
//!
//! 1. Put the entry in flight. Then unlink it from the chain of the old key.
//! 2. **Wait for readers.** No lookup is at the entry any more, so the entry's key and link can
//!    change. (A lookup at the entry would be led from the old chain into the new one.)
//! 3. Store the new key in the entry. At this instant the entry moves.
//! 4. Link the entry into the chain of the new key.
//! 5. **Wait for readers.** No lookup is left that walked the new chain before the entry was
//!    linked.
//! 6. Let `in_flight` lead nowhere.
//!
//! ```text
//!   step                1             2      3          4        5      6
//!   in flight   nothing | the entry ................................... | nothing
//!   in chain    old ....... | none .................... | new ..................
//!   its key     old ........................ | new .............................
//! ```
//!
//! A move holds the mutex from its first step to its last, so there is at most one entry in flight,
//! and it is neither removed nor moved again before it has landed. The mutex is held while the move
//! waits for readers. An update inside a read section could therefore wait for a move that waits
//! for this section; so such updates panic.
//!
//! # Guarantees
//!
//! * **K1** At every instant lookups find an entry that is being moved under exactly one of its two
//!   keys: under the old key until step 3, and under the new key from then on. A thread that has
//!   not found the entry under the old key finds it under the new key afterwards. A thread that has
//!   found it under the new key does not find it under the old key afterwards.
//! * **K2** Within a read section at most one move takes effect. So of three lookups in a section,
//!   of one key, of the other, and of the first again, at least one finds the entry and at least
//!   one does not.
//! * **K3** Lookups find every other entry, wherever it is linked, as if there were no move.
//! * **K4** The entry itself moves, not a copy. A reference to its value, found under either key,
//!   stays valid as long as the guard.
//! * **K5** A lookup is wait-free, and visits at most the entries that were in its chain when it
//!   began, and the entry in flight.
//! * **K6** A move that fails changes nothing.
//! * **K7** A value is dropped once: after all readers that may have found it have left, or with
//!   the table.
//!
//! K2: a move takes effect before it waits for readers (step 5), and the next one starts after
//! that. A section in which both take effect would span this wait, which no section does.
//!
//! K5: a move links its entry again only when no lookup is at the entry, and entries are linked
//! before all others of their chain. So a walk never meets an entry that was linked after the walk
//! began.
//!
//! # Costs
//!
//! A hit costs what it costs in [`fixed`](crate::tables::fixed). A miss loads one more pointer,
//! which only moves write. A move waits for readers twice; all other updates wait for the move.

use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
#[cfg(not(relativist_loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU64},
};

#[cfg(relativist_loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU64},
};
use relativist_rcu::{Guard, is_reading, read, wait_for_readers};

use crate::tables::rcu::Rcu;
use crate::tables::{Table, TableHasher};

/// A pointer to an entry, or null: a chain's head, an entry's `next`, or the table's `in_flight`.
type Link<V> = AtomicPtr<Entry<V>>;

#[derive(Debug)]
struct Entry<V> {
    next: Link<V>,
    /// Changes only while no lookup is at the entry in a chain.
    key: AtomicU64,
    value: V,
}

/// RCU chains with one mutex for updates. See the [module](self).
///
/// ```
/// use std::hash::{BuildHasherDefault, DefaultHasher};
///
/// use relativist_papers::tables::key_move::{KeyMove, MoveError};
/// use relativist_rcu::read;
///
/// let table = KeyMove::<BuildHasherDefault<DefaultHasher>, &str>::new(8);
/// assert!(table.insert(1, "draft") && table.insert(2, "notes"));
/// assert_eq!(table.move_key(1, 3), Ok(()));
/// assert_eq!(table.find(1, &read()), None);
/// assert_eq!(table.find(3, &read()), Some(&"draft"));
/// assert_eq!(table.move_key(3, 2), Err(MoveError::Taken));
/// ```
#[derive(Debug)]
pub struct KeyMove<H, V = u64> {
    heads: Box<[Link<V>]>,
    /// The entry that is being moved.
    in_flight: Link<V>,
    updates: Mutex<()>,
    hasher: H,
}

/// The reason why a move has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveError {
    /// The old key is not in the table.
    NotFound,
    /// The new key is in the table. (It may be the same as the old one.)
    Taken,
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "the old key is not in the table",
            Self::Taken => "the new key is in the table",
        })
    }
}

impl std::error::Error for MoveError {}

// Entries can be inserted only if `V` is `Send` and `Sync`. That makes it sound that the table,
// which consists of atomic pointers, can be shared whatever `V` is.
impl<H: TableHasher, V: Send + Sync + 'static> KeyMove<H, V> {
    /// Creates an empty table of `buckets` chains.
    ///
    /// # Panics
    /// Panics if `buckets` is not a power of two.
    #[must_use]
    pub fn new(buckets: usize) -> Self {
        assert!(buckets.is_power_of_two(), "{buckets} is not a power of two");
        let link = || Link::new(null_mut());
        let heads = (0..buckets).map(|_| link()).collect();
        Self { heads, in_flight: link(), updates: Mutex::new(()), hasher: H::default() }
    }

    /// Returns the value of `key`. The reference lives as long as the guard.
    #[inline]
    pub fn find<'g>(&'g self, key: u64, _guard: &'g Guard) -> Option<&'g V> {
        let mut link = self.head(key);
        // Acquire: pairs with the Release in `unlink`: a lookup that misses an entry because a move
        // has unlinked it sees the entry in flight, below; one that misses a removed entry does
        // not. Pairs with the Release in `push`: the lookup sees the entry's contents and key.
        // SAFETY: only removed entries are freed, a grace period after their removal, and an entry
        // in flight is not removed. So a lookup that finds the entry has begun before that.
        // litmus: key-move-linked, key-move-unlinked, key-move-removed
        // litmus: key-move-left, key-move-landed
        while let Some(entry) = unsafe { link.load(Acquire).as_ref() } {
            // Relaxed: the key does not change while a lookup is at the entry.
            if entry.key.load(Relaxed) == key {
                return Some(&entry.value);
            }
            link = &entry.next;
        }
        // Acquire: pairs with the Release in `move_key`: the lookup sees the entry's contents.
        // SAFETY: as above.
        // litmus: key-move-in-flight, key-move-unlinked, key-move-removed, key-move-landed
        let entry = unsafe { self.in_flight.load(Acquire).as_ref() }?;
        // Relaxed: the old key or the new one, and never the old one after the new one: loads of a
        // single place see its stores in order.
        (entry.key.load(Relaxed) == key).then_some(&entry.value)
    }

    /// Inserts an entry if `key` is absent. Returns false, and drops the value, if it is present.
    ///
    /// # Panics
    /// Panics inside a read section.
    pub fn insert(&self, key: u64, value: V) -> bool {
        let refused = self.update(|turn| {
            if turn.link_to(key).is_some() {
                return Some(value);
            }
            turn.push(key, Box::into_raw(Box::new(Entry { next: Link::new(null_mut()), key: key.into(), value })));
            None
        });
        refused.is_none()
    }

    /// Removes an entry, and drops its value when readers have left. Returns false if `key` is
    /// absent.
    ///
    /// # Panics
    /// Panics inside a read section.
    pub fn remove(&self, key: u64) -> bool {
        self.remove_and(key, |_| ()).is_some()
    }

    fn remove_and<R>(&self, key: u64, then: impl FnOnce(&V) -> R) -> Option<R> {
        let entry = self.update(|turn| Some(turn.unlink(turn.link_to(key)?)))?;
        // SAFETY: unlinked, and retired only below.
        let result = then(&unsafe { entry.as_ref() }.value);
        // SAFETY: from a box, and unlinked by this thread. No entry is in flight between two
        // updates, so no new reader finds it.
        unsafe { Rcu::retire(entry.as_ptr()) };
        Some(result)
    }

    /// Moves the entry with the key `old` to the key `new`. At every instant lookups find it under
    /// exactly one of them (K1).
    ///
    /// Waits for readers twice.
    ///
    /// # Errors
    /// Returns an error if `old` is absent, or if `new` is present. The table is unchanged.
    ///
    /// # Panics
    /// Panics inside a read section.
    pub fn move_key(&self, old: u64, new: u64) -> Result<(), MoveError> {
        self.update(|turn| {
            let link = turn.link_to(old).ok_or(MoveError::NotFound)?;
            if turn.link_to(new).is_some() {
                return Err(MoveError::Taken);
            }
            let entry = turn.target(link);
            // Step 1. Release: pairs with the Acquire of lookups, which see the entry's contents.
            // It comes before the Release in `unlink`: a lookup that misses the entry in the chain
            // finds it in flight.
            // litmus: key-move-in-flight
            self.in_flight.store(entry.as_ptr(), Release);
            turn.unlink(link);
            // Step 2.
            wait_for_readers();
            // Step 3. Relaxed: published by the Release in `push` to lookups that find the entry in
            // its chain; one that finds it in flight may see either key.
            // SAFETY: the entry is freed only after it was removed, for which it must be in a
            // chain.
            unsafe { entry.as_ref() }.key.store(new, Relaxed);
            // Step 4.
            turn.push(new, entry.as_ptr());
            // Step 5.
            wait_for_readers();
            // Step 6. Relaxed: a lookup that sees this has begun after the wait did, so it finds
            // the entry in its chain.
            self.in_flight.store(null_mut(), Relaxed);
            Ok(())
        })
    }

    /// Performs an update under the mutex.
    fn update<R>(&self, change: impl FnOnce(&Turn<'_, H, V>) -> R) -> R {
        assert!(
            !is_reading(),
            "an update inside a read section may wait for a move that waits for the section: drop the Guard of this thread first"
        );
        let lock = self.updates.lock().expect("no hasher has panicked");
        change(&Turn { table: self, _lock: lock })
    }

    #[inline]
    fn head(&self, key: u64) -> &Link<V> {
        &self.heads[self.hasher.hash_one(key) as usize & (self.heads.len() - 1)]
    }
}

/// The update that holds the mutex. Only this thread changes links, and no entry in a chain is
/// freed.
struct Turn<'t, H, V> {
    table: &'t KeyMove<H, V>,
    _lock: MutexGuard<'t, ()>,
}

impl<H: TableHasher, V: Send + Sync + 'static> Turn<'_, H, V> {
    /// Returns the link that leads to the entry with this key.
    fn link_to(&self, key: u64) -> Option<&Link<V>> {
        let mut link = self.table.head(key);
        loop {
            // Relaxed, both: links and keys are changed under the mutex only.
            // SAFETY: an entry in a chain.
            let entry = unsafe { link.load(Relaxed).as_ref() }?;
            if entry.key.load(Relaxed) == key {
                return Some(link);
            }
            link = &entry.next;
        }
    }

    /// Puts an entry, which no lookup is at, at the beginning of the chain of `key`.
    fn push(&self, key: u64, entry: *mut Entry<V>) {
        let head = self.table.head(key);
        // Relaxed, both: changed under the mutex only, and published below.
        // SAFETY: from a box, and not freed, because it is new or in flight.
        unsafe { &*entry }.next.store(head.load(Relaxed), Relaxed);
        // Release: pairs with the Acquire in `find`: lookups see the entry's contents, key and
        // link.
        // litmus: key-move-linked, key-move-landed
        head.store(entry, Release);
    }

    /// Unlinks the entry to which `link` leads.
    fn unlink(&self, link: &Link<V>) -> NonNull<Entry<V>> {
        let entry = self.target(link);
        // Relaxed: links are changed under the mutex only.
        // SAFETY: an entry in a chain.
        let next = unsafe { entry.as_ref() }.next.load(Relaxed);
        // Release: pairs with the Acquire in `find`: a lookup that misses the entry here sees what
        // `in_flight` led to before: the entry if a move unlinks it, nothing if it is removed.
        // Lookups also see the contents of the next entry.
        // litmus: key-move-unlinked, key-move-removed, key-move-left
        link.store(next, Release);
        entry
    }

    /// Returns the entry to which `link` leads.
    fn target(&self, link: &Link<V>) -> NonNull<Entry<V>> {
        // Relaxed: links are changed under the mutex only.
        NonNull::new(link.load(Relaxed)).expect("it leads to an entry")
    }
}

impl<H: TableHasher> Table for KeyMove<H> {
    const NAME: &'static str = "key_move";

    fn with_buckets(buckets: usize) -> Self {
        Self::new(buckets)
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.find(key, &read()).copied()
    }

    fn insert(&self, key: u64, value: u64) -> bool {
        self.insert(key, value)
    }

    fn remove(&self, key: u64) -> Option<u64> {
        self.remove_and(key, |&value| value)
    }
}

impl<H, V> Drop for KeyMove<H, V> {
    fn drop(&mut self) {
        for head in &self.heads {
            // Relaxed, both: no other thread uses the table.
            let mut next = head.load(Relaxed);
            while !next.is_null() {
                // SAFETY: from a box, in one chain only, and no other thread uses it.
                let entry = unsafe { Box::from_raw(next) };
                next = entry.next.load(Relaxed);
            }
        }
    }
}
