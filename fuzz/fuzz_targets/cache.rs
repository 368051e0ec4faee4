//! Runs any sequence of commands on a cache with a small memory limit, and compares the results
//! with a model: with eviction and without.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/store/tests/support/model.rs"]
mod model;

use model::{Model, Operation};

/// One sequence is too short to fill the memory, so it is repeated.
#[derive(Arbitrary, Debug)]
struct Input {
    evicts: bool,
    operations: Vec<Operation>,
    rounds: u8,
}

fuzz_target!(|input: Input| {
    let mut model = Model::new(input.evicts, |cache| cache);
    for round in 0..=u16::from(input.rounds % 32) {
        for &operation in &input.operations {
            model.apply(operation.shifted(round * 7));
        }
    }
});
