//! From the expiry times of the protocol to the second in which an item ends.

/// Protocol times up to this (30 days) are relative, larger ones are Unix times.
const LARGEST_RELATIVE: i32 = 60 * 60 * 24 * 30;

/// The second from which on an item is gone; never, if zero. It fits a header word of an item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Expiry(u32);

impl Expiry {
    /// The item stays.
    pub const NEVER: Expiry = Expiry(0);

    /// The expiry that `exptime` of a command received at `now` asks for: none if zero, past if
    /// negative, relative to `now` up to 30 days, a Unix time beyond.
    pub fn from_protocol(exptime: i32, now: u32) -> Expiry {
        match exptime {
            0 => Expiry::NEVER,
            ..0 => Expiry::at(now),
            1..=LARGEST_RELATIVE => Expiry::at(now.saturating_add(exptime.unsigned_abs())),
            _ => Expiry::at(exptime.unsigned_abs()),
        }
    }

    /// The same for the binary protocol, which has no negative times.
    pub fn from_unsigned(exptime: u32, now: u32) -> Expiry {
        i32::try_from(exptime).map_or(Expiry::at(exptime), |exptime| Expiry::from_protocol(exptime, now))
    }

    /// From a header word.
    pub fn from_bits(bits: u32) -> Expiry {
        Expiry(bits)
    }

    /// For a header word.
    pub fn to_bits(self) -> u32 {
        self.0
    }

    /// Whether an item with this expiry is gone at `now`.
    pub fn has_passed(self, now: u32) -> bool {
        self != Expiry::NEVER && self.0 <= now
    }

    /// Gone from `second` on. Second zero stands for never, so the one after it takes its place.
    fn at(second: u32) -> Expiry {
        Expiry(second.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1_700_000_000;

    #[test]
    fn zero_never_passes() {
        assert!(!Expiry::from_protocol(0, NOW).has_passed(u32::MAX));
    }

    #[test]
    fn negative_has_passed_at_once() {
        for exptime in [-1, i32::MIN] {
            assert!(Expiry::from_protocol(exptime, NOW).has_passed(NOW));
            assert!(Expiry::from_protocol(exptime, 0).has_passed(1));
        }
    }

    #[test]
    fn relative_times_end_at_their_second() {
        for exptime in [1, 9, LARGEST_RELATIVE] {
            let expiry = Expiry::from_protocol(exptime, NOW);
            assert!(!expiry.has_passed(NOW + exptime as u32 - 1));
            assert!(expiry.has_passed(NOW + exptime as u32));
        }
    }

    #[test]
    fn unsigned_times_are_never_negative() {
        assert_eq!(Expiry::from_unsigned(0, NOW), Expiry::NEVER);
        assert_eq!(Expiry::from_unsigned(9, NOW), Expiry::from_protocol(9, NOW));
        assert!(!Expiry::from_unsigned(u32::MAX, NOW).has_passed(NOW));
    }

    #[test]
    fn beyond_thirty_days_is_a_unix_time() {
        assert!(Expiry::from_protocol(LARGEST_RELATIVE + 1, NOW).has_passed(NOW));
        assert!(!Expiry::from_protocol(i32::MAX, NOW).has_passed(NOW));
        assert!(Expiry::from_protocol(NOW as i32 + 5, NOW).has_passed(NOW + 5));
    }
}
