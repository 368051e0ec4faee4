//! A hash table of Linux 2.2: doubly linked chains with the newest object first. Counts the objects
//! that lookups visit.

use super::events::Words;
use relativist_bench::hashing::functions::HashFunction;
use relativist_bench::hashing::histogram::Histogram;
use relativist_bench::hashing::keys::Key;

const END: u32 = u32::MAX;

/// A table of objects with fixed slots. Objects are identified by their numbers.
pub struct Table<'f> {
    function: &'f dyn HashFunction,
    bits: u32,
    heads: Box<[u32]>,
    nodes: Box<[Node]>,
    pub met: Met,
}

/// An object in its chain. Its size is half a cache line.
#[derive(Clone, Copy)]
struct Node {
    key: Words,
    next: u32,
    previous: u32,
}

/// The number of lookups in a cache, and the number of objects that they visited in the chains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Met {
    /// Lookups that found their key.
    pub hits: u64,
    pub misses: u64,
    /// Objects that hits visited, including the one found.
    pub by_hits: u64,
    pub by_misses: u64,
}

impl Met {
    pub fn lookups(&self) -> u64 {
        self.hits + self.misses
    }

    pub fn hit_rate(&self) -> f64 {
        self.hits as f64 / self.lookups().max(1) as f64
    }

    /// Returns the mean number of objects visited per lookup: the paper's "iterations/lookup".
    pub fn probes(&self) -> f64 {
        (self.by_hits + self.by_misses) as f64 / self.lookups().max(1) as f64
    }
}

impl<'f> Table<'f> {
    /// Makes an empty table of 2^`bits` buckets for objects with these keys.
    pub fn new(function: &'f dyn HashFunction, bits: u32, keys: &[Words]) -> Self {
        let nodes = keys.iter().map(|&key| Node { key, next: END, previous: END }).collect();
        Self { function, bits, heads: vec![END; function.buckets(bits)].into(), nodes, met: Met::default() }
    }

    fn bucket(&self, key: &Words) -> usize {
        self.function.bucket(&Key::Pair(key.first, key.second), self.bits)
    }

    /// Looks up a key. Returns the number of the object, if the table has it.
    pub fn find(&mut self, key: &Words) -> Option<u32> {
        let (mut at, mut met) = (self.heads[self.bucket(key)], 0);
        while let Some(node) = self.nodes.get(at as usize) {
            met += 1;
            if node.key == *key {
                self.met.hits += 1;
                self.met.by_hits += met;
                return Some(at);
            }
            at = node.next;
        }
        self.met.misses += 1;
        self.met.by_misses += met;
        None
    }

    /// Inserts an object that is not in the table.
    pub fn insert(&mut self, object: u32) {
        let bucket = self.bucket(&self.nodes[object as usize].key);
        let next = std::mem::replace(&mut self.heads[bucket], object);
        (self.nodes[object as usize].next, self.nodes[object as usize].previous) = (next, END);
        if let Some(next) = self.nodes.get_mut(next as usize) {
            next.previous = object;
        }
    }

    /// Removes an object that is in the table.
    pub fn remove(&mut self, object: u32) {
        let Node { key, next, previous } = self.nodes[object as usize];
        match self.nodes.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => self.heads[self.bucket(&key)] = next,
        }
        if let Some(next) = self.nodes.get_mut(next as usize) {
            next.previous = previous;
        }
    }

    pub fn histogram(&self) -> Histogram {
        let next = |at: &u32| self.nodes.get(*at as usize).map(|node| node.next);
        let size = |&head: &u32| std::iter::successors(Some(head), next).count() as u32 - 1;
        Histogram::from_counts(&self.heads.iter().map(size).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relativist_bench::hashing::functions::named;

    #[test]
    fn chains_are_walked_from_the_youngest() {
        let key = |second| Words { first: 0, second, name: 0 };
        let keys = [1, 5, 9, 2].map(key);
        let untransformed = named("untransformed");
        let mut table = Table::new(&*untransformed, 2, &keys);
        (0..4).for_each(|object| table.insert(object));
        assert_eq!(table.find(&key(1)), Some(0));
        assert_eq!(table.find(&key(9)), Some(2));
        assert_eq!(table.find(&key(13)), None);
        assert_eq!(table.find(&key(4)), None);
        assert_eq!(table.met, Met { hits: 2, misses: 2, by_hits: 3 + 1, by_misses: 3 });
        assert_eq!(table.histogram().sizes, [2, 1, 0, 1]);
        // Removes from the middle, the beginning and the end of the chain.
        for (object, sizes) in [(1, &[2, 1, 1][..]), (2, &[2, 2]), (0, &[3, 1])] {
            table.remove(object);
            assert_eq!(table.find(&keys[object as usize]), None);
            assert_eq!(table.histogram().sizes, sizes);
        }
        table.insert(1);
        assert_eq!(table.find(&key(5)), Some(1));
    }
}
