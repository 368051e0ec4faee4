//! Generated keys: regular patterns of any length, on which some hash functions fail.

use std::fmt;
use std::str::FromStr;

use anyhow::Result;
use serde::Serialize;

use super::{Key, Keys, Source};
use crate::harness::keys::{Indices, scramble};
use crate::harness::options::parse_count;
use crate::hashing::functions::lever::INODE_SIZE;

/// The address at which kernel objects start, with 4 GiB of address space.
pub const KERNEL_MEMORY: u64 = 0xc100_0000;
/// Bytes of a page, and of a block of a file.
pub const PAGE: u64 = 4096;

/// A pattern of keys, and the number of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pattern {
    shape: Shape,
    keys: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Shape {
    Sequential,
    Stride(u64),
    Powers,
    Pointers(u64),
    Pages,
    Blocks(u64),
    Inodes,
    Random,
}

impl Pattern {
    /// Makes the pattern of keys 0, 1, 2 ...
    #[must_use]
    pub fn sequential(keys: u64) -> Self {
        Self { shape: Shape::Sequential, keys }
    }

    /// Makes keys of the page cache: addresses of inodes, and offsets of pages.
    #[must_use]
    pub fn pages(keys: u64) -> Self {
        Self { shape: Shape::Pages, keys }
    }

    /// Makes keys of the buffer cache: devices of two disks, and block numbers. At least `shortest`
    /// blocks of each block group are cached.
    #[must_use]
    pub fn blocks(keys: u64, shortest: u64) -> Self {
        Self { shape: Shape::Blocks(shortest), keys }
    }

    /// Makes keys of the inode cache: addresses of the superblocks of two file systems, and inode
    /// numbers.
    #[must_use]
    pub fn inodes(keys: u64) -> Self {
        Self { shape: Shape::Inodes, keys }
    }

    /// Returns the keys of this pattern, as a stream.
    #[must_use]
    pub fn source(self) -> Generator {
        Generator { pattern: self, made: 0, random: Indices::new(0..1 << 32, 1), at: 0, length: 0, left: 0 }
    }
}

/// The syntax of a [`Pattern`] on the command line, for error messages.
pub const SYNTAX: &str = "expected sequential:N, stride:N:STEP, powers:N, pointers:N:ALIGNMENT, pages:N, blocks:N:SHORTEST, inodes:N or random:N";

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(':');
        let (name, keys, argument) = (words.next(), words.next(), words.next());
        let (Some(name), Some(keys), None) = (name, keys, words.next()) else { return Err(SYNTAX.into()) };
        let argument = argument.map(parse_count).transpose()?;
        let shape = match (name, argument) {
            ("sequential", None) => Shape::Sequential,
            ("stride", Some(step)) => Shape::Stride(step),
            ("powers", None) => Shape::Powers,
            ("pointers", Some(alignment)) => Shape::Pointers(alignment),
            ("pages", None) => Shape::Pages,
            ("blocks", Some(shortest)) => Shape::Blocks(shortest),
            ("inodes", None) => Shape::Inodes,
            ("random", None) => Shape::Random,
            _ => return Err(SYNTAX.into()),
        };
        Ok(Self { shape, keys: parse_count(keys)? })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.keys;
        match self.shape {
            Shape::Sequential => write!(f, "sequential:{keys}"),
            Shape::Stride(step) => write!(f, "stride:{keys}:{step}"),
            Shape::Powers => write!(f, "powers:{keys}"),
            Shape::Pointers(alignment) => write!(f, "pointers:{keys}:{alignment}"),
            Shape::Pages => write!(f, "pages:{keys}"),
            Shape::Blocks(shortest) => write!(f, "blocks:{keys}:{shortest}"),
            Shape::Inodes => write!(f, "inodes:{keys}"),
            Shape::Random => write!(f, "random:{keys}"),
        }
    }
}

/// A stream of the keys of a pattern. They are distinct, and the same in every run.
#[derive(Clone, Debug)]
pub struct Generator {
    pattern: Pattern,
    made: u64,
    random: Indices,
    /// The number of the current file or group, or the current address. `length` and `left` are the
    /// number of its keys, and how many of them remain.
    at: u64,
    length: u64,
    left: u64,
}

impl Source for Generator {
    fn next(&mut self, keys: &mut Keys) -> Result<bool> {
        let number = self.made;
        if number == self.pattern.keys {
            return Ok(false);
        }
        self.made += 1;
        let key = match self.pattern.shape {
            Shape::Sequential => Key::Number(number),
            Shape::Stride(step) => Key::Number(number.wrapping_mul(step)),
            // Each key is an odd number times a power of two.
            Shape::Powers => Key::Number((2 * (number / 32) + 1) << (number % 32)),
            Shape::Pointers(alignment) => {
                // Like addresses from an allocator: mostly adjacent, with gaps of 1 to 16 objects.
                let gap = if self.below(4) == 0 { 1 + self.below(16) } else { 1 };
                self.at += gap * alignment;
                Key::Number(0x7f00_0000_0000 + self.at)
            }
            Shape::Pages => self.next_page(),
            Shape::Blocks(shortest) => self.next_block(shortest),
            Shape::Inodes => self.next_inode(),
            Shape::Random => Key::Number(scramble(number)),
        };
        keys.push(key);
        Ok(true)
    }
}

