//! Counts the bytes of each connection in a log where lines of one connection follow each other, as
//! packets do.
//!
//! ```sh
//! cargo run --release -p relativist --example cached
//! ```

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use relativist::HashMap;

fn main() {
    let connections = ["10.0.0.1:4433 -> 10.0.0.9:55100", "10.0.0.1:4433 -> 10.0.0.7:41222"];
    let bytes: HashMap<&str, AtomicU64> = connections.map(|connection| (connection, AtomicU64::new(0))).into();

    let pinned = bytes.pin();
    let mut cached = pinned.cached();
    for packet in 0..10_000 {
        // A hundred packets in a row, of which only the first has its key hashed.
        let connection = connections[packet / 100 % 2];
        if let Some(bytes) = cached.get(connection) {
            bytes.fetch_add(packet as u64 % 1500, Relaxed);
        }
    }
    let total: u64 = pinned.values().map(|bytes| bytes.load(Relaxed)).sum();
    assert_eq!(total, (0..10_000).map(|packet| packet % 1500).sum());
    for (connection, bytes) in &pinned {
        println!("{connection}: {} bytes", bytes.load(Relaxed));
    }
}
