//! The size of the table during the last minute.

use std::collections::VecDeque;
use std::time::Duration;

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
pub(super) struct History {
    moments: VecDeque<Moment>,
    /// Milliseconds in which the table was being resized.
    resizing: u64,
    /// When the size was noted last.
    noted: u64,
}

impl History {
    /// Records the size of the table, and drops records that are too old.
    pub(super) fn note(&mut self, moment: Moment) {
        let Moment { at, buckets, is_resizing, .. } = moment;
        if is_resizing {
            self.resizing += at.saturating_sub(self.noted);
        }
        self.noted = at;
        let is_news = self
            .moments
            .back()
            .is_none_or(|last| (last.buckets, last.is_resizing) != (buckets, is_resizing) || at >= last.at + INTERVAL);
        if is_news {
            self.moments.push_back(moment);
        }
        while self.moments.front().is_some_and(|first| first.at + MILLISECONDS < at) {
            self.moments.pop_front();
        }
    }

    /// How long the table was being resized since the start. This is a sample: each time that the
    /// size is noted stands for the time before it.
    pub(super) fn resizing(&self) -> Duration {
        Duration::from_millis(self.resizing)
    }

    pub(super) fn moments(&self) -> impl Iterator<Item = &Moment> {
        self.moments.iter()
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
    fn the_time_of_resizes_is_counted() {
        let mut history = History::default();
        for (at, is_resizing) in [(100, false), (200, true), (300, true), (400, false), (510, true)] {
            history.note(Moment { is_resizing, ..moment(at, 1, 4) });
        }
        assert_eq!(history.resizing(), Duration::from_millis(310));
    }

    #[test]
    fn a_minute_is_kept() {
        let mut history = History::default();
        (0..200).for_each(|second| history.note(moment(second * 1_000, 0, 4)));
        assert_eq!(history.moments().map(|moment| moment.at).next(), Some(139_000));
        assert_eq!(history.moments().count(), 61);
    }
}
