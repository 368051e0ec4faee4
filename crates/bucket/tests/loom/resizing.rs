//! Lookups and updates while the table grows and shrinks.

use std::sync::Arc;

use relativist_bucket::{Boxed, Inline, Private, Table};

use crate::models::unless_quick;
use crate::scene::*;

/// Moves the buckets of a table, and publishes the new array.
fn move_all<F: Slots>(section: &Section<'_, F>) {
    (0..2).for_each(|_| section.move_a_bucket(&Places));
}

/// In a table of two buckets, key 0 is in a later segment.
fn replace<F: Slots>() -> Case<F> {
    Case {
        residents: &[1, 4, 5],
        prepare: |section| _ = insert(section, 0, 1),
        update: |section| _ = insert(section, 0, 2),
        values: &[Some(1), Some(2)],
    }
}

fn come<F: Slots>() -> Case<F> {
    Case { residents: &[1, 4], prepare: nothing, update: |section| _ = insert(section, 0, 1), values: &[None, Some(1)] }
}

fn go<F: Slots>() -> Case<F> {
    Case {
        residents: &[1, 4],
        prepare: |section| _ = insert(section, 0, 1),
        update: |section| _ = remove(section, 0).expect("no other thread removes it"),
        values: &[Some(1), None],
    }
}

/// Returns the table of a case that is about to be resized from one of these capacities to the
/// other one.
fn begin<F: Slots>(case: Case<F>, from: usize) -> Arc<Table<Entry, F>> {
    let table = case.table(from);
    table.begin_resize(if from == COARSE { 2 } else { 1 });
    table
}

/// Another thread moves all buckets while this one looks up. The resize is over when it is done.
fn lookups<F: Slots>(case: Case<F>, preemptions: usize) {
    for from in [COARSE, FINE] {
        explore_entries(preemptions, move || {
            let table = begin(case, from);
            let section = table.enter();
            alongside(&section, move_all, |section| {
                assert_eq!(get(section, 0), Some(1), "a resident was missed");
                assert_eq!(get(section, *case.residents.last().unwrap()), Some(0), "a resident was missed");
            });
            (case.update)(&section);
            drop(section);
            assert_eq!(table.buckets(), if from == COARSE { 4 } else { 2 });
            case.assert_done(table);
        });
    }
}

/// B1, B5
#[test]
fn lookups_while_resizing() {
    lookups(replace::<Boxed>(), 2);
    lookups(replace::<Inline>(), 2);
    lookups(replace::<Private>(), unless_quick(2));
}

/// B1, B3: another thread updates and moves while this one looks up. Each update moves a bucket, so
/// its second half publishes the new array.
fn lookups_during_updates<F: Slots>(case: Case<F>, preemptions: usize) {
    for from in [COARSE, FINE] {
        explore_entries(preemptions, move || {
            let table = begin(case, from);
            let section = table.enter();
            let work = move |section: &Section<'_, F>| {
                (case.update)(section);
                section.move_a_bucket(&Places);
            };
            alongside(&section, work, |section| case.look(section));
            drop(section);
            case.assert_done(table);
        });
    }
}

#[test]
fn lookups_during_updates_of_boxed_slots_while_resizing() {
    [replace::<Boxed>(), come(), go()].into_iter().for_each(|case| lookups_during_updates(case, unless_quick(2)));
}

#[test]
fn lookups_during_updates_of_inline_slots_while_resizing() {
    [replace::<Inline>(), come(), go()].into_iter().for_each(|case| lookups_during_updates(case, unless_quick(2)));
}

/// B3: one thread updates, and sees its own update, while another one moves all buckets.
fn updates<F: Slots>(case: Case<F>, preemptions: usize) {
    for from in [COARSE, FINE] {
        explore_entries(preemptions, move || {
            let table = begin(case, from);
            let mover = spawn(&table, move_all);
            let section = table.enter();
            (case.update)(&section);
            assert_eq!(get(&section, 0), *case.values.last().unwrap());
            drop(section);
            mover.join().unwrap();
            move_all(&table.enter());
            assert_eq!(table.buckets(), if from == COARSE { 4 } else { 2 });
            case.assert_done(table);
        });
    }
}

#[test]
fn updates_of_boxed_slots_while_resizing() {
    [replace::<Boxed>(), come(), go()].into_iter().for_each(|case| updates(case, unless_quick(2)));
}

#[test]
fn updates_of_inline_slots_while_resizing() {
    [replace::<Inline>(), come(), go()].into_iter().for_each(|case| updates(case, unless_quick(2)));
}

/// B3: a resize begins while another thread updates, and both move buckets.
#[test]
fn updates_while_a_resize_begins() {
    fn explore<F: Slots>() {
        let case = replace::<F>();
        explore_entries(unless_quick(2), move || {
            let table = case.table(COARSE);
            let mover = spawn(&table, |section| {
                section.table().begin_resize(2);
                section.move_a_bucket(&Places);
            });
            (case.update)(&table.enter());
            mover.join().unwrap();
            case.assert_done(table);
        });
    }
    explore::<Boxed>();
    explore::<Inline>();
}

/// B1, B5: two threads move a bucket each. The one that publishes the new array shows a third one
/// what the other one has moved.
#[test]
fn two_threads_that_move() {
    fn explore<F: Slots>() {
        explore_entries(unless_quick(2), move || {
            let table = table::<F>(COARSE, &[0, 9]);
            table.begin_resize(2);
            let section = table.enter();
            let mover = spawn(&table, |section| section.move_a_bucket(&Places));
            let move_other = |section: &Section<'_, F>| section.move_a_bucket(&Places);
            alongside(&section, move_other, |section| {
                assert_eq!([0, 9].map(|key| get(section, key)), [Some(0); 2], "a resident was missed");
            });
            mover.join().unwrap();
            drop(section);
            assert_eq!(table.buckets(), 4);
            assert_holds(table, &[(0, 0), (9, 0)]);
        });
    }
    explore::<Boxed>();
    explore::<Inline>();
}

/// B8: the old array is freed when the readers have left that may use it.
#[test]
fn reclamation_of_arrays() {
    fn explore<F: Slots>(preemptions: usize) {
        let case = replace::<F>();
        for from in [COARSE, FINE] {
            explore_entries(preemptions, move || {
                let table = begin(case, from);
                let reader = spawn(&table, move |section| {
                    assert_eq!(get(section, 0), Some(1), "a resident was missed");
                });
                move_all(&table.enter());
                reclaim(&table);
                reader.join().unwrap();
                (case.update)(&table.enter());
                case.assert_done(table);
            });
        }
    }
    explore::<Boxed>(unless_quick(2));
    explore::<Inline>(unless_quick(2));
    explore::<Private>(1);
}

/// B2, B5: a table grows twice during a lookup.
#[test]
fn lookups_while_growing_twice() {
    fn explore<F: Slots>() {
        let case = replace::<F>();
        explore_entries(2, move || {
            let table = begin(case, COARSE);
            let section = table.enter();
            let grow = |section: &Section<'_, F>| {
                move_all(section);
                section.table().begin_resize(3);
                move_all(section);
                move_all(section);
            };
            alongside(&section, grow, |section| {
                assert_eq!(get(section, 0), Some(1), "a resident was missed");
            });
            (case.update)(&section);
            drop(section);
            assert_eq!(table.buckets(), 8);
            case.assert_done(table);
        });
    }
    explore::<Boxed>();
    explore::<Inline>();
}
