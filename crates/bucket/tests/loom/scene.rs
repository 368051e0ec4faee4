//! The tables of the models, and what threads do with them.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;
use relativist_bucket::{Hash, Holds, Keys, Readers, Relocatable, Table};
use relativist_rcu::{barrier, clock, wait_for_readers};

use crate::models::explore;

thread_local! {
    /// The number of entries that are not dropped yet. All threads of a model run on one thread.
    static ALIVE: Cell<isize> = const { Cell::new(0) };
}

/// An entry.
pub struct Entry {
    key: u64,
    /// Written when the entry is dropped. Loom fails the model if a read of it races with that.
    value: UnsafeCell<u64>,
}

// SAFETY: a number may be sent to any thread.
unsafe impl Send for Entry {}
// SAFETY: loom checks that no thread accesses the cell while another one writes to it.
unsafe impl Sync for Entry {}
// SAFETY: no field changes before the entry is dropped.
unsafe impl Relocatable for Entry {}

impl Entry {
    pub fn new(key: u64, value: u64) -> Self {
        ALIVE.set(ALIVE.get() + 1);
        Self { key, value: UnsafeCell::new(value) }
    }

    pub fn key(&self) -> u64 {
        self.value();
        self.key
    }

    pub fn value(&self) -> u64 {
        // SAFETY: see `Sync`.
        self.value.with(|value| unsafe { *value })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        ALIVE.set(ALIVE.get() - 1);
        // SAFETY: see `Sync`.
        self.value.with_mut(|value| unsafe { *value = u64::MAX });
    }
}

/// A form of the table.
pub trait Slots: Holds<Entry> + 'static {}

impl<F: Holds<Entry> + 'static> Slots for F {}

pub type Section<'t, F> = relativist_bucket::Section<'t, Entry, F>;

/// Keys below 16 are in the order of their hashes, and have different tags. In a table of two
/// buckets, keys 0 to 7 are in the first one; in a table of four, keys 0 to 3. Keys 0, 1 and 2 have
/// different bits of the filter, and key 3 has that of key 0. Key 16 has the hash of key 0.
pub struct Places;

impl Places {
    pub fn hash_of(key: u64) -> Hash {
        let place = key % 16;
        Hash::exactly((place << 60) | (place * 43 % 128))
    }
}

impl Keys<Entry> for Places {
    fn hash(&self, entry: &Entry) -> Hash {
        Self::hash_of(entry.key())
    }

    fn same(&self, one: &Entry, other: &Entry) -> bool {
        one.key() == other.key()
    }
}

/// The numbers of entries for which a new table has two or four buckets.
pub const COARSE: usize = 0;
pub const FINE: usize = 16;

/// Returns a table in which these keys have the value 0.
pub fn table<F: Slots>(capacity: usize, keys: &[u64]) -> Arc<Table<Entry, F>> {
    let table = Table::new(capacity).unwrap();
    let section = table.enter();
    keys.iter().for_each(|&key| assert_eq!(insert(&section, key, 0), None));
    drop(section);
    Arc::new(table)
}

pub fn insert<F: Slots>(section: &Section<'_, F>, key: u64, value: u64) -> Option<u64> {
    section.insert(Places::hash_of(key), Entry::new(key, value), &Places).map(Entry::value)
}

/// Returns whether the key was absent.
pub fn try_insert<F: Slots>(section: &Section<'_, F>, key: u64, value: u64) -> bool {
    section.try_insert(Places::hash_of(key), Entry::new(key, value), &Places).is_ok()
}

pub fn remove<F: Slots>(section: &Section<'_, F>, key: u64) -> Option<u64> {
    section.remove(Places::hash_of(key), |entry| entry.key() == key, &Places).map(Entry::value)
}

pub fn get<F: Slots>(section: &Section<'_, F>, key: u64) -> Option<u64> {
    section.find(Places::hash_of(key), |entry| entry.key() == key).map(Entry::value)
}

/// Returns the keys that an iteration sees, in order.
pub fn keys<F: Slots>(section: &Section<'_, F>) -> Vec<u64> {
    let mut keys: Vec<u64> = section.iter(&Places).map(Entry::key).collect();
    keys.sort_unstable();
    keys
}

/// Looks a key up twice, while another thread gives it these values one after the other. Checks
/// that the second lookup finds no older value than the first one.
pub fn assert_follows<F: Slots>(section: &Section<'_, F>, key: u64, values: &[Option<u64>]) {
    let look = || {
        let found = get(section, key);
        values.iter().position(|&value| value == found).unwrap_or_else(|| panic!("{key} has never been {found:?}"))
    };
    let (first, second) = (look(), look());
    assert!(first <= second, "{key} was {:?}, and then {:?}", values[first], values[second]);
}

