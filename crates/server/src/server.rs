//! The server, which consists of cache, execution and network.
//!
//! It starts in stages, because their order matters. Each stage is a type made from the one before:
//!
//! 1. [`Privileged`]: the process reads files that root may have to read, and binds ports that root
//!    may have to bind. They do not listen yet. A successor (`--take-over`) gets those of its
//!    predecessor, which listen.
//! 2. [`Unprivileged`]: it gives up root, does what root must not do in a user's folders, and
//!    enters the sandbox.
//! 3. [`Loaded`]: it reads the snapshot, which is not trusted. That may take minutes, in which
//!    `/readyz` of `--admin` answers "starting". Or it takes the items of its predecessor.
//! 4. [`Server`]: its ports listen.

mod background;
pub mod signals;
mod sockets;

use crate::admin::{Admin, AdminHandle};
use crate::error::StartError;
use crate::execute::{SessionRegistry, SharedState, Tenants, Tuning};
use crate::handover::{HandOver, Predecessor};
use crate::limits::buffers::BufferLimit;
use crate::limits::connections::ConnectionLimit;
use crate::limits::long_turns::LongTurns;
use crate::net::{Acceptor, Io, Listener, UdpServer, WorkerHandle, check_host, port_file, write_port_file};
use crate::observability::log::{Level, Log, notice};
use crate::options::{CommandLine, LiveOptions, Options};
use crate::process::files::folder;
use crate::process::gate::Gate;
use crate::process::inherited::Passed;
use crate::process::stopper::Stopper;
use crate::process::{daemon, memory, resources};
use crate::reload::Reloader;
use crate::security::auth::Users;
use crate::security::privileges;
use crate::security::sandbox;
use crate::security::tls::Tls;
use crate::snapshot::record::{SnapshotRecord, Written};
use crate::snapshot::{Occasion, Restored, Snapshot};
use crate::tenants::{Caches, Plan};
use background::Background;
use mio::net::UdpSocket;
use nix::unistd::{AccessFlags, access};
use relativist_store::{Cache, Clock, Ticker};
use socket2::Socket;
use sockets::{Listening, Sockets};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Environment variable that names the file with the users for SASL.
const SASL_FILE_VARIABLE: &str = "MEMCACHED_SASL_PWDB";

/// How often the cache is maintained, and the server looks for storms.
const MAINTENANCE: Duration = Duration::from_secs(1);

/// How often the events of sampled keys are collected, and watchers that were full get more lines.
const OFTEN: Duration = Duration::from_millis(100);

/// A server that listens on its addresses.
pub struct Server {
    shared: Arc<SharedState>,
    io: Io,
    acceptor: Acceptor,
    udp: Vec<UdpSocket>,
    admin: Option<AdminHandle>,
    snapshot: Option<Arc<Snapshot>>,
    restored: Option<Restored>,
    predecessor: Option<Predecessor>,
    /// The socket for successors.
    hand_over: Option<Socket>,
}

/// A server whose process may still run as root.
struct Privileged<'o> {
    options: &'o Options,
    log: Log,
    tls: Option<Tls>,
    sockets: Sockets,
    predecessor: Option<Predecessor>,
}

/// A server whose process has given up root, and is confined to what it needs.
struct Unprivileged<'o> {
    options: &'o Options,
    log: Log,
    tls: Option<Tls>,
    sockets: Sockets,
    predecessor: Option<Predecessor>,
    /// The sockets for a successor.
    offered: Passed,
    io: Io,
    users: Option<Users>,
    /// The division of the memory among the tenants.
    plan: Plan,
    snapshot: Option<Snapshot>,
    port_file: Option<PathBuf>,
}

/// A server that has read its items.
struct Loaded<'o> {
    start: Unprivileged<'o>,
    admin: Option<AdminHandle>,
    ticker: Ticker,
    caches: Caches,
    restored: Option<Restored>,
}

