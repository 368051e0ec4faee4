//! flurry: Java's `ConcurrentHashMap` in Rust, reclaimed by seize.

use std::sync::Arc;

use flurry::{HashMap, HashMapRef};

use super::{Handle, Lookup, Table, View, pinned_map};
use crate::harness::hashers::Foldhash;
use crate::tables::candidate::Lookups;
use crate::tables::entries::{Key, Value};

#[derive(Debug)]
pub struct Flurry<K: Key, V: Value>(HashMap<K, V, Foldhash>);

pinned_map! {
    Flurry, "flurry", "flurry, handle", HashMapRef<'t, K, V, Foldhash>;

    fn lookups(self: Arc<Self>) -> Vec<Arc<dyn Lookups>> {
        vec![Arc::clone(&self) as _, Arc::new(Handle(self))]
    }
}
