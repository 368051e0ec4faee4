//! The echo server with epoll: one `epoll_wait` per iteration, and one `recv` and one `send` per
//! client that has sent requests.

use std::io::{Read, Write};
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use slab::Slab;
use socket2::Socket;

use super::{Replies, requests};

const ACCEPTED: u64 = u64::MAX;

/// Serves the clients whose descriptors arrive on `accepted`.
pub fn serve(mut accepted: UnixStream, replies: &Replies) -> Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC).context("cannot create an epoll set")?;
    epoll::add(&epoll, &accepted, EventData::new_u64(ACCEPTED), EventFlags::IN)?;
    let mut clients: Slab<Socket> = Slab::new();
    let mut events = Vec::with_capacity(1024);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match epoll::wait(&epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for events"),
        }
        for event in events.drain(..) {
            let number = event.data.u64();
            if number != ACCEPTED {
                // The client has closed or broken its connection.
                if !answer(&clients[number as usize], replies, &mut buffer).unwrap_or(false) {
                    clients.remove(number as usize);
                }
                continue;
            }
            let mut descriptor = [0; size_of::<RawFd>()];
            accepted.read_exact(&mut descriptor).context("the accepting thread has ended")?;
            // SAFETY: these are the bytes of one descriptor, which `accept` has written.
            for client in unsafe { super::received_sockets(&descriptor) } {
                // The socket stays blocking, so a client that does not read its replies would delay
                // all others. The workbench's clients always read.
                let entry = clients.vacant_entry();
                epoll::add(&epoll, &client, EventData::new_u64(entry.key() as u64), EventFlags::IN)?;
                entry.insert(client);
            }
        }
    }
}

/// Reads once, and replies. Returns whether the client is still connected.
fn answer(mut client: &Socket, replies: &Replies, buffer: &mut [u8]) -> std::io::Result<bool> {
    let count = client.read(buffer)?;
    for bytes in replies.to(requests(&buffer[..count])) {
        client.write_all(bytes)?;
    }
    Ok(count > 0)
}
