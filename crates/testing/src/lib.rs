//! What the tests of all crates share: [`alone`], by which a test runs in a process of its own, and
//! a [`watchdog`].
//!
//! Each test program has `use relativist_testing as _;`, or uses something of this crate: so the
//! watchdog is linked into it.

mod alone;
#[cfg(target_os = "linux")]
pub mod watchdog;

pub use alone::alone;
