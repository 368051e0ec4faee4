//! Snapshots that are whole, cut off, and damaged.

use super::*;
use relativist_store::Clock;
use relativist_store::{Content, Mode, Store};
use std::collections::BTreeMap;
use std::sync::Arc;

const NOW: u32 = 1_800_000_000;

fn cache(clock: &Arc<Clock>) -> Cache {
    Cache::new(Arc::clone(clock), 16 << 20, 1 << 20).unwrap().with_random_cas()
}

fn set(cache: &Cache, key: &[u8], flags: u32, exptime: i32, value: &[u8]) {
    assert_eq!(cache.store(Mode::Set, key, Content { flags, exptime, value }), Store::Stored);
}

/// A few items of all sorts.
fn varied(clock: &Arc<Clock>) -> Cache {
    let cache = cache(clock);
    set(&cache, b"plain", 0, 0, b"value");
    set(&cache, b"empty", 7, 0, b"");
    set(&cache, b"flags and expiry", u32::MAX, 100, b"x");
    set(&cache, &[b'k'; MAX_KEY], 0, 0, b"the longest key");
    let given =
        New { cas: Some(u64::MAX), marks: Marks::STALE | Marks::ENCODED_KEY, ..New::plain(3, Value::Whole(b"v")) };
    cache.put(b"\0given\xff", &given, |_| (true, ()), |_| ()).unwrap();
    cache
}

/// The cache of the users without a tenant; there are no others.
fn only<'c>(cache: &'c Cache) -> impl Fn(&str) -> Option<&'c Cache> {
    move |name| name.is_empty().then_some(cache)
}

/// The current moment, if the system's clock is right.
fn moment(cache: &Cache) -> Moment {
    Moment { wall: cache.now().into(), boot: None }
}

fn snapshot(cache: &Cache) -> Vec<u8> {
    snapshot_at(cache, &moment(cache))
}

fn snapshot_at(cache: &Cache, moment: &Moment) -> Vec<u8> {
    let mut file = Vec::new();
    let items = write(&mut file, &[("", cache)], Occasion::End, moment).unwrap();
    assert_eq!(items, contents(cache).len() as u64);
    file
}

fn restored(file: &[u8], clock: &Arc<Clock>) -> Result<(Cache, Summary), Refusal> {
    let moment = Moment { wall: clock.now().into(), boot: None };
    restored_at(file, clock, &moment)
}

fn restored_at(file: &[u8], clock: &Arc<Clock>, moment: &Moment) -> Result<(Cache, Summary), Refusal> {
    let cache = cache(clock);
    let summary = read(file, Some(file.len() as u64), only(&cache), false, moment)?;
    Ok((cache, summary))
}

/// All that outlives a restart, by key.
type Contents = BTreeMap<Vec<u8>, (u32, Expiry, Marks, Vec<u8>)>;

fn contents(cache: &Cache) -> Contents {
    let (mut all, mut cursor) = (BTreeMap::new(), Some(0));
    while let Some(from) = cursor {
        cursor = cache.scan(from, |hit| {
            all.insert(hit.key.to_vec(), (hit.flags, hit.expiry, hit.marks, hit.value.to_vec()));
        });
    }
    all
}

fn cas(cache: &Cache, key: &[u8]) -> u64 {
    let mut cas = 0;
    cache.peek(key, |hit| cas = hit.cas());
    cas
}

#[test]
fn items_are_restored_unchanged() {
    let clock = Arc::new(Clock::new(NOW));
    let before = varied(&clock);
    let (after, summary) = restored(&snapshot(&before), &clock).unwrap();
    assert_eq!(contents(&after), contents(&before));
    assert_eq!(summary, Summary { items: 5, left_out: 0 });
    assert_eq!(cas(&after, b"\0given\xff"), u64::MAX);
    // Both begin at random numbers of 31 bits.
    let [old, new] = [&before, &after].map(|cache| cas(cache, b"plain"));
    assert!(old.abs_diff(new) > 1_000, "no client knows it from before: {old}, {new}");
}

#[test]
fn many_frames_and_large_values() {
    let clock = Arc::new(Clock::new(NOW));
    let before = cache(&clock);
    (0..3_000).for_each(|n: u32| set(&before, format!("key {n}").as_bytes(), n, 0, &vec![n as u8; n as usize % 300]));
    set(&before, b"large", 0, 0, &vec![b'x'; 1 << 19]);
    let file = snapshot(&before);
    assert!(file.len() > 5 * FRAME);
    let (after, _) = restored(&file, &clock).unwrap();
    assert_eq!(contents(&after), contents(&before));
}

