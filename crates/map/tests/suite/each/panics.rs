//! B9: what panics leave behind that the test `panic_safety` does not look at.

use std::panic::{AssertUnwindSafe, catch_unwind};

use relativist::Relocatable;

use super::{HashMap, reclaim};

fn panics(operation: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(operation)).is_err());
    assert!(!relativist_rcu::is_reading(), "the section is still open");
}

/// What was removed before stays removed, and the rest stays.
#[test]
fn in_a_bulk_removal_end_it() {
    let map: HashMap<u64, u64> = (0..100).map(|n| (n, n)).collect();
    let mut removed = 0;
    let remove = |_: &u64, _: &u64| {
        assert!(removed < 10, "the test requested this panic");
        removed += 1;
        false
    };
    panics(|| map.pin().retain(remove));
    assert_eq!(map.len(), 90);
    panics(|| map.pin().drain().for_each(|(n, _)| assert!(*n > 100, "the test requested this panic")));
    assert!(map.is_empty(), "a drain that is dropped removes the rest");
}

/// A panic in a deferred destructor does not reach any operation.
#[test]
fn in_deferred_destructors_go_no_further() {
    struct Armed(bool);
    // SAFETY: it does not change.
    unsafe impl Relocatable for Armed {}
    impl Drop for Armed {
        fn drop(&mut self) {
            assert!(!self.0, "the test requested this panic");
        }
    }
    let map: HashMap<u64, Armed> = (0..3).map(|n| (n, Armed(n == 1))).collect();
    map.pin().insert(1, Armed(false));
    map.pin().insert(2, Armed(true));
    reclaim(&map);
    relativist_rcu::barrier();
    map.pin().clear();
    reclaim(&map);
    relativist_rcu::barrier();
    assert!(map.is_empty());
}
