//! The cost of an operation whose code is not in the instruction cache: the last measurement of
//! section 4.
//!
//! As in the paper, each operation uses a key of another size. A *pass* has one operation for each
//! size from 1 to 32 bytes. A cold pass begins after much other code has run. Code that all sizes
//! share is then fetched once per pass, and code that is compiled for one size is fetched for each
//! size.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use indicatif::ProgressBar;
use serde::Serialize;

use super::candidates::{NAMES, SIZES, Subject};
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

/// A part of a large amount of code, which evicts the instruction cache and branch predictors.
type Block = fn(u64) -> u64;

/// 256 different functions of about 800 bytes each. Together they are larger than any processor's
/// first-level instruction cache.
static BLOCKS: [[Block; 16]; 16] = {
    macro_rules! row {
        ($($column:literal)*; $row:literal) => { [$(block::<{ 16 * $row + $column }>,)*] };
        ($row:literal) => { row!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; $row) };
    }
    macro_rules! rows {
        ($($row:literal)*) => { [$(row!($row),)*] };
    }
    rows!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
};

pub fn evict() {
    let last = BLOCKS.iter().flatten().fold(black_box(1), |number, block| block(number));
    black_box(last);
}

/// Computes a step that compiles to about 25 bytes of code on most processors, because its
/// constants are long and differ.
#[inline(always)]
fn step(number: u64, seed: u64) -> u64 {
    let constant = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (number ^ constant).wrapping_mul(constant | 1).rotate_left(23)
}

#[inline(never)]
fn block<const SEED: u64>(number: u64) -> u64 {
    macro_rules! steps {
        ($number:expr; $($index:literal)*) => {{
            let mut number = $number;
            $(number = step(number, 32 * SEED + $index + 1);)*
            number
        }};
    }
    steps!(number; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The compiler could merge equal functions.
    #[test]
    fn no_function_is_like_another() {
        let results: HashSet<u64> = BLOCKS.iter().flatten().map(|block| block(1)).collect();
        assert_eq!(results.len(), 256);
        evict();
    }
}
