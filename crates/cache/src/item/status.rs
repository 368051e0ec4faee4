//! The part of an item that lookups change, and what must change together with it, in one atomic
//! word.
//!
//! ```text
//! 0        18       19      24       27          28     29      30     31        32
//! | accessed | coarse | marks | visits | passed on | long | flags | gone | visited |
//! ```
//!
//! `accessed` is the time of the last access, modulo 2^18: in seconds, or with `coarse` in units of
//! 1024 seconds. Seconds wrap after three days, coarse time after eight years. Sweeps make the time
//! coarse if the last access was long ago ([`AtomicStatus::age`]). They visit each item once a day,
//! so seconds never wrap.
//!
//! **An item that replaces another** may take over its marks and the time of its last access.
//! Updates change these under the bucket's lock, where the replacement happens, too. Lookups have
//! no lock. So the thread that makes the new item first marks the old one's status as passed on
//! ([`AtomicStatus::pass_on`]): marks and time cannot change any more then. A lookup that would
//! change them is refused ([`AtomicStatus::access`]), and goes on under the bucket's lock, where it
//! finds the new item.

use crate::policy::MAX_VISITS;
use std::ops::{BitAnd, BitOr};
use std::sync::atomic::{AtomicU32, Ordering};

/// What has happened to an item.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Marks(u8);

impl Marks {
    /// Nothing.
    pub const NONE: Marks = Marks(0);
    /// It was fetched since it was stored.
    pub const FETCHED: Marks = Marks(1);
    /// It was declared stale, but may be served until a client has stored a new value (`md I`).
    pub const STALE: Marks = Marks(1 << 1);
    /// A client has won the right to store a new value (the meta protocol's `W`).
    pub const WON: Marks = Marks(1 << 2);
    /// Its key was given in base64, and is returned so.
    pub const ENCODED_KEY: Marks = Marks(1 << 3);
    /// Its CAS value was given by a client, and stands behind the value.
    pub const CLIENT_CAS: Marks = Marks(1 << 4);

    /// From a byte that was kept.
    pub fn from_bits(bits: u8) -> Marks {
        Marks(bits)
    }

    /// A byte to keep.
    pub fn to_bits(self) -> u8 {
        self.0
    }

    /// Without the marks that describe the item's layout.
    pub(crate) fn of_others(self) -> Marks {
        Marks(self.0 & ALL_MARKS & !Marks::CLIENT_CAS.0)
    }

    /// Whether any of `marks` is among these.
    pub fn has(self, marks: Marks) -> bool {
        self.0 & marks.0 != 0
    }
}

impl BitOr for Marks {
    type Output = Marks;

    fn bitor(self, other: Marks) -> Marks {
        Marks(self.0 | other.0)
    }
}

impl BitAnd for Marks {
    type Output = Marks;

    fn bitand(self, other: Marks) -> Marks {
        Marks(self.0 & other.0)
    }
}

/// The time of the last access, in seconds or coarse.
const ACCESSED: u32 = (1 << 18) - 1;
/// Whether `ACCESSED` is in units of 2^`COARSE_UNIT` seconds.
const IS_COARSE: u32 = 1 << 18;
const COARSE_UNIT: u32 = 10;
/// Where the marks begin, and all marks.
const MARKS: u32 = 19;
const ALL_MARKS: u8 = (1 << 5) - 1;
/// Where the visits to the item's credit begin, see [`policy`](crate::policy).
const VISITS: u32 = 24;
const ALL_VISITS: u32 = (MAX_VISITS as u32) << VISITS;
/// Another item, which takes this one's place, has what is noted here.
const PASSED_ON: u32 = 1 << 27;
/// There is the upper half of the value's length.
const IS_LONG: u32 = 1 << 28;
/// There are client flags.
const HAS_FLAGS: u32 = 1 << 29;
/// Not in the table any more.
const GONE: u32 = 1 << 30;
/// Visited since its block was last swept.
const VISITED: u32 = 1 << 31;

const _: () = assert!((MAX_VISITS + 1).is_power_of_two() && ALL_VISITS < PASSED_ON);
const _: () = assert!((ALL_MARKS as u32) << MARKS < 1 << VISITS && Marks::CLIENT_CAS.0 <= ALL_MARKS);