impl Server {
    /// Reads the files that `options` name, and then listens on their addresses. Clients may
    /// connect from now on, and are served once the server runs.
    ///
    /// # Errors
    /// When the server cannot listen on an address, the options contradict each other, or there is
    /// no such user to switch to.
    pub fn bind(options: &Options) -> Result<Server, StartError> {
        Server::bind_with(options, |cache| cache)
    }

    /// Checks that a server with these options can start. Opens no port, and changes nothing.
    ///
    /// # Errors
    /// When the options contradict each other, or name something that is missing or wrong.
    pub fn check(options: &Options) -> Result<(), StartError> {
        options.check()?;
        ticker()?;
        let log = Log::new(options.verbose);
        Tls::new(options, &log)?;
        plan(options, users(options, &log)?.as_ref())?;
        snapshot(options)?;
        options.user.as_deref().map(privileges::user).transpose()?;
        let made = [(&options.unix_socket, "-s"), (&options.pidfile, "-P"), (&options.hand_over, "--hand-over")];
        for (path, flag) in made {
            if let Some(path) = path {
                access(folder(path), AccessFlags::W_OK | AccessFlags::X_OK)
                    .map_err(io::Error::from)
                    .map_err(|error| StartError::System(format!("cannot make {} ({flag})", path.display()), error))?;
            }
        }
        for address in &options.listen {
            check_host(address)
                .map_err(|error| StartError::System(format!("cannot listen on {address} (-l)"), error))?;
        }
        Ok(())
    }
}

impl<'o> Privileged<'o> {
    fn new(options: &'o Options) -> Result<Privileged<'o>, StartError> {
        options.check()?;
        let log = Log::new(options.verbose);
        options.memory_limit.explanation().iter().for_each(|line| notice(line));
        // A file of options that is read again may have `auto`.
        memory::lowest_bound();
        resources::allow_connections(options.conn_limit, options.threads, &log);
        // Root may be the only user that can read the key.
        let tls = Tls::new(options, &log)?;
        let (predecessor, inherited) = Predecessor::meet(options)?;
        let sockets = Sockets::bind(options, inherited, &log)?;
        if options.enable_coredumps {
            resources::allow_core_files()?;
        }
        if options.lock_memory {
            resources::raise_lock_limit();
        }
        Ok(Privileged { options, log, tls, sockets, predecessor })
    }

    fn drop_privileges(self) -> Result<Unprivileged<'o>, StartError> {
        let Privileged { options, log, tls, mut sockets, predecessor } = self;
        privileges::drop_privileges(options, &log)?;
        if options.lock_memory {
            resources::lock_memory(&log);
        }
        sockets.bind_paths(options)?;
        if sockets.listeners.is_empty() && sockets.udp.is_empty() {
            log.write(Level::Warning, format_args!("no client can connect: -p 0 without -s or -U"));
        }
        let io = Io::choose(options.io, &log)
            .map_err(|error| StartError::System("cannot use io_uring (--io uring)".into(), error))?;
        let offered = sockets
            .duplicate()
            .map_err(|error| StartError::System("cannot keep sockets for a successor (--hand-over)".into(), error))?;
        let (users, snapshot, port_file) = (users(options, &log)?, snapshot(options)?, port_file());
        let plan = plan(options, users.as_ref())?;
        if options.owns_process {
            // With `-r` a daemon stays in its folder, because core files are written there.
            if options.daemon && !options.enable_coredumps {
                daemon::leave_folder(&log);
            }
            // Must come before other threads start, because these would not be confined.
            let certificates = tls.iter().flat_map(|_| options.extended.ssl.files());
            let files = users.iter().map(Users::file).chain(certificates).chain(options.config.as_deref());
            sandbox::enter(options, io != Io::Epoll, files, port_file.as_deref(), &log);
        }
        Ok(Unprivileged { options, log, tls, sockets, predecessor, offered, io, users, plan, snapshot, port_file })
    }
}

