//! Space-Saving: the most frequent keys of a stream in little memory (Metwally, Agrawal and El
//! Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005).
//!
//! A sketch has a fixed number of counters. A key that has none takes over the smallest counter,
//! and with it its count, which from then on is the possible *error* of the new key's count. So the
//! true count is between `count - error` and `count`, and each key with more than one
//! [`COUNTERS`]th of all events has a counter. The paper keeps the counters in a list of buckets,
//! which suits events that count one. Here an event counts as many as the sample stands for, so the
//! counters are a heap. An event costs a look at a hash map, and at most as many steps as the heap
//! is deep.

use foldhash::fast::FixedState;
use std::collections::HashMap;

/// The number of counters.
///
/// With Zipf's distribution (exponent 0.99) over a million keys, the smallest of 1,024 counters has
/// about a 1,200th of all events. The sixteenth key has a 240th.
const COUNTERS: usize = 1024;

/// The counter of a key.
#[derive(Clone, Debug, Default)]
struct Counter {
    hash: u64,
    /// Empty unless keys are shown in clear text.
    key: Vec<u8>,
    /// 0 if the counter is free.
    count: u64,
    error: u64,
    bytes: u64,
}

/// What a sketch knows about a key. The count is a lower bound.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Counted {
    pub(super) hash: u64,
    pub(super) key: Vec<u8>,
    pub(super) count: u64,
    /// The bytes of the counted events.
    pub(super) bytes: u64,
}

/// The most frequent keys, found by their hashes.
#[derive(Debug)]
pub(super) struct Sketch {
    counters: Vec<Counter>,
    /// The numbers of all counters: a binary heap with the smallest count first.
    heap: Vec<u16>,
    /// The place of each counter in the heap.
    places: Vec<u16>,
    /// The counters in use. The hashes are random, so it hashes them quickly.
    numbers: HashMap<u64, u16, FixedState>,
}

impl Sketch {
    pub(super) fn new() -> Sketch {
        let numbers: Vec<u16> = (0..COUNTERS as u16).collect();
        Sketch {
            counters: vec![Counter::default(); COUNTERS],
            heap: numbers.clone(),
            places: numbers,
            numbers: HashMap::with_capacity_and_hasher(COUNTERS, FixedState::default()),
        }
    }

    /// Counts events of a key: how many, and with how many bytes in all.
    pub(super) fn add(&mut self, hash: u64, key: &[u8], events: u64, bytes: u64) {
        let number = match self.numbers.get(&hash) {
            Some(&number) => number,
            None => self.replace_smallest(hash, key),
        };
        let counter = &mut self.counters[usize::from(number)];
        counter.count += events;
        counter.bytes += bytes;
        self.sift_down(usize::from(self.places[usize::from(number)]));
    }

    /// Gives the smallest counter to another key. Returns its number.
    fn replace_smallest(&mut self, hash: u64, key: &[u8]) -> u16 {
        let number = self.heap[0];
        let counter = &mut self.counters[usize::from(number)];
        if counter.count > 0 {
            self.numbers.remove(&counter.hash);
        }
        self.numbers.insert(hash, number);
        (counter.hash, counter.error, counter.bytes) = (hash, counter.count, 0);
        counter.key.clear();
        counter.key.extend_from_slice(key);
        number
    }

    /// Restores the heap after the count at `place` has grown.
    fn sift_down(&mut self, mut place: usize) {
        let count = |heap: &[u16], place: usize| self.counters[usize::from(heap[place])].count;
        loop {
            let mut child = 2 * place + 1;
            if child >= COUNTERS {
                return;
            }
            if child + 1 < COUNTERS && count(&self.heap, child + 1) < count(&self.heap, child) {
                child += 1;
            }
            if count(&self.heap, child) >= count(&self.heap, place) {
                return;
            }
            self.heap.swap(child, place);
            self.places[usize::from(self.heap[place])] = place as u16;
            self.places[usize::from(self.heap[child])] = child as u16;
            place = child;
        }
    }

    /// The `most` keys with the highest lower bounds, in any order.
    pub(super) fn top(&self, most: usize) -> Vec<Counted> {
        let mut known: Vec<(u64, &Counter)> =
            self.counters.iter().map(|counter| (counter.count - counter.error, counter)).collect();
        known.retain(|(count, _)| *count > 0);
        if known.len() > most {
            known.select_nth_unstable_by_key(most, |(count, _)| std::cmp::Reverse(*count));
            known.truncate(most);
        }
        let counted = |(count, counter): (u64, &Counter)| Counted {
            hash: counter.hash,
            key: counter.key.clone(),
            count,
            bytes: counter.bytes,
        };
        known.into_iter().map(counted).collect()
    }

    /// Forgets all keys.
    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        // With equal counts any order is a heap.
        self.counters.iter_mut().for_each(|counter| (counter.count, counter.error, counter.bytes) = (0, 0, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sketch: &Sketch) {
        for (place, &number) in sketch.heap.iter().enumerate() {
            assert_eq!(usize::from(sketch.places[usize::from(number)]), place);
            let parent = sketch.heap[place.saturating_sub(1) / 2];
            assert!(sketch.counters[usize::from(parent)].count <= sketch.counters[usize::from(number)].count);
        }
        let used = sketch.counters.iter().filter(|counter| counter.count > 0);
        assert_eq!(used.count(), sketch.numbers.len());
    }

    #[test]
    fn counts_are_exact_while_there_are_counters() {
        let mut sketch = Sketch::new();
        for hash in 0..COUNTERS as u64 {
            sketch.add(hash, b"", hash + 1, 2 * hash);
            sketch.add(hash, b"", 1, 1);
        }
        check(&sketch);
        let mut top = sketch.top(2);
        top.sort_by_key(|counted| counted.count);
        let last = COUNTERS as u64 - 1;
        let expected = |hash| Counted { hash, key: Vec::new(), count: hash + 2, bytes: 2 * hash + 1 };
        assert_eq!(top, [expected(last - 1), expected(last)]);
        sketch.clear();
        assert!(sketch.top(2).is_empty());
        sketch.add(7, b"seven", 1, 0);
        check(&sketch);
        assert_eq!(sketch.top(2), [Counted { hash: 7, key: b"seven".to_vec(), count: 1, bytes: 0 }]);
    }

    /// The bounds of the paper: counts are never too low, lower bounds never too high, and every
    /// key with more than one `COUNTERS`th of the events has a counter.
    #[test]
    fn bounds_hold_for_any_stream() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut sketch = Sketch::new();
        let (mut truth, mut all) = (HashMap::<u64, u64>::new(), 0);
        for _ in 0..100_000 {
            // Few frequent keys among many rare ones.
            let hash = random.u64(1..=100_000) * random.u64(0..=1) + random.u64(0..64);
            let events = random.u64(1..4);
            sketch.add(hash, b"", events, 0);
            *truth.entry(hash).or_default() += events;
            all += events;
        }
        check(&sketch);
        for counter in &sketch.counters {
            let count = truth[&counter.hash];
            assert!((counter.count - counter.error..=counter.count).contains(&count), "{counter:?}: {count}");
        }
        for (hash, count) in truth {
            assert!(count <= all / COUNTERS as u64 || sketch.numbers.contains_key(&hash), "{hash}: {count}");
        }
    }
}
