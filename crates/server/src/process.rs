//! The process and the system that it runs on: background, systemd, resource limits and memory
//! allocator.

pub mod allocator;
pub mod daemon;
pub(crate) mod memory;
pub(crate) mod resources;
pub mod systemd;
