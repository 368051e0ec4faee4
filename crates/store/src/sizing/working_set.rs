//! The working set: how many items, and how many bytes of them, were used recently, by their sizes.

use super::events::{Event, Kind};
use super::miniature::{MAX_OBJECTS, is_sampled};
use foldhash::fast::FixedState;
use std::collections::HashMap;

/// The number of classes. Class n has the sizes from 4^n up to 4^(n+1): powers of two are easier to
/// read than those at which the classes of the policy begin.
const CLASSES: usize = u32::BITS as usize / 2;

/// The items of one class of sizes that were used recently.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SizeClass {
    /// The smallest size of the class in bytes, as an item occupies them. The next class begins at
    /// four times as many.
    pub from: u64,
    /// The estimated number of items.
    pub items: u64,
    /// The estimated bytes of these items.
    pub bytes: u64,
}

/// A sample of the keys that were used recently.
#[derive(Debug, Default)]
pub(super) struct WorkingSet {
    /// One key in 2^`halvings` is in the sample.
    halvings: u32,
    keys: HashMap<u64, Used, FixedState>,
}

#[derive(Clone, Copy, Debug)]
struct Used {
    size: u32,
    minute: u32,
}

impl WorkingSet {
    /// An empty sample of one key in 2^`halvings`.
    pub(super) fn new(halvings: u32) -> WorkingSet {
        WorkingSet { halvings, ..WorkingSet::default() }
    }

    /// The number of keys in the sample.
    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    /// How often the sample was halved.
    pub(super) fn halvings(&self) -> u32 {
        self.halvings
    }

    /// Notes the use of a key in a minute, if it is in the sample and has an item.
    pub(super) fn apply(&mut self, event: &Event, minute: u32) {
        if matches!(event.kind, Kind::Hit | Kind::Store { .. }) && is_sampled(event.hash, self.halvings) {
            self.keys.insert(event.hash, Used { size: event.size, minute });
        }
        while self.keys.len() > MAX_OBJECTS {
            self.halve();
        }
    }

    /// Samples half of the keys that were sampled so far.
    pub(super) fn halve(&mut self) {
        self.halvings += 1;
        self.keys.retain(|&hash, _| is_sampled(hash, self.halvings));
    }

    /// Forgets keys that were last used before a minute.
    pub(super) fn forget_before(&mut self, minute: u32) {
        self.keys.retain(|_, used| used.minute >= minute);
    }

    /// The classes that have items, the smallest first.
    pub(super) fn classes(&self) -> Vec<SizeClass> {
        let mut classes = [SizeClass::default(); CLASSES];
        for used in self.keys.values() {
            let class = &mut classes[(used.size.max(1).ilog2() / 2) as usize];
            class.items += 1 << self.halvings;
            class.bytes += u64::from(used.size) << self.halvings;
        }
        let numbered = classes.into_iter().zip(0..).filter(|(class, _)| class.items > 0);
        numbered.map(|(class, number)| SizeClass { from: 1 << (2 * number), ..class }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expiry::Expiry;

    fn hit(hash: u64, size: u32) -> Event {
        Event { hash, kind: Kind::Hit, size, expiry: Expiry::NEVER }
    }

    #[test]
    fn items_count_once_in_their_class_until_they_are_old() {
        let mut set = WorkingSet::default();
        for (hash, size, minute) in [(1, 64, 10), (2, 255, 10), (3, 256, 11), (1, 64, 12)] {
            set.apply(&hit(hash, size), minute);
        }
        set.apply(&Event { kind: Kind::Miss, ..hit(4, 0) }, 12);
        let class = |from, items, bytes| SizeClass { from, items, bytes };
        assert_eq!(set.classes(), [class(64, 2, 319), class(256, 1, 256)]);
        set.forget_before(11);
        assert_eq!(set.classes(), [class(64, 1, 64), class(256, 1, 256)]);
    }

    #[test]
    fn a_sample_stands_for_all_keys() {
        let mut set = WorkingSet::default();
        let hash = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (0..1_000_000).for_each(|n| set.apply(&hit(hash(n), 100), 1));
        assert!(set.keys.len() <= MAX_OBJECTS && set.halvings() == 7);
        let [class] = set.classes()[..] else { panic!("one class") };
        assert!((class.items as f64 / 1e6 - 1.0).abs() < 0.01, "{class:?}");
        assert_eq!(class.bytes, 100 * class.items);
    }
}
