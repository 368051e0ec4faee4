//! Commands that change an item.

use crate::cache::Cache;
use crate::cache::api::{Change, Present};
use crate::cache::change::{Moment, Step};
use crate::eviction::reclaim::Effort;
use crate::item::hit::Hit;
use crate::item::item_ref::ItemRef;
use crate::item::key::HashedKey;
use crate::item::large_value::ReservedValue;
use crate::item::layout::{ItemShape, Layout};
use crate::item::new::{ItemInit, New, Value};
use crate::item::status::Status;
use crate::item::unlinked::UnlinkedItem;
use crate::memory::request::{AllocContext, OutOfMemory};
use crate::memory::room::Room;
use crate::sizing::Kind;
use crate::work;

/// The steps that [`Cache::make_room`] may take, besides those in proportion to the size.
const MAX_STEPS: usize = 32;

/// Why a step cannot be taken.
enum Obstacle {
    /// There is no room for the new item.
    NoRoom(OutOfMemory),
    /// The last flush would cover the new item, or came after the change had begun.
    Flush,
}

impl From<OutOfMemory> for Obstacle {
    fn from(full: OutOfMemory) -> Obstacle {
        Obstacle::NoRoom(full)
    }
}

impl Cache {
    /// Stores `new` if `permit`, which is passed the present item, allows it; then passes the new
    /// item to `visit`. The new item is written before the key is locked.
    ///
    /// # Errors
    /// When there is no room. `permit` was not called then.
    pub fn put<R>(
        &self,
        key: &[u8],
        new: &New<'_>,
        permit: impl FnOnce(Present<'_>) -> (bool, R),
        show: impl FnOnce(Hit<'_>),
    ) -> Result<R, OutOfMemory> {
        #[cfg(feature = "global-lock")]
        let _locked = self.take_global_lock();
        let (key, mut permit) = (self.hashed(key), Some(permit));
        loop {
            let unlinked = self.write(key, new)?;
            let guard = relativist_rcu::read();
            let (decision, item, now) = self.change(key, &guard, |item, lookup, moment| {
                if !self.store.accepts(&unlinked, moment.line) {
                    return (Step::Retry, None);
                }
                let (now, permit) = (moment.now, permit.take().expect("it is called only here, and then this ends"));
                let (is_permitted, result) = permit(Present { item: item.map(|item| Hit::of(item, now)), lookup, now });
                let kind = is_permitted.then_some(Kind::Store { replaces: item.is_some() });
                (if is_permitted { Step::Put(unlinked) } else { Step::Keep }, Some((kind, result)))
            });
            let Some((kind, result)) = decision else {
                drop(guard);
                self.store.close_flushed();
                continue;
            };
            if let (Some(kind), Some(item)) = (kind, item) {
                self.sample(key.hash, &guard, kind, Some(item));
                show(self.show(item, now));
            }
            return Ok(result);
        }
    }

    /// Writes the item that [`put`](Self::put) will link.
    #[inline]
    fn write(&self, key: HashedKey<'_>, new: &New<'_>) -> Result<UnlinkedItem<'_>, OutOfMemory> {
        let around = match new.value {
            Value::Reserved(reserved) => self.new_item_around(key, new, reserved),
            _ => None,
        };
        match around {
            Some(unlinked) => Ok(unlinked),
            None => self.with_room(|| self.new_item(key, new, b"", AllocContext::NoLock, self.store.clock.now())),
        }
    }

    /// Passes the item under `key` to `decide`, makes the change that it returns, and then passes
    /// the resulting item, if there is one, to `show`. If the change is a
    /// [mark](crate::Change::Mark), that item has the marks and the idle time that it had just
    /// before the change. They may differ from those that `decide` saw, because lookups take no
    /// lock. The key is locked while `decide` runs, so it must not call the cache. It may be called
    /// again; only its last answer counts.
    ///
    /// # Errors
    /// When there is no room for the new item, or for the first expiry of an item. Nothing was
    /// changed then.
    pub fn update<'a, R>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Present<'_>) -> (Change<'a>, R),
        show: impl FnOnce(Hit<'_>),
    ) -> Result<R, OutOfMemory> {
        #[cfg(feature = "global-lock")]
        let _locked = self.take_global_lock();
        // Waiting for room must happen outside the read section.
        let (key, mut show) = (self.hashed(key), Some(show));
        self.with_room(|| {
            loop {
                match self.try_update(key, &mut decide, &mut show) {
                    Ok(result) => return Ok(result),
                    Err(Obstacle::NoRoom(full)) => return Err(full),
                    Err(Obstacle::Flush) => self.store.close_flushed(),
                }
            }
        })
    }

    #[inline]
    fn try_update<'a, R>(
        &self,
        key: HashedKey<'_>,
        decide: &mut impl FnMut(Present<'_>) -> (Change<'a>, R),
        show: &mut Option<impl FnOnce(Hit<'_>)>,
    ) -> Result<R, Obstacle> {
        // An item is shown after the lock is released, but within the read section, so its value
        // can be copied for as long as it takes.
        let guard = relativist_rcu::read();
        let (mut before, mut kind) = (None, None);
        let (outcome, item, now) = self.change(key, &guard, |item, lookup, moment| {
            let now = moment.now;
            let hit = item.map(|item| Hit::of(item, now));
            let (change, result) = decide(Present { item: hit, lookup, now });
            kind = kind_of(&change, item.is_some());
            match self.step(key, change, item, moment) {
                Ok((step, status)) => {
                    before = status;
                    let expiry = if let Step::Put(unlinked) | Step::Copy(unlinked) = &step {
                        Some(unlinked.expiry())
                    } else {
                        item.map(ItemRef::expiry)
                    };
                    (step, Ok((result, expiry)))
                }
                Err(obstacle) => (Step::Retry, Err(obstacle)),
            }
        });
        let (result, expiry) = outcome?;
        if let Some(kind) = kind {
            self.sample(key.hash, &guard, kind, item);
        }
        if let (Some(item), Some(expiry), Some(show)) = (item, expiry, show.take()) {
            // The expiry that this call has set. Other threads may have changed it since the lock
            // was released.
            let hit = Hit { expiry, ..self.show(item, now) };
            show(match before {
                Some(before) => Hit { marks: before.marks(), idle: before.idle(now), ..hit },
                None => hit,
            });
        }
        Ok(result)
    }

    /// Reserves memory for the value of a new item, so that the value is received directly into its
    /// final place. Fill the memory, and then [put](Value::Reserved) it. None if the value is too
    /// small for this to pay, or if too much is reserved already: receive the value elsewhere then.
    /// May evict and wait as [`put`](Self::put) does.
    pub fn reserve(&self, shape: &ItemShape) -> Option<ReservedValue> {
        if !shape.is_large() || shape.key_len + shape.value_len > self.max_item {
            return None;
        }
        let layout = Layout::of(shape, false);
        let pinned = self.with_room(|| self.store.allocator.pin_new(layout.footprint(), || self.store.table_charge()));
        pinned.ok().flatten().map(|block_ref| ReservedValue::new(block_ref, layout))
    }

    /// Makes room for a large value that has been announced, for about `most` units of
    /// [work](crate::work), so that [`reserve`](Self::reserve) has little to evict. Returns whether
    /// there is room, or none can be made; call it again otherwise. No other store takes the room
    /// that was made so far. Drop the room just before the call of `reserve`.
    pub fn make_room(&self, shape: &ItemShape, most: u64, room: &mut Room) -> bool {
        if !self.store.evicts {
            return true;
        }
        let (start, size) = (work::done(), Layout::of(shape, false).footprint());
        let block = self.store.allocator.capacity;
        loop {
            let missing = self.store.allocator.set_aside(size, room);
            // Twice as many blocks as are needed are enough, unless others take what becomes free.
            let is_late = room.steps > 2 * size / block + MAX_STEPS;
            // Room for any small item is an ordinary block.
            if missing == 0 || is_late || !self.store.make_room(1, &mut Effort::default()) {
                return true;
            }
            room.steps += 1;
            if work::done().wrapping_sub(start) >= most {
                return false;
            }
        }
    }

    /// Writes a new item for `new` under `key`. `present` is the value of the item that it
    /// replaces.
    #[inline]
    pub(crate) fn new_item(
        &self,
        key: HashedKey<'_>,
        new: &New<'_>,
        present: &[u8],
        context: AllocContext,
        now: u32,
    ) -> Result<UnlinkedItem<'_>, OutOfMemory> {
        let mut text = String::new();
        let mut init = ItemInit::new(key, new, present, &mut text, now);
        init.has_expiry |= self.needs_room_for_expiry();
        UnlinkedItem::new(&init, &self.store.allocator, context, || self.store.table_charge())
    }

