//! A client's connection: requests to the primary, replies to the client, and copies of both to the
//! queue of the secondary.
//!
//! Whether and how often a server replies to a request depends on the request and on its outcome:
//! `noreply` still gets some errors, quiet requests get a reply only sometimes, and `stats` many
//! lines. So the mirror sends a request without effect after each request of a client, the fence:
//! `mn`, or a binary no-op. All bytes before the reply to the fence belong to the request.

use std::collections::VecDeque;
use std::io::Write;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use anyhow::Result;
use relativist_check::client::reply::{Encoding, MAX_LINE, MAX_VALUE};
use relativist_memcache::{Decoded, Decoder, Limits, Protocol, binary};
use socket2::Socket;

use super::keys::{Flush, Ticket};
use super::link::{Link, MAX_BATCH, MAX_BYTES, receive};
use super::report::Fate;
use super::request::{Request, Route, Verb};
use super::secondary::{Charge, Job, Mirror, compare_all};

/// The maximum number of a client's requests that wait for the secondary.
const MAX_REQUESTS: usize = 4096;

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

/// Serves the client with this number until it or the primary disconnects.
pub(super) fn serve(mirror: &Arc<Mirror>, client: &Socket, number: u64) -> Result<()> {
    let mut input = Vec::new();
    if !receive(client, &mut input)? {
        return Ok(());
    }
    let encoding = match Protocol::of_first_byte(input[0]) {
        Protocol::Text => Encoding::Text,
        Protocol::Binary => Encoding::Binary,
    };
    let primary = Link::new(mirror.primary.connect()?, encoding);
    let (jobs, queue) = sync_channel(MAX_REQUESTS);
    thread::scope(|scope| {
        scope.spawn(move || compare_all(mirror, encoding, &queue));
        let limits = Limits { max_value: MAX_VALUE };
        let (text, binary) = (Decoder::new(limits), binary::Decoder::new(limits));
        let held = None;
        let connection = Connection { mirror, encoding, number, text, binary, primary, jobs, held, is_partial: false };
        connection.run(client, input)
    })
}

struct Connection<'a> {
    mirror: &'a Arc<Mirror>,
    encoding: Encoding,
    /// The number of the client.
    number: u64,
    text: Decoder,
    binary: binary::Decoder,
    primary: Link,
    jobs: SyncSender<Job>,
    /// A request that is sent after the others.
    held: Option<Request>,
    /// Whether a part of a refused request was forwarded.
    is_partial: bool,
}

/// Requests that are sent together.
#[derive(Debug, Default)]
struct Batch {
    output: Vec<u8>,
    pending: VecDeque<Pending>,
    /// Whether the connection ends with the last request, which then has no fence.
    is_last: bool,
}

/// The result of decoding the beginning of the input.
enum Step {
    Request(usize, Request),
    /// The request is incomplete. These bytes, of one with an error, are to be forwarded.
    Incomplete(usize),
}

