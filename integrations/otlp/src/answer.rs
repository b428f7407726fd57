//! A collector's answers.

use prost::Message;
use std::{error::Error, io, time::Duration};

/// The collector accepted a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// How many of its spans or points were still rejected.
    pub(crate) rejected: u64,
    /// Why, or a warning.
    pub(crate) message: String,
}

/// A request was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Whether it may be delivered later.
    pub(crate) retry: bool,
    /// Whether nothing is listening at the address.
    pub(crate) dead: bool,
    /// When to try again, if the collector says so.
    pub(crate) after: Option<Duration>,
    pub(crate) why: String,
}

impl Refusal {
    /// Whether an error, or one of its causes, means that nothing is listening.
    pub(crate) fn is_dead(error: &(dyn Error + 'static)) -> bool {
        let mut causes = std::iter::successors(Some(error), |&error| error.source());
        causes.any(|cause| {
            cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        })
    }
}

impl Accepted {
    /// Decodes a response. An undecodable response rejects nothing.
    pub(crate) fn decode(response: &[u8]) -> Self {
        let partial = Response::decode(response).unwrap_or_default().partial_success.unwrap_or_default();
        Self { rejected: partial.rejected.try_into().unwrap_or(0), message: partial.error_message }
    }
}

/// `ExportTraceServiceResponse` and `ExportMetricsServiceResponse`, which have the same fields.
#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}
