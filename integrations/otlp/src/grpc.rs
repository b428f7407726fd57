use crate::{
    answer::{Accepted, Refusal},
    endpoint::{Endpoint, Signal, Tls},
    retry_info::retry_delay,
};
use kernspan::export::mute_this_thread;
use prost::bytes::{Buf, BufMut, Bytes};
use std::{
    error::Error,
    time::{Duration, Instant},
};
use tokio::runtime::{Builder, Runtime};
use tonic::{
    Code, Extensions, Request, Status,
    client::Grpc as Client,
    codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder},
    metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint as Address, Identity},
};
use ureq::http::uri::PathAndQuery;

/// A client that sends requests over gRPC. They are already encoded, so no generated code is needed.
#[derive(Debug)]
pub(crate) struct Grpc {
    address: Address,
    /// The URL without secrets, for messages.
    shown: String,
    path: PathAndQuery,
    metadata: MetadataMap,
    gzip: bool,
    connection: Option<Connection>,
    /// Created and dropped by the sending thread: the thread that creates the client may be in a runtime of the
    /// program.
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct Connection {
    client: Client<Channel>,
    used: Instant,
}

impl Grpc {
    /// Answers are a few words long. More than this is not read.
    const LONGEST_ANSWER: usize = 1 << 16;
    /// A connection that was idle for longer is not reused. It may have been closed, which goes unnoticed between
    /// requests, and a new one costs little.
    const LONGEST_IDLE: Duration = Duration::from_secs(15);

    pub(crate) fn new(signal: Signal, endpoint: &Endpoint) -> Result<Self, String> {
        let shown = endpoint.url.to_string();
        let bad = |error: tonic::transport::Error| format!("invalid endpoint {shown:?}: {}", chain(&error));
        let address = Address::from_shared(endpoint.url.as_str().to_owned()).map_err(bad)?;
        let secure = match (address.uri().scheme_str(), address.uri().host()) {
            (Some("http"), Some(_)) => false,
            (Some("https"), Some(_)) => true,
            _ => return Err(format!("invalid endpoint {shown:?}: expected an address such as http://localhost:4317")),
        };
        let mut address = address.connect_timeout(endpoint.timeout).user_agent(Endpoint::USER_AGENT).map_err(bad)?;
        if secure {
            address = address.tls_config(tls_config(endpoint)?).map_err(bad)?;
        }
        let path = match signal {
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        };
        Ok(Self {
            address,
            shown,
            path: PathAndQuery::from_static(path),
            metadata: metadata(endpoint)?,
            gzip: endpoint.gzip,
            connection: None,
            runtime: None,
        })
    }

    pub(crate) fn send(&mut self, request: &[u8], timeout: Duration) -> Result<Accepted, Refusal> {
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            // It resolves host names on its own thread, whose spans must not be recorded either.
            None => Builder::new_current_thread().enable_all().on_thread_start(mute_this_thread).build().map_err(
                |error| Refusal {
                    retry: true,
                    dead: false,
                    after: None,
                    why: format!("cannot start the gRPC runtime: {error}"),
                },
            )?,
        };
        let outcome = runtime.block_on(self.call(Bytes::copy_from_slice(request), timeout));
        self.runtime = Some(runtime);
        outcome
    }

    async fn call(&mut self, request: Bytes, timeout: Duration) -> Result<Accepted, Refusal> {
        let connection = self.connection.take().filter(|connection| connection.used.elapsed() < Self::LONGEST_IDLE);
        let mut client = connection.map_or_else(|| self.connect(), |connection| connection.client);
        let mut request = Request::from_parts(self.metadata.clone(), Extensions::default(), request);
        request.set_timeout(timeout);
        let call = async {
            client.ready().await.map_err(|error| Status::from_error(error.into()))?;
            client.unary(request, self.path.clone(), Encoded).await
        };
        let began = Instant::now();
        match tokio::time::timeout(timeout, call).await {
            Ok(Ok(response)) => {
                self.connection = Some(Connection { client, used: Instant::now() });
                Ok(Accepted::decode(response.get_ref()))
            }
            Ok(Err(status)) if began.elapsed() < timeout => {
                if status.source().is_none() {
                    // The collector itself answered, so the connection works.
                    self.connection = Some(Connection { client, used: Instant::now() });
                }
                Err(refused(&self.shown, &status))
            }
            // The next attempt uses a new connection: TCP takes a quarter of an hour to notice that this one is dead.
            Ok(Err(_)) | Err(_) => {
                let why = format!("{} did not answer within {timeout:?}", self.shown);
                Err(Refusal { retry: true, dead: false, after: None, why })
            }
        }
    }

