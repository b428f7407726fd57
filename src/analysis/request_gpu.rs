//! The GPU time of requests: of their own spans, and of what was computed for several of them at once.

use super::span_calls::SpanCalls;
use crate::trace::{Span, SpanId, Trace};
use rustc_hash::FxHashMap;
use std::{rc::Rc, time::Duration};

/// The GPU time of a request that a window has recorded from its beginning to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestGpuTime {
    /// The first enter of the request's span.
    pub span: SpanId,
    /// The time of the work that was launched for this request alone.
    pub alone: Duration,
    /// Its share of the work that was launched for several requests: equal parts, as nothing says who needed more.
    pub shared: Duration,
}

impl RequestGpuTime {
    /// Returns the time of both kinds of work.
    pub fn total(&self) -> Duration {
        self.alone.saturating_add(self.shared)
    }
}

/// The requests that spans work for.
struct RequestsOfSpans<'a> {
    calls: SpanCalls,
    is_request: &'a dyn Fn(Span<'_>) -> bool,
    found: FxHashMap<SpanId, Rc<[SpanId]>>,
}

/// Returns the GPU time of each request: see [`Analysis::request_gpu_times`](super::Analysis::request_gpu_times).
pub(super) fn request_gpu_times(trace: &Trace, is_request: &dyn Fn(Span<'_>) -> bool) -> Vec<RequestGpuTime> {
    let calls = SpanCalls::of(trace);
    let is_whole = |span: &Span<'_>| calls.first(span.id()) == span.id() && !calls.is_cut(span.id());
    let whole = trace.spans().filter(|span| is_request(*span) && is_whole(span)).map(Span::id);
    let mut times: Vec<_> =
        whole.map(|span| RequestGpuTime { span, alone: Duration::ZERO, shared: Duration::ZERO }).collect();
    if times.is_empty() {
        return times;
    }
    let mut requests = RequestsOfSpans { calls, is_request, found: FxHashMap::default() };
    for work in trace.work() {
        let Some(span) = work.span() else { continue };
        let sharing = requests.of(span);
        for request in &*sharing {
            // A request that the window has cut counts as one that shares, but is not among those returned.
            let Ok(index) = times.binary_search_by_key(request, |time| time.span) else { continue };
            let RequestGpuTime { alone, shared, .. } = &mut times[index];
            let time = if sharing.len() == 1 { alone } else { shared };
            *time = time.saturating_add(work.duration().div_f64(sharing.len() as f64));
        }
    }
    times
}

impl RequestsOfSpans<'_> {
    /// Returns the requests that a span works for, each by its first enter: the request that it is in, or those that
    /// the innermost span around it follows from, whichever is nearer.
    fn of(&mut self, span: Span<'_>) -> Rc<[SpanId]> {
        if let Some(found) = self.found.get(&span.id()) {
            return Rc::clone(found);
        }
        let found = callers(span).find_map(|span| {
            if (self.is_request)(span) {
                return Some([self.calls.first(span.id())].into());
            }
            let mut requests: Vec<_> = span.follows_from().filter_map(|cause| self.request_around(cause)).collect();
            requests.sort_unstable();
            requests.dedup();
            (!requests.is_empty()).then(|| requests.into())
        });
        let found: Rc<[SpanId]> = found.unwrap_or_default();
        self.found.insert(span.id(), Rc::clone(&found));
        found
    }

    fn request_around(&self, span: Span<'_>) -> Option<SpanId> {
        let request = callers(span).find(|span| (self.is_request)(*span))?;
        Some(self.calls.first(request.id()))
    }
}

/// Returns a span, its caller, and so on outwards.
fn callers(span: Span<'_>) -> impl Iterator<Item = Span<'_>> {
    std::iter::successors(Some(span), |span| span.caller())
}

#[cfg(test)]
mod tests {
    use super::{RequestGpuTime, request_gpu_times};
    use crate::trace::{
        Trace,
        sample::{GpuTrace, cut_both_ends, set_follows, set_previous},
    };
    use std::time::Duration;

    fn times(trace: &Trace) -> Vec<(usize, u64, u64)> {
        let micros = |time: Duration| time.as_nanos() as u64 / 1_000;
        let of = |time: RequestGpuTime| (time.span.index(), micros(time.alone), micros(time.shared));
        request_gpu_times(trace, &|span| span.name() == "request").into_iter().map(of).collect()
    }

    #[test]
    fn work_of_a_batch_is_split_among_its_requests() {
        let mut program = GpuTrace::default();
        program.span("request", |program| _ = program.launch("embed", 30)); // 0
        program.span("request", |_| ()); // 1
        program.span("request", |_| ()); // 2: another enter of the call of 0
        program.span("batch", |program| {
            program.span("decode", |program| _ = program.launch("gemm", 100));
        }); // 3, 4
        program.launch("unattributed", 50);
        let mut trace = program.trace();
        set_previous(&mut trace, 2, 0);
        set_follows(&mut trace, 3, &[0, 1]);
        assert_eq!(times(&trace), [(0, 30, 50), (1, 0, 50)]);
        // The window does not know all of a request that it cuts, but its share is not that of others.
        cut_both_ends(&mut trace, 1);
        assert_eq!(times(&trace), [(0, 30, 50)]);
        // A batch of one shares with nobody.
        set_follows(&mut trace, 3, &[0]);
        assert_eq!(times(&trace), [(0, 130, 0)]);
    }

    #[test]
    fn the_nearest_request_has_the_work() {
        let mut program = GpuTrace::default();
        program.span("request", |_| ()); // 0
        program.span("request", |program| {
            program.span("batch", |program| _ = program.launch("shared", 40)); // 2
            program.span("other", |program| _ = program.launch("own", 20)); // 3
        }); // 1
        let mut trace = program.trace();
        set_follows(&mut trace, 2, &[0]);
        // It follows from something that is no request.
        set_follows(&mut trace, 3, &[2]);
        assert_eq!(times(&trace), [(0, 40, 0), (1, 20, 0)]);
    }
}
