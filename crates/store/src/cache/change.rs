//! The step that all changes take: under the lock of a key's bucket.

use crate::cache::Cache;
use crate::item::hit::Lookup;
use crate::item::item_ref::ItemRef;
use crate::item::key::{HashedKey, is_equal};
use crate::item::unlinked::UnlinkedItem;
use relativist_rcu::Guard;
use relativist_table::{CompactLink, Entry};
use std::ptr::NonNull;

/// When a change under a bucket's lock happens.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) now: u32,
    /// The line of the last flush.
    pub(crate) line: u64,
}

/// The step to take with the item in a bucket.
pub(crate) enum Step<'e> {
    /// Leave the item.
    Keep,
    /// Leave the bucket as it is, because the change begins again.
    Retry,
    /// Put this item in its place.
    Put(UnlinkedItem<'e>),
    /// Put this copy in its place, which has the same number.
    Copy(UnlinkedItem<'e>),
    /// Unlink the item.
    Remove,
}

impl Cache {
    /// Makes the change that `decide` returns for the item under `key`, which it is passed if the
    /// item is alive. Returns the item that is there then. The bucket is locked while `decide`
    /// runs. An expired or flushed item is unlinked.
    pub(crate) fn change<'e, 'g, R>(
        &'e self,
        key: HashedKey<'_>,
        guard: &'g Guard,
        decide: impl FnOnce(Option<ItemRef<'g>>, Lookup, Moment) -> (Step<'e>, R),
    ) -> (R, Option<ItemRef<'g>>, u32) {
        let now = self.store.begin();
        let item_of = |link| {
            // SAFETY: the links of this table are those of items, and items that are linked during
            // the read section of `guard` stay allocated until it ends.
            unsafe { ItemRef::<'g>::of_link(link) }
        };
        let entry = self.store.table.entry(key.hash, has_key(key.bytes), guard);
        // Read under the lock. Otherwise the change could replace an item that was stored after a
        // flush by one that this flush covers.
        let moment = Moment { now, line: self.store.flush.line() };
        let present = match &entry {
            Entry::Vacant(_) => None,
            Entry::Occupied(entry) => Some(item_of(entry.get())),
        };
        let state = present.map_or(Lookup::Miss, |item| self.store.state_at(item, now, moment.line));
        let live = present.filter(|_| state == Lookup::Hit);
        let (step, result) = decide(live, state, moment);
        match entry {
            Entry::Vacant(entry) => {
                let Step::Put(unlinked) = step else { return (result, None, now) };
                // SAFETY: a fresh link with the entry's hash; it stays allocated until it was
                // removed and a grace period passed, see `ItemAllocator::release`.
                let item = unlinked.link(guard, |link| unsafe { entry.insert(link) });
                (result, Some(item), now)
            }
            Entry::Occupied(entry) => {
                let item = present.expect("the entry is occupied");
                let left = match step {
                    Step::Retry => return (result, None, now),
                    Step::Keep if live.is_some() => return (result, live, now),
                    Step::Keep | Step::Remove => {
                        entry.remove();
                        None
                    }
                    Step::Put(unlinked) | Step::Copy(unlinked) => {
                        match live {
                            Some(item) => unlinked.inherit(item),
                            None => self.store.count_reclaimed(item, state, guard),
                        }
                        // SAFETY: as for `insert` above.
                        Some(unlinked.link(guard, |link| _ = unsafe { entry.replace(link) }))
                    }
                };
                // SAFETY: unlinked just now, within the section of `guard`.
                unsafe { item.free_item(&self.store.allocator, guard) };
                (result, left, now)
            }
        }
    }
}

/// Whether a link that the table shows belongs to the item with this key.
pub(crate) fn has_key(key: &[u8]) -> impl Fn(NonNull<CompactLink>) -> bool {
    // SAFETY: the table holds links of items only, and shows those that the caller's read section
    // protects.
    move |link| is_equal(unsafe { ItemRef::of_link(link) }.key(), key)
}
