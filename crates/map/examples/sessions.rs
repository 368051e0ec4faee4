//! Sessions that requests change, and a sweep beside them: no change is lost.
//!
//! `cargo run -p relativist --example sessions`

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use relativist::LockMap;

#[derive(Debug, Default)]
struct Session {
    requests: u64,
    /// The time of the last request.
    seen: u64,
}

fn main() {
    let sessions: LockMap<u32, Session> = LockMap::new();
    let (clock, swept) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for user in 0..4 {
            let (sessions, clock) = (&sessions, &clock);
            scope.spawn(move || {
                for _ in 0..10_000 {
                    let mut session = sessions.entry(user).or_default();
                    session.requests += 1;
                    session.seen = clock.fetch_add(1, Relaxed);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..100 {
                let before = clock.load(Relaxed).saturating_sub(1);
                // The closure decides and the entry goes under one lock.
                sessions.retain(|_, session| {
                    let is_recent = session.seen > before;
                    swept.fetch_add(if is_recent { 0 } else { session.requests }, Relaxed);
                    is_recent
                });
            }
        });
    });
    let left: u64 = sessions.iter().map(|session| session.requests).sum();
    let swept = swept.into_inner();
    println!("{left} requests in {} sessions, {swept} in sessions that were swept", sessions.len());
    assert_eq!(left + swept, 40_000);
}
