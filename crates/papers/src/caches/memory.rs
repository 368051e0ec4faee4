//! Addresses of kernel objects, positions of files on the disk, and the order of last use.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use relativist_bench::hashing::keys::patterns::{KERNEL_MEMORY, PAGE, free_page};

/// The size of a disk block in bytes.
pub const BLOCK: u64 = 1024;

/// Pages of kernel memory. They are allocated in order, and never freed.
#[derive(Debug, Default)]
pub struct Frames(u64);

impl Frames {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        KERNEL_MEMORY + free_page(self.0 - 1) * PAGE
    }
}

/// Addresses of objects of one size. Each page holds as many as fit, and the object that was freed
/// last is reused first.
#[derive(Debug)]
pub struct Slab {
    bytes: u64,
    free: Vec<u64>,
}

impl Slab {
    /// Makes a slab for objects of `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, free: Vec::new() }
    }

    pub fn take(&mut self, frames: &mut Frames) -> u64 {
        if self.free.is_empty() {
            let page = frames.next();
            self.free.extend((0..PAGE / self.bytes).rev().map(|index| page + index * self.bytes));
        }
        self.free.pop().expect("an object fits a page")
    }

    pub fn give_back(&mut self, address: u64) {
        self.free.push(address);
    }
}

/// Inodes and blocks of a disk in block groups, as in ext2. A new directory gets the next group.
/// Files stay in the group of their directory as long as there is room. The blocks of a file are
/// contiguous unless other files are written at the same time.
///
/// The disk is a partition of 128 cylinders, 255 heads and 63 sectors: 1,028,160 blocks in 126
/// groups, and an inode for every four blocks. So the number of inodes per group is not a power of
/// two.
#[derive(Debug, Default)]
pub struct Disk {
    groups: Vec<Group>,
    directories: u64,
}

#[derive(Debug, Default)]
struct Group {
    inodes: u64,
    free_inodes: Vec<u64>,
    blocks: u64,
    free_blocks: Vec<u64>,
}

impl Disk {
    const GROUPS: u64 = 126;
    const INODES: u64 = 2040;
    const BLOCKS: u64 = 8192;
    /// The first block of the inode table. Superblock, descriptors and bitmaps come before it.
    const INODE_TABLE: u64 = 5;
    const INODES_PER_BLOCK: u64 = 8;
    const FIRST_BLOCK: u64 = Self::INODE_TABLE + Self::INODES / Self::INODES_PER_BLOCK;

    /// Returns the group of a new directory.
    pub fn directory_group(&mut self) -> u64 {
        self.directories += 1;
        (self.directories - 1) % Self::GROUPS
    }

    /// Allocates an inode number, in this group if possible.
    pub fn take_inode(&mut self, group: u64) -> u64 {
        let fits = |group: &Group| !group.free_inodes.is_empty() || group.inodes < Self::INODES;
        let (number, group) = self.group_with_room(group, fits);
        let index = group.free_inodes.pop().unwrap_or_else(|| {
            group.inodes += 1;
            group.inodes - 1
        });
        number * Self::INODES + index + 1
    }

    pub fn free_inode(&mut self, inode: u64) {
        self.groups[((inode - 1) / Self::INODES) as usize].free_inodes.push((inode - 1) % Self::INODES);
    }

    /// Returns the block that holds an inode.
    pub fn inode_block(inode: u64) -> u64 {
        let (group, index) = ((inode - 1) / Self::INODES, (inode - 1) % Self::INODES);
        group * Self::BLOCKS + Self::INODE_TABLE + index / Self::INODES_PER_BLOCK
    }

    /// Allocates a block, in this group if possible.
    pub fn take_block(&mut self, group: u64) -> u64 {
        let room = Self::BLOCKS - Self::FIRST_BLOCK;
        let (number, group) = self.group_with_room(group, |group| !group.free_blocks.is_empty() || group.blocks < room);
        let index = group.free_blocks.pop().unwrap_or_else(|| {
            group.blocks += 1;
            group.blocks - 1
        });
        number * Self::BLOCKS + Self::FIRST_BLOCK + index
    }

    pub fn free_block(&mut self, block: u64) {
        self.groups[(block / Self::BLOCKS) as usize].free_blocks.push(block % Self::BLOCKS - Self::FIRST_BLOCK);
    }

    fn group_with_room(&mut self, first: u64, fits: impl Fn(&Group) -> bool) -> (u64, &mut Group) {
        let mut number = first;
        loop {
            if self.groups.len() <= number as usize {
                self.groups.resize_with(number as usize + 1, Group::default);
            }
            if fits(&self.groups[number as usize]) {
                return (number, &mut self.groups[number as usize]);
            }
            number += 1;
        }
    }
}

/// Objects in the order of their last use.
#[derive(Debug)]
pub struct Recency<T> {
    times: HashMap<T, u64>,
    order: BTreeMap<u64, T>,
    now: u64,
}

impl<T> Default for Recency<T> {
    fn default() -> Self {
        Self { times: HashMap::new(), order: BTreeMap::new(), now: 0 }
    }
}

impl<T: Copy + Eq + Hash> Recency<T> {
    pub fn touch(&mut self, thing: T) {
        self.now += 1;
        if let Some(before) = self.times.insert(thing, self.now) {
            self.order.remove(&before);
        }
        self.order.insert(self.now, thing);
    }

    pub fn forget(&mut self, thing: T) {
        if let Some(time) = self.times.remove(&thing) {
            self.order.remove(&time);
        }
    }

    /// Iterates over all objects, from the least recently used one on.
    pub fn oldest(&self) -> impl Iterator<Item = T> {
        self.order.values().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn addresses_are_distinct_until_given_back() {
        let (mut frames, mut slab) = (Frames::default(), Slab::new(392));
        let addresses: HashSet<u64> = (0..2560).map(|_| slab.take(&mut frames)).collect();
        assert_eq!((addresses.len(), frames.0), (2560, 256), "ten to a page");
        slab.give_back(KERNEL_MEMORY + 7);
        assert_eq!(slab.take(&mut frames), KERNEL_MEMORY + 7);
    }

    #[test]
    fn what_belongs_together_is_close_on_the_disk() {
        let mut disk = Disk::default();
        let groups = [disk.directory_group(), disk.directory_group()];
        assert_eq!(groups, [0, 1]);
        let inodes = [1, 0, 1].map(|group| disk.take_inode(group));
        assert_eq!(inodes, [2041, 1, 2042]);
        assert_eq!([1, 9, 2041].map(Disk::inode_block), [5, 6, 8192 + 5]);
        let blocks = [1, 1, 0].map(|group| disk.take_block(group));
        assert_eq!(blocks, [8192 + 260, 8192 + 261, 260]);
        disk.free_block(blocks[0]);
        disk.free_inode(2041);
        assert_eq!((disk.take_block(1), disk.take_inode(1)), (blocks[0], 2041));
        // If a group is full, the next one is used.
        let all: HashSet<u64> = (0..20_000).map(|_| disk.take_block(0)).collect();
        assert_eq!(all.len(), 20_000);
    }

    #[test]
    fn the_oldest_comes_first() {
        let mut recency = Recency::default();
        [1, 2, 3, 1].into_iter().for_each(|thing| recency.touch(thing));
        recency.forget(3);
        assert_eq!(recency.oldest().collect::<Vec<_>>(), [2, 1]);
    }
}
