//! The limit on open connections.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Admits so many at a time.
#[derive(Debug)]
pub struct Gate {
    inside: AtomicUsize,
    limit: usize,
    pauses: Mutex<Pauses>,
}

/// When nobody was admitted because the gate was full.
#[derive(Debug, Default)]
struct Pauses {
    count: u64,
    ended: Duration,
    since: Option<Instant>,
}

/// Permission to be inside; dropping it leaves.
#[derive(Debug)]
pub struct Pass(Arc<Gate>);

impl Gate {
    /// A gate that admits `limit` at a time.
    pub fn new(limit: usize) -> Arc<Gate> {
        Arc::new(Gate { inside: AtomicUsize::new(0), limit, pauses: Mutex::default() })
    }

    /// A pass, or none when the limit is reached. To be called by one thread only: two could take the last place twice.
    pub fn admit(self: &Arc<Gate>) -> Option<Pass> {
        if self.inside() >= self.limit {
            return None;
        }
        // Relaxed: a count that guards no memory; only this thread raises it, so it cannot pass the limit.
        self.inside.fetch_add(1, Ordering::Relaxed);
        Some(Pass(Arc::clone(self)))
    }

    /// Whether the limit is reached, noted as a pause of admission.
    pub fn pause_if_full(&self) -> bool {
        let is_full = self.inside() >= self.limit;
        let mut pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        match (is_full, pauses.since) {
            (true, None) => {
                pauses.count += 1;
                pauses.since = Some(Instant::now());
            }
            (false, Some(since)) => {
                pauses.ended += since.elapsed();
                pauses.since = None;
            }
            _ => (),
        }
        is_full
    }

    /// Whether admission is paused.
    pub fn is_paused(&self) -> bool {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner).since.is_some()
    }

    /// How often admission was paused.
    pub fn pauses(&self) -> u64 {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    /// For how long it was paused, all in all.
    pub fn paused_for(&self) -> Duration {
        let pauses = self.pauses.lock().unwrap_or_else(PoisonError::into_inner);
        pauses.ended + pauses.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// How many are inside.
    pub fn inside(&self) -> usize {
        // Relaxed: a count that guards no memory; a pass dropped just now may still be counted.
        self.inside.load(Ordering::Relaxed)
    }

    /// How many may be inside.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        // Relaxed: a count that guards no memory; what the pass stood for needs no handing over.
        self.0.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_gate_admits_when_somebody_leaves() {
        let gate = Gate::new(2);
        let (first, _second) = (gate.admit().unwrap(), gate.admit().unwrap());
        assert!(gate.admit().is_none());
        drop(first);
        assert!(gate.admit().is_some());
        assert_eq!(gate.inside(), 1);
    }
}
