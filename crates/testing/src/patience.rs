//! How long tests wait for what must happen.

use std::env;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The environment variable that sets how many seconds a test waits.
const VARIABLE: &str = "RELATIVIST_TEST_PATIENCE";
const DEFAULT: u64 = 120;

/// Returns how long a test waits for something that must happen, before it fails. That is far more
/// than anything takes, even under CPU pressure: only a hang exceeds it.
pub fn patience() -> Duration {
    let seconds = env::var(VARIABLE).map_or(DEFAULT, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds)
}

/// Repeats `attempt` until it returns a result, with a short sleep after each attempt. `what`
/// describes the result: "a reply", "the end of the server".
///
/// # Panics
///
/// Panics after [`patience`].
#[track_caller]
pub fn poll<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(start.elapsed() < patience(), "waited {:?} for {what}", start.elapsed());
        sleep(Duration::from_millis(1));
    }
}

/// Waits until `condition` holds, as [`poll`] does. `what` describes what the test waits for: "an
/// empty backlog".
///
/// # Panics
///
/// Panics after [`patience`].
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    poll(what, || condition().then_some(()));
}
