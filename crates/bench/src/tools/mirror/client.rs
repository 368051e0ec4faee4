//! A client's connection: requests to the primary, replies to the client, and copies of both to the
//! queue of the secondary.

use std::sync::Arc;

use anyhow::Result;
use relativist_memcache::{Decoded, Decoder, Limits, Protocol, binary};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc, watch};

use super::compare::{self, Job};
use super::framing::{Dialect, Piece, Splitter};
use super::keys::{Keys, Ticket};
use super::request::{Request, Route, Verb};
use super::shadow::{Charge, Mirror, Stream, connect};

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

/// Serves the client with this number until it or the primary disconnects, or `stop` becomes true.
///
/// The primary may execute whatever it has received, also after the client has disconnected or
/// broken. So its replies are received to the end: each request reaches both servers or neither,
/// and a key is not compared while the primary may still change it.
pub(super) async fn serve(mirror: Arc<Mirror>, client: Stream, number: u64, stop: watch::Receiver<bool>) -> Result<()> {
    let (mut from_client, to_client) = tokio::io::split(client);
    let mut input = Vec::new();
    // The first byte decides the protocol.
    if from_client.read_buf(&mut input).await? == 0 {
        return Ok(());
    }
    let dialect = match Protocol::of_first_byte(input[0]) {
        Protocol::Text => Dialect::Text,
        Protocol::Binary => Dialect::Binary,
    };
    let (from_primary, to_primary) = tokio::io::split(connect(&mirror.primary).await?);
    let (pending, answered) = mpsc::channel(MAX_REQUESTS);
    let (jobs, queue) = mpsc::channel(MAX_REQUESTS);
    let comparing = tokio::spawn(compare::run(Arc::clone(&mirror), dialect, queue));
    {
        let requests = Requests::new(Arc::clone(&mirror), dialect, number, to_primary, pending);
        let replies = Replies { mirror, from_primary, to_client, splitter: Splitter::new(dialect), answered, jobs };
        let is_broken = Notify::new();
        let (requests, replies) = (requests.run(from_client, input, stop, &is_broken), replies.run(&is_broken));
        tokio::pin!(requests, replies);
        tokio::select! {
            () = &mut replies => (),
            _ = &mut requests => replies.await,
        }
    }
    Ok(comparing.await?)
}

/// From the client to the primary.
struct Requests {
    mirror: Arc<Mirror>,
    dialect: Dialect,
    /// The number of the client.
    client: u64,
    text: Decoder,
    binary: binary::Decoder,
    to_primary: WriteHalf<Stream>,
    output: Vec<u8>,
    pending: mpsc::Sender<Pending>,
    /// A request that is forwarded in parts, because it is too large or has an error.
    partial: Option<Pending>,
}

/// The result of decoding the beginning of the input.
enum Step {
    Request(usize, Request),
    /// The input begins with this many bytes of a request that is forwarded in parts.
    Part(usize, Request),
    /// The end of such a request, if there is one.
    Refused(usize, Request),
    /// The request is incomplete. These bytes are to be forwarded nevertheless.
    Incomplete(usize),
    /// The server will close the connection.
    Close,
}

impl Requests {
    fn new(
        mirror: Arc<Mirror>,
        dialect: Dialect,
        client: u64,
        to_primary: WriteHalf<Stream>,
        pending: mpsc::Sender<Pending>,
    ) -> Self {
        let limits = Limits { max_value: mirror.max_value };
        let (text, binary) = (Decoder::new(limits), binary::Decoder::new(limits));
        Self { mirror, dialect, client, text, binary, to_primary, output: Vec::new(), pending, partial: None }
    }

    /// Forwards requests until the client disconnects, `stop` becomes true, or the client
    /// `is_broken`.
    async fn run(
        mut self,
        client: ReadHalf<Stream>,
        input: Vec<u8>,
        mut stop: watch::Receiver<bool>,
        is_broken: &Notify,
    ) -> Result<()> {
        tokio::select! {
            forwarded = self.forward_all(client, input) => forwarded?,
            _ = stop.wait_for(|&stops| stops) => (),
            () = is_broken.notified() => (),
        }
        if let Some(partial) = self.partial.take() {
            // The primary has received a part of it.
            self.pending.send(partial).await?;
        }
        Ok(self.to_primary.shutdown().await?)
    }

    /// Forwards what the client sends until it disconnects or breaks. Fails if the primary does.
    async fn forward_all(&mut self, mut client: ReadHalf<Stream>, mut input: Vec<u8>) -> Result<()> {
        let mut is_over = false;
        loop {
            if !is_over {
                is_over = self.forward(&mut input).await?;
            }
            if is_over {
                // Whatever follows is not a request that can be compared.
                self.output.append(&mut input);
            }
            self.send().await?;
            input.reserve(READ);
            let Ok(1..) = client.read_buf(&mut input).await else { return Ok(()) };
        }
    }

