//! Maps whose values are changed in place.

use std::array::from_fn;

use anyhow::Result;
use relativist::{FlatLockMap, LockMap};

use super::job::{Context, Job, Setting, shared};
use super::{Entry, Subject, Work, work};
use crate::harness::hashers::Foldhash;
use crate::harness::keys::scramble;
use crate::harness::sampling::Samples;
use crate::shortener::{Program, with_dashmap, with_relativist};

#[derive(Clone, Copy, Debug)]
pub struct Locks;

/// Operations of a batch.
const BATCH: usize = 256;

type Keys = [u64; BATCH];

const SIZES: &[u64] = &[1 << 12, 1 << 16, 1 << 20, 1 << 23];
/// Of one key, all threads use the same.
const ONE: &[u64] = &[1];

impl Subject for Locks {
    const NAME: &'static str = "locks";
    const MIN_ENTRIES: u64 = 1;
    type Candidate = Name;
    const CANDIDATES: &'static [Entry<Name>] = &[
        Entry { name: "lock-map", title: "LockMap", what: Name::LockMap },
        Entry { name: "flat", title: "FlatLockMap", what: Name::Flat },
        Entry { name: "dashmap", title: "dashmap", what: Name::Dashmap },
        Entry { name: "scc", title: "scc::HashMap", what: Name::Scc },
    ];
    const WORKLOADS: &'static [Entry<Work<Self>>] = &[
        work("change", "A field of a struct with two strings", SIZES, |context, setting| {
            plan(context, setting, Name::records, None)
        }),
        work("change-zipf", "A field of a struct with two strings, Zipf 0.99", SIZES, |context, setting| {
            plan(context, setting, Name::records, Some(Samples::zipf(setting.entries)))
        }),
        work("count", "A counter by entry", SIZES, |context, setting| plan(context, setting, Name::counters, None)),
        work("count-zipf", "A counter by entry, Zipf 0.99", SIZES, |context, setting| {
            plan(context, setting, Name::counters, Some(Samples::zipf(setting.entries)))
        }),
        work("shortener", "Requests to a link shortener", &[1 << 16], |context, setting| {
            plan(context, setting, Name::shortener, None)
        }),
        work("change-one", "A field of one struct", ONE, |context, setting| {
            plan(context, setting, Name::records, None)
        }),
        work("count-one", "One counter by entry", ONE, |context, setting| plan(context, setting, Name::counters, None)),
    ];
    type Options = ();

    fn takes_part(map: &Name, setting: &Setting) -> bool {
        setting.workload != "shortener" || !matches!(map, Name::Flat | Name::Scc)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    LockMap,
    Flat,
    Dashmap,
    Scc,
}

/// What a service keeps of a user: 64 bytes, and two strings.
#[derive(Default)]
#[expect(dead_code, reason = "the strings take room")]
struct Record {
    name: String,
    address: String,
    requests: u64,
    flags: u64,
}

impl Record {
    fn new(key: u64) -> Self {
        Self { name: format!("user {key}"), address: format!("{key}@example.org"), ..Self::default() }
    }

    fn change(&mut self) {
        self.requests += 1;
        self.flags ^= 1;
    }
}

/// Changes the value of each key in a map. Returns the number of keys that are absent.
type Change = Box<dyn Fn(&Keys) -> u64 + Send + Sync>;

type Make = fn(Name, u64) -> Change;

/// Returns what changes key by key. `change` returns whether the key is there.
fn each(change: impl Fn(&u64) -> bool + Send + Sync + 'static) -> Change {
    Box::new(move |keys| keys.iter().filter(|key| !change(key)).count() as u64)
}

/// Returns what counts key by key.
fn count(count: impl Fn(u64) + Send + Sync + 'static) -> Change {
    Box::new(move |keys| {
        keys.iter().for_each(|&key| count(key));
        0
    })
}

impl Name {
    fn records(self, entries: u64) -> Change {
        let (room, hasher) = (entries as usize, Foldhash::default());
        let records = (0..entries).map(|index| (scramble(index), Record::new(index)));
        match self {
            Self::LockMap => {
                let map = LockMap::with_capacity_and_hasher(room, hasher);
                records.for_each(|(key, record)| _ = map.insert(key, record));
                each(move |key| map.lock(key).map(|mut record| record.change()).is_some())
            }
            Self::Flat => {
                let map = FlatLockMap::with_capacity_and_hasher(room, hasher);
                records.for_each(|(key, record)| _ = map.insert(key, record));
                each(move |key| map.lock(key).map(|mut record| record.change()).is_some())
            }
            Self::Dashmap => {
                let map = dashmap::DashMap::with_capacity_and_hasher(room, hasher);
                records.for_each(|(key, record)| _ = map.insert(key, record));
                each(move |key| map.get_mut(key).map(|mut record| record.change()).is_some())
            }
            Self::Scc => {
                let map = scc::HashMap::with_capacity_and_hasher(room, hasher);
                records.for_each(|(key, record)| _ = map.upsert_sync(key, record));
                each(move |key| map.update_sync(key, |_, record| record.change()).is_some())
            }
        }
    }