    /// Returns a client that connects when the first request is sent.
    fn connect(&self) -> Client<Channel> {
        // Some collectors compress the answer to a compressed request even if the client does not offer to accept that.
        let client = Client::new(self.address.connect_lazy()).accept_compressed(CompressionEncoding::Gzip);
        let client = client.max_decoding_message_size(Self::LONGEST_ANSWER);
        if self.gzip { client.send_compressed(CompressionEncoding::Gzip) } else { client }
    }
}

impl Drop for Grpc {
    /// Does not wait for a pending host name lookup.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The refusal that a status stands for, by OTLP's specification.
fn refused(url: &str, status: &Status) -> Refusal {
    let after = retry_delay(status.details());
    let retry = match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        // With a delay it means too many requests; without one, a request that is too large.
        Code::ResourceExhausted => after.is_some(),
        // A source means that the connection failed, not that the collector refused.
        _ => status.source().is_some(),
    };
    let why = match status.source() {
        Some(source) => format!("{url}: {}", chain(source)),
        None => {
            let separator = if status.message().is_empty() { "" } else { ": " };
            format!("{url} answered {:?}{separator}{}", status.code(), status.message())
        }
    };
    // With a delay of zero, an overloaded collector would be asked again at once; the usual pause is used instead.
    Refusal { retry, dead: Refusal::is_dead(status), after: after.filter(|delay| !delay.is_zero()), why }
}

/// The message of an error and of its causes: the outermost alone is `transport error`.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for error in std::iter::successors(error.source(), |&error| error.source()) {
        let more = error.to_string();
        // Some messages already contain their cause.
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
    }
    text
}

fn metadata(endpoint: &Endpoint) -> Result<MetadataMap, String> {
    let mut metadata = MetadataMap::new();
    for (name, value) in &endpoint.headers.0 {
        // HTTP/2 names are lower-case. Names that end in `-bin` are for bytes, and invalid here.
        let key = AsciiMetadataKey::from_bytes(name.to_ascii_lowercase().as_bytes());
        let key = key.map_err(|_| format!("invalid header name {name:?}"))?;
        // The message leaves out the value, which may be a secret.
        let mut value =
            AsciiMetadataValue::try_from(value).map_err(|_| format!("invalid value for header `{name}`"))?;
        value.set_sensitive(true);
        metadata.insert(key, value);
    }
    Ok(metadata)
}

fn tls_config(endpoint: &Endpoint) -> Result<ClientTlsConfig, String> {
    let Tls { roots, identity } = Tls::read(endpoint)?;
    let config = match roots {
        Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
        None => ClientTlsConfig::new().with_webpki_roots(),
    };
    Ok(match identity {
        Some(identity) => config.identity(Identity::from_pem(identity.certificate, identity.key)),
        None => config,
    })
}

/// A codec that passes bytes through, since requests are already encoded.
#[derive(Clone, Copy, Debug)]
struct Encoded;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, request: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(request);
        Ok(())
    }
}

impl Decoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use super::{metadata, refused};
    use crate::{environment::Environment, otlp::Otlp, retry_info::tests::retry_in};
    use std::time::Duration;
    use tonic::{Code, Status};

    #[test]
    fn a_temporary_failure_is_tried_again() {
        let retry = |code| refused("", &Status::new(code, "")).retry;
        let later = [1, 4, 10, 11, 14, 15].map(Code::from_i32);
        for code in (1..=16).map(Code::from_i32) {
            assert_eq!(retry(code), later.contains(&code), "{code:?}");
        }
    }

    #[test]
    fn an_exhausted_collector_is_tried_again_if_it_says_when() {
        let exhausted = |details: Vec<u8>| {
            let status = Status::with_details(Code::ResourceExhausted, "too much", details.into());
            let refusal = refused("http://c:4317", &status);
            assert_eq!(refusal.why, "http://c:4317 answered ResourceExhausted: too much");
            (refusal.retry, refusal.after)
        };
        assert_eq!(exhausted(vec![]), (false, None));
        assert_eq!(exhausted(retry_in(1, 0)), (true, Some(Duration::from_secs(1))));
        assert_eq!(exhausted(retry_in(0, 0)), (true, None));
    }
    #[test]
    fn the_last_header_of_a_name_in_any_case_is_sent() {
        let otlp = Otlp::new(Environment::default()).header("X-Tenant", "first").header("x-tenant", "last");
        let metadata = metadata(&otlp.settings().traces.unwrap()).unwrap();
        assert_eq!(metadata.get_all("x-tenant").iter().collect::<Vec<_>>(), ["last"]);
    }

    #[test]
    fn messages_name_the_header_and_not_its_value() {
        let problem = |name, value| {
            let otlp = Otlp::new(Environment::default()).header(name, value);
            metadata(&otlp.settings().traces.unwrap()).unwrap_err()
        };
        assert_eq!(problem("x token", "secret"), r#"invalid header name "x token""#);
        assert_eq!(problem("x-token", "secret\n"), "invalid value for header `x-token`");
    }
}