    /// Writes a new item around a received value, if its memory has the right shape.
    #[cold]
    pub(crate) fn new_item_around(
        &self,
        key: HashedKey<'_>,
        new: &New<'_>,
        reserved: &ReservedValue,
    ) -> Option<UnlinkedItem<'_>> {
        let mut text = String::new();
        let mut init = ItemInit::new(key, new, b"", &mut text, self.store.clock.now());
        init.has_expiry |= self.needs_room_for_expiry();
        UnlinkedItem::around(&init, reserved, &self.store.allocator)
    }

    /// Whether all items have room for an expiry, because no item may be evicted to make room for a
    /// [copy](UnlinkedItem::with_expiry).
    fn needs_room_for_expiry(&self) -> bool {
        !self.store.evicts
    }

    /// Returns the step for `change` of `item`, and carries out a mark. For a mark, also returns
    /// the status that the item had. The bucket is locked.
    fn step(
        &self,
        key: HashedKey<'_>,
        change: Change<'_>,
        item: Option<ItemRef<'_>>,
        moment: Moment,
    ) -> Result<(Step<'_>, Option<Status>), Obstacle> {
        let now = moment.now;
        match change {
            Change::Keep => Ok((Step::Keep, None)),
            Change::Remove => Ok((Step::Remove, None)),
            Change::Put(new) => {
                let present = item.map_or(&b""[..], ItemRef::value);
                let unlinked = self.new_item(key, &new, present, AllocContext::UnderBucketLock, now)?;
                if self.store.accepts(&unlinked, moment.line) {
                    Ok((Step::Put(unlinked), None))
                } else {
                    Err(Obstacle::Flush)
                }
            }
            Change::Mark { expiry, add, is_access } => {
                let Some(item) = item else { return Ok((Step::Keep, None)) };
                let access = is_access.then_some(now);
                match expiry.filter(|&expiry| !item.set_expiry(expiry)) {
                    None => Ok((Step::Keep, Some(item.status().mark(add, access)))),
                    Some(expiry) => {
                        let store = &self.store;
                        let copy =
                            UnlinkedItem::with_expiry(item, expiry, now, &store.allocator, || store.table_charge())?;
                        let before = copy.item.status().mark(add, access);
                        Ok((Step::Copy(copy), Some(before)))
                    }
                }
            }
        }
    }

    /// Runs `attempt`, and repeats it as long as it fails for lack of room that can be made.
    pub(crate) fn with_room<R>(&self, mut attempt: impl FnMut() -> Result<R, OutOfMemory>) -> Result<R, OutOfMemory> {
        /// The number of attempts after which this thread reserves room, because other threads took
        /// what it had made: see
        /// [`ItemAllocator::reserve`](crate::memory::allocator::ItemAllocator::reserve).
        const ATTEMPTS_BEFORE_RESERVATION: usize = 8;
        /// The number of attempts after which this gives up, because the system may have no memory.
        const ATTEMPTS: usize = 4 * ATTEMPTS_BEFORE_RESERVATION;
        self.store.evict_ahead();
        let (mut effort, mut reservation) = (Effort::default(), None);
        for turn in 1..ATTEMPTS {
            match attempt() {
                Err(full) if self.store.make_room(full.requested, &mut effort) => {
                    if turn == ATTEMPTS_BEFORE_RESERVATION {
                        reservation = Some(self.store.allocator.reserve(full.requested));
                        // No other thread takes what is made from now on.
                        effort = Effort::default();
                    }
                }
                outcome => return outcome,
            }
        }
        let outcome = attempt();
        drop(reservation);
        outcome
    }
}

