//! Tests of the cache with a clock that the test sets, and with many threads.

use relativist_store::Clock;
use relativist_store::{
    Cache, Change, Content, CountError, Direction, Expiry, Hit, LARGE_VALUE, Lookup, MAX_BATCH_KEYS, Marks, Mode, New,
    Present, Store, TableStats, Value,
};
use relativist_testing::{patience, poll};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const NOW: u32 = 1_700_000_000;
/// The maximum size of key and value together. The tests of this limit use keys of one byte.
const MAX_ITEM: usize = 1 << 20;

fn cache() -> (Cache, Arc<Clock>) {
    let clock = Arc::new(Clock::new(NOW));
    (Cache::new(Arc::clone(&clock), 1 << 30, MAX_ITEM).unwrap(), clock)
}

fn store(cache: &Cache, mode: Mode, key: &str, value: &str) -> Store {
    store_until(cache, mode, key, value, 0)
}

fn store_until(cache: &Cache, mode: Mode, key: &str, value: &str, exptime: i32) -> Store {
    cache.store(mode, key.as_bytes(), Content { flags: 7, exptime, value: value.as_bytes() })
}

fn get(cache: &Cache, key: &str) -> Option<String> {
    let mut value = None;
    let lookup = cache.get(key.as_bytes(), |hit| value = Some(String::from_utf8(hit.value.to_vec()).unwrap()));
    assert_eq!(lookup == Lookup::Hit, value.is_some());
    value
}

fn cas(cache: &Cache, key: &str) -> u64 {
    let mut cas = 0;
    assert_eq!(cache.get(key.as_bytes(), |hit| cas = hit.cas()), Lookup::Hit);
    cas
}

#[test]
fn modes() {
    let (cache, _) = cache();
    assert_eq!(store(&cache, Mode::Replace, "k", "x"), Store::NotStored);
    assert_eq!(store(&cache, Mode::Append, "k", "x"), Store::NotStored);
    assert_eq!(store(&cache, Mode::Prepend, "k", "x"), Store::NotStored);
    assert_eq!(store(&cache, Mode::Cas(1), "k", "x"), Store::NotFound);
    assert_eq!(store(&cache, Mode::Add, "k", "b"), Store::Stored);
    assert_eq!(store(&cache, Mode::Add, "k", "x"), Store::NotStored);
    assert_eq!(store(&cache, Mode::Append, "k", "c"), Store::Stored);
    assert_eq!(store(&cache, Mode::Prepend, "k", "a"), Store::Stored);
    assert_eq!(get(&cache, "k").as_deref(), Some("abc"));
    let old = cas(&cache, "k");
    assert_eq!(store(&cache, Mode::Cas(old), "k", "new"), Store::Stored);
    assert_eq!(store(&cache, Mode::Cas(old), "k", "newer"), Store::Exists);
    assert_ne!(cas(&cache, "k"), old);
    assert!(cache.delete(b"k"));
    assert!(!cache.delete(b"k"));
    assert_eq!(get(&cache, "k"), None);
}

#[test]
fn joined_values_stay_within_the_limit() {
    let (cache, _) = cache();
    store(&cache, Mode::Set, "k", &"x".repeat(MAX_ITEM - 2));
    assert_eq!(store(&cache, Mode::Append, "k", "yy"), Store::NotStored);
    assert_eq!(store(&cache, Mode::Prepend, "k", "y"), Store::Stored);
    assert_eq!(get(&cache, "k").unwrap().len(), MAX_ITEM - 1);
}

#[test]
fn counting_pads_and_grows() {
    let (cache, _) = cache();
    assert_eq!(cache.count(b"n", Direction::Up, 1), Err(CountError::NotFound));
    store(&cache, Mode::Set, "n", "10");
    assert_eq!(cache.count(b"n", Direction::Down, 1), Ok(9));
    assert_eq!(get(&cache, "n").as_deref(), Some("9 "));
    assert_eq!(cache.count(b"n", Direction::Up, u64::MAX), Ok(8));
    assert_eq!(cache.count(b"n", Direction::Up, 992), Ok(1000));
    assert_eq!(get(&cache, "n").as_deref(), Some("1000"));
    store(&cache, Mode::Set, "n", "ten");
    assert_eq!(cache.count(b"n", Direction::Up, 1), Err(CountError::NotANumber));
}