impl Generator {
    fn below(&mut self, bound: u64) -> u64 {
        (self.random.draw() * bound) >> 32
    }

    /// Begins a file or group. Its length is at least `shortest`; each doubling has half the
    /// probability, which resembles the distribution of file sizes.
    fn begin(&mut self, shortest: u64, doublings: u32) {
        let doubled = (0..doublings).take_while(|_| self.below(2) == 0).count();
        let least = shortest << doubled;
        self.length = least + self.below(least);
        self.left = self.length;
    }

    /// Generates the pages of files of up to 32 MiB, in order. Inodes lie side by side in pages of
    /// kernel memory.
    fn next_page(&mut self) -> Key<'static> {
        if self.left == 0 {
            self.at += 1;
            self.begin(1, 12);
        }
        self.left -= 1;
        Key::Pair(inode_address(self.at), (self.length - self.left - 1) * PAGE)
    }

    /// Generates the blocks of disks of 2 GB, two at a time (as in the paper's dual Pentium Pro),
    /// formatted by ext2 with blocks of 1 KiB. Each block group begins with descriptors, bitmaps
    /// and an inode table, so the cached blocks are the first ones of each group.
    fn next_block(&mut self, shortest: u64) -> Key<'static> {
        if self.left == 0 {
            self.at += 1;
            self.begin(shortest, 5);
            self.left = self.left.min(BLOCKS_PER_GROUP);
        }
        self.left -= 1;
        block(self.at - 1, self.left)
    }

    /// Generates the inodes of two ext2 file systems. ext2 spreads directories over its block
    /// groups, so 20 to 420 inodes are used at the start of each group.
    fn next_inode(&mut self) -> Key<'static> {
        if self.left == 0 {
            self.at += 1;
            self.left = 20 + self.below(400);
        }
        self.left -= 1;
        let group = self.at - 1;
        Key::Pair(superblock_address(group % 2), group / 2 * INODES_PER_GROUP + self.left + 1)
    }
}

/// Block groups of a disk of 2 GB, and blocks and inodes per group, as mke2fs chose them for blocks
/// of 1 KiB.
const GROUPS: u64 = 256;
const BLOCKS_PER_GROUP: u64 = 8192;
const INODES_PER_GROUP: u64 = 2048;

/// Returns the key of a block. Groups alternate between two disks; when these are full, two more
/// disks follow.
fn block(group: u64, block: u64) -> Key<'static> {
    let (pair, within) = (group / (2 * GROUPS), group % (2 * GROUPS));
    // The devices are hda1 and hdb1, then those of the next controller.
    let device = 0x0301 + 0x40 * (within % 2) + 0x100 * pair;
    Key::Pair(device, 1 + within / 2 * BLOCKS_PER_GROUP + block)
}

/// Returns the address of the `number`-th inode. Each page holds as many as fit, and the pages are
/// scattered.
fn inode_address(number: u64) -> u64 {
    const SIZE: u64 = INODE_SIZE as u64;
    const PER_PAGE: u64 = PAGE / SIZE;
    KERNEL_MEMORY + free_page(number / PER_PAGE) * PAGE + number % PER_PAGE * SIZE
}

/// Returns the address of the `number`-th free page: a permutation of the pages of 512 MiB, then of
/// the next 512 MiB.
pub fn free_page(number: u64) -> u64 {
    const PAGES: u64 = 1 << 17;
    let scattered = (number * 0x9e37) % PAGES;
    let scattered = ((scattered ^ scattered >> 9) * 0xe995) % PAGES;
    number / PAGES * PAGES + scattered
}

/// Returns the address of the `number`-th superblock, in an array in the kernel's data.
pub fn superblock_address(number: u64) -> u64 {
    0xc020_0000 + number * 256
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn keys(pattern: &str) -> Keys {
        let mut keys = Keys::default();
        assert!(!pattern.parse::<Pattern>().unwrap().source().fill(&mut keys, 1 << 20).unwrap());
        keys
    }

    #[test]
    fn every_pattern_has_as_many_distinct_keys_as_it_says() {
        for pattern in ["sequential", "stride", "powers", "pointers", "pages", "blocks", "inodes", "random"] {
            let argument = if ["stride", "pointers", "blocks"].contains(&pattern) { ":64" } else { "" };
            let text = format!("{pattern}:50000{argument}");
            let keys = keys(&text);
            let distinct: HashSet<_> = keys.iter().map(|key| key.words()).collect();
            assert_eq!((keys.len(), distinct.len()), (50_000, 50_000), "{pattern}");
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn patterns_are_as_they_say() {
        assert_eq!(keys("stride:3:4096").iter().collect::<Vec<_>>(), [0, 4096, 8192].map(Key::Number));
        assert!(keys("pointers:1000:16").iter().all(|key| key.sum().is_multiple_of(16)));
        assert!(keys("pages:1000").iter().all(|key| key.words().1.is_multiple_of(PAGE)));
        let devices: HashSet<_> = keys("blocks:30000:16").iter().map(|key| key.words().0).collect();
        assert_eq!(devices, HashSet::from([0x0301, 0x0341]));
    }

    #[test]
    fn other_patterns_are_refused() {
        for text in ["", "sequential", "sequential:0", "sequential:1:2", "stride:5", "pages:1:2:3", "primes:7"] {
            assert!(text.parse::<Pattern>().is_err(), "{text}");
        }
    }
}
