//! Ctrl-C: what was measured so far is reported.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result};

static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// Whether the user wants no more to be measured.
#[must_use]
pub fn is_wanted() -> bool {
    // Relaxed, here and below: a signal only.
    IS_WANTED.load(Relaxed)
}

/// Lets Ctrl-C be noted from now on: the user is told that the report comes `after` something. Who asks twice doesn't want to wait, and
/// the program ends.
///
/// # Errors
/// When the signal can't be handled, or is already.
pub fn heed(after: &'static str) -> Result<()> {
    ctrlc::set_handler(move || {
        if IS_WANTED.swap(true, Relaxed) {
            std::process::exit(130);
        }
        eprintln!("relativist: interrupted; the report comes after {after}; once more ends it at once");
    })
    .context("cannot handle Ctrl-C")
}
