use crate::signal::Signal;

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