/// Accesses are noted when the last one noted is that many seconds old, so that a hot item is not
/// written all the time.
const ACCESS_RESOLUTION: u32 = 60;

/// Seconds by which a command that has begun before may take the present for earlier than the
/// others do.
const CLOCK_LAG: u32 = 8;

/// Sweeps make the time of an access coarse if it is older than this: 18 hours, in seconds.
const LONG_AGO: u32 = 1 << 16;

/// Each item has to be swept once in this many seconds, so that the time of its last access becomes
/// coarse before it wraps. A sweep may be late by the same time again, and by [`LONG_AGO`].
pub(crate) const VISIT_INTERVAL: u32 = 24 * 60 * 60;

const _: () = assert!(LONG_AGO + 2 * VISIT_INTERVAL < ACCESSED);

/// The status of an item at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Status(u32);

impl Status {
    /// That of an item stored at `now`.
    pub(crate) fn new(now: u32, marks: Marks, is_long: bool, has_flags: bool) -> Status {
        let options = if is_long { IS_LONG } else { 0 } | if has_flags { HAS_FLAGS } else { 0 };
        Status(now & ACCESSED | u32::from(marks.0 & ALL_MARKS) << MARKS | options)
    }

    fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }

    /// Whether there is the upper half of the value's length.
    pub(crate) fn is_long(self) -> bool {
        self.has(IS_LONG)
    }

    /// Whether there are client flags.
    pub(crate) fn has_flags(self) -> bool {
        self.has(HAS_FLAGS)
    }

    pub(crate) fn marks(self) -> Marks {
        Marks((self.0 >> MARKS) as u8 & ALL_MARKS)
    }

    /// Seconds since the last access: up to [`ACCESS_RESOLUTION`] too many, or up to 17 minutes if
    /// the time is coarse.
    pub(crate) fn idle(self, now: u32) -> u32 {
        if self.has(IS_COARSE) {
            const RANGE: u32 = (ACCESSED << COARSE_UNIT) | ((1 << COARSE_UNIT) - 1);
            return now.wrapping_sub((self.0 & ACCESSED) << COARSE_UNIT) & RANGE;
        }
        let idle = now.wrapping_sub(self.0) & ACCESSED;
        // Another thread may have seen the next second already.
        if idle > ACCESSED - CLOCK_LAG { 0 } else { idle }
    }

    /// The same status with a coarse time of the last access. None if that is coarse already, or
    /// not long ago.
    fn aged(self, now: u32) -> Option<Status> {
        let idle = self.idle(now);
        let accessed = (now.wrapping_sub(idle) >> COARSE_UNIT) & ACCESSED;
        let is_to_be = !self.has(IS_COARSE) && idle >= LONG_AGO;
        is_to_be.then_some(Status(self.0 & !ACCESSED | accessed | IS_COARSE))
    }

    /// Visits to the item's credit, and whether it was visited since the last look.
    pub(crate) fn heat(self) -> (u8, bool) {
        (((self.0 & ALL_VISITS) >> VISITS) as u8, self.has(VISITED))
    }

    fn with_marks(self, marks: Marks) -> Status {
        Status(self.0 | u32::from(marks.of_others().0) << MARKS)
    }

    fn with_access(self, now: u32) -> Status {
        Status(self.0 & !(ACCESSED | IS_COARSE) | now & ACCESSED | VISITED)
    }

    fn with_visits(self, visits: u8) -> Status {
        Status(self.0 & !(VISITED | ALL_VISITS) | u32::from(visits) << VISITS)
    }
}

/// The status of an item that others look at.
#[repr(transparent)]
pub(crate) struct AtomicStatus(AtomicU32);

impl AtomicStatus {
    pub(crate) fn new(status: Status) -> AtomicStatus {
        AtomicStatus(AtomicU32::new(status.0))
    }

    #[inline]
    pub(crate) fn load(&self) -> Status {
        // Relaxed: stands for itself, and bucket locks order the threads that decide by it.
        Status(self.0.load(Ordering::Relaxed))
    }

