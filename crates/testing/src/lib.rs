//! What the tests of all crates share: [`alone`] runs a test in a process of its own, a
//! [`watchdog`] ends test programs that hang, and [`poll`] and [`wait_until`] wait for what must
//! happen, at most for [`patience`]. `Run` runs another program. [`auto_traits`] checks which types
//! are `Send` and `Sync`. [`random`] has numbers that look random and are the same in every run.
//! [`assert_meet`] lets two threads run at the same time, to the instruction if possible.
//!
//! The watchdog is linked into each test program by `use relativist_testing as _;`, or by any other
//! use of this crate.
//!
//! `RELATIVIST_TEST_RUNNER` names the emulator, if the programs are of another architecture: tests
//! that start their own program need it.

mod alone;
mod auto_traits;
mod patience;
pub mod random;
mod rendezvous;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
pub mod watchdog;

pub use alone::{alone, own_program};
pub use auto_traits::{OnlySend, OnlySync};
pub use patience::{patience, poll, wait_until};
pub use rendezvous::{ROUNDS, assert_meet};
#[cfg(target_os = "linux")]
pub use run::{Run, send};
