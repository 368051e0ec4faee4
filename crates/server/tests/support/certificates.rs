//! Certificate files for tests: an authority, and the certificates that it has issued.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// A certificate authority, and a folder with its certificate `authority.crt` and the certificates
/// that it has issued.
pub struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority, which issues `server.crt` with the key `server.key`.
    pub fn new() -> Authority {
        let folder = TempDir::new().unwrap();
        let mut params = CertificateParams::default();
        // A unique name.
        params.distinguished_name.push(DnType::CommonName, folder.path().display().to_string());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Authority { folder, issuer };
        fs::write(authority.path("authority.crt"), authority.issuer.pem()).unwrap();
        authority.issue("server", |_| ());
        authority
    }

    /// Issues `NAME.crt` for localhost, with the key `NAME.key`. Replaces existing files of this
    /// name.
    pub fn issue(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) {
        let mut params = CertificateParams::new(["localhost".into()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.path(&format!("{name}.crt")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Returns flags for a server with `server.crt`, which trusts clients with certificates of this
    /// authority.
    pub fn flags(&self) -> String {
        let [chain, key, authority] = ["server.crt", "server.key", "authority.crt"].map(|file| self.path(file));
        let (chain, key, authority) = (chain.display(), key.display(), authority.display());
        format!("-Z -o ssl_chain_cert={chain},ssl_key={key},ssl_ca_cert={authority}")
    }

    /// Returns the configuration of a client that trusts this authority, and sends no certificate.
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::new(ClientConfig::builder().with_root_certificates(self.trusted()).with_no_client_auth())
    }

    /// Returns the configuration of a client that trusts this authority, and sends the certificate
    /// `name` of `other`.
    pub fn client_as(&self, other: &Authority, name: &str) -> Arc<ClientConfig> {
        let certificate = CertificateDer::from_pem_file(other.path(&format!("{name}.crt"))).unwrap();
        let key = PrivateKeyDer::from_pem_file(other.path(&format!("{name}.key"))).unwrap();
        let builder = ClientConfig::builder().with_root_certificates(self.trusted());
        Arc::new(builder.with_client_auth_cert(vec![certificate], key).unwrap())
    }

    pub fn trusted(&self) -> RootCertStore {
        let mut store = RootCertStore::empty();
        store.add(self.issuer.der().clone()).unwrap();
        store
    }
}
