//! The addresses to listen on (`-l`).

use super::{ClientCertificate, Security};
use clap::ValueEnum;
use std::fmt;
use std::str::FromStr;

/// Which protocols a connection may speak.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Binding {
    /// Detect the protocol by the first byte of the connection
    #[default]
    Auto,
    /// Text protocol
    Ascii,
    /// Binary protocol
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

/// An address to listen on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Address {
    /// The addresses of this machine.
    pub host: Host,
    /// The port, if it is not that of `-p`.
    pub port: Option<u16>,
    /// The protocol, if it is not that of `-B`.
    pub binding: Option<Binding>,
    /// The encryption, if it is not that of `-Z` and `ssl_verify_mode`.
    pub security: Option<Security>,
    /// Whether its clients need no login, whatever `-Y` and `-S` say. Only for loopback addresses.
    pub without_login: bool,
}

impl Address {
    /// An address with the default port, protocol and encryption.
    pub(super) fn of_host(host: Host) -> Address {
        Address { host, port: None, binding: None, security: None, without_login: false }
    }

    /// Parses prefixes of `text`, and returns the rest: `proto[NAME]:`, `tag[NAME]:` (which has no
    /// effect), `nologin:`, `notls:`, `btls:` and `mtls:`.
    fn take_prefixes<'t>(&mut self, mut text: &'t str) -> Result<&'t str, String> {
        loop {
            text = if let Some((security, rest)) = secured(text) {
                self.security = Some(security);
                rest
            } else if let Some(rest) = text.strip_prefix("nologin:") {
                self.without_login = true;
                rest
            } else if let Some((name, rest)) = bracketed(text, "proto[") {
                self.binding = Some(match name {
                    "ascii" => Binding::Ascii,
                    "binary" => Binding::Binary,
                    "negotiating" | "auto" => Binding::Auto,
                    _ => return Err(format!("{name:?} is not a protocol")),
                });
                rest
            } else if let Some((name, rest)) = bracketed(text, "tag[") {
                if !(1..=8).contains(&name.len()) {
                    return Err("a tag has 1 to 8 characters".into());
                }
                rest
            } else {
                return Ok(text);
            };
        }
    }
}

/// The text in the brackets after `prefix`, and the text after the closing bracket and a colon.
fn bracketed<'t>(text: &'t str, prefix: &str) -> Option<(&'t str, &'t str)> {
    text.strip_prefix(prefix)?.split_once("]:")
}

/// The meaning of a TLS prefix, and the text after it.
fn secured(text: &str) -> Option<(Security, &str)> {
    let (name, rest) = text.split_once(':')?;
    let security = match name {
        "notls" => Security::Plain,
        "btls" => Security::Tls(ClientCertificate::Unasked),
        "mtls" => Security::Tls(ClientCertificate::Required),
        _ => return None,
    };
    Some((security, rest))
}

/// Addresses of this machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Host {
    /// All addresses.
    All,
    /// This IP address, or the addresses of this name.
    Name(String),
}

impl FromStr for Address {
    type Err = String;

    /// Parses `*`, a name or an IP address, each with or without `:PORT`. An IPv6 address with a
    /// port is in brackets. Prefixes may come first, and blanks before them.
    fn from_str(text: &str) -> Result<Address, String> {
        let mut address = Address::of_host(Host::All);
        let text = address.take_prefixes(text.trim_start())?;
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
        Ok(Address { host, port, ..address })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for text in ["*", "*:1", "10.0.0.1", "10.0.0.1:11211", "::1", "[::1]:11211", "localhost", "localhost:1"] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        assert_eq!("[::1]".parse(), Ok(Address::of_host(Host::Name("::1".into()))));
        for text in ["", ":1", "a:", "a:b", "a:65536", "[::1", "[::1]1", "[]:1"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn prefixes() {
        let address: Address = "tag[edge]:proto[binary]:[::1]:11211".parse().unwrap();
        assert_eq!((address.binding, address.port, address.security), (Some(Binding::Binary), Some(11211), None));
        for (text, security) in [
            ("notls:a:1", Security::Plain),
            ("btls:proto[ascii]:*", Security::Tls(ClientCertificate::Unasked)),
            ("tag[in]:mtls:[::1]", Security::Tls(ClientCertificate::Required)),
        ] {
            assert_eq!(text.parse::<Address>().expect(text).security, Some(security), "{text}");
        }
        let address: Address = "nologin:proto[binary]:127.0.0.1:1".parse().unwrap();
        assert!(address.without_login && address.binding == Some(Binding::Binary));
        for text in ["proto[x]:a", "tag[]:a", "tag[too-long-a-tag]:a"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
