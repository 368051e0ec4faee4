//! The command line.
//!
//! Flags and defaults are memcached's, with one difference: without `-l` the server listens on the
//! loopback address only. A cache open to the network is both a leak and an amplifier. `-l '*'`
//! listens everywhere.

mod address;
mod check;
mod command_line;
mod config;
mod extended;
mod generate;
mod live;
mod memory;
mod ssl;

pub use address::{Address, Binding, Host};
pub use command_line::CommandLine;
pub(crate) use config::problem;
pub use extended::{Extended, Ignored};
pub use live::LiveOptions;
pub(crate) use memory::MAX_MEBIBYTES;
use memory::MEBIBYTE;
pub use memory::MemoryLimit;
pub use ssl::{ClientCertificate, Security, Ssl};

use crate::observability::hot_keys::Mode;
use crate::observability::log::Format;
use clap::error::ErrorKind;
use clap::{ArgAction, Parser, ValueEnum};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The version reported by `version`. Clients choose their dialect by it.
pub const PROTOCOL_VERSION: &str = "1.6.45";

/// What `-V` prints after the program's name.
const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (speaks the protocol of memcached 1.6.45)");

const DEFAULT_PORT: u16 = 11211;
/// The smallest default limit on the buffers of all connections, however small `-m` is.
const MIN_BUFFER_BYTES: usize = 64 * MEBIBYTE;

/// The overhead that memcached counts per item. Items that fit into memcached's limit fit into
/// ours.
const ITEM_OVERHEAD_OF_MEMCACHED: usize = 59;

/// A storage engine.
#[cfg(feature = "global-lock")]
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum EngineKind {
    /// Lookups take no lock
    Relativistic,
    /// One mutex around the whole engine
    GlobalLock,
}

/// How workers do input and output.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum IoKind {
    /// io_uring if the kernel supports and allows it, otherwise epoll
    Auto,
    /// io_uring (Linux 6.1); containers often forbid it
    Uring,
    /// epoll
    Epoll,
}

/// A file that is generated from the definition of the options.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Generated {
    /// The page of the manual, for man(1).
    Man,
    /// Completions for bash.
    Bash,
    /// Completions for zsh.
    Zsh,
    /// Completions for fish.
    Fish,
}

/// A memcached server whose storage engine is a relativistic hash table: lookups take no lock while
/// it grows and shrinks.
#[derive(Clone, Debug, Parser, PartialEq)]
#[command(name = "relativistd", version = LONG_VERSION, after_help = AFTER_HELP, args_override_self = true)]
pub struct Options {
    /// TCP port; 0 for none, -1 for any free one [default: 11211]
    #[arg(short = 'p', long, value_name = "PORT", value_parser = clap::value_parser!(i32).range(-1..=65535), allow_negative_numbers = true)]
    pub port: Option<i32>,

    /// UDP port; 0 for none, -1 for any free one. Without -p, also the TCP port
    #[arg(short = 'U', long, value_name = "PORT", default_value_t = 0, value_parser = clap::value_parser!(i32).range(-1..=65535), allow_negative_numbers = true)]
    pub udp_port: i32,

    /// Unix socket to listen on instead of TCP and UDP
    #[arg(short = 's', long, value_name = "PATH")]
    pub unix_socket: Option<PathBuf>,

    /// Access mode of the Unix socket, in octal
    #[arg(short = 'a', long, value_name = "MODE", default_value = "700", value_parser = parse_octal)]
    pub unix_mask: u32,

