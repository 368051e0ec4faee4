//! The relativistic engine: items in a [`relativist::raw::Table`].
//!
//! **Lookups** run inside a read section. They take no lock and write nothing that another thread reads; the value is
//! copied out before the section ends, so nothing can be freed under it. Resizing does not concern them.
//!
//! **Updates** all go through [`Relativistic::update`]: lock the key's bucket, decide by looking at the present item, link,
//! replace or unlink, unlock, and retire the old item, to be freed when no reader can see it any more. New items are mostly
//! made before the lock is taken; `append`, `prepend` and counting make theirs from the old one while they hold it.
//!
//! **Order of stores.** An item's unique is drawn under the bucket lock, so the uniques of a key only rise, and a flush knows
//! by it what came before (see [`super::flush`]). The one counter is shared by all writers; readers never touch it.
//!
//! Expired and flushed items are unlinked by the first command that meets them; a lookup that does leaves its fast path.

use super::arithmetic::{self, Direction};
use super::expiry::Expiry;
use super::flush::Flush;
use super::hash::KeyHasher;
use super::item::{self, Draft, ItemRef, Recipe};
use super::memory::{Memory, OutOfMemory};
use super::{Content, CountError, Engine, Hit, Lookup, Mode, Store, TableStats, Usage};
use crate::clock::Clock;
use crossbeam_utils::CachePadded;
use relativist::Resizing;
use relativist::raw::{Entry, Hash, Link, Table};
use relativist_rcu::Guard;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets of an empty table: 8 KiB, below which nothing would be gained.
const FEWEST_BUCKETS: usize = 1 << 10;

/// The engine over the relativistic table.
pub struct Relativistic {
    table: Table,
    hasher: KeyHasher,
    clock: Arc<Clock>,
    created: u32,
    max_value: usize,
    memory: Memory,
    flush: Flush,
    last_unique: CachePadded<AtomicU64>,
}

/// What an update decided about the present item.
enum Change<'e> {
    /// Leave it.
    Keep,
    /// Put this in its place.
    Put(Draft<'e>),
    /// Unlink it.
    Remove,
}

impl Relativistic {
    /// An empty engine that keeps item and table bytes within `limit`, and values that grow by appending within
    /// `max_value` bytes.
    ///
    /// # Errors
    /// When there is not even memory for the smallest table.
    pub fn new(clock: Arc<Clock>, limit: usize, max_value: usize) -> Result<Relativistic, OutOfMemory> {
        Ok(Relativistic {
            table: Table::new(FEWEST_BUCKETS, Resizing::Automatic, item::free_unshared)
                .map_err(|_| OutOfMemory { requested: FEWEST_BUCKETS * size_of::<usize>() })?,
            hasher: KeyHasher::new(),
            created: clock.now(),
            clock,
            max_value,
            memory: Memory::new(limit),
            flush: Flush::new(),
            last_unique: CachePadded::new(AtomicU64::new(0)),
        })
    }

    /// The second in which the calling command runs. Executes a flush that has come due by then.
    fn begin(&self) -> u32 {
        let now = self.clock.now();
        self.flush.catch_up(now, &self.last_unique);
        now
    }

    fn hash(&self, key: &[u8]) -> Hash {
        Hash::new(self.hasher.hash(key))
    }

    /// `Hit` if the item is there for clients.
    fn state(&self, item: ItemRef<'_>, now: u32) -> Lookup {
        if item.expiry().has_passed(now) {
            Lookup::Expired
        } else if self.flush.covers(item.unique()) {
            Lookup::Flushed
        } else {
            Lookup::Hit
        }
    }

    /// Changes the item under `key` as `decide` says, who sees it if it is live. The bucket is locked meanwhile. A dead item
    /// is unlinked on the way.
    fn update<'e, 'g, R>(
        &'e self,
        key: &[u8],
        now: u32,
        guard: &'g Guard,
        decide: impl FnOnce(Option<ItemRef<'g>>, Lookup) -> (Change<'e>, R),
    ) -> R {
        match self.table.entry(self.hash(key), has_key(key), guard) {
            Entry::Vacant(entry) => {
                let (change, result) = decide(None, Lookup::Miss);
                if let Change::Put(draft) = change {
                    // SAFETY: a fresh link with the entry's hash; it stays allocated until it was removed and a grace
                    // period passed, see `retire`.
                    unsafe { entry.insert(self.number(draft)) };
                }
                result
            }
            Entry::Occupied(entry) => {
                // SAFETY: the links of this table are those of items, and what was linked during the read section of
                // `guard` stays allocated until it ends.
                let item: ItemRef<'g> = unsafe { ItemRef::of_link(entry.get()) };
                let state = self.state(item, now);
                let (change, result) = decide((state == Lookup::Hit).then_some(item), state);
                let unlinked = match change {
                    Change::Keep if state == Lookup::Hit => return result,
                    Change::Keep | Change::Remove => entry.remove(),
                    // SAFETY: as for `insert` above.
                    Change::Put(draft) => unsafe { entry.replace(self.number(draft)) },
                };
                self.retire(unlinked);
                result
            }
        }
    }

