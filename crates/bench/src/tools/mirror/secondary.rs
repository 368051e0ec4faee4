//! The secondary: whether it is used, and the comparison of its replies.
//!
//! Nothing that the secondary does delays a client. Requests for it wait in a queue of bounded
//! size. If the queue overflows, a reply takes too long, or a connection breaks, the secondary is
//! dropped: the mirror forgets what it holds, and sends nothing until it answers again.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use relativist_check::client::reply::Encoding;
use relativist_check::client::{Address, shown};
use socket2::Socket;

use super::judge::{is_success, judge, parts};
use super::keys::{Flush, Keys, State, Ticket};
use super::link::{Link, MAX_BATCH, MAX_BYTES};
use super::report::{Fate, Tally};
use super::request::Request;

/// What all connections share.
#[derive(Debug)]
pub(super) struct Mirror {
    pub(super) primary: Address,
    pub(super) secondary: Address,
    /// How long a reply of the secondary may take.
    pub(super) patience: Duration,
    /// The largest request that is compared.
    pub(super) largest: usize,
    pub(super) keys: Arc<Keys>,
    pub(super) tally: Tally,
    /// Bytes of requests and replies that wait for the secondary, and their maximum.
    waiting: AtomicUsize,
    max_waiting: usize,
    usage: Mutex<Usage>,
}

#[derive(Debug)]
struct Usage {
    /// How often the secondary became usable.
    generation: u64,
    is_used: bool,
    /// The connections of this generation.
    links: Vec<Weak<Socket>>,
}

impl Mirror {
    pub(super) fn new(
        [primary, secondary]: [Address; 2],
        patience: Duration,
        largest: usize,
        max_waiting: usize,
        tally: Tally,
    ) -> Self {
        let (waiting, usage) =
            (AtomicUsize::new(0), Mutex::new(Usage { generation: 1, is_used: true, links: Vec::new() }));
        Self { primary, secondary, patience, largest, keys: Keys::new(), tally, waiting, max_waiting, usage }
    }

    /// Returns the generation if the secondary is used.
    pub(super) fn generation(&self) -> Option<u64> {
        let usage = self.usage.lock();
        usage.is_used.then_some(usage.generation)
    }

    /// Stops using the secondary, unless another connection has done that already.
    pub(super) fn fail(&self, generation: u64, reason: String) {
        let mut usage = self.usage.lock();
        if usage.is_used && usage.generation == generation {
            usage.is_used = false;
            // Threads that wait for replies end.
            usage
                .links
                .drain(..)
                .filter_map(|link| link.upgrade())
                .for_each(|link| drop(link.shutdown(Shutdown::Both)));
            self.keys.forget_all();
            self.tally.begin_outage(reason);
        }
    }

    /// Opens a connection to the secondary, which breaks when this generation ends.
    fn open(&self, encoding: Encoding) -> Result<Link> {
        let link = self.connect(&self.secondary, encoding)?;
        let mut usage = self.usage.lock();
        ensure!(usage.is_used, "the secondary is not used");
        usage.links.retain(|link| link.strong_count() > 0);
        usage.links.push(Arc::downgrade(&link.socket));
        Ok(link)
    }

    /// Uses the secondary again if it was dropped and answers.
    pub(super) fn try_again(&self) {
        if self.generation().is_none() && self.probe(&self.secondary).is_ok() {
            let mut usage = self.usage.lock();
            self.keys.forget_all();
            self.tally.end_outage();
            (usage.generation, usage.is_used) = (usage.generation + 1, true);
        }
    }

    /// Connects to a server whose replies may take as long as those of the secondary.
    fn connect(&self, address: &Address, encoding: Encoding) -> Result<Link> {
        let socket = address.connect_within(self.patience)?;
        socket.set_read_timeout(Some(self.patience))?;
        socket.set_write_timeout(Some(self.patience))?;
        Ok(Link::new(socket, encoding))
    }

    /// Checks that a server answers, and knows the request that the mirror uses as fence.
    pub(super) fn probe(&self, address: &Address) -> Result<()> {
        let ask = || self.connect(address, Encoding::Text)?.exchange(Encoding::Text.fence(), 1, &mut Vec::new());
        ask().with_context(|| {
            format!(
                "{address} does not reply to the meta command mn; mirror needs memcached 1.6 or later, and no login"
            )
        })
    }

    /// Whether no request waits for the secondary.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.load(Relaxed) == 0
    }

    /// Reserves memory for a request and its reply.
    pub(super) fn charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let mut charge = Charge { mirror: Arc::clone(self), bytes: 0 };
        charge.grow(bytes).then_some(charge)
    }
}

/// Memory for a request that waits for the secondary.
#[derive(Debug)]
pub(super) struct Charge {
    mirror: Arc<Mirror>,
    bytes: usize,
}

