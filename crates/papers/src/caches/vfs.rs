//! How Linux 2.2 executes file operations: which objects it looks up in the four caches, inserts
//! and removes.
//!
//! * A path is walked name by name in the dentry cache, which also holds names that do not exist.
//!   Names that it lacks are searched in the directory's blocks, and their inodes in the inode
//!   cache.
//! * A read looks up pages. To fetch a missing page, it looks up the disk blocks of the page,
//!   because the buffer cache may hold newer data. For pages beyond the first twelve blocks, it
//!   also looks up the indirect block.
//! * A write looks up blocks, which stay in the buffer cache, and the page of each block, which
//!   must be updated if it is cached.
//! * When memory is short, the least recently used pages and blocks are freed. The dentry cache is
//!   pruned only when none are left; with `shrink`, it is pruned each time. Pruning frees 1 /
//!   (priority + 1) of the unused dentries, with a priority that falls from 6 to 0 (section 3.3).
//!
//! The simulation has no memory of processes, no swap cache, no read-ahead, and only one disk.

use std::collections::HashMap;

use super::events::{Cache, Recorder, Trace, Words};
use super::memory::{BLOCK, Disk, Frames, Recency, Slab};
use super::workload::{Operation, Paths, ROOT, Request, Workload};
use relativist_bench::hashing::functions::lever::{INODE_SIZE, name_hash};
use relativist_bench::hashing::keys::patterns::{PAGE, superblock_address};

/// The device number of the first partition of the first disk.
const DEVICE: u64 = 0x0301;

/// The address of the root's dentry, in a page allocated at start-up. This dentry always exists.
const ROOT_DENTRY: u64 = 0xc0fe_0000;

/// The size of a dentry in bytes.
const DENTRY: u64 = 128;

/// The size of an inode in bytes.
const INODE: u64 = INODE_SIZE as u64;

/// The number of direct blocks, which the inode lists itself.
const DIRECT: usize = 12;

/// The number of entries that fit into a block of a directory.
const ENTRIES: usize = 60;

/// The number of pages and blocks freed at a time.
const BATCH: usize = 32;

/// The priority at which freeing memory starts.
const PRIORITY: usize = 6;

/// A file or directory on the disk.
#[derive(Debug)]
struct File {
    inode: u64,
    group: u64,
    blocks: Vec<u64>,
    /// The position of the file's name in its directory.
    position: usize,
}

#[derive(Debug)]
struct Dentry {
    address: u64,
    /// The number of cached dentries below this one. While there are any, this dentry is in use.
    children: usize,
}

#[derive(Debug)]
struct Inode {
    address: u64,
    path: u32,
    pages: usize,
}

/// An object that can be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Frame {
    Page { inode: u64, index: u64 },
    Buffer(u64),
}

struct Vfs<'w> {
    paths: &'w Paths,
    memory: u64,
    shrink: bool,
    recorder: Recorder,
    disk: Disk,
    frames: Frames,
    dentry_slab: Slab,
    inode_slab: Slab,
    files: HashMap<u32, File>,
    /// The number of names in each directory.
    entries: HashMap<u32, usize>,
    groups: HashMap<u32, u64>,
    dentries: HashMap<u32, Dentry>,
    inodes: HashMap<u64, Inode>,
    data: Recency<Frame>,
    names: Recency<u32>,
}

/// Simulates a workload on a machine with `memory` bytes, and returns the trace.
pub fn simulate(workload: &Workload, memory: u64, shrink: bool) -> Trace {
    let mut vfs = Vfs {
        paths: &workload.paths,
        memory,
        shrink,
        recorder: Recorder::default(),
        disk: Disk::default(),
        frames: Frames::default(),
        dentry_slab: Slab::new(DENTRY),
        inode_slab: Slab::new(INODE),
        files: HashMap::new(),
        entries: HashMap::new(),
        groups: HashMap::new(),
        dentries: HashMap::new(),
        inodes: HashMap::new(),
        data: Recency::default(),
        names: Recency::default(),
    };
    for &(path, bytes) in &workload.files {
        vfs.place(path, bytes);
    }
    for (number, operation) in workload.operations.iter().enumerate() {
        if number == workload.work {
            vfs.recorder.mark_full();
        }
        vfs.perform(*operation);
    }
    if workload.work == workload.operations.len() {
        vfs.recorder.mark_full();
    }
    vfs.recorder.finish()
}