#[test]
fn a_truncated_file_is_refused() {
    let clock = Arc::new(Clock::new(NOW));
    let file = snapshot(&varied(&clock));
    for length in 0..file.len() {
        let refusal = restored(&file[..length], &clock).map(|(_, summary)| summary).expect_err("a part");
        assert!(matches!(refusal, Refusal::Torn), "{length}: {refusal}");
    }
    let longer = [file.as_slice(), b"\0"].concat();
    assert!(matches!(restored(&longer, &clock), Err(Refusal::Torn)));
}

#[test]
fn no_changed_byte_goes_unnoticed() {
    let clock = Arc::new(Clock::new(NOW));
    let mut file = snapshot(&varied(&clock));
    for at in 0..file.len() {
        file[at] ^= 0x20;
        assert!(restored(&file, &clock).is_err(), "{at}");
        file[at] ^= 0x20;
    }
    assert!(matches!(restored(&[b'x'; 100], &clock), Err(Refusal::Foreign)));
}

#[test]
fn other_versions_are_refused_by_number() {
    let clock = Arc::new(Clock::new(NOW));
    let mut file = snapshot(&cache(&clock));
    file[8] = 9;
    let refusal = restored(&file, &clock).map(|(_, summary)| summary).unwrap_err();
    assert_eq!(refusal.to_string(), "it has version 9 of the format, not 4");
}

#[test]
fn items_that_expire_meanwhile_are_left_out() {
    let clock = Arc::new(Clock::new(NOW));
    let file = snapshot(&varied(&clock));
    clock.set(NOW + 99);
    assert_eq!(restored(&file, &clock).unwrap().1.left_out, 0);
    clock.set(NOW + 100);
    let (after, summary) = restored(&file, &clock).unwrap();
    assert_eq!(summary, Summary { items: 4, left_out: 1 });
    assert!(!contents(&after).contains_key(b"flags and expiry".as_slice()));
}

#[test]
fn a_pending_flush_is_restored() {
    let clock = Arc::new(Clock::new(NOW));
    let before = varied(&clock);
    before.flush(50);
    let file = snapshot(&before);
    let (after, _) = restored(&file, &clock).unwrap();
    assert_eq!(contents(&after).len(), 5);
    clock.set(NOW + 50);
    assert_eq!(contents(&after).len(), 0, "it came in the new process");
    assert_eq!(restored(&file, &clock).unwrap().1, Summary { items: 0, left_out: 5 }, "or between the two");
}

/// The system's clock was wrong when the writer started, and has been corrected since.
#[test]
fn remaining_times_do_not_depend_on_the_writers_clock() {
    for wrong in [-1_000_000, -1, 0, 1, 1_000_000] {
        let clock = Arc::new(Clock::new(NOW.saturating_add_signed(wrong)));
        let before = varied(&clock);
        before.flush(200);
        let file = snapshot_at(&before, &Moment { wall: NOW.into(), boot: None });
        let clock = Arc::new(Clock::new(NOW + 30));
        let (after, summary) = restored(&file, &clock).unwrap();
        assert_eq!(summary, Summary { items: 5, left_out: 0 }, "{wrong}");
        clock.set(NOW + 99);
        assert_eq!(contents(&after).len(), 5, "{wrong}");
        clock.set(NOW + 100);
        assert_eq!(contents(&after).len(), 4, "{wrong}");
        clock.set(NOW + 199);
        assert_eq!(contents(&after).len(), 4, "{wrong}");
        clock.set(NOW + 200);
        assert_eq!(contents(&after).len(), 0, "{wrong}");
    }
}

/// The system's time since boot does not depend on its wall clock.
#[test]
fn remaining_times_do_not_depend_on_the_wall_clock_within_a_boot() {
    for (wall, passed, is_left) in [(NOW - 5_000, 99, true), (NOW + 5_000, 99, true), (NOW + 1, 100, false)] {
        let clock = Arc::new(Clock::new(NOW));
        let file = snapshot_at(&varied(&clock), &Moment { wall: NOW.into(), boot: Some(([1; 16], 70)) });
        let clock = Arc::new(Clock::new(wall));
        let now = Moment { wall: wall.into(), boot: Some(([1; 16], 70 + passed)) };
        let (after, _) = restored_at(&file, &clock, &now).unwrap();
        assert_eq!(contents(&after).contains_key(b"flags and expiry".as_slice()), is_left, "{wall}");
    }
}

