//! `--admin`: HTTP for operators. It serves metrics for Prometheus, statistics in JSON, health
//! checks, and a status page that shows them live.
//!
//! The clients are a browser and a few scrapers, so the server is simple: one thread accepts,
//! answers one request of each client, and closes the connection. It never waits for a client:
//! [`clients`] has those whose request is incomplete, or that have not taken their reply yet.
//! Requests are bounded and change nothing, and replies contain no key or value. Ten times a second
//! the thread also records the size of the table, because resizes are over in milliseconds.
//! Statistics that need a look at every bucket, or every item, are gathered piece by piece
//! (see [`Tenant::surveys`](crate::execute::Tenant::surveys)), so no request waits for more than
//! one piece.
//!
//! `httparse` parses the requests. A crate with a whole HTTP server would bring what is not needed
//! here, bodies and kept connections, and most bring an async runtime. The bounds on memory, time,
//! and clients would still have to be written.

mod clients;
mod history;
mod http;
mod metrics;
mod panel;
mod report;
mod tenants;

use crate::execute::SharedState;
use crate::observability::log::{Level, Log};
use crate::process::inherited::Inherited;
use crate::process::stopper::Stopper;
use clients::{Clients, MAX_CLIENTS};
use http::{Hosts, Request, Response};
use metrics::Format;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use panel::Panel;
use socket2::Type;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often the size of the table is recorded.
const TICK: Duration = Duration::from_millis(100);

/// Events of the listening socket. Those of clients have smaller numbers.
const LISTENER: Token = Token(usize::MAX);

/// The check for whether the process is alive, also while it starts or stops. `/readyz` is the one
/// for whether it serves new clients.
const HEALTH: &str = "/healthz";

/// The status page, which loads nothing else.
const STATUS_PAGE: &str = include_str!("admin/status.html");

/// A bound listener, and the host names by which clients may address it.
pub(crate) struct Admin(TcpListener, Hosts);

/// A running server for operators. Dropping the handle stops it.
pub(crate) struct AdminHandle {
    address: Option<SocketAddr>,
    panel: Weak<OnceLock<Panel>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens on `address`, or inherits the socket that does. Answers requests to IP addresses,
    /// localhost and `hosts`.
    pub(crate) fn bind(address: SocketAddr, hosts: &[String], inherited: &Inherited) -> io::Result<Admin> {
        let bind = || std::net::TcpListener::bind(address);
        let listener = inherited.at(Type::STREAM, address).map_or_else(bind, |socket| Ok(socket.into()))?;
        listener.set_nonblocking(true)?;
        Ok(Admin(TcpListener::from_std(listener), Hosts::new(hosts)))
    }

    /// Another descriptor of the socket.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }

    /// Serves in a thread of its own. Until the handle is opened, the reply is that the server is
    /// starting (but [`HEALTH`] is answered).
    pub(crate) fn start(self) -> io::Result<AdminHandle> {
        let (stop, stopped) = mpsc::channel();
        let address = self.0.local_addr().ok();
        let panel = Arc::new(OnceLock::new());
        // Only the thread owns the panel, so the panel is dropped when the thread ends.
        let weak = Arc::downgrade(&panel);
        let poll = Poll::new()?;
        let thread = thread::Builder::new().name("admin".into()).spawn(move || {
            if let Err(error) = serve(self, poll, &panel, &stopped) {
                Log::new(0).write(Level::Warning, format_args!("--admin has failed: {error}"));
            }
        })?;
        Ok(AdminHandle { address, panel: weak, stop: Some(stop), thread: Some(thread) })
    }
}

impl AdminHandle {
    /// Answers from `shared` from now on. `stopper` knows whether the server is stopping.
    pub(crate) fn open(&self, shared: &Arc<SharedState>, stopper: Stopper) {
        // Without a panel the thread has failed, and has logged that.
        if let Some(panel) = self.panel.upgrade() {
            panel.get_or_init(|| Panel::new(Arc::clone(shared), stopper));
        }
    }
}

impl AdminHandle {
    /// The address that it listens on.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl Drop for AdminHandle {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of this thread does not change how the server ends, because the cache was not
            // affected.
            let _ = thread.join();
        }
    }
}

/// Serves until stopped, and then the clients that have not taken all of their reply.
fn serve(
    Admin(mut listener, hosts): Admin,
    mut poll: Poll,
    panel: &OnceLock<Panel>,
    stopped: &Receiver<()>,
) -> io::Result<()> {
    let is_handed_over = || panel.get().is_some_and(|panel| panel.shared.gate.is_handed_over());
    let respond = |request: Request<'_>| match panel.get() {
        _ if !hosts.allow(request) => Response::misdirected(),
        Some(panel) => panel.respond(request),
        None if request.path == HEALTH => healthy(),
        None => Response::unavailable("starting\n"),
    };
    let mut clients = Clients::default();
    let mut events = Events::with_capacity(1 + MAX_CLIENTS);
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut may_accept_more = false;
    loop {
        let is_ending = stopped.try_recv() == Err(TryRecvError::Disconnected) || is_handed_over();
        if is_ending && !clients.keep_answered() {
            return Ok(());
        }
        match poll.poll(&mut events, Some(if may_accept_more { Duration::ZERO } else { TICK })) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => panel.get().into_iter().for_each(Panel::tick),
        }
        for event in events.iter().filter(|event| event.token() != LISTENER) {
            clients.advance(event.token(), respond);
        }
        // Not all that wait: there may be no end to them. Errors are transient, such as a lack of
        // descriptors.
        may_accept_more = !is_ending
            && (0..MAX_CLIENTS).all(|_| {
                let accepted = listener.accept();
                accepted.is_ok_and(|(stream, _)| {
                    clients.admit(stream, poll.registry(), Instant::now(), respond);
                    true
                })
            });
        clients.close_late(Instant::now());
    }
}

fn healthy() -> Response {
    Response::ok("text/plain; charset=utf-8", "ok\n")
}

impl Panel {
    fn respond(&self, request: Request<'_>) -> Response {
        match request.path {
            "/" => Response::ok("text/html; charset=utf-8", STATUS_PAGE),
            "/stats.json" => Response::ok("application/json", report::json(self).to_string()),
            "/metrics" => {
                let format = Format::wanted(request.accept);
                Response::ok(format.content_type(), metrics::text(self, format))
            }
            HEALTH => healthy(),
            "/readyz" if self.stopper.is_stopping() => Response::unavailable("stopping\n"),
            "/readyz" => healthy(),
            _ => Response::not_found(),
        }
    }
}
