//! What makes the map a collection: traits, filling, clearing, borrowed keys, and odd types.

use std::collections::HashSet;

use relativist::flat::Relocatable;
use relativist::read;

use crate::alongside::alongside;
use crate::tested::HashMap;

#[test]
fn is_filled_from_iterators() {
    let array = HashMap::from([("a", 1), ("b", 2), ("a", 3)]);
    assert_eq!((array.len(), array.pin().get("a")), (2, Some(&3)));
    let mut collected: HashMap<u64, u64> = (0..5000).map(|n| (n, n)).collect();
    collected.extend((4000..6000).map(|n| (n, n + 1)));
    (&collected).extend([(6000, 6001)]);
    let pinned = collected.pin();
    assert_eq!(pinned.len(), 6001);
    (0..=6000).for_each(|n| assert_eq!(pinned.get(&n), Some(&(n + u64::from(n >= 4000)))));
}

/// Filling a map reserves room, which waits for readers; inside a read section it does not reserve.
#[test]
fn is_filled_inside_a_read_section() {
    let _guard = read();
    let map: HashMap<u64, u64> = (0..1000).map(|n| (n, n)).collect();
    assert_eq!(map.pin().iter().count(), 1000);
}

#[test]
fn reserved_room_is_enough() {
    let map: HashMap<u64, u64> = HashMap::new();
    map.reserve(1000);
    let before = map.stats();
    (0..1000).for_each(|n| assert!(map.pin().insert(n, n).is_none()));
    let after = map.stats();
    assert_eq!((after.buckets, after.grows, after.shrinks), (before.buckets, before.grows, before.shrinks));
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
    let map = HashMap::new();
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
    map.resize_to(16).unwrap();
    for (key, value) in &map.pin() {
        assert!(std::ptr::from_ref(key).addr() % 64 == 0);
        assert!(std::ptr::from_ref(value).addr() % 256 == 0);
        assert_eq!(key.0, value.0);
    }
    assert_eq!(map.pin().get(&Wide(7)).unwrap().0, 7);
}

/// `clear` removes every entry that is in the map when it begins, even while other threads insert
/// and remove. (It iterates, so T7 applies.)
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
    assert_eq!((map.len(), map.stats().entries), (0, 0));
}
