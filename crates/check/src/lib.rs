//! Checks every reply of a memcached server, under random requests: the program
//! `relativist-check`. `relativist-bench` and `relativist-papers` share the other modules.
//!
//! | Module | Holds |
//! |---|---|
//! | [`interruption`] | runs that a signal ends early |
//! | [`options`] | the syntax of options |
//! | [`client`] | the client side of connections to servers |
//! | [`cores`] | the CPUs that servers and clients run on |
//! | [`supervisor`], [`server`] | server processes, their CPU time and memory |
//! | [`faulty`] | servers that reply wrongly, for tests of tools that must notice that |
//! | `soak` | random requests, and the model that knows the right replies |
//! | `cli` | the command line |
//!
//! Modules use only modules above them in this table.

#[cfg(test)]
use relativist_testing as _;

#[cfg(target_os = "linux")]
mod cli;
#[cfg(target_os = "linux")]
pub mod client;
#[cfg(target_os = "linux")]
pub mod cores;
#[cfg(target_os = "linux")]
pub mod faulty;
pub mod interruption;
pub mod options;
#[cfg(all(test, target_os = "linux"))]
mod running;
#[cfg(target_os = "linux")]
pub mod server;
#[cfg(target_os = "linux")]
mod soak;
#[cfg(target_os = "linux")]
pub mod supervisor;

#[cfg(target_os = "linux")]
pub use cli::{Cli, run};
