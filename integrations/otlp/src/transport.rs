#[cfg(feature = "grpc")]
use crate::grpc::Grpc;
use crate::{
    answer::{Accepted, Refusal},
    endpoint::{Endpoint, Protocol, Signal},
    http::Http,
};
use std::time::Duration;

/// A client of one collector, for one signal.
#[derive(Debug)]
pub(crate) enum Transport {
    Http(Box<Http>),
    #[cfg(feature = "grpc")]
    Grpc(Box<Grpc>),
}

impl Transport {
    /// Clients cannot wait indefinitely.
    const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

    /// Checks the endpoint and prepares the client; nothing is sent yet.
    pub(crate) fn new(signal: Signal, endpoint: &Endpoint) -> Result<Self, String> {
        match endpoint.protocol {
            Protocol::HttpProtobuf => Http::new(endpoint).map(|http| Self::Http(Box::new(http))),
            #[cfg(feature = "grpc")]
            Protocol::Grpc => Grpc::new(signal, endpoint).map(|grpc| Self::Grpc(Box::new(grpc))),
            #[cfg(not(feature = "grpc"))]
            Protocol::Grpc => {
                let _ = signal;
                Err("the protocol grpc requires the feature `grpc` of kernspan-otlp".to_owned())
            }
        }
    }

    /// Sends an encoded request, and waits for the answer no longer than `timeout`.
    pub(crate) fn send(&mut self, request: &[u8], timeout: Duration) -> Result<Accepted, Refusal> {
        let timeout = timeout.min(Self::LONGEST_TIMEOUT);
        match self {
            Self::Http(http) => http.send(request, timeout),
            #[cfg(feature = "grpc")]
            Self::Grpc(grpc) => grpc.send(request, timeout),
        }
    }
}
