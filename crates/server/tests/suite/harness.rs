//! A server in this process, and a plain client.

use relativist_store::Cache;
use relativist_testing::patience;
use relativistd::{Options, Saver, Server, StartError, Stopper};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{LazyLock, Mutex};
use std::thread::{self, JoinHandle};

/// A running server. Dropping it stops the server, and asserts that it stops without an error.
pub struct Running {
    pub address: SocketAddr,
    /// The addresses of all listeners, in the order of the flags.
    pub addresses: Vec<SocketAddr>,
    /// The address of the admin interface, with the flag `--admin`.
    pub admin: Option<SocketAddr>,
    stopper: Stopper,
    saver: Mutex<Saver>,
    thread: Option<JoinHandle<Result<(), StartError>>>,
}

/// The I/O backend of a server.
#[derive(Clone, Copy)]
pub enum Io {
    Epoll,
    Uring,
}

impl Io {
    /// Starts a server with this backend.
    pub fn start(self, flags: &str) -> Running {
        Running::start(&format!("{} {flags}", self.flag()))
    }

    pub fn flag(self) -> &'static str {
        match self {
            Io::Epoll => "--io epoll",
            Io::Uring => "--io uring",
        }
    }

    /// Returns the backends that the kernel supports.
    pub fn available() -> impl Iterator<Item = Io> {
        [Io::Epoll, Io::Uring].into_iter().filter(|io| io.is_available())
    }

    /// Whether the kernel supports this backend, and allows its use.
    pub fn is_available(self) -> bool {
        static HAS_URING: LazyLock<bool> = LazyLock::new(|| {
            let options = Options::parse_from_args(["relativistd", "-p", "-1", "--io", "uring"]).expect("valid flags");
            let has_uring = Server::bind(&options).is_ok();
            if !has_uring {
                eprintln!("the kernel has no io_uring, or does not allow it: tests of it are skipped");
            }
            has_uring
        });
        matches!(self, Io::Epoll) || *HAS_URING
    }
}

/// Makes each of these functions a test for every backend.
macro_rules! on_each_backend {
    ($($name:ident)*) => {
        mod on_epoll {
            $(#[test] fn $name() { super::$name(crate::harness::Io::Epoll) })*
        }
        mod on_uring {
            $(#[test] fn $name() {
                if crate::harness::Io::Uring.is_available() {
                    super::$name(crate::harness::Io::Uring)
                }
            })*
        }
    };
}
pub(crate) use on_each_backend;

impl Running {
    /// Starts a server with these flags on a port of the kernel's choice. It accepts connections
    /// from now on.
    pub fn start(flags: &str) -> Running {
        Running::start_with(flags, |cache| cache)
    }

    /// Like [`start`](Self::start), with the cache that `configure` returns.
    pub fn start_with(flags: &str, configure: impl FnOnce(Cache) -> Cache) -> Running {
        let line = format!("relativistd -p -1 {flags}");
        let options = Options::parse_from_args(line.split_whitespace()).expect("valid flags");
        let server = Server::bind_with(&options, configure).expect("a free port");
        let (addresses, admin, stopper) = (server.addresses(), server.admin_address(), server.stopper());
        let saver = Mutex::new(server.saver());
        let thread = Some(thread::spawn(|| server.run()));
        Running { address: addresses[0], addresses, admin, stopper, saver, thread }
    }

    pub fn connect(&self) -> Client {
        Client(connect_to(self.address))
    }

    /// Makes the server write its snapshot.
    pub fn save(&self) {
        self.saver.lock().unwrap().save();
    }

    /// Makes the server stop as soon as all clients have left.
    pub fn drain(&self) {
        self.stopper.drain();
    }

    /// Stops the server and returns its result. Returns `None` if it was stopped before.
    pub fn stop(&mut self) -> Option<Result<(), StartError>> {
        self.stopper.stop();
        self.thread.is_some().then(|| self.wait())
    }

    /// Waits until the server ends by itself.
    pub fn wait(&mut self) -> Result<(), StartError> {
        self.thread.take().expect("the server was not stopped before").join().expect("the server does not panic")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(outcome) = self.stop()
            && !thread::panicking()
        {
            outcome.expect("the server stops without an error");
        }
    }
}

pub fn connect_to(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(patience())).unwrap();
    stream.set_write_timeout(Some(patience())).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// A connection that sends bytes and expects bytes.
pub struct Client<S = TcpStream>(pub S);

impl<S: Read + Write> Client<S> {
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).expect("the server reads");
    }

    #[track_caller]
    pub fn expect(&mut self, bytes: impl AsRef<[u8]>) {
        let wanted = bytes.as_ref();
        let mut got = vec![0; wanted.len()];
        let mut count = 0;
        while count < got.len() && wanted.starts_with(&got[..count]) {
            match self.0.read(&mut got[count..]).expect("the server answers in time") {
                0 => break,
                more => count += more,
            }
        }
        if got != wanted {
            let here = got.iter().zip(wanted).take_while(|(one, other)| one == other).count();
            let show =
                |bytes: &[u8]| bytes[here.saturating_sub(20)..bytes.len().min(here + 60)].escape_ascii().to_string();
            panic!("after {here} of {} bytes: {:?} instead of {:?}", wanted.len(), show(&got[..count]), show(wanted));
        }
    }

    /// Sends a request and expects this reply.
    #[track_caller]
    pub fn ask(&mut self, request: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) {
        self.send(request);
        self.expect(reply);
    }

    /// Sends a request for a list, and returns the list with its end.
    #[track_caller]
    pub fn list(&mut self, request: &str) -> String {
        self.send(format!("{request}\r\n"));
        String::from_utf8(self.read_until(b"END\r\n")).unwrap()
    }

    /// Returns all bytes up to and including `end`.
    #[track_caller]
    pub fn read_until(&mut self, end: &[u8]) -> Vec<u8> {
        let (mut got, mut byte) = (Vec::new(), [0]);
        while !got.ends_with(end) {
            self.0.read_exact(&mut byte).expect("the server answers in time");
            got.push(byte[0]);
        }
        got
    }

    #[track_caller]
    pub fn expect_close(&mut self) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("not closed: {error}"),
            _ => assert!(rest.is_empty(), "unexpected: {:?}", rest.escape_ascii().to_string()),
        }
    }
}

/// Returns the names and values of a group of statistics, in order.
pub fn stats(client: &mut Client<impl Read + Write>, group: &str) -> Vec<(String, String)> {
    let text = client.list(&format!("stats {group}"));
    let lines = text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Returns the number of one statistic.
pub fn stat(client: &mut Client<impl Read + Write>, name: &str) -> u64 {
    let (_, value) = stats(client, "").into_iter().find(|(stat, _)| stat == name).expect(name);
    value.parse().unwrap()
}
