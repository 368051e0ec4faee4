//! Custom optimistic changes: read, compute, and store the result if nothing has changed.
//!
//! `cargo run -p relativist --example compare_exchange`

use std::thread;

use relativist::HashMap;

/// A document, and the number of changes.
#[derive(Clone, PartialEq)]
struct Document {
    version: u64,
    text: String,
}

type Documents = HashMap<u64, Document>;

/// Appends a word. If another thread changes the document first, starts again with its result.
fn append(documents: &Documents, id: u64, word: &str) -> u64 {
    let pinned = documents.pin();
    let mut current = pinned.get(&id).expect("the document exists");
    loop {
        let changed = Document { version: current.version + 1, text: format!("{} {word}", current.text) };
        match pinned.compare_exchange(id, current, changed) {
            Ok(replaced) => return replaced.version + 1,
            Err(late) => current = late.current.expect("no thread deletes documents"),
        }
    }
}

fn main() {
    let documents = Documents::from([(1, Document { version: 0, text: "words:".into() })]);
    thread::scope(|scope| {
        for word in ["one", "two", "three", "four"] {
            let documents = &documents;
            scope.spawn(move || append(documents, 1, word));
        }
    });
    let pinned = documents.pin();
    let document = pinned.get(&1).unwrap();
    println!("version {}: {}", document.version, document.text);
    assert_eq!((document.version, document.text.split(' ').count()), (4, 5));
}
