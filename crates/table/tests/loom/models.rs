//! How models are explored, and the guards that their threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use relativist_rcu::Guard;

/// Returns the number of preemptions for models that take minutes with two: one if
/// `RELATIVIST_LOOM_QUICK` is set.
pub fn unless_quick(preemptions: usize) -> usize {
    if is_quick() { 1 } else { preemptions }
}

pub fn is_quick() -> bool {
    std::env::var_os("RELATIVIST_LOOM_QUICK").is_some()
}

/// Explores a model with this many preemptions, or `LOOM_MAX_PREEMPTIONS`.
pub fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 10_000;
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        model();
    });
    println!("{} executions", executions.load(Relaxed));
}

/// A guard that threads share, so that loom has fewer sections to explore.
#[derive(Clone, Copy)]
pub struct Shared(&'static Guard);

// SAFETY: other threads only rely on the section, which the owner of the guard keeps open until
// they are done.
unsafe impl Send for Shared {}

impl Shared {
    /// # Safety
    ///
    /// The guard outlives all uses.
    pub unsafe fn new(guard: &Guard) -> Self {
        // SAFETY: guaranteed by the caller.
        Self(unsafe { &*std::ptr::from_ref(guard) })
    }

    pub fn guard(self) -> &'static Guard {
        self.0
    }
}
