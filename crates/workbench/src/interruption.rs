//! SIGINT (Ctrl-C) and SIGTERM: a run that heeds them ends early, and reports what it has measured
//! so far.

use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result};

const SIGINT: i32 = 2;

/// The first signal; zero before that.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// How a run ended that reported something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It did all that it was asked for.
    Complete,
    /// It did all that it was asked for, and a target was missed.
    Missed,
    /// A signal ended it early: the report is of a part.
    Interrupted,
}

impl Ending {
    /// Interrupted where a signal has arrived and something is missing.
    #[must_use]
    pub fn of(is_complete: bool) -> Self {
        if is_complete || !is_wanted() { Self::Complete } else { Self::Interrupted }
    }

    /// The exit status: 0, 1, or 128 and the number of the signal, as shells report the end by a
    /// signal.
    #[must_use]
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

/// Whether a signal has arrived: no more is to be measured.
#[must_use]
pub fn is_wanted() -> bool {
    // Relaxed, here and elsewhere: a signal only.
    SIGNAL.load(Relaxed) != 0
}

/// Lets SIGINT and SIGTERM end the run early from now on. A message says that the report comes
/// `after` something. The second signal ends the process at once, without a report.
///
/// # Errors
/// When signals can't be handled.
pub fn heed(after: &'static str) -> Result<()> {
    let note = move |signal| {
        if SIGNAL.swap(signal, Relaxed) != 0 {
            std::process::exit(status_after(signal));
        }
        // The terminal may be gone.
        let message = format!("interrupted; the report comes after {after}; once more ends it at once");
        drop(writeln!(std::io::stderr(), "relativist: {message}"));
    };
    watch(note).context("cannot handle signals")
}

#[cfg(unix)]
fn watch(mut note: impl FnMut(i32) + Send + 'static) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, signal_hook::consts::SIGTERM])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || signals.forever().for_each(&mut note))?;
    Ok(())
}

#[cfg(not(unix))]
fn watch(mut note: impl FnMut(i32) + Send + 'static) -> Result<()> {
    Ok(ctrlc::set_handler(move || note(SIGINT))?)
}
