//! The compared maps.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};

use relativist::{Boxed, Inline};

use crate::harness::hashers::Foldhash;
use crate::tables::Table;
use crate::tables::candidate::Candidate;
use crate::tables::dashmap::Dashmap;
use crate::tables::entries::Kind;
#[cfg(feature = "cc")]
use crate::tables::foreign;
use crate::tables::hash_index::SccIndex;
use crate::tables::hashbrown::Hashbrown;
use crate::tables::locked::Locked;
use crate::tables::papaya::Papaya;
use crate::tables::relativist::Relativist;
use crate::tables::scc::SccMap;
use crate::tools::compare::Entry;

#[derive(Debug)]
pub struct Map {
    /// Whether the map may be updated while other threads use it.
    pub is_synchronised: bool,
    make: fn(Kind, usize) -> Option<Arc<dyn Candidate>>,
}

impl Map {
    /// Returns whether the map can hold entries of this kind.
    pub fn holds(&self, kind: Kind) -> bool {
        (self.make)(kind, 0).is_some()
    }

    /// Returns whether the map can be resized by hand.
    pub fn can_be_resized(&self) -> bool {
        self.make(Kind::U64, 0).resize()
    }

    /// Makes an empty map for entries of a kind that it [`holds`](Self::holds).
    pub fn make(&self, kind: Kind, capacity: usize) -> Arc<dyn Candidate> {
        (self.make)(kind, capacity).expect("the map holds this kind")
    }
}

/// A map that is generic: the same one with keys of both kinds.
const fn map<N: Table, S: Table>(name: &'static str, is_synchronised: bool) -> Entry<Map> {
    fn make<N: Table, S: Table>(kind: Kind, capacity: usize) -> Option<Arc<dyn Candidate>> {
        Some(match kind {
            Kind::U64 => Arc::new(N::with_capacity(capacity)),
            Kind::Strings => Arc::new(S::with_capacity(capacity)),
        })
    }
    Entry { name, title: N::NAME, what: Map { is_synchronised, make: make::<N, S> } }
}

/// A map in C or C++.
#[cfg(feature = "cc")]
const fn foreign<N: Table>(name: &'static str) -> Entry<Map> {
    fn make<N: Table>(kind: Kind, capacity: usize) -> Option<Arc<dyn Candidate>> {
        if kind == Kind::U64 { Some(Arc::new(N::with_capacity(capacity))) } else { None }
    }
    Entry { name, title: N::NAME, what: Map { is_synchronised: true, make: make::<N> } }
}

type Std<K> = HashMap<K, u64, Foldhash>;

