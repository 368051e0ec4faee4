//! How long tests wait for what must happen.

use std::env;
use std::time::Duration;

/// The environment variable that sets how many seconds a test waits.
const VARIABLE: &str = "RELATIVIST_TEST_PATIENCE";
const DEFAULT: u64 = 120;

/// Returns how long a test waits for something that must happen, before it fails. That is far more
/// than anything takes, even under CPU pressure: only a hang exceeds it.
pub fn patience() -> Duration {
    let seconds = env::var(VARIABLE).map_or(DEFAULT, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds)
}