impl<'o> Unprivileged<'o> {
    fn start_admin(&mut self) -> Result<Option<AdminHandle>, StartError> {
        let cannot_start = |error| StartError::System("cannot start the thread of --admin".into(), error);
        self.sockets.admin.take().map(Admin::start).transpose().map_err(cannot_start)
    }

    fn load(mut self) -> Result<Loaded<'o>, StartError> {
        let options = self.options;
        // A predecessor answers until it has handed over.
        let admin = if self.predecessor.is_none() { self.start_admin()? } else { None };
        let ticker = ticker()?;
        let empty = || Caches::new(&self.plan, ticker.clock(), options);
        let (caches, restored) = match (&mut self.predecessor, &self.snapshot) {
            // It has removed its snapshot, or has newer items.
            (Some(predecessor), _) => {
                let caches = predecessor.take_items(empty, &ticker, &self.log)?;
                return Ok(Loaded { start: self, admin, ticker, caches, restored: None });
            }
            (None, Some(snapshot)) => {
                snapshot.restore(empty, &self.log).map(|(caches, restored)| (caches, Some(restored)))
            }
            (None, None) => empty().map(|caches| (caches, None)),
        }
        .map_err(|_| StartError::NoMemory)?;
        Ok(Loaded { start: self, admin, ticker, caches, restored })
    }
}

impl Loaded<'_> {
    fn listen(mut self, configure: impl FnOnce(Cache) -> Cache) -> Result<Server, StartError> {
        let admin = match self.admin.take() {
            None => self.start.start_admin()?,
            admin => admin,
        };
        let Loaded { start, ticker, caches, restored, .. } = self;
        let Unprivileged { options, log, tls, sockets, predecessor, offered, io, users, snapshot, port_file, .. } =
            start;
        // Reading the snapshot may have taken long.
        ticker.tick();
        let Listening { listeners, udp, hand_over } = sockets.listen()?;
        let port = listeners.iter().find_map(Listener::tcp_address).map_or(0, |address| address.port());
        let connections = SessionRegistry::default();
        for listener in &listeners {
            let (id, address) = listener.describe();
            connections.add_listener(id, address);
        }
        for socket in &udp {
            if let Ok(address) = socket.local_addr() {
                connections.add_datagrams(socket.as_raw_fd(), address);
            }
        }
        let threads = usize::from(options.threads);
        let (common, tenants) = Tenants::new(caches, options, configure);
        let shared = Arc::new(SharedState {
            common,
            tenants,
            started: ticker.clock().now(),
            ticker,
            connection_limit: ConnectionLimit::new(options.conn_limit as usize),
            buffer_limit: BufferLimit::new(options.buffer_bytes()),
            long_turns: LongTurns::default(),
            log,
            port,
            tuning: Tuning::new(&options.extended),
            users,
            tls,
            connections,
            gate: Gate::new(offered),
            snapshots: SnapshotRecord::default(),
            options: options.clone(),
            live: LiveOptions::new(options.clone()),
        });
        let acceptor = Acceptor::new(Arc::clone(&shared), threads, listeners)
            .map_err(|error| StartError::System("cannot watch the listening sockets".into(), error))?;
        admin.iter().for_each(|admin| admin.open(&shared, acceptor.stopper()));
        // Programs that wait for this file connect at once.
        if let Some(path) = port_file {
            write_ports(&path, acceptor.listeners(), &udp)?;
        }
        let snapshot = snapshot.map(Arc::new);
        Ok(Server { shared, io, acceptor, udp, admin, snapshot, restored, predecessor, hand_over })
    }
}

impl Server {
    /// Like [`Server::bind`], with the cache that `configure` returns.
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub fn bind_with(options: &Options, configure: impl FnOnce(Cache) -> Cache) -> Result<Server, StartError> {
        Privileged::new(options)?.drop_privileges()?.load()?.listen(configure)
    }