/// The padding is longer than the maximum width of `format!`.
#[test]
fn counting_pads_to_any_length() {
    let (cache, _) = cache();
    let padded = |number: &str| format!("{number}{}", " ".repeat(70_000 - number.len()));
    store(&cache, Mode::Set, "n", &padded("1"));
    assert_eq!(cache.count(b"n", Direction::Up, 41), Ok(42));
    assert!(get(&cache, "n").unwrap() == padded("42"));
}

#[test]
fn an_expired_item_is_absent_for_every_command() {
    let (cache, clock) = cache();
    let keys = ["get", "gat", "touch", "add", "replace", "append", "cas", "count", "delete"];
    for key in keys {
        store_until(&cache, Mode::Set, key, "1", 10);
    }
    clock.set(NOW + 9);
    assert_eq!(get(&cache, "get").as_deref(), Some("1"));
    clock.set(NOW + 10);
    assert_eq!(cache.get(b"get", |_| panic!("shown")), Lookup::Expired);
    assert_eq!(cache.get(b"get", |_| panic!("shown")), Lookup::Miss, "the expired item was unlinked");
    assert_eq!(cache.get_and_touch(b"gat", 0, |_| panic!("shown")), Lookup::Expired);
    assert!(!cache.touch(b"touch", 0));
    assert_eq!(store(&cache, Mode::Replace, "replace", "2"), Store::NotStored);
    assert_eq!(store(&cache, Mode::Append, "append", "2"), Store::NotStored);
    assert_eq!(store(&cache, Mode::Cas(7), "cas", "2"), Store::NotFound);
    assert_eq!(cache.count(b"count", Direction::Up, 1), Err(CountError::NotFound));
    assert!(!cache.delete(b"delete"));
    assert_eq!(store(&cache, Mode::Add, "add", "2"), Store::Stored);
    assert_eq!(cache.usage().items, 1, "the other items were removed");
}

#[test]
fn expiry_is_kept_by_joining_and_counting_and_changed_by_touching() {
    let (cache, clock) = cache();
    for key in ["append", "count", "touch", "gat", "set"] {
        store_until(&cache, Mode::Set, key, "1", 10);
    }
    store(&cache, Mode::Append, "append", "0");
    cache.count(b"count", Direction::Up, 1).unwrap();
    assert!(cache.touch(b"touch", 20));
    assert_eq!(cache.get_and_touch(b"gat", 20, |hit| assert_eq!((hit.value, hit.flags), (&b"1"[..], 7))), Lookup::Hit);
    store(&cache, Mode::Set, "set", "1");
    clock.set(NOW + 10);
    let alive = ["append", "count", "touch", "gat", "set"].map(|key| get(&cache, key).is_some());
    assert_eq!(alive, [false, false, true, true, true]);
    clock.set(NOW + 20);
    assert_eq!(["touch", "gat", "set"].map(|key| get(&cache, key).is_some()), [false, false, true]);
}

/// The second after the last one means "never" in other places.
#[test]
fn the_cache_works_when_its_clock_has_stopped() {
    let (cache, clock) = cache();
    clock.set(u32::MAX);
    assert_eq!((clock.now(), Clock::new(u32::MAX).now()), (Clock::MAX_SECOND, Clock::MAX_SECOND));
    assert_eq!(store(&cache, Mode::Set, "never", "1"), Store::Stored);
    assert_eq!(get(&cache, "never").as_deref(), Some("1"));
    cache.flush(100);
    assert_eq!(get(&cache, "never"), None, "the flush has come");
    assert_eq!(store(&cache, Mode::Set, "after", "1"), Store::Stored);
    assert_eq!(get(&cache, "after").as_deref(), Some("1"));
}

