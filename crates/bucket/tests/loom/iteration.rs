//! Iterations during updates and resizes.

use relativist_bucket::{Boxed, Inline, Private};

use crate::scene::*;

/// B7: an iteration sees each entry once while the buckets move.
#[test]
fn iteration_while_resizing() {
    fn explore<F: Slots>(preemptions: usize) {
        for from in [COARSE, FINE] {
            explore_entries(preemptions, move || {
                let table = table::<F>(from, &[0, 4, 9]);
                table.begin_resize(if from == COARSE { 2 } else { 1 });
                let section = table.enter();
                alongside(
                    &section,
                    |section| (0..2).for_each(|_| section.move_a_bucket(&Places)),
                    |section| assert_eq!(keys(section), [0, 4, 9]),
                );
                drop(section);
                assert_holds(table, &[(0, 0), (4, 0), (9, 0)]);
            });
        }
    }
    explore::<Boxed>(2);
    explore::<Inline>(2);
    explore::<Private>(1);
}

/// B7: an iteration sees each entry once while one is replaced. An inline entry of a full segment
/// moves to a later one.
#[test]
fn iteration_during_replacements() {
    fn explore<F: Slots>(residents: &'static [u64], preemptions: usize) {
        explore_entries(preemptions, move || {
            let table = table::<F>(COARSE, residents);
            let section = table.enter();
            alongside(
                &section,
                |section| _ = insert(section, residents[0], 1),
                |section| assert_eq!(keys(section), residents),
            );
        });
    }
    explore::<Boxed>(&[0, 1, 4], 2);
    explore::<Inline>(&[0, 1, 4], 2);
    explore::<Inline>(&[0, 1, 4, 5], 2);
}

/// B7: an iteration sees what was inserted before it began.
#[test]
fn iteration_sees_insertions() {
    fn explore<F: Slots>() {
        explore_entries(2, || {
            let table = table::<F>(COARSE, &[1]);
            let section = table.enter();
            alongside(
                &section,
                |section| _ = insert(section, 0, 1),
                |section| {
                    let found = get(section, 0).is_some();
                    let seen = keys(section);
                    assert!(seen == [0, 1] || !found && seen == [1], "{seen:?}");
                },
            );
            drop(section);
            assert_holds(table, &[(0, 1), (1, 0)]);
        });
    }
    explore::<Boxed>();
    explore::<Inline>();
}
