//! A model of the cache with a low limit. Each result of the cache must be that of the model, with
//! the item present or evicted. Large values arrive in place, if there is room, and some values
//! that were found stay pinned for a while, as connections do. The operations come from a random
//! generator, or from a fuzzer.

use relativist_store::Clock;
use relativist_store::{
    Cache, Content, CountError, Direction, ItemShape, LARGE_VALUE, Lookup, Mode, Store, Usage, ValueRef,
};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

const NOW: u32 = 1_700_000_000;
const MAX_ITEM: usize = 1 << 20;
const LIMIT: usize = 1 << 20;

/// The condition under which to store.
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verb {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    /// Stores if the CAS value is right. The test passes a right one or a wrong one.
    Compare {
        is_right: bool,
    },
}

/// The value to store.
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
#[derive(Clone, Copy, Debug)]
pub enum Value {
    Number(u64),
    /// A letter, repeated; the number is in bytes.
    Text(u8, u16),
    /// A letter, repeated; the number is in KiB.
    Large(u8, u8),
}

impl Value {
    fn bytes(self) -> Vec<u8> {
        match self {
            Value::Number(number) => number.to_string().into_bytes(),
            Value::Text(letter, size) => vec![b'a' + letter % 26; size.into()],
            Value::Large(letter, size) => vec![b'a' + letter % 26; usize::from(size) << 10],
        }
    }
}

/// A command, or an event between commands.
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    Store {
        verb: Verb,
        key: u16,
        flags: u32,
        lifetime: i8,
        value: Value,
    },
    Count {
        key: u16,
        is_up: bool,
        delta: u64,
    },
    Touch {
        key: u16,
        lifetime: i8,
    },
    Delete {
        key: u16,
    },
    Get {
        key: u16,
    },
    Flush {
        delay: i8,
    },
    Scan,
    /// Lets this many seconds pass, and then runs the background work.
    Wait {
        seconds: u8,
    },
}

#[cfg(fuzzing)]
impl Operation {
    /// Returns the same operation on another key.
    pub fn shifted(mut self, by: u16) -> Operation {
        match &mut self {
            Operation::Store { key, .. }
            | Operation::Count { key, .. }
            | Operation::Touch { key, .. }
            | Operation::Delete { key }
            | Operation::Get { key } => *key = key.wrapping_add(by),
            Operation::Flush { .. } | Operation::Scan | Operation::Wait { .. } => (),
        }
        self
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Item {
    value: Vec<u8>,
    flags: u32,
    /// The second at which the item expires; 0 for never.
    end: u32,
}

/// A cache, and the items that it may contain.
pub struct Model {
    cache: Cache,
    evicts: bool,
    clock: Arc<Clock>,
    items: HashMap<Vec<u8>, Item>,
    /// The second at which a flush is due.
    due: Option<u32>,
    /// Pinned values, and copies of them made when they were found.
    kept: VecDeque<(ValueRef, Vec<u8>)>,
}

/// The maximum number of pinned values.
const MAX_PINNED: usize = 3;

impl Model {
    /// Creates a model whose cache `configure` returns.
    pub fn new(evicts: bool, configure: impl FnOnce(Cache) -> Cache) -> Model {
        let clock = Arc::new(Clock::new(NOW));
        let cache = Cache::new(Arc::clone(&clock), LIMIT, MAX_ITEM).unwrap();
        let cache = configure(if evicts { cache } else { cache.without_eviction() });
        Model { cache, evicts, clock, items: HashMap::new(), due: None, kept: VecDeque::new() }
    }

    /// Returns the cache's usage.
    pub fn usage(&self) -> Usage {
        self.cache.usage()
    }

    /// Applies the operation to the cache and the model, and compares the results.
    pub fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Store { verb, key, flags, lifetime, value } => {
                self.store(&name(key), verb, flags, lifetime, value.bytes());
            }
            Operation::Count { key, is_up, delta } => self.count(&name(key), is_up, delta),
            Operation::Touch { key, lifetime } => self.touch(&name(key), lifetime),
            Operation::Delete { key } => {
                let key = name(key);
                let present = self.look(&key);
                let is_deleted = self.cache.delete(&key);
                assert!(is_deleted == present.is_some() || self.may_be_evicted(is_deleted), "{is_deleted}");
                self.items.remove(&key);
            }
            Operation::Get { key } => {
                let key = name(key);
                let present = self.look(&key);
                let kept = &mut self.kept;
                let lookup = self.cache.get(&key, |hit| {
                    assert_eq!(Some(hit.value), present.as_ref().map(|item| &*item.value));
                    kept.extend(hit.pin().map(|pin| (pin, hit.value.to_vec())));
                });
                assert_eq!(lookup == Lookup::Hit, present.is_some(), "{lookup:?}");
                self.unpin_oldest(MAX_PINNED);
            }
            Operation::Flush { delay } => {
                self.cache.flush(delay.into());
                self.due = None;
                match u32::try_from(delay) {
                    Ok(delay @ 1..) => self.due = Some(self.clock.now() + delay),
                    _ => self.items.clear(),
                }
            }
            Operation::Scan => self.scan(),
            Operation::Wait { seconds } => {
                self.clock.set(self.clock.now() + u32::from(seconds));
                if self.due.is_some_and(|due| due <= self.clock.now()) {
                    self.due = None;
                    self.items.clear();
                }
                self.cache.maintain();
            }
        }
        let usage = self.usage();
        assert!(usage.mapped_bytes + usage.table_bytes <= LIMIT, "{usage:?}");
        assert!(usage.item_bytes <= usage.mapped_bytes, "{usage:?}");
    }

