//! The files that TLS needs, read and checked when a run begins: what is wrong with them is said then, and not by a request that fails.

use super::settings::Endpoint;
use rustls::{
    RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use std::{fs, path::Path, sync::Arc};

/// What the files hold, as it was written there.
pub(super) struct Tls {
    /// What a collector's certificate is checked against, if not Mozilla's.
    pub(super) roots: Option<Vec<u8>>,
    pub(super) identity: Option<Identity>,
}

/// What this process shows to the collector.
pub(super) struct Identity {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
}

impl Tls {
    pub(super) fn read(endpoint: &Endpoint) -> Result<Self, String> {
        let identity = match (&endpoint.client_certificate, &endpoint.client_key) {
            (Some(certificate), Some(key)) => Some(Identity::read(certificate, key)?),
            (None, None) => None,
            (Some(only), None) => return Err(format!("the certificate {} is without a key", only.display())),
            (None, Some(only)) => return Err(format!("the key {} is without a certificate", only.display())),
        };
        Ok(Self { roots: endpoint.certificate.as_deref().map(read_roots).transpose()?, identity })
    }
}

impl Identity {
    fn read(certificate: &Path, key: &Path) -> Result<Self, String> {
        let (pem, key_pem) = (read(certificate)?, read(key)?);
        let chain = certificates(&pem, certificate)?;
        let secret =
            PrivateKeyDer::from_pem_slice(&key_pem).map_err(|_| format!("there is no key in {}", key.display()))?;
        let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
        // Clients take it for granted that the two belong together, and panic if they do not.
        CertifiedKey::from_der(chain, secret, &provider)
            .map_err(|error| format!("{} and {} do not go together: {error}", certificate.display(), key.display()))?;
        Ok(Self { certificate: pem, key: key_pem })
    }
}

fn read_roots(path: &Path) -> Result<Vec<u8>, String> {
    let pem = read(path)?;
    let mut store = RootCertStore::empty();
    for certificate in certificates(&pem, path)? {
        store.add(certificate).map_err(|error| format!("a certificate in {} is no good: {error}", path.display()))?;
    }
    Ok(pem)
}

fn certificates(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(format!("there is no certificate in {}", path.display())),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}
