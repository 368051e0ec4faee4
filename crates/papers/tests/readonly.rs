//! Lookups write nothing that threads share: they work when all memory of the table is read-only.
//! So there is nothing over which readers on different processors could contend, however many they
//! are. (What they do write is their own line in RCU's registry.)
//!
//! Each table is made in an arena of pages, which are then write-protected. A write there ends the
//! process, so each table has one of its own.

#![cfg(target_os = "linux")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use foldhash::fast::FixedState;
use relativist_papers::tables::Table;
use relativist_papers::tables::ddds::Ddds;
use relativist_papers::tables::dual_chain::DualChain;
use relativist_papers::tables::fixed::Fixed;
use relativist_papers::tables::in_place::InPlace;
use relativist_papers::tables::key_move::KeyMove;
use relativist_papers::tables::mutex::Mutexed;
use relativist_papers::tables::rwlock::RwLocked;
use relativist_papers::tables::sorted::Sorted;
use relativist_papers::tables::split_ordered::SplitOrdered;
use relativist_papers::tables::unzip::Unzip;
use relativist_testing::own_program;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

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
                (base as *mut u8).wrapping_add((taken).next_multiple_of(layout.align()))
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

/// Makes a table in the arena, protects it, and looks all keys up, and as many absent ones.
fn look_up<T: Table>() {
    look_up_in::<T>(|_| {});
}

/// Does the same for a table with memory of its own, which `protect` protects.
fn look_up_in<T: Table>(protect: impl Fn(&T)) {
    // Registers this thread with RCU before it allocates in the arena, because its slot must stay
    // writable.
    drop(relativist_rcu::read());
    // SAFETY: a new mapping at an address that the kernel chooses does not affect other memory.
    let pages =
        unsafe { mmap_anonymous(null_mut(), ARENA, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }.unwrap();
    BASE.set(pages.addr()).unwrap();
    IN_ARENA.set(true);
    let table: &T = Box::leak(Box::new(T::with_buckets(256)));
    (0..KEYS).for_each(|key| assert!(table.insert(key, !key)));
    IN_ARENA.set(false);
    // Frees what the table has replaced while it was filled.
    relativist_rcu::barrier();
    // SAFETY: this program's mapping. From here on a write to it ends the process.
    unsafe { mprotect(pages, ARENA, MprotectFlags::READ) }.unwrap();
    protect(table);
    let found = (0..2 * KEYS).filter(|&key| table.get(key) == Some(!key)).count() as u64;
    // Without destructors, which would write.
    std::process::exit(i32::from(found != KEYS));
}

fn protect_buckets(table: &InPlace<FixedState>) {
    let memory = table.memory();
    // SAFETY: a mapping of the table. From here on a write to it ends the process.
    unsafe { mprotect(memory.cast_mut().cast(), memory.len(), MprotectFlags::READ) }.unwrap();
}

/// Does nothing in the test process itself. In a process that `run` starts, looks keys up in the
/// table that the environment names.
#[test]
fn child() {
    match std::env::var("RELATIVIST_READONLY").as_deref() {
        Ok("unzip") => look_up::<Unzip<FixedState>>(),
        Ok("in-place") => look_up_in::<InPlace<FixedState>>(protect_buckets),
        Ok("in-place, written to") => look_up_in::<InPlace<FixedState>>(|table| {
            protect_buckets(table);
            // SAFETY: memory of the table that is a bucket, and no thread reads it afterwards: the
            // write ends the process.
            unsafe { table.memory().cast::<u8>().cast_mut().write_volatile(0) };
        }),
        Ok("sorted") => look_up::<Sorted<FixedState>>(),
        Ok("split-ordered") => look_up::<SplitOrdered<FixedState>>(),
        Ok("dual-chain") => look_up::<DualChain<FixedState>>(),
        Ok("ddds") => look_up::<Ddds<FixedState>>(),
        Ok("fixed") => look_up::<Fixed<FixedState>>(),
        Ok("key-move") => look_up::<KeyMove<FixedState>>(),
        Ok("rwlock") => look_up::<RwLocked<FixedState>>(),
        Ok("mutex") => look_up::<Mutexed<FixedState>>(),
        _ => {}
    }
}

fn run(table: &str) -> ExitStatus {
    let mut command = own_program();
    command.args(["--exact", "child", "--test-threads", "1"]).env("RELATIVIST_READONLY", table);
    command.output().unwrap().status
}

#[test]
fn lookups_under_rcu_write_nothing_that_is_shared() {
    for table in ["unzip", "in-place", "sorted", "split-ordered", "dual-chain", "ddds", "fixed", "key-move"] {
        let status = run(table);
        assert!(status.success(), "{table}: {status}");
    }
}

/// Lookups under a lock do write. This shows that the test above detects writes.
#[test]
fn lookups_under_locks_write() {
    const SIGSEGV: i32 = 11;
    for table in ["rwlock", "mutex", "in-place, written to"] {
        assert_eq!(run(table).signal(), Some(SIGSEGV), "{table}");
    }
}
