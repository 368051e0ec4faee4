//! Hash functions that map keys to buckets: those of Lever's paper, of textbooks, and of today's
//! crates.

pub mod lever;
pub mod modern;
pub mod textbook;

use super::keys::{Key, Keys};
use modern::Fold;

/// The allowed table sizes, as binary logarithms.
pub const BITS: std::ops::RangeInclusive<u32> = 1..=30;

/// A hash function, including the way it selects a bucket.
///
/// Implement it to compare a function of your own with the others:
///
/// ```
/// use relativist_bench::hashing::functions::HashFunction;
/// use relativist_bench::hashing::keys::{Key, Keys};
/// use relativist_bench::hashing::histogram::Histogram;
///
/// /// Page numbers, for keys that are addresses.
/// struct PageNumber;
///
/// impl HashFunction for PageNumber {
///     fn name(&self) -> String {
///         "page-number".into()
///     }
///
///     fn bucket(&self, key: &Key<'_>, bits: u32) -> usize {
///         (key.sum() >> 12) as usize & ((1 << bits) - 1)
///     }
/// }
///
/// let addresses: Keys = (0..1000).map(|n| Key::Number(n << 12)).collect();
/// let histogram = Histogram::of(&PageNumber, &addresses, 10);
/// assert_eq!((histogram.entries, histogram.largest()), (1000, 1));
/// ```
pub trait HashFunction: Send + Sync {
    /// Returns the name of the function on the command line and in reports.
    fn name(&self) -> String;

    /// Returns the bucket of `key` in a table of [`buckets`](Self::buckets)`(bits)` buckets.
    fn bucket(&self, key: &Key<'_>, bits: u32) -> usize;

    /// Returns the number of buckets that the function uses in a table of 2^`bits` buckets. By
    /// default it uses all.
    fn buckets(&self, bits: u32) -> usize {
        1 << bits
    }

    /// Adds the number of `keys` in each bucket to `counts`. It is a method of the trait so that
    /// the loop is compiled for each function, and calls no virtual method.
    fn count(&self, keys: &Keys, bits: u32, counts: &mut [u32]) {
        for key in keys.iter() {
            counts[self.bucket(&key, bits)] += 1;
        }
    }

    /// Hashes `keys`, for measurements of the time. Returns a value that depends on all results.
    #[inline(never)]
    fn exercise(&self, keys: &Keys, bits: u32) -> usize {
        keys.iter().fold(0, |sum, key| sum ^ self.bucket(&key, bits))
    }
}

/// Returns every built-in function; those with 64-bit results once for each of `folds`.
#[must_use]
pub fn all(folds: &[Fold]) -> Vec<Box<dyn HashFunction>> {
    let mut functions = lever::all();
    functions.extend(textbook::all());
    functions.extend(folds.iter().flat_map(|fold| modern::all(*fold)));
    functions
}

/// Returns the built-in function with this name; one with 64-bit results selects by the low bits.
///
/// # Panics
/// When there is no such function.
#[must_use]
pub fn named(name: &str) -> Box<dyn HashFunction> {
    let function = all(&[Fold::Low]).into_iter().find(|function| function.name() == name);
    function.unwrap_or_else(|| panic!("no function is called {name}"))
}

/// A function that a closure computes. It gets the key and the binary logarithm of the number of
/// buckets, and the low bits of its result are the bucket.
struct Computed<F> {
    name: String,
    hash: F,
}

impl<F: Fn(&Key<'_>, u32) -> u64 + Send + Sync> HashFunction for Computed<F> {
    fn name(&self) -> String {
        self.name.clone()
    }

    #[inline]
    fn bucket(&self, key: &Key<'_>, bits: u32) -> usize {
        ((self.hash)(key, bits) & mask(bits)) as usize
    }
}

fn computed(
    name: impl Into<String>,
    hash: impl Fn(&Key<'_>, u32) -> u64 + Send + Sync + 'static,
) -> Box<dyn HashFunction> {
    Box::new(Computed { name: name.into(), hash })
}

/// Returns a mask of the low `bits` bits.
const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_function_stays_inside_of_its_table_for_every_kind_of_key() {
        let keys = [
            Key::Number(u64::MAX),
            Key::Pair(u64::MAX - 7, u64::MAX),
            Key::Name(u64::MAX, &[0xff; 300]),
            Key::Bytes(b""),
            Key::Bytes(&[0xff; 40]),
        ];
        for function in all(&[Fold::Low, Fold::High, Fold::Mixed]) {
            for bits in BITS {
                assert!(function.buckets(bits) <= 1 << bits, "{}", function.name());
                for key in keys {
                    let bucket = function.bucket(&key, bits);
                    assert!(bucket < function.buckets(bits), "{} of {key:?} in 2^{bits}: {bucket}", function.name());
                }
            }
        }
    }

    #[test]
    fn names_are_distinct() {
        let functions = all(&[Fold::Low, Fold::High, Fold::Mixed]);
        let names: HashSet<String> = functions.iter().map(|function| function.name()).collect();
        assert_eq!(names.len(), functions.len());
    }
}
