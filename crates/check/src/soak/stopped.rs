//! A process with clients that is stopped again and again, as by `kill -STOP`. Its connections must
//! not delay the server's other clients.

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};

use super::Plan;
use super::shared::Common;
use crate::client::Address;
use crate::interruption;
use crate::supervisor::tie;

const CLIENTS: &str = "4";

/// The process, which is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Stopped {
    child: Child,
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Stopped {
    /// Starts the process for this many seconds. Its clients send other requests than those of
    /// `plan`.
    pub(super) fn start(plan: &Plan, address: &Address, seconds: f64) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let mut command = Command::new(program);
        command.args(["--server", &address.to_string(), "--seconds", &seconds.to_string()]);
        command.args(["--seed", &plan.seed.to_string(), "--clients", CLIENTS, "--beside"]).stdout(Stdio::null());
        command.args(plan.is_replaced().then_some("--replaced"));
        tie(&mut command);
        Ok(Self { child: command.spawn().context("cannot start the process of stopped clients")? })
    }

    /// Stops and continues the process until it ends or the run is over.
    pub(super) fn run(mut self, common: &Common<'_>) -> Result<()> {
        let mut random = SmallRng::seed_from_u64(common.plan.seed);
        let process = Pid::from_child(&self.child);
        loop {
            if let Some(status) = self.child.try_wait()? {
                match status.success() {
                    true => return Ok(()),
                    false => bail!("the clients that are stopped from time to time have found a fault: {status}"),
                }
            }
            if interruption::is_wanted() || common.is_over.load(std::sync::atomic::Ordering::Relaxed) {
                return Ok(());
            }
            for signal in [Signal::STOP, Signal::CONT] {
                // The process may have ended.
                let _ = kill_process(process, signal);
                sleep(Duration::from_millis(random.random_range(10..1_000)));
            }
        }
    }
}
