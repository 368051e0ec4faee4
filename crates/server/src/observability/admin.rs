//! `--admin`: HTTP for operators. It serves metrics for Prometheus, statistics in JSON, a health
//! check, and a status page that shows them live.
//!
//! It is for a browser and a few scrapers, so it is plain: a thread that accepts, a few others
//! ([`VISITORS`]) that answer one request each and close, all within [`http::PATIENCE`]. Requests
//! are bounded and change nothing, and answers contain no key or value. Ten times a second the
//! accepting thread also notes the size of the table, because resizes are over in milliseconds.
//! Statistics that need a look at every bucket are gathered piece by piece ([`report::Survey`]), so
//! no request waits for more than one piece.

mod history;
mod http;
mod metrics;
mod report;

use crate::execute::SharedState;
use crate::limits::connections::{ConnectionLimit, ConnectionPermit};
use crate::net::Stopper;
use crate::observability::log::{Level, Log};
use history::{History, Moment};
use http::{Request, Response};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use relativist_cache::{TableStats, Usage};
use report::Survey;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Requests answered at a time.
const VISITORS: usize = 8;

/// The time that one visitor beyond the limit may take: a silent client must not block health
/// checks.
const HURRY: Duration = Duration::from_millis(500);

/// How often the table is looked at.
const TICK: Duration = Duration::from_millis(100);

/// The page, in which everything is that it needs.
const STATUS_PAGE: &str = include_str!("admin/status.html");

/// A bound listener.
pub(crate) struct Admin(TcpListener);

/// A running server of operators; dropping it stops it.
pub(crate) struct AdminHandle {
    address: Option<SocketAddr>,
    panel: Weak<OnceLock<Panel>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The data for answers.
struct Panel {
    shared: Arc<SharedState>,
    stopper: Stopper,
    started: Instant,
    history: Mutex<History>,
    survey: Mutex<Survey>,
}

impl Admin {
    /// Listens on `address`.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Admin> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Admin(TcpListener::from_std(listener)))
    }

    /// Serves in a thread of its own. Until the handle is opened it answers that the server starts.
    pub(crate) fn start(self) -> io::Result<AdminHandle> {
        let (stop, stopped) = mpsc::channel();
        let address = self.0.local_addr().ok();
        let panel = Arc::new(OnceLock::new());
        // Only the thread owns the panel, so the panel is dropped when the thread ends.
        let weak = Arc::downgrade(&panel);
        let poll = Poll::new()?;
        let thread = thread::Builder::new().name("admin".into()).spawn(move || {
            let log = Log::new(0);
            if let Err(error) = serve(self.0, poll, &panel, &log, &stopped) {
                log.say(Level::Warning, format_args!("--admin is out of shared: {error}"));
            }
        })?;
        Ok(AdminHandle { address, panel: weak, stop: Some(stop), thread: Some(thread) })
    }
}

impl AdminHandle {
    /// Answers about `service` from now on. `stopper` says when the server is about to end.
    pub(crate) fn open(&self, shared: &Arc<SharedState>, stopper: Stopper) {
        // Without a panel the thread has failed, and has logged that.
        if let Some(panel) = self.panel.upgrade() {
            panel.get_or_init(|| Panel {
                shared: Arc::clone(shared),
                stopper,
                started: Instant::now(),
                history: Mutex::default(),
                survey: Mutex::default(),
            });
        }
    }
}

impl AdminHandle {
    /// Where it listens.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl Drop for AdminHandle {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of this thread is no reason to end differently: the cache has served all the
            // same.
            let _ = thread.join();
        }
    }
}

/// Accepts until stopped, then waits for the visitors being answered.
fn serve(
    mut listener: TcpListener,
    mut poll: Poll,
    panel: &OnceLock<Panel>,
    log: &Log,
    stopped: &Receiver<()>,
) -> io::Result<()> {
    let (gate, last_place) = (ConnectionLimit::new(VISITORS), ConnectionLimit::new(1));
    let mut events = Events::with_capacity(1);
    poll.registry().register(&mut listener, Token(0), Interest::READABLE)?;
    thread::scope(|scope| {
        while stopped.try_recv() != Err(TryRecvError::Disconnected) {
            match poll.poll(&mut events, Some(TICK)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => panel.get().into_iter().for_each(Panel::tick),
            }
            // Accepts all waiting clients, because their arrival is announced only once. Errors are
            // transient, such as a lack of descriptors.
            while let Ok((stream, _)) = listener.accept() {
                // Beyond the limit the connection is closed without an answer, as there may be
                // many.
                let place = gate.admit().map(|pass| (pass, http::PATIENCE));
                let Some((pass, patience)) = place.or_else(|| Some((last_place.admit()?, HURRY))) else { continue };
                let visitor = move || receive(panel, TcpStream::from(stream), patience, pass);
                if let Err(error) = thread::Builder::new().name("admin-visitor".into()).spawn_scoped(scope, visitor) {
                    log.say(Level::Warning, format_args!("--admin cannot answer: {error}"));
                }
            }
        }
        Ok(())
    })
}

fn receive(panel: &OnceLock<Panel>, stream: TcpStream, patience: Duration, _pass: ConnectionPermit) {
    // A client that sends no request, or reads no answer, gets none.
    let _ = http::answer(stream, patience, |request| match panel.get() {
        Some(panel) => panel.respond(request),
        None => Response::unavailable("starting\n"),
    });
}

impl Panel {
    /// Notes the size of the table and goes on with a survey that has begun: every [`TICK`], or
    /// sooner.
    fn tick(&self) {
        self.note_size();
        let mut survey = self.survey();
        if survey.is_under_way() {
            survey.go_on(|stats, cursor| self.shared.engine.sample_buckets(stats, cursor));
        }
    }

    fn note_size(&self) {
        let Usage { items, buckets, is_resizing, .. } = self.shared.engine.usage();
        let moment = Moment { at: self.milliseconds(), items, buckets, is_resizing };
        self.history.lock().unwrap_or_else(PoisonError::into_inner).note(moment);
    }

    fn milliseconds(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn respond(&self, request: Request<'_>) -> Response {
        match request.path {
            "/" => Response::ok("text/html; charset=utf-8", STATUS_PAGE),
            "/stats.json" => Response::ok("application/json", report::json(self).to_string()),
            "/metrics" => Response::ok("text/plain; version=0.0.4; charset=utf-8", metrics::text(self)),
            "/healthz" if self.stopper.is_stopping() => Response::unavailable("stopping\n"),
            "/healthz" => Response::ok("text/plain; charset=utf-8", "ok\n"),
            _ => Response::not_found(),
        }
    }

    /// Statistics of the table's buckets, and their age. Looks at a limited number of buckets.
    fn look(&self) -> (TableStats, Duration) {
        let mut survey = self.survey();
        survey.refresh(|stats, cursor| self.shared.engine.sample_buckets(stats, cursor));
        survey.result()
    }

    fn survey(&self) -> MutexGuard<'_, Survey> {
        self.survey.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
