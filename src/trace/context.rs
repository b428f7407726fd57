/// Which span of OpenTelemetry's a span is, where another layer of the subscriber makes one of it.
///
/// The numbers are those of W3C's Trace Context.
///
/// ```
/// use kernspan::trace::{Span, TraceContext};
///
/// /// What a request that is made on behalf of a span has in its header.
/// fn traceparent(span: Span<'_>) -> Option<String> {
///     let TraceContext { trace_id, span_id, sampled, .. } = span.context()?;
///     Some(format!("00-{trace_id:032x}-{span_id:016x}-{:02x}", u8::from(sampled)))
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TraceContext {
    /// The trace that the span is in.
    pub trace_id: u128,
    /// The span, in whichever trace.
    pub span_id: u64,
    /// Whether it is sent to anybody.
    pub sampled: bool,
}

impl TraceContext {
    /// Returns the context of a span, or `None` if an id is 0, which W3C's Trace Context does not allow.
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
