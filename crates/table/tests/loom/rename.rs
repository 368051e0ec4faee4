//! Models of renames during lookups, updates and resizes.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use loom::thread;
use relativist_rcu::{Guard, read};
use relativist_table::{Entry, Hash, Link, RenameError};

use crate::scene::{COARSE, FINE, Node, Scene, at, each_way, explore, is, let_wait, next_to, reclaim};

/// Whether the link itself is moved, or replaced by another.
#[derive(Clone, Copy, Debug)]
enum How {
    Moved,
    Replaced,
}

use How::{Moved, Replaced};

/// Within a bucket, and from one to the other.
const WAYS: [(How, u64, u64); 3] = [(Moved, 3, 0), (Moved, 4, 0), (Replaced, 0, 4)];

impl Scene {
    fn rename(&self, how: How, old: Hash, new: Hash) -> Result<(), RenameError> {
        self.rename_while(how, old, new, || ())
    }

    /// Calls `before_turn` under the locks: after the link is unlinked, if it is moved, and before
    /// lookups find the new name.
    fn rename_while(&self, how: How, old: Hash, new: Hash, before_turn: impl FnOnce()) -> Result<(), RenameError> {
        let (is_old, is_new) = ((old, |link| is(link, old)), (new, |link| is(link, new)));
        match how {
            Moved => self.table.rename(is_old, is_new, |link| {
                before_turn();
                give_name(link, new);
            }),
            Replaced => {
                let make = |_| {
                    before_turn();
                    self.node(new)
                };
                // SAFETY: a fresh node.
                let replaced = unsafe { self.table.rename_to(is_old, is_new, make)? };
                // SAFETY: unlinked, and readers have left it.
                unsafe { crate::scene::dispose(replaced) };
                Ok(())
            }
        }
    }

    fn has(&self, hash: Hash, guard: &Guard) -> bool {
        self.find(hash, guard).is_some()
    }

    /// T10: at every instant lookups find exactly one of the two names, and at most one rename
    /// takes effect within a section.
    fn assert_one_of(&self, one: Hash, other: Hash) {
        let guard = read();
        let found = [one, other, one].map(|hash| self.has(hash, &guard));
        assert!(found.contains(&true), "under neither name");
        assert!(found.contains(&false), "under both names");
    }

    /// Unlinks the link with this hash, if there is one. The caller has to reclaim it.
    fn remove(&self, hash: Hash, guard: &Guard) -> Option<NonNull<Link>> {
        match self.table.entry(hash, |link| is(link, hash), guard) {
            Entry::Occupied(entry) => Some(entry.remove()),
            Entry::Vacant(_) => None,
        }
    }
}

/// Makes the node match this name, too.
fn give_name(link: NonNull<Link>, hash: Hash) {
    if !is(link, hash) {
        // SAFETY: a link of a table of nodes, which is alive.
        unsafe { link.cast::<Node>().as_ref() }.name.store(hash.get(), Relaxed);
    }
}

/// Starts a thread that uses the scene.
fn alongside(scene: &Arc<Scene>, action: impl FnOnce(&Scene) + Send + 'static) -> thread::JoinHandle<()> {
    let scene = scene.clone();
    thread::spawn(move || action(&scene))
}

/// T1: lookups find the link under its old name until they find it under the new one.
#[test]
fn lookups_before_the_switch() {
    for (from, to) in [(3, 0), (4, 0)] {
        explore(2, move || {
            let scene = Scene::new(FINE, &[1, from]);
            let reader =
                alongside(&scene, move |scene| assert!(scene.has(at(from), &read()), "missed while in flight"));
            let before_turn = || {
                reader.join().unwrap();
                loom::stop_exploring();
            };
            scene.rename_while(Moved, at(from), at(to), before_turn).unwrap();
        });
    }
}

