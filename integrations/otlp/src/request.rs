//! An encoded request to a collector.

use kernspan::export::wire;

/// An encoded request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) body: Vec<u8>,
    /// How many spans or points it contains.
    pub(crate) items: u64,
}

impl Request {
    /// Creates a request from encoded spans or metrics. `ExportTraceServiceRequest` and `ExportMetricsServiceRequest`
    /// have the same outer messages.
    pub(crate) fn new(resource: &[u8], encoded: &[u8], items: u64) -> Self {
        let mut scope = Vec::new();
        wire::message(&mut scope, 1, |out| {
            wire::bytes(out, 1, b"kernspan");
            wire::bytes(out, 2, env!("CARGO_PKG_VERSION").as_bytes());
        });
        let mut of_resource = Vec::new();
        wire::bytes(&mut of_resource, 1, resource);
        let mut head = Vec::new();
        wire::message_head(&mut head, 2, scope.len() + encoded.len());
        let mut body = Vec::with_capacity(encoded.len() + of_resource.len() + scope.len() + 32);
        wire::message_head(&mut body, 1, of_resource.len() + head.len() + scope.len() + encoded.len());
        [&of_resource, &head, &scope, encoded].into_iter().for_each(|part| body.extend_from_slice(part));
        Self { body, items }
    }
}
