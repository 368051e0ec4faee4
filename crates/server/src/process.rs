//! The process and the system that it runs on: background, systemd, resource limits, memory
//! allocator, and how it is stopped.

pub mod allocator;
pub mod daemon;
pub(crate) mod memory;
pub(crate) mod resources;
pub(crate) mod stopper;
pub mod systemd;
