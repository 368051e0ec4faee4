//! Random commands against a model, with a limit that is reached all the time: each answer is the model's, with the item there or
//! evicted.

use relativistd::clock::Clock;
use relativistd::engine::{Content, CountError, Direction, Engine, GlobalLock, Lookup, Mode, Relativistic, Store};
use std::collections::HashMap;
use std::sync::Arc;

const NOW: u32 = 1_700_000_000;
const MAX_ITEM: usize = 1 << 20;
const LIMIT: usize = 1 << 20;
const KEYS: u64 = 10_000;

/// A small generator (SplitMix64), the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn value(&mut self) -> Vec<u8> {
        let size = match self.below(50) {
            0 => self.below(60_000),
            1..10 => self.below(4_000),
            _ => self.below(200),
        };
        let letter = b'a' + self.below(26) as u8;
        if self.below(3) == 0 { self.below(1 << 40).to_string().into_bytes() } else { vec![letter; size as usize] }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Item {
    value: Vec<u8>,
    flags: u32,
    /// The second in which it ends; 0 for never.
    end: u32,
}

struct Model<E> {
    engine: E,
    clock: Arc<Clock>,
    items: HashMap<Vec<u8>, Item>,
    random: Random,
}

impl<E: Engine> Model<E> {
    /// What must be under `key` if anything is; and whether it is, as the engine says. From here on it is as it says.
    fn look(&mut self, key: &[u8]) -> Option<Item> {
        let now = self.clock.now();
        self.items.retain(|_, item| item.end == 0 || item.end > now);
        let mut found = None;
        self.engine.peek(key, |hit| {
            found = Some(Item { value: hit.value.to_vec(), flags: hit.flags, end: hit.expiry.to_bits() });
        });
        match &found {
            Some(found) => assert_eq!(Some(found), self.items.get(key), "under {key:?}"),
            None => _ = self.items.remove(key),
        }
        found
    }

    fn put(&mut self, key: &[u8], item: Item) {
        self.items.insert(key.to_vec(), item);
    }

    fn store(&mut self, key: &[u8], mode: Mode) {
        let present = self.look(key);
        let flags = [0, 7, u32::MAX][self.random.below(3) as usize];
        let lifetime = self.random.below(20).saturating_sub(10) as i32;
        let value = self.random.value();
        let outcome = self.engine.store(mode, key, Content { flags, exptime: lifetime, value: &value });
        let end = if lifetime == 0 { 0 } else { self.clock.now() + lifetime as u32 };
        match outcome {
            Store::Stored => {
                let item = match (mode, present) {
                    (Mode::Add, Some(_)) => panic!("added over what was there"),
                    (Mode::Replace, None) => panic!("replaced nothing"),
                    (Mode::Append, Some(old)) => Item { value: [old.value, value].concat(), ..old },
                    (Mode::Prepend, Some(old)) => Item { value: [value, old.value].concat(), ..old },
                    (Mode::Append | Mode::Prepend, None) => panic!("joined to nothing"),
                    _ => Item { value, flags, end },
                };
                self.put(key, item);
            }
            // What was there may have been evicted to make room for what was to replace it.
            Store::NotStored => assert!(mode != Mode::Set && (present.is_some() || mode != Mode::Add), "{mode:?}"),
            other => panic!("{mode:?}: {other:?}"),
        }
    }

    fn compare(&mut self, key: &[u8]) {
        let present = self.look(key);
        let mut unique = 0;
        self.engine.peek(key, |hit| unique = hit.unique);
        let wrong = unique + self.random.below(2);
        let value = self.random.value();
        match self.engine.store(Mode::CompareUnique(wrong), key, Content { flags: 1, exptime: 0, value: &value }) {
            Store::Stored => {
                assert!(present.is_some() && wrong == unique);
                self.put(key, Item { value, flags: 1, end: 0 });
            }
            Store::Exists => assert!(present.is_some() && wrong != unique),
            other => assert_eq!(other, Store::NotFound),
        }
    }

    fn count(&mut self, key: &[u8]) {
        let present = self.look(key);
        match (self.engine.count(key, Direction::Up, 3), present) {
            (Ok(number), Some(old)) => {
                let text = String::from_utf8(old.value.clone()).unwrap();
                assert_eq!(number, text.trim_end().parse::<u64>().unwrap() + 3);
                let value = format!("{number:<width$}", width = text.len()).into_bytes();
                self.put(key, Item { value, ..old });
            }
            (Err(CountError::NotANumber), Some(old)) => {
                assert!(std::str::from_utf8(&old.value).unwrap().trim_end().parse::<u64>().is_err());
            }
            (outcome, _) => assert_eq!(outcome, Err(CountError::NotFound)),
        }
    }

    fn touch(&mut self, key: &[u8]) {
        let present = self.look(key);
        let lifetime = self.random.below(20).saturating_sub(10) as u32;
        let end = if lifetime == 0 { 0 } else { self.clock.now() + lifetime };
        if self.engine.touch(key, lifetime as i32) {
            let old = present.expect("touched what was not there");
            self.put(key, Item { end, ..old });
        } else {
            self.items.remove(key);
        }
    }

    fn step(&mut self) {
        let key = self.random.below(KEYS).to_string().into_bytes();
        match self.random.below(1000) {
            0..=199 => self.store(&key, Mode::Set),
            200..=279 => self.store(&key, Mode::Add),
            280..=339 => self.store(&key, Mode::Replace),
            340..=369 => self.store(&key, Mode::Append),
            370..=399 => self.store(&key, Mode::Prepend),
            400..=459 => self.compare(&key),
            460..=559 => self.count(&key),
            560..=619 => self.touch(&key),
            620..=669 => {
                let present = self.look(&key);
                assert!(!self.engine.delete(&key) || present.is_some(), "deleted what was not there");
                self.items.remove(&key);
            }
            670 if self.random.below(10) == 0 => {
                self.engine.flush(0);
                self.items.clear();
            }
            671..=672 => {
                self.clock.set(self.clock.now() + 1);
                self.engine.maintain();
            }
            _ => {
                let present = self.look(&key);
                let lookup =
                    self.engine.get(&key, |hit| assert_eq!(Some(hit.value), present.as_ref().map(|item| &*item.value)));
                assert_eq!(lookup == Lookup::Hit, present.is_some(), "{lookup:?}");
            }
        }
        let usage = self.engine.usage();
        assert!(usage.heap_bytes + usage.table_bytes <= LIMIT, "{usage:?}");
    }
}

fn run<E: Engine>(seed: u64, wrap: impl FnOnce(Relativistic) -> E) {
    let clock = Arc::new(Clock::new(NOW));
    let engine = wrap(Relativistic::new(Arc::clone(&clock), LIMIT, MAX_ITEM).unwrap());
    let mut model = Model { engine, clock, items: HashMap::new(), random: Random(seed) };
    (0..60_000).for_each(|_| model.step());
    let usage = model.engine.usage();
    assert!(usage.sweeps.evictions > 300, "the limit was hardly reached: {usage:?}");
}

#[test]
fn relativistic() {
    (0..2).for_each(|seed| run(seed, |engine| engine));
}

#[test]
fn global_lock() {
    run(3, GlobalLock::new);
}
