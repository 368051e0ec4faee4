//! The interface through which all schemes are measured.

use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use std::time::{Duration, Instant};

/// A reclamation scheme: it lets readers read objects that other threads unlink and free.
pub trait Scheme: Sync {
    /// Enters and leaves `count` sections, one after the other.
    fn sections(&self, count: u64);

    /// Enters and leaves `count` sections inside an outer section.
    fn nested_sections(&self, count: u64);

    /// Returns a function that waits until all sections that have begun are over, if the scheme has
    /// one.
    fn wait(&self) -> Option<fn()> {
        None
    }

    /// Allocates and retires `count` objects, then waits until all of them have been freed; `freed`
    /// counts them.
    fn reclaim(&self, count: u64, freed: Option<&'static AtomicU64>) -> ReclaimTimes;
}

/// The times that [`Scheme::reclaim`] took, from its beginning.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimTimes {
    /// The time until all objects had been retired.
    pub retired: Duration,
    /// The time until all objects had been freed.
    pub freed: Duration,
}

/// Times `retire` alone, and `retire` and `drain` together.
pub fn time_reclaim(retire: impl FnOnce(), drain: impl FnOnce()) -> ReclaimTimes {
    let began = Instant::now();
    retire();
    let retired = began.elapsed();
    drain();
    ReclaimTimes { retired, freed: began.elapsed() }
}

/// The retired object. It has 32 bytes. Schemes that need a header in the object may use sixteen of
/// them.
#[repr(C)]
#[derive(Debug)]
pub struct Object {
    /// The first field, because liburcu's loop in C expects the header there.
    header: [usize; 2],
    content: u64,
    freed: Option<&'static AtomicU64>,
}

impl Object {
    /// Makes an object that counts itself in `freed` when it is dropped.
    pub fn new(content: u64, freed: Option<&'static AtomicU64>) -> Self {
        Self { header: [0; 2], content, freed }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Some(freed) = self.freed {
            // Release: pairs with the load of the counting thread, so that a counted drop has
            // happened.
            freed.fetch_add(1, Ordering::Release);
        }
    }
}

/// Enters and leaves `count` sections. `enter` returns a guard that leaves the section when it is
/// dropped.
///
/// This is inlined into a separate function for each scheme. The fence keeps the compiler from
/// merging adjacent sections.
#[inline(always)]
pub fn enter_and_leave<G>(count: u64, mut enter: impl FnMut() -> G) {
    for _ in 0..count {
        let guard = enter();
        // SeqCst: stands for the accesses in a section, which the compiler must not move out. It
        // compiles to no instruction.
        compiler_fence(Ordering::SeqCst);
        drop(guard);
    }
}
