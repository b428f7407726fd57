//! How requests get to a collector: over HTTP, or over gRPC. A request is its bytes; what comes back is how much of it was taken.

#[cfg(feature = "otlp-grpc")]
use super::grpc::Grpc;
use super::{
    http::Http,
    settings::{Endpoint, Protocol},
};
use prost::Message;
use std::time::Duration;

/// Who sends, for a collector's logs.
pub(super) const USER_AGENT: &str = concat!("OTel-OTLP-Exporter-Rust-kernspan/", env!("CARGO_PKG_VERSION"));

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

/// A way to a collector.
#[derive(Debug)]
pub(super) enum Transport {
    Http(Box<Http>),
    #[cfg(feature = "otlp-grpc")]
    Grpc(Box<Grpc>),
}

/// The collector has taken a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Accepted {
    /// How much of what was in it, it has not.
    pub(super) rejected: u64,
    /// Why not, or what else it has to say.
    pub(super) message: String,
}

/// A request did not get through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Whether it may get through later.
    pub(super) again: bool,
    /// When to try again, if the collector says so.
    pub(super) after: Option<Duration>,
    pub(super) why: String,
}

impl Transport {
    const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

    /// Gets ready; nothing is sent yet.
    pub(super) fn new(signal: Signal, endpoint: &Endpoint) -> Result<Self, String> {
        match endpoint.protocol {
            Protocol::HttpProtobuf => Http::new(endpoint).map(|http| Self::Http(Box::new(http))),
            #[cfg(feature = "otlp-grpc")]
            Protocol::Grpc => Grpc::new(signal, endpoint).map(|grpc| Self::Grpc(Box::new(grpc))),
            #[cfg(not(feature = "otlp-grpc"))]
            Protocol::Grpc => {
                let _ = signal;
                Err("gRPC needs the feature `otlp-grpc` of kernspan; http/protobuf does not".to_owned())
            }
        }
    }

    /// Sends a request, and waits for the answer no longer than `timeout`.
    pub(super) fn send(&mut self, request: &[u8], timeout: Duration) -> Result<Accepted, Refusal> {
        // Clients have no good answer to times that do not end.
        let timeout = timeout.min(Self::LONGEST);
        match self {
            Self::Http(http) => http.send(request, timeout),
            #[cfg(feature = "otlp-grpc")]
            Self::Grpc(grpc) => grpc.send(request, timeout),
        }
    }
}

impl Accepted {
    /// Reads a response. One that makes no sense has nothing to say against the request.
    pub(super) fn decode(response: &[u8]) -> Self {
        let partial = Response::decode(response).unwrap_or_default().partial.unwrap_or_default();
        Self { rejected: partial.rejected.try_into().unwrap_or(0), message: partial.message }
    }
}

/// `ExportTraceServiceResponse` and `ExportMetricsServiceResponse`, which are alike.
#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(message, optional, tag = "1")]
    partial: Option<Partial>,
}

#[derive(Clone, PartialEq, Message)]
struct Partial {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    message: String,
}
