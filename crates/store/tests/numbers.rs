//! The numbers of items, which follow from their places: CAS values, and what a flush covers.

use relativist_testing as _;

use relativist_store::{Cache, Change, Clock, Content, LARGE_VALUE, Lookup, Mode, New, Present, Store, Value};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

fn cache(limit: usize) -> (Cache, Arc<Clock>) {
    let clock = Arc::new(Clock::new(1_700_000_000));
    (Cache::new(Arc::clone(&clock), limit, 1 << 20).unwrap(), clock)
}

fn content(value: &[u8]) -> Content<'_> {
    Content { flags: 0, exptime: 0, value }
}

fn set(cache: &Cache, key: &str, value: &[u8]) {
    assert_eq!(cache.store(Mode::Set, key.as_bytes(), content(value)), Store::Stored);
}

/// Stores an item, and returns its CAS value.
fn put(cache: &Cache, key: &str, new: &New<'_>) -> u64 {
    let mut cas = 0;
    cache.put(key.as_bytes(), new, |_| (true, ()), |hit| cas = hit.cas()).expect("room can be made");
    cas
}

/// The CAS value and the size of an item.
fn facts(cache: &Cache, key: &str) -> Option<(u64, usize)> {
    let mut facts = None;
    cache.peek(key.as_bytes(), |hit| facts = Some((hit.cas(), hit.size)));
    facts
}

fn has(cache: &Cache, key: &str) -> bool {
    facts(cache, key).is_some()
}

/// A small generator (xorshift), the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[test]
fn no_cas_value_comes_twice_although_memory_is_reused() {
    let (cache, _) = cache(1 << 20);
    let (mut seen, mut random) = (HashSet::new(), Random(1));
    let bytes = vec![b'v'; 40_000];
    for turn in 0..60_000 {
        let key = format!("{}", random.below(3_000));
        let length = match random.below(100) {
            0 => LARGE_VALUE + random.below(20_000) as usize,
            1..20 => random.below(3_000) as usize,
            20..60 => random.below(200) as usize,
            // The smallest items.
            _ => 0,
        };
        let value = Value::Whole(&bytes[..length]);
        let change = if turn % 2 == 0 { Value::Kept } else { value };
        assert!(seen.insert(put(&cache, &key, &New::plain(0, value))), "turn {turn}");
        let mut cas = 0;
        let replace = |_: Present<'_>| (Change::Put(New::plain(0, change)), ());
        cache.update(key.as_bytes(), replace, |hit| cas = hit.cas()).expect("room can be made");
        assert!(seen.insert(cas), "turn {turn}");
        match random.below(10) {
            0 => _ = cache.delete(key.as_bytes()),
            1..4 => _ = cache.get(key.as_bytes(), |_| ()),
            _ => (),
        }
        if turn % 5_000 == 0 {
            cache.flush(0);
            cache.maintain();
        }
    }
    let sweeps = cache.usage().sweeps;
    assert!(sweeps.blocks > 1_000, "memory was hardly reused: {sweeps:?}");
    assert!(!seen.contains(&0) && !seen.contains(&1), "they are never drawn");
}

/// A block draws a number for each 16 bytes.
#[test]
fn a_store_draws_no_more_numbers_than_its_size() {
    let (cache, _) = cache(16 << 20);
    let first = cache.last_cas();
    (0..50_000).for_each(|key| set(&cache, &format!("{key:010}"), &[b'v'; 100]));
    let each = (cache.last_cas() - first) / 50_000;
    assert!((7..=9).contains(&each), "{each} numbers an item");
    let before = cache.last_cas();
    set(&cache, "large", &[b'v'; 500_000]);
    assert_eq!(cache.last_cas(), before + 1, "an item alone in its block");
}

