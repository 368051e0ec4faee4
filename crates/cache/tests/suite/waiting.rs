//! What readers may still have is bounded by its weight.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use relativist_cache::Cache;
use relativist_testing::{patience, wait_until};

/// The sum of the weights of all values that are not dropped yet.
#[derive(Clone, Default)]
struct Alive(Arc<AtomicU64>);

struct Value(u64, Alive);

impl Alive {
    fn value(&self, weight: u64) -> Value {
        self.0.fetch_add(weight, SeqCst);
        Value(weight, self.clone())
    }

    fn weight(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.1.0.fetch_sub(self.0, SeqCst);
    }
}

const MIB: u64 = 1 << 20;

fn cache(capacity: u64) -> Cache<u64, Value> {
    Cache::builder().capacity(capacity).weigher(|_, value: &Value| value.0).build()
}

/// While a reader stays, a thread that stores waits when a quarter of the capacity waits, at the
/// latest when as much waits once more in shards that have less than their share.
#[test]
fn a_store_waits_for_readers_when_too_much_waits() {
    const WEIGHT: u64 = 100_000;
    let (alive, cache) = (Alive::default(), cache(8 * MIB));
    let (stored, is_stored) = mpsc::channel();
    thread::scope(|scope| {
        let guard = relativist_cache::read();
        let (values, storing) = (alive.clone(), cache.clone());
        scope.spawn(move || {
            (0..300).for_each(|key| storing.insert(key, values.value(WEIGHT)));
            stored.send(()).unwrap();
        });
        wait_until("the thread to wait", || cache.stats().stalls > 0);
        thread::sleep(Duration::from_millis(20));
        assert!(alive.weight() <= 8 * MIB + 2 * 2 * MIB + 2 * WEIGHT, "{}", alive.weight());
        assert!(is_stored.try_recv().is_err());
        drop(guard);
        is_stored.recv_timeout(patience()).expect("it goes on without readers");
    });
    cache.run_pending_tasks();
    assert_eq!(alive.weight(), cache.weight());
}

/// Readers come and go, and each stays for some time.
#[test]
fn what_waits_is_bounded_beside_readers() {
    const WEIGHT: u64 = 50_000;
    const THREADS: u64 = 3;
    let (alive, cache) = (Alive::default(), cache(4 * MIB));
    let is_done = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (alive, cache, is_done) = (&alive, &cache, &is_done);
            scope.spawn(move || {
                for n in 0..300 {
                    cache.insert(1000 * thread + n, alive.value(WEIGHT));
                    // Each thread may be dropping what has waited.
                    assert!(alive.weight() <= 4 * MIB + MIB + THREADS * (MIB + 4 * WEIGHT), "{}", alive.weight());
                }
                is_done.fetch_add(1, SeqCst);
            });
        }
        scope.spawn(|| {
            while is_done.load(SeqCst) < THREADS {
                let _guard = relativist_cache::read();
                thread::sleep(Duration::from_millis(2));
            }
        });
    });
    assert!(cache.stats().stalls > 0);
    drop(cache);
    // The background may have the last handle for a moment.
    wait_until("all values to be dropped", || alive.weight() == 0);
}

/// A thread that holds a guard would wait for itself. It goes on.
#[test]
fn a_thread_with_a_guard_does_not_wait() {
    let (alive, cache) = (Alive::default(), cache(MIB));
    let guard = relativist_cache::read();
    (0..100).for_each(|key| cache.insert(key, alive.value(MIB)));
    assert_eq!((alive.weight(), cache.stats().stalls), (100 * MIB, 0));
    drop(guard);
    cache.run_pending_tasks();
    assert_eq!(alive.weight(), MIB);
}

/// A destructor in the background waits until a reader has left. The reader does not wait for it.
#[test]
fn a_thread_with_a_guard_does_not_wait_for_the_background() {
    struct Slow(mpsc::Sender<()>, Mutex<mpsc::Receiver<()>>);
    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            // Returns when the sender is dropped.
            let _ = self.1.lock().unwrap().recv();
        }
    }
    let (begin, begun) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    let cache = Cache::new(10);
    cache.insert(1, Arc::new(Slow(begin, Mutex::new(left))));
    cache.invalidate(&1);
    begun.recv_timeout(patience()).expect("it is dropped in the background");
    let guard = relativist_cache::read();
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || is_done.recv_timeout(patience()).map_err(|_| drop(leave)));
    cache.run_pending_tasks();
    done.send(()).expect("it did not wait");
    drop(guard);
}

/// A reader stays while more expires than may wait. The background thread goes on, also for other
/// caches.
#[test]
fn the_background_thread_waits_for_no_reader() {
    let alive = Alive::default();
    let lasting = || Cache::builder().weigher(|_, value: &Value| value.0).time_to_live(Duration::from_millis(1));
    let caches = [(); 2].map(|()| lasting().capacity(8 * MIB).build());
    let _guard = relativist_cache::read();
    for cache in &caches {
        (0..8).for_each(|key| cache.insert(key, alive.value(MIB)));
        wait_until("all to be freed", || cache.is_empty());
    }
    assert!(alive.weight() > 8 * MIB, "they wait for this reader");
}

/// What was removed is freed without any other call.
#[test]
fn the_last_removed_value_is_dropped_soon() {
    let (alive, cache) = (Alive::default(), cache(MIB));
    cache.insert(1, alive.value(1));
    cache.invalidate(&1);
    wait_until("the value to be dropped", || alive.weight() == 0);
    (0..1000).for_each(|key| cache.insert(key, alive.value(1)));
    cache.invalidate_all();
    wait_until("all values to be dropped", || alive.weight() == 0);
}
