//! Memoises a function: `Cache::get_or_insert_with`.
//!
//! `cargo run -p relativist-cache --example memoise`

use std::sync::LazyLock;
use std::thread;

use relativist_cache::Cache;

/// At most 1,000 results. Those that are asked for often stay.
static FACTORS: LazyLock<Cache<u64, u64>> = LazyLock::new(|| Cache::new(1_000));

/// Returns the largest prime factor of `n`, which has to be at least 2. Threads that ask for the
/// same number at the same time compute it once.
fn largest_prime_factor(n: u64) -> u64 {
    FACTORS.get_or_insert_with(n, || compute_largest_prime_factor(n))
}

fn compute_largest_prime_factor(mut n: u64) -> u64 {
    let (mut factor, mut largest) = (2, 1);
    while factor * factor <= n {
        if n % factor == 0 {
            (n, largest) = (n / factor, factor);
        } else {
            factor += 1;
        }
    }
    largest.max(n)
}

fn main() {
    let numbers = 1_000_000_000..1_000_000_100;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| numbers.clone().for_each(|n| _ = largest_prime_factor(n)));
        }
    });
    println!("{} is the largest prime factor of {}", largest_prime_factor(1_000_000_011), 1_000_000_011_u64);
    assert_eq!(largest_prime_factor(1_000_000_000), 5);
    assert_eq!(largest_prime_factor(1_000_000_007), 1_000_000_007);
    // Four threads have asked for each of the hundred numbers, and one computed it.
    assert_eq!((FACTORS.stats().loads, FACTORS.len()), (100, 100));
}
