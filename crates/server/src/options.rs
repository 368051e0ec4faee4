//! The command line.
//!
//! Flags and defaults are memcached's, with one difference: without `-l` the server listens on the loopback address only.
//! A cache open to the network is both a leak and an amplifier. `-l '*'` listens everywhere.

mod address;
mod config;
mod extended;
mod generate;
mod ssl;

pub use address::{Address, Host};
pub use extended::Extended;
pub use generate::Generated;
pub use ssl::{ClientCertificate, Security, Ssl};

use crate::error::StartError;
use crate::observability::log::Format;
use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, ValueEnum};
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The protocol version that the server answers `version` with, because clients choose their dialect by it.
pub const PROTOCOL_VERSION: &str = "1.6.45";

/// What `-V` prints after the program's name.
const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (speaks the protocol of memcached 1.6.45)");

const DEFAULT_PORT: u16 = 11211;
const MEBIBYTE: usize = 1 << 20;
const SMALLEST_ITEM_LIMIT: usize = 1 << 10;
const LARGEST_ITEM_LIMIT: usize = 1 << 30;

/// What the buffers of all connections may hold, however small the memory for items is.
const LEAST_BUFFERS: usize = 64 * MEBIBYTE;

/// What memcached lets the hot and the warm segment of its LRU have together, in percent.
const MOST_HOT_AND_WARM: u32 = 80;

/// Bytes by which memcached lets a size class be larger than the one before.
const LEAST_STEP: u32 = 8;

/// What memcached counts for an item besides key and value: items fit in here if they fit there.
const ITEM_OVERHEAD_OF_MEMCACHED: usize = 59;

/// A storage engine.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum EngineKind {
    /// Lookups take no lock
    Relativistic,
    /// One mutex around all of it, for comparison
    GlobalLock,
}

/// How workers do input and output.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum IoKind {
    /// io_uring where the kernel has and allows it, epoll otherwise
    Auto,
    /// io_uring (Linux 6.1); containers often forbid it
    Uring,
    /// epoll
    Epoll,
}

/// A memcached server whose storage engine is a relativistic hash table: lookups take no lock while it grows and shrinks.
#[derive(Clone, Debug, Parser, PartialEq)]
#[command(name = "relativistd", version = LONG_VERSION, after_help = AFTER_HELP, args_override_self = true)]
pub struct Options {
    /// TCP port; 0 for none, -1 for any free one [default: 11211]
    #[arg(short = 'p', long, value_name = "PORT", value_parser = clap::value_parser!(i32).range(-1..=65535), allow_negative_numbers = true)]
    pub port: Option<i32>,

    /// UDP port; 0 for none, -1 for any free one. Given alone, the TCP port too
    #[arg(short = 'U', long, value_name = "PORT", default_value_t = 0, value_parser = clap::value_parser!(i32).range(-1..=65535), allow_negative_numbers = true)]
    pub udp_port: i32,

    /// Unix socket to listen on instead of TCP and UDP
    #[arg(short = 's', long, value_name = "PATH")]
    pub unix_socket: Option<PathBuf>,

    /// Access mode of the Unix socket, in octal
    #[arg(short = 'a', long, value_name = "MODE", default_value = "700", value_parser = parse_octal)]
    pub unix_mask: u32,

    /// Addresses to listen on; the loopback address only, if there are none.
    #[arg(
        help = "Addresses to listen on: IP, IP:PORT, [IPv6]:PORT, host name, or * for all; loopback only if not given. With -Z, notls: before one leaves it in plain text, btls: asks clients for no certificate, and mtls: requires one",
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

    /// Memory for items and table, in MiB
    #[arg(short = 'm', long, value_name = "MB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub memory_limit: u32,

    /// Refuse new items when memory is exhausted, instead of dropping old ones
    #[arg(short = 'M', long)]
    pub disable_evictions: bool,

