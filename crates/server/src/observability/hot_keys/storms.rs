//! Storms: a single key that most clients want at once.

use super::report::{HotKey, Kind, Report};

/// A storm begins when a key has a quarter of all reads, or of all writes, of the last minute...
const SHARE: f64 = 0.25;

/// ...and is requested this often in a second. Below that, no key is a problem for a server.
const RATE: f64 = 1000.0;

/// The part of both that a key has to fall below before its storm has ended. Otherwise a key at the
/// limits would be logged again and again.
const ENDED: f64 = 0.5;

/// The storms that were logged and have not ended.
#[derive(Debug, Default)]
pub(super) struct Storms {
    /// At most one for each part of `SHARE` that has not ended.
    keys: Vec<(Kind, u64)>,
}

impl Storms {
    /// Returns the keys whose storms have begun since the last call.
    pub(super) fn begun<'r>(&mut self, kind: Kind, report: &'r Report) -> Vec<&'r HotKey> {
        let is_storm = |key: &HotKey, factor: f64| {
            report.share(key) >= SHARE * factor && report.per_second(key.events) >= RATE * factor
        };
        self.keys
            .retain(|&(of, hash)| of != kind || report.keys.iter().any(|key| key.hash == hash && is_storm(key, ENDED)));
        let mut begun: Vec<&HotKey> = report.keys.iter().filter(|key| is_storm(key, 1.0)).collect();
        begun.retain(|key| !self.keys.contains(&(kind, key.hash)));
        self.keys.extend(begun.iter().map(|key| (kind, key.hash)));
        begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten seconds, in which these keys were requested this often in a second.
    fn report(all: u64, keys: &[(u64, u64)]) -> Report {
        let keys = keys.iter().map(|&(hash, rate)| HotKey { hash, name: String::new(), events: 10 * rate, bytes: 0 });
        Report { seconds: 10, events: 10 * all, keys: keys.collect() }
    }

    #[test]
    fn a_storm_is_reported_once_until_it_has_ended() {
        let mut storms = Storms::default();
        let mut begun = |kind, all, keys: &[(u64, u64)]| -> Vec<u64> {
            storms.begun(kind, &report(all, keys)).iter().map(|key| key.hash).collect()
        };
        assert_eq!(begun(Kind::Read, 10_000, &[(1, 2499)]), [0; 0], "too small a share");
        assert_eq!(begun(Kind::Read, 999, &[(1, 999)]), [0; 0], "too slow");
        assert_eq!(begun(Kind::Read, 10_000, &[(1, 2500), (2, 2500)]), [1, 2]);
        assert_eq!(begun(Kind::Write, 10_000, &[(1, 2500)]), [1], "writes are another storm");
        assert_eq!(begun(Kind::Read, 10_000, &[(1, 9000), (2, 1250)]), [0; 0], "they go on");
        assert_eq!(begun(Kind::Read, 10_000, &[(1, 1250)]), [0; 0], "2 has ended");
        assert_eq!(begun(Kind::Read, 10_000, &[(1, 2500), (2, 2500)]), [2]);
        assert_eq!(begun(Kind::Read, 1000, &[(1, 499)]), [0; 0], "too slow: ended");
        assert_eq!(begun(Kind::Read, 1000, &[(1, 1000)]), [1]);
        assert_eq!(begun(Kind::Write, 10_000, &[(1, 2500)]), [0; 0], "it was never reported as ended");
    }
}