#[test]
fn a_snapshot_written_on_request_is_refused_unless_accepted() {
    let clock = Arc::new(Clock::new(NOW));
    let before = varied(&clock);
    let (mut file, now) = (Vec::new(), moment(&before));
    write(&mut file, &[("", &before)], Occasion::Request, &now).unwrap();
    assert!(matches!(restored(&file, &clock), Err(Refusal::Outdated)));
    let after = cache(&clock);
    assert_eq!(read(file.as_slice(), Some(file.len() as u64), only(&after), true, &now).unwrap().items, 5);
}

/// Numbers of items have 56 bits. Restarts must not use them up.
#[test]
fn a_flush_after_thousands_of_restarts_drops_only_earlier_items() {
    let clock = Arc::new(Clock::new(NOW));
    let mut file = snapshot(&varied(&clock));
    for _ in 0..4_200 {
        file = snapshot(&restored(&file, &clock).unwrap().0);
    }
    let (cache, _) = restored(&file, &clock).unwrap();
    cache.flush(0);
    set(&cache, b"later", 0, 0, b"x");
    assert_eq!(contents(&cache).into_keys().collect::<Vec<_>>(), [b"later"]);
}

/// The second of the flush is beyond the signed 32-bit times of the protocol.
#[test]
fn a_pending_flush_after_2038_is_restored() {
    let late = i32::MAX as u32 + 1_000;
    let clock = Arc::new(Clock::new(late));
    let before = varied(&clock);
    before.flush(50);
    let (after, _) = restored(&snapshot(&before), &clock).unwrap();
    clock.set(late + 49);
    assert_eq!(contents(&after).len(), 5);
    clock.set(late + 50);
    assert_eq!(contents(&after).len(), 0);
}

/// A sink for a snapshot, which runs a function on the cache before one of the calls.
struct Meddler<F> {
    file: Vec<u8>,
    calls: usize,
    at: usize,
    meddle: F,
}

impl<F: FnMut()> Write for Meddler<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.calls == self.at {
            (self.meddle)();
        }
        self.calls += 1;
        self.file.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn items_flushed_during_a_write_are_not_restored() {
    let written = |at, exptime| {
        let clock = Arc::new(Clock::new(NOW));
        let before = cache(&clock);
        (0..2_000).for_each(|n: u32| set(&before, &n.to_le_bytes(), 0, 0, &[0; 200]));
        set(&before, b"large", 0, 0, &vec![0; 2 * FRAME]);
        let meddle = || {
            before.flush(exptime);
            set(&before, b"later", 0, 0, b"");
        };
        let mut meddler = Meddler { file: Vec::new(), calls: 0, at, meddle };
        let items = write(&mut meddler, &[("", &before)], Occasion::End, &moment(&before)).unwrap();
        let (after, summary) = restored(&meddler.file, &clock).unwrap();
        assert_eq!(summary.items, items);
        (contents(&after), meddler.calls, after, clock)
    };
    let (all, calls, ..) = written(usize::MAX, 0);
    assert_eq!((all.len(), calls > 20), (2_001, true), "{calls} calls");
    // The last four calls write the end. The number of calls differs between caches, because each
    // hashes differently.
    let is_before_end = |at, calls| at + 4 < calls;
    for at in 0..calls {
        let (left, calls, ..) = written(at, 0);
        let is_gone = left.keys().all(|key| key == b"later");
        assert!(is_gone || !is_before_end(at, calls), "{at} of {calls}: {} items are back", left.len());
        let (left, calls, after, clock) = written(at, 9);
        assert!(left.len() >= 2_001, "{at}");
        clock.set(NOW + 9);
        let is_gone = contents(&after).is_empty();
        assert!(is_gone || !is_before_end(at, calls), "{at} of {calls}: a flush to come is forgotten");
    }
}

#[test]
fn items_without_room_are_left_out() {
    let clock = Arc::new(Clock::new(NOW));
    let before = cache(&clock);
    set(&before, b"small", 0, 0, b"x");
    set(&before, b"large", 0, 0, &[0; 5_000]);
    let file = snapshot(&before);
    let after = Cache::new(Arc::clone(&clock), 16 << 20, 4_000).unwrap();
    let summary = read(file.as_slice(), Some(file.len() as u64), only(&after), false, &moment(&before));
    assert_eq!(summary.unwrap(), Summary { items: 1, left_out: 1 });
}

