//! The compared tables: relativist, and the selected competitors.

use std::sync::Arc;

use clap::ValueEnum;
use serde::Serialize;

use crate::tables::Table;
use crate::tables::candidate::Candidate;
use crate::tables::dashmap::Dashmap;
use crate::tables::entries::{Key, Kind, Value};
use crate::tables::flat::Flat;
use crate::tables::hash_index::SccIndex;
use crate::tables::hashbrown::Hashbrown;
use crate::tables::papaya::Papaya;
use crate::tables::relativist::Relativist;
use crate::tables::rwlock::Locked;
use crate::tables::scc::SccMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// relativist::HashMap
    Relativist,
    /// relativist::FlatMap
    Flat,
    /// papaya::HashMap
    Papaya,
    /// scc::HashIndex
    HashIndex,
    /// scc::HashMap
    Scc,
    /// dashmap::DashMap
    Dashmap,
    /// std's HashMap behind std's RwLock
    StdRwlock,
    /// hashbrown::HashMap without synchronisation; except for lookups it runs with one thread only
    Hashbrown,
    /// liburcu's cds_lfht
    #[cfg(feature = "liburcu")]
    Lfht,
    /// Boost's concurrent_flat_map
    #[cfg(feature = "boost")]
    Boost,
}

impl Name {
    /// Returns whether the table may be updated while other threads use it.
    pub fn is_synchronised(self) -> bool {
        self != Self::Hashbrown
    }

    /// Returns whether the table can hold entries of this kind.
    pub fn holds(self, kind: Kind) -> bool {
        kind == Kind::U64 || !self.is_foreign()
    }

    fn is_foreign(self) -> bool {
        match self {
            #[cfg(feature = "liburcu")]
            Self::Lfht => true,
            #[cfg(feature = "boost")]
            Self::Boost => true,
            _ => false,
        }
    }

    /// Makes an empty table for entries of a kind that it [`holds`](Self::holds).
    pub fn make(self, kind: Kind, capacity: usize) -> Arc<dyn Candidate> {
        match self {
            #[cfg(feature = "liburcu")]
            Self::Lfht => make::<foreign::Foreign<foreign::Liburcu>>(capacity),
            #[cfg(feature = "boost")]
            Self::Boost => make::<foreign::Foreign<foreign::Boost>>(capacity),
            _ => match kind {
                Kind::U64 => self.make_generic::<u64, u64>(capacity),
                Kind::Strings => self.make_generic::<String, u64>(capacity),
            },
        }
    }

    fn make_generic<K: Key, V: Value>(self, capacity: usize) -> Arc<dyn Candidate> {
        match self {
            Self::Flat => make::<Flat<K, V>>(capacity),
            Self::Papaya => make::<Papaya<K, V>>(capacity),
            Self::HashIndex => make::<SccIndex<K, V>>(capacity),
            Self::Scc => make::<SccMap<K, V>>(capacity),
            Self::Dashmap => make::<Dashmap<K, V>>(capacity),
            Self::StdRwlock => make::<Locked<K, V>>(capacity),
            Self::Hashbrown => make::<Hashbrown<K, V>>(capacity),
            _ => make::<Relativist<K, V>>(capacity),
        }
    }
}

#[cfg(feature = "cc")]
use crate::tables::foreign;

fn make<T: Table>(capacity: usize) -> Arc<dyn Candidate> {
    Arc::new(T::with_capacity(capacity))
}

/// Returns the competitors among `names` that can take part, each once, in a fixed order.
pub fn competitors(names: &[Name], kind: Kind, may_be_unsynchronised: bool) -> Vec<Name> {
    let takes_part = |&name: &Name| {
        name != Name::Relativist
            && names.contains(&name)
            && name.holds(kind)
            && (name.is_synchronised() || may_be_unsynchronised)
    };
    Name::value_variants().iter().copied().filter(takes_part).collect()
}