/// Clients may hold it. This includes values that clients have set.
#[test]
fn an_item_that_moves_keeps_its_cas_value() {
    const HOT: usize = 500;
    let (cache, _) = cache(4 << 20);
    let name = |index: usize| format!("hot{index}");
    let own = |index: usize| index.is_multiple_of(3).then_some(index as u64 + 1);
    let mut before = Vec::new();
    for index in 0..HOT {
        let new = New { cas: own(index), ..New::plain(7, Value::Whole(&[b'v'; 100])) };
        put(&cache, &name(index), &new);
        before.push(facts(&cache, &name(index)).expect("it was stored"));
        assert_eq!(before[index].0, own(index).unwrap_or(before[index].0));
    }
    // Twice the limit in cold items, so that the others move repeatedly.
    for index in 0..80_000 {
        set(&cache, &format!("cold{index}"), &[b'v'; 100]);
        cache.get(name(index % HOT).as_bytes(), |_| ());
    }
    let is_larger = |index: &usize| facts(&cache, &name(*index)).is_some_and(|(_, size)| size > before[*index].1);
    let moved: Vec<_> = (0..HOT).filter(is_larger).collect();
    assert!(moved.len() > HOT / 2, "{} of {HOT} have moved", moved.len());
    for index in moved {
        let (key, cas) = (name(index), before[index].0);
        assert_eq!(facts(&cache, &key).expect("it is there").0, cas, "{key}");
        assert_eq!(cache.store(Mode::Cas(cas), key.as_bytes(), content(b"new")), Store::Stored);
        assert_eq!(cache.store(Mode::Cas(cas), key.as_bytes(), content(b"newer")), Store::Exists);
    }
}

/// The items that are stored after the flush would fit into blocks that were opened before.
#[test]
fn a_flush_covers_items_and_copies_and_no_later_ones() {
    let (cache, clock) = cache(4 << 20);
    for round in 0..3 {
        for index in 0..2_000 {
            set(&cache, &format!("{index}"), &[b'v'; 100]);
        }
        // The first expiry of an item makes a copy of it.
        (0..2_000).step_by(8).for_each(|index| assert!(cache.touch(format!("{index}").as_bytes(), 1_000)));
        assert!(has(&cache, "8") && has(&cache, "9"));
        if round == 1 {
            cache.flush(5);
            clock.set(clock.now() + 5);
        } else {
            cache.flush(0);
        }
        assert_eq!((cache.get(b"8", |_| ()), cache.get(b"9", |_| ())), (Lookup::Flushed, Lookup::Flushed));
        assert_eq!(cache.store(Mode::Append, b"16", content(b"w")), Store::NotStored);
        assert_eq!(cache.store(Mode::Add, b"24", content(b"w")), Store::Stored);
        set(&cache, "new", b"w");
        set(&cache, "large", &[b'w'; 100_000]);
        assert_eq!(cache.store(Mode::Append, b"new", content(b"x")), Store::Stored);
        assert!(cache.touch(b"24", 100));
        assert!(["24", "new", "large"].iter().all(|key| has(&cache, key)));
        cache.maintain();
        assert!(["24", "new", "large"].iter().all(|key| has(&cache, key)));
        assert_eq!(cache.usage().items, 3);
        assert_eq!((0..2_000).filter(|index| has(&cache, &format!("{index}"))).count(), 1);
    }
}

/// A flush between the decision of an update and its new item: the update must not store what it
/// has computed from a flushed item, unless the flush covers that, too.
#[test]
fn an_update_decides_again_after_a_flush() {
    let (cache, _) = cache(4 << 20);
    set(&cache, "k", b"old");
    let mut found = Vec::new();
    let append = |present: Present<'_>| {
        found.push(present.item.is_some());
        if found.len() == 1 {
            thread::scope(|scope| _ = scope.spawn(|| cache.flush(0)));
        }
        (present.item.map_or(Change::Keep, |item| Change::Put(item.joined(Value::Appended(b"new")))), ())
    };
    cache.update(b"k", append, |_| panic!("nothing is there")).unwrap();
    assert_eq!(found, [true, false]);
    assert!(!has(&cache, "k"));
}