/// T1: the same for lookups in batches.
#[test]
fn batches_before_the_switch() {
    explore(2, || {
        let scene = Scene::new(FINE, &[1, 4]);
        let reader = alongside(&scene, |scene| {
            let hashes = [at(1), at(4)];
            let mut found = Vec::new();
            let is_match = |index, link| is(link, hashes[index]);
            scene.table.find_many(&hashes, is_match, |_, link| found.push(link.is_some()), &read());
            assert_eq!(found, [true, true], "missed while in flight");
        });
        let before_turn = || {
            reader.join().unwrap();
            loom::stop_exploring();
        };
        scene.rename_while(Moved, at(4), at(0), before_turn).unwrap();
    });
}

/// T10.
#[test]
fn lookups_around_the_switch() {
    for (how, from, to) in WAYS {
        explore(1, move || {
            let scene = Scene::new(FINE, &[1, from]);
            let mut reader = None;
            loom::stop_exploring();
            let before_turn = || {
                loom::explore();
                reader = Some(alongside(&scene, move |scene| scene.assert_one_of(at(from), at(to))));
            };
            scene.rename_while(how, at(from), at(to), before_turn).unwrap();
            reader.unwrap().join().unwrap();
            scene.assert_holds(&[to.min(1), to.max(1)]);
        });
    }
}

/// T1: a lookup that is at a link when the link moves away still finds the links after its old
/// place.
#[test]
fn lookups_of_others_while_renaming() {
    explore(2, || {
        let scene = Scene::new(COARSE, &[4, 5]);
        let reader = alongside(&scene, |scene| assert!(scene.has(at(5), &read()), "a resident was missed"));
        scene.rename(Moved, at(4), at(7)).unwrap();
        reader.join().unwrap();
        scene.assert_holds(&[5, 7]);
    });
}

/// T1: renames and resizes exclude each other.
#[test]
fn renaming_while_resizing() {
    each_way(|from, to| {
        for how in [Moved, Replaced] {
            explore(1, move || {
                let scene = Scene::new(from, &[1, 4]);
                let resizer = alongside(&scene, move |scene| scene.table.resize_to(to).unwrap());
                scene.rename(how, at(4), at(0)).unwrap();
                resizer.join().unwrap();
                scene.assert_holds(&[0, 1]);
            });
        }
    });
}

/// T3: a renamed link can be removed at once, and is not found again.
#[test]
fn removal_under_the_new_name() {
    for how in [Moved, Replaced] {
        explore(1, move || {
            let scene = Scene::new(FINE, &[1, 4]);
            let remover = alongside(&scene, |scene| {
                let guard = read();
                if let Some(removed) = scene.remove(at(0), &guard) {
                    assert!(!scene.has(at(0), &guard) && !scene.has(at(4), &guard), "found after its removal");
                    drop(guard);
                    reclaim(removed);
                }
            });
            scene.rename(how, at(4), at(0)).unwrap();
            remover.join().unwrap();
        });
    }
}

/// T3: updates find a link in flight under its old name.
#[test]
fn removal_under_the_old_name() {
    explore(1, || {
        let scene = Scene::new(FINE, &[1, 4]);
        let remover = {
            let scene = scene.clone();
            thread::spawn(move || {
                let guard = read();
                let removed = scene.remove(at(4), &guard);
                assert!(!scene.has(at(4), &guard));
                assert_ne!(removed.is_some(), scene.has(at(0), &guard));
                drop(guard);
                removed.map(reclaim).is_some()
            })
        };
        let renamed = scene.rename(Moved, at(4), at(0));
        let is_removed = remover.join().unwrap();
        assert_eq!(renamed, if is_removed { Err(RenameError::NotFound) } else { Ok(()) });
        scene.assert_holds(if is_removed { &[1] } else { &[0, 1] });
    });
}

