//! The client side of a connection to a memcached server: its address, and the replies.

mod address;
pub mod reply;

use std::time::Duration;

use anyhow::Result;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use address::{Address, Place, statistics};

/// How long a server may take to listen, or to reply.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Raises the limit of open files, and with it of connections, to the maximum that this process may
/// have.
///
/// # Errors
/// The system refuses it.
pub fn allow_connections() -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// Formats what a server sent for a message: shortened, and with escapes.
pub fn shown(bytes: &[u8]) -> String {
    let more = if bytes.len() > 80 { "..." } else { "" };
    format!("\"{}{more}\"", bytes[..bytes.len().min(80)].escape_ascii())
}