    async fn send(&mut self) -> Result<()> {
        self.to_primary.write_all(&self.output).await?;
        self.output.clear();
        Ok(())
    }

    /// Forwards the requests in `input`. Returns whether no further request can be found.
    async fn forward(&mut self, input: &mut Vec<u8>) -> Result<bool> {
        let mut taken = 0;
        let is_over = loop {
            let rest = &input[taken..];
            let (consumed, request) = match self.decode(rest) {
                Step::Incomplete(consumed) => {
                    if consumed > 0 && self.partial.is_none() {
                        self.partial = Some(self.begin(Request::new(self.dialect, Verb::Keyless, Route::PrimaryOnly)));
                    }
                    self.output.extend_from_slice(&rest[..consumed]);
                    taken += consumed;
                    break false;
                }
                Step::Part(consumed, request) => {
                    self.partial = Some(self.begin(request));
                    self.output.extend_from_slice(&rest[..consumed]);
                    taken += consumed;
                    continue;
                }
                Step::Close => break true,
                Step::Request(consumed, request) => (consumed, self.begin(request)),
                Step::Refused(consumed, request) => {
                    let partial = self.partial.take();
                    (consumed, partial.unwrap_or_else(|| self.begin(request)))
                }
            };
            let (is_last, is_fence) = (request.request.route == Route::Last, request.request.is_fence);
            if !is_last {
                self.push(request).await?;
            }
            self.output.extend_from_slice(&input[taken..taken + consumed]);
            taken += consumed;
            if is_last {
                break true;
            }
            if !is_fence {
                self.output.extend_from_slice(self.dialect.fence());
            }
        };
        input.drain(..taken);
        Ok(is_over)
    }

    /// Queues a request for the task that receives the replies.
    async fn push(&mut self, pending: Pending) -> Result<()> {
        if let Err(mpsc::error::TrySendError::Full(pending)) = self.pending.try_send(pending) {
            // The primary has to receive the earlier requests before it can answer them.
            self.send().await?;
            self.pending.send(pending).await?;
        }
        Ok(())
    }

    fn begin(&self, mut request: Request) -> Pending {
        let is_copied = request.route == Route::Both;
        let is_for_primary = !is_copied && !request.is_fence && request.keys.is_empty();
        self.mirror.tally.count(|found| {
            found.requests += 1;
            found.not_compared.primary_only += u64::from(is_for_primary);
        });
        let flush = (request.verb == Verb::Flush).then(|| Flush::begin(&self.mirror.keys));
        let copy = is_copied.then(|| self.copy(&request)).flatten();
        let is_write = request.verb.is_write();
        if copy.is_none() {
            request.bytes = Vec::new();
        }
        // Without a copy for the secondary, a read does not matter.
        let keys = request.keys.iter().filter(|_| is_write || copy.is_some());
        let tickets = keys.map(|key| self.mirror.keys.begin(self.client, key, is_write)).collect();
        Pending { request, tickets, flush, copy }
    }

    /// Reserves what is needed to compare a request, if the secondary is used.
    fn copy(&self, request: &Request) -> Option<(u64, Charge)> {
        let generation = self.mirror.generation();
        let charge = generation.and_then(|generation| {
            let charge = self.mirror.charge(request.bytes.len());
            if charge.is_none() {
                self.mirror.fail(generation, "too many bytes wait for the secondary".into());
            }
            Some((generation, charge?))
        });
        self.mirror.tally.count(|found| found.not_compared.not_sent += u64::from(charge.is_none()));
        charge
    }

    fn decode(&mut self, input: &[u8]) -> Step {
        match self.dialect {
            Dialect::Text => self.decode_text(input),
            Dialect::Binary => self.decode_binary(input),
        }
    }

    fn decode_text(&mut self, input: &[u8]) -> Step {
        let with_bytes = |consumed, request| Request { bytes: input[..consumed].to_vec(), ..request };
        match self.text.decode(input) {
            Decoded::Command { consumed, command } => {
                Step::Request(consumed, with_bytes(consumed, Request::of_text(&command)))
            }
            Decoded::Reject { consumed, .. } => {
                let request = Request::new(Dialect::Text, Verb::Keyless, Route::Both);
                Step::Refused(consumed, with_bytes(consumed, request))
            }
            Decoded::TooLarge { consumed, key, .. } => Step::Part(consumed, self.too_large(key)),
            Decoded::Incomplete { consumed, .. } => Step::Incomplete(consumed),
            Decoded::Close => Step::Close,
        }
    }