/// T3: the same for a replacement: if the old link was in flight, the new one is renamed instead.
#[test]
fn replacement_under_the_old_name() {
    explore(1, || {
        let scene = Scene::new(FINE, &[1, 4]);
        let replacer = alongside(&scene, |scene| {
            let guard = read();
            let Entry::Occupied(entry) = scene.table.entry(at(4), |link| is(link, at(4)), &guard) else {
                return assert!(scene.has(at(0), &guard));
            };
            let new = scene.node(at(4));
            // SAFETY: a fresh node.
            let old = unsafe { entry.replace(new) };
            let found = [at(4), at(0)].into_iter().find_map(|hash| scene.find(hash, &guard));
            assert_eq!(found, Some(new), "what was replaced, or nothing, was found");
            drop(guard);
            reclaim(old);
        });
        scene.rename(Moved, at(4), at(0)).unwrap();
        replacer.join().unwrap();
        scene.assert_holds(&[0, 1]);
    });
}

/// T3: a lookup that finds a replacement in flight sees its contents.
#[test]
fn lookups_of_an_in_flight_replacement() {
    explore(1, || {
        let scene = Scene::new(FINE, &[1, 4]);
        let guard = read();
        let renamer = alongside(&scene, |scene| scene.rename(Moved, at(4), at(0)).unwrap());
        // In most executions the link is in flight now, and stays so until this section ends.
        let_wait();
        let replacer = alongside(&scene, |scene| {
            let guard = read();
            let Entry::Occupied(entry) = scene.table.entry(at(4), |link| is(link, at(4)), &guard) else {
                return;
            };
            // SAFETY: a fresh node.
            let old = unsafe { entry.replace(scene.node(at(4))) };
            drop(guard);
            reclaim(old);
        });
        assert!(scene.has(at(4), &guard) || scene.has(at(0), &guard), "under neither name");
        drop(guard);
        renamer.join().unwrap();
        replacer.join().unwrap();
        scene.assert_holds(&[0, 1]);
    });
}

/// T3: if another link gets the new name while the link is in flight, the link keeps its old name.
#[test]
fn insertion_under_the_new_name() {
    explore(1, || {
        let scene = Scene::new(FINE, &[1, 4]);
        let inserter = alongside(&scene, |scene| {
            let guard = read();
            if let Entry::Vacant(entry) = scene.table.entry(at(0), |link| is(link, at(0)), &guard) {
                // SAFETY: a fresh node.
                unsafe { entry.insert(scene.node(at(0))) };
                assert!(scene.has(at(4), &guard), "neither renamed nor found");
            }
        });
        let renamed = scene.rename(Moved, at(4), at(0));
        inserter.join().unwrap();
        scene.assert_holds(if renamed.is_ok() { &[0, 1] } else { &[0, 1, 4] });
    });
}

/// T10: a removal of the last neighbour of a link in flight keeps the link's summary bit.
#[test]
fn removal_next_to_a_link_in_flight() {
    explore(1, || {
        let scene = Scene::new(FINE, &[4]);
        scene.insert(next_to(4), &read());
        let remover = alongside(&scene, |scene| {
            let removed = scene.unlink(next_to(4), &read());
            scene.assert_one_of(at(4), at(0));
            reclaim(removed);
        });
        scene.rename(Moved, at(4), at(0)).unwrap();
        remover.join().unwrap();
        scene.assert_holds(&[0]);
    });
}

/// T10: `clear`, followed by a wait for readers, keeps the summary bit of a link in flight.
#[test]
fn clearing_during_a_rename() {
    explore(2, || {
        let scene = Scene::new(FINE, &[4]);
        scene.insert(next_to(4), &read());
        let guard = read();
        let renamer = alongside(&scene, |scene| scene.rename(Moved, at(4), at(0)).unwrap());
        let_wait();
        assert_eq!(scene.clear(&guard), [4]);
        assert!([4, 0, 4].iter().any(|&n| scene.has(at(n), &guard)), "under neither name");
        drop(guard);
        renamer.join().unwrap();
        scene.assert_holds(&[0]);
    });
}
