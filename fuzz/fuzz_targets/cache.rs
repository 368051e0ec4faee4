//! Runs any sequence of commands on a cache with a small memory limit, and compares the results
//! with a model: with a global lock and without, with eviction and without.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use relativist_store::Cache;

#[path = "../../crates/store/tests/support/model.rs"]
mod model;

use model::{Model, Operation};

/// One sequence is too short to fill the memory, so it is repeated.
#[derive(Arbitrary, Debug)]
struct Input {
    has_global_lock: bool,
    evicts: bool,
    operations: Vec<Operation>,
    rounds: u8,
}

fn run(input: &Input, configure: impl FnOnce(Cache) -> Cache) {
    let mut model = Model::new(input.evicts, configure);
    for round in 0..=u16::from(input.rounds % 32) {
        for &operation in &input.operations {
            model.apply(operation.shifted(round * 7));
        }
    }
}

fuzz_target!(|input: Input| {
    if input.has_global_lock {
        run(&input, Cache::with_global_lock);
    } else {
        run(&input, |cache| cache);
    }
});
