//! Compares the cache with a model, on random commands.

use relativist_testing as _;

use relativist_store::Cache;

#[path = "support/model.rs"]
mod model;

use model::{Model, Operation, Value, Verb};

/// A small generator (SplitMix64), the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn value(&mut self) -> Value {
        let letter = self.below(26) as u8;
        match self.below(75) {
            0 => Value::Large(letter, self.below(60) as u8),
            1..10 => Value::Text(letter, self.below(4_000) as u16),
            10..50 => Value::Text(letter, self.below(200) as u16),
            _ => Value::Number(self.below(1 << 40)),
        }
    }

    fn store(&mut self, verb: Verb, key: u16) -> Operation {
        let flags = [0, 7, u32::MAX][self.below(3) as usize];
        Operation::Store { verb, key, flags, lifetime: self.lifetime(), value: self.value() }
    }

    /// Returns 0, for no expiry, in half of the cases.
    fn lifetime(&mut self) -> i8 {
        if self.below(2) == 0 { 0 } else { self.below(11) as i8 - 1 }
    }

    fn operation(&mut self) -> Operation {
        let key = self.below(10_000) as u16;
        match self.below(1000) {
            0..=199 => self.store(Verb::Set, key),
            200..=279 => self.store(Verb::Add, key),
            280..=339 => self.store(Verb::Replace, key),
            340..=369 => self.store(Verb::Append, key),
            370..=399 => self.store(Verb::Prepend, key),
            400..=459 => {
                let is_right = self.below(2) == 0;
                self.store(Verb::Compare { is_right }, key)
            }
            460..=559 => Operation::Count { key, is_up: self.below(2) == 0, delta: self.below(5) },
            560..=619 => Operation::Touch { key, lifetime: self.lifetime() },
            620..=669 => Operation::Delete { key },
            670 if self.below(10) == 0 => Operation::Flush { delay: self.below(5) as i8 - 1 },
            671..=672 => Operation::Wait { seconds: 1 },
            673 if self.below(10) == 0 => Operation::Scan,
            _ => Operation::Get { key },
        }
    }
}

fn run(seed: u64, evicts: bool, configure: impl FnOnce(Cache) -> Cache) {
    let (mut model, mut random) = (Model::new(evicts, configure), Random(seed));
    (0..60_000).for_each(|_| model.apply(random.operation()));
    let usage = model.usage();
    assert_eq!(usage.sweeps.evictions > 30, evicts, "the limit was rarely reached: {usage:?}");
}

#[test]
fn relativistic() {
    run(0, true, |cache| cache);
}

#[test]
fn without_eviction() {
    run(1, false, |cache| cache);
}

#[test]
#[cfg(feature = "global-lock")]
fn global_lock() {
    run(3, true, Cache::with_global_lock);
}
