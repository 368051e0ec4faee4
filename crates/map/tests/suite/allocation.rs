//! T6: if the new array cannot be allocated, the table keeps the old one.

use std::hash::RandomState;

use crate::alongside::alongside;
use crate::tested::{HashMap, builder, manual, try_build};

/// Buckets that need more bytes than the address space has, up to numbers whose bytes overflow a
/// `usize`.
const TOO_MANY: [usize; 5] = [1 << 45, 1 << 59, 1 << 60, 1 << 63, usize::MAX];

fn filled() -> HashMap<u64, u64> {
    let map = manual::<u64, u64, _>(RandomState::new());
    (&map).extend((0..1000).map(|n| (n, n * n)));
    map
}

fn assert_works(map: &HashMap<u64, u64>) {
    let pinned = map.pin();
    (0..1000).for_each(|n| assert_eq!(pinned.get(&n), Some(&(n * n))));
    assert_eq!(pinned.insert(1000, 1), None);
    assert_eq!(pinned.remove(&1000), Some(&1));
    assert_eq!(pinned.iter().count(), 1000);
}

#[test]
fn a_failed_resize_leaves_the_table_as_it_was() {
    let map = filled();
    let before = map.stats();
    for buckets in TOO_MANY {
        let error = map.resize_to(buckets).unwrap_err();
        assert!(error.to_string().contains("cannot allocate"), "{error}");
        assert_eq!(map.stats(), before);
        assert_works(&map);
    }
    map.try_reserve(usize::MAX).unwrap_err();
    assert_eq!(map.stats(), before);
}

#[test]
fn the_next_resize_succeeds() {
    let map = filled();
    for buckets in [4096, 16, 2048] {
        map.resize_to(usize::MAX).unwrap_err();
        map.resize_to(buckets).unwrap();
        assert_eq!(map.buckets(), buckets);
        assert_works(&map);
    }
}

#[test]
fn lookups_and_updates_go_on_during_failing_resizes() {
    let map = filled();
    let resize = || {
        map.resize_to(1 << 45).unwrap_err();
        map.resize_to(64).unwrap();
        map.resize_to(256).unwrap();
    };
    alongside(resize, || (0..50).for_each(|_| assert_works(&map)));
}

#[test]
fn a_map_that_cannot_be_made_is_an_error() {
    for capacity in [1 << 45, usize::MAX] {
        assert!(try_build::<u64, u64, _>(builder().capacity(capacity)).is_err());
    }
}

/// A reader that waited for readers would wait for itself.
#[test]
fn resizing_inside_a_read_section_explains_itself() {
    let map = filled();
    let guard = relativist::read();
    let resize = std::panic::AssertUnwindSafe(|| map.resize_to(4));
    let panic = std::panic::catch_unwind(resize).unwrap_err();
    let message = panic.downcast_ref::<String>().cloned().or(panic.downcast_ref::<&str>().map(|text| text.to_string()));
    assert!(message.unwrap().contains("drop the Guard"));
    drop(guard);
    map.resize_to(4).unwrap();
    assert_works(&map);
}
