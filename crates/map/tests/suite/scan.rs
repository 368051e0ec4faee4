//! T7 across the calls of a scan: what is there throughout is visited exactly once.

use crate::alongside::alongside;
use crate::hashing::{Hashing, IDENTITY, MIXED};
use crate::tested::{HashMap, manual};
use relativist_testing::random::Random;

type Map = HashMap<u64, u64, Hashing>;

/// These keys are always in the map; larger ones come and go.
pub const RESIDENTS: u64 = 300;

/// The inverse of the constant that hashes are mixed with: keys are in the order of the table.
pub const IN_ORDER: Hashing = Hashing(|n| n.wrapping_mul(0xF1DE_83E1_9937_733D));

pub fn map(hashing: Hashing, keys: impl IntoIterator<Item = u64>) -> Map {
    let map = manual::<u64, u64, _>(hashing);
    (&map).extend(keys.into_iter().map(|key| (key, !key)));
    map
}

/// Scans by pieces of `n`, and calls `between` after each. Returns the keys of each piece.
pub fn scan(map: &Map, n: usize, mut between: impl FnMut()) -> Vec<Vec<u64>> {
    let mut pieces = Vec::new();
    let mut next = Some(0);
    while let Some(cursor) = next {
        let mut piece = Vec::new();
        next = map.pin().scan(cursor, n, |&key, &value| {
            assert_eq!(value, !key);
            piece.push(key);
        });
        assert!(next.is_none_or(|next| next > cursor), "a scan goes on");
        pieces.push(piece);
        between();
    }
    pieces
}

#[track_caller]
fn assert_saw_residents_once(pieces: &[Vec<u64>]) {
    let mut residents: Vec<u64> = pieces.iter().flatten().copied().filter(|&key| key < RESIDENTS).collect();
    residents.sort_unstable();
    assert!(residents.iter().copied().eq(0..RESIDENTS), "T7: {residents:?}");
}

#[test]
fn visits_each_entry_once_in_pieces_of_any_size() {
    for hashing in [MIXED, IDENTITY, IN_ORDER, Hashing(|n| n / 8), Hashing(|n| n % 5), Hashing(|_| 42)] {
        let map = map(hashing, 0..RESIDENTS);
        for buckets in [2, 256, 4096] {
            map.resize_to(buckets).unwrap();
            for n in [0, 1, 2, 7, 299, 300, usize::MAX] {
                let pieces = scan(&map, n, || ());
                assert_saw_residents_once(&pieces);
                let (_, before_last) = pieces.split_last().unwrap();
                assert!(before_last.iter().all(|piece| piece.len() >= n.max(1)));
            }
        }
    }
}

#[test]
fn an_empty_map_has_one_empty_piece() {
    assert_eq!(scan(&map(MIXED, []), 10, || ()), [Vec::<u64>::new()]);
}

/// A cursor stays valid when the table is resized.
#[test]
fn goes_on_after_resizes_and_updates() {
    for hashing in [MIXED, Hashing(|n| n / 8), Hashing(|n| n % 5)] {
        let map = map(hashing, 0..RESIDENTS);
        let mut random = Random::new(7);
        for n in 1..20 {
            let pieces = scan(&map, n, || {
                map.resize_to(2 << random.below(12)).unwrap();
                let (come, go, change) = (random.below(300), random.below(300), random.below(RESIDENTS));
                map.pin().insert(RESIDENTS + come, !(RESIDENTS + come));
                map.pin().remove(&(RESIDENTS + go));
                map.pin().insert(change, !change);
            });
            assert_saw_residents_once(&pieces);
        }
    }
}

#[test]
fn sees_residents_once_while_others_resize_and_update() {
    let map = map(MIXED, 0..RESIDENTS);
    let mut random = Random::new(8);
    let disturb = || {
        map.resize_to(2 << random.below(12)).unwrap();
        for key in RESIDENTS..RESIDENTS + 50 {
            map.pin().insert(key, !key);
            map.pin().remove(&(RESIDENTS + random.below(50)));
        }
    };
    alongside(disturb, || (1..150).for_each(|round| assert_saw_residents_once(&scan(&map, round % 30, || ()))));
}
