//! The engine, under a clock set by hand and under many threads.

use relativist_testing as _;

use relativist_cache::Clock;
use relativist_cache::{
    Cache, Change, Content, CountError, Direction, Expiry, Hit, Lookup, MAX_BATCH_KEYS, Marks, Mode, New, Present,
    Store, TableStats, Value,
};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const NOW: u32 = 1_700_000_000;
/// Of key and value; keys of one byte are used with it.
const MAX_ITEM: usize = 1 << 20;

fn engine() -> (Cache, Arc<Clock>) {
    let clock = Arc::new(Clock::new(NOW));
    (Cache::new(Arc::clone(&clock), 1 << 30, MAX_ITEM).unwrap(), clock)
}

fn store(engine: &Cache, mode: Mode, key: &str, value: &str) -> Store {
    store_until(engine, mode, key, value, 0)
}

fn store_until(engine: &Cache, mode: Mode, key: &str, value: &str, exptime: i32) -> Store {
    engine.store(mode, key.as_bytes(), Content { flags: 7, exptime, value: value.as_bytes() })
}

fn get(engine: &Cache, key: &str) -> Option<String> {
    let mut value = None;
    let lookup = engine.get(key.as_bytes(), |hit| value = Some(String::from_utf8(hit.value.to_vec()).unwrap()));
    assert_eq!(lookup == Lookup::Hit, value.is_some());
    value
}

fn cas(engine: &Cache, key: &str) -> u64 {
    let mut cas = 0;
    assert_eq!(engine.get(key.as_bytes(), |hit| cas = hit.cas), Lookup::Hit);
    cas
}

#[test]
fn modes() {
    let (engine, _) = engine();
    assert_eq!(store(&engine, Mode::Replace, "k", "x"), Store::NotStored);
    assert_eq!(store(&engine, Mode::Append, "k", "x"), Store::NotStored);
    assert_eq!(store(&engine, Mode::Prepend, "k", "x"), Store::NotStored);
    assert_eq!(store(&engine, Mode::Cas(1), "k", "x"), Store::NotFound);
    assert_eq!(store(&engine, Mode::Add, "k", "b"), Store::Stored);
    assert_eq!(store(&engine, Mode::Add, "k", "x"), Store::NotStored);
    assert_eq!(store(&engine, Mode::Append, "k", "c"), Store::Stored);
    assert_eq!(store(&engine, Mode::Prepend, "k", "a"), Store::Stored);
    assert_eq!(get(&engine, "k").as_deref(), Some("abc"));
    let old = cas(&engine, "k");
    assert_eq!(store(&engine, Mode::Cas(old), "k", "new"), Store::Stored);
    assert_eq!(store(&engine, Mode::Cas(old), "k", "newer"), Store::Exists);
    assert!(cas(&engine, "k") > old);
    assert!(engine.delete(b"k"));
    assert!(!engine.delete(b"k"));
    assert_eq!(get(&engine, "k"), None);
}

#[test]
fn joined_values_stay_within_the_limit() {
    let (engine, _) = engine();
    store(&engine, Mode::Set, "k", &"x".repeat(MAX_ITEM - 2));
    assert_eq!(store(&engine, Mode::Append, "k", "yy"), Store::NotStored);
    assert_eq!(store(&engine, Mode::Prepend, "k", "y"), Store::Stored);
    assert_eq!(get(&engine, "k").unwrap().len(), MAX_ITEM - 1);
}

#[test]
fn counting_pads_and_grows() {
    let (engine, _) = engine();
    assert_eq!(engine.count(b"n", Direction::Up, 1), Err(CountError::NotFound));
    store(&engine, Mode::Set, "n", "10");
    assert_eq!(engine.count(b"n", Direction::Down, 1), Ok(9));
    assert_eq!(get(&engine, "n").as_deref(), Some("9 "));
    assert_eq!(engine.count(b"n", Direction::Up, u64::MAX), Ok(8));
    assert_eq!(engine.count(b"n", Direction::Up, 992), Ok(1000));
    assert_eq!(get(&engine, "n").as_deref(), Some("1000"));
    store(&engine, Mode::Set, "n", "ten");
    assert_eq!(engine.count(b"n", Direction::Up, 1), Err(CountError::NotANumber));
}

