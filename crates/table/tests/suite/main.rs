//! What the table does, apart from races (`loom`). Its maps have suites of their own.
//!
//! T1 to T9 are the guarantees of `relativist_table::design`.
#![cfg(not(relativist_loom))]

use relativist_testing as _;

mod auto_traits;
mod compact;
mod multimap;
mod panics;
mod resize;
mod tally;
mod updates;
