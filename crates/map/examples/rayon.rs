//! Fills a map in parallel, and iterates over it in parallel (feature `rayon`).
//!
//! `cargo run -p relativist --features rayon --example rayon`

use rayon::prelude::*;
use relativist::HashMap;

fn collatz_steps(n: u64) -> u32 {
    let next = |&n: &u64| (n != 1).then(|| if n % 2 == 0 { n / 2 } else { 3 * n + 1 });
    std::iter::successors(Some(n), next).count() as u32 - 1
}

fn main() {
    let steps: HashMap<u64, u32> = (1..100_000u64).into_par_iter().map(|n| (n, collatz_steps(n))).collect();

    let pinned = steps.pin();
    let (n, most) = pinned.par_iter().max_by_key(|&(n, steps)| (steps, n)).expect("it is not empty");
    println!("{n} takes {most} steps");
    assert_eq!((*n, *most), (77031, 350));

    // The closures and other threads may change the map during the iteration.
    pinned.par_iter().for_each(|(n, steps_of_n)| {
        if *steps_of_n > 100 {
            steps.pin().remove(n);
        }
    });
    assert!(pinned.par_iter().all(|(_, steps)| *steps <= 100));
}
