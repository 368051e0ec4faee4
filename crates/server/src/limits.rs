//! Limits on what clients can hold: connections, buffers, and memory of items that slow clients
//! pin.

pub mod buffers;
pub mod connections;
pub mod long_turns;
pub(crate) mod slow_clients;
