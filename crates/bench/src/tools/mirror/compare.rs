//! Sends a client's requests to the secondary, and compares the replies.

use std::sync::Arc;

use anyhow::{Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::client::Flush;
use super::framing::{Dialect, Piece, Splitter};
use super::judge::{Difference, judge};
use super::keys::{State, Ticket};
use super::reply::{is_success, parts};
use super::request::Request;
use super::shadow::{Charge, Mirror, Stream, connect, is_open};

/// The maximum number of requests that are sent together.
const MAX_BATCH: usize = 256;

/// The maximum size of the replies to a batch.
const MAX_REPLIES: usize = 64 << 20;

/// A request with the primary's reply.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) request: Request,
    pub(super) tickets: Vec<Ticket>,
    pub(super) reply: Vec<u8>,
    pub(super) generation: u64,
    /// Lives until both servers have executed the request.
    pub(super) _flush: Option<Flush>,
    pub(super) _charge: Charge,
}

/// A connection to the secondary.
struct Link {
    generation: u64,
    stream: Stream,
    splitter: Splitter,
}

/// Handles the requests of one client until the queue is closed.
pub(super) async fn run(mirror: Arc<Mirror>, dialect: Dialect, mut queue: mpsc::Receiver<Job>) {
    let (mut waiting, mut link) = (Vec::with_capacity(MAX_BATCH), None);
    while queue.recv_many(&mut waiting, MAX_BATCH).await > 0 {
        while !waiting.is_empty() {
            // A request with a CAS value needs the outcome of the earlier requests.
            let next = waiting.iter().skip(1).position(|job| job.request.compare.is_some());
            let batch: Vec<Job> = waiting.drain(..next.map_or(waiting.len(), |next| next + 1)).collect();
            let generation = batch[0].generation;
            let sent = tokio::select! {
                sent = timeout(mirror.patience, handle(&mirror, dialect, &mut link, batch)) => sent,
                () = mirror.end_of(generation) => Ok(Ok(())),
            };
            let failure = match sent {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => format!("no reply within {} s", mirror.patience.as_secs_f64()),
            };
            link = None;
            mirror.fail(generation, failure);
        }
    }
}

/// Sends a batch to the secondary, and compares the replies.
async fn handle(mirror: &Mirror, dialect: Dialect, link: &mut Option<Link>, mut batch: Vec<Job>) -> Result<()> {
    let Some(generation) = mirror.generation() else { return Ok(()) };
    let before = batch.len();
    batch.retain(|job| job.generation == generation);
    mirror.tally.count(|found| found.not_compared.not_sent += (before - batch.len()) as u64);
    let mut output = Vec::new();
    batch.retain_mut(|job| {
        let bytes = for_secondary(mirror, job);
        if let Some(bytes) = &bytes {
            output.extend_from_slice(bytes);
            output.extend_from_slice(dialect.fence());
        }
        bytes.is_some()
    });
    if batch.is_empty() {
        return Ok(());
    }
    let is_usable = match link {
        Some(link) => link.generation == generation && is_open(&mut link.stream).await,
        None => false,
    };
    if !is_usable {
        let stream = connect(&mirror.secondary).await?;
        *link = Some(Link { generation, stream, splitter: Splitter::new(dialect) });
    }
    // If this future is dropped, so is the connection, in the middle of a reply.
    let mut open = link.take().expect("it was made");
    let replies = exchange(&mut open, &output, batch.len()).await?;
    *link = Some(open);
    batch.into_iter().zip(replies).for_each(|(job, reply)| compare(mirror, job, &reply));
    Ok(())
}

/// Returns the bytes to send to the secondary. CAS values are each server's own, so they are
/// translated. If the secondary's CAS value is unknown, the request is sent without one if the
/// primary executed it, and not at all otherwise.
fn for_secondary(mirror: &Mirror, job: &mut Job) -> Option<Vec<u8>> {
    let Job { request, tickets, reply, .. } = job;
    let Some(compare) = request.compare else { return Some(request.bytes.clone()) };
    let cas = tickets.first().and_then(|ticket| mirror.keys.secondary_cas(ticket, compare));
    if cas.is_some() || is_success(request, reply) {
        return Some(request.with_cas(cas));
    }
    mirror.tally.count(|found| found.not_compared.cas_unknown += 1);
    if !reply.is_empty() {
        // The primary refused the request, so the item is the same as before. Without a reply that
        // is not known, and the key becomes unknown.
        tickets.drain(..).for_each(|ticket| ticket.finish(|state| ((), state.unwrap_or_default())));
    }
    None
}

/// Sends `output`, and returns this number of replies.
async fn exchange(link: &mut Link, output: &[u8], count: usize) -> Result<Vec<Vec<u8>>> {
    let Link { stream, splitter, .. } = link;
    let (mut from, mut to) = tokio::io::split(stream);
    let receive = async {
        let (mut replies, mut reply, mut size) = (Vec::with_capacity(count), Vec::new(), 0);
        let mut input = vec![0; 64 << 10];
        while replies.len() < count {
            let received = from.read(&mut input).await?;
            if received == 0 {
                bail!("the secondary closed a connection with unanswered requests");
            }
            size += received;
            if size > MAX_REPLIES {
                bail!("the secondary's replies do not end");
            }
            splitter.feed(&input[..received], |piece| {
                match piece {
                    Piece::Bytes(bytes) => reply.extend_from_slice(bytes),
                    Piece::Fence(_) => replies.push(std::mem::take(&mut reply)),
                }
                Ok::<_, anyhow::Error>(())
            })?;
        }
        if replies.len() > count || !reply.is_empty() {
            bail!("the secondary sent a reply without a request");
        }
        Ok(replies)
    };
    let send = async { Ok(to.write_all(output).await?) };
    Ok(tokio::try_join!(receive, send)?.0)
}

fn compare(mirror: &Mirror, job: Job, secondary: &[u8]) {
    let Job { request, tickets, reply: primary, .. } = job;
    let tally = &mirror.tally;
    let Some(primary_parts) = parts(&request, &primary) else {
        tally.count(|found| found.not_compared.not_understood += 1);
        return;
    };
    let Some(secondary_parts) = parts(&request, secondary).filter(|parts| parts.len() == primary_parts.len()) else {
        let key = request.keys.first().zip(tickets.first()).map(|(key, ticket)| (&key[..], ticket.hash));
        tally.differ(Difference::Malformed, &request, key, [[&primary, b""], [secondary, b""]]);
        return;
    };
    if tickets.is_empty() {
        let replies = [&primary_parts[0], &secondary_parts[0]];
        let (verdict, _) = judge(&request, Some(State::Unknown), replies[0], replies[1]);
        tally.note(verdict, &request, None, replies);
    }
    for ((ticket, key), replies) in
        tickets.into_iter().zip(&request.keys).zip(primary_parts.iter().zip(&secondary_parts))
    {
        let hash = ticket.hash;
        let verdict = ticket.finish(|state| judge(&request, state, replies.0, replies.1));
        tally.note(verdict, &request, Some((key, hash)), [replies.0, replies.1]);
    }
}
