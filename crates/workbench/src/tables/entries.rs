//! The entries of the tables. Key and value of entry `i` are functions of `i`, so that every result
//! can be checked.

use std::borrow::Borrow;
use std::fmt::Debug;
use std::hash::Hash;

use relativist::flat::Relocatable;

use clap::ValueEnum;
use serde::Serialize;

use crate::harness::keys::scramble;

/// The kinds of entries that tables are measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// From u64 to u64
    U64,
    /// From strings of 16 to 31 bytes to four words
    Strings,
}

impl Kind {
    pub const fn name(self) -> &'static str {
        match self {
            Self::U64 => "u64 to u64",
            Self::Strings => "strings to 4 words",
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

    /// Returns the borrowed form of this key.
    #[inline(always)]
    fn view(&self) -> &Self::View {
        self.borrow()
    }

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
    all: [u8; 31],
    len: usize,
}

impl Borrow<[u8]> for Letters {
    #[inline(always)]
    fn borrow(&self) -> &[u8] {
        &self.all[..self.len]
    }
}

/// A string key has sixteen letters that encode the scrambled index, and up to fifteen more. They
/// are computed in the measured loop, by about thirty instructions, because an array of keys would
/// compete with the table for the caches.
impl Key for Box<[u8]> {
    type View = [u8];
    type Probe = Letters;

    #[inline]
    fn of(index: u64) -> Self {
        Self::with(index, Self::own)
    }

    #[inline]
    fn own(view: &[u8]) -> Self {
        view.into()
    }

    #[inline(always)]
    fn probe(index: u64) -> Letters {
        let number = scramble(index);
        let mut all = *b"................relativisticrcu";
        all[..8].copy_from_slice(&spell((number >> 32) as u32));
        all[8..16].copy_from_slice(&spell(number as u32));
        Letters { all, len: 16 + (number % 16) as usize }
    }
}

/// Returns a letter from a to p for each of the eight nibbles.
#[inline(always)]
fn spell(number: u32) -> [u8; 8] {
    let mut nibbles = u64::from(number);
    nibbles = (nibbles | nibbles << 16) & 0x0000_ffff_0000_ffff;
    nibbles = (nibbles | nibbles << 8) & 0x00ff_00ff_00ff_00ff;
    nibbles = (nibbles | nibbles << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    (nibbles + u64::from_ne_bytes([b'a'; 8])).to_le_bytes()
}

/// A value from which the index of its entry can be computed.
pub trait Value: Copy + Eq + Hash + Debug + Relocatable {
    /// Returns the value of entry number `index`.
    fn of(index: u64) -> Self;

    /// Returns the index of the entry that has this value.
    fn index(self) -> u64;
}

impl Value for u64 {
    #[inline(always)]
    fn of(index: u64) -> Self {
        index
    }

    #[inline(always)]
    fn index(self) -> u64 {
        self
    }
}

/// Every word encodes the index, so that a torn read is detected.
impl Value for [u64; 4] {
    #[inline(always)]
    fn of(index: u64) -> Self {
        [index; 4]
    }

    #[inline(always)]
    fn index(self) -> u64 {
        self[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn strings_are_distinct_letters_of_sixteen_lengths() {
        let keys: HashSet<Box<[u8]>> = (0..1 << 14).map(Key::of).collect();
        assert_eq!(keys.len(), 1 << 14);
        assert!(keys.iter().all(|key| key.is_ascii() && !key.contains(&b'.')));
        let lengths: HashSet<usize> = keys.iter().map(|key| key.len()).collect();
        assert_eq!(lengths, (16..32).collect());
    }

    #[test]
    fn views_are_the_keys() {
        for index in 0..100 {
            assert!(Box::<[u8]>::with(index, |view| *view == *<Box<[u8]> as Key>::of(index)));
            assert!(u64::with(index, |view| *view == <u64 as Key>::of(index)));
        }
    }

    #[test]
    fn letters_spell_nibbles() {
        assert_eq!(&spell(0xfedc_ba98), b"ijklmnop");
    }

    #[test]
    fn values_tell_their_index() {
        assert_eq!((<u64 as Value>::of(7).index(), <[u64; 4] as Value>::of(7).index()), (7, 7));
    }
}
