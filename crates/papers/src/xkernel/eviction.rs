//! A large amount of code. Running it evicts the instruction cache and the branch predictors.

use std::hint::black_box;

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
