//! How fast a client has to be that keeps large values on loan.
//!
//! What all clients can keep that way is bounded, so who takes his time keeps it from others. Nobody knows how fast a client could be: who does not
//! move [so many](LEAST) bytes [in a minute](PERIOD) has stopped, or wants to keep what it has.
//!
//! What a client has taken is what its kernel has acknowledged, where ours tells (`Stream::acknowledged`).
//! Elsewhere it is what our kernel has accepted for it: for a client that is slow, a part of the socket's buffer at a time.

/// Bytes that a client has to move within [`PERIOD`]. Some kilobyte per second: enough for any network that somebody would put a cache on.
pub(crate) const LEAST: u64 = 64 << 10;

/// In seconds.
pub(crate) const PERIOD: u32 = 60;

/// How far a client is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Mark {
    /// Whether it is the client who takes.
    pub(crate) is_sending: bool,
    /// That have gone this way so far.
    pub(crate) bytes: u64,
}

/// Where a client was, and in which second, when it last had moved enough.
#[derive(Debug, Default)]
pub(crate) struct Pace(Option<(Mark, u32)>);

impl Pace {
    /// Takes note of how far a client is at `now`, if it keeps something on loan, and tells whether it is too slow.
    pub(crate) fn is_too_slow(&mut self, mark: Option<Mark>, now: u32) -> bool {
        if let (Some((last, since)), Some(mark)) = (self.0, mark)
            && last.is_sending == mark.is_sending
            // There would be fewer if they were counted in another way now.
            && mark.bytes.checked_sub(last.bytes).is_some_and(|moved| moved < LEAST)
        {
            return now.saturating_sub(since) > PERIOD;
        }
        self.0 = mark.map(|mark| (mark, now));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bytes: u64) -> Option<Mark> {
        Some(Mark { is_sending: true, bytes })
    }

    fn given(bytes: u64) -> Option<Mark> {
        Some(Mark { is_sending: false, bytes })
    }

    /// Seconds after which a client is closed that takes so many bytes in each.
    fn lasts(rate: u64, most: u32) -> Option<u32> {
        let mut pace = Pace::default();
        (0..most).find(|&second| pace.is_too_slow(taken(rate * u64::from(second)), 1_000 + second))
    }

    #[test]
    fn who_moves_enough_is_waited_for() {
        for rate in [LEAST.div_ceil(u64::from(PERIOD)), 20_000, 1 << 30] {
            assert_eq!(lasts(rate, 100_000), None);
        }
    }

    #[test]
    fn who_moves_too_little_is_not() {
        for rate in [0, 1, 100, LEAST / u64::from(PERIOD) - 20] {
            assert_eq!(lasts(rate, 100_000), Some(PERIOD + 1), "{rate} bytes in a second");
        }
    }

    /// Much in one go buys no more time than a little, and nor does what nobody has on loan.
    #[test]
    fn time_counts_from_where_a_client_had_moved_enough() {
        let mut pace = Pace::default();
        assert!(!pace.is_too_slow(None, 0) && !pace.is_too_slow(None, 500), "nothing is on loan");
        let mut at = |mark, now| pace.is_too_slow(mark, now);
        assert!(!at(taken(0), 600) && !at(taken(LEAST - 1), 660) && at(taken(LEAST - 1), 661));
        assert!(!at(taken(1 << 30), 662) && !at(taken(1 << 30), 722) && at(taken((1 << 30) + 1), 723));
        // The other way, and then by other numbers.
        assert!(!at(given(1 << 30), 724) && !at(given(1 << 30), 784) && at(given(1 << 30), 785));
        assert!(!at(given(5), 786) && !at(given(5), 846) && at(given(5), 847));
        assert!(!at(None, 848) && !at(given(5), 2_000) && !at(given(5), 2_060) && at(given(5), 2_061));
    }
}
