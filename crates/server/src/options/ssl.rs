//! TLS settings (`-Z`): the options of `-o` that begin with `ssl_`.

use std::path::{Path, PathBuf};

/// TLS settings. The names are memcached's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ssl {
    /// The file with the server's certificate and its intermediate certificates, in PEM.
    pub chain_cert: Option<PathBuf>,
    /// The file with the certificate's key.
    pub key: Option<PathBuf>,
    /// The format of the key: 1 for PEM, 2 for DER.
    pub keyformat: u32,
    /// What listeners without a prefix ask of clients: see [`Ssl::client_certificate`].
    pub verify_mode: u32,
    /// The cipher suites to use: their names in OpenSSL, separated by colons.
    pub ciphers: Option<String>,
    /// The file with the authorities that sign client certificates, in PEM.
    pub ca_cert: Option<PathBuf>,
    /// KiB encrypted as one record, at most 16.
    pub wbuf_size: u32,
    /// Count sessions. They can be resumed in any case.
    pub session_cache: bool,
    /// Without effect.
    pub kernel_tls: bool,
    /// The oldest version to speak: 3 is TLS 1.3; all below that are TLS 1.2.
    pub min_version: u32,
}

impl Default for Ssl {
    /// The defaults of memcached.
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
    /// What listeners without a prefix require of clients.
    pub fn client_certificate(&self) -> ClientCertificate {
        match self.verify_mode {
            0 => ClientCertificate::Unasked,
            1 => ClientCertificate::Welcome,
            // "Once" (3) means always: there is no renegotiation.
            _ => ClientCertificate::Required,
        }
    }

    /// The files that these settings name.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let Ssl { chain_cert, key, ca_cert, .. } = self;
        [chain_cert, key, ca_cert].into_iter().flatten().map(PathBuf::as_path)
    }

    /// The name of the oldest version.
    pub fn min_version_name(&self) -> &'static str {
        if self.min_version == 3 { "tlsv1.3" } else { "tlsv1.2" }
    }
}

/// Whether a client shows a certificate. One that is shown must be valid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClientCertificate {
    /// No certificate is requested.
    Unasked,
    /// A certificate is optional.
    Welcome,
    /// A certificate is required.
    Required,
}

/// Whether connections of a listener are encrypted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Security {
    /// In plain text.
    Plain,
    /// With TLS.
    Tls(ClientCertificate),
}
