//! `flush_all`: a line in the sequence of stores. Items below the line are flushed.
//!
//! Blocks draw numbers for their items when they are opened. So the numbers of all items stored
//! until now are at most the last one drawn, which becomes the line. This also separates items
//! stored before and after a flush within one second. A new item whose block was opened before the
//! last flush would be flushed at once. Its store notices that under the bucket's lock, closes the
//! blocks that were open, and writes the item into another one (see `Cache::change`). A copy has
//! the number of the item that it replaces, so it is flushed if that item is. A delayed flush
//! cannot know its line in advance: it waits as *due*, and the first command that runs in its
//! second or later draws the line before it does anything else.

use relativist_rcu::contention::Site;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

static FLUSH: Site = Site::new("flush");

/// `due` when no flush is pending: a second that never comes.
const NONE_PENDING: u32 = u32::MAX;

/// The line, and a pending flush. Readers load the two words; they share a cache line that is
/// written only by flushes.
#[derive(Debug)]
pub(crate) struct Flush {
    line: AtomicU64,
    due: AtomicU32,
    writers: Mutex<()>,
}

impl Flush {
    pub(crate) fn new() -> Flush {
        Flush { line: AtomicU64::new(0), due: AtomicU32::new(NONE_PENDING), writers: Mutex::new(()) }
    }

    /// The last line drawn: all items numbered up to it were flushed.
    pub(crate) fn line(&self) -> u64 {
        // Acquire: pairs with the Release in `draw_line`, so that later accesses of this thread
        // come after the flush.
        self.line.load(Ordering::Acquire)
    }

    /// Executes the pending flush if its second has come. Every command calls this first.
    pub(crate) fn catch_up(&self, now: u32, last_number: &AtomicU64) {
        // Acquire: pairs with the Release store in `draw_line`, so that a thread that finds nothing
        // pending sees the line.
        if self.due.load(Ordering::Acquire) <= now {
            self.execute_due(now, last_number);
        }
    }

    #[cold]
    fn execute_due(&self, now: u32, last_number: &AtomicU64) {
        let _writing = FLUSH.lock(&self.writers);
        // Relaxed: only holders of the mutex write it. Another thread may have been faster.
        if self.due.load(Ordering::Relaxed) <= now {
            self.draw_line(last_number);
        }
    }

    /// Flushes everything stored before now. Replaces a pending flush.
    pub(crate) fn now(&self, last_number: &AtomicU64) {
        let _writing = FLUSH.lock(&self.writers);
        self.draw_line(last_number);
    }

    /// The last line drawn, and the second of a pending flush. Both are read at the same moment, so
    /// that no flush is missing from both.
    pub(crate) fn state(&self) -> (u64, Option<u32>) {
        let _reading = FLUSH.lock(&self.writers);
        // Relaxed (both): only holders of the mutex write them.
        let pending = Some(self.due.load(Ordering::Relaxed)).filter(|second| *second != NONE_PENDING);
        (self.line.load(Ordering::Relaxed), pending)
    }

    /// Flushes at `second` all items stored before it. Replaces a pending flush.
    pub(crate) fn at(&self, second: u32) {
        self.set_due(second.min(NONE_PENDING - 1));
    }

    /// Cancels a pending flush.
    pub(crate) fn cancel(&self) {
        self.set_due(NONE_PENDING);
    }

    fn set_due(&self, second: u32) {
        let _writing = FLUSH.lock(&self.writers);
        // Release: pairs with the Acquire in `catch_up`, for uniformity. No earlier write has to be
        // seen.
        self.due.store(second, Ordering::Release);
    }

    /// Draws the line. The mutex must be held. The line only rises, because numbers do.
    fn draw_line(&self, last_number: &AtomicU64) {
        self.draw_line_around(last_number, || ());
    }

