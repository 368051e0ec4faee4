//! What maps do, apart from races (`stress`) and the order of memory accesses (the models of
//! `relativist-bucket`). The modules in `each` are compiled for each form of the map.
//!
//! B1 to B13 are the guarantees of `relativist_bucket::design`.
#![cfg(not(relativist_loom))]

use relativist_testing as _;

#[path = "../support/alongside.rs"]
mod alongside;
mod auto_traits;
mod borrows;
mod destructors;
mod handles;
#[path = "../support/hashing.rs"]
mod hashing;
mod histories;
#[path = "../support/history.rs"]
mod history;
mod relocate;
mod tasks;
#[path = "../support/tracked.rs"]
mod tracked;

#[path = "."]
mod boxed {
    use relativist::Boxed as Form;
    mod each;
    mod lock_map;
}

#[path = "."]
mod inline {
    use relativist::Inline as Form;
    #[allow(clippy::duplicate_mod, reason = "it is compiled for each form")]
    mod each;
    #[allow(clippy::duplicate_mod, reason = "as above")]
    mod lock_map;
}

#[path = "."]
mod private {
    use relativist::Private as Form;
    #[allow(clippy::duplicate_mod, reason = "it is compiled for each form")]
    mod each;
}

/// Drops all entries that were removed from a private map. The caller has no handle.
#[track_caller]
fn reclaim<K, V, S>(map: &relativist::PrivateMap<K, V, S>) {
    relativist_testing::wait_until("removed entries to be dropped", || map.reclaim() == 0);
}

/// Runs `action` on another thread, so that the test fails if it hangs.
fn in_time(action: impl FnOnce() + Send + 'static) {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        action();
        done.send(()).unwrap();
    });
    ended.recv_timeout(relativist_testing::patience()).expect("nothing hangs, and nothing panics that should not");
}
