//! Any sequence of commands, with a limit that is soon reached: both engines do what a model does, with eviction and without.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use relativistd::engine::{Engine, GlobalLock, Relativistic};

#[path = "../../crates/server/tests/support/model.rs"]
mod model;

use model::{Model, Operation};

/// So few commands fill the memory only if they are done again and again.
#[derive(Arbitrary, Debug)]
struct Input {
    has_global_lock: bool,
    evicts: bool,
    operations: Vec<Operation>,
    rounds: u8,
}

fn run<E: Engine>(input: &Input, wrap: impl FnOnce(Relativistic) -> E) {
    let mut model = Model::new(input.evicts, wrap);
    for round in 0..=u16::from(input.rounds % 32) {
        for &operation in &input.operations {
            model.apply(operation.shifted(round * 7));
        }
    }
}

fuzz_target!(|input: Input| {
    if input.has_global_lock {
        run(&input, GlobalLock::new);
    } else {
        run(&input, |engine| engine);
    }
});
