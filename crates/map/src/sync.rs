//! The one place where atomics come from, so that loom can take their place (`--cfg relativist_loom`).

#[cfg(not(relativist_loom))]
pub(crate) use std::sync::atomic::AtomicPtr;

#[cfg(relativist_loom)]
pub(crate) use loom::sync::atomic::AtomicPtr;

// Statistics and counters order nothing, so loom needn't explore them.
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
