//! A map whose entries borrow from the stack of the function that starts the threads.
//!
//! `cargo run -p relativist --example private`

use std::thread;

use relativist::PrivateMap;

const TEXT: &str = "the quick brown fox jumps over the lazy dog while the other dog sleeps";

/// Counts the words of a text with two threads. The keys are parts of the text, which are not
/// copied.
fn count_words(text: &str) -> Vec<(&str, usize)> {
    let counts: PrivateMap<&str, usize> = PrivateMap::new();
    let (first, second) = text.split_at(text.len() / 2 + text[text.len() / 2..].find(' ').unwrap_or(0));
    thread::scope(|scope| {
        for half in [first, second] {
            let counts = &counts;
            scope.spawn(move || {
                for word in half.split_whitespace() {
                    counts.pin().update_or_insert(word, |n| n + 1, 1);
                }
            });
        }
    });
    // Dropping the map, here by moving its entries out, waits for no reader.
    let mut words: Vec<_> = counts.into_iter().collect();
    words.sort_unstable_by_key(|&(word, count)| (std::cmp::Reverse(count), word));
    words
}

fn main() {
    let text = TEXT.to_owned();
    let words = count_words(&text);
    println!("{words:?}");
    assert_eq!(words[..2], [("the", 3), ("dog", 2)]);
}
