//! The relativistic engine: items in a [`relativist::raw::Table`].
//!
//! **Lookups** run inside a read section. They take no lock, and write nothing that another thread reads but the mark of an item
//! that nobody has visited since the eviction last looked at it (and the time of its last access, once a minute). Only one that meets an
//! item just when it is replaced, and would lose such a note, or one that has died, goes on under the bucket's lock. The value is
//! copied out before the section ends, so nothing can be freed under it; or, if it is large, its block is lent, which takes a counter in the
//! block (see [`super::loan`]). Resizing does not concern them.
//!
//! **Updates** all go through [`Relativistic::change`]: lock the key's bucket, decide by looking at the present item, link,
//! replace or unlink, unlock, and count the old item as dead in its block (see [`super::heap`]). New items are mostly
//! made before the lock is taken; `append`, `prepend` and counting make theirs from the old one while they hold it.
//!
//! **Order of stores.** An item's unique is drawn under the bucket lock, so the uniques of a key only rise, and a flush knows
//! by it what came before (see [`super::flush`]). The one counter is shared by all writers; readers never touch it.
//!
//! Expired and flushed items are unlinked by the first command that meets them, or when their block is swept (see [`super::sweep`]).

use super::arrival::{Arrival, Outline};
use super::expiry::Expiry;
use super::flush::Flush;
use super::hash::{KeyHasher, random};
use super::heap::{Asks, Heap, OutOfMemory, TableMemory};
use super::item::{self, Draft, ItemRef, Layout, Recipe};
use super::loan::Origin;
use super::status::Status;
use super::{
    Change, Engine, Hit, Lookup, MOST_AT_ONCE, Marks, New, Present, Sequence, TableStats, Usage, Value, Witness,
};
use crate::clock::Clock;
use crossbeam_utils::CachePadded;
use relativist::raw::{Entry, Hash, Link, Table};
use relativist::{Policy, Resizing};
use relativist_rcu::Guard;
use relativist_rcu::prefetch::prefetch;
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets of an empty table: 8 KiB, below which nothing would be gained.
const FEWEST_BUCKETS: usize = 1 << 10;

/// Uniques up to this are never drawn: 0 stands for none in the protocols, and 1 is what people try who want to be wrong.
const NEVER_DRAWN: u64 = 1;

/// A server's numbers begin at random below this. So uniques that clients remember from before a
/// restart or a crash mean nothing: the chance that one fits by accident is 1 in 2^31. Not higher,
/// because some clients (meta-memcache 4.3) ignore uniques of more than 32 bits. Numbers have 48
/// bits, which last for a million stores per second during eight years.
const MAX_FIRST_NUMBER: u64 = 1 << 31;

/// Items that one call of a scan shows, or some more: a bucket is never shown in part.
const SCANNED_AT_ONCE: usize = 64;

/// Buckets that one call of a survey looks at.
const SURVEYED_AT_ONCE: usize = 16;

/// Entries per bucket. A table that grows does so by four, to one: so a bucket's 8 bytes are shared by one to four items, and lookups
/// that find something walk half a step more than at the usual load for each.
const LOAD: RangeInclusive<f64> = 0.5..=4.0;

/// By how much the table grows at once, as [`Policy`] says.
const GROWTH: usize = 4;

/// The engine over the relativistic table.
pub struct Relativistic {
    pub(super) table: Table,
    hasher: KeyHasher,
    clock: Arc<Clock>,
    created: u32,
    max_item: usize,
    pub(super) heap: Heap,
    pub(super) evicts: bool,
    pub(super) flush: Flush,
    /// Who wants to know what is evicted.
    pub(super) witness: Option<Arc<dyn Witness>>,
    last_unique: CachePadded<AtomicU64>,
}

/// What to do with a bucket's item.
enum Step<'e> {
    /// Leave it.
    Keep,
    /// Put this in its place.
    Put(Draft<'e>),
    /// Unlink it.
    Remove,
}

