//! Models of iterations and scans during updates and resizes.

use std::ptr::NonNull;
use std::sync::Arc;

use loom::thread;
use relativist_rcu::{barrier, read, wait_for_readers};
use relativist_table::Link;

use crate::scene::*;

/// T7: an iteration sees each resident once, in order.
#[test]
fn iteration_while_resizing() {
    each_way(|from, to| {
        explore(2, move || {
            let scene = Scene::new(from, &[1, 5, 9]);
            resize_alongside(&scene, to, |shared| assert_eq!(scene.iterate(shared.guard()), [1, 5, 9]));
        });
    });
}

/// T7: so does a scan, which drops its guard between its steps.
#[test]
fn scan_while_resizing() {
    each_way(|from, to| {
        explore(unless_quick(2), move || {
            let scene = Scene::new(from, &[1, 5, 9]);
            let resizer = {
                let scene = scene.clone();
                thread::spawn(move || scene.table.resize_to(to).unwrap())
            };
            let mut seen = Vec::new();
            let mut next = Some(0);
            while let Some(cursor) = next {
                // SAFETY: found under the guard.
                let visit = |link: NonNull<Link>| seen.push(unsafe { link.as_ref() }.hash().get() >> 60);
                next = scene.table.scan(cursor, 1, &read(), visit);
            }
            assert_eq!(seen, [1, 5, 9]);
            resizer.join().unwrap();
        });
    });
}

/// In a table of this size, iterations skip empty buckets if it has fewer than four links. Each
/// bucket has two places.
const SPARSE: usize = FINER;

/// Returns a table that has a bitmap of its non-empty buckets, to which iterations may add.
fn sparse_scene(buckets: usize, places: &[u64]) -> Arc<Scene> {
    let scene = Scene::new(buckets, places);
    assert_eq!(scene.iterate(&read()), places);
    wait_for_readers();
    scene
}

/// T7: if a lookup found a link, a later iteration sees it.
#[test]
fn sparse_iteration_sees_insertions() {
    explore(2, || {
        let scene = sparse_scene(SPARSE, &RESIDENTS);
        assert_eq!(scene.iterate(&read()), RESIDENTS);
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || scene.insert(at(7), &read()))
        };
        let guard = read();
        let found = scene.find(at(7), &guard).is_some();
        let seen = scene.iterate(&guard);
        assert!(seen == [1, 5, 7] || !found && seen == RESIDENTS, "{seen:?}");
        drop(guard);
        writer.join().unwrap();
        assert_eq!(scene.iterate(&read()), [1, 5, 7]);
    });
}

/// T7: an iteration sees an update that began before there was a bitmap.
#[test]
fn sparse_iteration_waits_for_updates_that_know() {
    explore(unless_quick(2), || {
        let scene = Scene::new(SPARSE, &RESIDENTS);
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || scene.insert(at(7), &read()))
        };
        for _ in 0..2 {
            let seen = scene.iterate(&read());
            assert!(seen == [1, 5, 7] || seen == RESIDENTS, "{seen:?}");
        }
        writer.join().unwrap();
        assert_eq!(scene.iterate(&read()), [1, 5, 7]);
    });
}

/// T7: an iteration uses what another one has added to the bitmap.
#[test]
fn sparse_iterations_share_their_notes() {
    explore(2, || {
        let scene = sparse_scene(SPARSE, &RESIDENTS);
        let other = {
            let scene = scene.clone();
            thread::spawn(move || assert_eq!(scene.iterate(&read()), RESIDENTS))
        };
        assert_eq!(scene.iterate(&read()), RESIDENTS);
        other.join().unwrap();
    });
}

/// T8: a bitmap that is replaced is not freed while iterations use it.
#[test]
fn sparse_iteration_replaces_a_stale_summary() {
    explore(2, || {
        let scene = sparse_scene(SPARSE, &RESIDENTS);
        assert_eq!(scene.iterate(&read()), RESIDENTS);
        for n in RESIDENTS {
            scene.unlink(at(n), &read());
        }
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || scene.insert(at(7), &read()))
        };
        let seen = scene.iterate(&read());
        assert!(seen.is_empty() || seen == [7]);
        writer.join().unwrap();
        assert_eq!(scene.iterate(&read()), [7]);
        barrier();
    });
}

/// T7: an iteration may use the bitmap of the old array and then find a new array that has none.
#[test]
fn sparse_iteration_while_growing() {
    explore(1, || {
        let scene = sparse_scene(FINE, &[5]);
        resize_alongside(&scene, SPARSE, |shared| assert_eq!(scene.iterate(shared.guard()), [5]));
        assert_eq!(scene.iterate(&read()), [5]);
    });
}

/// T7: iterations may use the bitmap of the new array while its chains are still uncut.
#[test]
fn sparse_iteration_sees_insertions_while_resizing() {
    explore(1, || {
        let scene = Scene::new(FINE, &RESIDENTS);
        let guard = read();
        let resizer = {
            let scene = scene.clone();
            thread::spawn(move || scene.table.resize_to(SPARSE).unwrap())
        };
        let_wait();
        drop(guard);
        loom::stop_exploring();
        assert_eq!(scene.iterate(&read()), RESIDENTS);
        wait_for_readers();
        assert_eq!(scene.iterate(&read()), RESIDENTS);
        loom::explore();
        scene.insert(at(7), &read());
        assert_eq!(scene.iterate(&read()), [1, 5, 7]);
        resizer.join().unwrap();
        assert_eq!(scene.iterate(&read()), [1, 5, 7]);
    });
}
