//! A cache sized once, at start-up, from the memory that it may use.
//!
//! `cargo run -p relativist --example memory_budget -- 64` for 64 MiB.

use relativist::HashMap;

type Digest = [u8; 32];

fn main() {
    let mebibytes = std::env::args().nth(1).map_or(16, |argument| argument.parse().expect("a number of MiB"));
    let budget: usize = mebibytes << 20;

    let map: HashMap<u64, Digest> = HashMap::with_capacity_for_memory(budget);
    // An entry takes 16 bytes for the link, and the size of key and value.
    let entry = 16 + size_of::<(u64, Digest)>();
    let room = (budget - 8 * map.buckets()) / entry;
    println!("{mebibytes} MiB: {} buckets, and {room} entries of {entry} bytes", map.buckets());

    for n in 0..room as u64 {
        map.pin().insert(n, [n as u8; 32]);
    }
    let load = map.len() as f64 / map.buckets() as f64;
    println!("full: {load:.2} entries per bucket, the longest chain has {}", map.stats().longest_chain);
    assert!((0.5..1.25).contains(&load), "made for that from the start");
    assert_eq!(map.stats().grows, 0);
}