impl Vfs<'_> {
    fn perform(&mut self, Operation { path, request }: Operation) {
        match request {
            Request::Look => _ = self.look(path),
            Request::Create => self.create(path),
            Request::Read(offset, bytes) => self.read(path, offset, bytes),
            Request::Write(offset, bytes) => self.write(path, offset, bytes),
            Request::Truncate => self.truncate(path),
            Request::Remove => self.remove(path),
        }
        self.reclaim();
    }

    /// Puts a file and its directories on the disk, without an effect on the caches.
    fn place(&mut self, path: u32, bytes: u64) {
        if self.files.contains_key(&path) {
            return;
        }
        let parent = self.paths.parent(path);
        if path != ROOT {
            self.place(parent, BLOCK);
        }
        let group = match self.groups.get(&parent) {
            Some(&group) if path != ROOT => group,
            _ => {
                let group = self.disk.directory_group();
                self.groups.insert(parent, group);
                group
            }
        };
        let position = self.entries.entry(parent).or_default();
        *position += 1;
        let position = *position - 1;
        let inode = self.disk.take_inode(group);
        let blocks = (0..on_disk(bytes.div_ceil(BLOCK) as usize)).map(|_| self.disk.take_block(group)).collect();
        self.files.insert(path, File { inode, group, blocks, position });
    }

    /// Walks a path. Returns whether it exists.
    fn look(&mut self, path: u32) -> bool {
        let steps = self.paths.steps(path);
        self.place(ROOT, BLOCK);
        steps.into_iter().all(|step| self.step(step))
    }

    /// Looks up a name in its directory, whose dentry is cached.
    fn step(&mut self, path: u32) -> bool {
        let key = self.dentry_key(path);
        let exists = self.files.contains_key(&path);
        if !self.recorder.find(Cache::Dentry, key) {
            self.search_directory(path);
            if exists {
                self.fetch_inode(path);
            }
            self.recorder.insert(Cache::Dentry, key);
            let address = self.dentry_slab.take(&mut self.frames);
            self.dentries.insert(path, Dentry { address, children: 0 });
            if let Some(parent) = self.dentries.get_mut(&self.paths.parent(path)) {
                parent.children += 1;
            }
        }
        self.names.touch(path);
        exists
    }

    /// Reads the blocks of the directory up to the one with the name, or all blocks if it has no
    /// such name.
    fn search_directory(&mut self, path: u32) {
        let parent = self.paths.parent(path);
        let count = self.entries.get(&parent).copied().unwrap_or(0);
        let last = self.files.get(&path).map_or(count.saturating_sub(1), |file| file.position) / ENTRIES;
        for index in 0..=last {
            let Some(directory) = self.files.get_mut(&parent) else { return };
            while directory.blocks.len() <= index {
                directory.blocks.push(self.disk.take_block(directory.group));
            }
            let block = directory.blocks[index];
            self.use_block(block);
        }
    }

    fn fetch_inode(&mut self, path: u32) {
        let inode = self.files[&path].inode;
        if !self.recorder.find(Cache::Inode, inode_key(inode)) {
            self.use_block(Disk::inode_block(inode));
            self.keep_inode(inode, path);
        }
    }

    fn keep_inode(&mut self, inode: u64, path: u32) {
        self.recorder.insert(Cache::Inode, inode_key(inode));
        let address = self.inode_slab.take(&mut self.frames);
        self.inodes.insert(inode, Inode { address, path, pages: 0 });
    }

    /// Looks up a block, and reads it if it is not cached.
    fn use_block(&mut self, block: u64) {
        if !self.recorder.find(Cache::Buffer, buffer_key(block)) {
            self.recorder.insert(Cache::Buffer, buffer_key(block));
        }
        self.data.touch(Frame::Buffer(block));
    }

    /// Returns the inode of a file. Looks up the path again if the inode is no longer cached.
    fn opened(&mut self, path: u32) -> u64 {
        if !self.files.contains_key(&path) {
            self.create(path);
        }
        let inode = self.files[&path].inode;
        if !self.inodes.contains_key(&inode) {
            self.look(path);
        }
        inode
    }

    /// Looks up the indirect block, for a block of the file that is not a direct one.
    fn use_index(&mut self, path: u32, index: usize) {
        // On the disk, the indirect block lies before the blocks that it lists.
        if index >= DIRECT {
            let block = self.files[&path].blocks[DIRECT];
            self.use_block(block);
        }
    }

    fn extend(&mut self, path: u32, blocks: usize) {
        let file = self.files.get_mut(&path).expect("it is open");
        while file.blocks.len() < on_disk(blocks) {
            file.blocks.push(self.disk.take_block(file.group));
        }
    }

    /// Returns the number of content blocks of a file.
    fn length(&self, path: u32) -> usize {
        let blocks = self.files[&path].blocks.len();
        blocks - usize::from(blocks > DIRECT)
    }

    /// Returns the disk block number of a file's block.
    fn block(&self, path: u32, index: usize) -> u64 {
        self.files[&path].blocks[index + usize::from(index >= DIRECT)]
    }

    fn read(&mut self, path: u32, offset: u64, bytes: u64) {
        let inode = self.opened(path);
        self.extend(path, (offset + bytes).div_ceil(BLOCK) as usize);
        for index in offset / PAGE..(offset + bytes).div_ceil(PAGE) {
            let key = self.page_key(inode, index);
            if !self.recorder.find(Cache::Page, key) {
                let first = (index * PAGE / BLOCK) as usize;
                for block in first..self.length(path).min(first + (PAGE / BLOCK) as usize) {
                    self.use_index(path, block);
                    let newer = buffer_key(self.block(path, block));
                    self.recorder.find(Cache::Buffer, newer);
                }
                self.recorder.insert(Cache::Page, key);
                self.inodes.get_mut(&inode).expect("it is open").pages += 1;
            }
            self.data.touch(Frame::Page { inode, index });
        }
    }

    fn write(&mut self, path: u32, offset: u64, bytes: u64) {
        let inode = self.opened(path);
        let end = (offset + bytes).div_ceil(BLOCK);
        self.extend(path, end as usize);
        for block in offset / BLOCK..end {
            self.use_index(path, block as usize);
            self.use_block(self.block(path, block as usize));
            let key = self.page_key(inode, block * BLOCK / PAGE);
            self.recorder.find(Cache::Page, key);
        }
    }

    fn create(&mut self, path: u32) {
        if self.look(path) {
            return self.cut(path);
        }
        // The directory, and the block that holds the inode, are written.
        self.place(path, 0);
        self.search_directory(path);
        let inode = self.files[&path].inode;
        self.use_block(Disk::inode_block(inode));
        self.keep_inode(inode, path);
    }

    fn truncate(&mut self, path: u32) {
        if self.look(path) {
            self.cut(path);
        }
    }

    /// Removes the pages and blocks of a file. Pages are removed without a lookup, because the
    /// inode lists them; blocks are looked up.
    fn cut(&mut self, path: u32) {
        let inode = self.files[&path].inode;
        let blocks = std::mem::take(&mut self.files.get_mut(&path).expect("it is there").blocks);
        for index in 0..(blocks.len() as u64 * BLOCK).div_ceil(PAGE) {
            self.drop_page(inode, index);
        }
        for &block in &blocks {
            if self.recorder.find(Cache::Buffer, buffer_key(block)) {
                self.recorder.remove(Cache::Buffer, buffer_key(block));
                self.data.forget(Frame::Buffer(block));
            }
        }
        // The last block is freed first, so that the blocks are reused in order.
        blocks.into_iter().rev().for_each(|block| self.disk.free_block(block));
    }

    fn remove(&mut self, path: u32) {
        if !self.look(path) {
            return;
        }
        self.search_directory(path);
        self.cut(path);
        let inode = self.files.remove(&path).expect("it is there").inode;
        self.use_block(Disk::inode_block(inode));
        self.drop_inode(inode);
        self.disk.free_inode(inode);
    }

    fn drop_page(&mut self, inode: u64, index: u64) {
        if self.inodes.contains_key(&inode) && self.recorder.holds(Cache::Page, self.page_key(inode, index)) {
            let key = self.page_key(inode, index);
            self.recorder.remove(Cache::Page, key);
            self.data.forget(Frame::Page { inode, index });
            self.inodes.get_mut(&inode).expect("it has pages").pages -= 1;
        }
    }

    fn drop_inode(&mut self, inode: u64) {
        if let Some(Inode { address, .. }) = self.inodes.remove(&inode) {
            self.recorder.remove(Cache::Inode, inode_key(inode));
            self.inode_slab.give_back(address);
        }
    }

    /// Frees an inode if it has no cached page and no cached name.
    fn release(&mut self, number: u64) {
        let unused = |inode: &Inode| inode.pages == 0 && !self.dentries.contains_key(&inode.path);
        if self.inodes.get(&number).is_some_and(unused) {
            self.drop_inode(number);
        }
    }

    fn drop_dentry(&mut self, path: u32) {
        if !self.dentries.contains_key(&path) {
            return;
        }
        let key = self.dentry_key(path);
        self.recorder.remove(Cache::Dentry, key);
        self.names.forget(path);
        let Dentry { address, .. } = self.dentries.remove(&path).expect("it is in memory");
        self.dentry_slab.give_back(address);
        if let Some(parent) = self.dentries.get_mut(&self.paths.parent(path)) {
            parent.children -= 1;
        }
        if let Some(file) = self.files.get(&path) {
            self.release(file.inode);
        }
    }

    /// Returns the bytes that the four caches use.
    fn used(&self) -> u64 {
        let of = |cache, bytes| self.recorder.count(cache) as u64 * bytes;
        of(Cache::Page, PAGE) + of(Cache::Buffer, BLOCK) + of(Cache::Dentry, DENTRY) + of(Cache::Inode, INODE)
    }

    /// Frees memory if the caches use more than the limit.
    fn reclaim(&mut self) {
        for priority in (0..=PRIORITY).rev().cycle() {
            if self.used() <= self.memory {
                return;
            }
            if self.shrink {
                self.prune(priority);
            }
            let oldest: Vec<Frame> = self.data.oldest().take(BATCH).collect();
            if oldest.is_empty() && !self.prune(priority) && priority == 0 {
                return;
            }
            for frame in oldest {
                match frame {
                    Frame::Page { inode, index } => {
                        self.drop_page(inode, index);
                        self.release(inode);
                    }
                    Frame::Buffer(block) => {
                        self.recorder.remove(Cache::Buffer, buffer_key(block));
                        self.data.forget(frame);
                    }
                }
            }
        }
    }

    /// Frees the least recently used of the unused dentries. Returns whether there were any.
    fn prune(&mut self, priority: usize) -> bool {
        let unused = self.names.oldest().filter(|path| self.dentries[path].children == 0);
        let unused: Vec<u32> = unused.collect();
        let count = unused.len() / (priority + 1);
        unused[..count].iter().for_each(|&path| self.drop_dentry(path));
        count > 0
    }

    fn dentry_key(&self, path: u32) -> Words {
        let parent = self.dentries.get(&self.paths.parent(path)).map_or(ROOT_DENTRY, |parent| parent.address);
        let (name, letters) = self.paths.name(path);
        Words { first: parent, second: name_hash(letters).into(), name }
    }

    fn page_key(&self, inode: u64, index: u64) -> Words {
        Words { first: self.inodes[&inode].address, second: index * PAGE, name: 0 }
    }
}