    /// Who stores the items
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t = EngineKind::Relativistic)]
    pub engine: EngineKind,

    /// How to do input and output
    #[arg(long, value_name = "IO", value_enum, default_value_t = IoKind::Auto)]
    pub io: IoKind,

    /// Connections at a time
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub conn_limit: u32,

    /// Keep all memory out of swap
    #[arg(short = 'k', long)]
    pub lock_memory: bool,

    /// Say more on stderr: -v clients that are refused or lost, -vv all that they say (but values) and hear, -vvv everything
    #[arg(short = 'v', long, action = ArgAction::Count)]
    pub verbose: u8,

    /// File with more options in TOML: the long names are its keys. The command line wins
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Only check the options, those of --config included
    #[arg(long = "check")]
    pub only_check: bool,

    /// Form of the messages on stderr
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub log_format: Format,

    /// Offer metrics, a health check and a status page by HTTP there: PORT of the loopback interface, or IP:PORT
    #[arg(long, value_name = "ADDR", value_parser = parse_admin)]
    pub admin: Option<SocketAddr>,

    /// Print the license
    #[arg(short = 'i', long)]
    pub license: bool,

    /// File to write the process id to
    #[arg(short = 'P', long, value_name = "FILE")]
    pub pidfile: Option<PathBuf>,

    /// Growth of slab classes; without effect: there are none
    #[arg(short = 'f', long, value_name = "FACTOR", default_value_t = 1.25)]
    pub slab_growth_factor: f64,

    /// Smallest slab class; without effect
    #[arg(short = 'n', long, value_name = "BYTES", default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..))]
    pub slab_min_size: u32,

    /// Use large pages; without effect: that is for the kernel to decide
    #[arg(short = 'L', long)]
    pub enable_largepages: bool,

    /// Count commands by prefix of the key, up to this character (stats detail)
    #[arg(short = 'D', long, value_name = "CHAR", value_parser = parse_delimiter)]
    pub delimiter: Option<u8>,

    /// Worker threads
    #[arg(short = 't', long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,

    /// Requests that a connection may have executed in a row while others wait
    #[arg(short = 'R', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_reqs_per_event: u32,

    /// Give items no uniques: compare-and-swap is off
    #[arg(short = 'C', long)]
    pub disable_cas: bool,

    /// Seconds for which SIGTERM and SIGUSR1 let open connections go on while new ones are refused; a second signal ends that
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub drain: u32,

    /// Connections that the kernel completes before they are accepted
    #[arg(short = 'b', long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(i32).range(1..))]
    pub listen_backlog: i32,

    /// Protocol to speak
    #[arg(short = 'B', long, value_name = "PROTOCOL", default_value = "auto")]
    pub protocol: Binding,

    /// Largest item, key included; k and m stand for KiB and MiB
    #[arg(short = 'I', long, value_name = "SIZE", default_value = "1m", value_parser = parse_size)]
    pub max_item_size: usize,

    /// Require a SASL login; binary protocol only. Users are in the file that MEMCACHED_SASL_PWDB names
    #[arg(short = 'S', long)]
    pub enable_sasl: bool,

    /// Refuse flush_all
    #[arg(short = 'F', long)]
    pub disable_flush_all: bool,

    /// Refuse dumps of keys
    #[arg(short = 'X', long)]
    pub disable_dumping: bool,

    /// Refuse watch
    #[arg(short = 'W', long)]
    pub disable_watch: bool,

    /// Offer the command shutdown
    #[arg(short = 'A', long)]
    pub enable_shutdown: bool,

    /// Require a login by one of the users in this file, a line user:password each; text protocol only
    #[arg(short = 'Y', long, value_name = "FILE")]
    pub auth_file: Option<PathBuf>,

    /// File to keep items in over a restart: read and removed at the start, written at the end and on SIGUSR2
    #[arg(short = 'e', long, alias = "memory-file", value_name = "FILE")]
    pub snapshot: Option<PathBuf>,

    /// Start with the last snapshot after a crash, too: what clients deleted or changed since is back as it was
    #[arg(long)]
    pub warm_after_crash: bool,

    /// Encrypt TCP connections (TLS), with the certificate that -o ssl_chain_cert names
    #[arg(short = 'Z', long)]
    pub enable_ssl: bool,

    /// Receive queues of the network card to spread connections by; without effect
    #[arg(short = 'N', long, value_name = "N", default_value_t = 0)]
    pub napi_ids: u32,

    /// More options, see below
    #[arg(short = 'o', long = "extended", value_name = "OPTION[,...]", value_delimiter = ',', action = ArgAction::Append)]
    extended_words: Vec<String>,

    /// What `-o` says.
    #[arg(skip)]
    pub extended: Extended,

    /// Offer the command `debugtime`, by which tests move the clock, and begin uniques at 1
    #[arg(long, hide = true)]
    pub debug_time: bool,

    /// Whether the process is the server's own, so that it may give up what the server does not need ([`Extended::drop_privileges`]). The
    /// program says so; of a process with other tasks, the thread that binds a server would be left with little.
    #[arg(skip)]
    pub owns_process: bool,

    /// Print what is made of these definitions for packages
    #[arg(long, value_name = "KIND", value_enum, hide = true)]
    pub generate: Option<Generated>,
}

