//! Sets: membership, the operations of set algebra, and interning.
//!
//! `cargo run -p relativist --example set`

use std::sync::Arc;

use relativist::HashSet;

/// Returns a string that shares one allocation with all equal strings.
fn intern(names: &HashSet<Arc<str>>, name: &str) -> Arc<str> {
    let pinned = names.pin();
    match pinned.get(name) {
        Some(known) => Arc::clone(known),
        None => Arc::clone(pinned.get_or_insert(name.into())),
    }
}

fn main() {
    let online = HashSet::from(["ada", "bob", "eve"]);
    let admins = HashSet::from(["ada", "dan"]);

    let (pinned, pinned_admins) = (online.pin(), admins.pin());
    assert!(pinned.contains("bob") && !pinned.insert("bob") && pinned.insert("fay"));
    assert_eq!(pinned.intersection(&pinned_admins).collect::<Vec<_>>(), [&"ada"]);
    assert!(pinned.difference(&pinned_admins).all(|name| *name != "ada"));
    assert!(!pinned.is_superset(&pinned_admins));

    let everybody = &online | &admins;
    println!("{everybody:?}");
    assert_eq!(everybody.len(), 5);
    assert!(everybody.pin().is_superset(&pinned));

    let names = HashSet::new();
    assert!(Arc::ptr_eq(&intern(&names, "ada"), &intern(&names, "ada")));
}
