//! Completion: the kernel delivers what arrives and sends what it is given (io_uring, Linux 6.1 or
//! later). One system call per iteration of the loop serves all connections that have received or
//! sent.
//!
//! Each connection has one long-lived receive operation ("multishot"). The kernel puts arriving
//! bytes into [`Buffers`]. They are copied to the connection's input at once, and the buffer
//! returns to the kernel. That does not suit connections that send large values, or that do not
//! take their replies: their input grows and is copied once more. When much has piled up or is
//! expected, the operation is cancelled. From then on the kernel only reports that the socket is
//! readable, and a system call reads the bytes to their final place, until the connection has sent
//! only small requests for a while.
//!
//! **Ownership.** The bytes that the kernel sends belong to the [`Line`], and stay untouched until
//! the completion. A line, and with it the socket and its number, stays until its last operation
//! has completed, even if the connection was closed. [`Uring`] ends all operations and waits for
//! them before anything is freed.

mod buffers;
mod message;

use super::backend::{Backend, Event, Waker};
use super::buffer::{Input, Output, Pool};
use super::stream::{Received, Stream};
use crate::observability::stats::Counters;
use buffers::{Buffers, GROUP};
use crossbeam_utils::CachePadded;
use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use message::Message;
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use slab::Slab;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// The size of the submission queue. When it is full, it is submitted early.
const SUBMISSIONS: u32 = 1024;

/// The size of the completion queue. The kernel itself keeps completions beyond it.
const COMPLETIONS: u32 = 4096;

/// If more bytes than this pile up for a connection, or a value lacks more bytes, then system calls
/// read the input of the connection.
const MAX_DELIVERED: usize = 64 << 10;

/// After this number of reads by system calls in a row, none of them of a large value, the kernel
/// delivers again.
const READS_AFTER_FLOOD: u8 = 16;

/// The reads by system calls at the beginning: what new clients send is received in their turns, so
/// that thousands of them do not delay the others.
const FIRST_READS: u8 = 1;

/// The largest piece sent by one operation.
const MAX_SEND: usize = 1 << 30;

/// The largest piece sent by one operation if it has pinned values. It is small, so that a client's
/// progress shows even where the kernel does not report it (Unix sockets).
const MAX_PINNED_SEND: usize = 1 << 20;

/// The kind of an operation, in the lowest bits of its user data. The connection's number is above.
#[derive(Clone, Copy, Eq, PartialEq)]
#[repr(u64)]
enum Operation {
    Receive,
    Send,
    Cancel,
    /// An operation of the ring itself.
    Own,
}

const OPERATION_BITS: u32 = 2;

/// A ring, and the sockets that it works on.
pub(super) struct Uring {
    ring: IoUring,
    buffers: Buffers,
    lines: Slab<Line>,
    /// Connections whose multishot receive will be cancelled.
    flooded: Vec<usize>,
    /// Operations in flight: their last completion has not arrived.
    in_flight: usize,
    /// Whether the poll of the waker has to be started again.
    must_poll_waker: bool,
    counters: Arc<CachePadded<Counters>>,
    waker: Arc<Waker>,
}

/// A socket, and what the kernel does with it.
struct Line {
    stream: Stream,
    received: Input,
    sending: Output,
    /// Describes the pieces of `sending`, if it has several.
    message: Option<Box<Message>>,
    /// Whether the kernel is sending `sending`.
    is_sending: bool,
    reception: Reception,
    /// System calls that will still read the input; 0 while the kernel delivers it.
    reads_left: u8,
    /// Operations in flight: their last completion has not arrived.
    in_flight: u32,
    incoming: Incoming,
    /// Bytes received, and sent.
    moved: (u64, u64),
    /// Whether the connection is closed, so that the line stays only for its operations.
    is_closed: bool,
}

