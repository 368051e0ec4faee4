//! The size of the table during the last minute.

use std::collections::VecDeque;

/// The duration of the history.
const MILLISECONDS: u64 = 60_000;

/// The time between records while the number of buckets stays the same.
const INTERVAL: u64 = 1_000;

/// The size of the table at one time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Moment {
    /// Milliseconds since the start.
    pub(super) at: u64,
    pub(super) items: usize,
    pub(super) buckets: usize,
    pub(super) is_resizing: bool,
}

/// Records of the size: one per second, and one whenever the number of buckets has changed, or a
/// resize has begun or ended.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<Moment>);

impl History {
    /// Records the size of the table, and drops records that are too old.
    pub(super) fn note(&mut self, moment: Moment) {
        let Moment { at, buckets, is_resizing, .. } = moment;
        let is_news = self
            .0
            .back()
            .is_none_or(|last| (last.buckets, last.is_resizing) != (buckets, is_resizing) || at >= last.at + INTERVAL);
        if is_news {
            self.0.push_back(moment);
        }
        while self.0.front().is_some_and(|first| first.at + MILLISECONDS < at) {
            self.0.pop_front();
        }
    }

    pub(super) fn moments(&self) -> impl Iterator<Item = &Moment> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(at: u64, items: usize, buckets: usize) -> Moment {
        Moment { at, items, buckets, is_resizing: false }
    }

    #[test]
    fn changes_are_noted_at_once_and_the_rest_by_the_second() {
        let mut history = History::default();
        for (at, items, buckets) in [(0, 1, 4), (100, 2, 4), (200, 3, 8), (300, 4, 8), (1_200, 5, 8)] {
            history.note(moment(at, items, buckets));
        }
        let seen: Vec<_> = history.moments().map(|moment| (moment.at, moment.items)).collect();
        assert_eq!(seen, [(0, 1), (200, 3), (1_200, 5)]);
    }

    #[test]
    fn a_minute_is_kept() {
        let mut history = History::default();
        (0..200).for_each(|second| history.note(moment(second * 1_000, 0, 4)));
        assert_eq!(history.moments().map(|moment| moment.at).next(), Some(139_000));
        assert_eq!(history.moments().count(), 61);
    }
}