#[test]
fn a_flush_separates_items_stored_in_the_same_second() {
    let (cache, clock) = cache();
    store(&cache, Mode::Set, "old", "1");
    cache.flush(0);
    store(&cache, Mode::Set, "new", "1");
    assert_eq!(cache.get(b"old", |_| panic!("shown")), Lookup::Flushed);
    assert!(get(&cache, "new").is_some());
    cache.flush(-1);
    assert_eq!(get(&cache, "new"), None);

    store(&cache, Mode::Set, "before", "1");
    cache.flush(5);
    store(&cache, Mode::Set, "between", "1");
    clock.set(NOW + 4);
    assert!(get(&cache, "before").is_some() && get(&cache, "between").is_some());
    clock.set(NOW + 5);
    store(&cache, Mode::Set, "after", "1");
    assert_eq!(["before", "between", "after"].map(|key| get(&cache, key).is_some()), [false, false, true]);

    cache.flush(i32::try_from(NOW - 100).unwrap());
    cache.flush(i32::try_from(NOW - 1).unwrap());
    assert!(get(&cache, "after").is_some(), "a moment before the start flushes nothing");
    cache.flush(i32::try_from(NOW + 5).unwrap());
    assert_eq!(get(&cache, "after"), None);
}

fn marks(cache: &Cache, key: &str) -> Marks {
    let mut marks = Marks::NONE;
    cache.peek(key.as_bytes(), |hit| marks = hit.marks);
    marks
}

#[test]
fn only_fetching_leaves_a_mark() {
    let (cache, _) = cache();
    store(&cache, Mode::Set, "k", "v");
    assert_eq!((marks(&cache, "k"), marks(&cache, "k")), (Marks::NONE, Marks::NONE));
    get(&cache, "k");
    assert_eq!(marks(&cache, "k"), Marks::FETCHED);
    store(&cache, Mode::Append, "k", "w");
    assert_eq!(marks(&cache, "k"), Marks::NONE, "the mark is on the old item");
}

#[test]
fn a_fetch_during_an_update_marks_the_new_item() {
    let cache = Arc::new(cache().0);
    let count = |present: Present<'_>| {
        // The bucket is locked. This lookup takes no lock, and finds the item that is about to be
        // replaced.
        let (done, fetched) = mpsc::channel();
        let fetching = Arc::clone(&cache);
        thread::spawn(move || done.send(get(&fetching, "k")));
        assert_eq!(fetched.recv_timeout(patience()).unwrap().as_deref(), Some("7"));
        (Change::Put(present.item.unwrap().counted(8)), ())
    };
    store(&cache, Mode::Set, "k", "7");
    cache.update(b"k", count, |hit| assert_eq!((hit.value, hit.marks), (&b"8"[..], Marks::FETCHED))).unwrap();
    assert_eq!(marks(&cache, "k"), Marks::FETCHED);
}

#[test]
fn exactly_one_of_two_concurrent_fetches_is_the_first() {
    const ROUNDS: usize = 1000;
    let (cache, _) = cache();
    let keys: Vec<_> = (0..ROUNDS).map(|round| round.to_string()).collect();
    keys.iter().for_each(|key| assert_eq!(store(&cache, Mode::Set, key, "v"), Store::Stored));
    let arrived = AtomicUsize::new(0);
    let fetch_all = || {
        let mut firsts = Vec::new();
        for (round, key) in keys.iter().enumerate() {
            // Not a `Barrier`, which wakes the threads one after the other. SeqCst, because it is
            // the simplest.
            arrived.fetch_add(1, Ordering::SeqCst);
            let begun = Instant::now();
            while arrived.load(Ordering::SeqCst) < 2 * (round + 1) {
                if begun.elapsed() > Duration::from_micros(50) {
                    thread::yield_now();
                }
                assert!(begun.elapsed() < patience(), "the other thread does not arrive");
            }
            cache.get(key.as_bytes(), |hit| firsts.push(!hit.marks.has(Marks::FETCHED)));
        }
        firsts
    };
    let (one, other) = thread::scope(|scope| {
        let other = scope.spawn(fetch_all);
        (fetch_all(), other.join().unwrap())
    });
    assert_eq!(one.len(), ROUNDS);
    assert!(one.iter().zip(&other).all(|(one, other)| one != other));
}