/// What follows the list of options in the help.
const AFTER_HELP: &str = "\
Options for -o (a no_ in front switches off what is on):
  maxconns_fast      refuse connections beyond -c with an error; otherwise they wait [on]
  idle_timeout=N     close TCP connections from which nothing came for N seconds [0: never]
  track_sizes        offer the histogram `stats sizes`
  lru_crawler        offer dumps of all keys [on]
  watcher_logbuf_size=KB
                     lines that a client who watches may be behind [256]
  read_buf_mem_limit=MB
                     what the buffers of all connections may hold, for requests and for answers; who holds most is closed
                     when it is more; never less than four times -I [0: a quarter of -m, but 64 at least]
  drop_privileges    give up all system calls that the server does not need (seccomp), beside what
                     it gives up without this: files that it does not need, and TCP connections to
                     others (Landlock); no_drop_privileges: neither
  ssl_chain_cert=FILE, ssl_key=FILE
                     with -Z: the certificate, with those that lead to an authority's, and its key, in PEM
  ssl_ca_cert=FILE   authorities whose certificates clients may show
  ssl_verify_mode=N  certificates of clients: 0 not asked for, 1 welcome, 2 and 3 required [0]
  ssl_min_version=N  the oldest version: 3 is TLS 1.3, 0 to 2 are TLS 1.2: there is nothing older [2]
  ssl_ciphers=NAME[:NAME...]
                     cipher suites, by OpenSSL's names: only these, of each version of which there is one [all]
  ssl_session_cache  count in `stats` how many sessions begin; they can be resumed in any case, by tickets
  ssl_keyformat=N    the key is in PEM (1) or DER (2) [1]
  ssl_wbuf_size=KB   what is encrypted as one record; more than 16 cannot be [16]
Without effect, because they tune what this server does not have:
  hashpower=N, no_hashexpand, hash_algorithm=NAME, slab_reassign, slab_automove[=N], slab_automove_ratio=F,
  slab_automove_window=N, slab_automove_freeratio=F, slab_sizes=LIST, slab_chunk_max=BYTES, no_chunked_items,
  lru_crawler_sleep=N, lru_crawler_tocrawl=N, lru_maintainer, hot_lru_pct=N, warm_lru_pct=N, hot_max_factor=F,
  warm_max_factor=F, temporary_ttl=N, tail_repair_time=N, inline_ascii_resp, worker_logbuf_size=KB,
  resp_obj_mem_limit=MB, modern, no_modern, ssl_kernel_tls

Environment: MEMCACHED_PORT_FILENAME names a file to write the ports to, MEMCACHED_SASL_PWDB one with users for -S.
Signals: SIGINT and SIGTERM stop the server, SIGUSR1 does it gracefully, SIGHUP makes it read the users and
certificates again, SIGUSR2 write the snapshot (-e).";

/// Which protocols a connection may speak.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Binding {
    /// The first byte tells.
    #[default]
    Auto,
    /// Text only.
    Ascii,
    /// Binary only.
    Binary,
}

impl Binding {
    /// Its name in `stats settings`.
    pub fn name(self) -> &'static str {
        match self {
            Binding::Auto => "auto-negotiate",
            Binding::Ascii => "ascii",
            Binding::Binary => "binary",
        }
    }
}

impl Options {
    /// Parses a command line, program name first, and the file that its `--config` names.
    ///
    /// # Errors
    /// What clap finds wrong with it, or a request for help or version, which is an error of its own kind; and what is wrong
    /// with the file.
    pub fn parse_from_args<T: Into<OsString> + Clone>(
        args: impl IntoIterator<Item = T>,
    ) -> Result<Options, clap::Error> {
        let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
        let mut matches = Options::command().try_get_matches_from(&args)?;
        if let Some(file) = matches.get_one::<PathBuf>("config") {
            matches = Options::command().try_get_matches_from(config::join(file, &args, &matches)?)?;
        }
        let mut options = Options::from_arg_matches(&matches)?;
        for word in &options.extended_words {
            let invalid = |problem| Options::command().error(ErrorKind::InvalidValue, problem);
            options.extended.apply(word).map_err(invalid)?;
        }
        Ok(options)
    }

