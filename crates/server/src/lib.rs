//! A memcached server whose storage engine is a relativistic hash table.
//!
//! The program is in `main.rs`; everything it does is in this library, so that tests can run whole
//! servers in their own process:
//!
//! ```
//! use relativistd::{Options, Server};
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//!
//! let options = Options::parse_from_args(["relativistd", "-p", "-1", "-t", "1"])?;
//! let server = Server::bind(&options)?;
//! let (address, stopper) = (server.addresses()[0], server.stopper());
//! let running = std::thread::spawn(|| server.run());
//!
//! let mut client = TcpStream::connect(address)?;
//! client.write_all(b"set greeting 0 0 5\r\nhello\r\nget greeting\r\nquit\r\n")?;
//! let mut replies = String::new();
//! client.read_to_string(&mut replies)?;
//! assert_eq!(replies, "STORED\r\nVALUE greeting 0 5\r\nhello\r\nEND\r\n");
//!
//! stopper.stop();
//! running.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Layers, each knowing only those below it: `net` moves bytes, and [`execute`] turns commands into
//! replies. The items are in the crate [`relativist_store`], which uses the table of the crate
//! `relativist`. The crate `relativist-memcache` has the wire format.

#[cfg(test)]
use relativist_testing as _;

mod admin;
#[cfg(test)]
#[allow(dead_code, reason = "whole servers need more of it")]
#[path = "../tests/support/certificates.rs"]
mod certificates;
mod error;
pub mod execute;
mod handover;
pub mod limits;
mod net;
pub mod observability;
pub mod options;
pub mod process;
pub mod reload;
pub mod security;
mod server;
mod snapshot;
mod tenants;

pub use error::StartError;
pub use options::{CommandLine, Options};
pub use process::stopper::Stopper;
pub use reload::Reloader;
pub use server::{Ended, Saver, Server, signals};