/// More than a format's width can say.
#[test]
fn counting_pads_to_any_length() {
    let (engine, _) = engine();
    let padded = |number: &str| format!("{number}{}", " ".repeat(70_000 - number.len()));
    store(&engine, Mode::Set, "n", &padded("1"));
    assert_eq!(engine.count(b"n", Direction::Up, 41), Ok(42));
    assert!(get(&engine, "n").unwrap() == padded("42"));
}

#[test]
fn an_expired_item_is_absent_for_every_command() {
    let (engine, clock) = engine();
    let keys = ["get", "gat", "touch", "add", "replace", "append", "cas", "count", "delete"];
    for key in keys {
        store_until(&engine, Mode::Set, key, "1", 10);
    }
    clock.set(NOW + 9);
    assert_eq!(get(&engine, "get").as_deref(), Some("1"));
    clock.set(NOW + 10);
    assert_eq!(engine.get(b"get", |_| panic!("shown")), Lookup::Expired);
    assert_eq!(engine.get(b"get", |_| panic!("shown")), Lookup::Miss, "it was unlinked");
    assert_eq!(engine.get_and_touch(b"gat", 0, |_| panic!("shown")), Lookup::Expired);
    assert!(!engine.touch(b"touch", 0));
    assert_eq!(store(&engine, Mode::Replace, "replace", "2"), Store::NotStored);
    assert_eq!(store(&engine, Mode::Append, "append", "2"), Store::NotStored);
    assert_eq!(store(&engine, Mode::Cas(7), "cas", "2"), Store::NotFound);
    assert_eq!(engine.count(b"count", Direction::Up, 1), Err(CountError::NotFound));
    assert!(!engine.delete(b"delete"));
    assert_eq!(store(&engine, Mode::Add, "add", "2"), Store::Stored);
    assert_eq!(engine.usage().items, 1, "all others are gone for good");
}

#[test]
fn expiry_is_kept_by_joining_and_counting_and_changed_by_touching() {
    let (engine, clock) = engine();
    for key in ["append", "count", "touch", "gat", "set"] {
        store_until(&engine, Mode::Set, key, "1", 10);
    }
    store(&engine, Mode::Append, "append", "0");
    engine.count(b"count", Direction::Up, 1).unwrap();
    assert!(engine.touch(b"touch", 20));
    assert_eq!(engine.get_and_touch(b"gat", 20, |hit| assert_eq!((hit.value, hit.flags), (&b"1"[..], 7))), Lookup::Hit);
    store(&engine, Mode::Set, "set", "1");
    clock.set(NOW + 10);
    let alive = ["append", "count", "touch", "gat", "set"].map(|key| get(&engine, key).is_some());
    assert_eq!(alive, [false, false, true, true, true]);
    clock.set(NOW + 20);
    assert_eq!(["touch", "gat", "set"].map(|key| get(&engine, key).is_some()), [false, false, true]);
}

#[test]
fn a_flush_parts_what_was_stored_in_the_same_second() {
    let (engine, clock) = engine();
    store(&engine, Mode::Set, "old", "1");
    engine.flush(0);
    store(&engine, Mode::Set, "new", "1");
    assert_eq!(engine.get(b"old", |_| panic!("shown")), Lookup::Flushed);
    assert!(get(&engine, "new").is_some());
    engine.flush(-1);
    assert_eq!(get(&engine, "new"), None);

    store(&engine, Mode::Set, "before", "1");
    engine.flush(5);
    store(&engine, Mode::Set, "between", "1");
    clock.set(NOW + 4);
    assert!(get(&engine, "before").is_some() && get(&engine, "between").is_some());
    clock.set(NOW + 5);
    store(&engine, Mode::Set, "after", "1");
    assert_eq!(["before", "between", "after"].map(|key| get(&engine, key).is_some()), [false, false, true]);

    engine.flush(i32::try_from(NOW - 100).unwrap());
    engine.flush(i32::try_from(NOW - 1).unwrap());
    assert!(get(&engine, "after").is_some(), "a moment before the start flushes nothing");
    engine.flush(i32::try_from(NOW + 5).unwrap());
    assert_eq!(get(&engine, "after"), None);
}

