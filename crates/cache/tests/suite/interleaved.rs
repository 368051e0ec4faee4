//! Interleavings of threads, which the tests force: threads stop in code of the user.

use std::cell::Cell;
use std::future::{Future, ready};
use std::hash::{Hash, Hasher};
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use relativist_cache::{Cache, RemovalCause};
use relativist_testing::patience;

/// The call of the code of the user in which a thread stops, once, until the test lets it go on.
struct Stop {
    at: &'static str,
    reached: Sender<()>,
    go_on: Receiver<()>,
}

/// Waits until a thread has reached its stop, and lets it go on.
struct Stopped(Receiver<()>, Sender<()>);

thread_local!(static STOPS: Cell<Vec<Stop>> = const { Cell::new(Vec::new()) });

/// Returns a stop, for the thread to set, and the test's end of it.
fn stop(at: &'static str) -> (Stop, Stopped) {
    let ((reached, is_reached), (go, go_on)) = (channel(), channel());
    (Stop { at, reached, go_on }, Stopped(is_reached, go))
}

impl Stopped {
    fn wait(&self) {
        self.0.recv_timeout(patience()).expect("the thread stops there");
    }

    fn go_on(self) {
        self.1.send(()).unwrap();
    }
}

/// Stops this thread if its next stop is here.
fn pass(at: &str) {
    let mut stops = STOPS.take();
    let stop = if stops.first().is_some_and(|stop| stop.at == at) { Some(stops.remove(0)) } else { None };
    STOPS.set(stops);
    if let Some(stop) = stop {
        stop.reached.send(()).unwrap();
        stop.go_on.recv_timeout(patience()).expect("the test lets the thread go on");
    }
}

#[derive(Debug)]
struct Key;

impl Hash for Key {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl PartialEq for Key {
    fn eq(&self, _: &Self) -> bool {
        pass("comparison");
        true
    }
}

impl Eq for Key {}

impl Clone for Key {
    fn clone(&self) -> Self {
        pass("clone of the key");
        Self
    }
}

#[derive(Debug, PartialEq)]
struct Value(&'static str);

impl Clone for Value {
    fn clone(&self) -> Self {
        pass("clone of the value");
        Self(self.0)
    }
}

type Load = fn(&Cache<Key, Value>) -> Value;

/// The leader of a flight finds an entry that is being removed by a thread that has compared its
/// key before the flight began. A load that begins when the removal has returned does not get the
/// entry's value.
#[test]
fn a_load_that_begins_after_a_removal_gets_no_older_value() {
    let loads: [Load; 2] = [
        |cache| cache.get_or_insert_with(Key, || panic!("it is in the cache")),
        |cache| {
            let load = pin!(cache.get_or_insert_async(Key, || async { panic!("it is in the cache") }));
            match load.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(value) => value,
                Poll::Pending => panic!("nothing to wait for"),
            }
        },
    ];
    let removals: [fn(&Cache<Key, Value>); 2] = [|cache| cache.invalidate(&Key), |cache| _ = cache.remove(&Key)];
    for (load, remove) in loads.into_iter().flat_map(|load| removals.map(|remove| (load, remove))) {
        let cache = &Cache::new(10);
        let (begin, begins) = stop("clone of the key");
        let (find, has_found) = stop("clone of the value");
        let (look, has_looked) = stop("comparison");
        thread::scope(|scope| {
            // It has missed the key, and is about to begin a flight.
            let leader = scope.spawn(move || {
                STOPS.set(vec![begin, find]);
                load(cache)
            });
            begins.wait();
            cache.insert(Key, Value("old"));
            // It is about to remove the entry.
            let removing = scope.spawn(move || {
                STOPS.set(vec![look]);
                remove(cache);
            });
            has_looked.wait();
            begins.go_on();
            has_found.wait();
            has_looked.go_on();
            removing.join().unwrap();
            assert_eq!(cache.get(&Key), None);
            let mut later = pin!(cache.get_or_insert_async(Key, || ready(Value("new"))));
            let context = &mut Context::from_waker(Waker::noop());
            assert_eq!(later.as_mut().poll(context), Poll::Ready(Value("new")), "the flight was cancelled");
            has_found.go_on();
            assert_eq!(leader.join().unwrap(), Value("old"));
            assert_eq!(cache.get(&Key), Some(Value("new")));
        });
    }
}

/// While the listener runs for an evicted value, other threads insert the key again, and evict it
/// again. The calls for its two values are not ordered.
#[test]
fn no_thread_waits_for_the_listener() {
    let returned = Arc::new(Mutex::new(Vec::new()));
    let sees = Arc::clone(&returned);
    let report = move |&key: &u32, &value: &u32, _: RemovalCause| {
        pass("listener");
        sees.lock().unwrap().push((key, value));
    };
    let cache = &Cache::builder().capacity(1).on_removal(report).build();
    cache.insert(1, 10);
    let (evict, has_evicted) = stop("listener");
    thread::scope(|scope| {
        let evicting = scope.spawn(move || {
            STOPS.set(vec![evict]);
            cache.insert(2, 20);
        });
        has_evicted.wait();
        assert_eq!(cache.get(&1), None);
        cache.insert(1, 11);
        assert_eq!(cache.get(&1), Some(11));
        cache.insert(3, 30);
        assert_eq!(*returned.lock().unwrap(), [(2, 20), (1, 11)]);
        has_evicted.go_on();
        evicting.join().unwrap();
        assert_eq!(*returned.lock().unwrap(), [(2, 20), (1, 11), (1, 10)]);
        assert_eq!((cache.get(&3), cache.len()), (Some(30), 1));
    });
}

/// A key that compares as a number, and stops there. All have the same hash.
#[derive(Debug)]
struct Number(u32);

impl Hash for Number {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        pass("comparison");
        self.0 == other.0
    }
}

impl Eq for Number {}

/// Another thread inserts the key after this one has compared it with all entries.
#[test]
fn two_insertions_of_a_key_leave_one_entry() {
    let cache = &Cache::new(10);
    cache.insert(Number(1), 1);
    let (compare, has_compared) = stop("comparison");
    thread::scope(|scope| {
        let inserting = scope.spawn(move || {
            STOPS.set(vec![compare]);
            cache.insert(Number(2), 21);
        });
        has_compared.wait();
        cache.insert(Number(2), 20);
        has_compared.go_on();
        inserting.join().unwrap();
    });
    assert_eq!((cache.get(&Number(2)), cache.len()), (Some(21), 2));
    cache.invalidate(&Number(2));
    assert_eq!((cache.get(&Number(2)), cache.len()), (None, 1));
}
