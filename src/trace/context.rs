//! OpenTelemetry contexts of spans.

/// OpenTelemetry's ids for a span, if another layer of the subscriber sends the span there.
///
/// They are W3C Trace Context ids.
///
/// ```
/// use kernspan::trace::{Span, TraceContext};
///
/// /// The `traceparent` header of a request that is made inside a span.
/// fn traceparent(span: Span<'_>) -> Option<String> {
///     let TraceContext { trace_id, span_id, sampled, .. } = span.context()?;
///     Some(format!("00-{trace_id:032x}-{span_id:016x}-{:02x}", u8::from(sampled)))
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TraceContext {
    /// The id of the trace that the span is in.
    pub trace_id: u128,
    /// The id of the span.
    pub span_id: u64,
    /// Whether the span is sampled, that is, exported.
    pub sampled: bool,
}

impl TraceContext {
    /// Whether the contexts of spans are recorded: only with the feature `tracing-opentelemetry`.
    pub(crate) const IS_RECORDED: bool = cfg!(feature = "tracing-opentelemetry");

    /// Returns `None` if one of the ids is 0, which is not a valid id.
    ///
    /// ```
    /// use kernspan::trace::TraceContext;
    ///
    /// assert_eq!(TraceContext::new(1, 2, true).unwrap().span_id, 2);
    /// assert_eq!(TraceContext::new(1, 0, true), None);
    /// ```
    pub fn new(trace_id: u128, span_id: u64, sampled: bool) -> Option<Self> {
        (trace_id != 0 && span_id != 0).then_some(Self { trace_id, span_id, sampled })
    }
}