/// A lookup takes no lock, so it may run between the decision to mark an item and the mark.
#[test]
fn a_mark_shows_the_item_as_it_was_before() {
    let (cache, clock) = cache();
    for fetches_in_between in [false, true] {
        store(&cache, Mode::Set, "k", "v");
        clock.set(clock.now() + 100);
        let mark = |present: Present<'_>| {
            let item = present.item.expect("stored just now");
            assert_eq!((item.marks, item.idle), (Marks::NONE, 100));
            if fetches_in_between {
                thread::scope(|scope| _ = scope.spawn(|| get(&cache, "k")));
            }
            (Change::Mark { expiry: None, add: Marks::FETCHED, is_access: true }, ())
        };
        let mut shown = None;
        cache.update(b"k", mark, |hit| shown = Some((hit.marks, hit.idle))).unwrap();
        assert_eq!(shown, Some(if fetches_in_between { (Marks::FETCHED, 0) } else { (Marks::NONE, 100) }));
        assert_eq!(marks(&cache, "k"), Marks::FETCHED);
    }
}

#[test]
fn get_and_touch_reports_the_expiry_it_has_set() {
    const ROUNDS: usize = 20_000;
    let (cache, _) = cache();
    store(&cache, Mode::Set, "k", "v");
    let touch_each = |seconds| {
        for _ in 0..ROUNDS {
            let show = |hit: Hit<'_>| assert_eq!(hit.ttl(), u32::try_from(seconds).ok());
            assert_eq!(cache.get_and_touch(b"k", seconds, show), Lookup::Hit);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| touch_each(1000));
        touch_each(30);
    });
}

/// An item that never expires has no room for an expiry, and is copied when it gets one. The copy
/// is the same item for clients. Later expiries change it in place, as they do a large value.
#[test]
fn the_first_expiry_of_an_item_changes_nothing_else() {
    let (cache, clock) = cache();
    let facts = || {
        let mut facts = None;
        cache.peek(b"k", |hit| facts = Some((hit.cas(), hit.number(), hit.flags, hit.value.to_vec(), hit.marks)));
        facts.expect("it has not expired")
    };
    for (length, growth) in [(100, 0..=16), (LARGE_VALUE, 0..=0)] {
        let content = Content { flags: 7, exptime: 0, value: &vec![b'v'; length] };
        cache.store(Mode::Set, b"k", content);
        assert!(get(&cache, "k").is_some());
        let (before, bytes) = (facts(), cache.usage().item_bytes);
        for seconds in [0, 50, 100, 0, 100] {
            assert!(cache.touch(b"k", seconds));
            assert_eq!(facts(), before);
            assert!(growth.contains(&(cache.usage().item_bytes - bytes)), "after {seconds}");
        }
        clock.set(clock.now() + 99);
        assert_eq!(facts(), before);
        clock.set(clock.now() + 1);
        assert_eq!(cache.get(b"k", |_| panic!("shown")), Lookup::Expired);
    }
}

#[test]
fn an_update_returns_its_decision_and_shows_the_new_item() {
    let (cache, _) = cache();
    let put = |value| Change::Put(New { flags: 5, marks: Marks::STALE, ..New::plain(0, value) });
    let mut shown = None;
    let mut show = |hit: Hit<'_>| shown = Some((hit.flags, hit.value.to_vec(), hit.ttl(), hit.marks));
    let present = |present: Present<'_>| present.item.is_some();
    assert_eq!(cache.update(b"k", |it| (Change::Keep, present(it)), |_| panic!("shown")), Ok(false));
    assert_eq!(cache.update(b"k", |it| (put(Value::Number(7)), present(it)), &mut show), Ok(false));
    assert_eq!(cache.update(b"k", |it| (put(Value::Appended(b"8")), present(it)), &mut show), Ok(true));
    let mark = |it: Present<'_>| {
        let expiry = Some(Expiry::from_protocol(9, it.now));
        (Change::Mark { expiry, add: Marks::WON, is_access: false }, present(it))
    };
    assert_eq!(cache.update(b"k", mark, &mut show), Ok(true));
    assert_eq!(shown, Some((5, b"78".to_vec(), Some(9), Marks::STALE)), "marks as they were before");
    assert_eq!(marks(&cache, "k"), Marks::STALE | Marks::WON);
    assert_eq!(cache.update(b"k", |it| (Change::Remove, present(it)), |_| panic!("shown")), Ok(true));
    assert_eq!(cache.usage().items, 0);
}

