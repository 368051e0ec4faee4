//! Lookups that take no guard, and user code that runs inside their read sections.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use relativist::{Relocatable, read};
use relativist_rcu::{barrier, defer, is_reading};

use crate::tested::HashMap;

/// A value whose `clone` runs a function.
struct Calls(Arc<dyn Fn() + Send + Sync>);

// SAFETY: the field is `Relocatable`.
unsafe impl Relocatable for Calls {}

impl Calls {
    fn new(function: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(function))
    }
}

impl Clone for Calls {
    fn clone(&self) -> Self {
        assert!(is_reading());
        (self.0)();
        Self(Arc::clone(&self.0))
    }
}

fn clone_of(value: Calls) -> Option<Calls> {
    let map = HashMap::from([(1, value)]);
    let cloned = map.get_cloned(&1);
    assert!(map.get_cloned(&2).is_none());
    cloned
}

#[test]
fn finds_what_lookups_with_a_guard_find() {
    let map: HashMap<u64, u64> = (0..1000).map(|n| (n, n * n)).collect();
    for n in 0..1000 {
        assert_eq!((map.get_copied(&n), map.get_cloned(&n)), (Some(n * n), Some(n * n)));
        assert!(map.contains(&n) && !map.contains(&(n + 1000)));
        assert_eq!((map.get_copied(&(n + 1000)), map.get_cloned(&(n + 1000))), (None, None));
    }
    assert!(!is_reading());
}

/// The section ends, whatever `clone` does with sections of its own.
#[test]
fn sections_nest() {
    clone_of(Calls::new(|| drop((read(), read())))).unwrap();
    clone_of(Calls::new(|| read().renew())).unwrap();
    clone_of(Calls::new(|| {
        let numbers = HashMap::from([(1, 2)]);
        assert_eq!(numbers.get_copied(&1), Some(2));
        (0..5000).for_each(|n| _ = numbers.pin().insert(n % 2, n));
    }))
    .unwrap();
    assert!(!is_reading());
    let outer = read();
    clone_of(Calls::new(|| ())).unwrap();
    assert!(is_reading());
    drop(outer);
    assert!(!is_reading());
}

/// R5: what `clone` defers is bounded, and runs.
#[test]
fn what_a_section_defers_runs() {
    let counted = Arc::new(());
    let its = Arc::clone(&counted);
    let map = HashMap::from([(
        1,
        Calls::new(move || {
            let held = Arc::clone(&its);
            defer(move || drop(held));
        }),
    )]);
    (0..5000).for_each(|_| drop(map.get_cloned(&1)));
    barrier();
    assert_eq!(Arc::strong_count(&counted), 2);
}

/// R9: the section ends when `clone` panics.
#[test]
fn a_panic_ends_the_section() {
    let map = HashMap::from([(1, Calls::new(|| panic!("a clone that panics")))]);
    catch_unwind(AssertUnwindSafe(|| drop(map.get_cloned(&1)))).unwrap_err();
    assert!(!is_reading());
    map.resize_to(64).unwrap();
}

/// R7: a guard that `clone` leaks keeps its section open, and the one of the lookup does not end
/// it.
#[test]
fn a_leaked_guard_keeps_its_section() {
    relativist_testing::alone(|| {
        clone_of(Calls::new(|| std::mem::forget(read()))).unwrap();
        assert!(is_reading());
        let map = HashMap::from([(1, 2)]);
        assert_eq!(map.get_copied(&1), Some(2));
        assert!(is_reading());
    });
}