    /// Addresses to listen on. If there are none, the server listens on the loopback address.
    #[arg(
        help = "Addresses to listen on: IP, IP:PORT, [IPv6]:PORT, host name, or * for all [default: loopback only]. With -Z, a prefix changes TLS for one address, as in notls:127.0.0.1. notls means plain text, btls no client certificate, mtls a required client certificate. nologin: on a loopback address lets clients in without -Y or -S",
        short = 'l', long, value_name = "ADDRS", value_delimiter = ',', action = ArgAction::Append)]
    pub listen: Vec<Address>,

    /// Run in the background
    #[arg(short = 'd', long)]
    pub daemon: bool,

    /// Let the kernel write core files as large as the hard limit allows
    #[arg(short = 'r', long)]
    pub enable_coredumps: bool,

    /// User to become when started as root
    #[arg(short = 'u', long, value_name = "USER")]
    pub user: Option<String>,

    /// The memory for items and table.
    #[arg(
        short = 'm', long, value_name = "MB", default_value = "64",
        help = format!("Memory for items and table, in MiB, at most {MAX_MEBIBYTES}; auto takes three quarters of the limit of the control group (the container), or of the machine's memory"))]
    pub memory_limit: MemoryLimit,

    /// Refuse new items when memory is full, instead of evicting old ones
    #[arg(short = 'M', long)]
    pub disable_evictions: bool,

    /// How workers read and write sockets
    #[arg(long, value_name = "IO", value_enum, default_value_t = IoKind::Auto)]
    pub io: IoKind,

    /// Maximum number of connections
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub conn_limit: u32,

    /// Keep all memory out of swap
    #[arg(short = 'k', long)]
    pub lock_memory: bool,

    /// Log more on stderr: -v refused and lost connections, -vv every request and reply (no
    /// values), -vvv internal events
    #[arg(short = 'v', long, action = ArgAction::Count)]
    pub verbose: u8,

    /// TOML file with more options; its keys are the long option names. The command line takes
    /// precedence
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Check the options, including those of --config, and exit
    #[arg(long = "check")]
    pub only_check: bool,

    /// Format of log messages on stderr
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub log_format: Format,

    /// Serve metrics, health checks and a status page over HTTP at this address: PORT (loopback)
    /// or IP:PORT
    #[arg(long, value_name = "ADDR", value_parser = parse_admin)]
    pub admin: Option<SocketAddr>,

    /// Host name by which clients may address --admin, besides IP addresses and localhost
    #[arg(long, value_name = "NAME", action = ArgAction::Append)]
    pub admin_host: Vec<String>,

    /// A node of the cluster, HOST|IP|PORT, for clients that ask by `config get cluster`; may be
    /// given several times
    #[arg(long, value_name = "NODE", action = ArgAction::Append, value_parser = parse_node)]
    pub cluster_node: Vec<String>,

    /// The second of the last change of the nodes, if they have changed since the start.
    #[arg(skip)]
    pub cluster_changed: u32,

    /// Show the most read and the most written keys (stats hotkeys, --admin)
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Mode::Hashed)]
    pub hot_keys: Mode,

    /// Do not estimate the hit ratios of other memory limits (stats sizing, --admin)
    #[arg(long)]
    pub no_sizing: bool,

    /// Print the license
    #[arg(short = 'i', long)]
    pub license: bool,

    /// File to write the process id to
    #[arg(short = 'P', long, value_name = "FILE")]
    pub pidfile: Option<PathBuf>,

    /// Growth factor of slab classes; ignored (there are no slab classes)
    #[arg(short = 'f', long, value_name = "FACTOR", default_value_t = 1.25)]
    pub slab_growth_factor: f64,

    /// Smallest slab class; ignored
    #[arg(short = 'n', long, value_name = "BYTES", default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..))]
    pub slab_min_size: u32,

    /// Use large pages; ignored (the kernel decides)
    #[arg(short = 'L', long)]
    pub enable_largepages: bool,

    /// Count commands by key prefix, up to this character (stats detail)
    #[arg(short = 'D', long, value_name = "CHAR", value_parser = parse_delimiter)]
    pub delimiter: Option<u8>,

    /// Worker threads
    #[arg(short = 't', long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,

    /// Maximum number of requests per connection before other connections are served
    #[arg(short = 'R', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_reqs_per_event: u32,

    /// Disable compare-and-swap: items get no CAS value
    #[arg(short = 'C', long)]
    pub disable_cas: bool,

    /// After SIGTERM or SIGUSR1, serve open connections for this many seconds and refuse new ones;
    /// a second signal ends this at once
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub drain: u32,

    /// Unix socket (mode 600) at which a process of the same user can take over sockets and items
    #[arg(long, value_name = "PATH")]
    pub hand_over: Option<PathBuf>,

    /// Take sockets and items over from the server with --hand-over PATH, which then ends
    #[arg(long, value_name = "PATH")]
    pub take_over: Option<PathBuf>,

    /// Maximum number of connections that wait to be accepted (listen backlog)
    #[arg(short = 'b', long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(i32).range(0..))]
    pub listen_backlog: i32,

    /// Protocol of connections [default: auto]
    #[arg(short = 'B', long, value_name = "PROTOCOL")]
    pub protocol: Option<Binding>,

    /// Maximum item size, key included; suffix k or m for KiB or MiB
    #[arg(short = 'I', long, value_name = "SIZE", default_value = "1m", value_parser = parse_size)]
    pub max_item_size: usize,

    /// Require SASL authentication; binary protocol only. MEMCACHED_SASL_PWDB names the file with
    /// the users
    #[arg(short = 'S', long)]
    pub enable_sasl: bool,

    /// Refuse flush_all
    #[arg(short = 'F', long)]
    pub disable_flush_all: bool,

    /// Refuse commands that list keys
    #[arg(short = 'X', long)]
    pub disable_dumping: bool,

    /// Refuse the watch command
    #[arg(short = 'W', long)]
    pub disable_watch: bool,

    /// Refuse the verbosity command
    #[arg(long)]
    pub disable_verbosity: bool,

    /// Enable the shutdown command
    #[arg(short = 'A', long)]
    pub enable_shutdown: bool,

    /// Require authentication by a user of this file, one user:password per line; text protocol
    /// only. The line [tenant NAME memory=25%] gives the users after it a cache of their own
    #[arg(short = 'Y', long, value_name = "FILE")]
    pub auth_file: Option<PathBuf>,

    /// Keep items in this file across restarts: it is read and removed at start, and written at
    /// exit and on SIGUSR2
    #[arg(short = 'e', long, alias = "memory-file", value_name = "FILE")]
    pub snapshot: Option<PathBuf>,

    /// Load the last snapshot after a crash, too. Deletions and changes made since are lost
    #[arg(long)]
    pub warm_after_crash: bool,

    /// Encrypt TCP connections (TLS); needs -o ssl_chain_cert and ssl_key
    #[arg(short = 'Z', long)]
    pub enable_ssl: bool,

    /// Number of network card receive queues; ignored
    #[arg(short = 'N', long, value_name = "N", default_value_t = 0)]
    pub napi_ids: u32,

    /// More options, see below
    #[arg(short = 'o', long = "extended", value_name = "OPTION[,...]", value_delimiter = ',', action = ArgAction::Append)]
    extended_words: Vec<String>,

    /// The parsed options of `-o`.
    #[arg(skip)]
    pub extended: Extended,

    /// Enable the command `debugtime`, by which tests move the clock, and start CAS values at 1
    #[arg(long, hide = true)]
    pub debug_time: bool,

    /// Storage engine, for comparisons
    #[cfg(feature = "global-lock")]
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t = EngineKind::Relativistic, hide = true)]
    pub engine: EngineKind,

    /// Whether the process runs only this server, so that it may enter the sandbox
    /// ([`Extended::drop_privileges`]). The program sets this. A process with other tasks, such as
    /// a test, must not: the sandbox would confine the thread that binds the server.
    #[arg(skip)]
    pub owns_process: bool,

    /// Print the man page or a shell completion
    #[arg(long, value_name = "KIND", value_enum, hide = true)]
    pub generate: Option<Generated>,
}

