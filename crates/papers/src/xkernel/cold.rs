//! The cost of an operation whose code is not in the instruction cache: the last measurement of
//! section 4.
//!
//! As in the paper, each operation uses a key of another size. A *pass* has one operation for each
//! size from 1 to 32 bytes. A cold pass begins after much other code has run. Code that all sizes
//! share is then fetched once per pass, and code that is compiled for one size is fetched for each
//! size. (relativist's handle that remembers the last key is new in each pass, so it never helps
//! here.)

use std::time::Instant;

use anyhow::Result;
use indicatif::ProgressBar;
use serde::Serialize;

use super::candidates::{NAMES, SIZES, Subject};
use super::eviction::evict;
use super::quantity::{KEYS, Quantity};
use super::{Args, Setting, candidates};
use relativist_bench::harness::comparison::{Comparison, Measured, compare_several};

pub const QUANTITIES: [Quantity; 3] = [Quantity::Hit, Quantity::Update, Quantity::Collision];

/// The parameters that the passes of a comparison share.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pass {
    pub quantity: Quantity,
    /// Whether other code ran before each pass.
    pub cold: bool,
}

/// Measures warm and cold passes. Each is a comparison.
pub(super) fn measure(args: &Args, bar: &ProgressBar) -> Result<Vec<Comparison<Pass>>> {
    let mut comparisons = Vec::new();
    for quantity in QUANTITIES {
        // Indexed by candidate, then by size.
        let mut subjects: Vec<Vec<Box<dyn Subject>>> = NAMES.iter().map(|_| Vec::new()).collect();
        for key_bytes in SIZES {
            let setting = Setting { quantity, key_bytes, entries: KEYS };
            let all = candidates::of(&setting, args.buckets as usize);
            subjects.iter_mut().zip(all).for_each(|(subjects, subject)| subjects.push(subject));
        }
        let settings = [false, true].map(|cold| (Pass { quantity, cold }, "ns"));
        comparisons.extend(compare_several(settings, &NAMES, args.rounds(), bar, |candidate, _| {
            let subjects = &mut subjects[candidate];
            bar.inc(1);
            Ok([passes(args, subjects, false)?, passes(args, subjects, true)?])
        })?);
    }
    Ok(comparisons)
}

/// Returns the mean time of an operation.
fn passes(args: &Args, subjects: &mut [Box<dyn Subject>], cold: bool) -> Result<Measured> {
    let (start, mut measured, mut operations) = (Instant::now(), 0.0, 0);
    while start.elapsed() < args.time() || operations == 0 {
        if cold {
            evict();
        } else {
            one_pass(subjects)?;
        }
        let before = Instant::now();
        operations += one_pass(subjects)?;
        measured += before.elapsed().as_secs_f64();
    }
    Ok(Measured::single(measured * 1e9 / operations as f64))
}

fn one_pass(subjects: &mut [Box<dyn Subject>]) -> Result<u64> {
    subjects.iter_mut().map(|subject| subject.repeat(1)).sum()
}