/// What the kernel does to receive for a connection.
///
/// ```text
/// Idle --(reads_left == 0)--> Delivering --(much has piled up)--> Cancelling --> Idle
/// Idle --(reads_left > 0)---> Polling ----> Readable --(all is read)----------> Idle
/// ```
///
/// A multishot receive also ends, and leads back to `Idle`, when the kernel lacks a buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reception {
    /// No operation is in flight, so nothing will be announced: the next `receive` starts an
    /// operation.
    Idle,
    /// A multishot receive is in flight: the kernel delivers what arrives.
    Delivering,
    /// The multishot receive is being cancelled. It may still deliver until it has ended.
    Cancelling,
    /// A one-shot poll is in flight.
    Polling,
    /// The poll has completed: a system call may find something to read.
    Readable,
}

impl Reception {
    /// Whether a multishot receive may still deliver something.
    fn may_deliver(self) -> bool {
        matches!(self, Reception::Delivering | Reception::Cancelling)
    }

    /// The state after a completion. `is_last`: no other completion of the operation follows.
    /// `found_something`: it reported bytes, or that there are some to read.
    fn after_completion(self, is_last: bool, found_something: bool) -> Reception {
        match self {
            Reception::Polling if found_something => Reception::Readable,
            Reception::Polling => Reception::Idle,
            Reception::Delivering | Reception::Cancelling if is_last => Reception::Idle,
            other => other,
        }
    }
}

/// The state of the input.
enum Incoming {
    /// More may arrive.
    Open,
    /// The input has ended or failed. That is reported once all that was received before has been
    /// taken.
    Ending(io::Result<()>),
    /// The input has ended, and that was reported.
    Ended,
}

impl Backend for Uring {
    fn new(counters: Arc<CachePadded<Counters>>) -> io::Result<Uring> {
        let ring = IoUring::builder()
            .setup_cqsize(COMPLETIONS)
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            // The thread that enables it will be the single issuer.
            .setup_r_disabled()
            .build(SUBMISSIONS)?;
        let mut buffers = Buffers::new()?;
        // SAFETY: no operation outlives its `Uring`: see `drop`.
        unsafe { buffers.register(&ring.submitter()) }?;
        let waker = Arc::new(Waker::Event(EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?));
        Ok(Uring {
            ring,
            buffers,
            lines: Slab::new(),
            flooded: Vec::new(),
            in_flight: 0,
            must_poll_waker: true,
            counters,
            waker,
        })
    }

    fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    fn start(&mut self) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()
    }

    fn wait(&mut self, timeout: Option<Duration>, pool: &mut Pool, events: &mut Vec<Event>) -> io::Result<()> {
        if let Err(error) = self.poll_waker()
            && !is_transient(&error)
        {
            return Err(error);
        }
        // A thread that cannot be woken must not sleep.
        let timeout = if self.must_poll_waker { Some(Duration::ZERO) } else { timeout };
        self.cancel_floods();
        let submitted = match timeout {
            None => self.ring.submit_and_wait(1),
            Some(Duration::ZERO) => self.ring.submit(),
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        };
        if let Err(error) = submitted
            && !is_transient(&error)
        {
            return Err(error);
        }
        self.reap(pool, events);
        Ok(())
    }

    fn open(&mut self, stream: Stream) -> io::Result<usize> {
        let key = self.lines.insert(Line {
            stream,
            received: Input::default(),
            sending: Output::default(),
            message: None,
            is_sending: false,
            reception: Reception::Idle,
            reads_left: FIRST_READS,
            in_flight: 0,
            incoming: Incoming::Open,
            moved: (0, 0),
            is_closed: false,
        });
        self.begin_receiving(key).inspect_err(|_| drop(self.lines.remove(key)))?;
        Ok(key)
    }

    fn receive(&mut self, key: usize, pool: &mut Pool, input: &mut Input) -> io::Result<Received> {
        let line = &mut self.lines[key];
        let (is_empty, is_expecting) = (line.received.is_empty(), line.received.is_expecting());
        if !is_empty || is_expecting {
            input.take_from(&mut line.received);
            pool.take_back_input(&mut line.received);
        }
        let mut received = if !is_empty {
            Received::Bytes
        } else {
            match std::mem::replace(&mut line.incoming, Incoming::Ended) {
                Incoming::Open => line.incoming = Incoming::Open,
                Incoming::Ending(Err(error)) => return Err(error),
                Incoming::Ending(Ok(())) => return Ok(Received::End),
                Incoming::Ended => (),
            }
            // Bytes arrived for the expected value: report them, so that the connection checks
            // whether it is complete.
            if is_expecting { Received::Bytes } else { Received::Nothing }
        };
        let is_open = matches!(line.incoming, Incoming::Open);
        if is_open && line.reception == Reception::Readable && received == Received::Nothing {
            received = line.read(pool, input, &self.counters)?;
        }
        if line.reception == Reception::Idle
            && matches!(line.incoming, Incoming::Open)
            && let Err(error) = self.begin_receiving(key)
            && !is_transient(&error)
        {
            return Err(error);
        }
        Ok(received)
    }

    fn arrived(&self, key: usize) -> &[u8] {
        self.lines.get(key).map_or(b"", |line| line.received.unread())
    }

    fn expect(&mut self, key: usize, input: &mut Input) {
        let line = &mut self.lines[key];
        if line.reception.may_deliver() && line.received.unread().is_empty() {
            if input.missing() > MAX_DELIVERED {
                line.end_delivery(key, &mut self.flooded);
            }
            input.pass_expectation(&mut line.received);
        }
    }

    fn is_readable(&self, key: usize) -> bool {
        let line = &self.lines[key];
        !line.received.is_empty()
            || match line.incoming {
                // A receive operation may end while the connection does not receive, for lack of
                // buffers for example. That is not announced again.
                Incoming::Open => matches!(line.reception, Reception::Idle | Reception::Readable),
                Incoming::Ending(_) => true,
                Incoming::Ended => false,
            }
    }

    fn has_hung_up(&self, key: usize) -> bool {
        matches!(self.lines[key].incoming, Incoming::Ending(Err(_)))
    }

    fn send(&mut self, key: usize, _: &mut Pool, output: &mut Output) -> io::Result<bool> {
        let line = &mut self.lines[key];
        if let Incoming::Ending(Err(error)) = &line.incoming {
            return Err(io::Error::from(error.kind()));
        }
        if line.is_sending {
            return Ok(false);
        }
        if line.sending.is_empty() {
            if output.is_empty() {
                return Ok(true);
            }
            line.sending = std::mem::take(output);
        }
        self.begin_sending(key)?;
        Ok(false)
    }

    fn held(&self, key: usize) -> (usize, usize) {
        let line = &self.lines[key];
        (line.received.capacity(), line.sending.capacity())
    }

    fn shared_buffers(&self) -> usize {
        buffers::LENGTH.get()
    }

    fn pins_memory(&self, key: usize) -> bool {
        let line = &self.lines[key];
        line.received.pins_memory() || line.sending.pins_memory()
    }

    fn moved(&self, key: usize) -> (u64, u64) {
        let line = &self.lines[key];
        (line.moved.0, line.stream.acknowledged().unwrap_or(line.moved.1))
    }

    fn close(&mut self, key: usize) {
        let line = &mut self.lines[key];
        line.is_closed = true;
        line.received = Input::default();
        if line.in_flight == 0 {
            self.lines.remove(key);
            return;
        }
        let all = CancelBuilder::fd(Fd(line.stream.id())).all();
        // SAFETY: refers to no memory.
        if unsafe { self.push(opcode::AsyncCancel2::new(all).build(), key, Operation::Cancel) }.is_err() {
            // If the operations cannot be cancelled, shutting down the socket ends them.
            let _ = self.lines[key].stream.shut_down();
        }
    }
}