    fn shortener(self, entries: u64) -> Change {
        let program: Box<dyn Program> = match self {
            Self::LockMap => Box::new(with_relativist::Shortener::default()),
            Self::Dashmap => Box::new(with_dashmap::Shortener::default()),
            Self::Flat | Self::Scc => unreachable!("they do not take part"),
        };
        let codes = (0..entries).map(|index| format!("{:x}", scramble(index) >> 16)).collect();
        let links = Links { program, codes };
        (0..entries as usize).for_each(|index| _ = links.shorten(index));
        assert_eq!(links.program.len().0 as u64, entries);
        Box::new(move |keys| links.change(keys))
    }

    fn counters(self, entries: u64) -> Change {
        let (room, hasher) = (entries as usize, Foldhash::default());
        let change = match self {
            Self::LockMap => {
                let map = LockMap::with_capacity_and_hasher(room, hasher);
                count(move |key| *map.entry(key).or_insert(0_u64) += 1)
            }
            Self::Flat => {
                let map = FlatLockMap::with_capacity_and_hasher(room, hasher);
                count(move |key| *map.entry(key).or_insert(0_u64) += 1)
            }
            Self::Dashmap => {
                let map = dashmap::DashMap::with_capacity_and_hasher(room, hasher);
                count(move |key| *map.entry(key).or_insert(0_u64) += 1)
            }
            Self::Scc => {
                let map = scc::HashMap::with_capacity_and_hasher(room, hasher);
                count(move |key| *map.entry_sync(key).or_insert(0_u64) += 1)
            }
        };
        for first in (0..entries).step_by(BATCH) {
            change(&from_fn(|index| scramble((first + index as u64).min(entries - 1))));
        }
        change
    }
}

/// A link shortener, and the codes of its links.
struct Links {
    program: Box<dyn Program>,
    codes: Vec<String>,
}

impl Links {
    /// The owner of a link, of which each has 16.
    fn owner(index: usize) -> String {
        format!("owner {}", index / 16)
    }

    /// Makes a request of the given kind.
    fn one(&self, kind: u64, index: usize, code: &str) -> bool {
        match kind {
            0 => self.program.redirect(&Self::owner(index), code, "https://example.org/other"),
            // Another thread may be doing the same.
            1 => self.program.delete(&Self::owner(index), code) && self.shorten(index),
            2 | 3 => self.program.visits(code).is_some(),
            4 => !self.program.codes(&Self::owner(index)).is_empty(),
            _ => self.program.follow(code, 1).is_some(),
        }
    }

    fn shorten(&self, index: usize) -> bool {
        // Each link is made by a client of its own, which is allowed to.
        self.program.shorten(index as u32, &Self::owner(index), &self.codes[index], "https://example.org/", 0)
    }

    /// Of 20 requests 15 follow a link, two read one, one redirects one, one lists those of an
    /// owner, and one deletes a link and makes it again. Now and then one sweeps the links, or
    /// ranks them.
    fn change(&self, keys: &Keys) -> u64 {
        let request = |&key: &u64| {
            let index = key as usize % self.codes.len();
            let code = &self.codes[index];
            match (key >> 40) % (20 << 12) {
                20 => self.program.sweep(1) > 0,
                40 => self.program.top(10).len() == 10,
                other => self.one(other % 20, index, code),
            }
        };
        // A link that another thread has deleted is absent for a moment.
        keys.iter().for_each(|key| _ = std::hint::black_box(request(key)));
        0
    }
}

/// Plans changes of keys, drawn from `samples` if there are some.
fn plan<'a>(
    context: Context<'a, Locks>,
    setting: &Setting,
    make: Make,
    samples: Option<Samples>,
) -> Result<Vec<Job<'a>>> {
    let (candidates, entries) = (context.candidates(setting), setting.entries);
    let maps = shared(move || Ok(candidates.iter().map(|map| make(map.what, entries)).collect::<Vec<_>>()));
    Ok(context.drawn(setting, &maps, 0..entries, samples, |change, mut draws| {
        Box::new(move || (BATCH as u64, change(&from_fn(|_| scramble(draws.draw().1)))))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_are_there() {
        for Entry { what: name, .. } in Locks::CANDIDATES {
            let keys: Keys = from_fn(|index| scramble(index as u64));
            assert_eq!(name.records(256)(&keys), 0, "{name:?}");
            assert_eq!(name.records(255)(&keys), 1, "{name:?}");
        }
    }
}
