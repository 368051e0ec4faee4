//! A client's connection: requests to the primary, replies to the client, and copies of both to the
//! queue of the secondary.
//!
//! Whether and how often a server replies to a request depends on the request and on its outcome:
//! `noreply` still gets some errors, quiet requests get a reply only sometimes, and `stats` many
//! lines. So the mirror sends a request without effect after each request of a client, the fence:
//! `mn`, or a binary no-op. All bytes before the reply to the fence belong to the request.

use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use anyhow::Result;
use relativist_check::client::reply::{Code, Encoding, MAX_LINE, MAX_VALUE, Received, read};
use relativist_memcache::{Decoded, Decoder, Limits, Protocol, binary};
use rustix::buffer::spare_capacity;
use socket2::Socket;

use super::keys::{Keys, Ticket};
use super::report::Fate;
use super::request::{Request, Route, Verb};
use super::secondary::{Charge, Job, Mirror, compare_all};

/// The maximum number of requests of a client without a reply of the primary, and also of those
/// that wait for the secondary.
const MAX_REQUESTS: usize = 4096;

const READ: usize = 64 << 10;

/// The maximum size of a reply that is compared.
const MAX_REPLY: usize = 4 << 20;

/// A request without a reply of the primary.
#[derive(Debug)]
struct Pending {
    request: Request,
    tickets: Vec<Ticket>,
    flush: Option<Flush>,
    /// The generation of the secondary and the memory of the request, if it is to be compared.
    copy: Option<(u64, Charge)>,
}

/// A flush of all items, until both servers have executed it. Requests that overlap with it are not
/// compared.
#[derive(Debug)]
pub(super) struct Flush(Arc<Keys>);

impl Flush {
    fn begin(keys: &Arc<Keys>) -> Self {
        keys.forget_all();
        Self(Arc::clone(keys))
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        self.0.forget_all();
    }
}

/// Reads what has arrived, and appends it. Returns false at the end of the stream.
fn receive(socket: &Socket, input: &mut Vec<u8>) -> std::io::Result<bool> {
    input.reserve(READ);
    loop {
        match rustix::io::read(socket, spare_capacity(input)).map_err(std::io::Error::from) {
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            other => return Ok(other? > 0),
        }
    }
}

/// What a server sends, split at the replies to fences.
#[derive(Debug)]
pub(super) struct Replies {
    encoding: Encoding,
    input: Vec<u8>,
    /// The beginning of the next reply, and the end of its complete lines or packets.
    start: usize,
    end: usize,
}

impl Replies {
    pub(super) fn new(encoding: Encoding) -> Self {
        Self { encoding, input: Vec::new(), start: 0, end: 0 }
    }

    /// Receives more. Returns false at the end of the stream.
    pub(super) fn fill(&mut self, socket: &Socket) -> std::io::Result<bool> {
        self.input.drain(..self.start);
        (self.start, self.end) = (0, self.end - self.start);
        receive(socket, &mut self.input)
    }

    /// Returns the next reply, and the reply to the fence after it, if both have arrived.
    pub(super) fn next(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        while let Received::Whole(answer, length) = read(self.encoding, &self.input[self.end..], MAX_VALUE)? {
            let begin = self.end;
            self.end += length;
            if answer.code == Code::Fence {
                let reply = self.input[self.start..begin].to_vec();
                self.start = self.end;
                return Ok(Some((reply, self.input[begin..self.end].to_vec())));
            }
        }
        Ok(None)
    }

    /// Returns what has arrived after the last fence.
    pub(super) fn rest(&self) -> &[u8] {
        &self.input[self.start..]
    }
}

/// Serves the client with this number until it or the primary disconnects.
///
/// The primary may execute whatever it has received, also after the client has disconnected or
/// broken. So its replies are received to the end: each request reaches both servers or neither,
/// and a key is not compared while the primary may still change it.
pub(super) fn serve(mirror: &Arc<Mirror>, client: &Socket, number: u64) -> Result<()> {
    let mut input = Vec::new();
    if !receive(client, &mut input)? {
        return Ok(());
    }
    let encoding = match Protocol::of_first_byte(input[0]) {
        Protocol::Text => Encoding::Text,
        Protocol::Binary => Encoding::Binary,
    };
    let primary = &mirror.primary.connect()?;
    let (pending, answered) = sync_channel(MAX_REQUESTS);
    let (jobs, queue) = sync_channel(MAX_REQUESTS);
    thread::scope(|scope| {
        scope.spawn(move || compare_all(mirror, encoding, &queue));
        scope.spawn(move || forward_replies(mirror, encoding, [primary, client], &answered, &jobs));
        let limits = Limits { max_value: MAX_VALUE };
        let (text, binary) = (Decoder::new(limits), binary::Decoder::new(limits));
        let mut requests = Requests {
            mirror,
            encoding,
            number,
            text,
            binary,
            primary,
            output: Vec::new(),
            pending,
            is_partial: false,
        };
        // A broken connection ends, as it would without the mirror.
        let _ = requests.forward_all(client, input);
        let _ = primary.shutdown(Shutdown::Write);
    });
    Ok(())
}

