//! The maps that are measured, with keys of 1 to 32 bytes.

use std::hash::{BuildHasher, Hasher};
use std::hint::black_box;
use std::ops::{ControlFlow, RangeInclusive};

use crate::tables::sorted::Sorted;
use crate::tables::xkernel::{Build, Const, Map, New, Old};
use anyhow::{Result, ensure};
use relativist_rcu::read;

use super::Setting;
use super::quantity::{KEYS, Quantity};
use relativist_bench::harness::hashers::Foldhash;

/// The sizes of keys that can be measured.
pub const SIZES: RangeInclusive<usize> = 1..=32;

/// The names of the candidates, in the order of [`of`].
pub const NAMES: [&str; 5] = ["old", "new", "const", "relativist", "hashbrown"];

pub trait Subject {
    /// Repeats the operation `times` times. Returns the number of operations.
    fn repeat(&mut self, times: u64) -> Result<u64>;
}

/// Makes all candidates, prepared for the measurement.
pub fn of(setting: &Setting, buckets: usize) -> Vec<Box<dyn Subject>> {
    macro_rules! sizes {
        ($($size:literal)*) => {
            match setting.key_bytes {
                $($size => all::<$size>(setting, buckets),)*
                size => unreachable!("keys of {size} bytes"),
            }
        };
    }
    sizes!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32)
}

fn all<const SIZE: usize>(setting: &Setting, buckets: usize) -> Vec<Box<dyn Subject>> {
    vec![
        Bench::<Map<Old>, SIZE>::boxed(setting, buckets),
        Bench::<Map<New>, SIZE>::boxed(setting, buckets),
        Bench::<Map<Const<SIZE>>, SIZE>::boxed(setting, buckets),
        Bench::<Relativist<SIZE>, SIZE>::boxed(setting, buckets),
        Bench::<Hashbrown<SIZE>, SIZE>::boxed(setting, buckets),
    ]
}

/// A map from keys of `SIZE` bytes to numbers.
trait Candidate<const SIZE: usize> {
    /// Makes a map with this number of buckets. If `colliding`, all keys are in one bucket.
    fn with_buckets(buckets: usize, colliding: bool) -> Self;

    fn insert(&mut self, key: &[u8; SIZE], value: u64) -> bool;

    fn remove(&mut self, key: &[u8; SIZE]) -> Option<u64>;

    /// Looks up all keys in turn, `times` times. Returns the sum of their values.
    fn look_up(&self, keys: &[[u8; SIZE]], times: u64) -> u64;

    /// Iterates over the map, and returns the sum of all values.
    fn sum(&mut self) -> u64;
}

/// Runs the measured loop of lookups. A miss adds 0 to the sum, which is not the value of any key.
#[inline(always)]
fn look_up<const SIZE: usize>(keys: &[[u8; SIZE]], times: u64, mut get: impl FnMut(&[u8; SIZE]) -> Option<u64>) -> u64 {
    (0..times).map(|_| keys.iter().map(|key| get(black_box(key)).unwrap_or(0)).sum::<u64>()).sum()
}

/// A map, and the operation that is measured on it.
struct Bench<M, const SIZE: usize> {
    quantity: Quantity,
    map: M,
    keys: Vec<[u8; SIZE]>,
}

impl<M: Candidate<SIZE> + 'static, const SIZE: usize> Bench<M, SIZE> {
    fn boxed(setting: &Setting, buckets: usize) -> Box<dyn Subject> {
        let &Setting { quantity, entries, .. } = setting;
        let mut map = M::with_buckets(buckets, quantity == Quantity::Collision);
        let keys: Vec<[u8; SIZE]> = (0..entries).map(key).collect();
        let present = match quantity {
            Quantity::Hit | Quantity::Miss | Quantity::Iterate => &keys[..],
            Quantity::Update | Quantity::Collision => &[],
        };
        for (key, value) in present.iter().zip(1..) {
            assert!(map.insert(key, value), "keys differ");
        }
        Box::new(Self { quantity, map, keys })
    }

    /// Inserts keys and removes them, `times` times. Returns whether all operations succeeded.
    fn update(&mut self, keys: usize, times: u64) -> bool {
        (0..times).all(|_| {
            let (map, keys) = (&mut self.map, &self.keys[..keys]);
            keys.iter().zip(1..).all(|(key, value)| map.insert(black_box(key), value))
                & keys.iter().zip(1..).all(|(key, value)| map.remove(black_box(key)) == Some(value))
        })
    }
}

/// Returns the `number`th key. The number is in its last bytes, so that a comparison has to read
/// all bytes.
fn key<const SIZE: usize>(number: usize) -> [u8; SIZE] {
    let bytes = number.to_be_bytes();
    std::array::from_fn(|index| (bytes.len() + index).checked_sub(SIZE).map_or(0, |index| bytes[index]))
}

impl<M: Candidate<SIZE> + 'static, const SIZE: usize> Subject for Bench<M, SIZE> {
    fn repeat(&mut self, times: u64) -> Result<u64> {
        let sum_of = |keys: u64| keys * (keys + 1) / 2;
        let right = match self.quantity {
            Quantity::Hit => self.map.look_up(&self.keys[..1], times) == times,
            Quantity::Miss => self.map.look_up(&self.keys[..KEYS], times) == times * sum_of(KEYS as u64),
            Quantity::Update => self.update(1, times),
            Quantity::Collision => self.update(2, times),
            Quantity::Iterate => (0..times).all(|_| self.map.sum() == sum_of(self.keys.len() as u64)),
        };
        ensure!(right, "wrong results");
        Ok(times * self.quantity.operations())
    }
}