/// Divides `competitors` into groups whose tables fit `memory` bytes together with ours. Ours is in
/// every group, because ratios are only taken between tables that were measured in turns. A table
/// that does not fit is alone with ours.
pub fn groups(competitors: &[Name], kind: Kind, entries: u64, memory: u64) -> Vec<Vec<Name>> {
    // The maximum memory that a table uses while it is filled. Some tables hold all entries twice
    // while they grow.
    let each = entries * if kind == Kind::U64 { 150 } else { 300 };
    let room = (memory / each.max(1)).saturating_sub(1).max(1) as usize;
    if competitors.is_empty() { vec![Vec::new()] } else { competitors.chunks(room).map(<[_]>::to_vec).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Compares every table with std's map, through the loops that measure it.
    #[test]
    fn tables_do_what_std_does() {
        for kind in [Kind::U64, Kind::Strings] {
            for &name in Name::value_variants().iter().filter(|name| name.holds(kind)) {
                check(name.make(kind, 0).as_ref());
                check(name.make(kind, 1000).as_ref());
            }
        }
    }

    fn check(table: &dyn Candidate) {
        use crate::harness::keys::{ABSENT, Indices, seed};
        use crate::harness::sampling::{Draws, Operation};
        use crate::tables::mixes::{MIXES, Own};

        let name = table.name();
        assert_eq!(table.iterate(), (0, 0), "{name}");
        assert_eq!(table.fill(&mut (0..1000)), 0, "{name}");
        assert_eq!(table.fill(&mut (990..1000)), 10, "{name} took keys for absent that are present");
        assert_eq!(table.iterate(), (1000, 999 * 500), "{name}");
        assert_eq!(table.hits(&mut Indices::new(0..1000, 1)), 0, "{name}");
        assert_eq!(table.misses(&mut Indices::new(ABSENT..ABSENT + 1000, 1)), 0, "{name}");
        assert!(table.hits(&mut Indices::new(900..1100, 1)) > 100, "{name} found keys that are absent");
        assert!(table.misses(&mut Indices::new(0..1000, 1)) > 100, "{name} missed keys that are present");

        assert_eq!(table.remove(500..1000), 0, "{name}");
        assert_eq!(table.remove(0..1000), 500, "{name} removed keys that were absent, or kept some");
        assert_eq!(table.iterate(), (0, 0), "{name}");

        // Random operations are repeated on std's map.
        let mut model = BTreeMap::new();
        let mut draws = Draws::new(0..300, None, 60, seed(7, 0));
        for _ in 0..20 {
            let mut replay = draws;
            assert_eq!(table.batch(&mut draws), 0, "{name}");
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

        for mix in MIXES {
            let mut own = Own::new(3, 1, 100);
            assert_eq!(table.fill(&mut own.present()), 0, "{name}");
            assert_eq!(table.mix(mix, &mut own, 5000), 0, "{name}, {}", mix.name);
            let present = own.present();
            assert_eq!(table.iterate(), (present.clone().count() as u64, present.clone().sum()), "{name}");
            table.clear();
        }
        table.settle();
    }

    /// All ways to look up keys must find the same entries.
    #[test]
    fn all_ways_to_look_up_find_what_is_there() {
        use crate::harness::keys::{ABSENT, Indices};
        for kind in [Kind::U64, Kind::Strings] {
            for &name in Name::value_variants().iter().filter(|name| name.holds(kind)) {
                let table = name.make(kind, 0);
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
            for name in competitors(Name::value_variants(), kind, false).into_iter().chain([Name::Relativist]) {
                let table = name.make(kind, 0);
                std::thread::scope(|scope| {
                    for thread in 0..2 {
                        let table = &table;
                        scope.spawn(move || {
                            for mix in crate::tables::mixes::MIXES {
                                let mut own = crate::tables::mixes::Own::new(0, thread, 200);
                                assert_eq!(table.fill(&mut own.present()), 0, "{}", table.name());
                                assert_eq!(table.mix(mix, &mut own, 3000), 0, "{}, {}", table.name(), mix.name);
                                assert_eq!(table.remove(own.present()), 0, "{}", table.name());
                            }
                        });
                    }
                });
                assert_eq!(table.iterate(), (0, 0), "{}", table.name());
            }
        }
    }

    #[test]
    fn groups_fit_the_memory() {
        let competitors = [Name::Papaya, Name::Dashmap, Name::Scc];
        assert_eq!(groups(&competitors, Kind::U64, 1000, 1 << 30), [competitors.to_vec()]);
        assert_eq!(
            groups(&competitors, Kind::U64, 1000, 450_000),
            [competitors[..2].to_vec(), competitors[2..].to_vec()]
        );
        assert_eq!(groups(&competitors, Kind::U64, 1000, 1).len(), 3);
        assert_eq!(groups(&[], Kind::U64, 1000, 1), [Vec::new()]);
    }
}
