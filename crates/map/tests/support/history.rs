//! Whether what happened to one key can be explained by its operations having taken effect one after the other, each at some
//! moment between its call and its return: the search of Wing and Gong ("Testing and Verifying Concurrent Objects", JPDC
//! 1993), which remembers the states that led nowhere (Lowe, "Testing for Linearizability", 2017).

use std::collections::HashSet;

/// What was done to a key, and what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Get {
        found: Option<u64>,
    },
    Insert {
        value: u64,
        replaced: Option<u64>,
    },
    /// `current` is the value that was in the way.
    TryInsert {
        value: u64,
        current: Option<u64>,
    },
    Remove {
        removed: Option<u64>,
    },
}

/// An operation, and the times of its call and its return.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    pub call: u64,
    pub end: u64,
    pub operation: Operation,
}

impl Operation {
    /// The value of the key afterwards, if the operation can have gone so with this value before.
    fn apply(self, before: Option<u64>) -> Option<Option<u64>> {
        let (seen, after) = match self {
            Self::Get { found } => (found, before),
            Self::Insert { value, replaced } => (replaced, Some(value)),
            Self::TryInsert { value, current } => (current, before.or(Some(value))),
            Self::Remove { removed } => (removed, None),
        };
        (seen == before).then_some(after)
    }
}

/// How far the search has come: how many operations of each thread have taken effect, and to what end.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    done: Vec<usize>,
    value: Option<u64>,
}

impl State {
    /// The states that one more operation may lead to.
    fn successors(&self, threads: &[Vec<Event>]) -> Vec<State> {
        let next = || self.done.iter().zip(threads).map(|(&done, events)| events.get(done));
        // Nobody takes effect after another one has returned that has not yet taken effect.
        let first_end = next().flatten().map(|event| event.end).min().unwrap_or(0);
        let mut successors = Vec::new();
        for (thread, event) in next().enumerate() {
            let Some(event) = event.filter(|event| event.call <= first_end) else { continue };
            if let Some(value) = event.operation.apply(self.value) {
                let mut done = self.done.clone();
                done[thread] += 1;
                successors.push(State { done, value });
            }
        }
        successors
    }

    fn is_final(&self, threads: &[Vec<Event>]) -> bool {
        self.done.iter().zip(threads).all(|(&done, events)| done == events.len())
    }
}

/// Whether the history of a key that was absent at first, thread by thread, is linearizable.
pub fn is_linearizable(threads: &[Vec<Event>]) -> bool {
    let start = State { done: vec![0; threads.len()], value: None };
    let mut seen = HashSet::new();
    let mut open = vec![start];
    while let Some(state) = open.pop() {
        if state.is_final(threads) {
            return true;
        }
        for successor in state.successors(threads) {
            if seen.insert(successor.clone()) {
                open.push(successor);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::Operation::{Get, Insert, Remove, TryInsert};
    use super::{Event, Operation, is_linearizable};

    fn event(call: u64, end: u64, operation: Operation) -> Event {
        Event { call, end, operation }
    }

    #[test]
    fn accepts_what_an_overlap_explains() {
        let insert = event(0, 9, Insert { value: 1, replaced: None });
        let before = event(1, 2, Get { found: None });
        let after = event(3, 4, Get { found: Some(1) });
        assert!(is_linearizable(&[vec![insert], vec![before, after]]));
        let refused = event(1, 2, TryInsert { value: 2, current: Some(1) });
        let removed = event(3, 4, Remove { removed: Some(1) });
        let again = event(5, 6, TryInsert { value: 3, current: None });
        assert!(is_linearizable(&[vec![insert], vec![refused, removed, again]]));
    }

    #[test]
    fn rejects_a_stale_read() {
        let insert = event(0, 1, Insert { value: 1, replaced: None });
        let missed = event(2, 3, Get { found: None });
        assert!(!is_linearizable(&[vec![insert], vec![missed]]));
    }

    #[test]
    fn rejects_two_readers_who_disagree_on_the_order() {
        let insert = event(0, 9, Insert { value: 1, replaced: None });
        let found = event(1, 2, Get { found: Some(1) });
        let missed = event(3, 4, Get { found: None });
        assert!(!is_linearizable(&[vec![insert], vec![found], vec![missed]]));
    }

    #[test]
    fn rejects_a_value_that_was_overwritten() {
        let one = event(0, 1, Insert { value: 1, replaced: None });
        let two = event(2, 3, Insert { value: 2, replaced: Some(1) });
        let stale = event(4, 5, Get { found: Some(1) });
        assert!(!is_linearizable(&[vec![one, two], vec![stale]]));
    }

    #[test]
    fn rejects_an_update_that_was_lost() {
        let one = event(0, 5, Insert { value: 1, replaced: None });
        let two = event(0, 5, Insert { value: 2, replaced: None });
        assert!(!is_linearizable(&[vec![one], vec![two]]));
        let removed = event(6, 7, Remove { removed: Some(1) });
        assert!(!is_linearizable(&[vec![one, removed], vec![event(8, 9, Remove { removed: Some(1) })]]));
    }

    #[test]
    fn rejects_a_value_that_nobody_inserted() {
        assert!(!is_linearizable(&[vec![event(0, 1, Get { found: Some(7) })]]));
        let current = event(0, 1, TryInsert { value: 1, current: Some(7) });
        assert!(!is_linearizable(&[vec![current]]));
    }
}
