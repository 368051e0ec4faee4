//! The last minute of one thread: a sketch for each part of it, of which only the most frequent
//! keys are kept when the part is over.

use super::sketch::{Counted, Sketch};
use std::collections::VecDeque;

/// The length of a part of the window in seconds. Clients come and go within minutes, so the
/// numbers must not be older.
const PART: u32 = 10;

/// The number of parts, that in progress included.
const PARTS: u32 = 6;

/// The number of keys kept of a part: enough that a key which is among the first in the minute is
/// kept in each part in which it was requested often.
const KEPT: usize = 64;

/// The keys of a part that is over.
#[derive(Debug)]
struct Past {
    part: u32,
    events: u64,
    keys: Vec<Counted>,
}

/// The last minute of one thread.
#[derive(Debug)]
pub(super) struct Window {
    /// The number of the part in progress.
    part: u32,
    events: u64,
    sketch: Sketch,
    past: VecDeque<Past>,
}

impl Window {
    pub(super) fn new() -> Window {
        Window { part: 0, events: 0, sketch: Sketch::new(), past: VecDeque::new() }
    }

    /// Counts events of a key in the second `now`.
    pub(super) fn add(&mut self, now: u32, hash: u64, key: &[u8], [events, bytes]: [u64; 2]) {
        if self.part != now / PART {
            self.begin(now / PART);
        }
        self.events += events;
        self.sketch.add(hash, key, events, bytes);
    }

    fn begin(&mut self, part: u32) {
        self.past.retain(|past| is_recent(past.part, part));
        // A clock that goes back and forth must not add up parts.
        if self.past.len() >= PARTS as usize {
            self.past.pop_front();
        }
        if is_recent(self.part, part) {
            self.past.push_back(Past { part: self.part, events: self.events, keys: self.sketch.top(KEPT) });
        }
        (self.part, self.events) = (part, 0);
        self.sketch.clear();
    }

    /// Passes the keys of the minute that ends at `now` to `visit`, those of each part by
    /// themselves. Returns the number of all events.
    pub(super) fn each(&self, now: u32, mut visit: impl FnMut(&Counted)) -> u64 {
        let mut events = 0;
        if is_recent(self.part, now / PART) {
            events += self.events;
            self.sketch.top(KEPT).iter().for_each(&mut visit);
        }
        for past in self.past.iter().filter(|past| is_recent(past.part, now / PART)) {
            events += past.events;
            past.keys.iter().for_each(&mut visit);
        }
        events
    }
}

/// Whether `part` is in the window when `current` is in progress.
fn is_recent(part: u32, current: u32) -> bool {
    part <= current && current - part < PARTS
}

/// The seconds that the window has at `now`, if it began at `started` or later.
pub(super) fn seconds(started: u32, now: u32) -> u32 {
    let first = (now / PART).saturating_sub(PARTS - 1) * PART;
    now.saturating_sub(first.max(started)) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(window: &Window, now: u32) -> (u64, Vec<(u64, u64)>) {
        let mut keys = Vec::new();
        let events = window.each(now, |counted| keys.push((counted.hash, counted.count)));
        keys.sort_unstable();
        (events, keys)
    }

    #[test]
    fn parts_older_than_a_minute_do_not_count() {
        let mut window = Window::new();
        for (now, hash) in [(1000, 1), (1009, 1), (1010, 2), (1049, 3)] {
            window.add(now, hash, b"", [5, 0]);
        }
        assert_eq!(seen(&window, 1050), (20, vec![(1, 10), (2, 5), (3, 5)]));
        assert_eq!(seen(&window, 1060), (10, vec![(2, 5), (3, 5)]));
        window.add(1060, 4, b"", [1, 0]);
        assert_eq!(seen(&window, 1060), (11, vec![(2, 5), (3, 5), (4, 1)]));
        assert_eq!(seen(&window, 1110), (1, vec![(4, 1)]));
        assert_eq!(seen(&window, 2000), (0, vec![]));
        window.add(2000, 5, b"", [1, 0]);
        assert_eq!(seen(&window, 2000), (1, vec![(5, 1)]));
    }

    #[test]
    fn a_clock_that_jumps_adds_up_no_parts() {
        let mut window = Window::new();
        (0..100).for_each(|n| window.add(1000 + 10 * (n % 2), 1, b"", [1, 0]));
        assert!(window.past.len() <= PARTS as usize);
    }

    #[test]
    fn a_window_is_a_minute_at_most() {
        assert_eq!([1000, 1009, 1010].map(|now| seconds(0, now)), [51, 60, 51]);
        assert_eq!([990, 1000, 1100].map(|started| seconds(started, 1000)), [11, 1, 1]);
    }
}
