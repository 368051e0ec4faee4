//! Lookups and updates of one bucket.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use relativist_bucket::{Boxed, Inline, Private};

use crate::models::unless_quick;
use crate::scene::*;

/// Cases in which all slots are in the first segment.
fn first_segment<F: Slots>() -> [Case<F>; 3] {
    [
        Case {
            residents: &[1],
            prepare: nothing,
            update: |section| {
                insert(section, 0, 1);
                insert(section, 0, 2);
            },
            values: &[None, Some(1), Some(2)],
        },
        Case {
            residents: &[1],
            prepare: |section| _ = insert(section, 0, 1),
            update: |section| assert_eq!(remove(section, 0), Some(1)),
            values: &[Some(1), None],
        },
        Case {
            residents: &[1],
            prepare: |section| _ = insert(section, 0, 1),
            update: |section| {
                remove(section, 0);
                insert(section, 0, 2);
            },
            values: &[Some(1), None, Some(2)],
        },
    ]
}

/// B1, B3: lookups see each update of a first segment as one step.
#[test]
fn lookups_during_updates_of_boxed_slots() {
    first_segment::<Boxed>().into_iter().for_each(|case| case.explore(2));
}

/// B1, B3: the same for entries in the slots.
#[test]
fn lookups_during_updates_of_inline_slots() {
    first_segment::<Inline>().into_iter().for_each(|case| case.explore(2));
}

/// B1, B3: the same in a private domain, with one preemption: its sections have more steps.
#[test]
fn lookups_during_updates_of_private_tables() {
    first_segment::<Private>().into_iter().for_each(|case| case.explore(1));
}

/// Cases in which key 0 is in a later segment, or has to go to one.
fn later_segments<F: Slots>() -> [Case<F>; 5] {
    [
        // The segment is added.
        Case {
            residents: &[1, 2, 4],
            prepare: nothing,
            update: |section| {
                insert(section, 0, 1);
                insert(section, 0, 2);
            },
            values: &[None, Some(1), Some(2)],
        },
        // The segment is unlinked, and another one is added.
        Case {
            residents: &[1, 2, 4],
            prepare: |section| _ = insert(section, 0, 1),
            update: |section| {
                assert_eq!(remove(section, 0), Some(1));
                insert(section, 0, 2);
            },
            values: &[Some(1), None, Some(2)],
        },
        // The last resident stays in the later segment, with the filter's bit of key 0.
        Case {
            residents: &[1, 2, 4, 3],
            prepare: |section| _ = insert(section, 0, 1),
            update: |section| assert_eq!(remove(section, 0), Some(1)),
            values: &[Some(1), None],
        },
        // An inline entry of the full first segment moves.
        Case {
            residents: &[1, 2],
            prepare: |section| _ = insert(section, 0, 1),
            update: |section| {
                insert(section, 0, 2);
                insert(section, 0, 3);
            },
            values: &[Some(1), Some(2), Some(3)],
        },
        // An inline entry of a full later segment moves to another one.
        Case {
            residents: &[1, 2, 4, 5, 6],
            prepare: |section| _ = insert(section, 0, 1),
            update: |section| _ = insert(section, 0, 2),
            values: &[Some(1), Some(2)],
        },
    ]
}

/// B1, B3: lookups see each update as one step also if the first segment is full.
#[test]
fn lookups_in_later_boxed_segments() {
    later_segments::<Boxed>().into_iter().for_each(|case| case.explore(2));
}

/// B1, B3: the same for entries in the slots.
#[test]
fn lookups_in_later_inline_segments() {
    later_segments::<Inline>().into_iter().for_each(|case| case.explore(2));
}

/// B3: an inline entry comes into the first segment and moves to a later one, in which lookups look
/// from the beginning, because it has an entry with the same hash.
#[test]
fn lookups_of_inline_entries_that_move() {
    let case = Case::<Inline> {
        residents: &[1, 2, 16],
        prepare: |section| {
            // This moves key 16 to a later segment.
            assert_eq!(insert(section, 16, 0), Some(0));
        },
        update: |section| {
            insert(section, 0, 1);
            insert(section, 0, 2);
        },
        values: &[None, Some(1), Some(2)],
    };
    explore_entries(unless_quick(2), move || {
        let table = case.table(COARSE);
        // The slot of key 16 becomes free.
        let_slots_age();
        let section = table.enter();
        alongside(&section, case.update, |section| case.look(section));
        drop(section);
        case.assert_done(table);
    });
}

/// B8: entries and later segments are freed while another thread looks them up in a section of its
/// own.
fn reclamation<F: Slots>(case: Case<F>, preemptions: usize) {
    explore_entries(preemptions, move || {
        let table = case.table(COARSE);
        let reader = spawn(&table, move |section| case.look(section));
        (case.update)(&table.enter());
        reclaim(&table);
        reader.join().unwrap();
        case.assert_done(table);
    });
}

/// B8
#[test]
fn reclamation_of_entries() {
    reclamation(first_segment::<Boxed>()[1], unless_quick(2));
    reclamation(first_segment::<Inline>()[1], unless_quick(2));
    reclamation(first_segment::<Private>()[1], 1);
}

/// B8
#[test]
fn reclamation_of_segments() {
    reclamation(later_segments::<Boxed>()[1], unless_quick(2));
    reclamation(later_segments::<Inline>()[1], unless_quick(2));
}

