//! The part of an item that lookups change, and the fields that must change together with it, in
//! one atomic word.
//!
//! ```text
//! 0      17       18      22       23       26          27         28      29       30     31        32
//! | time | coarse | marks | expiry | visits | passed on | extended | flags | number | gone | visited |
//! ```
//!
//! The time is that of the last access, modulo 2^17: in seconds, or with `coarse` in units of
//! 1024 seconds. Seconds wrap after 36 hours, coarse time after four years. Sweeps make the time
//! coarse if the last access was long ago ([`AtomicStatus::age`]). They visit each item twice a
//! day, so seconds never wrap.
//!
//! **An item that replaces another** may take over its marks and the time of its last access.
//! Updates change these under the bucket's lock, which the thread that replaces the item holds,
//! too. Lookups have no lock. So that thread first marks the old one's status as passed on
//! ([`AtomicStatus::pass_on`]): from then on, marks and time cannot change. A lookup that would
//! change them is refused ([`AtomicStatus::access`]), and continues under the bucket's lock, where
//! it finds the new item.

use crate::item::layout::{Options, STATUS};
use crate::policy::MAX_VISITS;
use std::ops::{BitAnd, BitOr};
use std::sync::atomic::{AtomicU32, Ordering};

/// What has happened to an item.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Marks(u8);

impl Marks {
    /// No marks.
    pub const NONE: Marks = Marks(0);
    /// The item was fetched since it was stored.
    pub const FETCHED: Marks = Marks(1);
    /// The item was declared stale, but may be served until a client has stored a new value (`md
    /// I`).
    pub const STALE: Marks = Marks(1 << 1);
    /// A client has won the right to store a new value (the meta protocol's `W`).
    pub const WON: Marks = Marks(1 << 2);
    /// The client sent the key in base64, and receives it in base64.
    pub const ENCODED_KEY: Marks = Marks(1 << 3);
    /// A client has set the CAS value, which is stored after the value.
    pub const CLIENT_CAS: Marks = Marks(1 << 4);

    /// Converts from a byte.
    pub fn from_bits(bits: u8) -> Marks {
        Marks(bits)
    }

    /// Converts to a byte.
    pub fn to_bits(self) -> u8 {
        self.0
    }