/// Checks by an iteration, by lookups and by `len` that a table has exactly these entries, and
/// drops it. Checks that each entry is dropped once. No other thread uses the table.
pub fn assert_holds<F: Slots>(table: Arc<Table<Entry, F>>, entries: &[(u64, u64)]) {
    let table = Arc::into_inner(table).expect("no other thread uses the table");
    let section = table.enter();
    let mut seen: Vec<_> = section.iter(&Places).map(|entry| (entry.key(), entry.value())).collect();
    seen.sort_unstable();
    assert_eq!(seen, entries);
    entries.iter().for_each(|&(key, value)| assert_eq!(get(&section, key), Some(value), "lookup of {key}"));
    drop(section);
    assert_eq!(table.len(), entries.len());
    drop(table);
    barrier();
    assert_eq!(ALIVE.get(), 0, "entries that are not dropped, or dropped twice");
}

/// Explores a model of which each execution begins without entries.
pub fn explore_entries(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    explore(preemptions, move || {
        ALIVE.set(0);
        model();
    });
}

/// Lets all grace periods pass for which vacated slots wait.
pub fn let_slots_age() {
    (0..clock::GRACE_PERIODS).for_each(|_| wait_for_readers());
}

/// Runs what is due, when the readers have left.
pub fn reclaim<F: Slots>(table: &Table<Entry, F>) {
    barrier();
    (0..2).for_each(|_| table.domain().wait());
}

/// The section of one thread in which another one updates, so that loom has fewer sections to
/// explore. Only one of them updates, because it uses the queue of deferred functions.
struct Shared<F: Slots>(NonNull<Section<'static, F>>);

// SAFETY: see `alongside`.
unsafe impl<F: Slots> Send for Shared<F> {}

impl<F: Slots> Shared<F> {
    fn get(&self) -> &Section<'static, F> {
        // SAFETY: see `alongside`.
        unsafe { self.0.as_ref() }
    }
}

/// Runs `work` on another thread while `others` run on this one, in the same section.
pub fn alongside<'t, F: Slots>(
    section: &Section<'t, F>,
    work: impl FnOnce(&Section<'_, F>) + 'static,
    others: impl FnOnce(&Section<'t, F>),
) {
    let shared = Shared(NonNull::from(section).cast());
    // SAFETY: the thread is joined while the section lasts.
    let thread = thread::spawn(move || work(shared.get()));
    others(section);
    thread.join().unwrap();
}

/// Runs `work` on another thread in a section of its own.
pub fn spawn<F: Slots>(
    table: &Arc<Table<Entry, F>>,
    work: impl FnOnce(&Section<'_, F>) + 'static,
) -> thread::JoinHandle<()> {
    let table = Arc::clone(table);
    thread::spawn(move || {
        let section = table.enter();
        work(&section);
        drop(section);
        drop(table);
    })
}

/// One update, or several, of key 0 in a bucket with residents, which have the value 0.
pub struct Case<F: Slots> {
    pub residents: &'static [u64],
    pub prepare: fn(&Section<'_, F>),
    pub update: fn(&Section<'_, F>),
    /// The values of key 0, one after the other.
    pub values: &'static [Option<u64>],
}

impl<F: Slots> Clone for Case<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Slots> Copy for Case<F> {}

impl<F: Slots> Case<F> {
    pub fn table(self, capacity: usize) -> Arc<Table<Entry, F>> {
        let table = table(capacity, self.residents);
        (self.prepare)(&table.enter());
        table
    }

    /// Looks key 0 up twice, and the last resident once.
    pub fn look(self, section: &Section<'_, F>) {
        assert_follows(section, 0, self.values);
        let resident = *self.residents.last().unwrap();
        assert_eq!(get(section, resident), Some(0), "a resident was missed");
    }

    pub fn assert_done(self, table: Arc<Table<Entry, F>>) {
        let mut entries: Vec<_> = self.residents.iter().map(|&key| (key, 0)).collect();
        entries.extend(self.values.last().unwrap().map(|value| (0, value)));
        entries.sort_unstable();
        assert_holds(table, &entries);
    }

    /// Explores lookups during the update.
    pub fn explore(self, preemptions: usize) {
        explore_entries(preemptions, move || {
            let table = self.table(COARSE);
            let section = table.enter();
            alongside(&section, self.update, |section| self.look(section));
            drop(section);
            self.assert_done(table);
        });
    }
}

pub fn nothing<F: Slots>(_: &Section<'_, F>) {}
