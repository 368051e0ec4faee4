//! Servers that reply wrongly, for tests of the tools that must notice that.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use anyhow::Result;

use crate::client::Address;

/// A faulty server: a proxy that changes requests or replies.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Replaces these bytes in requests by those.
    Request(&'static [u8], &'static [u8]),
    /// Replaces these bytes in replies by those.
    Reply(&'static [u8], &'static [u8]),
}

impl Fault {
    /// Starts a faulty server in front of a correct one. Returns its address.
    ///
    /// # Panics
    /// Panics if the correct server does not listen on a port, or if no port is free.
    pub fn of(self, right: &Address) -> Address {
        let Address::Tcp(right) = *right else { panic!("it listens on a port") };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        // This thread runs until the test process ends.
        thread::spawn(move || listener.incoming().for_each(|client| _ = self.forward(client.unwrap(), right)));
        address
    }

    fn forward(self, client: TcpStream, right: SocketAddr) -> Result<()> {
        let server = TcpStream::connect(right)?;
        let (hears, says) = match self {
            Self::Request(from, to) => (Some((from, to)), None),
            Self::Reply(from, to) => (None, Some((from, to))),
        };
        for (mut from, mut to, change) in [(client.try_clone()?, server.try_clone()?, hears), (server, client, says)] {
            thread::spawn(move || {
                let mut buffer = [0; 1 << 16];
                while let Ok(count @ 1..) = from.read(&mut buffer) {
                    let bytes =
                        change.map_or_else(|| buffer[..count].to_vec(), |change| changed(&buffer[..count], change));
                    if to.write_all(&bytes).is_err() {
                        break;
                    }
                }
                // Either side may have disconnected.
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            });
        }
        Ok(())
    }
}

/// Replaces every `from`, except where a read split it.
fn changed(bytes: &[u8], (from, to): (&[u8], &[u8])) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), bytes);
    while let Some(at) = memchr::memmem::find(rest, from) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    out.extend_from_slice(rest);
    out
}