    /// Whether the options fit together.
    ///
    /// # Errors
    /// If not.
    pub fn check(&self) -> Result<(), StartError> {
        let problem = match self {
            _ if self.max_item_size < SMALLEST_ITEM_LIMIT => "items (-I) cannot be limited to less than 1024 bytes",
            _ if self.max_item_size > LARGEST_ITEM_LIMIT => "items (-I) cannot be larger than a gigabyte",
            _ if self.max_item_size > self.memory_bytes() / 2 => {
                "items (-I) cannot be larger than half of the memory (-m)"
            }
            _ if self.slab_growth_factor <= 1.0 || self.slab_growth_factor.is_nan() => {
                "the factor (-f) must be greater than 1"
            }
            _ if !self.chunks_fit() => "chunks (-o slab_chunk_max) must divide a mebibyte and items (-I)",
            _ if !self.classes_rise() => {
                "classes (-o slab_sizes) must rise by 8 bytes at least, from -n to slab_chunk_max"
            }
            _ if self.extended.hot_lru_pct + self.extended.warm_lru_pct > MOST_HOT_AND_WARM => {
                "hot_lru_pct and warm_lru_pct (-o) cannot be more than 80 together"
            }
            _ if self.extended.temporary_ttl.is_some() && !self.extended.lru_maintainer => {
                "temporary_ttl (-o) needs lru_maintainer"
            }
            _ if !self.enable_ssl && self.listen.iter().any(|address| address.security.is_some()) => {
                "notls:, btls: and mtls: (-l) are for TLS (-Z)"
            }
            _ if self.enable_ssl && self.extended.ssl.chain_cert.is_none() => {
                "TLS (-Z) needs a certificate (-o ssl_chain_cert=FILE)"
            }
            _ if self.enable_ssl && self.extended.ssl.key.is_none() => {
                "TLS (-Z) needs the certificate's key (-o ssl_key=FILE)"
            }
            _ if self.enable_ssl && asks_for_certificate(self.security()) && self.extended.ssl.ca_cert.is_none() => {
                "certificates of clients need an authority (-o ssl_ca_cert=FILE)"
            }
            _ if self.auth_file.is_some() && self.enable_sasl => {
                "there can be logins by text (-Y) or SASL (-S), not by both"
            }
            _ if self.requires_login() && self.udp_port != 0 => "UDP (-U) has no logins (-Y, -S)",
            _ if self.auth_file.is_some() && self.protocol == Binding::Binary => {
                "the login by text (-Y) needs the text protocol (-B)"
            }
            _ if self.enable_sasl && self.protocol == Binding::Ascii => "SASL (-S) needs the binary protocol (-B)",
            _ if self.enable_sasl
                && self.listen.iter().any(|address| !matches!(address.binding, None | Some(Binding::Binary))) =>
            {
                "SASL (-S) needs the binary protocol (-l proto[...])"
            }
            _ => return Ok(()),
        };
        Err(StartError::Usage(problem.into()))
    }

    /// Makes paths absolute that are used when a daemon has left the folder in which it was started.
    pub fn fix_paths(&mut self) {
        if !self.daemon {
            return;
        }
        let ssl = &mut self.extended.ssl;
        let later = [
            &mut self.pidfile,
            &mut self.auth_file,
            &mut self.snapshot,
            &mut ssl.chain_cert,
            &mut ssl.key,
            &mut ssl.ca_cert,
        ];
        for path in later.into_iter().flatten() {
            // An empty one, or one without a folder to start from, will not be found either way.
            *path = std::path::absolute(&*path).unwrap_or_else(|_| path.clone());
        }
    }

    /// Whether chunks divide what memcached makes of them. Its default, which no `-I` below 512 KiB would fit, is not asked for here.
    fn chunks_fit(&self) -> bool {
        let divides = |chunk: u32| [MEBIBYTE, self.max_item_size].iter().all(|whole| whole % chunk as usize == 0);
        self.extended.slab_chunk_max.is_none_or(divides)
    }

    /// Whether size classes are such as memcached allows.
    fn classes_rise(&self) -> bool {
        let sizes = &self.extended.slab_sizes;
        let possible = self.slab_min_size..=self.extended.chunk_bytes();
        sizes.iter().all(|size| possible.contains(size))
            && sizes.is_sorted_by(|one, next| one.saturating_add(LEAST_STEP) <= *next)
    }

    /// Whether clients must log in.
    pub fn requires_login(&self) -> bool {
        self.auth_file.is_some() || self.enable_sasl
    }

    /// The memory limit in bytes.
    pub fn memory_bytes(&self) -> usize {
        (self.memory_limit as usize).saturating_mul(MEBIBYTE)
    }

