//! Operations that return an error if memory is exhausted, with their arguments.
//!
//! `cargo run -p relativist --example fallible`

use relativist::{ExhaustedError, HashMap};

/// Stores what it can, and returns the rest.
fn store(map: &HashMap<u64, String>, entries: Vec<(u64, String)>) -> Vec<(u64, String)> {
    let mut rest = Vec::new();
    for (key, value) in entries {
        if let Err(ExhaustedError { key, value }) = map.pin().checked_insert(key, value) {
            rest.push((key, value));
        }
    }
    rest
}

fn main() {
    let map = HashMap::<u64, String>::builder().capacity(100).build().expect("memory for 256 buckets");
    let rest = store(&map, (0..100).map(|n| (n, n.to_string())).collect());
    assert!(rest.is_empty());

    // No machine has that much memory: the map keeps its buckets.
    let error = map.try_reserve(1 << 50).unwrap_err();
    println!("{error}");
    assert_eq!((map.len(), map.buckets()), (100, 256));
    assert_eq!(map.pin().get(&42).map(String::as_str), Some("42"));
}