    /// [`update`](Self::update) in a read section of its own.
    fn update_alone<'e, R>(&'e self, key: &[u8], decide: impl FnOnce(Option<ItemRef<'_>>) -> (Change<'e>, R)) -> R {
        let now = self.begin();
        self.update(key, now, &relativist_rcu::read(), |item, _| decide(item))
    }

    /// An update that makes the new item from the present one. Without a present item the result is `absent`.
    fn update_from<'e, R>(
        &'e self,
        key: &[u8],
        absent: R,
        make: impl FnOnce(ItemRef<'_>) -> Result<(Change<'e>, R), OutOfMemory>,
    ) -> Result<R, OutOfMemory> {
        self.update_alone(key, |item| match item.map(make) {
            None => (Change::Keep, Ok(absent)),
            Some(Ok((change, result))) => (change, Ok(result)),
            Some(Err(full)) => (Change::Keep, Err(full)),
        })
    }

    /// Numbers an item that is about to be linked. The bucket lock is held.
    fn number(&self, draft: Draft<'_>) -> NonNull<Link> {
        // Relaxed: only the numbers' being distinct and rising matters; locks order those of one key.
        draft.into_link(self.last_unique.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Frees an unlinked item when no reader can see it any more.
    fn retire(&self, link: NonNull<Link>) {
        // SAFETY: unlinked by this thread and not retired yet, so still allocated.
        let size = unsafe { ItemRef::of_link(link) }.size();
        self.memory.retire(size);
        // SAFETY: 1. no new reader finds the item, it is unlinked; 2. it was counted as retired; 3. `reclaim` may run on any
        // thread: items are plain memory.
        unsafe { relativist_rcu::defer_raw(link.cast(), size, item::reclaim) };
    }

    fn draft(&self, recipe: &Recipe<'_>) -> Result<Draft<'_>, OutOfMemory> {
        Draft::new(recipe, &self.memory, self.table_bytes())
    }

    /// Runs `attempt`; if what it lacks is taken by bytes that are only waiting to be freed, lets them be freed and runs it
    /// once more.
    fn with_room<R>(&self, mut attempt: impl FnMut() -> Result<R, OutOfMemory>) -> Result<R, OutOfMemory> {
        attempt().or_else(|full| {
            if !self.memory.would_fit(full.requested, self.table_bytes()) {
                return Err(full);
            }
            relativist_rcu::barrier();
            attempt()
        })
    }

    fn store_whole(&self, mode: Mode, key: &[u8], content: Content<'_>) -> Store {
        let recipe = Recipe {
            hash: self.hash(key),
            key,
            flags: content.flags,
            expiry: Expiry::from_protocol(content.exptime, self.begin()),
            value: [content.value, b""],
        };
        let Ok(draft) = self.with_room(|| self.draft(&recipe)) else {
            if mode == Mode::Set {
                self.delete(key);
            }
            return Store::OutOfMemory;
        };
        self.update_alone(key, |item| match (mode, item) {
            (Mode::Add, Some(_)) | (Mode::Replace, None) => (Change::Keep, Store::NotStored),
            (Mode::CompareUnique(_), None) => (Change::Keep, Store::NotFound),
            (Mode::CompareUnique(unique), Some(item)) if item.unique() != unique => (Change::Keep, Store::Exists),
            _ => (Change::Put(draft), Store::Stored),
        })
    }

    fn append(&self, key: &[u8], addition: &[u8]) -> Store {
        self.join(key, addition, |present, addition| [present, addition])
    }

    fn prepend(&self, key: &[u8], addition: &[u8]) -> Store {
        self.join(key, addition, |present, addition| [addition, present])
    }

    fn join(&self, key: &[u8], addition: &[u8], order: for<'v> fn(&'v [u8], &'v [u8]) -> [&'v [u8]; 2]) -> Store {
        let grow = |item: ItemRef<'_>| {
            let recipe = item.successor(order(item.value(), addition));
            if recipe.value_len() > self.max_value {
                return Ok((Change::Keep, Store::NotStored));
            }
            Ok((Change::Put(self.draft(&recipe)?), Store::Stored))
        };
        self.with_room(|| self.update_from(key, Store::NotStored, grow)).unwrap_or(Store::OutOfMemory)
    }

    /// Unlinks the item under `key` if it is dead.
    #[cold]
    fn remove_dead(&self, key: &[u8]) {
        self.update_alone(key, |_| (Change::Keep, ()));
    }

    fn table_bytes(&self) -> usize {
        self.table.buckets() * size_of::<usize>()
    }
}

