//! What operations cost, in calls of `Hash` and `Eq` and in entries per bucket, where many keys
//! have the same hash, readers stay, threads are blocked, or many maps grow at once.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use relativist::{Relocatable, read};
use relativist_rcu::MAX_DEFERRED;
use relativist_testing::random::Random;
use relativist_testing::wait_until;

use super::{Form, HashMap, reclaim};
use crate::hashing::{EQUAL, Hashing, IDENTITY, MIXED};

thread_local! {
    /// The number of times that this thread has hashed and compared keys.
    static HASHED: Cell<u64> = const { Cell::new(0) };
    static COMPARED: Cell<u64> = const { Cell::new(0) };
}

#[derive(Clone, Copy)]
struct Key(u64);

// SAFETY: a number.
unsafe impl Relocatable for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        HASHED.set(HASHED.get() + 1);
        state.write_u64(self.0);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        COMPARED.set(COMPARED.get() + 1);
        self.0 == other.0
    }
}

impl Eq for Key {}

/// Returns how often this thread hashes and compares keys in `act`.
fn counted(act: impl FnOnce()) -> (u64, u64) {
    let before = (HASHED.get(), COMPARED.get());
    act();
    (HASHED.get() - before.0, COMPARED.get() - before.1)
}

/// Fills a map, and returns the average number of comparisons of an insertion. (A lookup compares
/// less: only the entries up to its own.)
fn comparisons(map: &HashMap<Key, u64, Hashing>, keys: std::ops::Range<u64>) -> f64 {
    let n = keys.end - keys.start;
    let (_, compared) = counted(|| keys.for_each(|n| _ = map.pin().insert(Key(n), n)));
    compared as f64 / n as f64
}

/// The maximum number of comparisons of an insertion into a map that grows in time: with keys whose
/// tags are equal by chance.
const MAX_COMPARISONS: f64 = 1.0;

/// A thread in a read section of the process until it is dropped.
struct Reader(Option<(Sender<()>, JoinHandle<()>)>);

impl Reader {
    fn enter() -> Self {
        let ((leave, left), (entered, inside)) = (channel::<()>(), channel());
        let thread = thread::spawn(move || {
            let _guard = read();
            entered.send(()).unwrap();
            _ = left.recv();
        });
        inside.recv().unwrap();
        Self(Some((leave, thread)))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let (leave, thread) = self.0.take().expect("dropped once");
        drop(leave);
        thread.join().unwrap();
    }
}

/// An operation on a bucket with n equal hashes compares each entry at most twice (an insertion if
/// absent looks first without the lock), and hashes as often as with any other bucket.
#[test]
fn updates_of_equal_hashes_are_linear() {
    for n in [30, 300, 1000] {
        let map = HashMap::with_capacity_and_hasher(2 * n as usize + 100, EQUAL);
        (0..n).for_each(|n| _ = map.pin().insert(Key(n), n));
        for step in 0..50 {
            let key = Key(step * 7 % n);
            let operations: [&dyn Fn(); 6] = [
                &|| _ = map.pin().get(&key),
                &|| _ = map.pin().insert(key, 1),
                &|| _ = map.pin().update(key, |n| n + 1),
                &|| _ = map.pin().remove(&key),
                &|| _ = map.pin().try_insert(key, 1).is_ok(),
                &|| _ = map.pin().insert(Key(n + step), 1),
            ];
            for operation in operations {
                let (hashed, compared) = counted(operation);
                assert!(hashed <= 2 && compared <= 2 * (n + step), "{hashed} and {compared} of {n}");
            }
        }
    }
}

/// Moving a bucket with n equal hashes hashes each key once, or not at all if entries are boxed,
/// and compares none.
#[test]
fn moves_of_equal_hashes_are_linear() {
    for n in [30, 300, 1000] {
        let map = HashMap::with_capacity_and_hasher(2 * n as usize, EQUAL);
        (0..n).for_each(|n| _ = map.pin().insert(Key(n), n));
        let (hashed, compared) = counted(|| map.reserve(20 * n as usize));
        let expected = if <Form as relativist::Form>::BOXED { 0 } else { 3 * n };
        assert!(hashed <= expected && compared == 0, "{hashed} and {compared} of {n}");
        assert_eq!(counted(|| map.shrink_to_fit().unwrap()), (0, 0));
        assert_eq!(map.pin().iter().count() as u64, n);
        let (hashed, compared) = counted(|| assert_eq!(map.pin().drain().count() as u64, n));
        assert!(hashed <= 3 * n && compared <= n * n, "{hashed} and {compared} of {n}");
    }
}

/// Weak hashers are sufficient: keys with a pattern are spread over buckets and tags.
#[test]
fn keys_with_a_pattern_are_spread() {
    let multiples = [1, 3, 1000, 1_000_000, 1_000_000_000, u64::MAX];
    for factor in multiples.into_iter().chain((1..=52).map(|shift| 1 << shift)) {
        let map: HashMap<Key, u64, _> = HashMap::with_hasher(IDENTITY);
        let (_, compared) = counted(|| (0..2000).for_each(|n| _ = map.pin().insert(Key(factor.wrapping_mul(n)), n)));
        assert!(compared <= 2000, "{compared} comparisons with multiples of {factor}");
    }
}

/// Threads that fill maps of their own grow them themselves, all at the same time.
#[test]
fn many_threads_grow_their_maps() {
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..2 {
                    let average = comparisons(&HashMap::with_hasher(MIXED), 0..2000);
                    assert!(average <= MAX_COMPARISONS, "{average} comparisons");
                }
            });
        }
    });
}

