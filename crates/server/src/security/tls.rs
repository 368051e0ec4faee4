//! TLS settings of the server: certificates, keys and authorities, from files that can be reloaded.
//! rustls implements the protocol; `net` moves the bytes.
//!
//! A session is resumed by a ticket. The ticket holds the state of the session, encrypted by a key
//! that only this process has and that changes every six hours. So sessions cost no memory on the
//! server. When changed files are reloaded, all tickets become invalid: a client whose authority is
//! no longer accepted must prove its identity again. If the files are unchanged, reloading has no
//! effect.

use crate::error::StartError;
use crate::observability::log::{Level, Log};
use crate::options::{ClientCertificate, Options, Ssl};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, cipher_suite, default_provider};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    NoServerSessionStorage, ParsedCertificate, ProducesTickets, UnbufferedServerConnection, WebPkiClientVerifier,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, Error, InconsistentKeys, RootCertStore, ServerConfig, SupportedCipherSuite};
use sha2::{Digest as _, Sha256};
use std::fmt::Display;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Cipher suites by OpenSSL's names, the best first.
static SUITES: [(&str, SupportedCipherSuite); 9] = [
    ("TLS_AES_256_GCM_SHA384", cipher_suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", cipher_suite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", cipher_suite::TLS13_CHACHA20_POLY1305_SHA256),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// The largest piece that TLS allows to be encrypted as one record.
const MAX_RECORD: usize = 16 << 10;

/// The header of a record, which rustls counts as part of it.
const RECORD_HEADER: usize = 5;

/// The server's side of TLS.
#[derive(Debug)]
pub struct Tls {
    terms: RwLock<Terms>,
    /// Locked while the files are read again, so that the last reading is the one in use.
    last: Mutex<Reading>,
}

/// The settings in use, and the contents of their files.
#[derive(Debug, Eq, PartialEq)]
struct Reading {
    files: Ssl,
    digest: Digest,
}

/// Files that were read again, and are not used yet.
pub(crate) struct Refresh<'t> {
    tls: &'t Tls,
    last: MutexGuard<'t, Reading>,
    /// None if nothing has changed.
    next: Option<(Reading, Terms)>,
}

/// The contents of the files, and when they were read.
#[derive(Debug)]
struct Terms {
    read: Instant,
    /// The earliest expiry of the chain's certificates, in Unix seconds.
    expiry: Option<u64>,
    unasked: Arc<ServerConfig>,
    /// Settings for clients that may show a certificate, and for those that must; none without
    /// authorities.
    asked: Option<[Arc<ServerConfig>; 2]>,
}

impl Tls {
    /// Reads the files that `options` name, if these ask for TLS. A certificate that clients will
    /// refuse is used nevertheless, with a warning in the log.
    ///
    /// # Errors
    /// When a file cannot be read, is invalid, or does not match another one.
    pub fn new(options: &Options, log: &Log) -> Result<Option<Tls>, StartError> {
        if !options.enable_ssl {
            return Ok(None);
        }
        let files = options.extended.ssl.clone();
        let contents = Contents::read(&files).map_err(StartError::Usage)?;
        if options.refuses_all_certificates() {
            log.write(
                Level::Warning,
                format_args!(
                    "no client can connect to mtls: addresses (-l), because without an authority \
                     (-o ssl_ca_cert=FILE) no certificate can be verified"
                ),
            );
        }
        let digest = contents.digest();
        let terms = Terms::new(&files, contents, log).map_err(StartError::Usage)?;
        Ok(Some(Tls { terms: RwLock::new(terms), last: Mutex::new(Reading { files, digest }) }))
    }

    /// Reads the files again, for connections made from now on. If that fails, or the files are
    /// unchanged, the settings stay as they are.
    ///
    /// # Errors
    /// As [`Tls::new`].
    pub fn refresh(&self, log: &Log) -> Result<(), String> {
        self.read(None, log).map(|refresh| refresh.apply(log))
    }

    /// Reads the files that `files` names, or the present ones again. Other readings wait until the
    /// result is dropped or applied.
    ///
    /// # Errors
    /// As [`Tls::new`].
    pub(crate) fn read(&self, files: Option<&Ssl>, log: &Log) -> Result<Refresh<'_>, String> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let files = files.unwrap_or(&last.files).clone();
        let contents = Contents::read(&files)?;
        let reading = Reading { digest: contents.digest(), files };
        let next = if reading == *last {
            None
        } else {
            let terms = Terms::new(&reading.files, contents, log)?;
            Some((reading, terms))
        };
        Ok(Refresh { tls: self, last, next })
    }

    /// The time since the files were last read successfully.
    pub fn age(&self) -> Duration {
        self.terms.read().unwrap_or_else(PoisonError::into_inner).read.elapsed()
    }

    /// The earliest expiry of the chain's certificates, in Unix seconds.
    pub fn expiry(&self) -> Option<u64> {
        self.terms.read().unwrap_or_else(PoisonError::into_inner).expiry
    }

    /// Begins a connection.
    ///
    /// # Errors
    /// None is known: the settings were checked when they were read.
    pub(crate) fn begin(&self, certificate: ClientCertificate) -> Result<Box<UnbufferedServerConnection>, Error> {
        let config = self.terms.read().unwrap_or_else(PoisonError::into_inner).config(certificate)?;
        UnbufferedServerConnection::new(config).map(Box::new)
    }
}