/// The text after the list of options in the help.
const AFTER_HELP: &str = "\
Options for -o (the prefix no_ turns off what is on by default):
  maxconns_fast      refuse connections beyond -c with an error instead of letting them wait [on]
  idle_timeout=N     close TCP connections that are idle for N seconds [0: never]
  track_sizes        enable the histogram `stats sizes`
  lru_crawler        enable commands that list keys [on]
  no_modern          turn off maxconns_fast and lru_crawler, as before memcached 1.5
  watcher_logbuf_size=KB
                     log buffer per watching client [256]
  read_buf_mem_limit=MB
                     limit on the buffers of all connections together. Above it, the connection
                     with the largest buffers is closed. At least four times -I
                     [0: a quarter of -m, at least 64]
  evict_for=GOAL     which misses to avoid: those of many requests, so that among items with equally
                     many hits large ones go first, or those of many bytes; requests or bytes
                     [requests]
  drop_privileges    block system calls that the server does not need (seccomp). Even without this
                     option, access to other files and outgoing TCP connections is blocked
                     (Landlock); no_drop_privileges turns off both
  ssl_chain_cert=FILE, ssl_key=FILE
                     with -Z: the certificate chain and its key, in PEM
  ssl_ca_cert=FILE   authorities that sign client certificates
  ssl_verify_mode=N  client certificates: 0 not requested, 1 optional, 2 and 3 required [0]
  ssl_min_version=N  oldest version: 3 is TLS 1.3; 0 to 2 are TLS 1.2, the oldest supported [2]
  ssl_ciphers=NAME[:NAME...]
                     cipher suites, by their OpenSSL names; if none is named for a TLS version,
                     all of that version are used [all]
  ssl_session_cache  count new sessions in `stats`; resumption by tickets works in any case
  ssl_keyformat=N    format of the key: 1 PEM, 2 DER [1]
  ssl_wbuf_size=KB   bytes encrypted as one record, at most 16 KiB [16]
Accepted and ignored, because they tune parts that this server does not have:
  hashpower=N, no_hashexpand, hash_algorithm=NAME, slab_reassign, slab_automove[=N],
  slab_automove_ratio=F, slab_automove_window=N, slab_automove_freeratio=F, slab_sizes=LIST,
  slab_chunk_max=KB, no_chunked_items, lru_crawler_sleep=N, lru_crawler_tocrawl=N,
  lru_maintainer, hot_lru_pct=N, warm_lru_pct=N, hot_max_factor=F, warm_max_factor=F,
  temporary_ttl=N, tail_repair_time=N, inline_ascii_resp, worker_logbuf_size=KB,
  resp_obj_mem_limit=MB, modern, ssl_kernel_tls

