//! Spans, encoded into requests small enough for collectors.

use crate::{
    attributes::Attributes,
    endpoint::Protocol,
    ids::{SpanKey, TraceId},
    request::Request,
};
use kernspan::{export::wire, trace::Timestamp};

// Fields of `opentelemetry.proto.trace.v1.Span`.
pub(crate) const ATTRIBUTES: u32 = 9;
pub(crate) const EVENTS: u32 = 11;
pub(crate) const DROPPED_EVENTS: u32 = 12;
const LINKS: u32 = 13;
pub(crate) const DROPPED_LINKS: u32 = 14;
const STATUS: u32 = 15;

/// The fields that every span has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) trace: TraceId,
    pub(crate) id: SpanKey,
    pub(crate) parent: Option<SpanKey>,
    pub(crate) name: &'a str,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
}

/// Encodes spans and passes them on as requests.
pub(crate) struct SpanWriter<'a> {
    resource: &'a [u8],
    limits: RequestLimits,
    spans: Vec<u8>,
    count: u64,
    done: &'a mut dyn FnMut(Request),
}

/// The size at which a request is passed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    spans: u64,
    bytes: usize,
}

impl RequestLimits {
    pub(crate) fn of(protocol: Protocol) -> Self {
        match protocol {
            Protocol::HttpProtobuf => Self { spans: 8192, bytes: 8 << 20 },
            // gRPC servers accept messages of up to 4 MiB by default.
            Protocol::Grpc => Self { spans: 4096, bytes: 3 << 20 },
        }
    }
}

impl<'a> SpanWriter<'a> {
    pub(crate) fn new(resource: &'a [u8], limits: RequestLimits, done: &'a mut dyn FnMut(Request)) -> Self {
        Self { resource, limits, spans: Vec::new(), count: 0, done }
    }

    /// Adds a span. `rest` writes its other fields.
    pub(crate) fn span(&mut self, head: Head<'_>, rest: impl FnOnce(&mut Vec<u8>)) {
        wire::message(&mut self.spans, 2, |out| {
            wire::bytes(out, 1, &head.trace.to_bytes());
            wire::bytes(out, 2, &head.id.to_bytes());
            if let Some(parent) = head.parent {
                wire::bytes(out, 4, &parent.to_bytes());
            }
            wire::bytes(out, 5, head.name.as_bytes());
            // SPAN_KIND_INTERNAL
            wire::number(out, 6, 1);
            wire::fixed64(out, 7, head.start.as_unix_nanos().to_le_bytes());
            // Some collectors reject a span that ends before it begins.
            wire::fixed64(out, 8, head.end.max(head.start).as_unix_nanos().to_le_bytes());
            rest(out);
            // The flag `sampled`.
            wire::fixed32(out, 16, 1_u32.to_le_bytes());
        });
        self.count += 1;
        if self.count >= self.limits.spans || self.spans.len() >= self.limits.bytes {
            self.flush();
        }
    }

    /// Passes on the remaining spans.
    pub(crate) fn flush(&mut self) {
        if self.count > 0 {
            (self.done)(Request::new(self.resource, &self.spans, std::mem::take(&mut self.count)));
            // The buffer keeps its size for the next request.
            self.spans.clear();
        }
    }
}

/// Writes a link to another span, with the relation to it: `run`, `trace`, `parent`, `previous`,
/// `follows_from` or `operation`.
pub(crate) fn link(out: &mut Vec<u8>, trace: TraceId, span: SpanKey, relation: &str) {
    wire::message(out, LINKS, |out| {
        wire::bytes(out, 1, &trace.to_bytes());
        wire::bytes(out, 2, &span.to_bytes());
        Attributes::new(out, 4).text("kernspan.link", relation);
    });
}

/// Writes the status of a span in which an error occurred.
pub(crate) fn error(out: &mut Vec<u8>, message: &str) {
    wire::message(out, STATUS, |out| {
        wire::bytes(out, 2, message.as_bytes());
        // STATUS_CODE_ERROR
        wire::number(out, 3, 2);
    });
}
