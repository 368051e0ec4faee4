//! Interleaving: the order of measurements within a round, and the progress bar over all of them.

use indicatif::{ProgressBar, ProgressStyle};

/// Returns the order in which round `round` measures `candidates` candidates.
///
/// The first candidate changes from round to round, so each candidate takes every position. Every
/// other round runs backwards, so that no candidate always follows the same one and always finds
/// the same data in the caches.
pub fn order(round: usize, candidates: usize) -> impl Iterator<Item = usize> {
    let backwards = round % 2 == 1;
    (0..candidates).map(move |step| {
        let step = if backwards { candidates - 1 - step } else { step };
        (step + round / 2) % candidates
    })
}

/// Makes a progress bar for `measurements` measurements on stderr. It is invisible if stderr is not
/// a terminal.
pub fn progress(measurements: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} [{elapsed} elapsed, {eta} left] {msg}");
    ProgressBar::new(measurements as u64).with_style(style.expect("the template is a constant"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_measures_each_candidate_once() {
        for round in 0..20 {
            let mut seen: Vec<usize> = order(round, 7).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..7).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_candidate_takes_every_position() {
        for position in 0..5 {
            let mut seen: Vec<usize> = (0..10).map(|round| order(round, 5).nth(position).unwrap()).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen, (0..5).collect::<Vec<_>>());
        }
    }

    #[test]
    fn odd_rounds_run_backwards() {
        assert_eq!(order(0, 3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(order(1, 3).collect::<Vec<_>>(), [2, 1, 0]);
        assert_eq!(order(2, 3).collect::<Vec<_>>(), [1, 2, 0]);
    }
}