impl Refresh<'_> {
    /// Uses what was read for connections made from now on.
    pub(crate) fn apply(mut self, log: &Log) {
        let mut terms = self.tls.terms.write().unwrap_or_else(PoisonError::into_inner);
        match self.next {
            None => terms.read = Instant::now(),
            Some((reading, new)) => {
                (*self.last, *terms) = (reading, new);
                log.write(Level::Trouble, format_args!("certificates reloaded"));
            }
        }
    }
}

/// The contents of the files.
struct Contents {
    chain: File,
    key: File,
    authorities: Option<File>,
}

struct File {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// The digest of each file; none if there is no such file.
type Digest = [Option<[u8; 32]>; 3];

impl Contents {
    fn read(files: &Ssl) -> Result<Contents, String> {
        let read = |path: &PathBuf| match fs::read(path) {
            Ok(bytes) => Ok(File { path: path.clone(), bytes }),
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        };
        let (Some(chain), Some(key)) = (&files.chain_cert, &files.key) else {
            return Err("TLS needs a certificate and a key".into());
        };
        let (chain, key) = (read(chain)?, read(key)?);
        Ok(Contents { chain, key, authorities: files.ca_cert.as_ref().map(read).transpose()? })
    }

    fn digest(&self) -> Digest {
        let files = [Some(&self.chain), Some(&self.key), self.authorities.as_ref()];
        files.map(|file| file.map(|file| Sha256::digest(&file.bytes).into()))
    }
}

impl Terms {
    fn new(files: &Ssl, contents: Contents, log: &Log) -> Result<Terms, String> {
        let Contents { chain: chain_file, key: key_file, authorities } = contents;
        let (chain_path, key_path) = (chain_file.path.display(), key_file.path.display());
        let chain = certificates(&chain_file)?;
        for certificate in &chain {
            if let Some(problem) = untimely(certificate) {
                log.write(Level::Warning, format_args!("clients will refuse {chain_path}: {problem}"));
            }
        }
        let expiry = chain.iter().filter_map(expiry).min();
        let provider = CryptoProvider { cipher_suites: suites(files.ciphers.as_deref())?, ..default_provider() };
        let key = CertifiedKey::from_der(chain, private_key(&key_file, files.keyformat)?, &provider);
        let key = key.map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                format!("the key in {key_path} is not that of the certificate in {chain_path}")
            }
            Error::InvalidCertificate(error) => {
                format!("cannot use the certificate in {chain_path}: {error}")
            }
            error => format!("cannot use the key in {key_path}: {error}"),
        })?;
        let builder = Builder { files, provider: Arc::new(provider), key: Arc::new(SingleCertAndKey::from(key)) };
        Ok(Terms {
            read: Instant::now(),
            expiry,
            unasked: builder.config(WebPkiClientVerifier::no_client_auth(), |ticketer| ticketer)?,
            asked: authorities.map(|file| builder.asking(&file)).transpose()?,
        })
    }

    fn config(&self, certificate: ClientCertificate) -> Result<Arc<ServerConfig>, Error> {
        let asked = || self.asked.as_ref().ok_or_else(|| Error::General("there is no authority".into()));
        Ok(Arc::clone(match certificate {
            ClientCertificate::Unasked => &self.unasked,
            ClientCertificate::Welcome => &asked()?[0],
            ClientCertificate::Required => &asked()?[1],
        }))
    }
}

/// The settings that all kinds of listeners have in common.
struct Builder<'f> {
    files: &'f Ssl,
    provider: Arc<CryptoProvider>,
    key: Arc<SingleCertAndKey>,
}

