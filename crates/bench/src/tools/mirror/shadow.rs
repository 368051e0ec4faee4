//! The secondary: its connections, and whether it is used.
//!
//! Nothing that the secondary does delays a client. Requests for it wait in a queue of bounded
//! size. If the queue overflows, a reply takes too long, or a connection breaks, the secondary is
//! dropped: the mirror forgets what it holds, and sends nothing until it answers again.

use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::timeout;

use super::framing::Dialect;
use super::keys::Keys;
use super::tally::Tally;
use relativist_check::client::Address;
use relativist_check::client::shown;

/// The generation while the secondary is not used.
const DOWN: u64 = 0;

/// How long to wait before connecting to the secondary again. Doubles after each attempt.
const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// A secondary that was used for this long gets the shortest backoff after its next failure.
const STABLE: Duration = Duration::from_secs(60);

pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub(super) type Stream = Box<dyn Duplex>;

pub(super) async fn connect(address: &Address) -> std::io::Result<Stream> {
    Ok(match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
        Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
    })
}

/// Returns whether a connection without unanswered requests is still open.
pub(super) async fn is_open(stream: &mut Stream) -> bool {
    let mut byte = [0];
    std::future::poll_fn(|context| {
        let read = Pin::new(&mut *stream).poll_read(context, &mut ReadBuf::new(&mut byte));
        Poll::Ready(read.is_pending())
    })
    .await
}

/// Checks that a server answers, and knows the request that the mirror uses as fence.
pub(super) async fn probe(address: &Address, patience: Duration) -> Result<()> {
    let ask = async {
        let mut stream = connect(address).await?;
        stream.write_all(Dialect::Text.fence()).await?;
        let mut reply = Vec::new();
        while !reply.ends_with(b"\n") && reply.len() < 100 {
            if stream.read_buf(&mut reply).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok::<_, std::io::Error>(reply)
    };
    let Ok(answered) = timeout(patience, ask).await else { bail!("no reply from {address}") };
    let reply = answered.with_context(|| format!("cannot talk to {address}"))?;
    ensure!(
        reply == b"MN\r\n",
        "{address} does not know the meta command mn, or requires a login: {}; mirror needs memcached 1.6 or later",
        shown(&reply)
    );
    Ok(())
}

/// What all connections share.
#[derive(Debug)]
pub(super) struct Mirror {
    pub(super) primary: Address,
    pub(super) secondary: Address,
    /// How long a reply of the secondary may take.
    pub(super) patience: Duration,
    pub(super) max_value: usize,
    pub(super) keys: Arc<Keys>,
    pub(super) tally: Tally,
    /// Bytes of requests and replies that wait for the secondary, and their maximum.
    waiting: AtomicUsize,
    max_waiting: usize,
    /// Counts how often the secondary became usable; [`DOWN`] while it is not.
    generation: watch::Sender<u64>,
}

impl Mirror {
    pub(super) fn new(
        addresses: [Address; 2],
        patience: Duration,
        max_value: usize,
        max_waiting: usize,
        tally: Tally,
    ) -> Self {
        let [primary, secondary] = addresses;
        let (waiting, generation) = (AtomicUsize::new(0), watch::Sender::new(1));
        Self { primary, secondary, patience, max_value, keys: Keys::new(), tally, waiting, max_waiting, generation }
    }

    /// Returns the generation if the secondary is used.
    pub(super) fn generation(&self) -> Option<u64> {
        Some(*self.generation.borrow()).filter(|&generation| generation != DOWN)
    }

    /// Waits until this generation is over.
    pub(super) async fn end_of(&self, generation: u64) {
        let mut changes = self.generation.subscribe();
        // The sender lives as long as this object.
        let _ = changes.wait_for(|&now| now != generation).await;
    }

    /// Stops using the secondary, unless another connection has done that already.
    pub(super) fn fail(&self, generation: u64, reason: String) {
        self.generation.send_if_modified(|now| {
            let is_first = *now == generation;
            if is_first {
                *now = DOWN;
                self.keys.forget_all();
                self.tally.begin_outage(reason);
            }
            is_first
        });
    }

    /// Waits for failures of the secondary, and connects to it again.
    pub(super) async fn watch_secondary(&self) {
        let (mut generation, mut backoff) = (1, MIN_BACKOFF);
        loop {
            let begun = tokio::time::Instant::now();
            self.end_of(generation).await;
            if begun.elapsed() > STABLE {
                backoff = MIN_BACKOFF;
            }
            loop {
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(MAX_BACKOFF);
                if probe(&self.secondary, self.patience).await.is_ok() {
                    break;
                }
            }
            generation += 1;
            self.keys.forget_all();
            self.tally.end_outage();
            self.generation.send_replace(generation);
        }
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