/// Implements [`Candidate`] for a build of the x-kernel's map. The arguments are the build, the
/// expression that makes it, and the conversion of keys.
macro_rules! xkernel {
    ($build:ty, $made:expr, $key:expr) => {
        impl<const SIZE: usize> Candidate<SIZE> for Map<$build> {
            fn with_buckets(buckets: usize, colliding: bool) -> Self {
                Self::new(if colliding { 1 } else { buckets }, $made)
            }

            #[inline(always)]
            fn insert(&mut self, key: &[u8; SIZE], value: u64) -> bool {
                self.bind($key(key), value)
            }

            #[inline(always)]
            fn remove(&mut self, key: &[u8; SIZE]) -> Option<u64> {
                self.unbind($key(key))
            }

            #[inline(never)]
            fn look_up(&self, keys: &[[u8; SIZE]], times: u64) -> u64 {
                look_up(keys, times, |key| self.resolve($key(key)))
            }

            #[inline(never)]
            fn sum(&mut self) -> u64 {
                sum(self)
            }
        }
    };
}

fn sum<B: Build>(map: &mut Map<B>) -> u64 {
    let mut sum = 0;
    let flow: ControlFlow<()> = map.for_each(|_, value| {
        sum += value;
        ControlFlow::Continue(())
    });
    debug_assert!(flow.is_continue());
    sum
}

xkernel!(Old, Old::with_key_size(SIZE), <[u8; SIZE]>::as_slice);
xkernel!(New, New::with_key_size(SIZE), <[u8; SIZE]>::as_slice);
xkernel!(Const<SIZE>, Const, std::convert::identity);

/// Hashes with foldhash, or hashes all keys to the same number if they have to collide. A run-time
/// mask selects between the two.
#[derive(Clone, Debug)]
struct Masked {
    mask: u64,
    hasher: Foldhash,
}

impl Masked {
    fn new(colliding: bool) -> Self {
        Self { mask: if colliding { 0 } else { u64::MAX }, hasher: Foldhash::default() }
    }
}

impl BuildHasher for Masked {
    type Hasher = MaskedHasher;

    #[inline(always)]
    fn build_hasher(&self) -> MaskedHasher {
        MaskedHasher { mask: self.mask, hasher: self.hasher.build_hasher() }
    }
}

struct MaskedHasher {
    mask: u64,
    hasher: <Foldhash as BuildHasher>::Hasher,
}

impl Hasher for MaskedHasher {
    #[inline(always)]
    fn finish(&self) -> u64 {
        self.hasher.finish() & self.mask
    }

    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) {
        self.hasher.write(bytes);
    }

    #[inline(always)]
    fn write_usize(&mut self, number: usize) {
        self.hasher.write_usize(number);
    }
}

/// The library's chained table.
type Relativist<const SIZE: usize> = Sorted<Masked, [u8; SIZE]>;

impl<const SIZE: usize> Candidate<SIZE> for Relativist<SIZE> {
    fn with_buckets(buckets: usize, colliding: bool) -> Self {
        Self::with_hasher(buckets, Masked::new(colliding))
    }

    #[inline(always)]
    fn insert(&mut self, key: &[u8; SIZE], value: u64) -> bool {
        Self::insert(self, *key, value)
    }

    #[inline(always)]
    fn remove(&mut self, key: &[u8; SIZE]) -> Option<u64> {
        Self::remove(self, key)
    }

    #[inline(never)]
    fn look_up(&self, keys: &[[u8; SIZE]], times: u64) -> u64 {
        look_up(keys, times, |key| self.get(key))
    }

    #[inline(never)]
    fn sum(&mut self) -> u64 {
        self.values(&read()).sum()
    }
}

struct Hashbrown<const SIZE: usize>(hashbrown::HashMap<[u8; SIZE], u64, Masked>);

impl<const SIZE: usize> Candidate<SIZE> for Hashbrown<SIZE> {
    fn with_buckets(buckets: usize, colliding: bool) -> Self {
        // hashbrown fills at most seven eighths of its slots.
        Self(hashbrown::HashMap::with_capacity_and_hasher(buckets / 8 * 7, Masked::new(colliding)))
    }

    #[inline(always)]
    fn insert(&mut self, key: &[u8; SIZE], value: u64) -> bool {
        self.0.insert(*key, value).is_none()
    }

    #[inline(always)]
    fn remove(&mut self, key: &[u8; SIZE]) -> Option<u64> {
        self.0.remove(key)
    }

    #[inline(never)]
    fn look_up(&self, keys: &[[u8; SIZE]], times: u64) -> u64 {
        look_up(keys, times, |key| self.0.get(key).copied())
    }

    #[inline(never)]
    fn sum(&mut self) -> u64 {
        self.0.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_end_with_their_number() {
        assert_eq!(key::<1>(7), [7]);
        assert_eq!(key::<3>(0x0102), [0, 1, 2]);
        assert_eq!(key::<10>(1)[..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn keys_collide_where_they_should() {
        let hash = |colliding, key: u64| Masked::new(colliding).hash_one(key);
        assert_eq!(hash(true, 1), hash(true, 2));
        assert_ne!(hash(false, 1), hash(false, 2));
    }
}
