//! Where a signal is sent and how: its protocol, its address and headers, which may contain secrets and are never shown
//! in full, and its TLS files.
//!
//! TLS files are read and checked when a run begins, so that problems are reported then rather than by the first
//! request.

use rustls::{
    RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The kind of data in a request. Each has its own endpoint and queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Traces,
    Metrics,
}

/// The protocol used to send requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// `http/protobuf`: a POST for each request, by default to port 4318.
    HttpProtobuf,
    /// `grpc`, by default to port 4317. It requires the feature `grpc`.
    Grpc,
}

impl Protocol {
    /// The collector's default address.
    pub(crate) fn default_address(self) -> &'static str {
        match self {
            Self::HttpProtobuf => "http://localhost:4318",
            Self::Grpc => "http://localhost:4317",
        }
    }

    /// The URL of a signal, below the address of a collector.
    pub(crate) fn url(self, address: &str, signal: Signal) -> String {
        let path = match (self, signal) {
            // A gRPC request names the service itself.
            (Self::Grpc, _) => return address.to_owned(),
            (Self::HttpProtobuf, Signal::Traces) => "v1/traces",
            (Self::HttpProtobuf, Signal::Metrics) => "v1/metrics",
        };
        format!("{}/{path}", address.trim_end_matches('/'))
    }
}

/// Where and how the requests of one signal are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) protocol: Protocol,
    pub(crate) url: Url,
    pub(crate) headers: Headers,
    pub(crate) timeout: Duration,
    pub(crate) gzip: bool,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) client_certificate: Option<PathBuf>,
    pub(crate) client_key: Option<PathBuf>,
}

impl Endpoint {
    /// The sender's name, for the collector's logs.
    pub(crate) const USER_AGENT: &str = concat!("OTel-OTLP-Exporter-Rust-kernspan/", env!("CARGO_PKG_VERSION"));
}

/// The URL of a collector, which may contain a password or a token.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Url(String);

impl Url {
    pub(crate) fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The whole URL.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Without user, password, query and fragment.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.0.split(['?', '#']).next().unwrap_or_default();
        let (scheme, rest) = address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let host = host.rsplit('@').next().unwrap_or_default();
        write!(f, "{scheme}{}{host}{path}", if scheme.is_empty() { "" } else { "://" })
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// Request headers by name. If a name occurs twice, the last value counts.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Headers(pub(crate) Vec<(String, String)>);

/// The names only.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

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