/// What a change of a key means for [`sizing`](crate::sizing).
fn kind_of(change: &Change<'_>, is_present: bool) -> Option<Kind> {
    match change {
        Change::Keep => None,
        Change::Remove => Some(Kind::Remove),
        Change::Put(_) => Some(Kind::Store { replaces: is_present }),
        Change::Mark { is_access: true, .. } => Some(if is_present { Kind::Hit } else { Kind::Miss }),
        Change::Mark { expiry, .. } => expiry.map(|_| Kind::Touch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::api::{Content, Mode};
    use crate::cache::change::has_key;
    use crate::clock::Clock;
    use crate::expiry::Expiry;
    use crate::item::hit::Lookup;
    use crate::item::status::Marks;
    use relativist_table::Entry;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    const KEY: &[u8] = b"key";

    /// A store that fails repeatedly, because other threads take the room, gets a reservation.
    #[test]
    fn a_store_that_fails_often_gets_a_reservation() {
        let cache = Cache::new(Arc::new(Clock::new(1000)), 1 << 20, 1 << 20).unwrap();
        let by_another = || {
            let allocate = || {
                let place = cache.store.allocator.allocate(600_000, AllocContext::NoLock, || 0);
                place.map(|place| cache.store.allocator.abandon(place, 600_000)).is_ok()
            };
            thread::scope(|scope| scope.spawn(allocate).join().expect("no panic"))
        };
        let mut could_others = Vec::new();
        let outcome = cache.with_room(|| {
            could_others.push(by_another());
            if could_others.len() < 12 { Err(OutOfMemory { requested: 500_000 }) } else { Ok(()) }
        });
        assert_eq!(outcome, Ok(()));
        assert_eq!(could_others, [vec![true; 8], vec![false; 4]].concat());
        assert!(by_another(), "the reservation has ended");
    }

    #[test]
    fn fetches_too_late_for_a_copy_count_for_the_copy() {
        fetch_when_replaced(|cache, item| {
            let copy = UnlinkedItem::copy(item, 0, 1100, &cache.store.allocator, || 0).unwrap();
            copy.take_over(item, 0, 1100);
            (copy, (100, b"value"))
        });
    }

    #[test]
    fn fetches_too_late_for_an_item_that_gets_an_expiry_count_for_the_copy() {
        fetch_when_replaced(|cache, item| {
            let expiry = Expiry::from_bits(2000);
            let copy = UnlinkedItem::with_expiry(item, expiry, 1100, &cache.store.allocator, || 0).unwrap();
            (copy, (100, b"value"))
        });
    }

    #[test]
    fn fetches_too_late_for_a_replaced_item_count_for_its_successor() {
        fetch_when_replaced(|cache, item| {
            let new = New { inherits: Marks::FETCHED, ..New::plain(0, Value::Whole(b"other")) };
            let heir = cache.new_item(cache.hashed(KEY), &new, b"", AllocContext::UnderBucketLock, 1100).unwrap();
            heir.inherit(item);
            (heir, (0, b"other"))
        });
    }

    /// Replaces an item by the one that `successor` makes, while lookups run at the worst moment:
    /// they find the old item when its status has passed on to the new one. The first lookup
    /// returns how long the new item was idle, and its value.
    fn fetch_when_replaced(
        successor: impl for<'e> Fn(&'e Cache, ItemRef<'_>) -> (UnlinkedItem<'e>, (u32, &'static [u8])),
    ) {
        let clock = Arc::new(Clock::new(1000));
        let cache = Cache::new(Arc::clone(&clock), 1 << 20, 1 << 20).unwrap();
        cache.store(Mode::Set, KEY, Content { flags: 0, exptime: 0, value: b"value" });
        clock.set(1100);
        let fact = |hit: Hit<'_>| (hit.marks, hit.idle, hit.value.to_vec());
        let begun = AtomicU64::new(0);
        let fetch_one = || {
            let mut found = None;
            // SeqCst: the simplest choice in a test.
            begun.fetch_add(1, Ordering::SeqCst);
            assert_eq!(cache.get(KEY, |hit| found = Some(fact(hit))), Lookup::Hit);
            found.unwrap()
        };
        let fetch_many = || {
            let mut found = None;
            begun.fetch_add(1, Ordering::SeqCst);
            let note = |_, hit: Result<Hit<'_>, Lookup>| {
                found = Some(fact(hit.unwrap()));
                true
            };
            assert_eq!(cache.get_many(&[KEY], note), 1);
            found.unwrap()
        };
        let (wanted, mut found) = thread::scope(|scope| {
            let guard = relativist_rcu::read();
            let Entry::Occupied(entry) = cache.store.table.entry(cache.hashed(KEY).hash, has_key(KEY), &guard) else {
                panic!("stored just now")
            };
            // SAFETY: a link of an item, found inside the read section.
            let item = unsafe { ItemRef::of_link(entry.get()) };
            let (copy, wanted) = successor(&cache, item);
            assert!(cache.access(item, 1100).is_none());
            let one = scope.spawn(fetch_one);
            let many = scope.spawn(fetch_many);
            while begun.load(Ordering::SeqCst) < 2 {
                thread::yield_now();
            }
            // Time to find the item, and to wait.
            thread::sleep(Duration::from_millis(20));
            assert!(!one.is_finished() && !many.is_finished(), "they wait for the copy");
            copy.link(&guard, |link| {
                // SAFETY: a fresh link with the entry's hash; it stays allocated until it was
                // removed and a grace period passed.
                unsafe { entry.replace(link) };
            });
            // SAFETY: unlinked just now, within the section of `guard`.
            unsafe { item.free_item(&cache.store.allocator, &guard) };
            (wanted, [one.join().unwrap(), many.join().unwrap()])
        });
        found.sort_by_key(|(marks, ..)| marks.has(Marks::FETCHED));
        let (idle, value) = wanted;
        assert_eq!(found, [(Marks::NONE, idle, value.to_vec()), (Marks::FETCHED, 0, value.to_vec())]);
        assert_eq!(cache.peek(KEY, |hit| assert_eq!((hit.marks, hit.idle), (Marks::FETCHED, 0))), Lookup::Hit);
    }
}
