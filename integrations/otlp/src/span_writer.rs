//! Spans on the wire, in requests of a size that collectors take.

use super::{
    super::wire,
    ids::{SpanKey, TraceId},
    outbox::Request,
    settings::Protocol,
};
use crate::trace::Timestamp;

/// The fields of a span that others write.
pub(super) const ATTRIBUTES: u32 = 9;
pub(super) const EVENTS: u32 = 11;
pub(super) const DROPPED_EVENTS: u32 = 12;
const LINKS: u32 = 13;
const STATUS: u32 = 15;

/// What every span has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'a> {
    pub(super) trace: TraceId,
    pub(super) id: SpanKey,
    pub(super) parent: Option<SpanKey>,
    pub(super) name: &'a str,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
}

/// Collects spans, and hands them on as requests.
pub(super) struct SpanWriter<'a> {
    resource: &'a [u8],
    most: Most,
    spans: Vec<u8>,
    count: u64,
    done: &'a mut dyn FnMut(Request),
}

/// How much goes into a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    spans: u64,
    bytes: usize,
}

impl Most {
    pub(super) fn of(protocol: Protocol) -> Self {
        match protocol {
            Protocol::HttpProtobuf => Self { spans: 8192, bytes: 8 << 20 },
            // A collector takes messages of 4 MiB, unless it is told otherwise.
            Protocol::Grpc => Self { spans: 4096, bytes: 3 << 20 },
        }
    }
}

impl<'a> SpanWriter<'a> {
    pub(super) fn new(resource: &'a [u8], most: Most, done: &'a mut dyn FnMut(Request)) -> Self {
        Self { resource, most, spans: Vec::new(), count: 0, done }
    }

    /// Adds a span; `rest` writes what else there is of it.
    pub(super) fn span(&mut self, head: Head<'_>, rest: impl FnOnce(&mut Vec<u8>)) {
        wire::message(&mut self.spans, 2, |out| {
            wire::bytes(out, 1, &head.trace.to_bytes());
            wire::bytes(out, 2, &head.id.to_bytes());
            if let Some(parent) = head.parent {
                wire::bytes(out, 4, &parent.to_bytes());
            }
            wire::bytes(out, 5, head.name.as_bytes());
            // Internal.
            wire::number(out, 6, 1);
            wire::fixed64(out, 7, head.start.as_unix_nanos().to_le_bytes());
            // What ends before it begins is taken for garbage by some.
            wire::fixed64(out, 8, head.end.max(head.start).as_unix_nanos().to_le_bytes());
            rest(out);
            // Sampled.
            wire::fixed32(out, 16, 1_u32.to_le_bytes());
        });
        self.count += 1;
        if self.count >= self.most.spans || self.spans.len() >= self.most.bytes {
            self.flush();
        }
    }

    /// Hands on what there is.
    pub(super) fn flush(&mut self) {
        if self.count > 0 {
            let spans = std::mem::take(&mut self.spans);
            let body = envelope(self.resource, &spans);
            (self.done)(Request { body, items: std::mem::take(&mut self.count) });
            // The next is as large.
            self.spans = spans;
            self.spans.clear();
        }
    }
}

/// A request with all its spans, or with all its metrics: the messages around them are alike.
pub(super) fn envelope(resource: &[u8], items: &[u8]) -> Vec<u8> {
    let mut scope = Vec::new();
    wire::message(&mut scope, 1, |out| {
        wire::bytes(out, 1, b"kernspan");
        wire::bytes(out, 2, env!("CARGO_PKG_VERSION").as_bytes());
    });
    let mut of_resource = Vec::new();
    wire::bytes(&mut of_resource, 1, resource);
    let mut head = Vec::new();
    wire::length(&mut head, 2, scope.len() + items.len());
    let mut body = Vec::with_capacity(items.len() + of_resource.len() + scope.len() + 32);
    wire::length(&mut body, 1, of_resource.len() + head.len() + scope.len() + items.len());
    [&of_resource, &head, &scope, items].into_iter().for_each(|part| body.extend_from_slice(part));
    body
}

/// Another span that this one has to do with.
pub(super) fn link(out: &mut Vec<u8>, trace: TraceId, span: SpanKey, why: &str) {
    wire::message(out, LINKS, |out| {
        wire::bytes(out, 1, &trace.to_bytes());
        wire::bytes(out, 2, &span.to_bytes());
        super::attributes::Attributes::new(out, 4).text("kernspan.link", why);
    });
}

/// That something went wrong in it.
pub(super) fn error(out: &mut Vec<u8>, message: &str) {
    wire::message(out, STATUS, |out| {
        wire::bytes(out, 2, message.as_bytes());
        wire::number(out, 3, 2);
    });
}
