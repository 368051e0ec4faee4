//! Surveys of the whole table, or of all items, that everybody who asks shares.

use relativist_store::{MemoryUse, TableStats, work};
use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The surveys of a tenant's items.
#[derive(Debug, Default)]
pub struct Surveys {
    /// The fill levels of the table's buckets.
    pub(crate) table: Survey<TableStats>,
    /// Where the memory goes.
    pub(crate) memory: Survey<MemoryUse>,
    /// The number of items of each size.
    pub(crate) sizes: Survey<BTreeMap<usize, u64>>,
}

/// A survey, which goes on piece by piece. However many clients ask, one walk is in progress: each
/// of them continues it, and gets the result of the first survey that began after it had asked.
#[derive(Debug, Default)]
pub(crate) struct Survey<T> {
    walk: Mutex<Walk<T>>,
    /// The number of surveys that have begun.
    begun: AtomicU64,
}

#[derive(Debug, Default)]
struct Walk<T> {
    /// The result so far.
    stats: T,
    /// The next position; none between surveys.
    cursor: Option<u64>,
    /// The result of the last survey, its number, and when it ended.
    last: Option<(T, u64, Instant)>,
}

/// The number of the survey that a client waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket(u64);

impl<T: Clone + Default> Survey<T> {
    /// Asks for a survey that begins from now on.
    pub(super) fn ask(&self) -> Ticket {
        // AcqRel, with the one in `go_on`: what happened before this call happens before the next
        // survey, which therefore sees it. An addition, because that is the last in the order of
        // all additions.
        Ticket(self.begun.fetch_add(0, Ordering::AcqRel) + 1)
    }

    /// Continues the survey for about `most` units of [work], and returns the result once it has
    /// ended. Never waits: none if another thread is continuing it.
    pub(super) fn go_on_for(
        &self,
        Ticket(wanted): Ticket,
        most: u64,
        piece: impl FnMut(&mut T, u64) -> Option<u64>,
    ) -> Option<T> {
        let mut walk = match self.walk.try_lock() {
            Ok(walk) => walk,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let is_wanted = |walk: &Walk<T>| walk.last.as_ref().is_some_and(|&(_, number, _)| number >= wanted);
        if !is_wanted(&walk) {
            self.go_on(&mut walk, most, piece);
        }
        let is_done = is_wanted(&walk);
        walk.last.as_ref().filter(|_| is_done).map(|(stats, ..)| stats.clone())
    }

    /// The result of the last survey and its age, or what the first one has found so far. Continues
    /// a survey for about `most` units of work if one is in progress, or if the last result is
    /// older than `age`.
    pub(crate) fn refresh(
        &self,
        age: Duration,
        most: u64,
        piece: impl FnMut(&mut T, u64) -> Option<u64>,
    ) -> (T, Option<Duration>) {
        let mut walk = self.lock();
        if walk.cursor.is_some() || walk.last.as_ref().is_none_or(|(.., at)| at.elapsed() >= age) {
            self.go_on(&mut walk, most, piece);
        }
        match &walk.last {
            Some((stats, _, at)) => (stats.clone(), Some(at.elapsed())),
            None => (walk.stats.clone(), None),
        }
    }

    /// Whether a survey has begun and not ended.
    pub(crate) fn is_in_progress(&self) -> bool {
        self.lock().cursor.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Walk<T>> {
        self.walk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn go_on(&self, walk: &mut Walk<T>, most: u64, mut piece: impl FnMut(&mut T, u64) -> Option<u64>) {
        let start = work::done();
        let mut cursor = walk.cursor.unwrap_or_else(|| {
            // AcqRel: see `ask`.
            self.begun.fetch_add(1, Ordering::AcqRel);
            0
        });
        loop {
            match piece(&mut walk.stats, cursor) {
                Some(next) => cursor = next,
                None => {
                    walk.cursor = None;
                    // Relaxed: only the thread with the lock changes it.
                    let number = self.begun.load(Ordering::Relaxed);
                    walk.last = Some((mem::take(&mut walk.stats), number, Instant::now()));
                    return;
                }
            }
            if work::done().wrapping_sub(start) >= most {
                walk.cursor = Some(cursor);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relativist_store::work::Work;

    /// The piece of a survey with this many pieces. It counts them.
    fn piece(pieces: u64) -> impl FnMut(&mut u64, u64) -> Option<u64> {
        move |stats, cursor| {
            *stats += 1;
            work::charge(Work::Items(1));
            (cursor + 1 < pieces).then_some(cursor + 1)
        }
    }

    #[test]
    fn all_that_ask_share_a_survey_that_began_after_they_asked() {
        let survey = Survey::default();
        let most = Work::Items(3).price();
        let first = survey.ask();
        assert_eq!(survey.go_on_for(first, most, piece(5)), None);
        let second = survey.ask();
        assert_eq!(survey.go_on_for(second, most, piece(5)), None, "this ends the first survey");
        assert_eq!(survey.go_on_for(first, most, |_, _| unreachable!()), Some(5));
        assert_eq!(survey.go_on_for(second, 2 * most, piece(7)), None);
        assert_eq!(survey.go_on_for(second, most, piece(7)), Some(7));
        assert!(!survey.is_in_progress());
    }

    #[test]
    fn nobody_waits_for_the_thread_that_continues_a_survey() {
        let survey = Survey::default();
        let ticket = survey.ask();
        let _other = survey.walk.lock().unwrap();
        assert_eq!(survey.go_on_for(ticket, 1, piece(1)), None);
    }

    #[test]
    fn a_result_stays_fresh_for_a_time() {
        let survey = Survey::default();
        let look = |most: usize, age| survey.refresh(age, Work::Items(most).price(), piece(3)).0;
        let hour = Duration::from_secs(3600);
        assert_eq!(look(2, hour), 2, "so far");
        assert_eq!(look(2, hour), 3);
        assert_eq!((look(2, hour), survey.is_in_progress()), (3, false), "it is fresh");
        assert_eq!((look(2, Duration::ZERO), survey.is_in_progress()), (3, true), "what the last one has found");
    }
}
