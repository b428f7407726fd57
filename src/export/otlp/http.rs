//! OTLP over HTTP: a POST for each request.

use super::{
    settings::Endpoint,
    transport::{Accepted, Refusal},
};
use flate2::{Compression, write::GzEncoder};
use prost::Message;
use std::{borrow::Cow, fs, io::Write, path::Path, time::Duration};
use ureq::{
    Agent,
    http::{HeaderMap, HeaderName, HeaderValue, header},
    tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem},
};

/// One collector's way in.
#[derive(Debug)]
pub(super) struct Http {
    agent: Agent,
    url: String,
    headers: HeaderMap,
    gzip: bool,
}

impl Http {
    /// The longest answer that is read. It is a word or two.
    const LONGEST_ANSWER: u64 = 1 << 16;

    pub(super) fn new(endpoint: &Endpoint) -> Result<Self, String> {
        let uri: ureq::http::Uri = endpoint.url.parse().map_err(|error| format!("{}: {error}", endpoint.url))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
            return Err(format!("{} is no address of a collector, as http://localhost:4318", endpoint.url));
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        if endpoint.gzip {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        for (name, value) in &endpoint.headers {
            let name = HeaderName::try_from(name).map_err(|_| format!("{name:?} is no name of a header"))?;
            // Not what it is: it may be a secret.
            let value = HeaderValue::try_from(value).map_err(|_| format!("the value of the header {name} is none"))?;
            headers.insert(name, value);
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("OTel-OTLP-Exporter-Rust-kernspan/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls(endpoint)?)
            .build();
        Ok(Self { agent: config.new_agent(), url: endpoint.url.clone(), headers, gzip: endpoint.gzip })
    }

    pub(super) fn send(&mut self, request: &[u8], timeout: Duration) -> Result<Accepted, Refusal> {
        let body = if self.gzip { Cow::Owned(compress(request)) } else { Cow::Borrowed(request) };
        let mut post = self.agent.post(&self.url).config().timeout_global(Some(timeout)).build();
        if let Some(headers) = post.headers_mut() {
            headers.extend(self.headers.clone());
        }
        let unanswered = |error: ureq::Error| Refusal {
            // What is wrong with the request itself, or with the certificate, stays wrong.
            again: !matches!(error, ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::Tls(_)),
            after: None,
            why: format!("{}: {error}", self.url),
        };
        let mut response = post.send(&*body).map_err(unanswered)?;
        let (status, after) = (response.status(), retry_after(response.headers()));
        let answer = response.body_mut().with_config().limit(Self::LONGEST_ANSWER).read_to_vec();
        if status.is_success() {
            // It has been taken, whether all of the answer came or not.
            return Ok(Accepted::decode(&answer.unwrap_or_default()));
        }
        let message = Status::decode(&*answer.unwrap_or_default()).unwrap_or_default().message;
        let separator = if message.is_empty() { "" } else { ": " };
        let why = format!("{} answered {status}{separator}{message}", self.url);
        Err(Refusal { again: matches!(status.as_u16(), 429 | 502 | 503 | 504), after, why })
    }
}

/// When to try again, if it is said in seconds. A date, which may be said as well, is of a clock that is not ours.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

fn compress(request: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::with_capacity(request.len() / 4), Compression::fast());
    // Into memory, it does not fail.
    let _ = gzip.write_all(request);
    gzip.finish().unwrap_or_default()
}

fn tls(endpoint: &Endpoint) -> Result<TlsConfig, String> {
    let mut tls = TlsConfig::builder();
    if let Some(path) = &endpoint.certificate {
        tls = tls.root_certs(RootCerts::new_with_certs(&certificates(path)?));
    }
    if let (Some(certificate), Some(key)) = (&endpoint.client_certificate, &endpoint.client_key) {
        let key = PrivateKey::from_pem(&read(key)?).map_err(|error| format!("{}: {error}", key.display()))?;
        tls = tls.client_cert(Some(ClientCert::new_with_certs(&certificates(certificate)?, key)));
    }
    Ok(tls.build())
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let pem = read(path)?;
    let found = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let found: Vec<_> = found.collect();
    if found.is_empty() { Err(format!("there is no certificate in {}", path.display())) } else { Ok(found) }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// `google.rpc.Status`, which a collector may answer with.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
}
