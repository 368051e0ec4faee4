//! What the tests of all crates share.

mod alone;

pub use alone::alone;
