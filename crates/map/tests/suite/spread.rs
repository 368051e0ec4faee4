//! Weak hashers are sufficient: the map's multiplication prevents long chains of keys with a
//! pattern. Only the hasher's seed protects against keys that are chosen to collide.

use std::hash::BuildHasher;

use relativist::{HashMap, Resizing, Stats};
use relativist_table as raw;

use crate::hashing::{Hashing, IDENTITY, MIXED};

const ENTRIES: u64 = 1 << 12;

fn spread(hashing: Hashing, key: impl Fn(u64) -> u64) -> Stats {
    let map = HashMap::<u64, ()>::builder().resizing(Resizing::Manual).hasher(hashing).build().unwrap();
    map.resize_to(2 * ENTRIES as usize).unwrap();
    (&map).extend((0..ENTRIES).map(|n| (key(n), ())));
    let stats = map.stats();
    assert_eq!(stats.entries as u64, ENTRIES);
    assert_eq!(stats.chain_lengths.iter().sum::<usize>(), stats.buckets);
    stats
}

/// Returns how many times as many links a lookup reads as with random hashes.
fn excess(stats: &Stats, chance: &Stats) -> f64 {
    let squares =
        |stats: &Stats| stats.chain_lengths.iter().enumerate().map(|(n, &times)| n * n * times).sum::<usize>();
    squares(stats) as f64 / squares(chance) as f64
}

#[track_caller]
fn assert_even(what: &str, most: f64, key: impl Fn(u64) -> u64) {
    let chance = spread(MIXED, |n| n);
    let stats = spread(IDENTITY, key);
    let excess = excess(&stats, &chance);
    assert!(excess <= most, "{what}: {excess}; {:?}, by chance {:?}", stats.chain_lengths, chance.chain_lengths);
    assert!(stats.longest_chain <= chance.longest_chain, "{what}: {:?}", stats.chain_lengths);
}

/// Chains are shorter than with random hashes.
#[test]
fn of_consecutive_integers() {
    assert_even("consecutive", 1.0, |n| n);
    assert_even("consecutive from afar", 1.0, |n| 0x1234_5678_9ABC + n);
    assert_even("backwards", 1.0, |n| n.wrapping_neg());
}

#[test]
fn of_multiples() {
    assert_even("multiples of 1000", 1.0, |n| n * 1000);
    assert_even("multiples of 10^6", 2.0, |n| n * 1_000_000);
    assert_even("multiples of 10^9", 1.0, |n| n * 1_000_000_000);
}

/// Some strides give longer chains than random hashes, but none gives much longer ones.
#[test]
fn of_strides_of_powers_of_two() {
    for shift in 1..=52 {
        assert_even(&format!("multiples of 2^{shift}"), 2.0, |n| n << shift);
    }
}

/// An attacker that knows the hasher of one map can fill a bucket of it, but not of a map with
/// another hasher: by default each map has its own. (Of 64 keys in 64 buckets, 16 are in one with a
/// probability below 10^-11.)
#[test]
fn of_keys_chosen_against_another_map() {
    let map = || HashMap::<u64, ()>::builder().resizing(Resizing::Manual).build::<u64, ()>().unwrap();
    let (known, attacked) = (map(), map());
    let is_in_first_bucket = |n: &u64| raw::Hash::new(known.hasher().hash_one(n)).get() >> 58 == 0;
    let keys: Vec<u64> = (0..).filter(is_in_first_bucket).take(64).collect();
    let longest_chain = |map: &HashMap<u64, ()>| {
        map.resize_to(64).unwrap();
        for &n in &keys {
            map.pin().insert(n, ());
        }
        map.stats().longest_chain
    };
    assert_eq!(longest_chain(&known), 64);
    assert!(longest_chain(&attacked) < 16);
}
