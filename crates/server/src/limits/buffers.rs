//! The limit on what the buffers of all connections hold together.
//!
//! A connection may need much: a large value arrives in pieces, a client takes its time to read. Each is bounded, but thousands of slow ones
//! would still hold gigabytes. So buffers are counted while they outlast a turn, and when all of them exceed the limit, whoever holds
//! most is closed.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What a worker tells late: less than that is not worth a write to a memory line that all share.
const UNTOLD: usize = 64 << 10;

/// What all connections hold, and may hold.
#[derive(Debug)]
pub struct Budget {
    inputs: AtomicUsize,
    outputs: AtomicUsize,
    limit: usize,
    closed: AtomicU64,
}

/// Bytes of buffers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Held {
    /// With requests that have not arrived as a whole, or not been executed.
    pub inputs: usize,
    /// With answers that have not been sent.
    pub outputs: usize,
}

/// What the connections of one worker hold, and how much of that the others know.
#[derive(Debug, Default)]
pub struct Ledger {
    held: Held,
    told: Held,
}

impl Held {
    /// All of it.
    pub fn sum(self) -> usize {
        self.inputs + self.outputs
    }
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(limit: usize) -> Budget {
        Budget { inputs: AtomicUsize::new(0), outputs: AtomicUsize::new(0), limit, closed: AtomicU64::new(0) }
    }

    /// What all hold, give or take 64 KiB for each worker and kind.
    pub fn held(&self) -> Held {
        // Relaxed (both): numbers that guard no memory.
        Held { inputs: self.inputs.load(Ordering::Relaxed), outputs: self.outputs.load(Ordering::Relaxed) }
    }

    /// Whether that is too much.
    pub fn is_exceeded(&self) -> bool {
        self.held().sum() > self.limit
    }

    /// If that is too much: what one of `connections` has to hold to be closed for it, the average of all. So a worker does not
    /// close its own for what others hold, who will do that within a second; unless it is too much by far.
    pub fn excess(&self, connections: usize) -> Option<usize> {
        let sum = self.held().sum();
        let least = if sum > 2 * self.limit { 1 } else { (sum / connections.max(1)).max(1) };
        (sum > self.limit).then_some(least)
    }

    /// Counts that a connection was closed for what it held.
    pub fn note_closed(&self) {
        // Relaxed: a statistic.
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// Connections closed for what they held.
    pub fn closed(&self) -> u64 {
        // Relaxed: a statistic.
        self.closed.load(Ordering::Relaxed)
    }
}

impl Ledger {
    /// A connection that held `before` holds `now`.
    pub fn change(&mut self, before: &mut Held, now: Held) {
        if *before != now {
            self.held.inputs = self.held.inputs + now.inputs - before.inputs;
            self.held.outputs = self.held.outputs + now.outputs - before.outputs;
            *before = now;
        }
    }

    /// Tells the others, if that is worth it. True if it was.
    pub fn tell(&mut self, budget: &Budget) -> bool {
        let Ledger { held, told } = self;
        let is_worth = held.inputs.abs_diff(told.inputs) > UNTOLD || held.outputs.abs_diff(told.outputs) > UNTOLD;
        if is_worth {
            // Relaxed (both): as in `held`. Sums that wrap around on the way are right in the end.
            budget.inputs.fetch_add(held.inputs.wrapping_sub(told.inputs), Ordering::Relaxed);
            budget.outputs.fetch_add(held.outputs.wrapping_sub(told.outputs), Ordering::Relaxed);
            *told = *held;
        }
        is_worth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_add_up_to_the_limit() {
        let budget = Budget::new(1 << 20);
        let (mut one, mut other) = (Ledger::default(), Ledger::default());
        let (mut small, mut large) = (Held::default(), Held::default());
        one.change(&mut small, Held { inputs: UNTOLD, outputs: 0 });
        assert!(!one.tell(&budget), "not worth it");
        assert_eq!(budget.held(), Held::default());
        one.change(&mut small, Held { inputs: 400 << 10, outputs: 1 });
        assert!(one.tell(&budget));
        other.change(&mut large, Held { inputs: 0, outputs: (700 << 10) - 1 });
        assert!(!budget.is_exceeded());
        other.tell(&budget);
        assert!(budget.is_exceeded());
        assert_eq!(budget.excess(11), Some((1100 << 10) / 11));
        other.change(&mut large, Held::default());
        other.tell(&budget);
        assert_eq!((budget.held(), budget.excess(11)), (small, None));
    }
}