    /// Returns the item under `key`, and asserts that it is the model's. If the cache has evicted
    /// it, removes it from the model.
    fn look(&mut self, key: &[u8]) -> Option<Item> {
        self.expire();
        let mut found = None;
        self.cache.peek(key, |hit| {
            found = Some(Item { value: hit.value.to_vec(), flags: hit.flags, end: hit.expiry.to_bits() });
        });
        match &found {
            Some(found) => assert_eq!(Some(found), self.items.get(key), "under {key:?}"),
            None => assert!(self.items.remove(key).is_none() || self.evicts, "{key:?} is gone"),
        }
        found
    }

    /// Unpins the oldest values until at most `limit` are pinned.
    fn unpin_oldest(&mut self, limit: usize) {
        while self.kept.len() > limit {
            let (pin, value) = self.kept.pop_front().expect("a pinned value");
            assert!(*pin == *value, "a value changed while it was pinned");
        }
    }

    /// Whether an item that the model has may be missing: any change may evict it.
    fn may_be_evicted(&self, is_found: bool) -> bool {
        self.evicts && !is_found
    }

    fn expire(&mut self) {
        let now = self.clock.now();
        self.items.retain(|_, item| item.end == 0 || item.end > now);
    }

    fn end(&self, lifetime: i8) -> u32 {
        if lifetime == 0 { 0 } else { self.clock.now() + u32::try_from(lifetime).unwrap_or(0) }
    }

    fn store(&mut self, key: &[u8], verb: Verb, flags: u32, lifetime: i8, value: Vec<u8>) {
        let present = self.look(key);
        let mut cas = 0;
        self.cache.peek(key, |hit| cas = hit.cas());
        let mode = match verb {
            Verb::Set => Mode::Set,
            Verb::Add => Mode::Add,
            Verb::Replace => Mode::Replace,
            Verb::Append => Mode::Append,
            Verb::Prepend => Mode::Prepend,
            Verb::Compare { is_right } => Mode::Cas(cas + u64::from(!is_right)),
        };
        let item = Item { value: value.clone(), flags, end: self.end(lifetime) };
        let joined = value.len() + present.as_ref().map_or(0, |old| old.value.len());
        if joined > LIMIT / 8 {
            self.unpin_oldest(0);
        }
        match self.store_content(mode, key, Content { flags, exptime: lifetime.into(), value: &value }) {
            Store::Stored => {
                let item = match (verb, present) {
                    (Verb::Add, Some(_)) => panic!("added, but the key was present"),
                    (Verb::Append, Some(old)) => Item { value: [old.value, value].concat(), ..old },
                    (Verb::Prepend, Some(old)) => Item { value: [value, old.value].concat(), ..old },
                    (Verb::Replace | Verb::Append | Verb::Prepend, None) => panic!("{verb:?}: the key was absent"),
                    (Verb::Compare { is_right }, present) => {
                        assert!(is_right && present.is_some());
                        item
                    }
                    _ => item,
                };
                self.items.insert(key.to_vec(), item);
            }
            // The old item may have been evicted to make room for its replacement.
            Store::NotStored => match verb {
                Verb::Add => assert!(present.is_some()),
                Verb::Replace => assert!(present.is_none() || self.evicts),
                Verb::Append | Verb::Prepend => {
                    let is_too_large = present.is_some_and(|old| key.len() + old.value.len() + value.len() > MAX_ITEM);
                    assert!(is_too_large || self.evicts || !self.items.contains_key(key));
                }
                _ => panic!("{verb:?} has no condition"),
            },
            Store::Exists => assert!(present.is_some() && verb == Verb::Compare { is_right: false }),
            Store::NotFound => assert!(matches!(verb, Verb::Compare { .. }) && (present.is_none() || self.evicts)),
            Store::OutOfMemory => {
                assert!(!self.evicts || joined > LIMIT * 3 / 4, "{verb:?}: no memory, {:?}", self.usage());
                if verb == Verb::Set {
                    self.items.remove(key);
                }
            }
        }
    }