Environment: MEMCACHED_PORT_FILENAME names the file to write the ports to, MEMCACHED_SASL_PWDB the
file with the users for -S.
Signals: SIGTERM and SIGUSR1 stop the server after --drain, SIGINT stops it at once, SIGHUP reloads
--config and the files that it names, SIGUSR2 writes the snapshot (-e).";

impl Options {
    /// Whether clients must log in.
    pub fn requires_login(&self) -> bool {
        self.auth_file.is_some() || self.enable_sasl
    }

    /// The memory limit in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_limit.bytes()
    }

    /// The limit on the buffers of all connections together, in bytes.
    pub fn buffer_bytes(&self) -> usize {
        let wanted = match self.extended.read_buf_mem_limit {
            0 => (self.memory_bytes() / 4).max(MIN_BUFFER_BYTES),
            megabytes => megabytes as usize * MEBIBYTE,
        };
        // A growing buffer is up to twice as large as its item, and one client may store while
        // another one fetches.
        wanted.max(4 * self.max_item_size)
    }

    /// The largest key and value together, in bytes.
    pub fn max_key_and_value(&self) -> usize {
        self.max_item_size.saturating_sub(ITEM_OVERHEAD_OF_MEMCACHED)
    }

    /// The TCP port, 0 for any free one; none if TCP is off.
    pub fn tcp_port(&self) -> Option<u16> {
        match self.port {
            Some(port) => to_port(port),
            None if self.udp_port != 0 => to_port(self.udp_port),
            None => Some(DEFAULT_PORT),
        }
    }

    /// The UDP port, 0 for any free one; none if UDP is off.
    pub fn udp_port(&self) -> Option<u16> {
        to_port(self.udp_port).filter(|_| self.unix_socket.is_none())
    }

    /// The protocol of connections whose listener sets none.
    pub fn binding_protocol(&self) -> Binding {
        match self {
            _ if self.enable_sasl => Binding::Binary,
            _ if self.auth_file.is_some() => Binding::Ascii,
            _ => self.protocol.unwrap_or_default(),
        }
    }

    /// How TCP connections are encrypted if their listener sets nothing else.
    pub fn security(&self) -> Security {
        if self.enable_ssl { Security::Tls(self.extended.ssl.client_certificate()) } else { Security::Plain }
    }

    /// Whether a listener requires client certificates although no authority is set to verify them.
    pub fn refuses_all_certificates(&self) -> bool {
        let asks = |address: &Address| address.security.is_some_and(asks_for_certificate);
        self.extended.ssl.ca_cert.is_none() && self.listen.iter().any(asks)
    }

    /// The addresses to listen on.
    pub fn addresses(&self) -> Vec<Address> {
        match self.listen.as_slice() {
            [] => vec![Address::of_host(Host::Name("127.0.0.1".into()))],
            given => given.to_vec(),
        }
    }

    /// The addresses that were given, as text.
    pub fn listen_text(&self) -> Option<String> {
        let texts: Vec<String> = self.listen.iter().map(ToString::to_string).collect();
        (!texts.is_empty()).then(|| texts.join(","))
    }
}

/// Whether clients may or must show certificates.
fn asks_for_certificate(security: Security) -> bool {
    !matches!(security, Security::Plain | Security::Tls(ClientCertificate::Unasked))
}

/// Converts a port of the command line, where 0 stands for none and -1 for any free port.
fn to_port(port: i32) -> Option<u16> {
    match port {
        -1 => Some(0),
        0 => None,
        port => u16::try_from(port).ok(),
    }
}

fn parse_octal(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777).ok_or("not an access mode in octal".into())
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        &[delimiter] => Ok(delimiter),
        _ => Err("not a single character".into()),
    }
}

fn parse_admin(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    port.or_else(|_| text.parse()).map_err(|_| "neither PORT nor IP:PORT".into())
}

/// Checks a node of `--cluster-node`. Clients split lists of nodes at blanks, and nodes at `|`.
fn parse_node(text: &str) -> Result<String, String> {
    let is_word = |word: &str| word.bytes().all(|byte| byte.is_ascii_graphic());
    match text.split('|').collect::<Vec<_>>()[..] {
        [host, ip, port]
            if !host.is_empty() && is_word(host) && is_word(ip) && port.parse::<u16>().is_ok_and(|port| port > 0) =>
        {
            Ok(text.into())
        }
        _ => Err("not HOST|IP|PORT; IP may be empty".into()),
    }
}

fn parse_size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let number: usize = digits.parse().map_err(|_| format!("{digits:?} is not a number"))?;
    number.checked_mul(unit).ok_or("too large".into())
}

/// The exit status that memcached gives for this outcome of parsing.
pub fn exit_status(error: &clap::Error) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
        _ => 1,
    }
}

#[cfg(test)]
mod tests;