impl Uring {
    /// Queues `entry` of the connection `key` for the next submission.
    ///
    /// # Safety
    /// The memory that `entry` refers to stays valid and unchanged until the last completion.
    unsafe fn push(&mut self, entry: squeue::Entry, key: usize, operation: Operation) -> io::Result<()> {
        let entry = entry.user_data((key as u64) << OPERATION_BITS | operation as u64);
        // SAFETY: the caller's promise.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.ring.submit()?;
        }
        self.in_flight += 1;
        if operation != Operation::Own {
            self.lines[key].in_flight += 1;
        }
        Ok(())
    }

    fn poll_waker(&mut self) -> io::Result<()> {
        if !self.must_poll_waker {
            return Ok(());
        }
        let Waker::Event(event) = &*self.waker else { unreachable!("`new` makes one of this kind") };
        let poll = opcode::PollAdd::new(Fd(event.as_raw_fd()), libc::POLLIN as u32).multi(true).build();
        // SAFETY: refers to no memory.
        unsafe { self.push(poll, 0, Operation::Own) }?;
        self.must_poll_waker = false;
        Ok(())
    }

    /// Starts delivery of the input, or a poll for something to read.
    fn begin_receiving(&mut self, key: usize) -> io::Result<()> {
        let line = &self.lines[key];
        let socket = Fd(line.stream.id());
        let (operation, reception) = if line.reads_left > 0 {
            (opcode::PollAdd::new(socket, libc::POLLIN as u32).build(), Reception::Polling)
        } else {
            (opcode::RecvMulti::new(socket, GROUP).build(), Reception::Delivering)
        };
        // SAFETY: the buffers of the group stay until all operations have completed.
        unsafe { self.push(operation, key, Operation::Receive) }?;
        self.lines[key].reception = reception;
        Ok(())
    }

    /// Sends what the line has to send. With `MSG_WAITALL` there is one completion when all of it
    /// was sent.
    fn begin_sending(&mut self, key: usize) -> io::Result<()> {
        let line = &mut self.lines[key];
        let (socket, flags) = (Fd(line.stream.id()), libc::MSG_WAITALL | libc::MSG_NOSIGNAL);
        let send = match line.sending.in_one_piece() {
            Some(unsent) => {
                let length = unsent.len().min(MAX_SEND) as u32;
                opcode::Send::new(socket, unsent.as_ptr(), length).flags(flags).build()
            }
            None => {
                let header = line.message.get_or_insert_default().describe(&line.sending, MAX_PINNED_SEND);
                opcode::SendMsg::new(socket, header).flags(flags as u32).build()
            }
        };
        // SAFETY: the bytes, the pinned values and their description belong to the line. It leaves
        // them alone while `is_sending`, and stays until the completion.
        unsafe { self.push(send, key, Operation::Send) }?;
        self.lines[key].is_sending = true;
        Ok(())
    }

    /// Cancels the receive operations of connections that will be read by system calls.
    fn cancel_floods(&mut self) {
        for key in std::mem::take(&mut self.flooded) {
            let Some(line) = self.lines.get(key) else { continue };
            if line.reception == Reception::Cancelling && !line.is_closed {
                let reception = CancelBuilder::user_data((key as u64) << OPERATION_BITS | Operation::Receive as u64);
                // If this fails, it is tried again when more has arrived.
                // SAFETY: refers to no memory.
                let _ = unsafe { self.push(opcode::AsyncCancel2::new(reception).build(), key, Operation::Cancel) };
            }
        }
    }

    /// Processes all completions.
    fn reap(&mut self, pool: &mut Pool, events: &mut Vec<Event>) {
        let Uring { ring, buffers, lines, flooded, in_flight, must_poll_waker, counters, .. } = self;
        for completion in ring.completion() {
            let is_last = !cqueue::more(completion.flags());
            *in_flight -= usize::from(is_last);
            let key = (completion.user_data() >> OPERATION_BITS) as usize;
            let operation = completion.user_data() & ((1 << OPERATION_BITS) - 1);
            if operation == Operation::Own as u64 {
                *must_poll_waker |= is_last;
                events.push(Event::Woken);
                continue;
            }
            let line = &mut lines[key];
            line.in_flight -= u32::from(is_last);
            if operation == Operation::Receive as u64 {
                line.reception = line.reception.after_completion(is_last, completion.result() > 0);
                if let Some(buffer) = cqueue::buffer_select(completion.flags()) {
                    let length = usize::try_from(completion.result()).unwrap_or(0);
                    line.take_in(buffers.received(buffer, length), pool, counters);
                    buffers.give(buffer);
                }
                line.note_reception(completion.result());
                if line.reception.may_deliver() && line.received.unread().len() > MAX_DELIVERED {
                    line.end_delivery(key, flooded);
                }
            } else if operation == Operation::Send as u64 {
                line.is_sending = false;
                line.note_sent(completion.result(), counters);
            }
            if line.is_closed {
                if line.in_flight == 0 {
                    lines.remove(key);
                }
            } else if operation == Operation::Receive as u64 {
                events.push(Event::Ready(key));
            } else if operation == Operation::Send as u64 {
                line.message = None;
                pool.take_back_output(&mut line.sending);
                events.push(if line.sending.is_empty() { Event::Sent(key) } else { Event::Ready(key) });
            }
        }
    }

    /// Ends all operations, and waits until they have ended.
    fn end_all(&mut self) -> io::Result<()> {
        self.lines.iter_mut().for_each(|(_, line)| line.is_closed = true);
        let all = opcode::AsyncCancel2::new(CancelBuilder::any().all()).build();
        // SAFETY: refers to no memory.
        unsafe { self.push(all, 0, Operation::Own) }?;
        let (mut pool, mut events) = (Pool::default(), Vec::new());
        while self.in_flight > 0 {
            match self.ring.submit_and_wait(1) {
                Err(error) if !is_transient(&error) => return Err(error),
                _ => self.reap(&mut pool, &mut events),
            }
        }
        Ok(())
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.in_flight > 0 && self.end_all().is_err() {
            // The kernel would continue to use memory that is about to be freed.
            std::process::abort();
        }
    }
}

