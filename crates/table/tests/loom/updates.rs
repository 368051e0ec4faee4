//! Models of updates during resizes.

use loom::thread;
use relativist_rcu::{barrier, read};
use relativist_table::Resizing;

use crate::scene::*;

/// After a resize, each kind of lookup finds what an update during it has left, and everything
/// else.
fn updates(from: usize, to: usize, residents: &'static [u64], updates: &[Update]) {
    for &update in updates {
        explore(unless_quick(2), move || {
            let scene = Scene::with(Resizing::Automatic, from, &update.before(residents));
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || _ = update.run(&scene, &read()))
            };
            scene.table.resize_to(to).unwrap();
            writer.join().unwrap();
            scene.assert_holds(&update.after(residents));
        });
    }
}

#[test]
fn updates_while_growing() {
    updates(COARSE, FINE, &RESIDENTS, &UPDATES);
}

#[test]
fn updates_while_shrinking() {
    updates(FINE, COARSE, &RESIDENTS, &UPDATES);
}

/// One coarse head covers more fine heads than the resizer changes in one step.
#[test]
fn updates_while_joining_in_steps() {
    updates(FINER, COARSE, &RESIDENTS, &[Insert(0), Insert(4), Remove(3), Replace(4)]);
}

#[test]
fn updates_while_cutting_in_steps() {
    for update in [Insert(4), Remove(4), Replace(4), Insert(3), Insert(7)] {
        explore(1, move || {
            let scene = Scene::new(COARSE, &update.before(&RESIDENTS));
            scene.table.grow_uncut(FINER).unwrap();
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || _ = update.run(&scene, &read()))
            };
            scene.table.resize_to(FINER).unwrap();
            writer.join().unwrap();
            scene.assert_holds(&update.after(&RESIDENTS));
        });
    }
}

/// T1: an update keeps both arrays correct: the published one, and the one that will replace it.
#[test]
fn updates_while_growing_twice() {
    for update in [Insert(4), Remove(4), Insert(3)] {
        explore(1, move || {
            let scene = Scene::new(COARSE, &update.before(&RESIDENTS));
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || _ = update.run(&scene, &read()))
            };
            grow_twice(&scene);
            writer.join().unwrap();
            scene.assert_holds(&update.after(&RESIDENTS));
        });
    }
}

/// T1: updates keep a table correct whose growth stops at a locked bucket, and which another thread
/// goes on with.
#[test]
fn updates_while_insertions_grow_the_table() {
    for update in [Insert(4), Remove(4), Replace(4), Insert(3)] {
        for before in [COARSE, FINE] {
            explore(unless_quick(2), move || {
                let scene = Scene::new(COARSE, &update.before(&RESIDENTS));
                if before == FINE {
                    scene.table.grow_uncut(FINE).unwrap();
                }
                let writer = {
                    let scene = scene.clone();
                    thread::spawn(move || {
                        _ = update.run(&scene, &read());
                        scene.table.grow_a_bit(FINER, 1).unwrap();
                    })
                };
                scene.table.grow_a_bit(FINER, 1).unwrap();
                scene.find(at(5), &read()).expect("it stays");
                writer.join().unwrap();
                scene.table.resize_to(FINER).unwrap();
                scene.assert_holds(&update.after(&RESIDENTS));
            });
        }
    }
}

/// A table is dropped while insertions grow it.
#[test]
fn dropped_while_insertions_grow_it() {
    explore(unless_quick(2), || {
        let scene = Scene::new(FINE, &RESIDENTS);
        scene.table.grow_a_bit(FINER, 1).unwrap();
        assert_eq!(scene.table.buckets(), FINE, "half of the heads are filled");
    });
}

/// The same for a table that is uncut when the update begins, which has fewer interleavings.
#[test]
fn updates_of_an_uncut_table() {
    for update in UPDATES {
        explore(unless_quick(2), move || {
            let scene = Scene::new(COARSE, &update.before(&RESIDENTS));
            scene.table.grow_uncut(FINE).unwrap();
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || _ = update.run(&scene, &read()))
            };
            scene.table.grow_uncut(FINER).unwrap();
            writer.join().unwrap();
            scene.table.resize_to(FINER).unwrap();
            scene.assert_holds(&update.after(&RESIDENTS));
        });
    }
}

/// The resizer fills the fine heads of a group without its lock if all its links are in one fine
/// bucket, or if it has none.
#[test]
fn updates_of_one_side_while_growing() {
    let one_side = [Insert(0), Insert(4), Remove(0), Remove(4), Replace(4)];
    for residents in [&[][..], &[1], &[5]] {
        updates(COARSE, FINE, residents, &one_side);
    }
}

/// With more links than buckets the resizer does not look at chains that need no cut.
#[test]
fn updates_while_growing_in_haste() {
    updates(COARSE, FINE, &[1, 2, 9, 10, 11], &[Insert(0), Insert(4), Remove(0), Remove(4)]);
}

/// `clear` during a resize removes all links, and returns each once.
#[test]
fn clearing_while_resizing() {
    each_way(|from, to| {
        explore(unless_quick(2), move || {
            let scene = Scene::new(from, &[1, 3, 5]);
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || assert_eq!(scene.clear(&read()), [1, 3, 5]))
            };
            scene.table.resize_to(to).unwrap();
            writer.join().unwrap();
            scene.assert_holds(&[]);
        });
    });
}

