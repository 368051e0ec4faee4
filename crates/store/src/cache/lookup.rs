//! Lookups: they run in a read section, without a lock.

use crate::MAX_BATCH_KEYS;
use crate::cache::Cache;
use crate::cache::change::Step;
use crate::expiry::Expiry;
use crate::item::hit::{Hit, Lookup};
use crate::item::item_ref::ItemRef;
use crate::item::key::{HashedKey, is_equal};
use crate::item::status::Status;
use crate::sizing::{Event, Kind};
use crate::usage::MemoryUse;
use crate::work::{self, Work};
use relativist_core::prefetch::prefetch;
use relativist_rcu::Guard;
use relativist_table::{CompactLink, Hash};
use std::ptr::NonNull;

/// The number of items that one call of a scan shows, or some more: a scan never stops within a
/// bucket.
const SCANNED_AT_ONCE: usize = 64;

impl Cache {
    /// Looks up `key`. If there is an item, passes it to `visit`, in the state before this access.
    /// The item then counts as fetched.
    pub fn get(&self, key: &[u8], visit: impl FnOnce(Hit<'_>)) -> Lookup {
        let lookup = self.look_up(key, visit);
        #[cfg(feature = "test-hooks")]
        self.hooks.iter().for_each(|hooks| hooks.after_get(self, key));
        lookup
    }

    #[inline(always)]
    fn look_up(&self, key: &[u8], visit: impl FnOnce(Hit<'_>)) -> Lookup {
        #[cfg(feature = "global-lock")]
        let _locked = self.take_global_lock();
        let now = self.store.begin();
        let guard = relativist_rcu::read();
        let key = self.hashed(key);
        let Some((item, status)) = self.find(key, &guard) else {
            self.sample(key.hash, &guard, Kind::Miss, None);
            return Lookup::Miss;
        };
        if let Some(hit) = self.access_live(item, status, now) {
            self.sample(key.hash, &guard, Kind::Hit, Some(item));
            visit(hit);
            return Lookup::Hit;
        }
        self.get_locked(key.bytes, key.hash, &guard, visit)
    }

    /// Looks up several keys as [`get`](Self::get) does, one after the other, and calls `visit` for
    /// each with the key's index and the item, or the reason why there is none. Ends when `visit`
    /// returns false, or after [`MAX_BATCH_KEYS`] keys. Returns the number of keys looked up.
    pub fn get_many(&self, keys: &[&[u8]], mut visit: impl FnMut(usize, Result<Hit<'_>, Lookup>) -> bool) -> usize {
        #[cfg(feature = "global-lock")]
        let _locked = self.take_global_lock();
        let now = self.store.begin();
        let keys = &keys[..keys.len().min(MAX_BATCH_KEYS)];
        let mut guard = relativist_rcu::read();
        let hashes = self.prefetch_keys(keys, &guard);
        for (index, (&bytes, &hash)) in keys.iter().zip(&hashes).enumerate() {
            let key = HashedKey { bytes, hash };
            let found = self.find(key, &guard);
            let hit = found.and_then(|(item, status)| self.access_live(item, status, now));
            let goes_on = match (hit, found) {
                (Some(hit), _) => {
                    self.sample(hash, &guard, Kind::Hit, found.map(|(item, _)| item));
                    visit(index, Ok(hit))
                }
                (None, None) => {
                    self.sample(hash, &guard, Kind::Miss, None);
                    visit(index, Err(Lookup::Miss))
                }
                (None, Some(_)) => {
                    // At most one bucket's lock is taken in each read section.
                    drop(guard);
                    guard = relativist_rcu::read();
                    let mut goes_on = None;
                    let lookup = self.get_locked(bytes, hash, &guard, |hit| goes_on = Some(visit(index, Ok(hit))));
                    goes_on.unwrap_or_else(|| visit(index, Err(lookup)))
                }
            };
            if !goes_on {
                return index + 1;
            }
        }
        keys.len()
    }

    /// Prefetches the memory that commands on these keys will read, for at most [`MAX_BATCH_KEYS`]
    /// keys, so that their cache misses overlap. Changes nothing, and takes no lock.
    pub fn prefetch(&self, keys: &[&[u8]]) {
        self.prefetch_keys(keys, &relativist_rcu::read());
    }

    /// Looks up `key`. If there is an item, passes it to `visit`. Does not count as an access.
    pub fn peek(&self, key: &[u8], visit: impl FnOnce(Hit<'_>)) -> Lookup {
        #[cfg(feature = "global-lock")]
        let _locked = self.take_global_lock();
        let now = self.store.begin();
        let guard = relativist_rcu::read();
        let key = self.hashed(key);
        let Some((item, _)) = self.find(key, &guard) else { return Lookup::Miss };
        let state = self.store.state(item, now);
        if state == Lookup::Hit {
            visit(self.show(item, now));
        } else {
            self.remove_absent(key, &guard);
        }
        state
    }

    /// Passes some items to `visit`, and returns the cursor to continue from; none when all items
    /// were passed. Begin with cursor 0. An item that exists from the first call to the last is
    /// passed once.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(Hit<'_>)) -> Option<u64> {
        #[cfg(feature = "global-lock")]
        let _locked = self.take_global_lock();
        let now = self.store.begin();
        let guard = relativist_rcu::read();
        self.scan_links(cursor, &guard, |item| {
            if self.store.state(item, now) == Lookup::Hit {
                visit(Hit::of(item, now));
            }
        })
    }

    /// Passes some items to `visit`, those that have expired included.
    fn scan_links(&self, cursor: u64, guard: &Guard, mut visit: impl FnMut(ItemRef<'_>)) -> Option<u64> {
        let mut items = 0;
        let next = self.store.table.scan(cursor, SCANNED_AT_ONCE, guard, |link| {
            items += 1;
            // SAFETY: a link of an item, shown inside the read section, which outlives the item.
            visit(unsafe { ItemRef::of_link(link) });
        });
        // At least as many buckets may have been empty.
        work::charge(Work::Items(items.max(SCANNED_AT_ONCE)));
        next
    }

    /// See [`Cache::sample_memory`].
    pub(crate) fn measure_items(&self, memory: &mut MemoryUse, cursor: u64) -> Option<u64> {
        self.scan_links(cursor, &relativist_rcu::read(), |item| {
            let layout = item.layout();
            memory.keys += layout.key_len;
            memory.values += layout.value_len;
            memory.item_headers += layout.size() - layout.key_len - layout.value_len;
            memory.alignment += item.footprint() - layout.size();
        })
    }

    /// The hit for `item` at `now`, with its memory, so that its value can be pinned.
    #[inline(always)]
    pub(crate) fn show<'a>(&'a self, item: ItemRef<'a>, now: u32) -> Hit<'a> {
        Hit { pinned: Some(self.store.allocator.pinned()), ..Hit::of(item, now) }
    }

    /// Records an access of `item`, and returns the hit as it was before. None if the record would
    /// be lost, because another item is replacing this one: see [`get_locked`](Self::get_locked).
    #[inline(always)]
    pub(crate) fn access<'a>(&'a self, item: ItemRef<'a>, now: u32) -> Option<Hit<'a>> {
        let status = item.status().access(now)?;
        Some(self.show_with(item, status, item.expiry_with(status), now))
    }

    /// Like [`access`](Self::access), of an item that a lookup has found with this `status`. None
    /// also if it has expired or was flushed.
    #[inline(always)]
    fn access_live<'a>(&'a self, item: ItemRef<'a>, status: Status, now: u32) -> Option<Hit<'a>> {
        let (expiry, line) = (item.expiry_with(status), self.store.flush.line());
        if self.store.state_with(item, expiry, now, line) != Lookup::Hit {
            return None;
        }
        let status = item.status().access_since(status, now)?;
        Some(self.show_with(item, status, expiry, now))
    }

    #[inline(always)]
    fn show_with<'a>(&'a self, item: ItemRef<'a>, status: Status, expiry: Expiry, now: u32) -> Hit<'a> {
        Hit { pinned: Some(self.store.allocator.pinned()), ..Hit::with(item, status, expiry, now) }
    }

    /// The item under `key`, even if it has expired or was flushed, and its status.
    #[inline(always)]
    fn find<'g>(&self, key: HashedKey<'_>, guard: &'g Guard) -> Option<(ItemRef<'g>, Status)> {
        let mut found = None;
        let is_it = |link| {
            // SAFETY: a link of an item, found inside the read section of `guard`, for which it
            // stays allocated.
            let item = unsafe { ItemRef::of_link(link) };
            let status = item.status().load();
            found = Some((item, status));
            is_equal(item.key_with(status), key.bytes)
        };
        self.store.table.find(key.hash, is_it, guard)?;
        // The last one that was asked about.
        found
    }

    /// [`Cache::get`] under the bucket's lock, which unlinks an item that has expired or was
    /// flushed, and records an access of an item that was being replaced. Looks the item up again,
    /// because it may have changed.
    // The parts of the key fit registers, so callers need not store them in memory for this.
    #[cold]
    fn get_locked(&self, bytes: &[u8], hash: Hash, guard: &Guard, visit: impl FnOnce(Hit<'_>)) -> Lookup {
        let key = HashedKey { bytes, hash };
        let ((hit, lookup), ..) = self.change(key, guard, |item, lookup, moment| {
            let access =
                |item| self.access(item, moment.now).expect("a status passes on under the lock, which is held");
            (Step::Keep, (item.map(|item| (access(item), item)), lookup))
        });
        match hit {
            Some((hit, item)) => {
                self.sample(hash, guard, Kind::Hit, Some(item));
                visit(hit);
            }
            None => self.sample(hash, guard, Kind::Miss, None),
        }
        lookup
    }

    /// Passes on what was done with a key, if it is in the sample of [`sizing`](crate::sizing).
    #[inline(always)]
    pub(crate) fn sample(&self, hash: Hash, guard: &Guard, kind: Kind, item: Option<ItemRef<'_>>) {
        if self.sizing.events.samples(hash.get()) {
            self.record(hash, guard, kind, item);
        }
    }

    #[cold]
    fn record(&self, hash: Hash, guard: &Guard, kind: Kind, item: Option<ItemRef<'_>>) {
        let size = item.map_or(0, ItemRef::footprint).try_into().unwrap_or(u32::MAX);
        let expiry = item.map_or(Expiry::NEVER, ItemRef::expiry);
        self.sizing.events.record(Event { hash: hash.get(), kind, size, expiry }, guard.thread_index());
    }

    /// Prefetches what lookups of these keys read. Returns the keys' hashes.
    pub(crate) fn prefetch_keys(&self, keys: &[&[u8]], guard: &Guard) -> [Hash; MAX_BATCH_KEYS] {
        /// The cache lines of an item that have the key and a small value.
        const LINES: usize = 3;
        let mut hashes = [Hash::new(0); MAX_BATCH_KEYS];
        hashes.iter_mut().zip(keys).for_each(|(hash, key)| *hash = self.hashed(key).hash);
        let near = |link: NonNull<CompactLink>| {
            (1..LINES).for_each(|line| prefetch(link.as_ptr().wrapping_byte_add(64 * line)))
        };
        self.store.table.prefetch(&hashes[..keys.len()], near, guard);
        hashes
    }

    /// Unlinks the item under `key` if it has expired or was flushed.
    #[cold]
    pub(crate) fn remove_absent(&self, key: HashedKey<'_>, guard: &Guard) {
        self.change(key, guard, |_, _, _| (Step::Keep, ()));
    }
}
