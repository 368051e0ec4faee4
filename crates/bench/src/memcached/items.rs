//! Keys and values by number. They are computed from the number, so every reply can be checked
//! without storing what was sent.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::workload::{Sizes, Workload, digits};
use crate::harness::keys::scramble;

/// The number of positions in the pool at which values can begin. The value of a wrong item goes
/// unnoticed with a probability of 1 / `PLACES`.
const PLACES: usize = 1 << 16;

#[derive(Debug)]
pub struct Items {
    key_size: Sizes,
    value_size: Sizes,
    digits: usize,
    /// Random bytes. Every value is a part of them, so that the values together fit the
    /// second-level cache.
    pool: Vec<u8>,
}

impl Items {
    /// Makes the items of `workload`.
    pub fn new(workload: &Workload) -> Self {
        let mut pool = vec![0; PLACES + workload.value_size.most()];
        SmallRng::seed_from_u64(1).fill_bytes(&mut pool);
        let (key_size, value_size) = (workload.key_size.clone(), workload.value_size.clone());
        Self { key_size, value_size, digits: digits(workload.all_items()), pool }
    }

    /// Appends the key of an item: its number in hexadecimal, padded on the left with letters.
    #[inline]
    pub fn push_key(&self, index: u64, out: &mut Vec<u8>) {
        let size = self.key_size.pick(scramble(index) as u32);
        let start = out.len();
        out.resize(start + size, b'k');
        let mut rest = index;
        for digit in out[start + size - self.digits..].iter_mut().rev() {
            *digit = b"0123456789abcdef"[(rest % 16) as usize];
            rest /= 16;
        }
    }

    #[inline]
    pub fn value(&self, index: u64) -> &[u8] {
        let random = scramble(index);
        let place = random as usize % PLACES;
        &self.pool[place..place + self.value_size.pick((random >> 32) as u32)]
    }

    /// Returns the maximum size of a value.
    pub fn largest_value(&self) -> usize {
        self.value_size.most()
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::DEFAULT;
    use super::*;
    use std::collections::HashSet;

    fn key(items: &Items, index: u64) -> Vec<u8> {
        let mut key = Vec::new();
        items.push_key(index, &mut key);
        key
    }

    #[test]
    fn keys_are_distinct_and_of_all_sizes() {
        let items = Items::new(&Workload { items: 5000, key_size: Sizes::range(4, 12), ..DEFAULT });
        let keys: HashSet<Vec<u8>> = (0..5000).map(|index| key(&items, index)).collect();
        assert_eq!(keys.len(), 5000);
        let sizes: HashSet<usize> = keys.iter().map(Vec::len).collect();
        assert_eq!(sizes, (4..=12).collect());
        let fixed = Items::new(&DEFAULT);
        assert_eq!(key(&fixed, 0xabc), b"kkkkk00abc");
    }

    #[test]
    fn values_are_their_own_and_of_all_sizes() {
        let items = Items::new(&Workload { value_size: Sizes::range(1, 300), ..DEFAULT });
        let sizes: HashSet<usize> = (0..5000).map(|index| items.value(index).len()).collect();
        assert_eq!(sizes, (1..=300).collect());
        let fixed = Items::new(&DEFAULT);
        let values: HashSet<&[u8]> = (0..1000).map(|index| fixed.value(index)).collect();
        assert!(values.len() > 980, "{} of 1000", values.len());
        assert_eq!(fixed.value(7), Items::new(&DEFAULT).value(7));
    }
}