impl Line {
    /// Ends the delivery: from now on system calls read the input.
    fn end_delivery(&mut self, key: usize, flooded: &mut Vec<usize>) {
        self.reception = Reception::Cancelling;
        self.reads_left = READS_AFTER_FLOOD;
        flooded.push(key);
    }

    /// Reads once. After the last of these reads the kernel delivers again.
    fn read(&mut self, pool: &mut Pool, input: &mut Input, counters: &Counters) -> io::Result<Received> {
        self.reads_left = if input.is_expecting() { READS_AFTER_FLOOD } else { self.reads_left - 1 };
        pool.lend_input(input);
        let mut is_readable = true;
        let received = self.stream.receive(input, &mut is_readable, &mut self.moved.0, counters)?;
        let reads_on = is_readable && self.reads_left > 0;
        self.reception = if reads_on { Reception::Readable } else { Reception::Idle };
        if received == Received::End {
            self.incoming = Incoming::Ended;
        }
        Ok(received)
    }

    /// Appends bytes that have arrived.
    fn take_in(&mut self, bytes: &[u8], pool: &mut Pool, counters: &Counters) {
        if !bytes.is_empty() && !self.is_closed {
            counters.bytes_read.add(bytes.len() as u64);
            self.moved.0 += bytes.len() as u64;
            let bytes = self.received.pass_on(bytes);
            if !bytes.is_empty() {
                pool.lend_input_for(bytes.len(), &mut self.received);
                self.received.append(bytes);
            }
        }
    }

    fn note_reception(&mut self, result: i32) {
        match (result, &self.incoming) {
            (0, Incoming::Open) => self.incoming = Incoming::Ending(Ok(())),
            (0.., _) => (),
            _ => self.note_failure(result),
        }
    }

    fn note_sent(&mut self, result: i32, counters: &Counters) {
        match usize::try_from(result) {
            Ok(0) => self.fail(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                counters.bytes_written.add(count as u64);
                self.moved.1 += count as u64;
                self.sending.advance(count);
            }
            Err(_) => self.note_failure(result),
        }
    }

    /// Notes an error. A cancellation, an interruption and a lack of buffers are no errors: the
    /// operation starts again.
    fn note_failure(&mut self, result: i32) {
        match Errno::from_raw(-result) {
            Errno::ECANCELED | Errno::ENOBUFS | Errno::EINTR | Errno::EAGAIN => (),
            errno => self.fail(errno.into()),
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.incoming = Incoming::Ending(Err(error));
    }
}

/// Whether to try again: the wait timed out or was interrupted, or the kernel lacks memory for the
/// moment.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::ETIME | Errno::EINTR | Errno::EAGAIN | Errno::EBUSY | Errno::ENOMEM)
    )
}

#[cfg(test)]
mod tests;