/// B3: two threads update key 0 and then the table holds these entries, beside the residents.
fn two_writers<F: Slots>(
    residents: &'static [u64],
    preemptions: usize,
    mine: fn(&Section<F>) -> u64,
    other: fn(&Section<F>) -> u64,
    check: fn([u64; 2], Option<u64>),
) {
    explore_entries(preemptions, move || {
        let table = table::<F>(COARSE, residents);
        let result = Arc::new(AtomicU64::new(0));
        let of_other = Arc::clone(&result);
        // Relaxed: joining the thread orders them.
        let thread = spawn(&table, move |section| of_other.store(other(section), Relaxed));
        let of_mine = mine(&table.enter());
        thread.join().unwrap();
        let left = get(&table.enter(), 0);
        check([of_mine, result.load(Relaxed)], left);
        let mut entries: Vec<_> =
            keys(&table.enter()).into_iter().filter(|&key| key != 0).map(|key| (key, 0)).collect();
        entries.splice(0..0, left.map(|value| (0, value)));
        assert_holds(table, &entries);
    });
}

/// B3: two threads insert a key. Each finds it absent, and looks again under the lock. Key 16 has
/// the same tag.
fn two_insertions<F: Slots>(residents: &'static [u64], preemptions: usize) {
    two_writers::<F>(
        residents,
        preemptions,
        |section| try_insert(section, 0, 1).into(),
        |section| try_insert(section, 0, 2).into(),
        |is_inserted, left| {
            assert!(left == Some(1) && is_inserted == [1, 0] || left == Some(2) && is_inserted == [0, 1]);
        },
    );
}

#[test]
fn two_insertions_of_a_key() {
    for residents in [&[][..], &[1, 2, 16, 3]] {
        two_insertions::<Boxed>(residents, unless_quick(2));
        two_insertions::<Inline>(residents, unless_quick(2));
    }
    two_insertions::<Private>(&[16], 1);
}

/// B3: a tag leaves a word and comes back, so that the word is the same, with another key. Under
/// the lock, the entry is compared that came meanwhile.
fn tag_returns<F: Slots>(preemptions: usize) {
    two_writers::<F>(
        &[16],
        preemptions,
        |section| insert(section, 0, 1).unwrap_or(0),
        |section| {
            remove(section, 16).expect("no other thread removes it");
            insert(section, 0, 2).unwrap_or(0)
        },
        |replaced, left| assert!(left == Some(1) && replaced == [2, 0] || left == Some(2) && replaced == [0, 1]),
    );
}

#[test]
fn insertions_while_a_tag_leaves_and_returns() {
    tag_returns::<Boxed>(unless_quick(2));
    tag_returns::<Inline>(unless_quick(2));
}

/// B3: of a replacement and a removal, or of two removals, one comes first.
fn removals<F: Slots>(preemptions: usize) {
    two_writers::<F>(
        &[0],
        preemptions,
        |section| remove(section, 0).map_or(9, |value| value),
        |section| insert(section, 0, 1).map_or(9, |value| value),
        |[removed, replaced], left| {
            assert!(
                removed == 0 && replaced == 9 && left == Some(1) || removed == 1 && replaced == 0 && left.is_none()
            );
        },
    );
    two_writers::<F>(
        &[0],
        preemptions,
        |section| remove(section, 0).is_some().into(),
        |section| remove(section, 0).is_some().into(),
        |removed, left| assert!(removed.iter().sum::<u64>() == 1 && left.is_none()),
    );
    // Another key of the bucket comes and goes.
    two_writers::<F>(
        &[0],
        preemptions,
        |section| remove(section, 0).map_or(9, |value| value),
        |section| {
            insert(section, 1, 0);
            remove(section, 1).expect("no other thread removes it")
        },
        |removed, left| assert!(removed == [0, 0] && left.is_none()),
    );
}

#[test]
fn removals_beside_other_updates() {
    removals::<Boxed>(unless_quick(2));
    removals::<Inline>(unless_quick(2));
}

/// B3: two threads update different keys in later segments, whose words only the lock protects.
#[test]
fn two_updates_of_later_segments() {
    fn explore<F: Slots>() {
        two_writers::<F>(
            &[1, 2, 4, 5],
            unless_quick(2),
            |section| insert(section, 0, 1).unwrap_or(0),
            |section| insert(section, 3, 0).unwrap_or(0),
            |replaced, left| assert!(replaced == [0, 0] && left == Some(1)),
        );
        two_writers::<F>(
            &[1, 2, 4, 5],
            unless_quick(2),
            |section| insert(section, 0, 1).unwrap_or(0),
            |section| remove(section, 5).expect("no other thread removes it"),
            |replaced, left| assert!(replaced == [0, 0] && left == Some(1)),
        );
    }
    explore::<Boxed>();
    explore::<Inline>();
}

/// B3: two threads each update a bucket, and then look into the other's. One of them sees the
/// other's update, whichever way the bucket is unlocked.
#[test]
fn updates_are_seen_by_lookups_that_begin_later() {
    fn explore<F: Slots>(residents: &'static [u64], update: fn(&Section<F>, u64), after: Option<u64>) {
        explore_entries(2, move || {
            let table = table::<F>(COARSE, residents);
            let sees = Arc::new(AtomicU64::new(0));
            let other_sees = Arc::clone(&sees);
            let run = move |section: &Section<F>, mine, other| {
                update(section, mine);
                get(section, other) == after
            };
            // Relaxed: joining the thread orders them.
            let thread = spawn(&table, move |section| other_sees.store(run(section, 8, 0).into(), Relaxed));
            let is_seen = run(&table.enter(), 0, 8);
            thread.join().unwrap();
            assert!(is_seen || sees.load(Relaxed) == 1, "both missed the other's update");
        });
    }
    let insert_it: fn(&Section<Inline>, u64) = |section, key| _ = insert(section, key, 1);
    explore::<Inline>(&[], insert_it, Some(1));
    explore::<Inline>(&[0, 8], |section, key| _ = remove(section, key), None);
    explore::<Boxed>(&[0, 8], |section, key| _ = remove(section, key), None);
}