/// From the client to the primary.
struct Requests<'a> {
    mirror: &'a Arc<Mirror>,
    encoding: Encoding,
    /// The number of the client.
    number: u64,
    text: Decoder,
    binary: binary::Decoder,
    primary: &'a Socket,
    output: Vec<u8>,
    pending: SyncSender<Pending>,
    /// Whether a part of a refused request was forwarded.
    is_partial: bool,
}

/// The result of decoding the beginning of the input.
enum Step {
    Request(usize, Request),
    /// The request is incomplete. These bytes, of one with an error, are to be forwarded.
    Incomplete(usize),
    /// The server will close the connection.
    Close(Request),
}

impl Requests<'_> {
    /// Forwards what the client sends until it disconnects or breaks. Fails if the primary does.
    fn forward_all(&mut self, client: &Socket, mut input: Vec<u8>) -> Result<()> {
        loop {
            let is_over = self.forward(&mut input)?;
            self.send()?;
            if is_over || !receive(client, &mut input)? {
                return Ok(());
            }
        }
    }

    fn send(&mut self) -> Result<()> {
        let mut primary = self.primary;
        primary.write_all(&self.output)?;
        self.output.clear();
        Ok(())
    }

    /// Forwards the requests in `input`. Returns whether the connection ends now.
    fn forward(&mut self, input: &mut Vec<u8>) -> Result<bool> {
        let mut taken = 0;
        loop {
            let rest = &input[taken..];
            let (consumed, request) = match self.decode(rest) {
                Step::Request(consumed, request) => (consumed, request),
                Step::Incomplete(consumed) => {
                    self.is_partial |= consumed > 0;
                    self.output.extend_from_slice(&rest[..consumed]);
                    input.drain(..taken + consumed);
                    return Ok(false);
                }
                Step::Close(request) => (rest.len(), request),
            };
            let (is_last, is_fence) = (request.route == Route::Last, request.is_fence);
            let pending = self.begin(request);
            self.push(pending)?;
            self.output.extend_from_slice(&rest[..consumed]);
            taken += consumed;
            if is_last {
                return Ok(true);
            }
            if !is_fence {
                self.output.extend_from_slice(self.encoding.fence());
            }
        }
    }

    /// Queues a request for the thread that receives the replies.
    fn push(&mut self, pending: Pending) -> Result<()> {
        if let Err(TrySendError::Full(pending)) = self.pending.try_send(pending) {
            // The primary has to receive the earlier requests before it can answer them.
            self.send()?;
            self.pending.send(pending)?;
        }
        Ok(())
    }

    fn begin(&self, mut request: Request) -> Pending {
        let Self { mirror, number, .. } = self;
        let is_copied = request.route == Route::Both;
        let is_for_primary = !is_copied && !request.is_fence && request.keys.is_empty();
        mirror.tally.update(|found| found.requests += 1);
        mirror.tally.count(Fate::PrimaryOnly, is_for_primary.into());
        let flush = (request.verb == Verb::Flush).then(|| Flush::begin(&mirror.keys));
        let copy = is_copied.then(|| self.copy(&request)).flatten();
        let is_write = request.verb.is_write();
        if copy.is_none() {
            request.bytes = Vec::new();
        }
        // Without a copy for the secondary, a read does not matter.
        let keys = request.keys.iter().filter(|_| is_write || copy.is_some());
        let tickets = keys.map(|key| mirror.keys.begin(*number, key, is_write)).collect();
        Pending { request, tickets, flush, copy }
    }

    /// Reserves what is needed to compare a request, if the secondary is used.
    fn copy(&self, request: &Request) -> Option<(u64, Charge)> {
        let (mirror, size) = (self.mirror, request.bytes.len());
        if size > mirror.largest + MAX_LINE.max(request.keys.len() * MAX_LINE) {
            mirror.tally.count(Fate::TooLarge, 1);
            return None;
        }
        let copy = mirror.generation().and_then(|generation| {
            let charge = mirror.charge(size);
            if charge.is_none() {
                mirror.fail(generation, "too many bytes wait for the secondary".into());
            }
            Some((generation, charge?))
        });
        mirror.tally.count(Fate::NotSent, copy.is_none().into());
        copy
    }

    fn decode(&mut self, input: &[u8]) -> Step {
        let plain = |route| Request::new(self.encoding, Verb::Keyless, route);
        let with_bytes =
            |consumed, request| Step::Request(consumed, Request { bytes: input[..consumed].to_vec(), ..request });
        // A store with a value above every limit may remove the item of its key.
        let too_large = |key: &[u8]| {
            let request = Request::new(self.encoding, Verb::Other, Route::Last);
            Step::Close(Request { keys: vec![key.to_vec()], ..request })
        };
        match self.encoding {
            Encoding::Text => match self.text.decode(input) {
                Decoded::Command { consumed, command } => with_bytes(consumed, Request::of_text(&command)),
                Decoded::Reject { consumed, .. } if std::mem::take(&mut self.is_partial) => {
                    Step::Request(consumed, plain(Route::PrimaryOnly))
                }
                Decoded::Reject { consumed, .. } => with_bytes(consumed, plain(Route::Both)),
                Decoded::TooLarge { key, .. } => too_large(key),
                Decoded::Incomplete { consumed, .. } => Step::Incomplete(consumed),
                Decoded::Close => Step::Close(plain(Route::Last)),
            },
            Encoding::Binary => match self.binary.decode(input, true) {
                binary::Decoded::Request { consumed, request } => with_bytes(consumed, Request::of_binary(&request)),
                binary::Decoded::Reject { closes: true, .. } | binary::Decoded::Close => {
                    Step::Close(plain(Route::Last))
                }
                binary::Decoded::Reject { consumed, .. } => Step::Request(consumed, plain(Route::PrimaryOnly)),
                binary::Decoded::TooLarge { key, .. } => too_large(key),
                binary::Decoded::Incomplete { consumed } => Step::Incomplete(consumed),
            },
        }
    }
}