fn marks(engine: &Cache, key: &str) -> Marks {
    let mut marks = Marks::NONE;
    engine.peek(key.as_bytes(), |hit| marks = hit.marks);
    marks
}

#[test]
fn only_fetching_leaves_a_mark() {
    let (engine, _) = engine();
    store(&engine, Mode::Set, "k", "v");
    assert_eq!((marks(&engine, "k"), marks(&engine, "k")), (Marks::NONE, Marks::NONE));
    get(&engine, "k");
    assert_eq!(marks(&engine, "k"), Marks::FETCHED);
    store(&engine, Mode::Append, "k", "w");
    assert_eq!(marks(&engine, "k"), Marks::NONE, "it is another item now");
}

#[test]
fn a_fetch_while_a_successor_is_made_counts_for_that() {
    let engine = Arc::new(engine().0);
    let count = |present: Present<'_>| {
        // The bucket is locked: this lookup finds the item that is about to be replaced, and waits for nobody.
        let (done, fetched) = mpsc::channel();
        let fetching = Arc::clone(&engine);
        thread::spawn(move || done.send(get(&fetching, "k")));
        assert_eq!(fetched.recv_timeout(Duration::from_secs(60)).unwrap().as_deref(), Some("7"));
        (Change::Put(present.item.unwrap().counted(8)), ())
    };
    store(&engine, Mode::Set, "k", "7");
    engine.update(b"k", count, |hit| assert_eq!((hit.value, hit.marks), (&b"8"[..], Marks::FETCHED))).unwrap();
    assert_eq!(marks(&engine, "k"), Marks::FETCHED);
}

#[test]
fn one_of_two_fetches_at_a_time_is_the_first() {
    const ROUNDS: usize = 1000;
    let (engine, _) = engine();
    let keys: Vec<_> = (0..ROUNDS).map(|round| round.to_string()).collect();
    keys.iter().for_each(|key| assert_eq!(store(&engine, Mode::Set, key, "v"), Store::Stored));
    let arrived = AtomicUsize::new(0);
    let fetch_all = || {
        let mut firsts = Vec::new();
        for (round, key) in keys.iter().enumerate() {
            // Not a `Barrier`, which wakes them one after the other. SeqCst: simplest.
            arrived.fetch_add(1, Ordering::SeqCst);
            let begun = Instant::now();
            while arrived.load(Ordering::SeqCst) < 2 * (round + 1) {
                if begun.elapsed() > Duration::from_micros(50) {
                    thread::yield_now();
                }
                assert!(begun.elapsed() < Duration::from_secs(60), "the other is lost");
            }
            engine.get(key.as_bytes(), |hit| firsts.push(!hit.marks.has(Marks::FETCHED)));
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

/// A lookup, which takes no lock, may come between the decision to mark an item and the mark.
#[test]
fn a_mark_shows_the_item_as_it_was_before() {
    let (engine, clock) = engine();
    for fetches_in_between in [false, true] {
        store(&engine, Mode::Set, "k", "v");
        clock.set(clock.now() + 100);
        let mark = |present: Present<'_>| {
            let item = present.item.expect("stored just now");
            assert_eq!((item.marks, item.idle), (Marks::NONE, 100));
            if fetches_in_between {
                thread::scope(|scope| _ = scope.spawn(|| get(&engine, "k")));
            }
            (Change::Mark { expiry: None, add: Marks::FETCHED, is_access: true }, ())
        };
        let mut shown = None;
        engine.update(b"k", mark, |hit| shown = Some((hit.marks, hit.idle))).unwrap();
        assert_eq!(shown, Some(if fetches_in_between { (Marks::FETCHED, 0) } else { (Marks::NONE, 100) }));
        assert_eq!(marks(&engine, "k"), Marks::FETCHED);
    }
}

#[test]
fn who_sets_an_expiry_is_shown_that_one() {
    const ROUNDS: usize = 20_000;
    let (engine, _) = engine();
    store(&engine, Mode::Set, "k", "v");
    let touch_each = |seconds| {
        for _ in 0..ROUNDS {
            let show = |hit: Hit<'_>| assert_eq!(hit.ttl(), u32::try_from(seconds).ok());
            assert_eq!(engine.get_and_touch(b"k", seconds, show), Lookup::Hit);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| touch_each(1000));
        touch_each(30);
    });
}

#[test]
fn an_update_decides_and_shows_what_is_left() {
    let (engine, _) = engine();
    let put = |value| Change::Put(New { flags: 5, marks: Marks::STALE, ..New::plain(0, value) });
    let mut shown = None;
    let mut show = |hit: Hit<'_>| shown = Some((hit.flags, hit.value.to_vec(), hit.ttl(), hit.marks));
    let present = |present: Present<'_>| present.item.is_some();
    assert_eq!(engine.update(b"k", |it| (Change::Keep, present(it)), |_| panic!("shown")), Ok(false));
    assert_eq!(engine.update(b"k", |it| (put(Value::Number(7)), present(it)), &mut show), Ok(false));
    assert_eq!(engine.update(b"k", |it| (put(Value::Appended(b"8")), present(it)), &mut show), Ok(true));
    let mark = |it: Present<'_>| {
        let expiry = Some(Expiry::from_protocol(9, it.now));
        (Change::Mark { expiry, add: Marks::WON, is_access: false }, present(it))
    };
    assert_eq!(engine.update(b"k", mark, &mut show), Ok(true));
    assert_eq!(shown, Some((5, b"78".to_vec(), Some(9), Marks::STALE)), "marks as they were before");
    assert_eq!(marks(&engine, "k"), Marks::STALE | Marks::WON);
    assert_eq!(engine.update(b"k", |it| (Change::Remove, present(it)), |_| panic!("shown")), Ok(true));
    assert_eq!(engine.usage().items, 0);
}