/// While a large map grows, a small one does as well.
#[test]
fn a_large_map_that_grows_delays_no_other() {
    let large: HashMap<u64, u64> = HashMap::with_capacity(50_000);
    let (room, done) = (large.capacity(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            (0..).take_while(|_| !done.load(SeqCst)).take(200_000).for_each(|n| _ = large.pin().insert(n, n));
        });
        (0..5).for_each(|_| assert!(comparisons(&HashMap::with_hasher(MIXED), 0..2000) <= MAX_COMPARISONS));
        done.store(true, SeqCst);
    });
    assert!(large.len() <= large.capacity().max(room));
}

static IS_BLOCKED: AtomicBool = AtomicBool::new(false);
static MAY_GO_ON: AtomicBool = AtomicBool::new(true);

thread_local!(static BLOCKS: Cell<bool> = const { Cell::new(false) });

/// A key whose `Hash` blocks on one thread.
#[derive(PartialEq, Eq)]
struct Blocking(u64);

// SAFETY: a number.
unsafe impl Relocatable for Blocking {}

impl Hash for Blocking {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if BLOCKS.get() {
            IS_BLOCKED.store(true, SeqCst);
            wait_until("the test to end", || MAY_GO_ON.load(SeqCst));
        }
        state.write_u64(self.0);
    }
}

/// A thread whose user code blocks, for example while it moves a bucket, holds no lock: other
/// threads update the same map and grow it, and other maps.
#[test]
fn blocked_user_code_delays_no_other_thread() {
    let map: HashMap<Blocking, u64, _> = HashMap::with_hasher(EQUAL);
    (0..20).for_each(|n| _ = map.pin().insert(Blocking(n), n));
    MAY_GO_ON.store(false, SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| {
            BLOCKS.set(true);
            map.reserve(2000);
            map.pin().insert(Blocking(1000), 1000);
        });
        wait_until("the thread to block", || IS_BLOCKED.load(SeqCst));
        (0..200).for_each(|n| _ = map.pin().insert(Blocking(n), n + 1));
        map.reserve(1000);
        assert!(map.capacity() >= 1200);
        assert!(comparisons(&HashMap::with_hasher(MIXED), 0..2000) <= MAX_COMPARISONS);
        MAY_GO_ON.store(true, SeqCst);
    });
    assert_eq!((map.len(), map.pin().iter().count()), (201, 201));
}

/// A reader that stays delays neither growth nor updates, and a map that has become sparse behind
/// it costs no more than before.
#[test]
fn a_map_that_became_sparse_behind_a_reader_is_as_fast() {
    let _reader = Reader::enter();
    let map = HashMap::with_hasher(MIXED);
    assert!(comparisons(&map, 0..20_000) <= MAX_COMPARISONS);
    (0..20_000).for_each(|n| _ = map.pin().remove(&Key(n)));
    let updates = || {
        for n in 0..2000 {
            map.pin().insert(Key(n % 50), n);
            map.pin().remove(&Key(n % 50));
        }
    };
    let (hashed, compared) = counted(updates);
    // A flat map also hashes the keys of what it moves.
    assert!(hashed <= 3 * 4000 && compared <= 3 * 4000, "{hashed} and {compared} for 4000 updates");
}

/// The entries that are inserted while `shrink_to_fit` waits for a reader count.
#[test]
fn shrinking_counts_what_comes_meanwhile() {
    const ENTRIES: u64 = 3000;
    for round in 0..5 {
        let map: HashMap<u64, u64> = HashMap::new();
        map.reserve(1 << 16);
        thread::scope(|scope| {
            let _reader = (round % 2 == 0).then(Reader::enter);
            scope.spawn(|| map.shrink_to_fit().unwrap());
            if round % 2 == 0 {
                // Gives the thread time to begin.
                thread::sleep(std::time::Duration::from_millis(10));
            }
            (0..ENTRIES).for_each(|n| _ = map.pin().insert(n, n));
        });
        // A bucket has 4.5 entries or fewer if it is counted in `capacity`.
        assert!(map.len() <= 2 * map.capacity(), "{} entries, room for {}", map.len(), map.capacity());
        assert!((0..ENTRIES).all(|n| map.get_copied(&n) == Some(n)));
    }
}

/// Maps that have grown behind a reader need nobody's attention: others grow at the same pace.
#[test]
fn maps_that_wait_for_a_reader_delay_no_other() {
    let _reader = Reader::enter();
    let waiting: Vec<HashMap<u64, u64, _>> = (0..500).map(|_| HashMap::with_hasher(MIXED)).collect();
    waiting.iter().for_each(|map| (0..40).for_each(|n| _ = map.pin().insert(n, n)));
    assert!(comparisons(&HashMap::with_hasher(MIXED), 0..5000) <= MAX_COMPARISONS);
}

/// What is replaced behind a reader of the process is bounded: the thread waits, or its map has
/// readers of its own.
#[test]
fn no_backlog_grows_without_bound() {
    let map: HashMap<u64, u64> = (0..100).map(|n| (n, n)).collect();
    let reader = Reader::enter();
    let mut random = Random::new(1);
    (0..MAX_DEFERRED as u64 / 2).for_each(|n| _ = map.pin().insert(random.below(100), n));
    if let Some(private) = (&map as &dyn std::any::Any).downcast_ref::<relativist::PrivateMap<u64, u64>>() {
        assert!(private.pending() <= 8192, "{} entries wait for no handle", private.pending());
    }
    drop(reader);
    reclaim(&map);
    assert_eq!(map.len(), 100);
}
