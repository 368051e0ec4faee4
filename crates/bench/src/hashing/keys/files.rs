//! Keys that a kernel would have for the files below a directory, in each of the four caches of
//! Lever's paper.
//!
//! Names, inode numbers, devices, sizes and, if the file system reports them, block numbers are
//! those of this machine. The addresses of kernel objects are not visible to programs. They are
//! assigned in the order of the walk, as a slab allocator does on ia32.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use walkdir::{DirEntry, WalkDir};

use super::patterns::{KERNEL_MEMORY, PAGE, inode_address, superblock_address};
use super::{Key, Keys, Source};

/// The caches of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// Address of an inode, and offset of a page of its file
    Page,
    /// Device, and block number
    Buffer,
    /// Address of a directory's dentry, and a name in it
    Dentry,
    /// Address of a superblock, and inode number
    Inode,
}

/// The keys of one cache for all files below a directory. Unreadable files are left out; hard links
/// count once.
pub struct Files {
    cache: Cache,
    walk: walkdir::IntoIter,
    /// Addresses of the directories on the path to the current entry, the first one included.
    parents: Vec<u64>,
    entries: u64,
    devices: Vec<u64>,
    /// Inodes with several names that have been counted.
    linked: HashSet<(u64, u64)>,
    blocks: Blocks,
    /// The remaining keys of the current file: the first word, and the range of the second word.
    runs: Vec<(u64, u64, u64)>,
}

/// The source of block numbers. One source is used for all files, because numbers of two sources
/// could collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocks {
    Unknown,
    FromFileSystem,
    /// Files are laid out one after the other; this is the next free block.
    Computed(u64),
}

impl Files {
    /// Walks `directory`.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub fn below(directory: &Path, cache: Cache) -> Result<Self> {
        directory.read_dir().with_context(|| format!("cannot read {}", directory.display()))?;
        Ok(Self {
            cache,
            walk: WalkDir::new(directory).into_iter(),
            parents: Vec::new(),
            entries: 0,
            devices: Vec::new(),
            linked: HashSet::new(),
            blocks: Blocks::Unknown,
            runs: Vec::new(),
        })
    }

    /// Visits an entry. Returns whether this added a key.
    fn visit(&mut self, entry: &DirEntry, keys: &mut Keys) -> bool {
        self.entries += 1;
        if self.cache == Cache::Dentry {
            return self.visit_name(entry, keys);
        }
        let Ok(metadata) = entry.metadata() else { return false };
        if metadata.nlink() > 1 && !metadata.is_dir() && !self.linked.insert((metadata.dev(), metadata.ino())) {
            return false;
        }
        match self.cache {
            Cache::Inode => {
                keys.push(Key::Pair(self.superblock(metadata.dev()), metadata.ino()));
                return true;
            }
            Cache::Page if metadata.is_file() => {
                let pages = metadata.len().div_ceil(PAGE).min((metadata.blocks() * 512).div_ceil(PAGE));
                self.runs.push((inode_address(self.entries), 0, pages));
            }
            Cache::Buffer if metadata.is_file() => self.find_blocks(entry.path(), &metadata),
            Cache::Page | Cache::Buffer | Cache::Dentry => {}
        }
        false
    }

    fn visit_name(&mut self, entry: &DirEntry, keys: &mut Keys) -> bool {
        const DENTRY_SIZE: u64 = 128;
        self.parents.truncate(entry.depth());
        let parent = self.parents.last().copied();
        if entry.file_type().is_dir() {
            self.parents.push(KERNEL_MEMORY + self.entries * DENTRY_SIZE);
        }
        // The first directory of the walk has no parent.
        let Some(parent) = parent else { return false };
        keys.push(Key::Name(parent, entry.file_name().as_encoded_bytes()));
        true
    }

    fn superblock(&mut self, device: u64) -> u64 {
        let known = self.devices.iter().position(|known| *known == device);
        let number = known.unwrap_or_else(|| {
            self.devices.push(device);
            self.devices.len() - 1
        });
        superblock_address(number as u64)
    }

    fn find_blocks(&mut self, path: &Path, metadata: &Metadata) {
        /// The number of blocks that ext2 reserves for a file that grows.
        const PREALLOCATED: u64 = 8;
        let blocks = (metadata.blocks() * 512).div_ceil(PAGE);
        if blocks == 0 {
            return;
        }
        let device = metadata.dev();
        if self.blocks == Blocks::Unknown {
            self.blocks = if extents(path).is_some() { Blocks::FromFileSystem } else { Blocks::Computed(0) };
        }
        if let Blocks::Computed(next) = self.blocks {
            self.runs.push((device, next, next + blocks));
            self.blocks = Blocks::Computed(next + blocks.next_multiple_of(PREALLOCATED));
        } else if let Some(extents) = extents(path) {
            self.runs.extend(extents.into_iter().map(|(from, to)| (device, from, to)));
        }
    }
}

