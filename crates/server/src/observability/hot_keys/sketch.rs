//! Space-Saving: the most frequent keys of a stream in little memory (Metwally, Agrawal and El
//! Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005).
//!
//! A sketch has a fixed number of counters. A key that has none takes over the smallest counter,
//! and with it its count, which from then on is the possible *error* of the new key's count. So the
//! true count is between `count - error` and `count`, and each key with more than one
//! [`COUNTERS`]th of all events has a counter.
//!
//! The paper keeps the counters in a list of buckets, which suits events that count one. Here an
//! event counts as many as the sample stands for. So the counters are in groups, and the smallest
//! count of each group is known. Only an event of the smallest counter of a group changes that, and
//! costs a look at the group. Finding the smallest counter costs a look at all groups' smallest
//! counts. Both have [`GROUP`] numbers that lie side by side, in any order: there is no branch that
//! a processor could predict wrongly, as there is at each step through a heap.

/// The number of counters.
///
/// With Zipf's distribution (exponent 0.99) over a million keys, the smallest of 1,024 counters has
/// about a 1,200th of all events. The sixteenth key has a 240th.
const COUNTERS: usize = 1024;

/// The counters of a group, and the number of groups.
const GROUP: usize = 32;
const _: () = assert!(GROUP * GROUP == COUNTERS);

/// The number of chains of counters. Most have no counter or one.
const CHAINS: usize = 2 * COUNTERS;

/// The end of a chain.
const NONE: u16 = u16::MAX;

/// The counter of a key. It takes a cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Counter {
    hash: u64,
    /// Empty unless keys are shown in clear text.
    key: Vec<u8>,
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

/// A counter's count and its number, such that the smaller count is the smaller value. There is no
/// count of 2^54 events: they would take a thread years.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Count(u64);

impl Count {
    fn zero(number: usize) -> Count {
        Count(number as u64)
    }

    fn number(self) -> usize {
        self.0 as usize % COUNTERS
    }

    fn events(self) -> u64 {
        self.0 / COUNTERS as u64
    }

    fn plus(self, events: u64) -> Count {
        Count(self.0 + events * COUNTERS as u64)
    }
}

/// The most frequent keys, found by their hashes.
#[derive(Debug)]
pub(super) struct Sketch {
    counters: Vec<Counter>,
    /// The counts of all counters. A counter is free while its count is 0.
    counts: [[Count; GROUP]; GROUP],
    /// The smallest count of each group.
    smallest: [Count; GROUP],
    /// The first counter of each chain, and then the next one of each counter in its chain. A chain
    /// has the counters whose hashes have the same last bits.
    links: [u16; CHAINS + COUNTERS],
}

impl Sketch {
    pub(super) fn new() -> Sketch {
        let free = Counter { hash: 0, key: Vec::new(), error: 0, bytes: 0 };
        let counts = std::array::from_fn(|group| std::array::from_fn(|place| Count::zero(group * GROUP + place)));
        let smallest = counts.map(|group| group[0]);
        Sketch { counters: vec![free; COUNTERS], counts, smallest, links: [NONE; CHAINS + COUNTERS] }
    }

    /// Counts events of a key: how many, and with how many bytes in all.
    pub(super) fn add(&mut self, hash: u64, key: &[u8], events: u64, bytes: u64) {
        let number = self.find(hash).unwrap_or_else(|| self.replace_smallest(hash, key));
        self.counters[number].bytes += bytes;
        let (group, place) = (number / GROUP, number % GROUP);
        let before = self.counts[group][place];
        self.counts[group][place] = before.plus(events);
        if self.smallest[group] == before {
            self.smallest[group] = least(&self.counts[group]);
        }
    }

    /// The number of the key's counter.
    fn find(&self, hash: u64) -> Option<usize> {
        let mut number = usize::from(self.links[chain(hash)]);
        while self.counters.get(number)?.hash != hash {
            number = usize::from(self.links[CHAINS + number]);
        }
        Some(number)
    }

    /// Gives the smallest counter to another key. Returns its number.
    fn replace_smallest(&mut self, hash: u64, key: &[u8]) -> usize {
        let smallest = least(&self.smallest);
        let number = smallest.number();
        if smallest.events() > 0 {
            self.unlink(number);
        }
        self.links[CHAINS + number] = std::mem::replace(&mut self.links[chain(hash)], number as u16);
        let counter = &mut self.counters[number];
        (counter.hash, counter.error, counter.bytes) = (hash, smallest.events(), 0);
        counter.key.clear();
        counter.key.extend_from_slice(key);
        number
    }

    /// Takes a counter from its chain.
    fn unlink(&mut self, number: usize) {
        let mut link = chain(self.counters[number].hash);
        while usize::from(self.links[link]) != number {
            link = CHAINS + usize::from(self.links[link]);
        }
        self.links[link] = self.links[CHAINS + number];
    }

    /// The `most` keys with the highest lower bounds, in any order.
    pub(super) fn top(&self, most: usize) -> Vec<Counted> {
        let counts = self.counts.as_flattened();
        let mut known: Vec<(u64, &Counter)> = counts
            .iter()
            .zip(&self.counters)
            .map(|(count, counter)| (count.events() - counter.error, counter))
            .collect();
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
        for counts in self.counts.iter_mut().chain([&mut self.smallest]) {
            counts.iter_mut().for_each(|count| *count = Count::zero(count.number()));
        }
        self.counters.iter_mut().for_each(|counter| counter.error = 0);
        self.links.fill(NONE);
    }
}

/// The chain of a hash.
fn chain(hash: u64) -> usize {
    hash as usize % CHAINS
}

/// The smallest of these counts.
fn least(counts: &[Count; GROUP]) -> Count {
    // Halves are compared, so that no comparison waits for the one before.
    let mut least = *counts;
    let mut half = GROUP / 2;
    while half > 0 {
        for place in 0..half {
            least[place] = least[place].min(least[place + half]);
        }
        half /= 2;
    }
    least[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn check(sketch: &Sketch) {
        let mut used = 0;
        for (number, &count) in sketch.counts.as_flattened().iter().enumerate() {
            assert_eq!(count.number(), number);
            if count.events() > 0 {
                assert_eq!(sketch.find(sketch.counters[number].hash), Some(number));
                used += 1;
            }
        }
        for (counts, smallest) in sketch.counts.iter().zip(&sketch.smallest) {
            assert_eq!(counts.iter().min(), Some(smallest));
        }
        // No other counter is in a chain.
        assert_eq!(sketch.links.iter().filter(|link| **link != NONE).count(), used);
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
        for (count, counter) in sketch.counts.as_flattened().iter().zip(&sketch.counters) {
            let most = count.events();
            let count = truth[&counter.hash];
            assert!((most - counter.error..=most).contains(&count), "{counter:?}: {count} of {most}");
        }
        for (hash, count) in truth {
            assert!(count <= all / COUNTERS as u64 || sketch.find(hash).is_some(), "{hash}: {count}");
        }
    }
}