    /// Changes it as `change` says, and returns what it was before; or leaves it, and returns none,
    /// if that says so.
    fn update(&self, mut change: impl FnMut(Status) -> Option<Status>) -> Option<Status> {
        // Relaxed: as in `load`.
        let update = |status| change(Status(status)).map(|status| status.0);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).ok().map(Status)
    }

    /// Notes an access at `now`: that the item was fetched; the time, if the one noted is old or
    /// that of the store; and the visit, if there was none since the eviction last looked. Writes
    /// nothing otherwise. Returns the status before. None if it would have to be changed, but has
    /// passed on.
    ///
    /// Lock-free, and short: there is little that others might change in the meantime.
    #[inline(always)]
    pub(crate) fn access(&self, now: u32) -> Option<Status> {
        let status = self.load();
        let is_noted = status.marks().has(Marks::FETCHED) && status.idle(now) < ACCESS_RESOLUTION;
        if is_noted && status.has(VISITED) { Some(status) } else { self.note(is_noted, now) }
    }

    #[cold]
    fn note(&self, is_noted: bool, now: u32) -> Option<Status> {
        if is_noted {
            // A hint, lost when the item is moving on. (Relaxed: as in `load`.)
            return Some(Status(self.0.fetch_or(VISITED, Ordering::Relaxed)));
        }
        self.update(|status| (!status.has(PASSED_ON)).then(|| status.with_marks(Marks::FETCHED).with_access(now)))
    }

    /// Adds `marks`, and notes an access if there is one. Returns the previous status. The bucket
    /// lock is held, or no other thread knows the item.
    pub(crate) fn mark(&self, marks: Marks, access: Option<u32>) -> Status {
        let marked = |status: Status| access.into_iter().fold(status.with_marks(marks), Status::with_access);
        let mut before = self.load();
        self.update(|status| {
            before = status;
            Some(marked(status)).filter(|marked| marked.0 != status.0)
        });
        before
    }

    /// Marks and time of access are what is returned, and will not change any more: another item
    /// takes them over, which is linked in this one's place next. The bucket lock is held.
    pub(crate) fn pass_on(&self) -> Status {
        // Relaxed: as in `load`.
        Status(self.0.fetch_or(PASSED_ON, Ordering::Relaxed))
    }

    /// Takes over, at `now`, the status of an item of which this one is a copy, and sets its
    /// `visits`. No other thread knows this item.
    pub(crate) fn take_over(&self, status: Status, visits: u8, now: u32) {
        debug_assert!(!status.has(PASSED_ON) && !status.has(GONE), "an item is copied once, and before it goes");
        let status = status.aged(now).unwrap_or(status).with_visits(visits);
        // Relaxed: as in `load`.
        self.0.store(status.0, Ordering::Relaxed);
    }

    /// Makes the time of the last access coarse if that was long before `now`. Call this in a sweep
    /// of its block.
    pub(crate) fn age(&self, now: u32) {
        if self.load().aged(now).is_some() {
            self.update(|status| if status.has(PASSED_ON) { None } else { status.aged(now) });
        }
    }

    /// Sets the visits to the item's credit, and starts counting new ones. For the sweep of its
    /// block.
    pub(crate) fn cool(&self, visits: u8) {
        self.update(|status| Some(status.with_visits(visits)));
    }

    /// Notes that the item has left the table.
    pub(crate) fn set_gone(&self) {
        // Release: pairs with the Acquire in `is_gone`.
        self.0.fetch_or(GONE, Ordering::Release);
    }

    /// Whether the item has left the table for certain.
    pub(crate) fn is_gone(&self) -> bool {
        // Acquire: pairs with the Release in `set_gone`. The grace period that the sweep of its
        // block begins later must come after the unlinking: readers that it does not wait for would
        // find the item otherwise.
        Status(self.0.load(Ordering::Acquire)).has(GONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(now: u32) -> AtomicStatus {
        AtomicStatus::new(Status::new(now, Marks::ENCODED_KEY | Marks::CLIENT_CAS, false, true))
    }

    fn facts(status: &AtomicStatus, now: u32) -> (Marks, u32) {
        let status = status.load();
        (status.marks().of_others(), status.idle(now))
    }

    #[test]
    fn accesses_are_noted_by_the_minute() {
        let status = status(100);
        assert_eq!(status.access(110).map(|before| before.idle(110)), Some(10), "as it was before");
        assert_eq!(facts(&status, 115), (Marks::ENCODED_KEY | Marks::FETCHED, 5), "the first access counts");
        status.access(169);
        assert_eq!(facts(&status, 169).1, 59);
        status.access(170);
        assert_eq!(facts(&status, 171).1, 1);
        assert_eq!(facts(&status, 165).1, 0, "a command that began before");
    }

    #[test]
    fn visits_count_from_look_to_look() {
        let status = status(100);
        for turn in 0..3 {
            assert_eq!(status.load().heat(), (turn, false));
            status.access(101);
            assert_eq!(status.load().heat(), (turn, true));
            status.cool(turn + 1);
        }
        assert_eq!(facts(&status, 101), (Marks::ENCODED_KEY | Marks::FETCHED, 0), "that is another matter");
    }

    #[test]
    fn what_has_passed_on_does_not_change() {
        let (old, copy) = (status(100), status(100));
        copy.take_over(old.pass_on(), 3, 200);
        assert!(old.access(200).is_none());
        assert_eq!((facts(&old, 200), facts(&copy, 200)), ((Marks::ENCODED_KEY, 100), (Marks::ENCODED_KEY, 100)));
        assert_eq!(copy.access(200).map(|before| before.idle(200)), Some(100), "as it would have been told before");
        assert_eq!(copy.load().heat(), (3, true));
    }

    #[test]
    fn what_was_noted_before_passes_on() {
        let (old, copy) = (status(100), status(100));
        assert!(old.access(200).is_some());
        copy.take_over(old.pass_on(), 0, 200);
        assert_eq!(facts(&copy, 205), (Marks::ENCODED_KEY | Marks::FETCHED, 5));
        assert!(old.access(205).is_some(), "the copy has what there is to note");
        assert!(copy.load().marks().has(Marks::CLIENT_CAS) && copy.load().has_flags() && !copy.load().is_long());
    }

    #[test]
    fn marks_and_access_leave_the_rest() {
        let status = status(100);
        status.mark(Marks::STALE | Marks::WON, None);
        assert_eq!(facts(&status, 105), (Marks::ENCODED_KEY | Marks::STALE | Marks::WON, 5));
        status.mark(Marks::FETCHED, Some(103));
        assert!(status.load().marks().has(Marks::FETCHED) && status.load().heat().1);
        assert_eq!(facts(&status, 105).1, 2, "at once, not by the minute");
        assert!(!status.is_gone());
        status.set_gone();
        assert!(status.is_gone());
    }

    #[test]
    fn what_nobody_accesses_for_long_is_idle_for_as_long() {
        const HOUR: u32 = 3600;
        let begin = 1_700_000_123;
        let status = status(begin);
        assert_eq!(facts(&status, begin + 70 * HOUR).1, 70 * HOUR, "to the second, for three days");
        let mut last = 0;
        for hours in (0..5 * 365 * 24).step_by(23) {
            let now = begin + hours * HOUR;
            let idle = facts(&status, now).1;
            assert!((hours * HOUR..hours * HOUR + 1024).contains(&idle) && idle >= last, "{idle} s after {hours} h");
            last = idle;
            status.age(now);
        }
        assert_eq!(facts(&status, begin).0, Marks::ENCODED_KEY, "marks do not change");
        let now = begin + 6 * 365 * 24 * HOUR;
        let copy = self::status(0);
        copy.take_over(status.load(), 0, now);
        assert_eq!(facts(&copy, now), facts(&status, now));
        copy.access(now);
        assert_eq!(facts(&copy, now + 7).1, 7, "to the second again");
        // A copy makes the time coarse if no sweep has.
        let (old, copy) = (self::status(begin), self::status(0));
        copy.take_over(old.pass_on(), 0, begin + 30 * HOUR);
        assert!((80 * HOUR..80 * HOUR + 1024).contains(&facts(&copy, begin + 80 * HOUR).1));
    }
}
