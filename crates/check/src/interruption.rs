//! SIGINT (Ctrl-C) and SIGTERM: a run that handles them ends early, and reports what it has
//! measured so far.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result};

const SIGINT: i32 = 2;

/// Returns the name of this program, for messages.
pub fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    Path::new(&path).file_name().unwrap_or(&path).to_string_lossy().into_owned()
}

/// Converts the outcome of a run to the exit status. Writes an error to stderr.
#[must_use]
pub fn conclude(outcome: Result<Ending>) -> ExitCode {
    match outcome {
        Ok(ending) => ending.code(),
        Err(error) => {
            eprintln!("{}: {error:#}", program());
            ExitCode::FAILURE
        }
    }
}

/// The number of the first signal; zero if there was none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// How a run ended, if it printed its report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The run is complete.
    Complete,
    /// The run is complete, and a target was missed.
    Missed,
    /// A signal ended the run early: the report covers a part of the measurements.
    Interrupted,
}

impl Ending {
    /// Returns `Interrupted` if a signal has arrived and the run is incomplete.
    pub fn of(is_complete: bool) -> Self {
        if is_complete || !is_wanted() { Self::Complete } else { Self::Interrupted }
    }

    /// Returns the exit status: 0, 1, or 128 plus the number of the signal, as in shells.
    pub fn code(self) -> ExitCode {
        match self {
            Self::Complete => ExitCode::SUCCESS,
            Self::Missed => ExitCode::FAILURE,
            Self::Interrupted => ExitCode::from(status_after(SIGNAL.load(Relaxed)) as u8),
        }
    }
}

fn status_after(signal: i32) -> i32 {
    128 + signal
}

/// Returns whether a signal has arrived, so that the run should end.
pub fn is_wanted() -> bool {
    // Relaxed, here and elsewhere: no other data depends on this.
    SIGNAL.load(Relaxed) != 0
}

/// Makes SIGINT and SIGTERM end the run early from now on. The first signal prints a message that
/// the report comes after `after`. A second signal ends the process at once, without a report.
///
/// # Errors
/// The system refuses to deliver signals.
pub fn handle_signals(after: &'static str) -> Result<()> {
    let note = move |signal| {
        if SIGNAL.swap(signal, Relaxed) != 0 {
            end_at_once(status_after(signal));
        }
        // The terminal may be gone, so a failure to write is ignored.
        let message = format!("interrupted; the report follows after {after}; a second signal ends the run at once");
        drop(writeln!(std::io::stderr(), "{}: {message}", program()));
    };
    watch(note).context("cannot handle signals")
}

#[cfg(unix)]
fn watch(mut note: impl FnMut(i32) + Send + 'static) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, signal_hook::consts::SIGTERM])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || signals.forever().for_each(&mut note))?;
    Ok(())
}

/// Ends the process without cleaning up: other threads still run, and might hold a lock.
#[cfg(unix)]
fn end_at_once(status: i32) -> ! {
    signal_hook::low_level::exit(status)
}

#[cfg(not(unix))]
fn end_at_once(status: i32) -> ! {
    std::process::exit(status)
}

#[cfg(not(unix))]
fn watch(mut note: impl FnMut(i32) + Send + 'static) -> Result<()> {
    Ok(ctrlc::set_handler(move || note(SIGINT))?)
}
