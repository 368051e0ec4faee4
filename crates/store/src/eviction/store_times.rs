//! When items were stored.
//!
//! Items don't record that. But blocks draw their numbers when they are opened, and numbers rise
//! with time. So a few pairs of a number and the second in which it was the last one say when an
//! item's block was opened, which stands for the store. There is a pair for each of the
//! last seconds, and the older pairs are, the farther apart they are. So a time is off by at most a
//! sixteenth of the item's age, and the number of pairs grows with the logarithm of the oldest age.

use relativist_rcu::{Guard, Published};
use std::sync::{Mutex, PoisonError};

/// A gap between pairs is at most one in this many of their age.
const PRECISION: u32 = 16;

/// The last number of a second.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Mark {
    number: u64,
    second: u32,
}

/// The times of stores.
pub(crate) struct StoreTimes {
    /// Sorted, the oldest first.
    marks: Published<Vec<Mark>>,
    /// Locked while the marks are replaced.
    writer: Mutex<()>,
}

impl StoreTimes {
    pub(crate) fn new() -> StoreTimes {
        StoreTimes { marks: Published::new(Vec::new()), writer: Mutex::new(()) }
    }

    /// Notes that `number` is the last one at `now`. Call it once a second.
    pub(crate) fn note(&self, number: u64, now: u32) {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let guard = relativist_rcu::read();
        let marks = self.marks.read(&guard);
        if marks.last().is_some_and(|last| last.number >= number || last.second >= now) {
            return;
        }
        let marks = thinned(marks, Mark { number, second: now });
        drop(guard);
        self.marks.publish(marks);
    }

    /// The least age at `now` that the block can have that drew this number, in seconds.
    pub(crate) fn age(&self, number: u64, now: u32, guard: &Guard) -> u32 {
        let marks = self.marks.read(guard);
        let later = marks.partition_point(|mark| mark.number < number);
        marks.get(later).map_or(0, |mark| now.saturating_sub(mark.second))
    }
}

/// The marks with another one, without those that are not needed any more.
fn thinned(marks: &[Mark], new: Mark) -> Vec<Mark> {
    let mut kept: Vec<Mark> = Vec::with_capacity(marks.len() + 1);
    for (index, &mark) in marks.iter().enumerate() {
        let next = marks.get(index + 1).unwrap_or(&new);
        let max_gap = (new.second - mark.second) / PRECISION;
        let is_needed = kept.last().is_none_or(|last| next.second - last.second > max_gap);
        if is_needed {
            kept.push(mark);
        }
    }
    kept.push(new);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_precise_to_a_sixteenth_and_marks_are_few() {
        let times = StoreTimes::new();
        let (start, end) = (1000, 200_000);
        (start..=end).for_each(|second| times.note(u64::from(second), second));
        let guard = relativist_rcu::read();
        for stored in [start, start + 7, 100_000, 180_000, end - 1000, end - 20, end - 1, end] {
            let (age, real) = (times.age(u64::from(stored), end, &guard), end - stored);
            assert!(age <= real && real - age <= real / PRECISION, "{age} for {real}");
        }
        let marks = times.marks.read(&guard).len();
        assert!(marks < 300, "{marks}");
        assert_eq!(times.age(u64::from(end) + 1, end + 3, &guard), 0, "stored since");
    }

    #[test]
    fn seconds_without_stores_and_clocks_that_go_back_add_nothing() {
        let times = StoreTimes::new();
        for (number, second) in [(5, 100), (5, 101), (6, 99), (7, 102)] {
            times.note(number, second);
        }
        let guard = relativist_rcu::read();
        assert_eq!(times.marks.read(&guard).len(), 2);
        assert_eq!([5, 6, 7].map(|number| times.age(number, 110, &guard)), [10, 8, 8]);
    }
}
