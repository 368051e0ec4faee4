//! Types that a flat map may store: each keeps its value when the map moves it.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap as StdMap, HashSet as StdSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use relativist::{FlatMap, FlatSet, HashMap, Relocatable};

/// Stores many clones of a value, and grows meanwhile.
fn moves<T: Relocatable + Clone + PartialEq + Debug>(value: T) {
    let map = FlatMap::new();
    (0..100).for_each(|n| _ = map.pin().insert(n, value.clone()));
    map.reserve(5000);
    map.shrink_to_fit().unwrap();
    assert!(map.pin().values().all(|moved| *moved == value), "{value:?}");
}

fn moves_as_key<T: Relocatable + Clone + Hash + Eq + Debug>(key: T) {
    let set = FlatSet::from([key.clone()]);
    set.as_map().reserve(5000);
    assert!(set.pin().contains(&key), "{key:?}");
    moves(key);
}

#[test]
fn plain_values() {
    moves_as_key((1_u8, 2_i128, 'c', (), true, Reverse(4), [1_u16; 3], Duration::from_secs(1)));
    moves_as_key((NonZeroU32::MIN, SystemTime::UNIX_EPOCH, Some(Ok::<_, String>(1_usize))));
    moves_as_key((0..3_u8, 0..=3_u8, ..3_u8, 3_u8.., ..=3_u8, Bound::Included(3_u8)));
    moves((1.0_f32, 2.0_f64));
}

#[test]
fn owners_of_memory() {
    moves_as_key((String::from("text"), vec![1, 2], Box::<str>::from("boxed"), Pin::new(Box::new(1))));
    moves_as_key([Cow::Borrowed("borrowed"), Cow::Owned(String::from("owned"))]);
    moves_as_key(Cow::<[u8]>::Owned(vec![1, 2, 3]));
    moves_as_key(BTreeMap::from([(1, "one"), (2, "two")]));
    moves(StdMap::<String, Vec<u8>>::from([("empty".into(), vec![]), ("full".into(), vec![1])]));
    moves(StdSet::<u64>::from_iter(0..100));
    moves(StdSet::<u64>::new());
}

/// Maps that other threads may update are behind a pointer.
#[test]
fn maps() {
    moves(Arc::new(HashMap::<u64, String>::from([(1, "one".into())])));
    let maps = FlatMap::from([(1, Box::new(FlatMap::new())), (2, Box::default())]);
    let pinned = maps.pin();
    let inner = pinned.get(&1).unwrap();
    maps.reserve(5000);
    inner.pin().insert("a", 1);
    assert_eq!(pinned.get(&1).unwrap().get_copied("a"), Some(1), "the moved map is the same");
}

#[test]
fn functions() {
    fn double(n: u64) -> u64 {
        2 * n
    }
    let functions: FlatMap<&str, fn(u64) -> u64> = FlatMap::new();
    functions.pin().insert("double", double);
    functions.reserve(5000);
    assert_eq!(functions.pin().get("double").unwrap()(4), 8);
}
