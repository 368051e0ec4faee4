//! A cache in front of a database. Rows that are absent are cached, too.
//!
//! `cargo run -p relativist-bench --example cache_sqlite`

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use relativist_cache::Cache;
use rusqlite::{Connection, OptionalExtension as _, Result};

#[derive(Debug, PartialEq, Eq)]
struct User {
    name: String,
}

/// The table of users. An `Arc` of a row is cheap to clone.
struct Users {
    database: Mutex<Connection>,
    cache: Cache<i64, Option<Arc<User>>>,
}

impl Users {
    fn new() -> Result<Self> {
        let database = Connection::open_in_memory()?;
        database.execute_batch("CREATE TABLE user (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")?;
        // If another process changed the table, this one would see it after a minute.
        let cache = Cache::builder().capacity(10_000).time_to_live(Duration::from_secs(60)).record_stats().build();
        Ok(Self { database: Mutex::new(database), cache })
    }

    /// Returns a user. Threads that miss the same user at the same time run one query.
    fn get(&self, id: i64) -> Result<Option<Arc<User>>, Arc<rusqlite::Error>> {
        self.cache.get_or_try_insert_with(id, || {
            let row = |row: &rusqlite::Row<'_>| Ok(Arc::new(User { name: row.get(0)? }));
            self.database().query_row("SELECT name FROM user WHERE id = ?1", [id], row).optional()
        })
    }

    /// Sets the name of a user. Changes the database first, and then removes what the cache has. A
    /// query that runs meanwhile may have read the old row, so its result is not kept.
    fn set_name(&self, id: i64, name: &str) -> Result<()> {
        self.database().execute("INSERT OR REPLACE INTO user (id, name) VALUES (?1, ?2)", (id, name))?;
        self.cache.invalidate(&id);
        Ok(())
    }

    fn database(&self) -> MutexGuard<'_, Connection> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(user: Option<Arc<User>>) -> Option<String> {
    user.map(|user| user.name.clone())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let users = Users::new()?;
    users.set_name(1, "Ada")?;
    thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..1_000).map(|n| users.get(n % 2)).collect::<Result<Vec<_>, _>>()))
            .collect();
        for reader in readers {
            let found = reader.join().expect("a reader has panicked")?;
            assert!(found.chunks(2).all(|pair| pair[0].is_none() && name(pair[1].clone()).as_deref() == Some("Ada")));
        }
        Ok::<(), Arc<rusqlite::Error>>(())
    })?;
    let stats = users.cache.stats();
    println!("{} queries, {:.1} % hits", stats.loads, stats.hit_ratio() * 100.0);
    assert_eq!(stats.loads, 2, "one query per row, of which one is absent");

    users.set_name(1, "Ada Lovelace")?;
    assert_eq!(name(users.get(1)?).as_deref(), Some("Ada Lovelace"));

    // An error is not cached.
    users.database().execute_batch("ALTER TABLE user RENAME TO person")?;
    assert!(users.get(2).is_err());
    users.database().execute_batch("ALTER TABLE person RENAME TO user")?;
    assert_eq!(users.get(2)?, None);
    Ok(())
}