#[test]
fn a_given_unique_is_reported_and_does_not_confuse_a_flush() {
    let (cache, _) = cache();
    let put = |cas| {
        let new = New { cas: Some(cas), ..New::plain(0, Value::Whole(b"v")) };
        cache.put(b"k", &new, |_| (true, ()), |hit| assert_eq!(hit.cas(), cas)).unwrap();
    };
    put(u64::MAX);
    assert_eq!(cas(&cache, "k"), u64::MAX);
    cache.flush(0);
    assert_eq!(cache.get(b"k", |_| panic!("shown")), Lookup::Flushed, "stored before, however large its cas");
    put(1);
    assert_eq!(cas(&cache, "k"), 1, "stored after, however small its cas");
    store(&cache, Mode::Append, "k", "w");
    assert!(cas(&cache, "k") > 1, "the cache draws a new CAS value");
}

#[test]
fn a_scan_shows_every_item_once() {
    let (cache, clock) = cache();
    let mut wanted: Vec<String> = (0..5_000).map(|index| format!("key{index:04}")).collect();
    for key in &wanted {
        store(&cache, Mode::Set, key, "v");
    }
    store_until(&cache, Mode::Set, "gone", "v", 1);
    clock.set(NOW + 1);
    let (mut cursor, mut seen) = (Some(0), Vec::new());
    while let Some(from) = cursor {
        cursor = cache.scan(from, |hit| seen.push(String::from_utf8(hit.key.to_vec()).unwrap()));
    }
    seen.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(seen, wanted);
}

/// `get_many` stops after `MAX_BATCH_KEYS`, or when the callback returns false.
#[test]
fn many_keys_are_looked_up_in_order_up_to_a_limit() {
    let (cache, clock) = cache();
    let names: Vec<String> = (0..50).map(|n| format!("k{}", n % 47)).collect();
    for n in (0..47).filter(|n| n % 3 != 0) {
        let exptime = if n % 3 == 1 { 10 } else { 0 };
        store_until(&cache, Mode::Set, &format!("k{n}"), &n.to_string(), exptime);
    }
    clock.set(NOW + 10);
    let keys: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let mut seen = Vec::new();
    let look = |keys: &[&[u8]], limit: usize, seen: &mut Vec<_>| {
        cache.get_many(keys, |index, found| {
            seen.push((index, found.map(|hit| String::from_utf8(hit.value.to_vec()).unwrap())));
            index + 1 < limit
        })
    };
    assert_eq!(look(&keys, usize::MAX, &mut seen), MAX_BATCH_KEYS);
    for (n, (index, found)) in seen.drain(..).enumerate() {
        let wanted = match n % 3 {
            0 => Err(Lookup::Miss),
            1 => Err(Lookup::Expired),
            _ => Ok(n.to_string()),
        };
        assert_eq!((index, found), (n, wanted));
    }
    assert_eq!(look(&keys[1..], 2, &mut seen), 2);
    assert_eq!(seen, [(0, Err(Lookup::Miss)), (1, Ok("2".into()))], "the expired one is gone");
    assert_eq!(look(&[], 1, &mut seen), 0);
    assert!(marks(&cache, "k2").has(Marks::FETCHED) && !marks(&cache, "k35").has(Marks::FETCHED));
}

/// Returns a value that contains its key and version. Its length depends on both, so that `check`
/// detects a mixture of two values.
fn describe(key: u64, version: u64) -> Vec<u8> {
    let word = format!("{key}:{version};");
    word.repeat(1 + ((key * 31 + version * 17) % 40) as usize).into_bytes()
}

fn check(key: u64, value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).expect("text");
    let (word, _) = text.split_once(';').expect("a whole word");
    let (owner, version) = word.split_once(':').expect("key and version");
    let version = version.parse().expect("a version");
    assert_eq!(owner, key.to_string(), "the value of another key");
    assert_eq!(value, describe(key, version), "a torn value");
    version
}

