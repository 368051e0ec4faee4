//! Moments that a server can compare with those of its predecessor, even if a clock was wrong.

use relativist_store::Ticker;
use std::time::{SystemTime, UNIX_EPOCH};

/// A moment, by the system's clocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Moment {
    /// Seconds since the Unix epoch. Setting the system's time changes it.
    pub(super) wall: u64,
    /// The boot of the system and the seconds since then, if the system reports them. Setting the
    /// time does not change these.
    pub(super) boot: Option<(BootId, u64)>,
}

/// The identity of a boot of the system.
pub(super) type BootId = [u8; 16];

impl Moment {
    /// The current moment. `boot` is the identity of this boot.
    pub(super) fn now(boot: Option<BootId>) -> Moment {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Moment { wall, boot: boot.zip(since_boot()) }
    }

    /// The current moment, at which `ticker` sets its clock. Both are in the same second, so that
    /// times by this clock and moments can be compared to the second. (If the system's time was set
    /// since the ticker was made, they differ by that change.)
    pub(super) fn at_tick(ticker: &Ticker, boot: Option<BootId>) -> Moment {
        loop {
            let moment = Moment::now(boot);
            ticker.tick();
            if Moment::now(boot) == moment {
                return moment;
            }
        }
    }

    /// Seconds from this moment to a later one; 0 if the clock was set back in between.
    pub(super) fn until(&self, later: &Moment) -> u32 {
        let seconds = match (self.boot, later.boot) {
            (Some((one, start)), Some((other, end))) if one == other => end.saturating_sub(start),
            _ => later.wall.saturating_sub(self.wall),
        };
        u32::try_from(seconds).unwrap_or(u32::MAX)
    }
}

#[cfg(target_os = "linux")]
fn since_boot() -> Option<u64> {
    use nix::time::{ClockId, clock_gettime};
    // This clock also counts the time in which the system is suspended.
    u64::try_from(clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?.tv_sec()).ok()
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Option<u64> {
    None
}

/// The identity of this boot, if the system reports one.
pub(super) fn boot_id() -> Option<BootId> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits = text.trim().replace('-', "");
    (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok()).flatten().map(u128::to_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_does_not_count_within_a_boot() {
        let moment = |wall, boot, second| Moment { wall, boot: Some(([boot; 16], second)) };
        assert_eq!(moment(1_000, 1, 50).until(&moment(9_000, 1, 57)), 7, "it was set forward");
        assert_eq!(moment(1_000, 1, 50).until(&moment(100, 1, 57)), 7, "it was set back");
        assert_eq!(moment(1_000, 1, 50).until(&moment(1_300, 2, 7)), 300, "another boot");
        assert_eq!(moment(1_000, 1, 50).until(&moment(900, 2, 7)), 0);
        let unknown = Moment { wall: 1_300, boot: None };
        assert_eq!(moment(1_000, 1, 50).until(&unknown), 300);
    }

    #[test]
    fn a_tick_is_in_the_second_of_its_moment() {
        let ticker = Ticker::new();
        ticker.clock().set(1);
        for _ in 0..1_000 {
            let moment = Moment::at_tick(&ticker, None);
            assert_eq!(moment.wall, u64::from(ticker.clock().now()));
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_identifies_boots() {
        let boot = boot_id();
        assert!(boot.is_some() && boot == boot_id());
        assert!(Moment::now(boot).boot.is_some());
    }
}