    /// What the buffers of all connections may hold together, in bytes.
    pub fn buffer_bytes(&self) -> usize {
        let wanted = match self.extended.read_buf_mem_limit {
            0 => (self.memory_bytes() / 4).max(LEAST_BUFFERS),
            megabytes => megabytes as usize * MEBIBYTE,
        };
        // A buffer that grows is up to twice as large as the item in it, and one client may store while another fetches.
        wanted.max(4 * self.max_item_size)
    }

    /// The largest key and value together, in bytes.
    pub fn max_key_and_value(&self) -> usize {
        self.max_item_size.saturating_sub(ITEM_OVERHEAD_OF_MEMCACHED)
    }

    /// The TCP port, 0 for one of the kernel's choice; none if there is to be no TCP.
    pub fn tcp_port(&self) -> Option<u16> {
        match self.port {
            Some(port) => to_port(port),
            None if self.udp_port != 0 => to_port(self.udp_port),
            None => Some(DEFAULT_PORT),
        }
    }

    /// The UDP port, likewise.
    pub fn udp_port(&self) -> Option<u16> {
        to_port(self.udp_port).filter(|_| self.unix_socket.is_none())
    }

    /// The protocol of connections whose listener says nothing else.
    pub fn binding_protocol(&self) -> Binding {
        match self {
            _ if self.enable_sasl => Binding::Binary,
            _ if self.auth_file.is_some() => Binding::Ascii,
            _ => self.protocol,
        }
    }

    /// How those are spoken with who connect by TCP, if the listener says nothing else.
    pub fn security(&self) -> Security {
        if self.enable_ssl { Security::Tls(self.extended.ssl.client_certificate()) } else { Security::Plain }
    }

    /// Whether clients of some address must show certificates that no authority can verify.
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

/// A port of the command line: 0 is none, -1 one of the kernel's choice.
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
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, clap::Error> {
        Options::parse_from_args(line.split_whitespace())
    }

    #[test]
    fn defaults_are_memcacheds() {
        let options = parse("relativistd").unwrap();
        assert_eq!((options.tcp_port(), options.threads, options.conn_limit), (Some(11211), 4, 1024));
        assert_eq!((options.max_item_size, options.unix_mask), (1 << 20, 0o700));
        options.check().unwrap();
        assert_eq!(options.memory_bytes(), 64 << 20);
        assert_eq!(options.addresses(), ["127.0.0.1".parse().unwrap()]);
    }

    #[test]
    fn short_and_long_names_agree() {
        let short = parse("r -p 1 -l a,b -l c -t 2 -m 3 -c 4 -vv -s /s -u me").unwrap();
        let long = parse(
            "r --port 1 --listen a,b --listen c --threads 2 --memory-limit 3 --conn-limit 4 --verbose --verbose \
             --unix-socket /s --user me",
        )
        .unwrap();
        assert_eq!(short, long);
        assert_eq!(short.addresses(), ["a", "b", "c"].map(|address| address.parse().unwrap()));
        assert_eq!(short.verbose, 2);
    }

    #[test]
    fn minus_one_is_a_port() {
        assert_eq!(parse("r -p -1").unwrap().tcp_port(), Some(0));
        assert_eq!(parse("r -p 0").unwrap().tcp_port(), None);
        assert_eq!(parse("r -U 7").unwrap().tcp_port(), Some(7), "the port of UDP alone is that of TCP");
    }

    #[test]
    fn bad_values_and_unknown_options_fail_with_status_one() {
        for line in [
            "r -p x",
            "r -p 65536",
            "r -a 9",
            "r -D ab",
            "r -B text",
            "r -I 1g",
            "r -o nonsense",
            "r -o idle_timeout",
            "r -o hashpower=11",
            "r -o tail_repair_time=5",
            "r -o hot_max_factor=0",
            "r -o warm_max_factor=-1",
            "r -o slab_automove_ratio=0",
            "r -o slab_automove_ratio=1",
            "r -o slab_automove_ratio=NaN",
            "r -o slab_sizes=abc",
            "r -o slab_chunk_max=0",
            "r -o =1",
            "r -o ssl_chain_cert",
            "r -o ssl_keyformat=0",
            "r -o ssl_verify_mode=4",
            "r -o ssl_min_version=4",
            "r -o ssl_wbuf_size=0",
            "r -p -2",
            "r -t 0",
            "r -m 0",
            "r -c 0",
            "r -l a:b",
            "r --admin localhost:1",
            "r --nonsense",
            "r -Q",
            "r stray",
        ] {
            let error = parse(line).expect_err(line);
            assert_eq!(exit_status(&error), 1, "{line}");
        }
    }

