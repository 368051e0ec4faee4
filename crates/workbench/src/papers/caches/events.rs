//! The operations on the four caches, key by key: the part of a simulation that does not depend on
//! hash functions or table sizes. It is simulated once, and then replayed on the tables of each
//! kernel.

use std::collections::HashMap;

pub use crate::hashing::keys::files::Cache;

/// In the paper's order, which is that of their numbers.
pub const CACHES: [Cache; 4] = [Cache::Page, Cache::Buffer, Cache::Dentry, Cache::Inode];

/// A key: the two arguments of the hash function, and for a dentry the number of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Words {
    pub first: u64,
    /// An offset, a block's or inode's number, or the hash of a name.
    pub second: u64,
    /// The name itself, as a number; otherwise 0.
    pub name: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A lookup that hits.
    Hit,
    /// A lookup that misses.
    Miss,
    /// It is inserted into the cache.
    Insert,
    Remove,
}

/// An operation on a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub cache: Cache,
    pub action: Action,
    /// The object, by its number among the cache's keys.
    pub object: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// All keys of each cache.
    pub keys: [Vec<Words>; 4],
    pub events: Vec<Event>,
    /// The number of events until the caches are fullest; then the users delete their files.
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
    /// Looks up; whether it was there.
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

    /// Whether it is there, without a lookup.
    pub fn holds(&self, cache: Cache, key: Words) -> bool {
        let number = self.numbers[cache as usize].get(&key);
        number.is_some_and(|&object| self.present[cache as usize][object as usize])
    }

    /// How many objects the cache holds.
    pub fn count(&self, cache: Cache) -> usize {
        self.counts[cache as usize]
    }

    /// From here on the users delete their files.
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