pub const MAPS: &[Entry<Map>] = &[
    map::<Relativist<u64, Boxed>, Relativist<String, Boxed>>("relativist", true),
    map::<Relativist<u64, Inline>, Relativist<String, Inline>>("flat", true),
    map::<Papaya<u64>, Papaya<String>>("papaya", true),
    map::<SccIndex<u64>, SccIndex<String>>("hash-index", true),
    map::<SccMap<u64>, SccMap<String>>("scc", true),
    map::<Dashmap<u64>, Dashmap<String>>("dashmap", true),
    map::<Locked<RwLock<Std<u64>>>, Locked<RwLock<Std<String>>>>("std-rwlock", true),
    map::<Locked<Mutex<Std<u64>>>, Locked<Mutex<Std<String>>>>("std-mutex", true),
    map::<Hashbrown<u64>, Hashbrown<String>>("hashbrown", false),
    #[cfg(feature = "liburcu")]
    foreign::<foreign::Foreign<foreign::Liburcu>>("lfht"),
    #[cfg(feature = "boost")]
    foreign::<foreign::Foreign<foreign::Boost>>("boost"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::keys::{ABSENT, Indices, seed};
    use crate::harness::sampling::{Draws, Operation};
    use std::collections::BTreeMap;

    /// Compares every table with std's map, through the loops that measure it.
    #[test]
    fn tables_do_what_std_does() {
        for kind in [Kind::U64, Kind::Strings] {
            for map in MAPS.iter().map(|entry| &entry.what).filter(|map| map.holds(kind)) {
                check(map.make(kind, 0).as_ref());
                check(map.make(kind, 1000).as_ref());
            }
        }
    }

    fn check(table: &dyn Candidate) {
        let name = table.name();
        assert_eq!(table.iterate(), (0, 0), "{name}");
        assert_eq!(table.fill(&mut (0..1000)), 0, "{name}");
        assert_eq!(table.fill(&mut (990..1000)), 10, "{name} took keys for absent that are present");
        assert_eq!(table.iterate(), (1000, 999 * 500), "{name}");
        assert_eq!(table.hits(&mut Indices::new(0..1000, 1)), 0, "{name}");
        assert_eq!(table.dependent(&mut Indices::new(0..1000, 1)), 0, "{name}");
        assert_eq!(table.misses(&mut Indices::new(ABSENT..ABSENT + 1000, 1)), 0, "{name}");
        assert!(table.hits(&mut Indices::new(900..1100, 1)) > 100, "{name} found keys that are absent");
        assert!(table.dependent(&mut Indices::new(900..1100, 1)) > 100, "{name} found keys that are absent");
        table.resize();
        assert_eq!(table.iterate(), (1000, 999 * 500), "{name}");
        assert!(table.misses(&mut Indices::new(0..1000, 1)) > 100, "{name} missed keys that are present");

        assert_eq!(table.remove(500..1000), 0, "{name}");
        assert_eq!(table.remove(0..1000), 500, "{name} removed keys that were absent, or kept some");
        assert_eq!(table.iterate(), (0, 0), "{name}");

        // Random operations are repeated on std's map.
        let mut model = BTreeMap::new();
        let mut draws = Draws::new(0..300, None, 60, seed(7, 0));
        for round in 0..20 {
            let mut replay = draws;
            let wrong = if round % 2 == 0 { table.batch(&mut draws) } else { table.batch_replacing(&mut draws) };
            assert_eq!(wrong, 0, "{name}");
            for _ in 0..crate::tables::candidate::BATCH {
                match replay.draw() {
                    (Operation::Get, _) => {}
                    (Operation::Insert, index) => drop(model.insert(index, ())),
                    (Operation::Remove, index) => drop(model.remove(&index)),
                }
            }
            let expected = (model.len() as u64, model.keys().sum());
            assert_eq!(table.iterate(), expected, "{name}");
        }
        table.clear();
        assert_eq!(table.iterate(), (0, 0), "{name}");

        table.settle();
    }

    /// All ways to look up keys must find the same entries.
    #[test]
    fn all_ways_to_look_up_find_what_is_there() {
        for kind in [Kind::U64, Kind::Strings] {
            for map in MAPS.iter().map(|entry| &entry.what).filter(|map| map.holds(kind)) {
                let table = map.make(kind, 0);
                assert_eq!(table.fill(&mut (0..100)), 0);
                for lookups in table.lookups() {
                    assert_eq!(lookups.hits(&mut Indices::new(0..100, 1)), 0, "{}", lookups.name());
                    assert_eq!(lookups.misses(&mut Indices::new(ABSENT..ABSENT + 9, 1)), 0, "{}", lookups.name());
                    assert!(lookups.hits(&mut Indices::new(100..200, 1)) > 0, "{}", lookups.name());
                }
            }
        }
    }

    /// Two threads use different keys in a table that grows.
    #[test]
    fn tables_are_synchronised() {
        for kind in [Kind::U64, Kind::Strings] {
            for map in MAPS.iter().map(|entry| &entry.what).filter(|map| map.holds(kind) && map.is_synchronised) {
                let table = map.make(kind, 0);
                std::thread::scope(|scope| {
                    for thread in 0..2 {
                        let table = &table;
                        scope.spawn(move || {
                            let own = thread * 3000..(thread + 1) * 3000;
                            for _ in 0..3 {
                                assert_eq!(table.fill(&mut own.clone()), 0, "{}", table.name());
                                assert_eq!(table.hits(&mut Indices::new(own.clone(), 1)), 0, "{}", table.name());
                                assert_eq!(table.remove(own.clone()), 0, "{}", table.name());
                            }
                        });
                    }
                });
                assert_eq!(table.iterate(), (0, 0), "{}", table.name());
            }
        }
    }
}
