//! Policies that know all later requests. They are no bounds, because objects differ in size: the
//! optimum for these is NP-hard. But no policy without that knowledge comes close to them.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use super::reference::Cache;
use super::trace::Trace;

/// The time of a request that never comes.
const NEVER: u32 = u32::MAX;

/// The number of classes for each power of two of the size.
const CLASSES_PER_DOUBLING: u64 = 8;

/// Belady's rule in two forms. A new object can be the victim itself, so it is not always stored.
///
/// - By distance: evicts the object whose next request comes last (Belady, IBM Systems Journal
///   1966). Optimal if all objects have the same size.
/// - By size times distance: evicts the object that would take the most room for the longest time
///   until its next request. Maximizing that product over all objects is expensive, because it
///   changes with time. Therefore objects are in classes by size, in steps of an eighth of a
///   doubling. Of each class, the one whose next request comes last is considered, with its exact
///   size. So the product of the victim can be too low by at most an eighth.
pub(super) struct Belady<'t> {
    sizes: &'t [u64],
    capacity: u64,
    weighs_size: bool,
    bytes: u64,
    /// For each request, the time of the next request for the same object.
    next: Vec<u32>,
    now: usize,
    /// For each object in the cache, the time of its next request.
    cached: Vec<Option<u32>>,
    /// The objects of each class by the time of their next request.
    classes: Vec<BTreeSet<(u32, u32)>>,
}

impl<'t> Belady<'t> {
    pub(super) fn new(trace: &Trace, sizes: &'t [u64], capacity: u64, weighs_size: bool) -> Result<Self> {
        let count = u32::try_from(trace.requests.len()).ok().filter(|&count| count < NEVER);
        let count = count.context("more than 2^32 requests")?;
        let mut later = vec![NEVER; sizes.len()];
        let mut next = vec![NEVER; trace.requests.len()];
        for time in (0..count).rev() {
            let object = trace.requests[time as usize] as usize;
            next[time as usize] = std::mem::replace(&mut later[object], time);
        }
        let (cached, classes) = (vec![None; sizes.len()], Vec::new());
        Ok(Self { sizes, capacity, weighs_size, bytes: 0, next, now: 0, cached, classes })
    }

    fn class(&self, object: u32) -> usize {
        if self.weighs_size { class(self.sizes[object as usize]) } else { 0 }
    }

    fn insert(&mut self, object: u32, next: u32) {
        let class = self.class(object);
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, BTreeSet::new);
        }
        self.classes[class].insert((next, object));
        self.cached[object as usize] = Some(next);
        self.bytes += self.sizes[object as usize];
    }

    fn remove(&mut self, object: u32, next: u32) {
        let class = self.class(object);
        self.classes[class].remove(&(next, object));
        self.cached[object as usize] = None;
        self.bytes -= self.sizes[object as usize];
    }

    /// Returns how much room the object takes for how long until its next request.
    fn cost(&self, &(next, object): &(u32, u32)) -> u128 {
        let distance = u128::from(next) - self.now as u128;
        if next == NEVER { u128::MAX } else { distance * u128::from(self.sizes[object as usize]) }
    }

    fn evict(&mut self) {
        let last = self.classes.iter().filter_map(BTreeSet::last);
        let victim = last.max_by_key(|candidate| self.cost(candidate)).copied();
        if let Some((next, object)) = victim {
            self.remove(object, next);
        }
    }
}

impl Cache for Belady<'_> {
    fn request(&mut self, object: u32) -> bool {
        let next = self.next[self.now];
        let cached = self.cached[object as usize];
        if let Some(this) = cached {
            self.remove(object, this);
        }
        self.insert(object, next);
        while self.bytes > self.capacity {
            self.evict();
        }
        self.now += 1;
        cached.is_some()
    }
}

/// Returns the class of a size: eight for each doubling, numbered from 0.
fn class(size: u64) -> usize {
    let doublings = u64::from(size.max(1).ilog2());
    let fraction = ((u128::from(size.max(1)) * u128::from(CLASSES_PER_DOUBLING)) >> doublings) as u64;
    (doublings * CLASSES_PER_DOUBLING + fraction - CLASSES_PER_DOUBLING) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(requests: &[u32], sizes: &[u64], capacity: u64, weighs_size: bool) -> usize {
        let trace = Trace { requests: requests.to_vec(), sizes: sizes.to_vec(), unique_bytes: sizes.iter().sum() };
        let mut belady = Belady::new(&trace, sizes, capacity, weighs_size).unwrap();
        requests.iter().filter(|&&object| belady.request(object)).count()
    }

    /// The maximum number of hits: tries for each request all sets of objects to keep.
    fn optimum(requests: &[u32], sizes: &[u64], capacity: u64) -> usize {
        let bytes = |set: u32| (0..sizes.len()).filter(|i| set >> i & 1 == 1).map(|i| sizes[i]).sum::<u64>();
        let sets: Vec<u32> = (0..1 << sizes.len()).filter(|&set| bytes(set) <= capacity).collect();
        let mut best: Vec<(u32, usize)> = vec![(0, 0)];
        for &object in requests {
            let reached = |kept: u32| {
                let from = best.iter().filter(|(held, _)| kept & !(held | 1 << object) == 0);
                from.map(|(held, hits)| hits + (held >> object & 1) as usize).max()
            };
            best = sets.iter().filter_map(|&kept| Some((kept, reached(kept)?))).collect();
        }
        best.iter().map(|&(_, hits)| hits).max().unwrap_or(0)
    }

    fn random_requests(seed: u64) -> Vec<u32> {
        let mut indices = crate::harness::keys::Indices::new(0..6, seed);
        (0..40).map(|_| indices.draw() as u32).collect()
    }

    #[test]
    fn objects_of_one_size_are_kept_optimally() {
        for seed in 0..20 {
            let requests = random_requests(seed);
            for capacity in [10, 25, 30, 50] {
                let best = optimum(&requests, &[10; 6], capacity);
                assert_eq!(hits(&requests, &[10; 6], capacity, false), best, "seed {seed}, {capacity} bytes");
                assert_eq!(hits(&requests, &[10; 6], capacity, true), best, "seed {seed}, {capacity} bytes");
            }
        }
    }

    /// With different sizes neither form is optimal, but weighing sizes comes close.
    #[test]
    fn weighing_sizes_is_nearly_optimal() {
        let sizes = [1, 2, 4, 9, 16, 30];
        let total = |count: &dyn Fn(&[u32]) -> usize| (0..20).map(|seed| count(&random_requests(seed))).sum::<usize>();
        let best = total(&|requests| optimum(requests, &sizes, 20));
        let [distance, product] = [false, true].map(|weighs| total(&|requests| hits(requests, &sizes, 20, weighs)));
        assert!(distance < product && product <= best, "{distance}, {product} of {best} hits");
        assert!(product * 100 >= best * 95, "{product} of {best} hits");
    }

    /// An object that is too large, or that is not requested again, displaces nothing.
    #[test]
    fn what_is_not_worth_its_room_is_not_stored() {
        for weighs_size in [false, true] {
            assert_eq!(hits(&[0, 1, 0, 2, 0], &[10, 10, 100], 10, weighs_size), 2);
        }
    }

    #[test]
    fn classes_rise_with_the_size() {
        assert_eq!([0, 1, 2, 3, 4, 8, 9, 15, 16].map(class), [0, 0, 8, 12, 16, 24, 25, 31, 32]);
        assert_eq!(class(u64::MAX), 64 * 8 - 1);
    }
}
