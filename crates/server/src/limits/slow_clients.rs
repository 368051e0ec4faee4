//! The minimum speed of clients that hold memory which others need.
//!
//! A client that receives or sends a large value pins its block of item memory. The memory that all
//! clients together may pin is bounded, so a slow client takes it from others. So does a client
//! that does not take its replies, while the buffers of all clients together are near their limit.
//! How fast a client could be is unknown. One that moves less than [`MIN_BYTES`] in [`PERIOD`]
//! seconds has stopped, or wants to keep the memory, and is closed.
//!
//! A client has taken the bytes that its kernel has acknowledged, where ours reports that
//! (`Stream::acknowledged`). Otherwise it has taken the bytes that our kernel has accepted.

/// The bytes that a client has to move within [`PERIOD`]. That is about 1 KiB per second, which any
/// network that is fit for a cache exceeds.
pub(crate) const MIN_BYTES: u64 = 64 << 10;

/// The period in which a client has to move [`MIN_BYTES`], in seconds.
pub(crate) const PERIOD: u32 = 60;

/// How much a client has moved so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Progress {
    /// Whether the server sends to the client. Otherwise the client sends.
    pub(crate) is_sending: bool,
    /// Bytes moved in this direction.
    pub(crate) bytes: u64,
}

/// The number of seconds without [`MIN_BYTES`] after which a client counts as stalled.
const STALLED: u32 = 3;

/// The progress of a client.
#[derive(Debug, Default)]
pub(crate) struct ProgressCheck {
    /// The progress when the client last had moved enough bytes, and the second of that.
    last: Option<(Progress, u32)>,
    is_stalled: bool,
}

impl ProgressCheck {
    /// Whether the client had stalled when its progress was last noted.
    pub(crate) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Notes the progress of a client at `now`, or that it holds nothing that others need. Returns
    /// whether the client is too slow.
    pub(crate) fn is_too_slow(&mut self, progress: Option<Progress>, now: u32) -> bool {
        if let (Some((last, since)), Some(progress)) = (self.last, progress)
            && last.is_sending == progress.is_sending
            // `None` if the bytes are now counted in another way, and are fewer.
            && progress.bytes.checked_sub(last.bytes).is_some_and(|moved| moved < MIN_BYTES)
        {
            self.is_stalled = now.saturating_sub(since) >= STALLED;
            return now.saturating_sub(since) > PERIOD;
        }
        *self = ProgressCheck { last: progress.map(|progress| (progress, now)), is_stalled: false };
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bytes: u64) -> Option<Progress> {
        Some(Progress { is_sending: true, bytes })
    }

    fn given(bytes: u64) -> Option<Progress> {
        Some(Progress { is_sending: false, bytes })
    }

    /// The second in which a client that takes `rate` bytes per second is closed.
    fn lasts(rate: u64, max: u32) -> Option<u32> {
        let mut progress_check = ProgressCheck::default();
        (0..max).find(|&second| progress_check.is_too_slow(taken(rate * u64::from(second)), 1_000 + second))
    }

    #[test]
    fn a_client_that_transfers_enough_is_kept() {
        for rate in [MIN_BYTES.div_ceil(u64::from(PERIOD)), 20_000, 1 << 30] {
            assert_eq!(lasts(rate, 100_000), None);
        }
    }

    #[test]
    fn a_client_that_transfers_too_little_is_closed() {
        for rate in [0, 1, 100, MIN_BYTES / u64::from(PERIOD) - 20] {
            assert_eq!(lasts(rate, 100_000), Some(PERIOD + 1), "{rate} bytes in a second");
        }
    }

    /// A client that moves many bytes at once gets no more time for them. Nor does it get any for
    /// the time in which it pinned nothing.
    #[test]
    fn time_counts_from_where_a_client_had_moved_enough() {
        let mut progress_check = ProgressCheck::default();
        assert!(!progress_check.is_too_slow(None, 0) && !progress_check.is_too_slow(None, 500), "nothing is pinned");
        let mut at = |progress, now| progress_check.is_too_slow(progress, now);
        assert!(!at(taken(0), 600) && !at(taken(MIN_BYTES - 1), 660) && at(taken(MIN_BYTES - 1), 661));
        assert!(!at(taken(1 << 30), 662) && !at(taken(1 << 30), 722) && at(taken((1 << 30) + 1), 723));
        // The other direction; then the same direction, with bytes that are counted in another way.
        assert!(!at(given(1 << 30), 724) && !at(given(1 << 30), 784) && at(given(1 << 30), 785));
        assert!(!at(given(5), 786) && !at(given(5), 846) && at(given(5), 847));
        assert!(!at(None, 848) && !at(given(5), 2_000) && !at(given(5), 2_060) && at(given(5), 2_061));
    }
}
