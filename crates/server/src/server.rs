//! A whole server: engine, execution and network put together.

use crate::clock::Ticker;
use crate::engine::{Engine, ITEM_OVERHEAD, MAX_KEY, Relativistic};
use crate::error::StartError;
use crate::execute::{Service, Settings};
use crate::gate::Gate;
use crate::log::{Level, Log};
use crate::net::{Acceptor, Listener, Stopper, Worker, WorkerHandle, bind_tcp, bind_unix, write_port_file};
use crate::options::Options;
use crate::process;
use crate::stats::Registry;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Environment variable that names a file to write the ports to.
const PORT_FILE_VARIABLE: &str = "MEMCACHED_PORT_FILENAME";

/// Largest item, key and header included, as memcached's default `-I 1m`.
const MAX_ITEM: usize = 1 << 20;

/// A server that is bound to its addresses.
pub struct Server<E> {
    service: Arc<Service<E>>,
    acceptor: Acceptor<E>,
}

impl Server<Relativistic> {
    /// Binds the sockets that `options` ask for. Clients that connect from now on are served once the server runs.
    ///
    /// # Errors
    /// When an address cannot be listened on, the options contradict each other, or there is no such user to become.
    pub fn bind(options: &Options) -> Result<Server<Relativistic>, StartError> {
        let log = Log::new(options.verbose);
        process::allow_connections(options.conn_limit.into(), &log);
        let listeners = listen(options)?;
        process::drop_privileges(options.user.as_deref(), &log)?;
        if let Some(path) = std::env::var_os(PORT_FILE_VARIABLE) {
            write_port_file(path.as_ref(), &listeners)
                .map_err(|error| StartError::System(format!("cannot write {}", path.display()), error))?;
        }
        let ticker = Ticker::new();
        let max_value = MAX_ITEM - ITEM_OVERHEAD - MAX_KEY;
        let engine = Relativistic::new(Arc::clone(ticker.clock()), options.memory_bytes(), max_value)
            .map_err(|_| StartError::NoMemory)?;
        let threads = usize::from(options.threads);
        let service = Arc::new(Service {
            engine,
            started: ticker.clock().now(),
            ticker,
            // One more for the accepting thread.
            counters: Registry::new(threads + 1),
            gate: Gate::new(options.conn_limit as usize),
            log,
            settings: settings(options, &listeners, max_value),
        });
        let acceptor = Acceptor::new(Arc::clone(&service), threads, listeners)
            .map_err(|error| StartError::System("cannot watch the listening sockets".into(), error))?;
        Ok(Server { service, acceptor })
    }
}

impl<E: Engine> Server<E> {
    /// The TCP addresses that are listened on.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.acceptor.listeners().iter().filter_map(Listener::tcp_address).collect()
    }

    /// A handle to stop the server with.
    pub fn stopper(&self) -> Stopper {
        self.acceptor.stopper()
    }

    /// Serves until stopped, then closes all connections and frees all items.
    ///
    /// # Errors
    /// When the operating system denies threads or events, or a thread panicked.
    pub fn run(self) -> Result<(), StartError> {
        let Server { service, acceptor } = self;
        let mut handles = Vec::new();
        let mut threads = Vec::new();
        for thread in 0..service.settings.threads {
            let (handle, join) = start_worker(&service, thread, acceptor.stopper())
                .map_err(|error| StartError::System("cannot start a worker thread".into(), error))?;
            handles.push(handle);
            threads.push(join);
        }
        service.log.say(Level::Internal, format_args!("serving with {} threads", threads.len()));
        // The handles are dropped when this returns, which stops the workers.
        let mut outcome = acceptor.run(handles).map_err(|error| StartError::System("cannot accept".into(), error));
        for thread in threads {
            outcome = outcome.and(wait_for(thread));
        }
        drop(service);
        relativist_rcu::barrier();
        outcome
    }
}

/// Stops the server when a worker ends for whatever reason, a panic included: its connections would hang.
struct StopOnExit(Stopper);

impl Drop for StopOnExit {
    fn drop(&mut self) {
        self.0.stop();
    }
}

type WorkerThread = JoinHandle<io::Result<()>>;

fn start_worker<E: Engine>(
    service: &Arc<Service<E>>,
    thread: usize,
    stopper: Stopper,
) -> io::Result<(WorkerHandle, WorkerThread)> {
    let (worker, handle) = Worker::new(Arc::clone(service), thread)?;
    let join = thread::Builder::new().name(format!("worker-{thread}")).spawn(move || {
        let _stop = StopOnExit(stopper);
        worker.run()
    })?;
    Ok((handle, join))
}

fn wait_for(thread: WorkerThread) -> Result<(), StartError> {
    match thread.join() {
        Ok(outcome) => outcome.map_err(|error| StartError::System("a worker thread failed".into(), error)),
        Err(_panic) => Err(StartError::Crashed),
    }
}

fn listen(options: &Options) -> Result<Vec<Listener>, StartError> {
    if let Some(path) = &options.unix_socket {
        let listener = bind_unix(path)
            .map_err(|error| StartError::System(format!("cannot listen on {}", path.display()), error))?;
        return Ok(vec![listener]);
    }
    let port = match options.port {
        0 => return Err(StartError::Usage("there is nothing to listen on: -p 0 without -s".into())),
        -1 => 0,
        port => u16::try_from(port).expect("the parser admits ports only"),
    };
    let mut listeners = Vec::new();
    for address in options.addresses() {
        let bound = bind_tcp(&address, port).map_err(|error| {
            let place = if address.port.is_some() { format!("{address}") } else { format!("{address}, port {port}") };
            StartError::System(format!("cannot listen on {place}"), error)
        })?;
        listeners.extend(bound);
    }
    Ok(listeners)
}

fn settings(options: &Options, listeners: &[Listener], max_value: usize) -> Settings {
    let addresses: Vec<String> = options.addresses().iter().map(ToString::to_string).collect();
    Settings {
        threads: options.threads.into(),
        port: listeners.iter().find_map(Listener::tcp_address).map_or(0, |address| address.port()),
        addresses: addresses.join(","),
        unix_socket: options.unix_socket.as_ref().map(|path| path.display().to_string()),
        max_value,
        debug_time: options.debug_time,
    }
}