#[test]
fn items_return_to_their_tenant_or_not_at_all() {
    let clock = Arc::new(Clock::new(NOW));
    let [common, red, blue] = [(); 3].map(|()| cache(&clock));
    for (cache, value) in [(&common, &b"common"[..]), (&red, b"red"), (&blue, b"blue")] {
        set(cache, b"key", 0, 0, value);
        set(cache, value, 0, 0, b"");
    }
    red.flush(50);
    let (mut file, now) = (Vec::new(), moment(&common));
    let caches = [("", &common), ("red", &red), ("blue", &blue)];
    assert_eq!(write(&mut file, &caches, Occasion::End, &now).unwrap(), 6);
    let [after, red_after] = [(); 2].map(|()| cache(&clock));
    let named = |name: &str| [("", &after), ("red", &red_after)].iter().find(|it| it.0 == name).map(|it| it.1);
    let summary = read(&file[..], Some(file.len() as u64), named, false, &now).unwrap();
    assert_eq!(summary, Summary { items: 4, left_out: 2 }, "blue does not exist any more");
    assert_eq!([contents(&after), contents(&red_after)], [contents(&common), contents(&red)]);
    assert_eq!(red_after.sequence().pending_flush, Some(NOW + 50));
    assert_eq!(after.sequence().pending_flush, None, "that of another tenant");
    for at in 0..file.len() {
        for bit in [1, 0x20] {
            file[at] ^= bit;
            let [after, red_after] = [(); 2].map(|()| cache(&clock));
            let named = |name: &str| [("", &after), ("red", &red_after)].iter().find(|it| it.0 == name).map(|it| it.1);
            assert!(read(&file[..], Some(file.len() as u64), named, false, &now).is_err(), "{at}");
            file[at] ^= bit;
        }
    }
}

/// A file that was committed when its version was the current one. Every later version must read
/// it. `fixtures/version-4.py` wrote it from the description of the format.
#[test]
fn a_file_of_version_4_is_read() {
    let clock = Arc::new(Clock::new(NOW));
    let [common, red] = [(); 2].map(|()| cache(&clock));
    let named = |name: &str| [("", &common), ("team-red", &red)].iter().find(|it| it.0 == name).map(|it| it.1);
    let file = include_bytes!("fixtures/version-4.bin");
    let now = Moment { wall: NOW.into(), boot: None };
    let summary = read(&file[..], Some(file.len() as u64), named, false, &now).unwrap();
    assert_eq!(summary, Summary { items: 3, left_out: 3 });
    let item = |key: &[u8], flags, value: &[u8]| (key.to_vec(), (flags, Expiry::NEVER, Marks::NONE, value.to_vec()));
    assert_eq!(contents(&common), Contents::from([item(b"key", 0, b"common")]));
    assert_eq!(contents(&red), Contents::from([item(b"key", 7, b"red"), item(b"large", 0, &[0; 100_000])]));
    assert_eq!(red.sequence().pending_flush, Some(NOW + 50));
}

/// As above, of the version before there were tenants. `fixtures/version-3.py` wrote it.
#[test]
fn a_file_of_version_3_is_read() {
    let clock = Arc::new(Clock::new(NOW));
    let (cache, summary) = restored(include_bytes!("fixtures/version-3.bin"), &clock).unwrap();
    assert_eq!(summary, Summary { items: 5, left_out: 2 });
    let never = Expiry::NEVER;
    let large = vec![0; 100_000];
    let item = |key: &[u8], flags, expiry, marks, value: &[u8]| (key.to_vec(), (flags, expiry, marks, value.to_vec()));
    let wanted = [
        item(b"plain", 0, never, Marks::NONE, b"value"),
        item(b"empty", 7, never, Marks::NONE, b""),
        item(b"flags and expiry", u32::MAX, Expiry::from_bits(NOW + 100), Marks::NONE, b"x"),
        item(b"\0given\xff", 3, never, Marks::STALE | Marks::ENCODED_KEY | Marks::CLIENT_CAS, b"v"),
        item(b"large", 0, never, Marks::NONE, &large),
    ];
    assert_eq!(contents(&cache), Contents::from(wanted));
    assert_eq!(cas(&cache, b"\0given\xff"), u64::MAX - 1);
    assert_eq!(cache.sequence().pending_flush, Some(NOW + 50));
}
