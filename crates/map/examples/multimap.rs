//! A map of sets: a set goes with its last element, and none is added in between.
//!
//! `cargo run -p relativist --example multimap`

use std::collections::BTreeSet;
use std::thread;

use relativist::LockMap;
use relativist::lock_map::Entry;

#[derive(Default)]
struct Teams(LockMap<String, BTreeSet<u32>>);

impl Teams {
    fn add(&self, team: &str, member: u32) -> bool {
        self.0.entry_ref(team).or_default().insert(member)
    }

    fn remove(&self, team: &str, member: u32) -> bool {
        let Entry::Occupied(mut members) = self.0.entry_ref(team) else { return false };
        let is_removed = members.get_mut().remove(&member);
        if members.get().is_empty() {
            members.remove();
        }
        is_removed
    }
}

fn main() {
    let teams = Teams::default();
    // Each thread adds and removes members of its own.
    thread::scope(|scope| {
        for thread in 0..4 {
            let teams = &teams;
            scope.spawn(move || {
                for round in 0..1000 {
                    let member = thread * 1000 + round;
                    assert!(teams.add("red", member) && teams.remove("red", member));
                }
                teams.add("blue", thread);
            });
        }
    });
    assert!(!teams.0.contains_key("red"), "an empty set is not kept");
    println!("{:?}", teams.0);
    assert_eq!(teams.0.get_cloned("blue"), Some(BTreeSet::from([0, 1, 2, 3])));
}
