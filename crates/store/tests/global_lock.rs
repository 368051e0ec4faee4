//! A cache with a global lock runs one command at a time.
#![cfg(feature = "global-lock")]

use relativist_testing as _;

use relativist_store::{Cache, Change, Clock, Hit, Lookup, New, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const THREADS: u8 = 4;
const ROUNDS: usize = 500;

/// Whether a command runs now.
static IS_INSIDE: AtomicBool = AtomicBool::new(false);

/// Runs inside a command, and lets the other threads try to run theirs.
fn inside() {
    // SeqCst (both): the simplest choice in a test.
    assert!(!IS_INSIDE.swap(true, Ordering::SeqCst), "two commands run at once");
    thread::yield_now();
    IS_INSIDE.store(false, Ordering::SeqCst);
}

/// Each thread has a key of its own, so bucket locks do not keep the commands apart.
fn run_all_commands(cache: &Cache, key: &[u8]) {
    let new = New::plain(0, Value::Whole(b"value"));
    let stored = cache.put(key, &new, |_| (true, inside()), |_| ());
    assert_eq!(stored, Ok(()));
    assert_eq!(cache.get(key, |_| inside()), Lookup::Hit);
    assert_eq!(cache.peek(key, |_| inside()), Lookup::Hit);
    let visit = |_, _: Result<Hit<'_>, Lookup>| {
        inside();
        true
    };
    assert_eq!(cache.get_many(&[key], visit), 1);
    assert_eq!(cache.update(key, |_| (Change::Keep, inside()), |_| ()), Ok(()));
    cache.scan(0, |_| inside());
}

#[test]
fn commands_run_one_at_a_time() {
    let cache = Cache::new(Arc::new(Clock::new(1_700_000_000)), 1 << 20, 1 << 20).unwrap().with_global_lock();
    thread::scope(|scope| {
        for name in 0..THREADS {
            let cache = &cache;
            scope.spawn(move || (0..ROUNDS).for_each(|_| run_all_commands(cache, &[b'k', name])));
        }
    });
}
