//! Echoing by readiness: one `epoll_wait` per turn, and one `recv` and one `send` per client that has asked.

use std::io::{Read, Write};

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use slab::Slab;
use socket2::Socket;

use super::{Replies, requests};

const LISTENER: u64 = u64::MAX;

/// Serves those clients that this thread is the first to accept.
pub fn serve(listener: &Socket, replies: &Replies) -> Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC).context("cannot create an epoll set")?;
    // Another thread may have been faster.
    listener.set_nonblocking(true)?;
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN | EventFlags::EXCLUSIVE)?;
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
            if number != LISTENER {
                // Who breaks a connection has had enough.
                if !answer(&clients[number as usize], replies, &mut buffer).unwrap_or(false) {
                    clients.remove(number as usize);
                }
            } else if let Ok((client, _)) = listener.accept() {
                // A client that doesn't read its answers holds up all others; none does that here.
                client.set_nonblocking(false)?;
                let _ = client.set_tcp_nodelay(true);
                let entry = clients.vacant_entry();
                epoll::add(&epoll, &client, EventData::new_u64(entry.key() as u64), EventFlags::IN)?;
                entry.insert(client);
            }
        }
    }
}

/// Reads once and answers. Returns whether the client is still there.
fn answer(mut client: &Socket, replies: &Replies, buffer: &mut [u8]) -> std::io::Result<bool> {
    let count = client.read(buffer)?;
    for bytes in replies.to(requests(&buffer[..count])) {
        client.write_all(bytes)?;
    }
    Ok(count > 0)
}