impl Connection<'_> {
    /// Forwards requests and replies until the client or the primary disconnects.
    ///
    /// The primary may execute whatever it has received, also after the client has disconnected or
    /// broken. So its replies are received to the end: each request reaches both servers or
    /// neither, and a key is not compared while the primary may still change it.
    fn run(mut self, mut client: &Socket, mut input: Vec<u8>) -> Result<()> {
        loop {
            let mut batch = self.next_batch(&mut input);
            if batch.output.is_empty() {
                if receive(client, &mut input)? {
                    continue;
                }
                return Ok(());
            }
            let (fences, mut replies) = (batch.pending.len() - usize::from(batch.is_last), Vec::new());
            let exchanged = self.primary.exchange(&batch.output, fences, &mut replies);
            let mut output = Vec::new();
            for (reply, fence) in replies {
                let Some(pending) = batch.pending.pop_front() else { break };
                output.extend_from_slice(&reply);
                if pending.request.is_fence {
                    output.extend_from_slice(&fence);
                }
                self.submit(pending, reply);
            }
            let sent = client.write_all(&output);
            if batch.is_last || exchanged.is_err() {
                // The primary may be gone, or the client.
                let _ = self.primary.socket.shutdown(Shutdown::Write);
                let _ = client.write_all(self.primary.rest());
                let _ = std::io::copy(&mut &*self.primary.socket, &mut client);
                let lost = batch.pending.iter().filter(|pending| pending.copy.is_some());
                self.mirror.tally.count(Fate::Unanswered, lost.count());
                return exchanged;
            }
            sent?;
        }
    }

    /// Takes requests from the input.
    fn next_batch(&mut self, input: &mut Vec<u8>) -> Batch {
        let (mut batch, mut taken) = (Batch::default(), 0);
        while batch.pending.len() < MAX_BATCH && !batch.is_last {
            let request = match self.held.take() {
                Some(request) => request,
                None => match self.decode(&input[taken..]) {
                    Step::Incomplete(consumed) => {
                        self.is_partial |= consumed > 0;
                        batch.output.extend_from_slice(&input[taken..taken + consumed]);
                        taken += consumed;
                        break;
                    }
                    Step::Request(consumed, request) => {
                        let bytes = input[taken..taken + consumed].to_vec();
                        taken += consumed;
                        Request { bytes, ..request }
                    }
                },
            };
            if !batch.output.is_empty() && batch.output.len() + request.bytes.len() > MAX_BYTES {
                self.held = Some(request);
                break;
            }
            batch.output.extend_from_slice(&request.bytes);
            batch.is_last = request.route == Route::Last;
            if !request.is_fence && !batch.is_last {
                batch.output.extend_from_slice(self.encoding.fence());
            }
            batch.pending.push_back(self.begin(request));
        }
        input.drain(..taken);
        batch
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
        if size > mirror.largest + MAX_LINE * request.keys.len().max(1) {
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
        // A store with a value above every limit may remove the item of its key.
        let too_large = |key: &[u8]| {
            let request = Request::new(self.encoding, Verb::Other, Route::Last);
            Step::Request(input.len(), Request { keys: vec![key.to_vec()], ..request })
        };
        let close = || Step::Request(input.len(), plain(Route::Last));
        match self.encoding {
            Encoding::Text => match self.text.decode(input) {
                Decoded::Command { consumed, command } => Step::Request(consumed, Request::of_text(&command)),
                Decoded::Reject { consumed, .. } => {
                    let is_partial = std::mem::take(&mut self.is_partial);
                    let route = if is_partial { Route::PrimaryOnly } else { Route::Both };
                    Step::Request(consumed, plain(route))
                }
                Decoded::TooLarge { key, .. } => too_large(key),
                Decoded::Incomplete { consumed, .. } => Step::Incomplete(consumed),
                Decoded::Close => close(),
            },
            Encoding::Binary => match self.binary.decode(input, true) {
                binary::Decoded::Request { consumed, request } => Step::Request(consumed, Request::of_binary(&request)),
                binary::Decoded::Reject { closes: true, .. } | binary::Decoded::Close => close(),
                binary::Decoded::Reject { consumed, .. } => Step::Request(consumed, plain(Route::PrimaryOnly)),
                binary::Decoded::TooLarge { key, .. } => too_large(key),
                binary::Decoded::Incomplete { consumed } => Step::Incomplete(consumed),
            },
        }
    }

    /// Queues a request for the secondary. If that is not possible, drops it, which makes the key
    /// of a write unknown.
    fn submit(&self, pending: Pending, reply: Vec<u8>) {
        let Pending { request, tickets, flush, copy } = pending;
        let Some((generation, mut charge)) = copy else { return };
        let mirror = self.mirror;
        if reply.len() > MAX_REPLY {
            return mirror.tally.count(Fate::TooLarge, 1);
        }
        let has_room = charge.grow(reply.len());
        let job = Job { request, tickets, reply, generation, _flush: flush, _charge: charge };
        if !has_room || self.jobs.try_send(job).is_err() {
            mirror.tally.count(Fate::NotSent, 1);
            mirror.fail(generation, "too many requests wait for the secondary".into());
        }
    }
}
