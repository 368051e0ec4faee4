//! Renames documents while another thread reads them: at every instant each has exactly one name.
//!
//! ```sh
//! cargo run -p relativist --example rename
//! ```

use std::thread;

use relativist::{HashMap, RenameError};

fn main() -> Result<(), RenameError<String>> {
    let documents =
        HashMap::from([("draft".to_owned(), "All lookups are wait-free."), ("notes".to_owned(), "milk, eggs")]);

    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..10_000 {
                // Within one read section at most one rename takes effect. So one of these finds
                // it.
                let pinned = documents.pin();
                let text = ["draft", "final", "draft"].into_iter().find_map(|name| pinned.get(name));
                assert_eq!(text, Some(&"All lookups are wait-free."));
            }
        });
        for _ in 0..100 {
            documents.rename("draft", "final".to_owned())?;
            documents.rename("final", "draft".to_owned())?;
        }
        Ok(())
    })?;

    // A name that is in use is not overwritten. The error contains it.
    let error = documents.rename("draft", "notes".to_owned()).unwrap_err();
    println!("{:?}: {error}", error.clone().into_key());
    Ok(())
}
