//! A hit on an entry that is marked writes nothing that threads share: it works when all memory of
//! the cache is read-only. So there is nothing over which readers on different processors could
//! contend, however many they are. (What they do write is their own line in RCU's registry.)
//!
//! The cache is made in an arena of pages, which are then write-protected. A write there ends the
//! process, so each scenario has one of its own.

#![cfg(target_os = "linux")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use relativist_cache::Builder;
use relativist_cache::Cache;
use relativist_testing::own_program;

const ARENA: usize = 16 << 20;

/// The arena's address, when there is one, and how much of it is taken.
static BASE: OnceLock<usize> = OnceLock::new();
static TAKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread allocates in the arena.
    static IN_ARENA: Cell<bool> = const { Cell::new(false) };
}

struct Arena;

#[global_allocator]
static ALLOCATOR: Arena = Arena;

// SAFETY: memory comes from the system's allocator or, piece by piece and never to be given back,
// from the arena.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match BASE.get().filter(|_| IN_ARENA.get()) {
            Some(&base) => {
                let size = layout.size() + layout.align();
                let taken = TAKEN.fetch_add(size, Relaxed);
                assert!(taken + size <= ARENA, "the arena is too small");
                (base as *mut u8).wrapping_add(taken.next_multiple_of(layout.align()))
            }
            // SAFETY: guaranteed by the caller.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if !BASE.get().is_some_and(|base| (*base..base + ARENA).contains(&pointer.addr())) {
            // SAFETY: it came from there, and the caller guarantees the rest.
            unsafe { System.dealloc(pointer, layout) };
        }
    }
}

const KEYS: u64 = 1000;
const HOUR: Duration = Duration::from_secs(3600);

/// Fills a cache in the arena, protects it, and looks all keys up, and as many absent ones.
fn look_up(builder: Builder<u64, u64>, marked: bool) {
    // Registers this thread with RCU before it allocates in the arena, because its slot must stay
    // writable.
    drop(relativist_cache::read());
    // Starts the background thread, for the same reason.
    let expiring = Cache::<u64, u64>::builder().time_to_live(HOUR).build();
    expiring.insert(0, 0);
    std::mem::forget(expiring);
    // SAFETY: a new mapping at an address that the kernel chooses does not affect other memory.
    let pages = unsafe {
        libc::mmap(
            null_mut(),
            ARENA,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(pages, libc::MAP_FAILED);
    BASE.set(pages.addr()).unwrap();
    IN_ARENA.set(true);
    let cache: &Cache<u64, u64> = Box::leak(Box::new(builder.capacity(KEYS).estimated_entries(KEYS).build()));
    // Evicts as many as it keeps.
    (0..2 * KEYS).for_each(|key| cache.insert(key, !key));
    if marked {
        (0..2 * KEYS).for_each(|key| _ = cache.get(&key));
    }
    IN_ARENA.set(false);
    // Frees what the cache has removed and replaced.
    cache.run_pending_tasks();
    relativist_rcu::barrier();
    // SAFETY: this program's mapping. From here on a write to it ends the process.
    assert_eq!(unsafe { libc::mprotect(pages, ARENA, libc::PROT_READ) }, 0);
    let found = (0..2 * KEYS).filter(|&key| cache.get(&key) == Some(!key)).count() as u64;
    // Without destructors, which would write.
    std::process::exit(i32::from(found != KEYS));
}

/// Does nothing in the test process itself. In a process that `run` starts, looks keys up in the
/// cache that the environment names.
#[test]
fn child() {
    match std::env::var("RELATIVIST_READONLY").as_deref() {
        Ok("marked") => look_up(Cache::builder(), true),
        Ok("marked, with expiry") => look_up(Cache::builder().time_to_live(HOUR), true),
        Ok("marked, may be idle") => look_up(Cache::builder().time_to_idle(HOUR), true),
        Ok("not marked") => look_up(Cache::builder(), false),
        _ => {}
    }
}

fn run(cache: &str) -> ExitStatus {
    let mut command = own_program();
    command.args(["--exact", "child", "--test-threads", "1"]).env("RELATIVIST_READONLY", cache);
    command.output().unwrap().status
}

#[test]
fn hits_on_marked_entries_write_nothing_that_is_shared() {
    for cache in ["marked", "marked, with expiry", "marked, may be idle"] {
        let status = run(cache);
        assert!(status.success(), "{cache}: {status}");
    }
}

/// The first hit on an entry marks it. This shows that the test above detects writes.
#[test]
fn the_first_hit_writes_a_mark() {
    assert_eq!(run("not marked").signal(), Some(libc::SIGSEGV));
}