#[test]
fn a_given_unique_is_told_and_does_not_confuse_a_flush() {
    let (engine, _) = engine();
    let put = |cas| {
        let new = New { cas: Some(cas), ..New::plain(0, Value::Whole(b"v")) };
        engine.put(b"k", &new, |_| (true, ()), |hit| assert_eq!(hit.cas, cas)).unwrap();
    };
    put(u64::MAX);
    assert_eq!(cas(&engine, "k"), u64::MAX);
    engine.flush(0);
    assert_eq!(engine.get(b"k", |_| panic!("shown")), Lookup::Flushed, "stored before, however large its cas");
    put(1);
    assert_eq!(cas(&engine, "k"), 1, "stored after, however small its cas");
    store(&engine, Mode::Append, "k", "w");
    assert!(cas(&engine, "k") > 1, "a new one is drawn");
}

#[test]
fn a_scan_shows_every_item_once() {
    let (engine, clock) = engine();
    let mut wanted: Vec<String> = (0..5_000).map(|index| format!("key{index:04}")).collect();
    for key in &wanted {
        store(&engine, Mode::Set, key, "v");
    }
    store_until(&engine, Mode::Set, "gone", "v", 1);
    clock.set(NOW + 1);
    let (mut cursor, mut seen) = (Some(0), Vec::new());
    while let Some(from) = cursor {
        cursor = engine.scan(from, |hit| seen.push(String::from_utf8(hit.key.to_vec()).unwrap()));
    }
    seen.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(seen, wanted);
}

