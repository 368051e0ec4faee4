//! Iterates over few entries in a map that was made for many: for example a timer that visits all
//! sessions of a server that is idle.
//!
//! ```sh
//! cargo run --release -p relativist --example iterate
//! ```

use std::time::Instant;

use relativist::HashMap;

fn main() {
    // A map never shrinks automatically below its initial size.
    let sessions: HashMap<u64, u32> = HashMap::with_capacity(1 << 17);
    (0..1000).for_each(|id| _ = sessions.pin().insert(id, 0));

    // The first iterations look at all 2^18 buckets, and fill a bitmap; later ones go from entry to
    // entry.
    for round in 1..=5 {
        let start = Instant::now();
        let pinned = sessions.pin();
        let seen = pinned.iter().count();
        assert_eq!(seen, 1000);
        println!("iteration {round}: {seen} of {} buckets' entries in {:?}", sessions.buckets(), start.elapsed());
    }
}
