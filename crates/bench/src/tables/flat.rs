//! The flat map of this project.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use relativist::flat::{FlatMap as HashMap, Pinned};

use super::{Handle, Lookup, Table, View, pinned_map};
use crate::harness::hashers::Foldhash;
use crate::tables::candidate::Lookups;
use crate::tables::entries::Key;

#[derive(Debug)]
pub struct Flat<K: Key>(HashMap<K, u64, Foldhash>);

pinned_map! {
    Flat, "relativist flat", "relativist flat, handle", Pinned<'t, K, u64, Foldhash>;

    /// Waits until the background worker has finished resizing, at most a minute, and until removed
    /// entries are freed.
    fn settle(&self) {
        for _ in 0..6000 {
            if !self.0.is_resizing() {
                break;
            }
            sleep(Duration::from_millis(10));
        }
        relativist_rcu::barrier();
    }

    fn lookups(self: Arc<Self>) -> Vec<Arc<dyn Lookups>> {
        vec![Arc::clone(&self) as _, Arc::new(Handle(self))]
    }
}
