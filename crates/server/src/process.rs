//! The process and the system that it runs on: background, systemd, resource limits, memory
//! allocator, how it is stopped, and the parts of a hand-over that the network and execution use.

pub mod allocator;
pub mod daemon;
pub(crate) mod files;
pub(crate) mod gate;
pub(crate) mod inherited;
pub(crate) mod memory;
pub(crate) mod resources;
pub(crate) mod stopper;
pub mod systemd;