impl Relativistic {
    /// An empty engine that keeps item and table bytes within `limit`, and lets items grow by appending up
    /// to `max_item` bytes of key and value.
    ///
    /// # Errors
    /// When there is not even memory for the smallest table.
    pub fn new(clock: Arc<Clock>, limit: usize, max_item: usize) -> Result<Relativistic, OutOfMemory> {
        let policy = Policy::from(Resizing::Automatic).load_factor(LOAD).expect("the bounds are far enough apart");
        Ok(Relativistic {
            table: Table::new(FEWEST_BUCKETS, policy, item::dispose)
                .map_err(|_| OutOfMemory { requested: FEWEST_BUCKETS * size_of::<usize>() })?,
            hasher: KeyHasher::new(),
            created: clock.now(),
            clock,
            max_item,
            heap: Heap::new(limit),
            evicts: true,
            flush: Flush::new(),
            witness: None,
            last_unique: CachePadded::new(AtomicU64::new(NEVER_DRAWN)),
        })
    }

    /// Flushes everything at `second`, which may be one that the protocol can't say.
    pub(crate) fn flush_at(&self, second: u32) {
        self.flush.at(second);
    }

    /// The same engine, with uniques that begin at random. Call this before anything is stored.
    #[must_use]
    pub fn with_random_uniques(self) -> Relativistic {
        let last_unique = CachePadded::new(AtomicU64::new(NEVER_DRAWN + random() % MAX_FIRST_NUMBER));
        Relativistic { last_unique, ..self }
    }

    /// The same engine, refusing new items instead of evicting others.
    #[must_use]
    pub fn without_eviction(self) -> Relativistic {
        Relativistic { evicts: false, ..self }
    }

    /// The same engine, telling `witness` what it evicts.
    #[must_use]
    pub fn with_witness(self, witness: Arc<dyn Witness>) -> Relativistic {
        Relativistic { witness: Some(witness), ..self }
    }

    /// The second in which the calling command runs. Executes a flush that has come due by then.
    pub(super) fn begin(&self) -> u32 {
        let now = self.clock.now();
        self.flush.catch_up(now, &self.last_unique);
        now
    }

    fn hash(&self, key: &[u8]) -> Hash {
        Hash::new(self.hasher.hash(key))
    }

    /// `Hit` if the item is there for clients.
    pub(super) fn state(&self, item: ItemRef<'_>, now: u32) -> Lookup {
        if item.expiry().has_passed(now) {
            Lookup::Expired
        } else if self.flush.covers(item.number()) {
            Lookup::Flushed
        } else {
            Lookup::Hit
        }
    }

