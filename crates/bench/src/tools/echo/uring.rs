//! The echo server with io_uring: one `io_uring_enter` per iteration. Receives are multishot and
//! take their buffers from a ring of provided buffers.

use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, ensure};
use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};
use slab::Slab;
use socket2::Socket;

use super::{Replies, requests};

/// The size of the submission queue.
const ENTRIES: u32 = 1024;

/// User data of completions: received descriptors of accepted connections, and sends. Any other
/// value is the number of the client from which bytes were received.
const ACCEPTED: u64 = u64::MAX;
const SEND: u64 = u64::MAX - 1;

/// Serves the clients whose descriptors arrive on `accepted`.
pub fn serve(accepted: UnixStream, replies: &'static Replies) -> Result<()> {
    let mut ring = build().context("io_uring is unavailable to this process (it needs Linux 6.1 or later)")?;
    let mut buffers = Buffers::register(&ring).context("the kernel refuses a ring of provided buffers")?;
    let mut clients: Slab<Socket> = Slab::new();
    let mut entries = vec![receive(ACCEPTED, accepted.as_raw_fd())];
    let mut completed: Vec<cqueue::Entry> = Vec::new();
    let mut ended: Vec<Socket> = Vec::new();
    loop {
        for entry in entries.drain(..) {
            push(&mut ring, &entry)?;
        }
        // Closes ended connections only after their sends were submitted, so that no send goes to a
        // new client that reuses the descriptor.
        ended.clear();
        ring.submit_and_wait(1).context("cannot wait for completions")?;
        completed.extend(ring.completion());
        for completion in completed.drain(..) {
            let (result, flags) = (completion.result(), completion.flags());
            match completion.user_data() {
                SEND => {}
                ACCEPTED => {
                    ensure!(result != 0, "the accepting thread has ended");
                    if let Some(buffer) = cqueue::buffer_select(flags) {
                        let count = usize::try_from(result).unwrap_or(0);
                        // SAFETY: the kernel has received these bytes from `accept`. They are whole
                        // descriptors, because the size of a buffer is a multiple of the size of a
                        // descriptor.
                        for client in unsafe { super::received_sockets(&buffers.get(buffer)[..count]) } {
                            let descriptor = client.as_raw_fd();
                            entries.push(receive(clients.insert(client) as u64, descriptor));
                        }
                        buffers.give_back(buffer);
                    }
                    if !cqueue::more(flags) {
                        entries.push(receive(ACCEPTED, accepted.as_raw_fd()));
                    }
                }
                number => {
                    let descriptor = clients[number as usize].as_raw_fd();
                    if let Some(buffer) = cqueue::buffer_select(flags) {
                        let count = usize::try_from(result).unwrap_or(0);
                        let asked = requests(&buffers.get(buffer)[..count]);
                        buffers.give_back(buffer);
                        entries.extend(replies.to(asked).map(|bytes| send(descriptor, bytes)));
                    }
                    let is_ended = result == 0 || result < 0 && result != -rustix::io::Errno::NOBUFS.raw_os_error();
                    if is_ended {
                        ended.push(clients.remove(number as usize));
                    } else if !cqueue::more(flags) {
                        entries.push(receive(number, descriptor));
                    }
                }
            }
        }
    }
}

/// Returns whether the kernel allows this process to use io_uring.
pub fn is_available() -> bool {
    build().is_ok()
}

fn build() -> std::io::Result<IoUring> {
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_cqsize(4 * ENTRIES).build(ENTRIES)
}

fn receive(client: u64, descriptor: RawFd) -> squeue::Entry {
    opcode::RecvMulti::new(Fd(descriptor), GROUP).build().user_data(client)
}

fn send(descriptor: RawFd, bytes: &'static [u8]) -> squeue::Entry {
    // MSG_WAITALL: the kernel retries until all bytes are sent.
    let flags = rustix::net::SendFlags::NOSIGNAL.bits() | rustix::net::RecvFlags::WAITALL.bits();
    let send = opcode::Send::new(Fd(descriptor), bytes.as_ptr(), bytes.len() as u32).flags(flags as i32);
    // A successful send needs no completion.
    send.build().flags(squeue::Flags::SKIP_SUCCESS).user_data(SEND)
}

/// Queues an entry. If the queue is full, submits the earlier entries first.
fn push(ring: &mut IoUring, entry: &squeue::Entry) -> Result<()> {
    // SAFETY: the memory to which an entry points lives until the process ends: `send` requires
    // that, and the buffers for receiving are never freed. Descriptors are numbers that the kernel
    // checks.
    while unsafe { ring.submission().push(entry) }.is_err() {
        ring.submit().context("cannot submit")?;
    }
    Ok(())
}

/// The group of all provided buffers.
const GROUP: u16 = 0;

/// The number of buffers, a power of two, and their size in bytes.
const BUFFERS: u16 = 256;
const BUFFER: usize = 4096;

/// A page of memory for the ring.
#[repr(C, align(4096))]
struct Page([BufRingEntry; BUFFERS as usize]);

/// Buffers for receiving, and the ring that provides them to the kernel. They are never freed,
/// because the kernel may write into them for a while after the request ring is closed.
struct Buffers {
    ring: &'static mut Page,
    memory: &'static mut [u8],
    tail: u16,
}

impl Buffers {
    fn register(ring: &IoUring) -> Result<Self> {
        // SAFETY: the entries are numbers, for which zero is valid.
        let page: Box<Page> = unsafe { Box::new_zeroed().assume_init() };
        let memory = vec![0; usize::from(BUFFERS) * BUFFER];
        let mut buffers = Self { ring: Box::leak(page), memory: memory.leak(), tail: 0 };
        let address = buffers.ring.0.as_ptr().expose_provenance() as u64;
        // SAFETY: the page is aligned, has `BUFFERS` entries, and is never freed.
        unsafe { ring.submitter().register_buf_ring_with_flags(address, BUFFERS, GROUP, 0) }?;
        (0..BUFFERS).for_each(|buffer| buffers.give_back(buffer));
        Ok(buffers)
    }

    /// Returns the bytes of a buffer.
    fn get(&self, buffer: u16) -> &[u8] {
        &self.memory[usize::from(buffer) * BUFFER..][..BUFFER]
    }

    /// Gives a buffer back to the kernel.
    fn give_back(&mut self, buffer: u16) {
        let address = self.memory[usize::from(buffer) * BUFFER..].as_mut_ptr();
        let entry = &mut self.ring.0[usize::from(self.tail % BUFFERS)];
        entry.set_addr(address.expose_provenance() as u64);
        entry.set_len(BUFFER as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: this is the address of the first entry.
        let tail = unsafe { BufRingEntry::tail(self.ring.0.as_ptr()) };
        // SAFETY: the tail lies in the first entry and is aligned. On our side only this function
        // accesses it. An atomic has the layout of its integer.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: pairs with the kernel's load-acquire of the tail, which then sees the whole
        // entry.
        tail.store(self.tail, Ordering::Release);
    }
}