/// Readers look up contended keys and resident keys. Writers set and delete the contended keys, and
/// fill and empty the table with a crowd of other keys.
#[test]
fn readers_see_whole_and_resident_values_during_changes() {
    const KEYS: u64 = 64;
    const ROUNDS: u64 = 12;
    const CROWD: u64 = 20_000;
    let (cache, _) = cache();
    let (cache, is_done, hits) = (&cache, &AtomicBool::new(false), &AtomicU64::new(0));
    let set = |key: u64, version: u64| {
        let content = Content { flags: 0, exptime: 0, value: &describe(key, version) };
        assert_eq!(cache.store(Mode::Set, &key.to_le_bytes(), content), Store::Stored);
    };
    for resident in 1_000..1_064 {
        set(resident, resident);
    }
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                let mut newest = [0; KEYS as usize];
                loop {
                    let hit_count = read_all(cache, &mut newest);
                    // Relaxed, both: the flag only ends the loop, and the count is read after it.
                    hits.fetch_add(hit_count, Ordering::Relaxed);
                    if is_done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                scope.spawn(move || {
                    // Each key has one writer, so its versions increase.
                    for version in 1..ROUNDS * 100 {
                        for key in (0..KEYS).filter(|key| key % 2 == writer) {
                            if (key + version) % 3 == 0 {
                                cache.delete(&key.to_le_bytes());
                            }
                            set(key, version);
                        }
                        crowd(cache, writer, version, ROUNDS, CROWD);
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert!(hits.load(Ordering::Relaxed) > 0);
    // Wait, because the last resize may not have begun.
    let is_small = |table: &TableStats| table.grows > 0 && table.shrinks > 0 && table.buckets <= 1 << 11;
    let table = poll("a table that has grown and shrunk", || Some(cache.table_stats()).filter(is_small));
    assert_eq!(table.entries as u64, KEYS + 64);
}

/// Looks up the contended keys, whose `newest` versions seen it knows, and the resident keys.
/// Returns the number of hits of contended keys.
fn read_all(cache: &Cache, newest: &mut [u64]) -> u64 {
    let mut hits = 0;
    for (key, newest) in (0..).zip(newest) {
        cache.get(&u64::to_le_bytes(key), |hit| {
            let version = check(key, hit.value);
            assert!(version >= *newest, "an older version than before");
            *newest = version;
            hits += 1;
        });
        let resident = 1_000 + key;
        let lookup = cache.get(&resident.to_le_bytes(), |hit| {
            assert_eq!(check(resident, hit.value), resident);
        });
        assert_eq!(lookup, Lookup::Hit, "a resident item was missed");
    }
    hits
}

/// Every hundredth call fills or empties the table, alternately. The last of these calls empties
/// it.
fn crowd(cache: &Cache, writer: u64, version: u64, rounds: u64, size: u64) {
    if version % 100 != 50 {
        return;
    }
    let is_filling = (version / 100).is_multiple_of(2) && version / 100 + 1 < rounds;
    for index in 0..size {
        let key = format!("crowd-{writer}-{index}");
        if is_filling {
            cache.store(Mode::Set, key.as_bytes(), Content { flags: 0, exptime: 0, value: b"x" });
        } else {
            cache.delete(key.as_bytes());
        }
    }
}

/// Updates that depend on the present value must not lose each other.
#[test]
fn counting_appending_and_comparing_lose_nothing() {
    const THREADS: u64 = 4;
    const STEPS: u64 = 5_000;
    let (cache, _) = cache();
    store(&cache, Mode::Set, "count", "0");
    store(&cache, Mode::Set, "append", "");
    store(&cache, Mode::Set, "cas", "0");
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..STEPS {
                    cache.count(b"count", Direction::Up, 1).unwrap();
                    assert_eq!(store(&cache, Mode::Append, "append", "x"), Store::Stored);
                }
                for _ in 0..STEPS {
                    increment_by_comparing(&cache);
                }
            });
        }
    });
    assert_eq!(get(&cache, "count").unwrap().trim_end(), (THREADS * STEPS).to_string());
    assert_eq!(get(&cache, "append").unwrap().len() as u64, THREADS * STEPS);
    assert_eq!(get(&cache, "cas"), Some((THREADS * STEPS).to_string()));
}

fn increment_by_comparing(cache: &Cache) {
    loop {
        let mut seen = (0, 0);
        cache.get(b"cas", |hit| {
            let number: u64 = std::str::from_utf8(hit.value).unwrap().parse().unwrap();
            seen = (hit.cas(), number);
        });
        let next = (seen.1 + 1).to_string();
        if store(cache, Mode::Cas(seen.0), "cas", &next) == Store::Stored {
            return;
        }
    }
}
