//! Room that is set aside for a value before it has arrived.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that all [`Room`]s of a cache have set aside.
#[derive(Debug, Default)]
pub(crate) struct Aside(Arc<AtomicUsize>);

impl Aside {
    pub(crate) fn bytes(&self) -> usize {
        // Relaxed: a number that guards no memory. It grows under the pool's lock only.
        self.0.load(Ordering::Relaxed)
    }
}

/// Room for a large value, made step by step: see [`Cache::make_room`](crate::Cache::make_room).
/// Dropping it gives the room back.
#[derive(Debug, Default)]
pub struct Room {
    bytes: usize,
    /// The number of steps taken.
    pub(crate) steps: usize,
    all: Option<Arc<AtomicUsize>>,
}

impl Room {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets `bytes` more aside. The pool is locked.
    pub(crate) fn add(&mut self, bytes: usize, aside: &Aside) {
        // Relaxed: as in `Aside::bytes`.
        self.all.get_or_insert_with(|| Arc::clone(&aside.0)).fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(all) = &self.all {
            // Relaxed: as in `Aside::bytes`.
            all.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}
