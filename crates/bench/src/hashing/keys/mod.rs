//! Keys, and the sources that read or generate them.

pub mod patterns;
pub mod server;
pub mod text;

use std::hash::{Hash, Hasher};

use anyhow::Result;

use super::functions::lever::name_hash;

/// A stream of keys, all of one kind.
pub trait Source: Send {
    /// Adds the next key to `keys`, or returns `false` at the end.
    ///
    /// # Errors
    /// When the keys can't be read.
    fn next(&mut self, keys: &mut Keys) -> Result<bool>;

    /// Adds up to `most` keys; returns whether there may be more.
    ///
    /// # Errors
    /// When the keys can't be read.
    fn fill(&mut self, keys: &mut Keys, most: usize) -> Result<bool> {
        for _ in 0..most {
            if !self.next(keys)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A key as hash functions see it. It implements [`Hash`] like the Rust type that it stands for, so
/// that a `BuildHasher` returns the same hash as in a map of such keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'k> {
    /// A `u64`.
    Number(u64),
    /// A pair of `u64`s: inode and offset, device and block, superblock and inode number.
    Pair(u64, u64),
    /// A number and a string: the address of a directory and a name in it.
    Name(u64, &'k [u8]),
    /// A string.
    Bytes(&'k [u8]),
}

impl Key<'_> {
    /// Returns the two arguments of the paper's functions. A single number becomes the second one,
    /// and a string is hashed by [`name_hash`].
    #[inline]
    #[must_use]
    pub fn words(&self) -> (u64, u64) {
        match *self {
            Self::Number(number) => (0, number),
            Self::Pair(first, second) => (first, second),
            Self::Name(parent, name) => (parent, name_hash(name).into()),
            Self::Bytes(bytes) => (0, name_hash(bytes).into()),
        }
    }

    /// Returns the key as one number: the sum of its words, as in the functions of the page and
    /// dentry caches.
    #[inline]
    #[must_use]
    pub fn sum(&self) -> u64 {
        let (first, second) = self.words();
        first.wrapping_add(second)
    }

    /// Calls `f` with the key's bytes: numbers in little-endian order, one part after the other.
    #[inline]
    pub fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        match *self {
            Self::Number(number) => f(&number.to_le_bytes()),
            Self::Pair(first, second) => f(&(u128::from(second) << 64 | u128::from(first)).to_le_bytes()),
            Self::Bytes(bytes) => f(bytes),
            Self::Name(parent, name) => {
                // File names fit; longer keys need an allocation.
                let mut buffer = [0; 8 + 256];
                let length = 8 + name.len();
                if length > buffer.len() {
                    return f(&[&parent.to_le_bytes(), name].concat());
                }
                buffer[..8].copy_from_slice(&parent.to_le_bytes());
                buffer[8..length].copy_from_slice(name);
                f(&buffer[..length])
            }
        }
    }
}

impl Hash for Key<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Like `str`: ends the string with a byte that no text contains.
        let text = |state: &mut H, bytes: &[u8]| {
            state.write(bytes);
            state.write_u8(0xff);
        };
        match *self {
            Self::Number(number) => state.write_u64(number),
            Self::Pair(first, second) => {
                state.write_u64(first);
                state.write_u64(second);
            }
            Self::Name(parent, name) => {
                state.write_u64(parent);
                text(state, name);
            }
            Self::Bytes(bytes) => text(state, bytes),
        }
    }
}

/// A batch of keys of one kind, stored densely.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    kind: Kind,
    words: Vec<(u64, u64)>,
    bytes: Vec<u8>,
    /// For each key, the end of its string in `bytes`.
    ends: Vec<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Number,
    Pair,
    Name,
    Bytes,
}

impl Keys {
    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Removes all keys, and keeps the memory.
    pub fn clear(&mut self) {
        self.words.clear();
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds a key.
    ///
    /// # Panics
    /// When the key is of another kind than the previous ones.
    pub fn push(&mut self, key: Key<'_>) {
        let (kind, words, text) = match key {
            Key::Number(number) => (Kind::Number, (0, number), None),
            Key::Pair(first, second) => (Kind::Pair, (first, second), None),
            Key::Name(parent, name) => (Kind::Name, (parent, 0), Some(name)),
            Key::Bytes(bytes) => (Kind::Bytes, (0, 0), Some(bytes)),
        };
        assert!(self.is_empty() || self.kind == kind, "keys of two kinds");
        self.kind = kind;
        self.words.push(words);
        if let Some(text) = text {
            self.bytes.extend_from_slice(text);
            self.ends.push(self.bytes.len());
        }
    }

    /// Returns the key with this index.
    ///
    /// # Panics
    /// When there is no such key.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Key<'_> {
        let (first, second) = self.words[index];
        let text = || {
            let start = if index == 0 { 0 } else { self.ends[index - 1] };
            &self.bytes[start..self.ends[index]]
        };
        match self.kind {
            Kind::Number => Key::Number(second),
            Kind::Pair => Key::Pair(first, second),
            Kind::Name => Key::Name(first, text()),
            Kind::Bytes => Key::Bytes(text()),
        }
    }

    /// Iterates over all keys, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Key<'_>> {
        (0..self.len()).map(|index| self.get(index))
    }
}

impl<'k> FromIterator<Key<'k>> for Keys {
    fn from_iter<I: IntoIterator<Item = Key<'k>>>(keys: I) -> Self {
        let mut all = Self::default();
        keys.into_iter().for_each(|key| all.push(key));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    #[test]
    fn keys_come_back_as_they_were_pushed() {
        let long = [7; 400];
        for keys in [
            vec![Key::Number(3), Key::Number(u64::MAX)],
            vec![Key::Pair(1, 2), Key::Pair(3, 4)],
            vec![Key::Name(9, b"ab"), Key::Name(9, b""), Key::Name(1, &long)],
            vec![Key::Bytes(b""), Key::Bytes(b"abc"), Key::Bytes(b"d")],
        ] {
            let stored: Keys = keys.iter().copied().collect();
            assert_eq!(stored.iter().collect::<Vec<_>>(), keys);
        }
    }

    #[test]
    fn keys_hash_as_the_types_they_stand_for() {
        let state = foldhash::fast::FixedState::default();
        assert_eq!(state.hash_one(Key::Number(5)), state.hash_one(5u64));
        assert_eq!(state.hash_one(Key::Pair(5, 6)), state.hash_one((5u64, 6u64)));
        assert_eq!(state.hash_one(Key::Bytes(b"abc")), state.hash_one("abc"));
        assert_eq!(state.hash_one(Key::Name(5, b"abc")), state.hash_one((5u64, "abc")));
    }

    #[test]
    fn bytes_are_the_parts_in_turn() {
        let bytes = |key: Key<'_>| key.with_bytes(<[u8]>::to_vec);
        assert_eq!(bytes(Key::Pair(1, 2)), [[1, 0, 0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0]].concat());
        assert_eq!(bytes(Key::Name(1, b"x")), [1, 0, 0, 0, 0, 0, 0, 0, b'x']);
        assert_eq!(bytes(Key::Name(1, &[7; 400])).len(), 408);
    }
}