impl Charge {
    /// Reserves more. Returns whether the limit allows that.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        // Relaxed, here and below: the counter orders no other data.
        let before = self.mirror.waiting.fetch_add(bytes, Relaxed);
        self.bytes += bytes;
        before + bytes <= self.mirror.max_waiting
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.mirror.waiting.fetch_sub(self.bytes, Relaxed);
    }
}

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

/// Handles the requests of one client until the queue is closed.
pub(super) fn compare_all(mirror: &Mirror, encoding: Encoding, queue: &Receiver<Job>) {
    let (mut link, mut next) = (None, None);
    while let Some(first) = next.take().or_else(|| queue.recv().ok()) {
        let generation = first.generation;
        let mut size = first.request.bytes.len();
        let mut batch = vec![first];
        while batch.len() < MAX_BATCH
            && let Ok(job) = queue.try_recv()
        {
            size += job.request.bytes.len();
            if size > MAX_BYTES || job.generation != generation {
                next = Some(job);
                break;
            }
            batch.push(job);
        }
        if mirror.generation() != Some(generation) {
            link = None;
            mirror.tally.count(Fate::NotSent, batch.len());
        } else if let Err(error) = handle(mirror, encoding, &mut link, batch) {
            link = None;
            let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
            let is_late = matches!(kind, Some(ErrorKind::WouldBlock | ErrorKind::TimedOut));
            let late = || format!("no reply within {} s", mirror.patience.as_secs_f64());
            mirror.fail(generation, if is_late { late() } else { format!("{error:#}") });
        }
    }
}

/// Sends a batch to the secondary, and compares the replies.
fn handle(mirror: &Mirror, encoding: Encoding, link: &mut Option<Link>, mut batch: Vec<Job>) -> Result<()> {
    let (mut output, mut replies) = (Vec::new(), Vec::new());
    batch.retain_mut(|job| {
        let bytes = for_secondary(mirror, job);
        output.extend_from_slice(&bytes);
        output.extend_from_slice(if bytes.is_empty() { b"" } else { encoding.fence() });
        !bytes.is_empty()
    });
    if batch.is_empty() {
        return Ok(());
    }
    let link = match link {
        Some(link) if link.is_open() => link,
        _ => link.insert(mirror.open(encoding)?),
    };
    link.exchange(&output, batch.len(), &mut replies)?;
    ensure!(link.rest().is_empty(), "the secondary sent a reply without a request");
    batch.into_iter().zip(replies).for_each(|(job, (reply, _))| compare(mirror, job, &reply));
    Ok(())
}

/// Returns the bytes to send to the secondary. CAS values are each server's own. So a request with
/// one is sent without it if the primary executed it, and not at all otherwise.
fn for_secondary(mirror: &Mirror, job: &mut Job) -> Vec<u8> {
    let Job { request, tickets, reply, .. } = job;
    if !request.compares {
        return request.bytes.clone();
    }
    if is_success(request, reply) {
        return request.without_cas();
    }
    mirror.tally.count(Fate::CasUnknown, 1);
    if !reply.is_empty() {
        // The primary refused the request, so the item is the same as before. Without a reply that
        // is not known, and the key becomes unknown.
        tickets.drain(..).for_each(|ticket| ticket.finish(|state| ((), state.unwrap_or_default())));
    }
    Vec::new()
}

fn compare(mirror: &Mirror, job: Job, secondary: &[u8]) {
    let Job { request, tickets, reply: primary, .. } = job;
    let tally = &mirror.tally;
    let Some(primary_parts) = parts(&request, &primary) else { return tally.count(Fate::NotUnderstood, 1) };
    let Some(secondary_parts) = parts(&request, secondary).filter(|parts| parts.len() == primary_parts.len()) else {
        let key = request.keys.first().zip(tickets.first()).map(|(key, ticket)| (&key[..], ticket.hash));
        return tally.note(Fate::Malformed, &request, key, || [shown(&primary), shown(secondary)]);
    };
    let mut replies = primary_parts.iter().zip(&secondary_parts);
    if let (true, Some((one, other))) = (tickets.is_empty(), replies.clone().next()) {
        let (fate, _) = judge(&request, Some(State::Unknown), one, other);
        tally.note(fate, &request, None, || [one.show(), other.show()]);
    }
    for (ticket, key) in tickets.into_iter().zip(&request.keys) {
        let Some((one, other)) = replies.next() else { return };
        let hash = ticket.hash;
        let fate = ticket.finish(|state| judge(&request, state, one, other));
        if request.is_read() {
            tally.update(|found| {
                found.reads += 1;
                let hits = [one, other].map(|part| u64::from(part.presence == Some(true)));
                found.hits.iter_mut().zip(hits).for_each(|(sum, hit)| *sum += hit);
            });
        }
        tally.note(fate, &request, Some((key, hash)), || [one.show(), other.show()]);
    }
}
