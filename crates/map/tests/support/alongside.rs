//! Doing one thing while another thread does something else.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// Returns what `foreground` does; while it runs, and at least once, another thread repeats
/// `background`. A panic in either ends both.
pub fn alongside<R>(mut background: impl FnMut() + Send, foreground: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            background();
            while !done.load(Relaxed) {
                background();
            }
        });
        let result = catch_unwind(AssertUnwindSafe(foreground));
        done.store(true, Relaxed);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    })
}