    /// These marks, and [`CLIENT_CAS`](Self::CLIENT_CAS) if the item has such a value.
    pub(crate) fn with_client_cas(self, has_cas: bool) -> Marks {
        if has_cas { self | Marks::CLIENT_CAS } else { self }
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
const ACCESSED: u32 = (1 << 17) - 1;
/// Whether `ACCESSED` is in units of 2^`COARSE_UNIT` seconds.
const IS_COARSE: u32 = 1 << 17;
const COARSE_UNIT: u32 = 10;
/// The lowest bit of the marks, and all marks.
const MARKS: u32 = 18;
const ALL_MARKS: u8 = (1 << 4) - 1;
/// The item has room for an expiry.
const HAS_EXPIRY: u32 = 1 << 22;
/// The lowest bit of the visits to the item's credit, see [`policy`](crate::policy).
const VISITS: u32 = 23;
const ALL_VISITS: u32 = (MAX_VISITS as u32) << VISITS;
/// The item that replaces this one has taken over marks and time.
const PASSED_ON: u32 = 1 << 26;
/// The item has an extension.
const IS_EXTENDED: u32 = 1 << 27;
/// The item has client flags.
const HAS_FLAGS: u32 = 1 << 28;
/// The item stores its number.
const HAS_NUMBER: u32 = 1 << 29;
/// The item is not in the table any more.
const GONE: u32 = 1 << 30;
/// The item was visited since its block was last swept.
const VISITED: u32 = 1 << 31;

const _: () = assert!((MAX_VISITS + 1).is_power_of_two() && ALL_VISITS < PASSED_ON);
// `CLIENT_CAS` is not in the status, but in the extension.
const _: () = assert!((ALL_MARKS as u32) << MARKS < HAS_EXPIRY && Marks::CLIENT_CAS.0 & ALL_MARKS == 0);

/// The bits that describe the item's layout. They never change.
const OPTIONS: u32 = HAS_EXPIRY | IS_EXTENDED | HAS_FLAGS | HAS_NUMBER;

/// An access is recorded only if the last recorded one is at least this many seconds old, so that a
/// hot item is not written all the time.
const ACCESS_RESOLUTION: u32 = 60;

/// The maximum difference in seconds between the times of commands that run at the same moment: one
/// may have read the clock earlier.
const CLOCK_LAG: u32 = 8;

/// Sweeps make the time of an access coarse if it is older than this: 9 hours, in seconds.
const LONG_AGO: u32 = 1 << 15;

/// Each item has to be swept once in this many seconds, so that the time of its last access becomes
/// coarse before it wraps. Seconds wrap after 36 hours, so a sweep may even be 12 hours late.
pub(crate) const VISIT_INTERVAL: u32 = 12 * 60 * 60;

const _: () = assert!(LONG_AGO + 2 * VISIT_INTERVAL < ACCESSED);

/// The status of an item at some moment.
#[derive(Clone, Copy)]
pub(crate) struct Status(u32);

impl Status {
    /// The status of an item stored at `now`.
    pub(crate) fn new(now: u32, marks: Marks, options: Options) -> Status {
        let Options { has_expiry, is_extended, has_flags, has_number } = options;
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let options = bit(has_expiry, HAS_EXPIRY)
            | bit(is_extended, IS_EXTENDED)
            | bit(has_flags, HAS_FLAGS)
            | bit(has_number, HAS_NUMBER);
        Status(now & ACCESSED | u32::from(marks.0 & ALL_MARKS) << MARKS | options)
    }

    fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }

    /// The optional parts of the item.
    #[inline]
    pub(crate) fn options(self) -> Options {
        Options {
            has_expiry: self.has(HAS_EXPIRY),
            is_extended: self.has(IS_EXTENDED),
            has_flags: self.has(HAS_FLAGS),
            has_number: self.has(HAS_NUMBER),
        }
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
        // Another thread may already have recorded a later second.
        if idle > ACCESSED - CLOCK_LAG { 0 } else { idle }
    }

    /// Whether an access at `now` adds nothing to the marks, nor to the time: the
    /// [idle](Self::idle) time is less than [`ACCESS_RESOLUTION`]. (A coarse time was long ago.)
    fn is_noted(self, now: u32) -> bool {
        const FETCHED: u32 = (Marks::FETCHED.0 as u32) << MARKS;
        let idle = now.wrapping_sub(self.0).wrapping_add(CLOCK_LAG) & ACCESSED;
        self.0 & (FETCHED | IS_COARSE) == FETCHED && idle < ACCESS_RESOLUTION + CLOCK_LAG
    }

    /// The same status with a coarse time of the last access. None if the time is coarse already,
    /// or not long ago.
    fn aged(self, now: u32) -> Option<Status> {
        let idle = self.idle(now);
        let accessed = (now.wrapping_sub(idle) >> COARSE_UNIT) & ACCESSED;
        let is_to_be = !self.has(IS_COARSE) && idle >= LONG_AGO;
        is_to_be.then_some(Status(self.0 & !ACCESSED | accessed | IS_COARSE))
    }

    /// The visits to the item's credit, and whether it was visited since the last sweep.
    pub(crate) fn heat(self) -> (u8, bool) {
        (((self.0 & ALL_VISITS) >> VISITS) as u8, self.has(VISITED))
    }

    fn with_marks(self, marks: Marks) -> Status {
        Status(self.0 | u32::from(marks.0 & ALL_MARKS) << MARKS)
    }

    fn with_access(self, now: u32) -> Status {
        Status(self.0 & !(ACCESSED | IS_COARSE) | now & ACCESSED | VISITED)
    }

    fn with_visits(self, visits: u8) -> Status {
        Status(self.0 & !(VISITED | ALL_VISITS) | u32::from(visits) << VISITS)
    }
}

/// The status of an item that other threads may read and change.
#[repr(transparent)]
pub(crate) struct AtomicStatus(AtomicU32);

const _: () = assert!(size_of::<AtomicStatus>() == STATUS && align_of::<AtomicStatus>() == STATUS);

impl AtomicStatus {
    pub(crate) fn new(status: Status) -> AtomicStatus {
        AtomicStatus(AtomicU32::new(status.0))
    }

