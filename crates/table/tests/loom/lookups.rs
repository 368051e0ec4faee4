//! Models of lookups during resizes.

use loom::thread;
use relativist_rcu::read;

use crate::scene::*;

/// T1, T8: lookups during a resize find the residents, and no link that was reclaimed.
fn lookups(from: usize, to: usize) {
    explore(unless_quick(2), move || {
        // Two in one fine bucket, which have different summary bits, and one in the other.
        let residents = [1, 3, 5];
        let scene = Scene::new(from, &residents);
        let reader = {
            let scene = scene.clone();
            thread::spawn(move || {
                let guard = read();
                assert!(residents.iter().all(|&n| scene.find(at(n), &guard).is_some()), "a resident was missed");
            })
        };
        scene.table.resize_to(to).unwrap();
        reader.join().unwrap();
        scene.assert_holds(&residents);
    });
}

#[test]
fn lookups_while_growing() {
    lookups(COARSE, FINE);
}

#[test]
fn lookups_while_shrinking() {
    lookups(FINE, COARSE);
}

/// T1: the table grows again before any reader has left. Chains are cut when the readers of the
/// last growth have left.
#[test]
fn lookups_while_growing_twice() {
    explore(unless_quick(2), move || {
        let residents = [1, 3, 5];
        let scene = Scene::new(COARSE, &residents);
        let reader = {
            let scene = scene.clone();
            thread::spawn(move || {
                let guard = read();
                assert!(scene.find(at(3), &guard).is_some(), "a resident was missed");
            })
        };
        grow_twice(&scene);
        reader.join().unwrap();
        scene.assert_holds(&residents);
    });
}

/// T2: lookups in a bucket end even if an update holds its lock and the resizer waits for readers.
#[test]
fn lookups_wait_for_nobody() {
    each_way(|from, to| {
        explore(2, move || {
            let scene = Scene::new(from, &RESIDENTS);
            resize_alongside(&scene, to, |shared| {
                let_wait();
                let entry = scene.table.entry(at(4), |link| is(link, at(4)), shared.guard());
                let reader = {
                    let scene = scene.clone();
                    thread::spawn(move || {
                        let is_there = |n| scene.find(at(n), shared.guard()).is_some();
                        assert_eq!([0, 1, 4, 5].map(is_there), [false, true, false, true]);
                    })
                };
                reader.join().unwrap();
                drop(entry);
            });
            scene.assert_holds(&RESIDENTS);
        });
    });
}

/// T3: if a lookup has seen an update, so does the next, even if the first one used the older
/// array.
fn lookups_agree(from: usize, to: usize) {
    for update in [Insert(4), Remove(4), Replace(4), Insert(3), Remove(3)] {
        explore(unless_quick(2), move || {
            let scene = Scene::new(from, &update.before(&RESIDENTS));
            resize_alongside(&scene, to, |shared| {
                let look = || scene.find(at(update.place()), shared.guard());
                let old = look();
                let writer = {
                    let scene = scene.clone();
                    thread::spawn(move || _ = update.run(&scene, shared.guard()))
                };
                let (first, second) = (look(), look());
                assert!(first == old || second == first, "{update:?} was seen, and then not");
                writer.join().unwrap();
            });
        });
    }
}

#[test]
fn lookups_agree_while_growing() {
    lookups_agree(COARSE, FINE);
}

#[test]
fn lookups_agree_while_shrinking() {
    lookups_agree(FINE, COARSE);
}

/// T3: the same if chains are uncut, and the first lookup used the array that is being replaced.
#[test]
fn lookups_agree_while_growing_twice() {
    for update in [Insert(4), Remove(4), Replace(4), Insert(2), Remove(2)] {
        explore(unless_quick(2), move || {
            let scene = Scene::new(COARSE, &update.before(&RESIDENTS));
            scene.table.grow_uncut(FINE).unwrap();
            let guard = read();
            let resizer = {
                let scene = scene.clone();
                thread::spawn(move || scene.table.grow_uncut(FINER).unwrap())
            };
            // SAFETY: the threads that use it are joined first.
            let shared = unsafe { Shared::new(&guard) };
            let look = || scene.find(at(update.place()), shared.guard());
            let old = look();
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || _ = update.run(&scene, shared.guard()))
            };
            let (first, second) = (look(), look());
            assert!(first == old || second == first, "{update:?} was seen, and then not");
            writer.join().unwrap();
            let last = look();
            assert_eq!(last.is_some(), !matches!(update, Remove(_)), "{update:?} has returned, and was not seen");
            resizer.join().unwrap();
            drop(guard);
        });
    }
}

/// T3: a lookup that loaded the head before a removal may find a link that was inserted after it.
/// Then the next lookup finds that link, too.
fn lookups_agree_after_a_stale_head(from: usize, to: usize) {
    explore(unless_quick(2), move || {
        let scene = Scene::new(from, &[1, 2]);
        resize_alongside(&scene, to, |shared| {
            let_wait();
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || {
                    scene.unlink(at(2), shared.guard());
                    scene.insert(next_to(2), shared.guard());
                })
            };
            let look = || scene.find(next_to(2), shared.guard()).is_some();
            let (first, second) = (look(), look());
            assert!(!first || second, "an insertion was seen, and then not");
            writer.join().unwrap();
        });
    });
}

#[test]
fn lookups_agree_after_a_stale_head_at_rest() {
    lookups_agree_after_a_stale_head(FINE, FINE);
}

#[test]
fn lookups_agree_after_a_stale_head_while_resizing() {
    each_way(lookups_agree_after_a_stale_head);
}
