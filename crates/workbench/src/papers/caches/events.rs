//! What happens to the four caches, key by key: the part of a simulation that no hash function and
//! no table size can change. It is found out once, and then replayed on the tables of each kernel.

use std::collections::HashMap;

pub use crate::hashing::keys::files::Cache;

/// In the paper's order, which is that of their numbers.
pub const CACHES: [Cache; 4] = [Cache::Page, Cache::Buffer, Cache::Dentry, Cache::Inode];

/// What is looked up: the two arguments of the hash function, and of a dentry its name's number.
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
    /// It is looked up, and is there.
    Hit,
    /// It is looked up, and is not there.
    Miss,
    /// It comes into the cache, where it wasn't.
    Insert,
    Remove,
}

/// Something that happens to a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub cache: Cache,
    pub action: Action,
    /// To whom, by its number among the cache's keys.
    pub object: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// What is ever looked up in each cache.
    pub keys: [Vec<Words>; 4],
    pub events: Vec<Event>,
    /// So many events lead to the fullest state; then the users tidy up.
    pub full: usize,
}

impl Trace {
    pub fn lookups(&self) -> usize {
        self.events.iter().filter(|event| matches!(event.action, Action::Hit | Action::Miss)).count()
    }
}

/// Records a trace, and knows what is in the caches meanwhile.
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

    /// From here on the users tidy up.
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