    #[inline]
    pub(crate) fn load(&self) -> Status {
        // Relaxed: no other data depends on it, and bucket locks order the threads whose decisions
        // do.
        Status(self.0.load(Ordering::Relaxed))
    }

    /// Sets the status to the result of `change`, and returns the previous status. If `change`
    /// returns none, changes nothing and returns none.
    fn update(&self, mut change: impl FnMut(Status) -> Option<Status>) -> Option<Status> {
        // Relaxed: as in `load`.
        let update = |status| change(Status(status)).map(|status| status.0);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).ok().map(Status)
    }

    /// Records an access at `now`: that the item was fetched; the time, if the recorded one is old
    /// or that of the store; and the visit, if there was none since the last sweep. Otherwise
    /// writes nothing. Returns the previous status. None if the status would have to change, but
    /// has passed on.
    ///
    /// Lock-free. Retries are rare, because other threads seldom change the status.
    #[inline(always)]
    pub(crate) fn access(&self, now: u32) -> Option<Status> {
        self.access_since(self.load(), now)
    }

    /// Like [`access`](Self::access), of an item whose status was read just now.
    #[inline(always)]
    pub(crate) fn access_since(&self, status: Status, now: u32) -> Option<Status> {
        if status.is_noted(now) && status.has(VISITED) { Some(status) } else { self.note(status, now) }
    }

    #[cold]
    fn note(&self, status: Status, now: u32) -> Option<Status> {
        if status.is_noted(now) {
            // `VISITED` is a hint, and may be lost if the item is being copied. So this does not
            // look for `PASSED_ON`. (Relaxed: as in `load`.)
            return Some(Status(self.0.fetch_or(VISITED, Ordering::Relaxed)));
        }
        self.update(|status| (!status.has(PASSED_ON)).then(|| status.with_marks(Marks::FETCHED).with_access(now)))
    }

    /// Adds `marks`, and records an access if there is one. Returns the previous status. The bucket
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

    /// Returns the status, and keeps its marks and time from changing: another item takes them
    /// over, and will replace this one next. The bucket lock is held.
    pub(crate) fn pass_on(&self) -> Status {
        // Relaxed: as in `load`.
        Status(self.0.fetch_or(PASSED_ON, Ordering::Relaxed))
    }

    /// Takes over, at `now`, the status of an item of which this one is a copy, and sets its
    /// `visits`. No other thread knows this item.
    pub(crate) fn take_over(&self, status: Status, visits: u8, now: u32) {
        self.adopt(status.with_visits(visits), now);
    }

    /// Takes over, at `now`, all of the status of an item of which this one is a copy, except what
    /// describes the layout. No other thread knows this item.
    pub(crate) fn adopt(&self, status: Status, now: u32) {
        debug_assert!(!status.has(PASSED_ON) && !status.has(GONE), "an item is copied once, and before it goes");
        let status = status.aged(now).unwrap_or(status);
        // Relaxed: as in `load`.
        self.0.store(status.0 & !OPTIONS | self.load().0 & OPTIONS, Ordering::Relaxed);
    }

    /// Makes the time of the last access coarse if it was long before `now`. Called by the sweep of
    /// the item's block.
    pub(crate) fn age(&self, now: u32) {
        if self.load().aged(now).is_some() {
            self.update(|status| if status.has(PASSED_ON) { None } else { status.aged(now) });
        }
    }

    /// Sets the visits to the item's credit, and starts counting new ones. Called by the sweep of
    /// the item's block.
    pub(crate) fn cool(&self, visits: u8) {
        self.update(|status| Some(status.with_visits(visits)));
    }

    /// Marks the item as unlinked from the table.
    pub(crate) fn set_gone(&self) {
        // Release: pairs with the Acquire in `is_gone`.
        self.0.fetch_or(GONE, Ordering::Release);
    }

