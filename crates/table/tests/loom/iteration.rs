//! Models of iterations and scans during updates and resizes.

use std::ptr::NonNull;

use loom::thread;
use relativist_rcu::read;
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

/// T7: if a lookup found a link, a later iteration sees it.
#[test]
fn iteration_sees_insertions() {
    explore(2, || {
        let scene = Scene::new(FINER, &RESIDENTS);
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

/// T7: so does an iteration whose thread has inserted the link while chains are uncut.
#[test]
fn iteration_sees_insertions_while_resizing() {
    explore(1, || {
        let scene = Scene::new(FINE, &RESIDENTS);
        let guard = read();
        let resizer = {
            let scene = scene.clone();
            thread::spawn(move || scene.table.resize_to(FINER).unwrap())
        };
        let_wait();
        drop(guard);
        scene.insert(at(7), &read());
        assert_eq!(scene.iterate(&read()), [1, 5, 7]);
        resizer.join().unwrap();
        assert_eq!(scene.iterate(&read()), [1, 5, 7]);
    });
}
