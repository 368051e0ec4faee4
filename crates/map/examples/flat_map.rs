//! The flat map, which stores entries in its buckets: sessions by number, and a type of one's own.
//!
//! `cargo run -p relativist --example flat_map`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use relativist::{FlatMap, FlatSet, Relocatable};

/// 32 bytes with its key.
#[derive(Relocatable)]
struct Session {
    user: u32,
    started: u64,
    /// Changed in place, so it is behind a pointer.
    requests: Arc<AtomicU64>,
}

fn main() {
    let sessions = FlatMap::new();
    thread::scope(|scope| {
        for thread in 0..4 {
            let sessions = &sessions;
            let start = move |n: u64| {
                let session = Session { user: n as u32 % 100, started: n, requests: Arc::default() };
                sessions.pin().insert(n, session);
            };
            // The map grows meanwhile, and the threads share the work.
            scope.spawn(move || (0..10_000).map(|n| n * 4 + thread).for_each(start));
        }
    });
    assert_eq!(sessions.len(), 40_000);

    // A reference stays valid as long as its handle, even if the entry is moved or removed.
    let pinned = sessions.pin();
    let session = pinned.get(&7).expect("it was inserted");
    session.requests.fetch_add(1, Relaxed);
    pinned.remove(&7);
    assert_eq!((session.user, session.requests.load(Relaxed)), (7, 1));

    pinned.retain(|_, session| session.started >= 39_950);
    let users: FlatSet<u32> = pinned.values().map(|session| session.user).collect();
    println!("{} sessions of {} users", sessions.len(), users.len());
    assert_eq!((sessions.len(), users.len()), (50, 50));
}
