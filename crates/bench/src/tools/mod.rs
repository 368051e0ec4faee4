//! Subcommands for performance engineers.

pub mod compare;
pub mod hash;
#[cfg(target_os = "linux")]
pub mod load;
#[cfg(target_os = "linux")]
pub mod mirror;
pub mod replay;
#[cfg(target_os = "linux")]
pub mod serving;