/// A value that tells its key and version, in a length that depends on both, so that a mixture of two is noticed.
#[test]
fn many_keys_are_looked_up_in_order_until_enough() {
    let (engine, clock) = engine();
    let names: Vec<String> = (0..50).map(|n| format!("k{}", n % 47)).collect();
    for n in (0..47).filter(|n| n % 3 != 0) {
        let exptime = if n % 3 == 1 { 10 } else { 0 };
        store_until(&engine, Mode::Set, &format!("k{n}"), &n.to_string(), exptime);
    }
    clock.set(NOW + 10);
    let keys: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let mut seen = Vec::new();
    let look = |keys: &[&[u8]], most: usize, seen: &mut Vec<_>| {
        engine.get_many(keys, |index, found| {
            seen.push((index, found.map(|hit| String::from_utf8(hit.value.to_vec()).unwrap())));
            index + 1 < most
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
    assert!(marks(&engine, "k2").has(Marks::FETCHED) && !marks(&engine, "k35").has(Marks::FETCHED));
}

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

/// Readers of contended keys and of resident ones, while writers set, append to and delete the former, and a crowd of
/// other keys makes the table grow and shrink.
#[test]
fn readers_see_whole_and_resident_values_while_everything_changes() {
    const KEYS: u64 = 64;
    const ROUNDS: u64 = 12;
    const CROWD: u64 = 20_000;
    let (engine, _) = engine();
    let (engine, is_done, hits) = (&engine, &AtomicBool::new(false), &AtomicU64::new(0));
    let set = |key: u64, version: u64| {
        let content = Content { flags: 0, exptime: 0, value: &describe(key, version) };
        assert_eq!(engine.store(Mode::Set, &key.to_le_bytes(), content), Store::Stored);
    };
    for resident in 1_000..1_064 {
        set(resident, resident);
    }
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                let mut newest = [0; KEYS as usize];
                // Relaxed: the flag only ends the loop.
                while !is_done.load(Ordering::Relaxed) {
                    for key in 0..KEYS {
                        engine.get(&key.to_le_bytes(), |hit| {
                            let version = check(key, hit.value);
                            assert!(version >= newest[key as usize], "time went back");
                            newest[key as usize] = version;
                            hits.fetch_add(1, Ordering::Relaxed);
                        });
                        let resident = 1_000 + key;
                        let lookup = engine.get(&resident.to_le_bytes(), |hit| {
                            assert_eq!(check(resident, hit.value), resident);
                        });
                        assert_eq!(lookup, Lookup::Hit, "a resident item was missed");
                    }
                }
            });
        }
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                scope.spawn(move || {
                    // Each key has one writer, so that its versions rise.
                    for version in 1..ROUNDS * 100 {
                        for key in (0..KEYS).filter(|key| key % 2 == writer) {
                            if (key + version) % 3 == 0 {
                                engine.delete(&key.to_le_bytes());
                            }
                            set(key, version);
                        }
                        crowd(engine, writer, version, ROUNDS, CROWD);
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
    // The last resize may be still to come.
    let is_small = |table: &TableStats| table.grows > 0 && table.shrinks > 0 && table.buckets <= 1 << 11;
    let table = (0..90_000)
        .map(|_| {
            thread::sleep(Duration::from_millis(1));
            engine.table_stats()
        })
        .find(is_small)
        .expect("the table grows and shrinks");
    assert_eq!(table.entries as u64, KEYS + 64);
}

/// Every hundredth call fills or empties the table, in turns; the last empties it.
fn crowd(engine: &Cache, writer: u64, version: u64, rounds: u64, size: u64) {
    if version % 100 != 50 {
        return;
    }
    let is_filling = (version / 100).is_multiple_of(2) && version / 100 + 1 < rounds;
    for index in 0..size {
        let key = format!("crowd-{writer}-{index}");
        if is_filling {
            engine.store(Mode::Set, key.as_bytes(), Content { flags: 0, exptime: 0, value: b"x" });
        } else {
            engine.delete(key.as_bytes());
        }
    }
}

/// Updates that depend on the present value must not lose each other.
#[test]
fn counting_appending_and_comparing_lose_nothing() {
    const THREADS: u64 = 4;
    const STEPS: u64 = 5_000;
    let (engine, _) = engine();
    store(&engine, Mode::Set, "count", "0");
    store(&engine, Mode::Set, "append", "");
    store(&engine, Mode::Set, "cas", "0");
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..STEPS {
                    engine.count(b"count", Direction::Up, 1).unwrap();
                    assert_eq!(store(&engine, Mode::Append, "append", "x"), Store::Stored);
                }
                for _ in 0..STEPS {
                    increment_by_comparing(&engine);
                }
            });
        }
    });
    assert_eq!(get(&engine, "count").unwrap().trim_end(), (THREADS * STEPS).to_string());
    assert_eq!(get(&engine, "append").unwrap().len() as u64, THREADS * STEPS);
    assert_eq!(get(&engine, "cas"), Some((THREADS * STEPS).to_string()));
}

fn increment_by_comparing(engine: &Cache) {
    loop {
        let mut seen = (0, 0);
        engine.get(b"cas", |hit| {
            let number: u64 = std::str::from_utf8(hit.value).unwrap().parse().unwrap();
            seen = (hit.cas, number);
        });
        let next = (seen.1 + 1).to_string();
        if store(engine, Mode::Cas(seen.0), "cas", &next) == Store::Stored {
            return;
        }
    }
}
