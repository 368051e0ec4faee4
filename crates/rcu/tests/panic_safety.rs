//! R9: whichever call of user code panics, nothing stays locked, no thread waits for ever, and each
//! object is dropped once.
//!
//! Each operation runs repeatedly: the first call of user code panics, then the second, and so on
//! until an operation runs to its end. User code is closures, deferred functions, destructors and
//! `Debug`. The list of operations covers what `lib.rs` exports.
#![cfg(not(relativist_loom))]

use relativist_testing as _;

mod support;

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use relativist_rcu::contention::Site;
use relativist_rcu::{
    Domain, Published, barrier, defer, defer_drop, defer_raw, is_reading, read, wait_for_readers, without_reclaiming,
    without_waiting,
};
use support::must_end;

/// The number of calls left until one panics; 0 if none will.
static FUSE: AtomicU64 = AtomicU64::new(0);
/// The number of live objects, and of runs of the function that `assert_usable` defers.
static LIVE: AtomicI64 = AtomicI64::new(0);
static RUN: AtomicU64 = AtomicU64::new(0);

/// The payload of the panics that this test causes.
struct Fired;

/// Called by all user code. Does not run the panic hook, which would print too much.
fn tick() {
    if FUSE.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) == Ok(1) {
        resume_unwind(Box::new(Fired));
    }
}

struct Object;

impl Object {
    fn new() -> Self {
        LIVE.fetch_add(1, SeqCst);
        Self
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, SeqCst);
        tick();
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        tick();
        f.write_str("Object")
    }
}

/// Defers a function that owns an object and defers another one.
fn defer_twice() {
    let object = Object::new();
    defer(move || {
        tick();
        let other = Object::new();
        defer(move || {
            tick();
            drop(other);
        });
        drop(object);
    });
}

/// Like `defer_twice`, in a private domain.
fn defer_in(domain: &Arc<Domain>) {
    let (object, again) = (Object::new(), Arc::downgrade(domain));
    domain.defer(move || {
        tick();
        if let Some(domain) = again.upgrade() {
            let other = Object::new();
            domain.defer(move || drop(other));
        }
        drop(object);
    });
}

unsafe fn reclaim(object: NonNull<()>) {
    // SAFETY: the object comes from a box.
    drop(unsafe { Box::from_raw(object.cast::<Object>().as_ptr()) });
    tick();
}

/// The name before a comma is the exported item that an operation covers. Each may run deferred
/// functions itself.
const OPERATIONS: [(&str, fn()); 15] = [
    ("read", || {
        let (_outer, _inner) = (read(), read());
        defer_twice();
        tick();
    }),
    ("Guard", || {
        let mut guard = read();
        guard.renew();
        tick();
    }),
    ("defer", || (0..3).for_each(|_| defer_twice())),
    ("defer, many", || {
        // Enough that the thread runs deferred functions itself.
        (0..2000).for_each(|n| {
            defer(move || {
                if n % 900 == 0 {
                    tick()
                }
            })
        });
        drop(read());
    }),
    ("defer_drop", || defer_drop(Box::new(Object::new()))),
    ("defer_raw", || {
        let object = NonNull::from(Box::leak(Box::new(Object::new())));
        // SAFETY: `reclaim` frees the box once; no other code uses it.
        unsafe { defer_raw(object.cast(), size_of::<Object>(), reclaim) };
    }),
    ("barrier", || {
        defer_twice();
        barrier();
    }),
    ("without_waiting", || {
        without_waiting(|| {
            defer_twice();
            tick();
        });
    }),
    ("without_reclaiming", || {
        without_reclaiming(|| {
            defer_twice();
            tick();
        });
    }),
    ("Published", || {
        let published = Published::new(Object::new());
        let guard = read();
        let _ = format!("{published:?} {:?}", published.read(&guard));
        published.publish(Object::new());
        drop(guard);
        published.publish(Object::new());
    }),
    ("wait_for_readers", || {
        defer_twice();
        wait_for_readers();
        tick();
    }),
    ("Domain", || {
        let domain = Arc::new(Domain::new());
        defer_in(&domain);
        domain.barrier();
        defer_in(&domain);
        domain.reclaim();
        tick();
        domain.barrier();
        domain.defer_drop(Box::new(Object::new()));
    }),
    ("Domain, many", || {
        let domain = Domain::new();
        // Enough that the thread runs deferred functions itself.
        (0..3000).for_each(|n| {
            domain.defer(move || {
                if n % 900 == 0 {
                    tick()
                }
            })
        });
    }),
    ("DomainGuard", || {
        let domain = Domain::new();
        let _guards = (domain.read(), domain.read());
        domain.defer_drop(Box::new(Object::new()));
        tick();
    }),
    ("contention", || {
        static SITE: Site = Site::new("panic_safety");
        static MUTEX: Mutex<()> = Mutex::new(());
        let _locked = SITE.lock(&MUTEX);
        let try_lock = || {
            tick();
            None
        };
        SITE.acquire(try_lock, tick);
    }),
];

/// Exported items that call no user code.
const HARMLESS: [&str; 14] = [
    "Barrier",
    "BarrierError",
    "DomainGracePeriod",
    "GracePeriod",
    "MAX_DEFERRED",
    "MAX_DEFERRED_BYTES",
    "active_barrier",
    "grace_periods",
    "is_reading",
    "is_reclaiming",
    "reclaim_soon",
    "heavy_barrier",
    "light_barrier",
    "set_barrier",
];

/// Makes the `n`-th call panic. Returns whether there was such a call.
fn attempt(operation: fn(), n: u64) -> bool {
    must_end(move || {
        FUSE.store(n, SeqCst);
        let result = catch_unwind(AssertUnwindSafe(operation));
        // Runs what was deferred, and then what these functions have deferred.
        (0..2).for_each(|_| barrier());
        let fired = FUSE.swap(0, SeqCst) == 0;
        if let Err(payload) = result {
            assert!(fired && payload.is::<Fired>());
        }
        assert!(!is_reading(), "a read section is still open");
        fired
    })
}

/// Readers, writers and deferred functions still work, on another thread.
fn assert_usable() {
    let run = RUN.load(SeqCst);
    must_end(|| {
        let guard = read();
        defer(|| _ = RUN.fetch_add(1, SeqCst));
        drop(guard);
        wait_for_readers();
        barrier();
    });
    assert_eq!((RUN.load(SeqCst), LIVE.load(SeqCst)), (run + 1, 0), "deferred functions that ran, objects alive");
}

#[test]
fn each_call_may_panic() {
    for (name, operation) in OPERATIONS {
        let panics = (1..).take_while(|&n| {
            let fired = attempt(operation, n);
            println!("{name}, panic at call {n}");
            assert_usable();
            fired
        });
        assert!(panics.count() > 0, "{name} calls no user code");
    }
}

#[test]
fn all_that_is_exported_is_in_the_list() {
    let source = include_str!("../src/lib.rs");
    let uses = source.split("pub use ").skip(1).map(|rest| rest.split(';').next().unwrap());
    let names = uses.flat_map(|list| list.rsplit("::").next().unwrap().split([',', '{', '}', '\n', ' ']));
    let exported: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
    let listed: BTreeSet<&str> =
        OPERATIONS.iter().map(|(name, _)| name.split(',').next().unwrap()).chain(HARMLESS).collect();
    let difference: Vec<_> = exported.symmetric_difference(&listed).filter(|name| **name != "contention").collect();
    assert_eq!(difference, [&""; 0], "not in the list, or not exported");
}
