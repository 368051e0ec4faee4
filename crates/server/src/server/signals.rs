//! Signals.

use super::Saver;
use crate::error::StartError;
use crate::observability::log;
use crate::process::stopper::Stopper;
use crate::reload::Reloader;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::io;
use std::thread;

/// SIGHUP and SIGUSR2, held until there is a server. By default these signals would end the process
/// while it starts.
pub struct HeldSignals {
    reloads: Signals,
    saves: Signals,
}

/// Holds SIGHUP and SIGUSR2.
///
/// # Errors
/// When the operating system refuses.
pub fn hold() -> Result<HeldSignals, StartError> {
    let watch = |signal| Signals::new([signal]).map_err(cannot_watch);
    Ok(HeldSignals { reloads: watch(SIGHUP)?, saves: watch(SIGUSR2)? })
}

impl HeldSignals {
    /// Handles signals from now on. SIGTERM and SIGUSR1 stop the server after its drain, or at once
    /// the second time. SIGINT stops it at once. SIGHUP makes it read its options, users and
    /// certificates again. SIGUSR2 makes it write its snapshot. Two threads wait for signals until
    /// the process ends: one for SIGUSR2, which may take long, and one for the others.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn obey(self, stopper: Stopper, reloader: Reloader, saver: Saver) -> Result<(), StartError> {
        let HeldSignals { reloads: mut signals, mut saves } = self;
        for signal in [SIGINT, SIGTERM, SIGUSR1] {
            signals.add_signal(signal).map_err(cannot_watch)?;
        }
        start("saver", move || saves.forever().for_each(|_| saver.save()))?;
        start("signals", move || {
            for signal in &mut signals {
                match signal {
                    SIGHUP => reloader.reload(),
                    SIGINT => stopper.stop(),
                    _ if stopper.is_stopping() => stopper.stop(),
                    _ => {
                        if signal == SIGUSR1 {
                            log::notice(log::STOPPING);
                        }
                        stopper.drain();
                    }
                }
            }
        })
    }
}

fn cannot_watch(error: io::Error) -> StartError {
    StartError::System("cannot watch for signals".into(), error)
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
    thread::Builder::new().name(name.into()).spawn(run).map(drop).map_err(cannot_watch)
}
