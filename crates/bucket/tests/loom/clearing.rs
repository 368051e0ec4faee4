//! Tables that are cleared while other threads use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use relativist_bucket::{Boxed, Inline, Private};

use crate::models::unless_quick;
use crate::scene::*;

/// Another thread clears the table of keys 0 and 1 while this one does `mine`. Then key 1 is gone,
/// and the table has as many entries as it counts. `is_growing`: both buckets are about to move.
fn clear<F: Slots>(preemptions: usize, is_growing: bool, mine: fn(&Section<'_, F>)) {
    explore_entries(preemptions, move || {
        let table = table::<F>(COARSE, &[0, 1]);
        if is_growing {
            table.begin_resize(2);
        }
        let cleaner = spawn(&table, |section| {
            section.table().clear().unwrap();
            assert_eq!(get(section, 1), None, "it was removed");
        });
        mine(&table.enter());
        cleaner.join().unwrap();
        let section = table.enter();
        assert_eq!(get(&section, 1), None, "it was removed");
        let left: Vec<_> = [0, 2].into_iter().filter_map(|key| Some((key, get(&section, key)?))).collect();
        drop(section);
        assert_holds(table, &left);
    });
}

/// B11, B3
#[test]
fn clearing_during_lookups() {
    fn explore<F: Slots>(preemptions: usize) {
        clear::<F>(preemptions, false, |section| assert_follows(section, 0, &[Some(0), None]));
    }
    explore::<Boxed>(2);
    explore::<Inline>(2);
    explore::<Private>(1);
}

/// B11, B3: an update that has loaded the old array counts as having come before.
#[test]
fn clearing_during_updates() {
    fn explore<F: Slots>() {
        clear::<F>(unless_quick(2), false, |section| _ = insert(section, 0, 1));
        clear::<F>(unless_quick(2), false, |section| _ = insert(section, 2, 0));
        clear::<F>(unless_quick(2), false, |section| _ = remove(section, 0));
    }
    explore::<Boxed>();
    explore::<Inline>();
}

/// B11: a resize that is in progress is given up, so none of its entries come back.
#[test]
fn clearing_while_growing() {
    fn explore<F: Slots>() {
        clear::<F>(unless_quick(2), true, |section| (0..2).for_each(|_| section.move_a_bucket(&Places)));
    }
    explore::<Boxed>();
    explore::<Inline>();
}

/// B11: each entry is dropped once.
#[test]
fn clearing_twice() {
    fn explore<F: Slots>() {
        clear::<F>(unless_quick(2), true, |section| section.table().clear().unwrap());
    }
    explore::<Boxed>();
    explore::<Inline>();
}

/// B8, B11: entries and arrays are dropped when the readers have left that may have found them.
#[test]
fn reclamation_after_clearing() {
    fn explore<F: Slots>(preemptions: usize) {
        explore_entries(preemptions, move || {
            let table = table::<F>(COARSE, &[0]);
            let reader = spawn(&table, |section| assert_follows(section, 0, &[Some(0), None]));
            table.clear().unwrap();
            reclaim(&table);
            reader.join().unwrap();
            assert_holds(table, &[]);
        });
    }
    explore::<Boxed>(unless_quick(2));
    explore::<Inline>(unless_quick(2));
    explore::<Private>(1);
}

/// B3, B11: a thread clears a table, and then looks into another one, which another thread updates
/// before it looks into the first one. One of them sees what the other one has done.
#[test]
fn clears_are_seen_by_lookups_that_begin_later() {
    explore_entries(2, || {
        let (one, other) = (table::<Inline>(COARSE, &[0]), table::<Inline>(COARSE, &[]));
        let has_missed = Arc::new(AtomicBool::new(false));
        let updater = {
            let (one, has_missed) = (Arc::clone(&one), Arc::clone(&has_missed));
            spawn(&other, move |section| {
                let of_one = one.enter();
                insert(section, 0, 1);
                // Relaxed: joining the thread orders them.
                has_missed.store(get(&of_one, 0).is_some(), Relaxed);
            })
        };
        // Entering executes a barrier in models, so the section begins before.
        let section = other.enter();
        one.clear().unwrap();
        let is_seen = get(&section, 0).is_some();
        drop(section);
        updater.join().unwrap();
        assert!(is_seen || !has_missed.load(Relaxed), "both missed what the other one has done");
    });
}