    /// The TCP addresses that the server listens on.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.acceptor.listeners().iter().filter_map(Listener::tcp_address).collect()
    }

    /// All addresses at which clients can reach the server, as text: TCP addresses, paths of Unix
    /// sockets, and UDP addresses with `udp:` in front.
    pub fn client_addresses(&self) -> Vec<String> {
        let listeners = self.acceptor.listeners().iter().map(Listener::to_string);
        let datagrams = self.udp.iter().filter_map(|socket| Some(format!("udp:{}", socket.local_addr().ok()?)));
        listeners.chain(datagrams).collect()
    }

    /// Where metrics and the status page are, if they are offered.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(AdminHandle::address)
    }

    /// A handle to stop the server with.
    pub fn stopper(&self) -> Stopper {
        self.acceptor.stopper()
    }

    /// A handle to make the server reload its options, users and certificates. It was started by
    /// `line`.
    pub fn reloader(&self, line: CommandLine) -> Reloader {
        Reloader::new(Arc::clone(&self.shared), line)
    }

    /// A handle to make the server write its snapshot while it serves.
    pub fn saver(&self) -> Saver {
        let (shared, snapshot) = (Arc::clone(&self.shared), self.snapshot.clone());
        Saver(Box::new(move || match &snapshot {
            None => shared.log.write(Level::Warning, format_args!("no snapshot written: there is no --snapshot")),
            Some(snapshot) => {
                if !snapshot.is_read_after_crash() {
                    shared.log.write(
                        Level::Warning,
                        format_args!(
                            "only a server started with --warm-after-crash will read the snapshot that is being written"
                        ),
                    );
                }
                if let Err(error) = save(snapshot, &shared, Occasion::Request) {
                    shared.log.write(Level::Warning, format_args!("{error}"));
                }
            }
        }))
    }

    /// Serves until stopped, then closes all connections, writes the snapshot, and frees all items.
    ///
    /// # Errors
    /// When the operating system refuses threads or events, a thread panicked, or the snapshot
    /// cannot be removed or written.
    pub fn run(self) -> Result<(), StartError> {
        self.run_and_announce(|| {}).map(drop)
    }

    /// Like [`Server::run`], but also calls `announce` when clients are served, and returns why the
    /// server has ended.
    ///
    /// # Errors
    /// As [`Server::run`]. If the start fails, `announce` is not called.
    pub fn run_and_announce(self, announce: impl FnOnce()) -> Result<Ended, StartError> {
        let Server { shared, io, acceptor, udp, admin, snapshot, restored, predecessor, hand_over } = self;
        // Nothing after this step can fail at the start: after an earlier failure the file is still
        // in place. From here on clients change items, so the file is outdated.
        if let (Some(snapshot), Some(restored)) = (&snapshot, restored) {
            retire(snapshot, restored)?;
        }
        // From here on the predecessor serves no more.
        predecessor.map_or(Ok(()), Predecessor::replace)?;
        let mut handles = Vec::new();
        let mut threads = Vec::new();
        let mut udp_handle = None;
        if !udp.is_empty() {
            let (handle, join) = start_udp(&shared, udp, acceptor.stopper())
                .map_err(|error| StartError::System("cannot start the thread for datagrams".into(), error))?;
            udp_handle = Some(handle);
            threads.push(join);
        }
        for thread in 0..usize::from(shared.options.threads) {
            let (handle, join) = start_worker(io, &shared, thread, acceptor.stopper())
                .map_err(|error| StartError::System("cannot start a worker thread".into(), error))?;
            handles.push(handle);
            threads.push(join);
        }
        let cannot_start = |error| StartError::System("cannot start a thread".into(), error);
        let background = start_background(&shared).map_err(cannot_start)?;
        shared.log.write(Level::Internal, format_args!("serving with {} threads, {io:?}", threads.len()));
        let hand_over = hand_over.map(|socket| HandOver::start(socket, &shared, acceptor.stopper()));
        let hand_over = hand_over.transpose().map_err(cannot_start)?;
        announce();
        // The handles are dropped when this returns, which stops the workers.
        let mut outcome = acceptor.run(handles).map_err(|error| StartError::System("cannot accept".into(), error));
        drop(udp_handle);
        for thread in threads {
            outcome = outcome.and(wait_for(thread));
        }
        for thread in background {
            outcome = outcome.and(thread.stop());
        }
        drop((admin, hand_over));
        let ended = if shared.gate.is_handed_over() { Ended::HandedOver } else { Ended::Stopped };
        // A successor writes its own.
        if let (Some(snapshot), Ok(()), Ended::Stopped) = (snapshot, &outcome, ended) {
            outcome = save(&snapshot, &shared, Occasion::End);
        }
        drop(shared);
        relativist_rcu::barrier();
        outcome.map(|()| ended)
    }
}

