//! The worker does not poll tables that wait for readers. In a process of its own, because there is
//! one worker per process.
#![cfg(not(relativist_loom))]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use relativist_rcu::read;
use relativist_table::worker::{Progress, Resize, request};
use relativist_testing::wait_until;

/// Counts how often the worker looks at it.
#[derive(Default)]
struct Looked {
    times: AtomicUsize,
    /// Whether it says that it waits for readers.
    waits: AtomicBool,
}

impl Resize for Looked {
    fn advance_resize(&self) -> Progress {
        self.times.fetch_add(1, Relaxed);
        if self.waits.load(Relaxed) { Progress::WaitsForReaders } else { Progress::Done }
    }
}

fn requested(waits: bool) -> Arc<Looked> {
    let table = Arc::new(Looked { waits: AtomicBool::new(waits), ..Looked::default() });
    let weak: Weak<Looked> = Arc::downgrade(&table);
    assert!(request(weak), "the worker can be started");
    table
}

fn times(tables: &[Arc<Looked>]) -> Vec<usize> {
    tables.iter().map(|table| table.times.load(Relaxed)).collect()
}

/// T5: while a reader stays, the worker looks once at each table that waits for it, however many
/// other tables are requested. When the reader has left, the worker looks at them again.
#[test]
fn tables_that_wait_for_a_reader_are_looked_at_when_it_has_left() {
    const TABLES: usize = 500;
    let guard = read();
    let waiting: Vec<_> = (0..TABLES).map(|_| requested(true)).collect();
    wait_until("the worker to look at each", || !times(&waiting).contains(&0));
    for _ in 0..200 {
        let other = requested(false);
        wait_until("the worker to look at another", || other.times.load(Relaxed) > 0);
    }
    assert_eq!(times(&waiting), [1; TABLES]);
    waiting.iter().for_each(|table| table.waits.store(false, Relaxed));
    drop(guard);
    wait_until("the worker to look at each again", || times(&waiting) == [2; TABLES]);
}