    /// Changes the item under `key` as `decide` says, who sees it if it is live, and returns the one that is there then. The
    /// bucket is locked while `decide` runs. A dead item is unlinked on the way.
    fn change<'e, 'g, R>(
        &'e self,
        hash: Hash,
        key: &[u8],
        guard: &'g Guard,
        decide: impl FnOnce(Option<ItemRef<'g>>, Lookup, u32) -> (Step<'e>, R),
    ) -> (R, Option<ItemRef<'g>>, u32) {
        let now = self.begin();
        let item_of = |link| {
            // SAFETY: the links of this table are those of items, and what is linked during the read section of `guard` stays
            // allocated until it ends.
            unsafe { ItemRef::<'g>::of_link(link) }
        };
        match self.table.entry(hash, has_key(key), guard) {
            Entry::Vacant(entry) => {
                let (step, result) = decide(None, Lookup::Miss, now);
                let Step::Put(draft) = step else { return (result, None, now) };
                // SAFETY: a fresh link with the entry's hash; it stays allocated until it was removed and a grace period
                // passed, see `Heap::release`.
                let link = draft.link(self.next_number(), guard, |link| unsafe { entry.insert(link) });
                (result, Some(item_of(link)), now)
            }
            Entry::Occupied(entry) => {
                let item = item_of(entry.get());
                let state = self.state(item, now);
                let live = (state == Lookup::Hit).then_some(item);
                let (step, result) = decide(live, state, now);
                let left = match step {
                    Step::Keep if live.is_some() => return (result, live, now),
                    Step::Keep | Step::Remove => {
                        entry.remove();
                        None
                    }
                    Step::Put(draft) => {
                        match live {
                            Some(item) => draft.inherit(item),
                            None => self.count_reclaimed(item, state, guard),
                        }
                        let link = draft.link(self.next_number(), guard, |link| {
                            // SAFETY: as for `insert` above.
                            unsafe { entry.replace(link) };
                        });
                        Some(item_of(link))
                    }
                };
                // SAFETY: unlinked just now, within the section of `guard`.
                unsafe { item.bury(&self.heap, guard) };
                (result, left, now)
            }
        }
    }

    /// Counts a dead item that a store replaces. `state` says what it died of.
    #[cold]
    fn count_reclaimed(&self, item: ItemRef<'_>, state: Lookup, guard: &Guard) {
        let is_unfetched = !item.status().load().marks().has(Marks::FETCHED);
        self.heap.count_reclaimed(state == Lookup::Expired && is_unfetched, guard);
    }

    /// The number of an item that is about to be linked. The bucket lock is held.
    fn next_number(&self) -> u64 {
        // Relaxed: only the numbers' being distinct and rising matters; locks order those of one key.
        self.last_unique.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// An item for `new` under `key`, in the place of one with the value `present`.
    fn draft(
        &self,
        hash: Hash,
        key: &[u8],
        new: &New<'_>,
        present: &[u8],
        who: Asks,
        now: u32,
    ) -> Result<Draft<'_>, OutOfMemory> {
        let mut text = String::new();
        let recipe = Recipe::new(hash, key, new, present, &mut text, now);
        Draft::new(&recipe, &self.heap, who, || self.table_charge())
    }

    /// The same around a value that has arrived, if it lies where it should.
    #[cold]
    fn draft_around(&self, hash: Hash, key: &[u8], new: &New<'_>, arrival: &Arrival) -> Option<Draft<'_>> {
        let mut text = String::new();
        let recipe = Recipe::new(hash, key, new, b"", &mut text, self.clock.now());
        Draft::around(&recipe, arrival, &self.heap)
    }

    /// Executes `change` on `item` as far as it concerns that alone. If it marks the item, sets
    /// `before` to the status that the item had. The bucket is locked.
    fn step(
        &self,
        hash: Hash,
        key: &[u8],
        change: Change<'_>,
        item: Option<ItemRef<'_>>,
        now: u32,
        before: &mut Option<Status>,
    ) -> Result<Step<'_>, OutOfMemory> {
        match change {
            Change::Keep => Ok(Step::Keep),
            Change::Remove => Ok(Step::Remove),
            Change::Put(new) => {
                let present = item.map_or(&b""[..], ItemRef::value);
                Ok(Step::Put(self.draft(hash, key, &new, present, Asks::Locked, now)?))
            }
            Change::Mark { expiry, add, is_access } => {
                if let Some(item) = item {
                    expiry.into_iter().for_each(|expiry| item.set_expiry(expiry));
                    *before = Some(item.status().mark(add, is_access.then_some(now)));
                }
                Ok(Step::Keep)
            }
        }
    }

    /// What clients see of `item` at `now`, who may keep its value.
    #[inline(always)]
    fn show<'a>(&'a self, item: ItemRef<'a>, now: u32) -> Hit<'a> {
        Hit { origin: Some(Origin::new(item, self.heap.loans())), ..item.hit(now) }
    }

    /// Notes an access of `item`, and tells what it was like before. None if the note would be lost, because another item takes its
    /// place just now: see [`get_locked`](Self::get_locked).
    #[inline(always)]
    fn access<'a>(&'a self, item: ItemRef<'a>, now: u32) -> Option<Hit<'a>> {
        let status = item.status().access(now)?;
        Some(Hit { origin: Some(Origin::new(item, self.heap.loans())), ..item.hit_with(status, now) })
    }

    /// The item under `key`, dead or alive.
    #[inline(always)]
    fn find<'g>(&self, hash: Hash, key: &[u8], guard: &'g Guard) -> Option<ItemRef<'g>> {
        let link = self.table.find(hash, has_key(key), guard)?;
        // SAFETY: a link of an item, found inside the read section of `guard`, for which it stays allocated.
        Some(unsafe { ItemRef::of_link(link) })
    }

    /// [`Engine::get`] for what can't be done without the bucket's lock: unlinking an item that is dead, and noting the access of one in whose
    /// place another is put just now. Which of these, if any, there is in the end, is decided anew.
    #[cold]
    fn get_locked(&self, hash: Hash, key: &[u8], guard: &Guard, visit: impl FnOnce(Hit<'_>)) -> Lookup {
        let ((hit, lookup), ..) = self.change(hash, key, guard, |item, lookup, now| {
            let access = |item| self.access(item, now).expect("a status passes on under the lock, which is held");
            (Step::Keep, (item.map(access), lookup))
        });
        if let Some(hit) = hit {
            visit(hit);
        }
        lookup
    }

    /// Runs `attempt`, and again for as long as what it lacks can be made room for.
    fn with_room<R>(&self, mut attempt: impl FnMut() -> Result<R, OutOfMemory>) -> Result<R, OutOfMemory> {
        /// Others may be faster to take the room that was made, but not for ever: see [`Heap::claim`].
        const PATIENCE: usize = 8;
        /// If the system has no memory, there is none.
        const ATTEMPTS: usize = 4 * PATIENCE;
        self.evict_ahead();
        let mut claim = None;
        for turn in 1..ATTEMPTS {
            match attempt() {
                Err(full) if self.make_room(full.requested) => {
                    if turn >= PATIENCE {
                        claim.get_or_insert_with(|| self.heap.claim(full.requested));
                    }
                }
                outcome => return outcome,
            }
        }
        attempt()
    }

    /// Begins to fetch what lookups of these keys will need. Returns the keys' hashes.
    fn bring_near(&self, keys: &[&[u8]], guard: &Guard) -> [Hash; MOST_AT_ONCE] {
        /// Of an item: the key, and a small value.
        const LINES: usize = 3;
        let mut hashes = [Hash::new(0); MOST_AT_ONCE];
        hashes.iter_mut().zip(keys).for_each(|(hash, key)| *hash = self.hash(key));
        let near =
            |link: NonNull<Link>| (1..LINES).for_each(|line| prefetch(link.as_ptr().wrapping_byte_add(64 * line)));
        self.table.prefetch(&hashes[..keys.len()], near, guard);
        hashes
    }

    /// Unlinks the item under `key` if it is dead.
    #[cold]
    fn remove_dead(&self, hash: Hash, key: &[u8], guard: &Guard) {
        self.change(hash, key, guard, |_, _, _| (Step::Keep, ()));
    }

    /// What the table takes, and will take if it grows soon: the old array and the new one are there at the same time. (The old one
    /// is freed some milliseconds after the table has grown; during these it is not counted.)
    pub(super) fn table_memory(&self) -> TableMemory {
        let (buckets, is_resizing) = (self.table.buckets(), self.table.is_resizing());
        // This is told when blocks are asked for: that has to be in time for the last one before it grows.
        let soon = self.table.len() + self.heap.most_unasked();
        let grows = is_resizing || soon as f64 > 0.95 * buckets as f64 * LOAD.end();
        // Who resizes it may be late, and catches up in one step.
        let grown = self.table.policy().buckets_for(soon).max(GROWTH * buckets);
        let bytes = |buckets| buckets * size_of::<usize>();
        TableMemory {
            bytes: bytes(buckets),
            charge: bytes(buckets) + if grows { bytes(grown) } else { 0 },
            is_resizing,
        }
    }

    pub(super) fn table_charge(&self) -> usize {
        self.table_memory().charge
    }
}

