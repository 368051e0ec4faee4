//! T9, T10: renames of entries of a map and of links, also those that fail.

use std::cell::{Cell, RefCell};
use std::hash::{Hash as StdHash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use relativist::{Guard, HashMap, RenameError, Resizing, read};
use relativist_table::{Entry, Hash, Link, RenameError as RawError, Table};

use crate::hashing::{Hashing, IDENTITY, MIXED};
use relativist_testing::random::Random;

fn map(hashing: Hashing) -> HashMap<u64, u64, Hashing> {
    HashMap::<u64, u64>::builder().resizing(Resizing::Manual).hasher(hashing).build().unwrap()
}

/// Compares the map with `std`'s, in tables of all sizes, with good hashes, with hashes in one
/// bucket, and with equal hashes.
#[test]
fn does_what_a_removal_and_an_insertion_do() {
    for hashing in [MIXED, IDENTITY, Hashing(|n| n % 3), Hashing(|_| 42)] {
        let map = map(hashing);
        let mut model: std::collections::HashMap<u64, u64> = (0..20).map(|n| (n, n)).collect();
        (&map).extend((0..20).map(|n| (n, n)));
        let mut random = Random::new(5);
        for round in 0..2000 {
            let (old, new) = (random.below(40), random.below(40));
            let expected = match (model.contains_key(&old), model.contains_key(&new)) {
                (false, _) => Err(RenameError::NotFound(new)),
                (true, true) => Err(RenameError::Taken(new)),
                (true, false) => Ok(()),
            };
            assert_eq!(map.rename(&old, new), expected, "{old} to {new}");
            if expected.is_ok() {
                let value = model.remove(&old).unwrap();
                model.insert(new, value);
            }
            if round % 100 == 0 {
                map.resize_to(1 << random.below(8)).unwrap();
                let pinned = map.pin();
                assert!((0..40).all(|key| pinned.get(&key) == model.get(&key)));
                assert_eq!(pinned.iter().count(), model.len());
                assert_eq!((map.len(), map.stats().entries), (model.len(), model.len()));
            }
        }
    }
}

#[test]
fn explains_itself_inside_a_read_section() {
    let map = map(MIXED);
    let pinned = map.pin();
    let panic = catch_unwind(AssertUnwindSafe(|| map.rename(&1, 2))).unwrap_err();
    assert!(panic.downcast_ref::<String>().is_some_and(|message| message.contains("renaming waits for readers")));
    drop(pinned);
    assert_eq!(map.rename(&1, 2), Err(RenameError::NotFound(2)));
}

/// An object with room for two keys.
#[repr(C)]
struct Object {
    link: Link,
    key: AtomicU64,
    former: AtomicU64,
}

/// No key.
const NONE: u64 = u64::MAX;

impl Object {
    fn boxed(key: u64) -> NonNull<Link> {
        let object = Self { link: Link::new(Hash::new(key)), key: AtomicU64::new(key), former: AtomicU64::new(NONE) };
        NonNull::from(Box::leak(Box::new(object))).cast()
    }

    /// Requires a link that is alive.
    fn of<'a>(link: NonNull<Link>) -> &'a Self {
        // SAFETY: all links of these tables are the first fields of objects.
        unsafe { link.cast().as_ref() }
    }

    fn matches(key: u64) -> impl Fn(NonNull<Link>) -> bool {
        move |link| Self::of(link).key.load(Relaxed) == key || Self::of(link).former.load(Relaxed) == key
    }

    fn rekey(link: NonNull<Link>, key: u64) {
        let object = Self::of(link);
        object.former.store(object.key.load(Relaxed), Relaxed);
        object.key.store(key, Relaxed);
    }

    unsafe fn dispose(link: NonNull<Link>) {
        // SAFETY: made by `boxed`.
        drop(unsafe { Box::from_raw(link.cast::<Self>().as_ptr()) });
    }
}

fn table(keys: &[u64]) -> Table {
    let table = Table::new(4, Resizing::Manual, Object::dispose).unwrap();
    // SAFETY: fresh objects.
    keys.iter().for_each(|&key| unsafe { table.insert(Object::boxed(key), &read()) });
    table
}

fn find(table: &Table, key: u64) -> Option<NonNull<Link>> {
    table.find(Hash::new(key), Object::matches(key), &read())
}

fn rename(table: &Table, old: u64, new: u64, rekey: impl FnOnce(NonNull<Link>)) -> Result<(), RawError> {
    let (is_old, is_new) = (Object::matches(old), Object::matches(new));
    table.rename((Hash::new(old), is_old), (Hash::new(new), is_new), rekey)
}

/// T8, T10: the very link is found under its new key, and has its hash.
#[test]
fn moves_the_link_itself() {
    let table = table(&(0..50).collect::<Vec<_>>());
    for key in 0..50 {
        let link = find(&table, key).unwrap();
        rename(&table, key, key + 1000, |link| Object::rekey(link, key + 1000)).unwrap();
        assert_eq!((find(&table, key), find(&table, key + 1000)), (None, Some(link)));
        assert_eq!(Object::of(link).link.hash(), Hash::new(key + 1000));
        table.resize_to(1 << (key % 7)).unwrap();
    }
    assert_eq!((table.len(), table.iter(&read()).count()), (50, 50));
    assert_eq!(rename(&table, 1001, 1001, |_| ()), Err(RawError::SameHash));
}

/// T9: if the new key is present, or is inserted while the link is in flight, or a function panics,
/// then the link is where it was.
#[test]
fn what_fails_changes_nothing() {
    let table = table(&[1, 2, 3]);
    let intact = || {
        assert!([1, 2, 3].iter().all(|&key| find(&table, key).is_some()) && find(&table, 9).is_none());
        assert_eq!((table.len(), table.iter(&read()).count()), (3, 3));
    };
    assert_eq!(rename(&table, 1, 2, |_| panic!("not called")), Err(RawError::Taken));
    assert_eq!(rename(&table, 8, 9, |_| panic!("not called")), Err(RawError::NotFound));
    intact();
    for when in 0..3 {
        // The new key is looked up before the link is in flight, and again afterwards.
        let mut asked = 0;
        let is_new = |_| {
            asked += 1;
            assert!(asked <= when, "the test requested this panic");
            false
        };
        let renamed = catch_unwind(AssertUnwindSafe(|| {
            table.rename((Hash::new(1), Object::matches(1)), (Hash::new(2), is_new), |_| {
                panic!("the test requested this panic")
            })
        }));
        assert!(renamed.is_err());
        intact();
    }
    let make = |_| panic!("the test requested this panic");
    let renamed = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: nothing is returned.
        unsafe { table.rename_to((Hash::new(1), Object::matches(1)), (Hash::new(9), Object::matches(9)), make) }
    }));
    assert!(renamed.is_err());
    intact();
    // The link can still be renamed.
    rename(&table, 1, 9, |link| Object::rekey(link, 9)).unwrap();
    assert!(find(&table, 1).is_none() && find(&table, 9).is_some());
}

