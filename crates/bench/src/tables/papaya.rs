//! papaya: open addressing, lock-free, reclaimed by seize. It resizes incrementally, as it does by
//! default.

use std::sync::Arc;

use papaya::{HashMap, HashMapRef, LocalGuard};

use super::{Handle, Lookup, Table, View, pinned_map};
use crate::harness::hashers::Foldhash;
use crate::tables::candidate::Lookups;
use crate::tables::entries::Key;

#[derive(Debug)]
pub struct Papaya<K: Key>(HashMap<K, u64, Foldhash>);

pinned_map! {
    [K: Key] Papaya<K> = HashMap<K, u64, Foldhash>,
    "papaya", "papaya, handle", HashMapRef<'t, K, u64, Foldhash, LocalGuard<'t>>;

    fn lookups(self: Arc<Self>) -> Vec<Arc<dyn Lookups>> {
        vec![Arc::clone(&self) as _, Arc::new(Handle(self))]
    }
}
