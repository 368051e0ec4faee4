//! Iterates over few entries in a map made for many, as a timer over all sessions of a server does
//! that is idle at the moment.
//!
//! ```sh
//! cargo run --release -p relativist --example iterate
//! ```

use std::time::Instant;

use relativist::HashMap;

fn main() {
    // A map never shrinks by itself below the size that it was made with.
    let sessions: HashMap<u64, u32> = HashMap::with_capacity(1 << 17);
    (0..1000).for_each(|id| _ = sessions.pin().insert(id, 0));

    // The first iterations look at all 2^18 buckets, and take notes; later ones go from entry to
    // entry.
    for round in 1..=5 {
        let start = Instant::now();
        let pinned = sessions.pin();
        let seen = pinned.iter().count();
        assert_eq!(seen, 1000);
        println!("iteration {round}: {seen} of {} buckets' entries in {:?}", sessions.buckets(), start.elapsed());
    }
}
