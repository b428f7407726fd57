//! TLS files. They are read and checked when a run begins, so that problems are reported then rather than by the first
//! request.

use crate::endpoint::Endpoint;
use rustls::{
    RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use std::{fs, path::Path, sync::Arc};

/// The contents of the files, in PEM.
pub(crate) struct Tls {
    /// The certificates that the collector's is checked against; Mozilla's if `None`.
    pub(crate) roots: Option<Vec<u8>>,
    pub(crate) identity: Option<Identity>,
}

/// The certificate that this process presents to the collector, and its key.
pub(crate) struct Identity {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Tls {
    pub(crate) fn read(endpoint: &Endpoint) -> Result<Self, String> {
        let identity = match (&endpoint.client_certificate, &endpoint.client_key) {
            (Some(certificate), Some(key)) => Some(Identity::read(certificate, key)?),
            (None, None) => None,
            (Some(path), None) => return Err(format!("the client certificate {} has no key: set one", path.display())),
            (None, Some(path)) => return Err(format!("the client key {} has no certificate: set one", path.display())),
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
        // The HTTP and gRPC clients do not check that the two belong together, and panic if they do not.
        CertifiedKey::from_der(chain, secret, &provider).map_err(|error| {
            format!("the key {} does not match the certificate {}: {error}", key.display(), certificate.display())
        })?;
        Ok(Self { certificate: pem, key: key_pem })
    }
}

fn read_roots(path: &Path) -> Result<Vec<u8>, String> {
    let pem = read(path)?;
    let mut store = RootCertStore::empty();
    for certificate in certificates(&pem, path)? {
        store.add(certificate).map_err(|error| format!("invalid certificate in {}: {error}", path.display()))?;
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