    /// Like [`draw_line`](Self::draw_line). Runs `between`, for tests, after the line is drawn and
    /// while the flush is still due.
    #[inline(always)]
    fn draw_line_around(&self, last_number: &AtomicU64, between: impl FnOnce()) {
        // Relaxed: if another thread stored an item before this flush, the synchronisation between
        // its client and ours orders it before the flush, and so the numbers that its block drew.
        // Numbers drawn concurrently may end up on either side.
        self.line.store(last_number.load(Ordering::Relaxed), Ordering::Release);
        between();
        // Release (both): the line is visible before the flush stops being due; pairs with the
        // Acquire in `line` and `catch_up`.
        self.due.store(NONE_PENDING, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    impl Flush {
        fn covers(&self, number: u64) -> bool {
            number <= self.line()
        }
    }

    #[test]
    fn a_flush_covers_numbers_drawn_so_far() {
        let (flush, last) = (Flush::new(), AtomicU64::new(7));
        assert!(!flush.covers(1));
        flush.now(&last);
        assert!(flush.covers(7));
        assert!(!flush.covers(8));
    }

    #[test]
    fn a_delayed_flush_draws_its_line_when_due() {
        let (flush, last) = (Flush::new(), AtomicU64::new(7));
        flush.at(100);
        flush.catch_up(99, &last);
        assert!(!flush.covers(7));
        last.store(9, Ordering::Relaxed);
        flush.catch_up(100, &last);
        assert!(flush.covers(9));
        last.store(12, Ordering::Relaxed);
        flush.catch_up(200, &last);
        assert!(!flush.covers(10), "a flush happens once");
    }

    #[test]
    fn a_new_flush_replaces_a_pending_one() {
        let (flush, last) = (Flush::new(), AtomicU64::new(7));
        flush.at(100);
        flush.at(200);
        flush.catch_up(150, &last);
        assert!(!flush.covers(7));
        flush.cancel();
        flush.catch_up(u32::MAX - 1, &last);
        assert!(!flush.covers(7));
        flush.at(100);
        flush.now(&last);
        last.store(8, Ordering::Relaxed);
        flush.catch_up(100, &last);
        assert!(!flush.covers(8));
    }

    #[test]
    fn a_due_flush_happens_once_however_many_find_it_due() {
        let (flush, last) = (Flush::new(), AtomicU64::new(7));
        flush.at(100);
        thread::scope(|scope| {
            let writing = flush.writers.lock().unwrap();
            let late = scope.spawn(|| flush.catch_up(100, &last));
            // Gives the thread time to find the flush due, and to wait for the mutex.
            thread::sleep(Duration::from_millis(10));
            flush.draw_line(&last);
            last.store(8, Ordering::Relaxed);
            drop(writing);
            late.join().unwrap();
        });
        assert!(flush.covers(7) && !flush.covers(8));
    }

    #[test]
    fn commands_wait_for_a_flush_in_progress() {
        let (flush, last) = (Flush::new(), AtomicU64::new(7));
        flush.at(100);
        assert_eq!(flush.state(), (0, Some(100)));
        thread::scope(|scope| {
            let writing = flush.writers.lock().unwrap();
            let reader = scope.spawn(|| flush.state());
            // By then, a reader that does not wait has read the state.
            thread::sleep(Duration::from_millis(10));
            flush.draw_line(&last);
            drop(writing);
            assert_eq!(reader.join().unwrap(), (7, None));
        });
    }

    /// A flush draws its line before it stops being due. Otherwise a command that comes in between
    /// would find flushed items.
    #[test]
    fn a_flush_is_due_until_its_line_is_drawn() {
        let (flush, last) = (Flush::new(), AtomicU64::new(7));
        flush.at(100);
        let is_covered = || {
            flush.catch_up(100, &last);
            flush.covers(7)
        };
        let command = thread::scope(|scope| {
            let writing = flush.writers.lock().unwrap();
            let mut command = None;
            flush.draw_line_around(&last, || {
                let begun = command.insert(scope.spawn(is_covered));
                // A command that does not find the flush due has ended by then.
                for _ in 0..100 {
                    if begun.is_finished() {
                        break;
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            });
            drop(writing);
            command.expect("it was begun").join().unwrap()
        });
        assert!(command);
    }
}
