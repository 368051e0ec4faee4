//! What signals make a server do.

use crate::error::StartError;
use crate::log;
use crate::net::Stopper;
use crate::server::{Reloader, Saver};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::thread;

/// Lets SIGTERM and SIGUSR1 stop the server when it is drained, or at once the second time, as SIGINT does; SIGHUP make it read
/// its users and certificates again; and SIGUSR2 write its snapshot. Two threads wait for signals until the process ends: one for what takes no time,
/// one for the snapshot.
///
/// # Errors
/// When the operating system does not let us.
pub fn obey(stopper: Stopper, reloader: Reloader, saver: Saver) -> Result<(), StartError> {
    let watch = |signals: &[i32]| {
        Signals::new(signals).map_err(|error| StartError::System("cannot watch for signals".into(), error))
    };
    let mut signals = watch(&[SIGINT, SIGTERM, SIGUSR1, SIGHUP])?;
    let mut requests = watch(&[SIGUSR2])?;
    thread::spawn(move || requests.forever().for_each(|_| saver.save()));
    thread::spawn(move || {
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
    });
    Ok(())
}