/// Forwards replies from the primary to the client until the primary disconnects.
fn forward_replies(
    mirror: &Mirror,
    encoding: Encoding,
    [mut primary, mut client]: [&Socket; 2],
    answered: &Receiver<Pending>,
    jobs: &SyncSender<Job>,
) {
    let mut replies = Replies::new(encoding);
    let mut forward = || -> Result<()> {
        let mut output = Vec::new();
        loop {
            while let Some((reply, fence)) = replies.next()? {
                let pending = answered.try_recv()?;
                output.extend_from_slice(&reply);
                if pending.request.is_fence {
                    output.extend_from_slice(&fence);
                }
                submit(mirror, jobs, pending, reply);
            }
            // If the client is broken, no further request arrives from it.
            if client.write_all(&output).is_err() {
                let _ = client.shutdown(Shutdown::Both);
            }
            output.clear();
            if !replies.fill(primary)? {
                return Ok(());
            }
        }
    };
    // However that has ended, the primary gets no further request, and executes those that it has.
    let is_understood = forward().is_ok();
    let _ = client.write_all(replies.rest());
    let _ = client.shutdown(Shutdown::Both);
    if !is_understood {
        let _ = primary.shutdown(Shutdown::Write);
        let _ = std::io::copy(&mut primary, &mut std::io::sink());
    }
    for pending in answered {
        mirror.tally.count(Fate::Unanswered, pending.copy.is_some().into());
    }
}

/// Queues a request for the secondary. If that is not possible, drops it, which makes the key of a
/// write unknown.
fn submit(mirror: &Mirror, jobs: &SyncSender<Job>, pending: Pending, reply: Vec<u8>) {
    let Pending { request, tickets, flush, copy } = pending;
    let Some((generation, mut charge)) = copy else { return };
    if reply.len() > MAX_REPLY {
        return mirror.tally.count(Fate::TooLarge, 1);
    }
    let has_room = charge.grow(reply.len());
    let job = Job { request, tickets, reply, generation, _flush: flush, _charge: charge };
    if !has_room || jobs.try_send(job).is_err() {
        mirror.tally.count(Fate::NotSent, 1);
        mirror.fail(generation, "too many requests wait for the secondary".into());
    }
}
