//! Subcommands for performance engineers.

pub mod caches;
pub mod compare;
pub mod engines;
pub mod hash;
#[cfg(target_os = "linux")]
pub mod load;
#[cfg(target_os = "linux")]
pub mod mirror;
pub mod rcu;
pub mod replay;
#[cfg(target_os = "linux")]
pub mod serving;