impl Engine for Relativistic {
    fn now(&self) -> u32 {
        self.clock.now()
    }

    fn get(&self, key: &[u8], visit: impl FnOnce(Hit<'_>)) -> Lookup {
        let now = self.begin();
        let guard = relativist_rcu::read();
        let hash = self.hash(key);
        let Some(item) = self.find(hash, key, &guard) else { return Lookup::Miss };
        if self.state(item, now) == Lookup::Hit
            && let Some(hit) = self.access(item, now)
        {
            visit(hit);
            return Lookup::Hit;
        }
        self.get_locked(hash, key, &guard, visit)
    }

    fn get_many(&self, keys: &[&[u8]], mut visit: impl FnMut(usize, Result<Hit<'_>, Lookup>) -> bool) -> usize {
        let now = self.begin();
        let keys = &keys[..keys.len().min(MOST_AT_ONCE)];
        let mut guard = relativist_rcu::read();
        let hashes = self.bring_near(keys, &guard);
        for (index, (key, &hash)) in keys.iter().zip(&hashes).enumerate() {
            let item = self.find(hash, key, &guard);
            let live = item.filter(|&item| self.state(item, now) == Lookup::Hit);
            let goes_on = match (live.and_then(|item| self.access(item, now)), item) {
                (Some(hit), _) => visit(index, Ok(hit)),
                (None, None) => visit(index, Err(Lookup::Miss)),
                (None, Some(_)) => {
                    // In each section at most one bucket's lock is waited for.
                    drop(guard);
                    guard = relativist_rcu::read();
                    let mut goes_on = None;
                    let lookup = self.get_locked(hash, key, &guard, |hit| goes_on = Some(visit(index, Ok(hit))));
                    goes_on.unwrap_or_else(|| visit(index, Err(lookup)))
                }
            };
            if !goes_on {
                return index + 1;
            }
        }
        keys.len()
    }

    fn prefetch(&self, keys: &[&[u8]]) {
        self.bring_near(keys, &relativist_rcu::read());
    }

    fn peek(&self, key: &[u8], visit: impl FnOnce(Hit<'_>)) -> Lookup {
        let now = self.begin();
        let guard = relativist_rcu::read();
        let hash = self.hash(key);
        let Some(item) = self.find(hash, key, &guard) else { return Lookup::Miss };
        let state = self.state(item, now);
        if state == Lookup::Hit {
            visit(self.show(item, now));
        } else {
            self.remove_dead(hash, key, &guard);
        }
        state
    }

    fn put<R>(
        &self,
        key: &[u8],
        new: &New<'_>,
        permit: impl FnOnce(Present<'_>) -> (bool, R),
        show: impl FnOnce(Hit<'_>),
    ) -> Result<R, OutOfMemory> {
        let hash = self.hash(key);
        let around = match new.value {
            Value::Arrived(arrival) => self.draft_around(hash, key, new, arrival),
            _ => None,
        };
        let draft = match around {
            Some(draft) => draft,
            None => self.with_room(|| self.draft(hash, key, new, b"", Asks::Unlocked, self.clock.now()))?,
        };
        let guard = relativist_rcu::read();
        let ((is_stored, result), item, now) = self.change(hash, key, &guard, |item, lookup, now| {
            let (is_permitted, result) = permit(Present { item: item.map(|item| item.hit(now)), lookup, now });
            (if is_permitted { Step::Put(draft) } else { Step::Keep }, (is_permitted, result))
        });
        if let (true, Some(item)) = (is_stored, item) {
            show(self.show(item, now));
        }
        Ok(result)
    }

    fn expect(&self, outline: &Outline) -> Option<Arrival> {
        if !outline.is_large() || outline.key_len + outline.value_len > self.max_item {
            return None;
        }
        let layout = Layout::of(outline);
        let lent = self.with_room(|| self.heap.lend_new(layout.footprint(), || self.table_charge()));
        lent.ok().flatten().map(|loan| Arrival::new(loan, layout))
    }

    fn update<'a, R>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Present<'_>) -> (Change<'a>, R),
        show: impl FnOnce(Hit<'_>),
    ) -> Result<R, OutOfMemory> {
        // The lock is gone when an item is shown, but not the read section: its value can be copied at leisure. Waiting for
        // room, though, must happen outside.
        let (hash, mut show) = (self.hash(key), Some(show));
        self.with_room(|| {
            let guard = relativist_rcu::read();
            let mut before = None;
            let (outcome, item, now) = self.change(hash, key, &guard, |item, lookup, now| {
                let hit = item.map(|item| item.hit(now));
                let (change, result) = decide(Present { item: hit, lookup, now });
                match self.step(hash, key, change, item, now, &mut before) {
                    Ok(step) => {
                        let expiry =
                            if let Step::Put(draft) = &step { Some(draft.expiry()) } else { item.map(ItemRef::expiry) };
                        (step, Ok((result, expiry)))
                    }
                    Err(full) => (Step::Keep, Err(full)),
                }
            });
            let (result, expiry) = outcome?;
            if let (Some(item), Some(expiry), Some(show)) = (item, expiry, show.take()) {
                // As this has left it: others may have set another, now that the lock is gone.
                let hit = Hit { expiry, ..self.show(item, now) };
                show(match before {
                    Some(before) => Hit { marks: before.marks(), idle: before.idle(now), ..hit },
                    None => hit,
                });
            }
            Ok(result)
        })
    }

    fn scan(&self, cursor: u64, mut visit: impl FnMut(Hit<'_>)) -> Option<u64> {
        let now = self.begin();
        let guard = relativist_rcu::read();
        self.table.scan(cursor, SCANNED_AT_ONCE, &guard, |link| {
            // SAFETY: a link of an item, shown inside the read section, which outlives `item`.
            let item = unsafe { ItemRef::of_link(link) };
            if self.state(item, now) == Lookup::Hit {
                visit(item.hit(now));
            }
        })
    }

    fn sequence(&self) -> Sequence {
        self.begin();
        let (flushed, pending_flush) = self.flush.state();
        Sequence { flushed, pending_flush }
    }

    fn set_limit(&self, bytes: usize) -> bool {
        self.heap.set_limit(bytes);
        true
    }

    fn maintain(&self) {
        self.sweep_expired(self.begin());
        self.evict_ahead();
        self.heap.trim();
    }

    fn max_item(&self) -> usize {
        self.max_item
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
            item_bytes: self.heap.linked(),
            buckets: self.table.buckets(),
            table_bytes: self.table_memory().bytes,
            is_resizing: self.table.is_resizing(),
            heap_bytes: self.heap.mapped(),
            lent_bytes: self.heap.loans().bytes(),
            limit: self.heap.limit(),
            sweeps: self.heap.sweeps(),
        }
    }

    fn survey(&self, stats: &mut TableStats, cursor: u64) -> Option<u64> {
        self.table.add_stats(stats, cursor, SURVEYED_AT_ONCE)
    }
}

/// Whether a link that the table shows belongs to the item with this key.
fn has_key(key: &[u8]) -> impl Fn(NonNull<Link>) -> bool {
    // SAFETY: the table holds links of items only, and shows those that the caller's read section protects.
    move |link| unsafe { ItemRef::of_link(link) }.key() == key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Content, Mode};
    use std::thread;
    use std::time::Duration;

    const KEY: &[u8] = b"key";

    /// If other threads take the room that was made again and again, the next room is claimed.
    #[test]
    fn a_store_that_fails_often_gets_a_claim() {
        let engine = Relativistic::new(Arc::new(Clock::new(1000)), 1 << 20, 1 << 20).unwrap();
        let by_another = || {
            let allocate = || {
                let place = engine.heap.allocate(600_000, Asks::Unlocked, || 0);
                place.map(|place| engine.heap.abandon(place, 600_000)).is_ok()
            };
            thread::scope(|scope| scope.spawn(allocate).join().expect("no panic"))
        };
        let mut could_others = Vec::new();
        let outcome = engine.with_room(|| {
            could_others.push(by_another());
            if could_others.len() < 12 { Err(OutOfMemory { requested: 500_000 }) } else { Ok(()) }
        });
        assert_eq!(outcome, Ok(()));
        assert_eq!(could_others, [vec![true; 8], vec![false; 4]].concat());
        assert!(by_another(), "the claim has ended");
    }

    #[test]
    fn fetches_too_late_for_a_copy_count_for_the_copy() {
        fetch_when_replaced(|engine, item| {
            let copy = Draft::copy(item, 1100, &engine.heap, || 0).unwrap();
            copy.take_over(item, 0, 1100);
            (copy, (100, b"value"))
        });
    }

    #[test]
    fn fetches_too_late_for_an_heir_count_for_the_heir() {
        fetch_when_replaced(|engine, item| {
            let new = New { inherits: Marks::FETCHED, ..New::plain(0, Value::Whole(b"other")) };
            let heir = engine.draft(engine.hash(KEY), KEY, &new, b"", Asks::Locked, 1100).unwrap();
            heir.inherit(item);
            (heir, (0, b"other"))
        });
    }

    /// Replaces an item by what `successor` makes, with lookups at the worst moment: they find it when the successor has its status
    /// already. The first is to tell how long the successor was idle, and its value.
    fn fetch_when_replaced(
        successor: impl for<'e> Fn(&'e Relativistic, ItemRef<'_>) -> (Draft<'e>, (u32, &'static [u8])),
    ) {
        let clock = Arc::new(Clock::new(1000));
        let engine = Relativistic::new(Arc::clone(&clock), 1 << 20, 1 << 20).unwrap();
        engine.store(Mode::Set, KEY, Content { flags: 0, exptime: 0, value: b"value" });
        clock.set(1100);
        let fact = |hit: Hit<'_>| (hit.marks, hit.idle, hit.value.to_vec());
        let begun = AtomicU64::new(0);
        let fetch_one = || {
            let mut found = None;
            // SeqCst: simplest.
            begun.fetch_add(1, Ordering::SeqCst);
            assert_eq!(engine.get(KEY, |hit| found = Some(fact(hit))), Lookup::Hit);
            found.unwrap()
        };
        let fetch_many = || {
            let mut found = None;
            begun.fetch_add(1, Ordering::SeqCst);
            let note = |_, hit: Result<Hit<'_>, Lookup>| {
                found = Some(fact(hit.unwrap()));
                true
            };
            assert_eq!(engine.get_many(&[KEY], note), 1);
            found.unwrap()
        };
        let (wanted, mut found) = thread::scope(|scope| {
            let guard = relativist_rcu::read();
            let Entry::Occupied(entry) = engine.table.entry(engine.hash(KEY), has_key(KEY), &guard) else {
                panic!("stored just now")
            };
            // SAFETY: a link of an item, found inside the read section.
            let item = unsafe { ItemRef::of_link(entry.get()) };
            let (copy, wanted) = successor(&engine, item);
            assert!(engine.access(item, 1100).is_none());
            let one = scope.spawn(fetch_one);
            let many = scope.spawn(fetch_many);
            while begun.load(Ordering::SeqCst) < 2 {
                thread::yield_now();
            }
            // Time to find the item, and to wait.
            thread::sleep(Duration::from_millis(20));
            assert!(!one.is_finished() && !many.is_finished(), "they wait for the copy");
            copy.link(item.number(), &guard, |link| {
                // SAFETY: a fresh link with the entry's hash; it stays allocated until it was removed and a grace period passed.
                unsafe { entry.replace(link) };
            });
            // SAFETY: unlinked just now, within the section of `guard`.
            unsafe { item.bury(&engine.heap, &guard) };
            (wanted, [one.join().unwrap(), many.join().unwrap()])
        });
        found.sort_by_key(|(marks, ..)| marks.has(Marks::FETCHED));
        let (idle, value) = wanted;
        assert_eq!(found, [(Marks::NONE, idle, value.to_vec()), (Marks::FETCHED, 0, value.to_vec())]);
        assert_eq!(engine.peek(KEY, |hit| assert_eq!((hit.marks, hit.idle), (Marks::FETCHED, 0))), Lookup::Hit);
    }
}