/// Why a server has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// It was stopped.
    Stopped,
    /// Another process has taken over its sockets and items.
    HandedOver,
}

/// Writes the snapshot on request.
pub struct Saver(Box<dyn Fn() + Send>);

impl Saver {
    /// Writes the snapshot. If that fails, the previous one is still there, and the log reports it.
    pub fn save(&self) {
        (self.0)();
    }
}

/// Starts the threads that maintain the cache, look for storms, and estimate other sizes.
fn start_background(shared: &Arc<SharedState>) -> io::Result<Vec<Background>> {
    let maintained = Arc::clone(shared);
    let mut threads = vec![Background::start("maintenance", MAINTENANCE, move || {
        maintained.common.cache.maintain();
        maintained.tenants.maintain();
        maintained.log_storms();
    })?];
    let often = Arc::clone(shared);
    threads.push(Background::start("often", OFTEN, move || {
        often.each_tenant(|tenant| tenant.watch.deliver());
        if !often.options.no_sizing {
            often.advance_sizing();
        }
    })?);
    Ok(threads)
}

fn save(snapshot: &Snapshot, shared: &SharedState, occasion: Occasion) -> Result<(), StartError> {
    let path = snapshot.path().display();
    let start = Instant::now();
    let tenants = shared.tenants.all();
    let caches: Vec<_> = shared.caches(&tenants).collect();
    let items = snapshot.write(&caches, occasion).map_err(|error| {
        shared.snapshots.note(None);
        StartError::System(format!("cannot write the snapshot {path}"), error)
    })?;
    shared.snapshots.note(Some(Written { at: shared.ticker.clock().now(), took: start.elapsed(), items }));
    shared.log.write(Level::Trouble, format_args!("{items} items written to {path}"));
    Ok(())
}

fn snapshot(options: &Options) -> Result<Option<Snapshot>, StartError> {
    let at = |path: &PathBuf| {
        Snapshot::new(path.clone(), options.warm_after_crash)
            .map_err(|error| StartError::System(format!("cannot keep a snapshot at {}", path.display()), error))
    };
    options.snapshot.as_ref().map(at).transpose()
}

fn retire(snapshot: &Snapshot, restored: Restored) -> Result<(), StartError> {
    snapshot.retire(restored).map_err(|error| {
        let path = snapshot.path().display();
        StartError::System(format!("cannot remove {path}, which would be read again after a crash"), error)
    })
}

fn write_ports(path: &Path, listeners: &[Listener], udp: &[UdpSocket]) -> Result<(), StartError> {
    let tcp: Vec<SocketAddr> = listeners.iter().filter_map(Listener::tcp_address).collect();
    let udp: Vec<SocketAddr> = udp.iter().filter_map(|socket| socket.local_addr().ok()).collect();
    write_port_file(path, &tcp, &udp)
        .map_err(|error| StartError::System(format!("cannot write {}", path.display()), error))
}

