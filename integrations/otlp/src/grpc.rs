//! OTLP over gRPC. Requests are encoded before they come here: no code is generated, and bytes go in and out.

use super::{
    settings::Endpoint,
    tls::Tls,
    transport::{Accepted, Refusal, Signal, USER_AGENT},
};
use crate::export::mute_this_thread;
use prost::{
    Message,
    bytes::{Buf, BufMut, Bytes},
};
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

/// One collector's way in.
#[derive(Debug)]
pub(super) struct Grpc {
    address: Address,
    /// To be shown.
    url: String,
    path: PathAndQuery,
    metadata: MetadataMap,
    gzip: bool,
    connection: Option<Connection>,
    /// Made by the thread that sends, and dropped by it: the thread that gets things ready may be in a runtime of the program's.
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct Connection {
    client: Client<Channel>,
    used: Instant,
}

impl Grpc {
    /// The longest answer that is read. It is a word or two.
    const LONGEST_ANSWER: usize = 1 << 16;
    /// A connection that has been unused for longer may be gone without a word: nobody listens to it between requests. A new one costs little.
    const LONGEST_IDLE: Duration = Duration::from_secs(15);

    pub(super) fn new(signal: Signal, endpoint: &Endpoint) -> Result<Self, String> {
        let url = endpoint.shown();
        let bad = |error: tonic::transport::Error| format!("{url}: {}", chain(&error));
        let address = Address::from_shared(endpoint.url.clone()).map_err(bad)?;
        let secure = match (address.uri().scheme_str(), address.uri().host()) {
            (Some("http"), Some(_)) => false,
            (Some("https"), Some(_)) => true,
            _ => return Err(format!("{url} is no address of a collector, as http://localhost:4317")),
        };
        let mut address = address.connect_timeout(endpoint.timeout).user_agent(USER_AGENT).map_err(bad)?;
        if secure {
            address = address.tls_config(tls_config(endpoint)?).map_err(bad)?;
        }
        let path = match signal {
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        };
        Ok(Self {
            address,
            url,
            path: PathAndQuery::from_static(path),
            metadata: metadata(endpoint)?,
            gzip: endpoint.gzip,
            connection: None,
            runtime: None,
        })
    }

    pub(super) fn send(&mut self, request: &[u8], timeout: Duration) -> Result<Accepted, Refusal> {
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            // It has a thread to look names up, whose spans are nobody's either.
            None => Builder::new_current_thread().enable_all().on_thread_start(mute_this_thread).build().map_err(
                |error| Refusal { again: true, after: None, why: format!("cannot get gRPC going: {error}") },
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
                    // The collector itself has spoken: the connection is a good one.
                    self.connection = Some(Connection { client, used: Instant::now() });
                }
                Err(refused(&self.url, &status))
            }
            // The next try is over a new connection: this one may be dead, which takes a quarter of an hour to show.
            Ok(Err(_)) | Err(_) => {
                let why = format!("{} did not answer within {timeout:?}", self.url);
                Err(Refusal { again: true, after: None, why })
            }
        }
    }

    /// Nothing is connected before the first request is sent.
    fn connect(&self) -> Client<Channel> {
        // Some collectors compress the answer to what is compressed, whether one says that one takes it or not.
        let client = Client::new(self.address.connect_lazy()).accept_compressed(CompressionEncoding::Gzip);
        let client = client.max_decoding_message_size(Self::LONGEST_ANSWER);
        if self.gzip { client.send_compressed(CompressionEncoding::Gzip) } else { client }
    }
}

impl Drop for Grpc {
    /// A name that is being looked up is not waited for.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What a status says, as OTLP's specification has it.
fn refused(url: &str, status: &Status) -> Refusal {
    let after = retry_delay(status.details());
    let again = match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        // Too much at once, if it is said when it will not be; otherwise too much at all.
        Code::ResourceExhausted => after.is_some(),
        // What broke on the way is not what a collector says.
        _ => status.source().is_some(),
    };
    let why = match status.source() {
        Some(source) => format!("{url}: {}", chain(source)),
        None => {
            let separator = if status.message().is_empty() { "" } else { ": " };
            format!("{url} answered {:?}{separator}{}", status.code(), status.message())
        }
    };
    // At once is no answer to what is too much: then there is a pause of our own.
    Refusal { again, after: after.filter(|delay| !delay.is_zero()), why }
}

