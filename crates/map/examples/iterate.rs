//! Iterates over a map while another thread changes it: for example a timer that visits all
//! sessions of a server.
//!
//! ```sh
//! cargo run --release -p relativist --example iterate
//! ```

use std::thread;

use relativist::HashMap;

fn main() {
    let sessions: HashMap<u64, u32> = (0..1000).map(|id| (id, 0)).collect();
    thread::scope(|scope| {
        // New sessions may be seen or not. Those that stay are seen exactly once.
        scope.spawn(|| (1000..2000).for_each(|id| _ = sessions.pin().insert(id, 1)));
        let old = sessions.pin().iter().filter(|&(_, &kind)| kind == 0).count();
        assert_eq!(old, 1000);
        println!("saw all {old} old sessions");
    });
    println!("{} sessions: the largest id is {:?}", sessions.len(), sessions.pin().keys().max());
}
