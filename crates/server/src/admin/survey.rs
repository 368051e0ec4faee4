//! A survey of the whole table, or of all items, piece by piece.

use std::mem;
use std::time::{Duration, Instant};

/// Maximum number of pieces that one call surveys, in one or two milliseconds. A piece is some
/// buckets of the table, or some items.
const PIECES: usize = 1024;

/// A new survey begins when the result of the last one is this old.
const MIN_AGE: Duration = Duration::from_secs(1);

/// A survey of the whole table, which each request and each tick advances, and the result of the
/// last one.
#[derive(Debug, Default)]
pub(super) struct Survey<T> {
    /// The result so far.
    stats: T,
    /// The next position; none between surveys.
    cursor: Option<u64>,
    last: Option<(T, Instant)>,
}

impl<T: Clone + Default> Survey<T> {
    /// Whether a survey has begun and not ended.
    pub(super) fn is_in_progress(&self) -> bool {
        self.cursor.is_some()
    }

    /// Continues a survey, or begins one if the last result is old. Calls `piece` at most
    /// [`PIECES`] times.
    pub(super) fn refresh(&mut self, piece: impl FnMut(&mut T, u64) -> Option<u64>) {
        let is_fresh = self.last.as_ref().is_some_and(|(_, taken)| taken.elapsed() < MIN_AGE);
        if self.is_in_progress() || !is_fresh {
            self.go_on(piece);
        }
    }

    /// Like [`refresh`](Self::refresh), but begins a survey even if the last result is fresh.
    pub(super) fn go_on(&mut self, mut piece: impl FnMut(&mut T, u64) -> Option<u64>) {
        let mut cursor = self.cursor.unwrap_or(0);
        for _ in 0..PIECES {
            match piece(&mut self.stats, cursor) {
                Some(next) => cursor = next,
                None => {
                    self.cursor = None;
                    self.last = Some((mem::take(&mut self.stats), Instant::now()));
                    return;
                }
            }
        }
        self.cursor = Some(cursor);
    }

    /// The result of the last survey and its age. During the first survey: its result so far.
    pub(super) fn result(&self) -> (T, Duration) {
        self.last().unwrap_or_else(|| (self.stats.clone(), Duration::ZERO))
    }

    /// The result of the last survey and its age, if one has ended.
    pub(super) fn last(&self) -> Option<(T, Duration)> {
        self.last.as_ref().map(|(stats, taken)| (stats.clone(), taken.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relativist_store::TableStats;

    #[test]
    fn a_survey_advances_by_pieces_and_pauses_after_its_end() {
        let (mut survey, mut pieces) = (Survey::default(), 0);
        let mut look = |survey: &mut Survey<TableStats>| {
            let before = pieces;
            survey.refresh(|stats, cursor| {
                pieces += 1;
                stats.longest_chain = pieces;
                (cursor < 2 * PIECES as u64).then_some(cursor + 1)
            });
            (pieces - before, survey.is_in_progress(), survey.result().0.longest_chain)
        };
        assert_eq!(look(&mut survey), (PIECES, true, PIECES), "so far");
        assert_eq!(look(&mut survey), (PIECES, true, 2 * PIECES));
        assert_eq!(look(&mut survey), (1, false, 2 * PIECES + 1));
        assert_eq!(look(&mut survey), (0, false, 2 * PIECES + 1), "it is fresh");
        survey.last.as_mut().unwrap().1 -= MIN_AGE;
        assert_eq!(look(&mut survey), (PIECES, true, 2 * PIECES + 1), "what the last one has found");
    }
}
