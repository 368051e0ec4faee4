//! A trace of the operations on the four caches. It does not depend on hash functions or table
//! sizes, so it is simulated once, and then replayed on the tables of each kernel.

use std::collections::HashMap;

use serde::Serialize;

/// The four caches of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// The key is the address of an inode, and an offset in its file.
    Page,
    /// The key is a device, and a block number.
    Buffer,
    /// The key is the address of a directory's dentry, and a name in it.
    Dentry,
    /// The key is the address of a superblock, and an inode number.
    Inode,
}

/// The caches in the paper's order, which is also the order of their numbers.
pub const CACHES: [Cache; 4] = [Cache::Page, Cache::Buffer, Cache::Dentry, Cache::Inode];

/// A key: the two arguments of the hash function, and for a dentry the number of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Words {
    pub first: u64,
    /// An offset, a block number, an inode number, or the hash of a name.
    pub second: u64,
    /// For a dentry the number of its name, otherwise 0.
    pub name: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A lookup that hits.
    Hit,
    /// A lookup that misses.
    Miss,
    /// An insertion of the object.
    Insert,
    Remove,
}

/// An operation on a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub cache: Cache,
    pub action: Action,
    /// The index of the object's key in `Trace::keys` of the cache.
    pub object: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// All keys of each cache.
    pub keys: [Vec<Words>; 4],
    pub events: Vec<Event>,
    /// The number of events before the users delete their files. At that point the caches are
    /// fullest.
    pub full: usize,
}

impl Trace {
    pub fn lookups(&self) -> usize {
        self.events.iter().filter(|event| matches!(event.action, Action::Hit | Action::Miss)).count()
    }
}

/// Records a trace, and tracks the content of the caches.
#[derive(Debug, Default)]
pub struct Recorder {
    trace: Trace,
    numbers: [HashMap<Words, u32>; 4],
    present: [Vec<bool>; 4],
    counts: [usize; 4],
}

impl Recorder {
    /// Records a lookup. Returns whether it hit.
    pub fn find(&mut self, cache: Cache, key: Words) -> bool {
        let object = self.number(cache, key);
        let hit = self.present[cache as usize][object as usize];
        self.push(cache, if hit { Action::Hit } else { Action::Miss }, object);
        hit
    }

    pub fn insert(&mut self, cache: Cache, key: Words) {
        let object = self.number(cache, key);
        let before = std::mem::replace(&mut self.present[cache as usize][object as usize], true);
        assert!(!before, "{cache:?} holds {key:?} already");
        self.counts[cache as usize] += 1;
        self.push(cache, Action::Insert, object);
    }

    pub fn remove(&mut self, cache: Cache, key: Words) {
        let object = self.number(cache, key);
        let before = std::mem::replace(&mut self.present[cache as usize][object as usize], false);
        assert!(before, "{cache:?} doesn't hold {key:?}");
        self.counts[cache as usize] -= 1;
        self.push(cache, Action::Remove, object);
    }

    /// Returns whether the cache holds the key, without recording a lookup.
    pub fn holds(&self, cache: Cache, key: Words) -> bool {
        let number = self.numbers[cache as usize].get(&key);
        number.is_some_and(|&object| self.present[cache as usize][object as usize])
    }

    /// Returns the number of objects in the cache.
    pub fn count(&self, cache: Cache) -> usize {
        self.counts[cache as usize]
    }

    /// Marks the point after which the users delete their files.
    pub fn mark_full(&mut self) {
        self.trace.full = self.trace.events.len();
    }

    pub fn finish(self) -> Trace {
        self.trace
    }

    fn number(&mut self, cache: Cache, key: Words) -> u32 {
        let (keys, present) = (&mut self.trace.keys[cache as usize], &mut self.present[cache as usize]);
        *self.numbers[cache as usize].entry(key).or_insert_with(|| {
            keys.push(key);
            present.push(false);
            u32::try_from(keys.len() - 1).expect("fewer than 2^32 objects")
        })
    }

    fn push(&mut self, cache: Cache, action: Action, object: u32) {
        self.trace.events.push(Event { cache, action, object });
    }
}