/// Stops the server when a worker ends for any reason, including a panic, because the worker's
/// connections would hang.
struct StopOnExit(Stopper);

impl Drop for StopOnExit {
    fn drop(&mut self) {
        self.0.stop();
    }
}

type WorkerThread = JoinHandle<io::Result<()>>;

fn start_worker(
    io: Io,
    shared: &Arc<SharedState>,
    thread: usize,
    stopper: Stopper,
) -> io::Result<(WorkerHandle, WorkerThread)> {
    let (handle, run) = io.worker(shared, thread)?;
    let join = thread::Builder::new().name(format!("worker-{thread}")).spawn(move || {
        let stop = StopOnExit(stopper);
        run(&stop.0)
    })?;
    Ok((handle, join))
}

fn start_udp(
    shared: &Arc<SharedState>,
    sockets: Vec<UdpSocket>,
    stopper: Stopper,
) -> io::Result<(impl Drop + use<>, WorkerThread)> {
    let thread = usize::from(shared.options.threads) + 1;
    let (server, handle) = UdpServer::new(Arc::clone(shared), thread, sockets)?;
    let join = thread::Builder::new().name("udp".into()).spawn(move || {
        let _stop = StopOnExit(stopper);
        server.run()
    })?;
    Ok((handle, join))
}

fn wait_for(thread: WorkerThread) -> Result<(), StartError> {
    match thread.join() {
        Ok(outcome) => outcome.map_err(|error| StartError::System("a worker thread failed".into(), error)),
        Err(_panic) => Err(StartError::Crashed),
    }
}

/// A ticker of the system's time.
fn ticker() -> Result<Ticker, StartError> {
    let ticker = Ticker::new();
    check_second(ticker.clock().now()).map(|()| ticker)
}

/// Checks that a clock that shows this second still runs.
fn check_second(now: u32) -> Result<(), StartError> {
    if now < Clock::MAX_SECOND { Ok(()) } else { Err(StartError::TooLate) }
}

/// The division of the memory among the tenants.
fn plan(options: &Options, users: Option<&Users>) -> Result<Plan, StartError> {
    Plan::new(options, users.map(Users::list).as_deref()).map_err(StartError::Usage)
}

/// The users that may log in, if logins are required.
fn users(options: &Options, log: &Log) -> Result<Option<Users>, StartError> {
    let (users, file) = if let Some(file) = &options.auth_file {
        (Users::for_text(file.clone()), file.clone())
    } else if !options.enable_sasl {
        return Ok(None);
    } else if let Some(file) = std::env::var_os(SASL_FILE_VARIABLE).map(PathBuf::from) {
        // The file is read again after a daemon has left its working directory.
        let file = std::path::absolute(&file).unwrap_or(file);
        (Users::for_sasl(file.clone()), file)
    } else {
        log.write(Level::Warning, format_args!("no client can log in: {SASL_FILE_VARIABLE} names no file with users"));
        return Ok(None);
    };
    let cannot_read = |error| StartError::System(format!("cannot read the users in {}", file.display()), error);
    users.map(Some).map_err(cannot_read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::panic_any;

    #[test]
    fn a_thread_that_panics_ends_the_server() {
        let options = Options::parse_from_args(["relativistd", "-p", "-1"]).unwrap();
        let server = Server::bind(&options).unwrap();
        let stop = StopOnExit(server.stopper());
        let thread = thread::spawn(|| {
            let _stop = stop;
            panic_any("as a worker might")
        });
        server.run().expect("it was stopped");
        assert!(matches!(wait_for(thread), Err(StartError::Crashed)));
    }

    #[test]
    fn no_server_starts_when_its_clock_has_stopped() {
        assert!(ticker().is_ok() && check_second(Clock::MAX_SECOND - 1).is_ok());
        let late = Clock::new(u32::MAX);
        let error = check_second(late.now()).unwrap_err();
        assert!(error.to_string().contains("until 2106-02-07"), "{error}");
    }
}
