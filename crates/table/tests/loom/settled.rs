//! Updates that take no lock, or unlock without a full barrier, if the bucket is not part of a
//! resize.

use std::ptr::NonNull;

use loom::thread;
use relativist_rcu::{Guard, read};
use relativist_table::Link;

use crate::scene::{COARSE, RESIDENTS, Scene, Shared, at, each_way, explore, is, reclaim, resize_alongside};

#[derive(Clone, Copy, Debug)]
enum Settled {
    Insert(u64),
    Unlink(u64),
}

use Settled::{Insert, Unlink};

impl Settled {
    fn place(self) -> u64 {
        let (Insert(n) | Unlink(n)) = self;
        n
    }

    /// Performs the update, and returns the link that the caller has to reclaim.
    fn run(self, scene: &Scene, guard: &Guard) -> Option<NonNull<Link>> {
        let hash = at(self.place());
        match self {
            Insert(_) => {
                let new = scene.node(hash);
                // SAFETY: a fresh node.
                assert!(unsafe { scene.table.insert_if_absent(new, |link| is(link, hash), guard) });
                None
            }
            Unlink(_) => {
                let link = scene.find(hash, guard).expect("it is in the table");
                // SAFETY: found under the guard.
                assert_eq!(scene.table.unlink(unsafe { link.as_ref() }, guard), Some(link));
                Some(link)
            }
        }
    }

    fn is_seen(self, scene: &Scene, guard: &Guard) -> bool {
        scene.find(at(self.place()), guard).is_some() == matches!(self, Insert(_))
    }
}

/// Returns the places that are taken before two updates, and after them.
fn before_and_after(places: &[u64], updates: [Settled; 2]) -> [Vec<u64>; 2] {
    [false, true].map(|is_done| {
        let of_updates = updates.into_iter().filter(|&update| matches!(update, Insert(_)) == is_done);
        let mut places: Vec<u64> = places.iter().copied().chain(of_updates.map(Settled::place)).collect();
        places.sort_unstable();
        places
    })
}

/// T3: two threads each update a bucket, and then look into the other's.
#[test]
fn updates_are_seen_by_lookups_that_begin_later() {
    for (places, updates) in [
        (&[1, 5][..], [Insert(0), Insert(8)]),
        (&[], [Unlink(0), Unlink(8)]),
        (&[1, 9], [Unlink(0), Unlink(8)]),
        (&[1, 9], [Unlink(0), Insert(8)]),
    ] {
        let [before, _] = before_and_after(places, updates);
        explore(2, move || {
            let scene = Scene::new(COARSE, &before);
            let [mine, other] = updates;
            let run = move |scene: &Scene, update: Settled, other: Settled| {
                let guard = read();
                update.run(scene, &guard);
                other.is_seen(scene, &guard)
            };
            let thread = {
                let scene = scene.clone();
                thread::spawn(move || run(&scene, other, mine))
            };
            let sees = run(&scene, mine, other);
            assert!(thread.join().unwrap() || sees, "both missed the other's update");
        });
    }
}

#[test]
fn two_updates_of_a_bucket() {
    for (places, updates) in [
        (&[5][..], [Insert(0), Insert(1)]),
        (&[], [Insert(1), Insert(0)]),
        (&[], [Insert(0), Unlink(5)]),
        (&[5], [Insert(0), Unlink(1)]),
        (&[5], [Unlink(0), Unlink(1)]),
    ] {
        let [before, after] = before_and_after(places, updates);
        explore(2, move || {
            let scene = Scene::new(COARSE, &before);
            let [mine, other] = updates;
            let thread = {
                let scene = scene.clone();
                thread::spawn(move || other.run(&scene, &read()))
            };
            let removed = mine.run(&scene, &read());
            removed.into_iter().chain(thread.join().unwrap()).for_each(reclaim);
            scene.assert_holds(&after);
        });
    }
}

/// An update that begins while its bucket is at rest, and one that finds it in a resize.
#[test]
fn updates_while_resizing() {
    each_way(|from, to| {
        for updates in [[Insert(0), Unlink(4)], [Insert(4), Unlink(3)]] {
            let [before, after] = before_and_after(&RESIDENTS, updates);
            explore(1, move || {
                let scene = Scene::new(from, &before);
                resize_alongside(&scene, to, |shared: Shared| {
                    for update in updates {
                        update.run(&scene, shared.guard());
                    }
                });
                scene.assert_holds(&after);
            });
        }
    });
}
