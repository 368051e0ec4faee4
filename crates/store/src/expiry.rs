//! Conversion of the protocol's expiry times to the second in which an item expires.

/// Protocol times up to this (30 days) are relative, larger ones are Unix times.
const MAX_RELATIVE: i32 = 60 * 60 * 24 * 30;

/// The second from which on an item is expired; 0 means never. It fits a header word of an item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Expiry(u32);

impl Expiry {
    /// The item never expires.
    pub const NEVER: Expiry = Expiry(0);

    /// Converts the `exptime` of a command received at `now`: 0 means never, negative means past,
    /// up to 30 days is relative to `now`, and more is a Unix time.
    pub fn from_protocol(exptime: i32, now: u32) -> Expiry {
        match exptime {
            0 => Expiry::NEVER,
            ..0 => Expiry::at(now),
            1..=MAX_RELATIVE => Expiry::at(now.saturating_add(exptime.unsigned_abs())),
            _ => Expiry::at(exptime.unsigned_abs()),
        }
    }

    /// Like [`from_protocol`](Self::from_protocol), for the binary protocol, which has no negative
    /// times.
    pub fn from_unsigned(exptime: u32, now: u32) -> Expiry {
        i32::try_from(exptime).map_or(Expiry::at(exptime), |exptime| Expiry::from_protocol(exptime, now))
    }

    /// Converts from a header word.
    pub fn from_bits(bits: u32) -> Expiry {
        Expiry(bits)
    }

    /// Converts to a header word.
    pub fn to_bits(self) -> u32 {
        self.0
    }

    /// Whether an item with this expiry is expired at `now`.
    pub fn has_passed(self, now: u32) -> bool {
        self != Expiry::NEVER && self.0 <= now
    }

    /// Expired from `second` on. Second 0 stands for never, so second 1 takes its place.
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
        for exptime in [1, 9, MAX_RELATIVE] {
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
        assert!(Expiry::from_protocol(MAX_RELATIVE + 1, NOW).has_passed(NOW));
        assert!(!Expiry::from_protocol(i32::MAX, NOW).has_passed(NOW));
        assert!(Expiry::from_protocol(NOW as i32 + 5, NOW).has_passed(NOW + 5));
    }
}