/// What the threads of the next test know.
struct Race {
    cache: Cache,
    /// The flushes that have begun, and those that have ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// The version of each key whose store has ended last.
    stored: [AtomicU64; KEYS],
    is_over: AtomicBool,
}

const KEYS: usize = 9;

impl Race {
    /// The version that is found under a key.
    fn version(&self, key: usize) -> Option<u64> {
        let mut version = None;
        let parse = |value: &[u8]| u64::from_le_bytes(value[..8].try_into().expect("a version of eight bytes"));
        self.cache.get(&[key as u8], |hit| version = Some(parse(hit.value)));
        version
    }

    /// Stores a version in one of three ways.
    fn store(&self, key: usize, version: u64) {
        let (name, mut value) = ([key as u8], version.to_le_bytes().to_vec());
        if key.is_multiple_of(3) {
            value.resize(LARGE_VALUE, 0);
        }
        let new = New::plain(0, Value::Whole(&value));
        if key % 3 == 1 {
            self.cache.update(&name, |_| (Change::Put(new), ()), |_| ()).expect("there is room");
        } else {
            self.cache.put(&name, &new, |_| (true, ()), |_| ()).expect("room can be made");
        }
        // SeqCst, here and below: the simplest choice in a test.
        self.stored[key].store(version, Ordering::SeqCst);
    }

    /// Stores versions of every third key, and looks for them. Returns how often a version had to
    /// be there, because no flush came after the beginning of its store.
    fn write(&self, first: usize) -> u64 {
        let (mut version, mut certain) = (0, 0);
        while !self.is_over.load(Ordering::SeqCst) {
            version += 1;
            for key in (0..KEYS).filter(|key| key / 3 == first) {
                let (ended, begun) = (self.ended.load(Ordering::SeqCst), self.begun.load(Ordering::SeqCst));
                self.store(key, version);
                let found = self.version(key);
                let is_quiet = begun == ended && self.begun.load(Ordering::SeqCst) == begun;
                assert!(found == Some(version) || found.is_none() && !is_quiet, "{found:?}, and not {version}");
                certain += u64::from(is_quiet);
            }
        }
        certain
    }
}

/// What is stored after a flush has ended stays, and what was stored before it began is gone.
#[test]
fn a_flush_separates_stores_of_many_threads() {
    const FLUSHES: u64 = 1_000;
    let race = Race {
        cache: cache(256 << 20).0,
        begun: AtomicU64::new(0),
        ended: AtomicU64::new(0),
        stored: [const { AtomicU64::new(0) }; KEYS],
        is_over: AtomicBool::new(false),
    };
    let certain = thread::scope(|scope| {
        let writers = [0, 1, 2].map(|first| {
            let race = &race;
            scope.spawn(move || race.write(first))
        });
        for turn in 0..FLUSHES {
            let before = race.stored.each_ref().map(|version| version.load(Ordering::SeqCst));
            race.begun.fetch_add(1, Ordering::SeqCst);
            race.cache.flush(0);
            race.ended.fetch_add(1, Ordering::SeqCst);
            for (key, &before) in before.iter().enumerate() {
                let found = race.version(key);
                if found.is_some_and(|version| version <= before) {
                    race.is_over.store(true, Ordering::SeqCst);
                    panic!("{found:?} under {key}, and {before} was flushed");
                }
            }
            if turn % 4 == 0 {
                thread::sleep(Duration::from_micros(200));
            }
            // Frees the blocks that each flush closes, so that nothing is evicted.
            if turn % 10 == 0 {
                race.cache.maintain();
            }
        }
        race.is_over.store(true, Ordering::SeqCst);
        writers.map(|writer| writer.join().expect("no version is lost"))
    });
    assert_eq!(race.cache.usage().sweeps.evictions, 0);
    assert!(certain.iter().sum::<u64>() > FLUSHES / 100, "hardly any store without a flush: {certain:?}");
}