/// Two concurrent calls of `clear` return each link once.
#[test]
fn clearing_during_clearing() {
    explore(2, || {
        let scene = Scene::new(COARSE, &[1, 3, 9]);
        let other = {
            let scene = scene.clone();
            thread::spawn(move || scene.clear(&read()))
        };
        let mut places = scene.clear(&read());
        places.extend(other.join().unwrap());
        places.sort_unstable();
        assert_eq!(places, [1, 3, 9]);
        scene.assert_holds(&[]);
    });
}

/// T8: neither a reader nor the resizer accesses a link that was reclaimed during the resize.
#[test]
fn reclamation_while_resizing() {
    each_way(|from, to| {
        explore(unless_quick(2), move || {
            let scene = Scene::new(from, &[1, 4, 5]);
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || {
                    let removed = scene.unlink(at(4), &read());
                    reclaim(removed);
                })
            };
            scene.table.resize_to(to).unwrap();
            writer.join().unwrap();
            scene.assert_holds(&RESIDENTS);
        });
    });
}

/// T9: an entry that is dropped unused releases its lock, both at rest and during a resize.
#[test]
fn entries_unlock_while_resizing() {
    each_way(|from, to| {
        explore(unless_quick(2), move || {
            let scene = Scene::new(from, &RESIDENTS);
            resize_alongside(&scene, to, |shared| {
                for hash in [at(4), at(5)] {
                    drop(scene.table.entry(hash, |link| is(link, hash), shared.guard()));
                }
                scene.insert(at(4), shared.guard());
            });
            scene.assert_holds(&[1, 4, 5]);
        });
    });
}

/// T4: updates do not wait while the resizer waits for readers. Two updates of different fine
/// buckets exclude each other by the lock of their group.
#[test]
fn two_updates_while_resizing() {
    each_way(|from, to| {
        let pairs = [(Remove(4), Insert(3)), (Insert(4), Insert(3)), (Remove(4), Remove(3))];
        for &(mine, other) in &pairs[..if is_quick() { 1 } else { 3 }] {
            let is_there = |updates: [Update; 2], present: fn(Update) -> bool| {
                let mut places: Vec<u64> = updates.into_iter().filter(|&u| present(u)).map(Update::place).collect();
                places.extend(RESIDENTS);
                places.sort_unstable();
                places
            };
            let before = is_there([mine, other], |update| matches!(update, Remove(_)));
            let after = is_there([mine, other], |update| matches!(update, Insert(_)));
            explore(1, move || {
                let scene = Scene::new(from, &before);
                resize_alongside(&scene, to, |shared| {
                    let writer = {
                        let scene = scene.clone();
                        thread::spawn(move || _ = other.run(&scene, shared.guard()))
                    };
                    mine.run(&scene, shared.guard());
                    writer.join().unwrap();
                });
                scene.assert_holds(&after);
            });
        }
    });
}

/// An update that loaded heads during one resize stays correct during the next, which begins at
/// once.
fn updates_across(sizes: &'static [usize]) {
    for update in [Insert(4), Remove(4)] {
        explore(1, move || {
            let scene = Scene::new(sizes[0], &update.before(&RESIDENTS));
            let writer = {
                let scene = scene.clone();
                thread::spawn(move || _ = update.run(&scene, &read()))
            };
            sizes[1..].iter().for_each(|&size| scene.table.resize_to(size).unwrap());
            writer.join().unwrap();
            scene.assert_holds(&update.after(&RESIDENTS));
        });
    }
}

/// The table is uncut when the update begins. So the update may use heads that it loaded before,
/// while chains are cut, and while the table shrinks.
#[test]
fn updates_across_a_cut_and_shrinking() {
    let model = || {
        let update = Insert(4);
        let scene = Scene::new(COARSE, &update.before(&RESIDENTS));
        scene.table.grow_uncut(FINE).unwrap();
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || _ = update.run(&scene, &read()))
        };
        scene.table.resize_to(COARSE).unwrap();
        writer.join().unwrap();
        scene.assert_holds(&update.after(&RESIDENTS));
    };
    // What one preemption shows is found much sooner without a second one.
    (1..=unless_quick(2)).for_each(|preemptions| explore(preemptions, model));
}

#[test]
fn updates_across_growing_and_shrinking() {
    updates_across(&[COARSE, FINE, COARSE]);
}

#[test]
fn updates_across_shrinking_and_growing() {
    updates_across(&[FINE, COARSE, FINE]);
}

#[test]
fn updates_across_shrinking_twice() {
    updates_across(&[FINER, FINE, COARSE]);
}

#[test]
fn updates_across_growing_twice() {
    updates_across(&[COARSE, FINE, FINER]);
}

/// The coarse array of a table that has grown is freed when no update uses its marks any more.
#[test]
fn arrays_are_freed_behind_updates() {
    explore(unless_quick(2), || {
        let scene = Scene::new(COARSE, &RESIDENTS);
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || scene.insert(at(4), &read()))
        };
        scene.table.resize_to(FINE).unwrap();
        barrier();
        writer.join().unwrap();
    });
}