/// Returns the blocks of a file as ranges on its device, the last one first, or `None` if the file
/// system does not report them.
#[cfg(target_os = "linux")]
fn extents(path: &Path) -> Option<Vec<(u64, u64)>> {
    use fiemap::FiemapExtentFlags as Flags;
    let nowhere = Flags::UNKNOWN | Flags::DELALLOC | Flags::DATA_INLINE;
    let mut found = Vec::new();
    for extent in fiemap::fiemap(path).ok()? {
        let extent = extent.ok()?;
        if !extent.fe_flags.intersects(nowhere) {
            found.push((extent.fe_physical / PAGE, (extent.fe_physical + extent.fe_length).div_ceil(PAGE)));
        }
    }
    found.reverse();
    Some(found)
}

#[cfg(not(target_os = "linux"))]
fn extents(_: &Path) -> Option<Vec<(u64, u64)>> {
    None
}

impl Source for Files {
    fn next(&mut self, keys: &mut Keys) -> Result<bool> {
        loop {
            if let Some((first, from, to)) = self.runs.last_mut() {
                if from < to {
                    let unit = if self.cache == Cache::Page { PAGE } else { 1 };
                    keys.push(Key::Pair(*first, *from * unit));
                    *from += 1;
                    return Ok(true);
                }
                self.runs.pop();
                continue;
            }
            let Some(entry) = self.walk.next() else { return Ok(false) };
            if entry.is_ok_and(|entry| self.visit(&entry, keys)) {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Returns the keys of a directory with two files of one and three pages, a link to one of
    /// them, and an empty file below another directory.
    fn keys(cache: Cache) -> Keys {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("one"), [1; PAGE as usize]).unwrap();
        fs::write(path("three"), [3; 3 * PAGE as usize]).unwrap();
        fs::hard_link(path("three"), path("link")).unwrap();
        fs::create_dir(path("below")).unwrap();
        fs::write(path("below/one"), []).unwrap();
        // File systems allocate blocks late, so the data is written back first.
        for file in ["one", "three"] {
            fs::File::open(path(file)).unwrap().sync_all().unwrap();
        }
        let mut keys = Keys::default();
        assert!(!Files::below(directory.path(), cache).unwrap().fill(&mut keys, 1000).unwrap());
        keys
    }

    #[test]
    fn dentries_are_names_in_directories() {
        let keys = keys(Cache::Dentry);
        let mut names: Vec<(u64, &[u8])> = keys
            .iter()
            .map(|key| match key {
                Key::Name(parent, name) => (parent, name),
                other => panic!("{other:?}"),
            })
            .collect();
        names.sort_unstable();
        let words: Vec<&[u8]> = names.iter().map(|(_, name)| *name).collect();
        assert_eq!(words, [&b"below"[..], b"link", b"one", b"three", b"one"]);
        assert!(names[..4].iter().all(|(parent, _)| *parent == names[0].0) && names[4].0 > names[0].0);
    }

    #[test]
    fn inodes_count_once() {
        let keys = keys(Cache::Inode);
        let numbers: HashSet<_> = keys.iter().map(|key| key.words()).collect();
        // The keys are those of two directories and three files.
        assert_eq!((keys.len(), numbers.len()), (5, 5));
    }

    #[test]
    fn pages_are_offsets_in_files() {
        let keys = keys(Cache::Page);
        let mut offsets: Vec<u64> = keys.iter().map(|key| key.words().1).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, [0, 0, PAGE, 2 * PAGE]);
    }

    #[test]
    fn blocks_are_distinct() {
        let keys = keys(Cache::Buffer);
        let blocks: HashSet<_> = keys.iter().map(|key| key.words()).collect();
        assert_eq!((keys.len(), blocks.len()), (4, 4));
    }

    #[test]
    fn a_directory_that_is_none_is_refused() {
        assert!(Files::below(Path::new("/nonexistent/nowhere"), Cache::Inode).is_err());
    }
}