impl Builder<'_> {
    fn config(
        &self,
        verifier: Arc<dyn ClientCertVerifier>,
        tickets: impl FnOnce(Arc<dyn ProducesTickets>) -> Arc<dyn ProducesTickets>,
    ) -> Result<Arc<ServerConfig>, String> {
        let versions = if self.files.min_version == 3 { &[&TLS13][..] } else { &[&TLS13, &TLS12] };
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(versions)
            .map_err(|error| format!("cannot use the cipher suites (-o ssl_ciphers): {error}"))?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::clone(&self.key) as _);
        config.max_fragment_size = Some((self.files.wbuf_size as usize * 1024).min(MAX_RECORD) + RECORD_HEADER);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        // Tickets are sent even if no client will use them: after a handshake of TLS 1.3 the server
        // has nothing else to send, and a client that waits for an acknowledgement before its first
        // request (Nagle's algorithm) would wait for ours, which is delayed.
        config.ticketer =
            tickets(Ticketer::new().map_err(|error| format!("cannot create the keys for session tickets: {error}"))?);
        Ok(Arc::new(config))
    }

    /// Settings for clients that may show a certificate by one of the authorities in the file, and
    /// for those that must.
    fn asking(&self, file: &File) -> Result<[Arc<ServerConfig>; 2], String> {
        let unusable = |error: &dyn Display| format!("cannot use the authorities in {}: {error}", file.path.display());
        let mut authorities = RootCertStore::empty();
        for certificate in certificates(file)? {
            authorities.add(certificate).map_err(|error| unusable(&error))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(&self.provider));
        let welcoming = verifier.clone().allow_unauthenticated().build().map_err(|error| unusable(&error))?;
        let requiring = verifier.build().map_err(|error| unusable(&error))?;
        let unusable = |ticketer| Arc::new(Unusable(ticketer)) as _;
        Ok([self.config(welcoming, unusable)?, self.config(requiring, unusable)?])
    }
}

/// Tickets that resume nothing, for listeners that require client certificates: a ticket would stay
/// valid after the certificate has expired.
#[derive(Debug)]
struct Unusable(Arc<dyn ProducesTickets>);

impl ProducesTickets for Unusable {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.encrypt(plain)
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// The cipher suites of these names. If no suite of a TLS version is named, all of that version.
fn suites(names: Option<&str>) -> Result<Vec<SupportedCipherSuite>, String> {
    let mut named = Vec::new();
    for name in names.into_iter().flat_map(|names| names.split(':')) {
        let (_, suite) = SUITES.iter().find(|(known, _)| *known == name).ok_or_else(|| {
            let known = SUITES.map(|(known, _)| known).join(", ");
            format!("unknown cipher suite {name:?} (-o ssl_ciphers); known are {known}")
        })?;
        named.push(*suite);
    }
    for version in [&TLS13, &TLS12] {
        if named.iter().all(|suite| suite.version() != version) {
            named.extend(SUITES.iter().map(|(_, suite)| *suite).filter(|suite| suite.version() == version));
        }
    }
    Ok(named)
}

fn certificates(file: &File) -> Result<Vec<CertificateDer<'static>>, String> {
    let path = file.path.display();
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&file.bytes).collect();
    match all {
        Ok(all) if all.is_empty() => Err(format!("there is no certificate in {path}")),
        all => all.map_err(|error| format!("cannot read the certificates in {path}: {error}")),
    }
}

/// The key in a file, of format 1 (PEM) or 2 (DER).
fn private_key(file: &File, format: u32) -> Result<PrivateKeyDer<'static>, String> {
    let path = file.path.display();
    if format == 2 {
        let key =
            PrivateKeyDer::try_from(&*file.bytes).map_err(|error| format!("there is no key in {path}: {error}"))?;
        return Ok(key.clone_key());
    }
    PrivateKeyDer::from_pem_slice(&file.bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => format!("there is no key in {path}, or only an encrypted one"),
        error => format!("cannot read the key in {path}: {error}"),
    })
}

/// What is wrong with the validity period of a certificate.
fn untimely(certificate: &CertificateDer<'_>) -> Option<String> {
    let days = |from: UnixTime, to: UnixTime| to.as_secs().saturating_sub(from.as_secs()) / (24 * 60 * 60);
    match problem_at(certificate, UnixTime::now())? {
        CertificateError::ExpiredContext { time, not_after } => {
            Some(format!("it expired {} days ago", days(not_after, time)))
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            Some(format!("it is not valid for another {} days", days(time, not_before)))
        }
        _ => None,
    }
}

/// When a certificate expires.
fn expiry(certificate: &CertificateDer<'_>) -> Option<u64> {
    // rustls reports the expiry of a certificate that has expired. At the end of time, all have.
    let end_of_time = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    match problem_at(certificate, end_of_time)? {
        CertificateError::ExpiredContext { not_after, .. } => Some(not_after.as_secs()),
        _ => None,
    }
}

/// What is wrong with a certificate at `time`.
fn problem_at(certificate: &CertificateDer<'_>, time: UnixTime) -> Option<CertificateError> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    // No authority is trusted, so the verification fails in any case. It checks the time first.
    match verify_server_cert_signed_by_trust_anchor(&parsed, &RootCertStore::empty(), &[], time, &[]) {
        Err(Error::InvalidCertificate(problem)) => Some(problem),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cipher_suites_are_authenticated_and_forward_secret() {
        let all = suites(None).unwrap();
        assert_eq!(all.len(), SUITES.len());
        for suite in all {
            let name = format!("{:?}", suite.suite());
            // All key exchanges of TLS 1.3 are forward secret.
            assert!(name.starts_with("TLS13_") || name.starts_with("TLS_ECDHE_"), "{name}");
            assert!(name.contains("_GCM_") || name.contains("_POLY1305_"), "{name}");
        }
    }
}
