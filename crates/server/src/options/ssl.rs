//! What `-Z` encrypts with: the words of `-o` that begin with `ssl_`.

use std::path::PathBuf;

/// What is read, and asked of clients, for encrypted connections. The names are memcached's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ssl {
    /// The server's certificate, followed by those that lead to an authority's, in PEM.
    pub chain_cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// The form of the key: 1 for PEM, 2 for DER.
    pub keyformat: u32,
    /// What is asked of clients where the listener says nothing else: see [`Ssl::client_certificate`].
    pub verify_mode: u32,
    /// Which cipher suites to use, by OpenSSL's names with colons in between.
    pub ciphers: Option<String>,
    /// The authorities whose certificates clients may show, in PEM.
    pub ca_cert: Option<PathBuf>,
    /// KiB of an answer that are encrypted as one record; more than 16 cannot be.
    pub wbuf_size: u32,
    /// Tell how many sessions were begun. They can be resumed in any case.
    pub session_cache: bool,
    /// Without effect.
    pub kernel_tls: bool,
    /// The oldest version to speak: 3 is TLS 1.3; all below that are TLS 1.2.
    pub min_version: u32,
}

impl Default for Ssl {
    /// memcached's.
    fn default() -> Ssl {
        Ssl {
            chain_cert: None,
            key: None,
            keyformat: 1,
            verify_mode: 0,
            ciphers: None,
            ca_cert: None,
            wbuf_size: 16,
            session_cache: false,
            kernel_tls: false,
            min_version: 2,
        }
    }
}

impl Ssl {
    /// What clients have to show where the listener says nothing else.
    pub fn client_certificate(&self) -> ClientCertificate {
        match self.verify_mode {
            0 => ClientCertificate::Unasked,
            1 => ClientCertificate::Welcome,
            // Once (3) is always: nothing is negotiated anew.
            _ => ClientCertificate::Required,
        }
    }

    /// The name of the oldest version.
    pub fn min_version_name(&self) -> &'static str {
        if self.min_version == 3 { "tlsv1.3" } else { "tlsv1.2" }
    }
}

/// Whether a client has to prove who it is. One that is shown must be good.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClientCertificate {
    /// It is not asked to.
    Unasked,
    /// It may.
    Welcome,
    /// It has to.
    Required,
}

/// How those who connect to a listener are to be spoken with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Security {
    /// In plain text.
    Plain,
    /// By TLS.
    Tls(ClientCertificate),
}