/// Updates inside of the functions would wait for themselves: they panic.
#[test]
fn what_runs_under_the_locks_must_not_update() {
    let table = table(&[1]);
    let update = |_| {
        let guard = read();
        let is_vacant = matches!(table.entry(Hash::new(77), |_| false, &guard), Entry::Vacant(_));
        assert!(is_vacant);
    };
    assert!(catch_unwind(AssertUnwindSafe(|| rename(&table, 1, 2, update))).is_err());
    update(find(&table, 1).unwrap());
    assert_eq!(rename(&table, 1, 2, |link| Object::rekey(link, 2)), Ok(()));
}

thread_local! {
    static STAYS: Cell<bool> = const { Cell::new(false) };
    static GUARD: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

fn stay() {
    if STAYS.replace(false) {
        GUARD.set(Some(read()));
    }
}

/// Runs an operation in which `stay` leaves a section open.
fn panics_staying(operation: impl FnOnce()) {
    STAYS.set(true);
    assert!(catch_unwind(AssertUnwindSafe(operation)).is_err(), "it did not panic");
    assert!(!STAYS.get());
    drop(GUARD.take().expect("a section was left open"));
}

/// R6, T9: a function that leaves a section open makes the rename panic, not hang or abort. The
/// link is renamed or not.
#[test]
fn panics_when_a_section_is_left_open() {
    let table = table(&[1, 5]);
    let stays = |link| {
        stay();
        Object::matches(1)(link)
    };
    panics_staying(|| _ = table.rename((Hash::new(1), stays), (Hash::new(2), Object::matches(2)), |_| ()));
    assert!(find(&table, 1).is_some() && find(&table, 2).is_none());
    let rekey = |link| {
        stay();
        Object::rekey(link, 2);
    };
    panics_staying(|| _ = rename(&table, 1, 2, rekey));
    assert!(find(&table, 1).is_none() && find(&table, 2).is_some());
    assert_eq!(rename(&table, 5, 1, |link| Object::rekey(link, 1)), Ok(()));
    assert!([1, 2].iter().all(|&key| find(&table, key).is_some()) && find(&table, 5).is_none());
}

#[derive(Clone, Debug)]
struct Staying(u64);

impl PartialEq for Staying {
    fn eq(&self, other: &Self) -> bool {
        stay();
        self.0 == other.0
    }
}

impl Eq for Staying {}

impl StdHash for Staying {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// The entry that was replaced must not be freed, because the rename has not waited for its
/// readers.
#[test]
fn frees_nothing_when_a_section_is_left_open() {
    let map: HashMap<Staying, String> = [(Staying(1), "one".to_string()), (Staying(2), "two".to_string())].into();
    let reader = map.pin();
    let found = reader.get(&Staying(1)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| panics_staying(|| _ = map.rename(&Staying(1), Staying(3)))).join().unwrap();
    });
    assert_eq!(found, "one");
    drop(reader);
    assert_eq!(map.rename(&Staying(2), Staying(4)), Ok(()));
    let (one, two) = (map.pin().get(&Staying(3)).cloned(), map.pin().get(&Staying(4)).cloned());
    assert_eq!((one.as_deref(), two.as_deref()), (Some("one"), Some("two")));
    assert_eq!((map.len(), map.stats().entries), (2, 2));
}
