//! The entries of the tables. The key of entry `i` is a function of `i`, and its value is `i`, so
//! that every result can be checked.

use std::borrow::Borrow;
use std::fmt::Debug;
use std::hash::Hash;

use clap::ValueEnum;
use relativist::Relocatable;
use serde::{Deserialize, Serialize};

use crate::harness::keys::scramble;

/// The kinds of entries that tables are measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// From u64 to u64
    U64,
    /// From strings of 8 to 40 bytes, on average 24, to u64
    Strings,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::U64 => "u64 to u64",
            Self::Strings => "strings to u64",
        }
    }
}

/// A key that a table owns, and its borrowed form for lookups.
pub trait Key: Borrow<Self::View> + Hash + Ord + Clone + Debug + Relocatable {
    /// The borrowed form.
    type View: Hash + Ord + ?Sized;

    /// A key for lookups, which needs no allocation.
    type Probe: Borrow<Self::View>;

    /// Returns key number `index`.
    fn of(index: u64) -> Self;

    /// Returns the owned key of a borrowed one.
    fn own(view: &Self::View) -> Self;

    /// Returns key number `index`, for lookups.
    fn probe(index: u64) -> Self::Probe;

    /// Calls `look` with key number `index`.
    #[inline(always)]
    fn with<R>(index: u64, look: impl FnOnce(&Self::View) -> R) -> R {
        look(Self::probe(index).borrow())
    }
}

impl Key for u64 {
    type View = Self;
    type Probe = Self;

    #[inline(always)]
    fn of(index: u64) -> Self {
        scramble(index)
    }

    #[inline(always)]
    fn own(view: &Self) -> Self {
        *view
    }

    #[inline(always)]
    fn probe(index: u64) -> Self {
        scramble(index)
    }
}

/// The letters of a string key in a buffer of fixed size.
#[derive(Debug)]
pub struct Letters {
    all: [u8; MAX_LETTERS],
    len: usize,
}

const MIN_LETTERS: usize = 8;
const MAX_LETTERS: usize = 40;

impl Borrow<str> for Letters {
    #[inline(always)]
    fn borrow(&self) -> &str {
        // SAFETY: `Letters` are made only by `String::probe`, and all bytes there are ASCII.
        unsafe { std::str::from_utf8_unchecked(&self.all[..self.len]) }
    }
}

/// A string key has eight letters that encode the index, and up to 32 more that are the same in all
/// keys. The length is the sum of two random numbers, so that lengths around 24 are the most
/// frequent. Keys are computed in the measured loop, by about forty instructions, because an array
/// of keys would compete with the table for the caches.
impl Key for String {
    type View = str;
    type Probe = Letters;

    #[inline]
    fn of(index: u64) -> Self {
        Self::with(index, Self::own)
    }

    #[inline]
    fn own(view: &str) -> Self {
        view.into()
    }

    #[inline(always)]
    fn probe(index: u64) -> Letters {
        let mut all = *b"........:relativistic:hash-map:benchmark";
        all[..MIN_LETTERS].copy_from_slice(&spell(scramble_48(index)));
        let random = scramble(index) as usize;
        Letters { all, len: MIN_LETTERS + random % 17 + (random >> 32) % 17 }
    }
}

/// Returns a number below 2^48 that is different for each index that occurs: below 2^36, or at most
/// 2^36 above [`ABSENT`](crate::harness::keys::ABSENT).
#[inline(always)]
const fn scramble_48(index: u64) -> u64 {
    const MASK: u64 = (1 << 48) - 1;
    debug_assert!(index & 0xf << 36 == 0 && index < 1 << 52);
    let number = index & ((1 << 36) - 1) | index >> 40 << 36;
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & MASK;
    (mixed ^ (mixed >> 24)).wrapping_mul(0xff51_afd7_ed55_8ccd) & MASK
}

/// Returns one of 64 letters for each six of the lower 48 bits.
#[inline(always)]
fn spell(number: u64) -> [u8; MIN_LETTERS] {
    let halves = (number & 0xff_ffff) | (number >> 24) << 32;
    let quarters = (halves & 0x0000_0fff_0000_0fff) | (halves & 0x00ff_f000_00ff_f000) << 4;
    let sixes = (quarters & 0x003f_003f_003f_003f) | (quarters & 0x0fc0_0fc0_0fc0_0fc0) << 2;
    (sixes + u64::from_ne_bytes([b'0'; MIN_LETTERS])).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::keys::ABSENT;
    use std::collections::HashSet;

    #[test]
    fn strings_are_distinct_and_of_all_lengths() {
        let indices = (0..1 << 14).chain(ABSENT..ABSENT + (1 << 14));
        let keys: HashSet<String> = indices.map(Key::of).collect();
        assert_eq!(keys.len(), 1 << 15);
        assert!(keys.iter().all(|key| key.is_ascii() && !key.contains('.')));
        let lengths: HashSet<usize> = keys.iter().map(String::len).collect();
        assert_eq!(lengths, (MIN_LETTERS..=MAX_LETTERS).collect());
        let mean = keys.iter().map(String::len).sum::<usize>() as f64 / keys.len() as f64;
        assert!((mean - 24.0).abs() < 0.2, "{mean}");
    }

    #[test]
    fn views_are_the_keys() {
        for index in 0..100 {
            assert!(String::with(index, |view| *view == *<String as Key>::of(index)));
            assert!(u64::with(index, |view| *view == <u64 as Key>::of(index)));
        }
    }

    #[test]
    fn letters_spell_six_bits_each() {
        assert_eq!(&spell(0x3f << 42 | 2 << 12 | 1), b"1020000o");
    }
}
