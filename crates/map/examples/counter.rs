//! Counts words from several threads: `update_or_insert` loses no increment.
//!
//! `cargo run -p relativist --example counter`

use std::thread;

use relativist::HashMap;

const LINES: [&str; 3] = ["the rose is a rose", "is a rose is", "the end"];

fn main() {
    let words: HashMap<&str, u32> = HashMap::new();
    thread::scope(|scope| {
        for line in LINES {
            let words = &words;
            scope.spawn(move || {
                for word in line.split(' ') {
                    words.pin().update_or_insert(word, |n| n + 1, 1);
                }
            });
        }
    });

    let pinned = words.pin();
    let mut counts: Vec<_> = pinned.iter().collect();
    counts.sort();
    println!("{counts:?}");
    assert_eq!(pinned.get("rose"), Some(&3));
    assert_eq!(pinned.values().sum::<u32>() as usize, LINES.join(" ").split(' ').count());
}
