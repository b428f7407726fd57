//! Certificates for tests, in a folder: an authority, and those that it signed.

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use std::{fs, net::IpAddr, path::PathBuf};
use tempfile::TempDir;

/// An authority, a server and a client.
pub struct Certificates {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    /// Whether clients are to show a certificate.
    pub ask_clients: bool,
}

impl Certificates {
    pub fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority");
        let key = KeyPair::generate().unwrap();
        fs::write(folder.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        let certificates = Self { folder, issuer: Issuer::new(params, key), ask_clients: false };
        certificates.sign("client", ExtendedKeyUsagePurpose::ClientAuth, None);
        certificates
    }

    pub fn asking_clients() -> Self {
        Self { ask_clients: true, ..Self::new() }
    }

    fn sign(&self, name: &str, purpose: ExtendedKeyUsagePurpose, address: Option<IpAddr>) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        params.subject_alt_names.extend(address.map(SanType::IpAddress));
        let key = KeyPair::generate().unwrap();
        fs::write(self.file(name), params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        fs::write(self.file(&format!("{name}-key")), key.serialize_pem()).unwrap();
    }

    /// The server's certificate and key, for this address.
    pub fn server(&self, address: IpAddr) -> [String; 2] {
        self.sign("server", ExtendedKeyUsagePurpose::ServerAuth, Some(address));
        ["server", "server-key"].map(|name| fs::read_to_string(self.file(name)).unwrap())
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.pem"))
    }

    /// The certificate of the authority.
    pub fn authority(&self) -> PathBuf {
        self.file("ca")
    }

    pub fn client(&self) -> PathBuf {
        self.file("client")
    }

    pub fn client_key(&self) -> PathBuf {
        self.file("client-key")
    }
}
