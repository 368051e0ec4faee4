//! The command line.
//!
//! Flags and defaults are memcached's, with one difference: without `-l` the server listens on the loopback address only.
//! It has no authentication yet, and a cache open to the network is both a leak and an amplifier. `-l '*'` listens
//! everywhere.

use clap::error::ErrorKind;
use clap::{ArgAction, Parser};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The protocol version that the server answers `version` with, because clients choose their dialect by it.
pub const PROTOCOL_VERSION: &str = "1.6.45";

/// What `-V` prints after the program's name.
const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (speaks the protocol of memcached 1.6.45)");

const MEBIBYTE: usize = 1 << 20;

/// A memcached server whose storage engine is a relativistic hash table: lookups take no lock while it grows and shrinks.
#[derive(Clone, Debug, Eq, Parser, PartialEq)]
#[command(name = "relativistd", version = LONG_VERSION)]
pub struct Options {
    /// TCP port; 0 for none, -1 for any free one
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 11211, value_parser = clap::value_parser!(i32).range(-1..=65535), allow_negative_numbers = true)]
    pub port: i32,

    /// Addresses to listen on; the loopback address only, if there are none.
    #[arg(
        help = "Addresses to listen on: IP, IP:PORT, [IPv6]:PORT, host name, or * for all; loopback only if not given",
        short = 'l', long, value_name = "ADDRS", value_delimiter = ',', action = ArgAction::Append)]
    pub listen: Vec<Address>,

    /// Unix socket to listen on instead of TCP
    #[arg(short = 's', long, value_name = "PATH")]
    pub unix_socket: Option<PathBuf>,

    /// Worker threads
    #[arg(short = 't', long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,

    /// Memory for items and table, in MiB
    #[arg(short = 'm', long, value_name = "MB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub memory_limit: u32,

    /// Connections at a time
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub conn_limit: u32,

    /// User to become when started as root
    #[arg(short = 'u', long, value_name = "USER")]
    pub user: Option<String>,

    /// Say more on stderr: -v errors of clients, -vv connections too, -vvv everything
    #[arg(short = 'v', long, action = ArgAction::Count)]
    pub verbose: u8,

    /// Offer the command `debugtime`, by which tests move the clock
    #[arg(long, hide = true)]
    pub debug_time: bool,
}

impl Options {
    /// Parses a command line, program name first.
    ///
    /// # Errors
    /// What clap finds wrong with it, or a request for help or version, which is an error of its own kind.
    pub fn parse_from_args<T: Into<OsString> + Clone>(
        args: impl IntoIterator<Item = T>,
    ) -> Result<Options, clap::Error> {
        Options::try_parse_from(args)
    }

    /// The memory limit in bytes.
    pub fn memory_bytes(&self) -> usize {
        (self.memory_limit as usize).saturating_mul(MEBIBYTE)
    }

    /// The addresses to listen on.
    pub fn addresses(&self) -> Vec<Address> {
        match self.listen.as_slice() {
            [] => vec![Address { host: Host::Name("127.0.0.1".into()), port: None }],
            given => given.to_vec(),
        }
    }
}

/// Where to listen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Address {
    /// On which of the host's addresses.
    pub host: Host,
    /// At which port, if not the one of `-p`.
    pub port: Option<u16>,
}

/// Which of the host's addresses to listen on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Host {
    /// All of them.
    All,
    /// This address, or those of this name.
    Name(String),
}

impl FromStr for Address {
    type Err = String;

    /// From `*`, a name or an IP address, each with or without `:PORT`; an IPv6 address before a port stands in brackets.
    fn from_str(text: &str) -> Result<Address, String> {
        let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(None) => return Err("the bracket is not closed".into()),
            Some(Some((host, ""))) => (host, None),
            Some(Some((host, rest))) => (host, Some(rest.strip_prefix(':').ok_or("a colon must follow the bracket")?)),
            None => match text.split_once(':') {
                // More than one colon: an IPv6 address without a port.
                Some((host, port)) if !port.contains(':') => (host, Some(port)),
                _ => (text, None),
            },
        };
        let host = match host {
            "" => return Err("the host is missing".into()),
            "*" => Host::All,
            name => Host::Name(name.into()),
        };
        let port = port.map(|port| port.parse().map_err(|_| format!("{port:?} is not a port"))).transpose()?;
        Ok(Address { host, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = match &self.host {
            Host::All => "*",
            Host::Name(name) => name,
        };
        match self.port {
            Some(port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Some(port) => write!(f, "{host}:{port}"),
            None => f.write_str(host),
        }
    }
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
        assert_eq!((options.port, options.threads, options.conn_limit), (11211, 4, 1024));
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
    fn addresses() {
        for text in ["*", "*:1", "10.0.0.1", "10.0.0.1:11211", "::1", "[::1]:11211", "localhost", "localhost:1"] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        assert_eq!("[::1]".parse(), Ok(Address { host: Host::Name("::1".into()), port: None }));
        for text in ["", ":1", "a:", "a:b", "a:65536", "[::1", "[::1]1", "[]:1"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn minus_one_is_a_port() {
        assert_eq!(parse("r -p -1").unwrap().port, -1);
    }

    #[test]
    fn bad_values_and_unknown_options_fail_with_status_one() {
        for line in [
            "r -p x",
            "r -p 65536",
            "r -p -2",
            "r -t 0",
            "r -m 0",
            "r -c 0",
            "r -l a:b",
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
}