    #[test]
    fn help_and_version_are_no_failure() {
        for line in ["r -h", "r --help", "r -V", "r --version"] {
            assert_eq!(exit_status(&parse(line).expect_err(line)), 0, "{line}");
        }
    }

    #[test]
    fn contradictions_are_found() {
        for line in [
            "r -I 1023",
            "r -I 33m",
            "r -m 4096 -I 1025m",
            "r -f 1",
            "r -Z",
            "r -Z -o ssl_chain_cert=/c",
            "r -Z -o ssl_key=/k",
            "r -Z -o ssl_chain_cert=/c,ssl_key=/k,ssl_verify_mode=1",
            "r -l notls:a",
            "r -l btls:a",
            "r -o slab_chunk_max=7",
            "r -I 700k -o slab_chunk_max=524288",
            "r -o slab_sizes=10-100",
            "r -o slab_sizes=100-104",
            "r -o slab_sizes=200-100",
            "r -o slab_sizes=100-2000000",
            "r -o hot_lru_pct=50,warm_lru_pct=50",
            "r -o temporary_ttl=61,no_lru_maintainer",
            "r -Y /file -S",
            "r -Y /file -U 1",
            "r -Y /file -B binary",
            "r -S -B ascii",
        ] {
            let error = parse(line).expect(line).check().expect_err(line);
            assert_eq!(error.exit_status(), 64, "{line}");
        }
    }

    #[test]
    fn what_memcached_accepts_is_accepted() {
        for line in [
            "r -I 700k",
            "r -I 2m -o slab_chunk_max=16384",
            "r -o slab_sizes=100-200-300",
            "r -o hot_lru_pct=40,warm_lru_pct=40,hot_max_factor=0.1",
            "r -o temporary_ttl=61",
            "r -o read_buf_mem_limit=0",
            "r -o maxconns_fast,",
            "r -Z -o ssl_chain_cert=/c,ssl_key=/k -l a,mtls:b",
            "r -p 0",
        ] {
            parse(line).expect(line).check().expect(line);
        }
    }

    #[test]
    fn of_repeated_options_the_last_counts() {
        let repeated =
            parse("r -t 4 -A -d -t 1 -m 3 -A -d --threads 2 -s /a -s /b --engine global-lock --engine relativistic");
        assert_eq!(repeated.unwrap(), parse("r -t 2 -m 3 -A -d -s /b").unwrap());
        let adding_up = parse("r -l a -l b -v -v -o track_sizes -o idle_timeout=5").unwrap();
        assert_eq!((adding_up.listen.len(), adding_up.verbose, adding_up.extended.idle_timeout), (2, 2, 5));
        assert!(adding_up.extended.track_sizes);
    }

    #[test]
    fn buffers_have_room_for_the_largest_items() {
        let megabytes = |line| parse(line).unwrap().buffer_bytes() / MEBIBYTE;
        assert_eq!(megabytes("r -m 1024"), 256);
        assert_eq!(megabytes("r -m 1024 -o read_buf_mem_limit=0"), 256);
        assert_eq!(megabytes("r -m 1024 -I 512m"), 2048);
        assert_eq!(megabytes("r -o read_buf_mem_limit=8"), 8);
        assert_eq!(megabytes("r -o read_buf_mem_limit=8 -I 4m"), 16);
    }

    #[test]
    fn extended_options_add_up() {
        let options = parse("r -o no_maxconns_fast,idle_timeout=5 -o track_sizes,relaxed_privileges").unwrap();
        assert!(!options.extended.maxconns_fast && options.extended.track_sizes);
        assert_eq!(options.extended.idle_timeout, 5);
    }

    #[test]
    fn listeners_ask_for_certificates_as_their_prefix_or_the_mode_says() {
        let mode = |mode| {
            let line = format!("r -Z -o ssl_chain_cert=/c,ssl_key=/k,ssl_ca_cert=/a,ssl_verify_mode={mode} -l notls:a");
            let options = parse(&line).unwrap();
            options.check().unwrap();
            options.security()
        };
        let wanted = [ClientCertificate::Unasked, ClientCertificate::Welcome, ClientCertificate::Required];
        assert_eq!([0, 1, 2].map(mode), wanted.map(Security::Tls));
        assert_eq!(mode(3), Security::Tls(ClientCertificate::Required));
        assert_eq!(parse("r").unwrap().security(), Security::Plain);
    }
}