/// An error and what caused it: the outermost alone is `transport error`.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for error in std::iter::successors(error.source(), |&error| error.source()) {
        let more = error.to_string();
        // Some say what caused them themselves.
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
    }
    text
}

fn metadata(endpoint: &Endpoint) -> Result<MetadataMap, String> {
    let mut metadata = MetadataMap::new();
    for (name, value) in &endpoint.headers {
        // In lower case, as HTTP/2 has them. Those that end in `-bin` are for bytes.
        let key = AsciiMetadataKey::from_bytes(name.to_ascii_lowercase().as_bytes());
        let key = key.map_err(|_| format!("{name:?} is no name of a header of text"))?;
        // Not what it is: it may be a secret.
        let mut value =
            AsciiMetadataValue::try_from(value).map_err(|_| format!("the value of the header {name} is none"))?;
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

/// Requests as they are.
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

/// When to try again, if a status has a `google.rpc.RetryInfo` among its details.
fn retry_delay(details: &[u8]) -> Option<Duration> {
    let Details { details } = Details::decode(details).ok()?;
    let info = details.iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&*info.value).ok()?.delay.unwrap_or_default();
    let (seconds, nanos) = (delay.seconds.try_into().unwrap_or(0), delay.nanos.try_into().unwrap_or(0));
    Some(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos)))
}

/// `google.rpc.Status`, of which only the details are of interest.
#[derive(Clone, PartialEq, Message)]
struct Details {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    delay: Option<Delay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[cfg(test)]
mod tests {
    use super::{Any, Delay, Details, RetryInfo, refused, retry_delay};
    use prost::Message;
    use std::time::Duration;
    use tonic::{Code, Status};

    fn retry_in(seconds: i64, nanos: i32) -> Vec<u8> {
        let value = RetryInfo { delay: Some(Delay { seconds, nanos }) }.encode_to_vec();
        let other = Any { type_url: "type.googleapis.com/google.rpc.Help".to_owned(), value: vec![1, 2, 3] };
        let info = Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(), value };
        Details { details: vec![other, info] }.encode_to_vec()
    }

    #[test]
    fn a_collector_says_when_to_try_again() {
        assert_eq!(retry_delay(&retry_in(2, 500_000_000)), Some(Duration::from_millis(2500)));
        assert_eq!(retry_delay(&retry_in(-1, -1)), Some(Duration::ZERO));
        assert_eq!(retry_delay(&retry_in(i64::MAX, i32::MAX)).unwrap().as_secs(), i64::MAX as u64 + 2);
        assert_eq!(retry_delay(&[]), None);
        assert_eq!(retry_delay(b"what is this"), None);
    }

    #[test]
    fn what_may_get_through_later_is_tried_again() {
        let again = |code| refused("", &Status::new(code, "")).again;
        let later = [1, 4, 10, 11, 14, 15].map(Code::from_i32);
        for code in (1..=16).map(Code::from_i32) {
            assert_eq!(again(code), later.contains(&code), "{code:?}");
        }
    }

    #[test]
    fn too_much_is_tried_again_when_it_is_said_when() {
        let exhausted = |details: Vec<u8>| {
            let status = Status::with_details(Code::ResourceExhausted, "too much", details.into());
            let refusal = refused("http://c:4317", &status);
            assert_eq!(refusal.why, "http://c:4317 answered ResourceExhausted: too much");
            (refusal.again, refusal.after)
        };
        assert_eq!(exhausted(vec![]), (false, None));
        assert_eq!(exhausted(retry_in(1, 0)), (true, Some(Duration::from_secs(1))));
        assert_eq!(exhausted(retry_in(0, 0)), (true, None));
    }
}