    fn decode_binary(&mut self, input: &[u8]) -> Step {
        let with_bytes = |consumed, request| Request { bytes: input[..consumed].to_vec(), ..request };
        match self.binary.decode(input, true) {
            binary::Decoded::Request { consumed, request } => {
                Step::Request(consumed, with_bytes(consumed, Request::of_binary(&request)))
            }
            binary::Decoded::Reject { closes: true, .. } | binary::Decoded::Close => Step::Close,
            binary::Decoded::Reject { consumed, .. } => {
                let request = Request::new(Dialect::Binary, Verb::Keyless, Route::PrimaryOnly);
                Step::Refused(consumed, request)
            }
            binary::Decoded::TooLarge { consumed, key, .. } => Step::Part(consumed, self.too_large(key)),
            binary::Decoded::Incomplete { consumed } => Step::Incomplete(consumed),
        }
    }

    /// Returns a store that is not compared, because its value is too large to keep.
    fn too_large(&self, key: &[u8]) -> Request {
        self.mirror.tally.count(|found| found.not_compared.too_large += 1);
        Request { keys: vec![key.to_vec()], ..Request::new(self.dialect, Verb::Other, Route::PrimaryOnly) }
    }
}

/// From the primary to the client.
struct Replies {
    mirror: Arc<Mirror>,
    from_primary: ReadHalf<Stream>,
    to_client: WriteHalf<Stream>,
    splitter: Splitter,
    answered: mpsc::Receiver<Pending>,
    jobs: mpsc::Sender<Job>,
}

impl Replies {
    /// Forwards replies until the primary disconnects. Notifies `is_broken` if the client does not
    /// receive them.
    async fn run(mut self, is_broken: &Notify) {
        // However the connection to the primary has ended, the primary executes nothing more.
        let _ = self.forward(is_broken).await;
        // The client may be gone.
        let _ = self.to_client.shutdown().await;
        while let Ok(pending) = self.answered.try_recv() {
            let is_lost = pending.copy.is_some();
            self.mirror.tally.count(|found| found.not_compared.unanswered += u64::from(is_lost));
        }
    }

    async fn forward(&mut self, is_broken: &Notify) -> Result<()> {
        let (mut input, mut output, mut reply) = (vec![0; READ], Vec::with_capacity(READ), Vec::new());
        // Whether the current reply is too large to keep, and whether the client receives replies.
        let (mut is_too_large, mut is_connected) = (false, true);
        loop {
            let count = self.from_primary.read(&mut input).await?;
            if count == 0 {
                return Ok(());
            }
            let Self { mirror, splitter, answered, jobs, .. } = self;
            splitter.feed(&input[..count], |piece| {
                match piece {
                    Piece::Bytes(bytes) => {
                        output.extend_from_slice(bytes);
                        is_too_large |= reply.len() + bytes.len() > MAX_REPLY;
                        if !is_too_large {
                            reply.extend_from_slice(bytes);
                        }
                    }
                    Piece::Fence(bytes) => {
                        let pending = answered.try_recv().ok();
                        if pending.as_ref().is_none_or(|pending| pending.request.is_fence) {
                            output.extend_from_slice(bytes);
                        }
                        let reply = std::mem::take(&mut reply);
                        if let Some(pending) = pending {
                            submit(mirror, jobs, pending, reply, std::mem::take(&mut is_too_large));
                        }
                    }
                }
                Ok::<_, anyhow::Error>(())
            })?;
            if is_connected && self.to_client.write_all(&output).await.is_err() {
                is_connected = false;
                is_broken.notify_one();
            }
            output.clear();
        }
    }
}

/// Queues a request for the secondary. If that is not possible, drops it, which makes the key of a
/// write unknown.
fn submit(mirror: &Mirror, jobs: &mpsc::Sender<Job>, pending: Pending, reply: Vec<u8>, is_too_large: bool) {
    let Pending { request, tickets, flush, copy } = pending;
    let Some((generation, mut charge)) = copy else { return };
    if is_too_large {
        mirror.tally.count(|found| found.not_compared.too_large += 1);
        return;
    }
    let has_room = charge.grow(reply.len());
    let job = Job { request, tickets, reply, generation, _flush: flush, _charge: charge };
    if !has_room || jobs.try_send(job).is_err() {
        mirror.tally.count(|found| found.not_compared.not_sent += 1);
        mirror.fail(generation, "too many requests wait for the secondary".into());
    }
}
