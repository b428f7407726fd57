use crate::{
    answer::{Accepted, Refusal},
    endpoint::{Endpoint, Tls},
};
use flate2::{Compression, write::GzEncoder};
use prost::Message;
use std::{borrow::Cow, io::Write, net::IpAddr, time::Duration};
use ureq::{
    Agent, Proxy,
    http::{HeaderMap, HeaderName, HeaderValue, Uri, header},
    tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem},
};

/// A client that sends each request as an HTTP POST.
#[derive(Debug)]
pub(crate) struct Http {
    agent: Agent,
    uri: Uri,
    /// The URI without secrets, for messages.
    shown: String,
    headers: HeaderMap,
    gzip: bool,
}

impl Http {
    /// Answers are a few words long. More than this is not read.
    const LONGEST_ANSWER: u64 = 1 << 16;

    pub(crate) fn new(endpoint: &Endpoint) -> Result<Self, String> {
        let shown = endpoint.url.to_string();
        let uri: Uri = endpoint.url.as_str().parse().map_err(|error| format!("invalid endpoint {shown:?}: {error}"))?;
        let (secure, host) = match (uri.scheme_str(), uri.host()) {
            (Some("http"), Some(host)) => (false, host),
            (Some("https"), Some(host)) => (true, host),
            _ => return Err(format!("invalid endpoint {shown:?}: expected an address such as http://localhost:4318")),
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        if endpoint.gzip {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        for (name, value) in &endpoint.headers.0 {
            let name = HeaderName::try_from(name).map_err(|_| format!("invalid header name {name:?}"))?;
            // The message leaves out the value, which may be a secret.
            let mut value = HeaderValue::try_from(value).map_err(|_| format!("invalid value for header `{name}`"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A redirect would send headers, which may be secrets, to another server, and may turn a POST into a GET.
            .max_redirects(0)
            .proxy(if is_this_machine(host) { None } else { Proxy::try_from_env() })
            .user_agent(Endpoint::USER_AGENT)
            .tls_config(if secure { tls_config(endpoint)? } else { TlsConfig::default() })
            .build();
        Ok(Self { agent: config.new_agent(), uri, shown, headers, gzip: endpoint.gzip })
    }

    pub(crate) fn send(&mut self, request: &[u8], timeout: Duration) -> Result<Accepted, Refusal> {
        let body = if self.gzip { Cow::Owned(compress(request)) } else { Cow::Borrowed(request) };
        let mut post = self.agent.post(&self.uri).config().timeout_global(Some(timeout)).build();
        if let Some(headers) = post.headers_mut() {
            headers.extend(self.headers.clone());
        }
        let unanswered = |error: ureq::Error| Refusal {
            // A problem with the request itself persists. One with certificates may not: they are renewed.
            retry: !matches!(error, ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::Tls(_)),
            dead: matches!(&error, ureq::Error::Io(error) if Refusal::is_dead(error)),
            after: None,
            why: match error {
                ureq::Error::Timeout(_) => format!("{} did not answer within {timeout:?}", self.shown),
                error => format!("{}: {error}", self.shown),
            },
        };
        let mut response = post.send(&*body).map_err(unanswered)?;
        let (status, after) = (response.status(), retry_after(response.headers()));
        let answer = response.body_mut().with_config().limit(Self::LONGEST_ANSWER).read_to_vec();
        if status.is_success() {
            // The request was accepted, even if the rest of the answer did not arrive.
            return Ok(Accepted::decode(&answer.unwrap_or_default()));
        }
        let message = Status::decode(&*answer.unwrap_or_default()).unwrap_or_default().message;
        let separator = if message.is_empty() { "" } else { ": " };
        let why = format!("{} answered {status}{separator}{message}", self.shown);
        Err(Refusal { retry: matches!(status.as_u16(), 429 | 502 | 503 | 504), dead: false, after, why })
    }
}

/// When to try again, if the header contains seconds. A date is ignored, since the clocks may differ.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

fn compress(request: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::with_capacity(request.len() / 4), Compression::fast());
    // Writing to memory does not fail.
    let _ = gzip.write_all(request);
    gzip.finish().unwrap_or_default()
}

fn tls_config(endpoint: &Endpoint) -> Result<TlsConfig, String> {
    let Tls { roots, identity } = Tls::read(endpoint)?;
    let mut config = TlsConfig::builder();
    if let Some(pem) = roots {
        config = config.root_certs(RootCerts::new_with_certs(&certificates(&pem)));
    }
    if let Some(identity) = identity {
        let key = PrivateKey::from_pem(&identity.key).map_err(|error| format!("invalid client key: {error}"))?;
        config = config.client_cert(Some(ClientCert::new_with_certs(&certificates(&identity.certificate), key)));
    }
    Ok(config.build())
}

fn certificates(pem: &[u8]) -> Vec<Certificate<'static>> {
    let found = parse_pem(pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    found.collect()
}

/// Whether a host is this machine. If so, no proxy is used, whatever the environment says: it would look for the
/// collector on its own machine.
fn is_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or_else(|_| host.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}

/// `google.rpc.Status`, with which a collector may answer.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
}

#[cfg(test)]
mod tests {
    use super::Http;
    use crate::{environment::Environment, otlp::Otlp};

    #[test]
    fn the_last_header_of_a_name_in_any_case_is_sent() {
        let otlp = Otlp::new(Environment::default()).header("X-Tenant", "first").header("x-tenant", "last");
        let http = Http::new(&otlp.settings().traces.unwrap()).unwrap();
        assert_eq!(http.headers.get_all("x-tenant").iter().collect::<Vec<_>>(), ["last"]);
    }

    #[test]
    fn messages_name_the_header_and_not_its_value() {
        let problem = |name, value| {
            let otlp = Otlp::new(Environment::default()).header(name, value);
            Http::new(&otlp.settings().traces.unwrap()).unwrap_err()
        };
        assert_eq!(problem("x token", "secret"), r#"invalid header name "x token""#);
        assert_eq!(problem("x-token", "secret\n"), "invalid value for header `x-token`");
    }
}