/// Returns the number of disk blocks of a file with this number of content blocks: one more if it
/// needs an indirect block.
fn on_disk(blocks: usize) -> usize {
    blocks + usize::from(blocks > DIRECT)
}

fn buffer_key(block: u64) -> Words {
    Words { first: DEVICE, second: block, name: 0 }
}

fn inode_key(inode: u64) -> Words {
    Words { first: superblock_address(0), second: inode, name: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caches::events::Action::{self, Hit, Insert, Miss, Remove};
    use crate::caches::scripts::{generate, tests::tree};

    fn trace(memory: u64, files: &[(&str, u64)], operations: &[(&str, Request)]) -> Trace {
        let mut workload = Workload::default();
        workload.files = files.iter().map(|(path, bytes)| (workload.paths.number(path.as_bytes()), *bytes)).collect();
        for (path, request) in operations {
            let path = workload.paths.number(path.as_bytes());
            workload.operations.push(Operation { path, request: *request });
        }
        workload.work = workload.operations.len();
        simulate(&workload, memory, false)
    }

    fn of(trace: &Trace, cache: Cache) -> Vec<(Action, u32)> {
        let events = trace.events.iter().filter(|event| event.cache == cache);
        events.map(|event| (event.action, event.object)).collect()
    }

    #[test]
    fn names_are_looked_up_once_and_then_found() {
        let look = ("/a/b", Request::Look);
        let trace = trace(1 << 20, &[("/a/b", 100)], &[look, look, ("/a/c", Request::Look), ("/a/c", Request::Look)]);
        let expected = [(Miss, 0), (Insert, 0), (Miss, 1), (Insert, 1), (Hit, 0), (Hit, 1)];
        let absent = [(Hit, 0), (Miss, 2), (Insert, 2), (Hit, 0), (Hit, 2)];
        assert_eq!(of(&trace, Cache::Dentry), [&expected[..], &absent].concat());
        // A missing file has no inode.
        assert_eq!(of(&trace, Cache::Inode), [(Miss, 0), (Insert, 0), (Miss, 1), (Insert, 1)]);
        // The blocks of the root, of both inodes, and of the directory.
        let blocks = of(&trace, Cache::Buffer);
        assert_eq!(blocks.iter().filter(|(action, _)| *action == Insert).count(), 4, "{blocks:?}");
    }

    #[test]
    fn pages_are_read_once_and_blocks_of_long_files_by_an_index() {
        let read = |offset, bytes| ("/f", Request::Read(offset, bytes));
        let trace = trace(1 << 20, &[("/f", 20_000)], &[read(0, 4096), read(100, 5000), read(16_384, 1)]);
        let pages = of(&trace, Cache::Page);
        assert_eq!(pages, [(Miss, 0), (Insert, 0), (Hit, 0), (Miss, 1), (Insert, 1), (Miss, 2), (Insert, 2)]);
        assert_eq!(trace.keys[Cache::Page as usize][2].second, 16_384);
        let buffers = trace.keys[Cache::Buffer as usize].len();
        // The blocks of the directory and the inode (2), four blocks per page (8), and the indirect
        // block for the last page (1).
        assert_eq!(buffers, 2 + 4 + 4 + 5);
    }

    #[test]
    fn what_is_removed_leaves_nothing_but_its_name() {
        let steps = [
            ("/t", Request::Create),
            ("/t", Request::Write(0, 3000)),
            ("/t", Request::Read(0, 3000)),
            ("/t", Request::Remove),
        ];
        let trace = trace(1 << 20, &[], &steps);
        assert_eq!(of(&trace, Cache::Page).last(), Some(&(Remove, 0)));
        assert_eq!(of(&trace, Cache::Inode), [(Insert, 0), (Remove, 0)]);
        let removed = of(&trace, Cache::Buffer).iter().filter(|(action, _)| *action == Remove).count();
        assert_eq!(removed, 3);
        let dentries = of(&trace, Cache::Dentry);
        assert_eq!(dentries.iter().filter(|(action, _)| *action != Hit).count(), 2, "{dentries:?}");
    }

    #[test]
    fn memory_is_a_limit() {
        let files: Vec<String> = (0..100).map(|n| format!("/f{n}")).collect();
        let files: Vec<(&str, u64)> = files.iter().map(|path| (path.as_str(), 8192)).collect();
        let reads: Vec<_> = files.iter().chain(&files).map(|(path, bytes)| (*path, Request::Read(0, *bytes))).collect();
        let roomy = trace(4 << 20, &files, &reads);
        let tight = trace(256 << 10, &files, &reads);
        let misses = |trace| of(trace, Cache::Page).iter().filter(|(action, _)| *action == Miss).count();
        assert_eq!((misses(&roomy), misses(&tight)), (200, 400));
    }

    /// The recorder panics if the simulation loses track of an object. With `shrink`, fewer names
    /// remain cached.
    #[test]
    fn shrinking_prunes_names() {
        let workload = generate(&tree(), 6, 3);
        let held = |shrink| {
            let trace = simulate(&workload, 1 << 20, shrink);
            let count = |wanted| of(&trace, Cache::Dentry).iter().filter(|(action, _)| *action == wanted).count();
            (count(Insert) - count(Remove), count(Remove))
        };
        let (plain, shrunk) = (held(false), held(true));
        assert!(shrunk.0 < plain.0 && shrunk.1 > plain.1, "{plain:?} {shrunk:?}");
    }
}
