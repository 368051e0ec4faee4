//! Destructors run outside of locks.

use std::sync::OnceLock;

use relativist_bucket::{Hash, Keys, Private, Table};

use crate::scene::PART;

static TABLE: OnceLock<Table<Entry, Private>> = OnceLock::new();

/// An entry. Dropping a loud one updates its bucket.
struct Entry {
    key: u32,
    is_loud: bool,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.is_loud {
            insert(0, false);
        }
    }
}

/// All keys are in one bucket.
struct Equal;

const HASH: Hash = Hash::new(1);

impl Keys<Entry> for Equal {
    fn hash(&self, _: &Entry) -> Hash {
        HASH
    }

    fn same(&self, one: &Entry, other: &Entry) -> bool {
        one.key == other.key
    }
}

fn insert(key: u32, is_loud: bool) {
    TABLE.get_or_init(|| Table::new(0).unwrap()).enter().insert(HASH, Entry { key, is_loud }, &Equal);
}

/// B6: a private domain runs what is due when a thread defers more. A thread that holds the lock of
/// a bucket, from which it has unlinked a segment, runs nothing.
#[test]
fn may_update_the_bucket_of_their_entry() {
    (0..7).for_each(|key| insert(key, false));
    // Each round defers a segment and an entry. The single one changes which of them is the last
    // that the domain waits for.
    for _ in 0..2 {
        for _ in 0..2000 / PART {
            insert(7, true);
            TABLE.get().unwrap().enter().remove(HASH, |entry| entry.key == 7, &Equal).expect("it is there");
        }
        insert(1, false);
    }
    // LeakSanitizer does not find the entries of a static table.
    for key in 0..7 {
        TABLE.get().unwrap().enter().remove(HASH, |entry| entry.key == key, &Equal).expect("it is there");
    }
}