impl Engine for Relativistic {
    fn get(&self, key: &[u8], visit: impl FnOnce(Hit<'_>)) -> Lookup {
        let now = self.begin();
        let guard = relativist_rcu::read();
        let Some(link) = self.table.find(self.hash(key), has_key(key), &guard) else {
            return Lookup::Miss;
        };
        // SAFETY: a link of an item, found inside the read section, which outlives `item`.
        let item = unsafe { ItemRef::of_link(link) };
        let state = self.state(item, now);
        if state == Lookup::Hit {
            visit(item.hit());
        } else {
            drop(guard);
            self.remove_dead(key);
        }
        state
    }

    fn get_and_touch(&self, key: &[u8], exptime: i32, visit: impl FnOnce(Hit<'_>)) -> Lookup {
        let now = self.begin();
        let guard = relativist_rcu::read();
        let (item, state) = self.update(key, now, &guard, |item, state| {
            if let Some(item) = item {
                item.set_expiry(Expiry::from_protocol(exptime, now));
            }
            (Change::Keep, (item, state))
        });
        // The lock is gone, but not the read section: the value can be copied at leisure.
        if let Some(item) = item {
            visit(item.hit());
        }
        state
    }

    fn store(&self, mode: Mode, key: &[u8], content: Content<'_>) -> Store {
        match mode {
            Mode::Append => self.append(key, content.value),
            Mode::Prepend => self.prepend(key, content.value),
            _ => self.store_whole(mode, key, content),
        }
    }

    fn count(&self, key: &[u8], direction: Direction, delta: u64) -> Result<u64, CountError> {
        let step = |item: ItemRef<'_>| {
            let Some(number) = arithmetic::parse(item.value()) else {
                return Ok((Change::Keep, Err(CountError::NotANumber)));
            };
            let number = arithmetic::apply(direction, number, delta);
            let text = format!("{number:<width$}", width = item.value().len());
            let draft = self.draft(&item.successor([text.as_bytes(), b""]))?;
            Ok((Change::Put(draft), Ok(number)))
        };
        self.with_room(|| self.update_from(key, Err(CountError::NotFound), step))?
    }

    fn delete(&self, key: &[u8]) -> bool {
        self.update_alone(key, |item| (Change::Remove, item.is_some()))
    }

    fn touch(&self, key: &[u8], exptime: i32) -> bool {
        self.get_and_touch(key, exptime, |_| ()) == Lookup::Hit
    }

    fn flush(&self, exptime: i32) {
        let now = self.begin();
        match Expiry::from_protocol(exptime, now).to_bits() {
            second if second > now => self.flush.at(second),
            second if exptime > 0 && second < self.created => self.flush.cancel(),
            // Also for a moment that has passed since the start: items do not know when they were stored, and a cache may
            // drop too much, but must not keep what it was told to drop.
            _ => self.flush.now(&self.last_unique),
        }
    }

    fn usage(&self) -> Usage {
        Usage {
            items: self.table.len(),
            item_bytes: self.memory.linked(),
            buckets: self.table.buckets(),
            table_bytes: self.table_bytes(),
            is_resizing: self.table.is_resizing(),
            limit: self.memory.limit(),
        }
    }

    fn table(&self) -> TableStats {
        self.table.stats()
    }
}

/// Whether a link that the table shows belongs to the item with this key.
fn has_key(key: &[u8]) -> impl Fn(NonNull<Link>) -> bool {
    // SAFETY: the table holds links of items only, and shows those that the caller's read section protects.
    move |link| unsafe { ItemRef::of_link(link) }.key() == key
}