    /// Stores a value. A large value arrives in two pieces, if there is room to reserve.
    fn store_content(&self, mode: Mode, key: &[u8], content: Content<'_>) -> Store {
        let Content { flags, exptime, value } = content;
        let shape = ItemShape { key_len: key.len(), value_len: value.len(), has_flags: flags != 0, has_cas: false };
        let Some(mut reserved) = self.cache.reserve(&shape) else { return self.cache.store(mode, key, content) };
        assert!(value.len() >= LARGE_VALUE);
        let (first, second) = value.split_at(value.len() / 2);
        assert_eq!((reserved.take(first), reserved.take(second)), (first.len(), second.len()));
        self.cache.store_reserved(mode, key, flags, exptime, &reserved)
    }

    fn count(&mut self, key: &[u8], is_up: bool, delta: u64) {
        let present = self.look(key);
        let number = present
            .as_ref()
            .and_then(|item| std::str::from_utf8(&item.value).ok()?.trim_end_matches(' ').parse::<u64>().ok());
        let direction = if is_up { Direction::Up } else { Direction::Down };
        match (self.cache.count(key, direction, delta), present, number) {
            (Ok(new), Some(old), Some(number)) => {
                assert_eq!(new, if is_up { number.wrapping_add(delta) } else { number.saturating_sub(delta) });
                let value = format!("{new:<width$}", width = old.value.len()).into_bytes();
                self.items.insert(key.to_vec(), Item { value, ..old });
            }
            (Err(CountError::NotANumber), Some(_), None) | (Err(CountError::NotFound), None, _) => (),
            (Err(CountError::NotFound), Some(_), _) => assert!(self.evicts),
            (Err(CountError::OutOfMemory), Some(_), Some(_)) => assert!(!self.evicts),
            other => panic!("{other:?}"),
        }
    }

    fn touch(&mut self, key: &[u8], lifetime: i8) {
        let present = self.look(key);
        let is_touched = self.cache.touch(key, lifetime.into());
        assert!(is_touched == present.is_some() || self.may_be_evicted(is_touched), "{is_touched}");
        let end = self.end(lifetime);
        if let Some(old) = present {
            self.items.insert(key.to_vec(), Item { end, ..old });
        }
    }

    fn scan(&mut self) {
        self.expire();
        let (mut cursor, mut seen) = (Some(0), 0);
        while let Some(from) = cursor {
            cursor = self.cache.scan(from, |hit| {
                assert_eq!(Some(hit.value), self.items.get(hit.key).map(|item| &*item.value));
                seen += 1;
            });
        }
        assert!(seen <= self.items.len() && (self.evicts || seen == self.items.len()));
        let (memory, usage) = (self.cache.memory_use(), self.usage());
        assert_eq!(memory.total() - memory.table, usage.mapped_bytes, "{memory:?}");
    }
}

fn name(key: u16) -> Vec<u8> {
    key.to_string().into_bytes()
}
