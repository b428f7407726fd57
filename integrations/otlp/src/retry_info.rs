//! The delay after which a gRPC status asks to retry.

use prost::Message;
use std::time::Duration;

/// The delay of the `google.rpc.RetryInfo` among the details of a status, if any.
pub(crate) fn retry_delay(details: &[u8]) -> Option<Duration> {
    let Details { details } = Details::decode(details).ok()?;
    let info = details.iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&*info.value).ok()?.delay.unwrap_or_default();
    let (seconds, nanos) = (delay.seconds.try_into().unwrap_or(0), delay.nanos.try_into().unwrap_or(0));
    Some(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos)))
}

/// `google.rpc.Status`, without its other fields.
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
pub(crate) mod tests {
    use super::{Any, Delay, Details, RetryInfo, retry_delay};
    use prost::Message;
    use std::time::Duration;

    /// The details of a status that asks to retry after this long.
    pub(crate) fn retry_in(seconds: i64, nanos: i32) -> Vec<u8> {
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
}