    /// Whether the item is certainly unlinked from the table.
    pub(crate) fn is_gone(&self) -> bool {
        // Acquire: pairs with the Release in `set_gone`. The grace period that the sweep of the
        // block begins later must come after the unlinking. Otherwise readers for which it does not
        // wait could find the item.
        Status(self.0.load(Ordering::Acquire)).has(GONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(now: u32) -> AtomicStatus {
        let options = Options { has_expiry: true, is_extended: false, has_flags: true, has_number: false };
        AtomicStatus::new(Status::new(now, Marks::ENCODED_KEY | Marks::CLIENT_CAS, options))
    }

    fn facts(status: &AtomicStatus, now: u32) -> (Marks, u32) {
        let status = status.load();
        (status.marks(), status.idle(now))
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
    fn visits_count_from_sweep_to_sweep() {
        let status = status(100);
        for turn in 0..3 {
            assert_eq!(status.load().heat(), (turn, false));
            status.access(101);
            assert_eq!(status.load().heat(), (turn, true));
            status.cool(turn + 1);
        }
        assert_eq!(
            facts(&status, 101),
            (Marks::ENCODED_KEY | Marks::FETCHED, 0),
            "marks and time are independent of visits"
        );
    }

    #[test]
    fn a_status_that_has_passed_on_does_not_change() {
        let (old, copy) = (status(100), status(100));
        copy.take_over(old.pass_on(), 3, 200);
        assert!(old.access(200).is_none());
        assert_eq!((facts(&old, 200), facts(&copy, 200)), ((Marks::ENCODED_KEY, 100), (Marks::ENCODED_KEY, 100)));
        assert_eq!(copy.access(200).map(|before| before.idle(200)), Some(100), "as it would have been reported before");
        assert_eq!(copy.load().heat(), (3, true));
    }

    #[test]
    fn an_earlier_access_passes_on() {
        let (old, copy) = (status(100), status(100));
        assert!(old.access(200).is_some());
        copy.take_over(old.pass_on(), 0, 200);
        assert_eq!(facts(&copy, 205), (Marks::ENCODED_KEY | Marks::FETCHED, 5));
        assert!(old.access(205).is_some(), "the copy has what there is to note");
    }

    #[test]
    fn a_copy_keeps_its_own_layout() {
        let options = Options { has_expiry: false, is_extended: true, has_flags: false, has_number: true };
        let (old, copy) = (AtomicStatus::new(Status::new(100, Marks::STALE, options)), status(100));
        old.access(150);
        copy.adopt(old.pass_on(), 200);
        assert_eq!((facts(&copy, 200), copy.load().heat()), ((Marks::STALE | Marks::FETCHED, 50), (0, true)));
        assert!(copy.load().options() == status(0).load().options());
    }

    #[test]
    fn marks_and_access_leave_the_rest() {
        let status = status(100);
        status.mark(Marks::STALE | Marks::WON, None);
        assert_eq!(facts(&status, 105), (Marks::ENCODED_KEY | Marks::STALE | Marks::WON, 5));
        status.mark(Marks::FETCHED, Some(103));
        assert!(status.load().marks().has(Marks::FETCHED) && status.load().heat().1);
        assert_eq!(facts(&status, 105).1, 2, "at once, not only every minute");
        assert!(!status.is_gone());
        status.set_gone();
        assert!(status.is_gone());
    }

    #[test]
    fn an_item_not_accessed_for_long_is_idle_for_as_long() {
        const HOUR: u32 = 3600;
        let begin = 1_700_000_123;
        let status = status(begin);
        assert_eq!(facts(&status, begin + 36 * HOUR).1, 36 * HOUR, "to the second, for 36 hours");
        let mut last = 0;
        for hours in (0..3 * 365 * 24).step_by(11) {
            let now = begin + hours * HOUR;
            let idle = facts(&status, now).1;
            assert!((hours * HOUR..hours * HOUR + 1024).contains(&idle) && idle >= last, "{idle} s after {hours} h");
            last = idle;
            status.age(now);
        }
        assert_eq!(facts(&status, begin).0, Marks::ENCODED_KEY, "marks do not change");
        let now = begin + 4 * 365 * 24 * HOUR;
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
