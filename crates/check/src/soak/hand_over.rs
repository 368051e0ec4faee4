//! Replaces the server again and again by a successor, to which it hands over.

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::shared::{Common, lock};
use crate::client::PATIENCE;
use crate::server::Server;

const PAUSE: Duration = Duration::from_millis(5);

/// Replaces the server, each time after `every`, until the other side of `end` is dropped.
pub(super) fn run(server: &Mutex<Server>, every: Duration, common: &Common<'_>, end: &Receiver<()>) -> Result<()> {
    while end.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        if let Err(error) = replace(server, common) {
            common.is_over.store(true, Relaxed);
            return Err(error.context("the server was not replaced"));
        }
    }
    Ok(())
}

fn replace(server: &Mutex<Server>, common: &Common<'_>) -> Result<()> {
    lock(server).hand_over()?;
    wait_while(|| lock(server).is_handing_over())?;
    common.counts.hand_overs.fetch_add(1, Relaxed);
    // Until the evictions of the successor are known, missing items cannot be judged.
    let successor = lock(server).process.map_or(0, u64::from);
    wait_while(|| Ok(common.counts.observed.load(Relaxed) != successor && !common.is_over.load(Relaxed)))
}

fn wait_while(goes_on: impl Fn() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while goes_on()? {
        ensure!(began.elapsed() < PATIENCE, "the successor does not serve after {} s", PATIENCE.as_secs());
        sleep(PAUSE);
    }
    Ok(())
}
