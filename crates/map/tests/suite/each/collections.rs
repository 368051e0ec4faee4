//! What makes the map a collection: traits, filling, clearing, borrowed keys, and odd types.

use std::collections::HashSet;

use relativist::Relocatable;
use relativist::read;

use super::HashMap;
use crate::alongside::alongside;

#[test]
fn is_filled_from_iterators() {
    let array: HashMap<_, _> = HashMap::from([("a", 1), ("b", 2), ("a", 3)]);
    assert_eq!((array.len(), array.pin().get("a")), (2, Some(&3)));
    let mut collected: HashMap<u64, u64> = (0..5000).map(|n| (n, n)).collect();
    collected.extend((4000..6000).map(|n| (n, n + 1)));
    (&collected).extend([(6000, 6001)]);
    let pinned = collected.pin();
    assert_eq!(pinned.len(), 6001);
    (0..=6000).for_each(|n| assert_eq!(pinned.get(&n), Some(&(n + u64::from(n >= 4000)))));
}

/// Filling a map reserves room, which waits for no reader.
#[test]
fn is_filled_inside_a_read_section() {
    let _guard = read();
    let map: HashMap<u64, u64> = (0..1000).map(|n| (n, n)).collect();
    assert_eq!(map.pin().iter().count(), 1000);
}

#[test]
fn borrowed_keys_are_found() {
    let map: HashMap<String, Vec<u8>> = (0..100).map(|n| (n.to_string(), vec![n])).collect();
    let pinned = map.pin();
    assert_eq!(pinned.get("42"), Some(&vec![42]));
    assert_eq!(pinned.get_key_value("42").unwrap().0, "42");
    assert!(!pinned.contains_key("100"));
    assert_eq!(pinned.remove("42"), Some(&vec![42]));
    assert!(!pinned.contains_key("42"));
}

#[test]
fn keys_and_values_may_have_no_size() {
    let map: HashMap<_, _> = HashMap::new();
    let pinned = map.pin();
    assert_eq!(pinned.insert((), ()), None);
    assert_eq!(pinned.insert((), ()), Some(&()));
    assert_eq!((pinned.len(), pinned.get(&())), (1, Some(&())));
    assert_eq!(pinned.remove(&()), Some(&()));
    assert!(pinned.is_empty());
}

#[test]
fn keys_and_values_may_want_more_alignment() {
    #[derive(PartialEq, Eq, Hash)]
    #[repr(align(64))]
    struct Wide(u8);
    #[repr(align(256))]
    struct Wider(u8);
    // SAFETY: a number.
    unsafe impl Relocatable for Wide {}
    // SAFETY: as above.
    unsafe impl Relocatable for Wider {}

    let map: HashMap<Wide, Wider> = (0..100).map(|n| (Wide(n), Wider(n))).collect();
    map.reserve(1000);
    for (key, value) in &map.pin() {
        assert!(std::ptr::from_ref(key).addr() % 64 == 0);
        assert!(std::ptr::from_ref(value).addr() % 256 == 0);
        assert_eq!(key.0, value.0);
    }
    assert_eq!(map.pin().get(&Wide(7)).unwrap().0, 7);
}

/// `clear` removes every entry that is in the map when it begins, even while other threads insert
/// and remove.
#[test]
fn clear_removes_what_was_there_while_others_insert() {
    let map: HashMap<u64, u64> = HashMap::new();
    let mut others = (0..500).cycle();
    let update = || {
        let n = others.next().unwrap();
        map.pin().insert(1_000_000 + n, n);
        map.pin().remove(&(1_000_000 + (n + 250) % 500));
    };
    alongside(update, || {
        for round in 0..50 {
            (&map).extend((0..200).map(|n| (round << 10 | n, n)));
            map.pin().clear();
            let left: HashSet<u64> = map.pin().iter().map(|(&key, _)| key).filter(|&key| key < 1_000_000).collect();
            assert!(left.is_empty(), "not removed: {left:?}");
        }
    });
    map.pin().clear();
    assert_eq!((map.len(), map.pin().iter().count()), (0, 0));
}

#[test]
fn values_are_changed_through_an_exclusive_reference() {
    let mut map: HashMap<u64, Vec<u64>> = (0..1000).map(|n| (n, vec![n])).collect();
    map.get_mut(&7).unwrap().push(1);
    assert!(map.get_mut(&1000).is_none());
    map.values_mut().for_each(|value| value.push(2));
    for (key, value) in map.iter_mut() {
        value.retain(|&n| n != *key || n < 3);
    }
    assert_eq!((map.iter_mut().count(), map.iter_mut().size_hint().0), (1000, 1000));
    assert_eq!(
        (map.get_cloned(&7), map.get_cloned(&8), map.get_cloned(&1)),
        (Some(vec![1, 2]), Some(vec![2]), Some(vec![1, 2]))
    );
    assert_eq!(map.clone().into_keys().sum::<u64>(), 999 * 1000 / 2);
    assert_eq!(map.into_values().map(|value| value.len()).sum::<usize>(), 1000 + 4);
}

#[test]
fn a_default_is_inserted() {
    let map: HashMap<&str, Vec<u8>> = HashMap::default();
    let pinned = map.pin();
    assert!(pinned.get_or_default("a").is_empty());
    pinned.insert("a", vec![1]);
    assert_eq!((pinned.get_or_default("a"), pinned.len()), (&vec![1], 1));
}
