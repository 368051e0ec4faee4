//! Removes many entries: `retain`, `extract_if`, `drain` and `clear`, while other threads use the
//! map.
//!
//! `cargo run -p relativist --example retain`

use relativist::HashMap;

struct Session {
    user: &'static str,
    idle_minutes: u32,
}

fn main() {
    let sessions: HashMap<u32, Session> = HashMap::new();
    for (id, user, idle_minutes) in [(1, "ada", 5), (2, "bob", 90), (3, "eve", 45), (4, "ada", 31), (5, "eve", 1)] {
        sessions.pin().insert(id, Session { user, idle_minutes });
    }

    // Log out users that have been idle for an hour.
    sessions.pin().retain(|_, session| session.idle_minutes < 60);
    assert_eq!(sessions.len(), 4);

    // Remove the sessions of a user, and visit each of them.
    let pinned = sessions.pin();
    for (id, session) in pinned.extract_if(|_, session| session.user == "eve") {
        println!("{id}: goodbye, {} ({} minutes idle)", session.user, session.idle_minutes);
    }
    assert_eq!(sessions.len(), 2);

    // Shut down: each session is returned to one thread, even if several drain the map.
    let mut left: Vec<u32> = pinned.drain().map(|(&id, _)| id).collect();
    left.sort();
    assert_eq!(left, [1, 4]);
    pinned.clear(); // nothing is left to remove
    assert!(sessions.is_empty());
}
