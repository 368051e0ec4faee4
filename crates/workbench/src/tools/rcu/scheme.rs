//! What the schemes have in common, as far as it is measured.

use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use std::time::{Duration, Instant};

/// A reclamation scheme: lets readers read while other threads unlink and free.
pub(super) trait Scheme: Sync {
    fn name(&self) -> &'static str;

    /// Enters and leaves `count` sections, one after the other.
    fn sections(&self, count: u64);

    /// The same inside an outer section.
    fn nested_sections(&self, count: u64);

    /// A function that waits until all sections that have begun are over, if the scheme has one.
    fn wait(&self) -> Option<fn()>;

    /// Allocates and retires `count` objects, then waits until all of them have been freed; `freed`
    /// counts them.
    fn reclaim(&self, count: u64, freed: Option<&'static AtomicU64>) -> ReclaimTimes;
}

/// How long [`Scheme::reclaim`] took, from its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReclaimTimes {
    /// Until all objects had been retired.
    pub(super) retired: Duration,
    /// Until all objects had been freed.
    pub(super) freed: Duration,
}

/// Times `retire`, and `retire` and `drain` together.
pub(super) fn time_reclaim(retire: impl FnOnce(), drain: impl FnOnce()) -> ReclaimTimes {
    let began = Instant::now();
    retire();
    let retired = began.elapsed();
    drain();
    ReclaimTimes { retired, freed: began.elapsed() }
}

/// The retired object: 32 bytes, of which a scheme with a header in the object may use sixteen.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Object {
    /// First, where liburcu's loop in C expects it.
    header: [usize; 2],
    content: u64,
    freed: Option<&'static AtomicU64>,
}

impl Object {
    /// An object that counts itself in `freed` when it is dropped.
    pub(super) fn new(content: u64, freed: Option<&'static AtomicU64>) -> Self {
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

/// Enters and leaves `count` times; `enter` returns what leaves when it is dropped.
///
/// Inlined into a function of its own for each scheme. The fence keeps the compiler from merging a
/// section with the next.
#[inline(always)]
pub(super) fn enter_and_leave<G>(count: u64, mut enter: impl FnMut() -> G) {
    for _ in 0..count {
        let guard = enter();
        // SeqCst: stands for the accesses of a section, none of which may leave it. It is no
        // instruction.
        compiler_fence(Ordering::SeqCst);
        drop(guard);
    }
}
