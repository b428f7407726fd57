//! Spans: each enter and exit on a thread is an instance. Also their OpenTelemetry contexts, and an order of spans in
//! which callers come first.

use super::{
    Callsite, CallsiteId, FieldRange, Fields, HeapUse, InputStage, SpanCpuTime, Step, StepId, Timestamp, Trace, Track,
    TrackId, Value, id::define_id,
};
use std::time::Duration;

define_id! {
    /// Names a span instance of one trace.
    pub struct SpanId;

    /// The index of the span in [`Trace::spans`].
    pub fn index;
}

/// The ends of a span or step that lie outside the window, so that its true extent is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cut {
    /// It began before the window opened.
    pub start: bool,
    /// It had not ended when the window closed.
    pub end: bool,
}

impl Cut {
    /// Whether at least one end was cut.
    pub fn any(self) -> bool {
        self.start || self.end
    }
}

/// The stored data of a [`Span`].
#[derive(Clone, Debug)]
pub(crate) struct SpanData {
    pub(crate) callsite: CallsiteId,
    pub(crate) track: TrackId,
    pub(crate) parent: Option<SpanId>,
    /// It began earlier, or at the same time with a lower id.
    pub(crate) previous: Option<SpanId>,
    pub(crate) step: Option<StepId>,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) self_nanos: u64,
    pub(crate) fields: FieldRange,
    pub(crate) cut: Cut,
}

/// A span instance: one enter and exit on one thread.
///
/// A span that is entered several times, on the same thread or on others, has an instance for each time; those of one
/// call are linked by [`previous`](Self::previous). The [`parent`](Self::parent) of an instance is the innermost span
/// open on the thread when it was entered. Its [`caller`](Self::caller) is the same, unless `tracing` says otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    trace: &'a Trace,
    index: usize,
}

impl<'a> Span<'a> {
    pub(super) fn new(trace: &'a Trace, index: usize) -> Self {
        Self { trace, index }
    }

    fn data(self) -> &'a SpanData {
        &self.trace.spans[self.index]
    }

    /// The id, unique in the trace.
    pub fn id(self) -> SpanId {
        SpanId::new(self.index)
    }

    /// The name: the value of the field `op.name` if there is one, otherwise the name in the source.
    pub fn name(self) -> &'a str {
        self.callsite().name()
    }

    /// The place in the source where the span is written.
    pub fn callsite(self) -> &'a Callsite {
        &self.trace.callsites[self.data().callsite.index()]
    }

    pub(crate) fn callsite_id(self) -> CallsiteId {
        self.data().callsite
    }

    /// The track it is on.
    pub fn track(self) -> &'a Track {
        self.trace.track(self.data().track)
    }

    /// The id of the track it is on.
    pub fn track_id(self) -> TrackId {
        self.data().track
    }

    /// The innermost span open on the thread when this one was entered.
    ///
    /// It encloses this span in time, so [self times](Self::self_time) and the tracks in viewers are based on it. For
    /// the span that this one works for, perhaps on another thread, see [`caller`](Self::caller).
    pub fn parent(self) -> Option<Span<'a>> {
        self.data().parent.map(|id| Span::new(self.trace, id.index()))
    }

    /// The span that this one works for. It may be on another thread, and may have been exited earlier.
    ///
    /// 1. If the span was created with `parent: other`, and `other` was entered in the window, that is the caller.
    /// 2. Otherwise it is the [`parent`](Self::parent). That includes `parent: None`, with which libraries create spans
    ///    that they keep and enter in every step, inside whatever is open there.
    /// 3. If no span was open on the thread, it is the one that was current where this span was created: for a task
    ///    such as `tokio::spawn(future.instrument(info_span!("task")))`, it is the span around the `spawn`.
    ///
    /// A caller that was entered several times is the enter that is open around this one on the thread, or else the
    /// latest enter on any thread.
    ///
    /// ```
    /// # use kernspan::trace::Span;
    /// /// The names of the spans that this one works for, from the inside out.
    /// fn path(span: Span<'_>) -> Vec<&str> {
    ///     std::iter::successors(Some(span), |span| span.caller()).map(Span::name).collect()
    /// }
    /// ```
    pub fn caller(self) -> Option<Span<'a>> {
        match self.trace.callers.get(&self.id()) {
            Some(caller) => caller.map(|id| Span::new(self.trace, id.index())),
            None => self.parent(),
        }
    }

    /// The previous enter in the same call, if this is not the call's first.
    ///
    /// A future with a span, such as an `async fn` with `#[instrument]`, enters the span each time it is polled,
    /// perhaps on different threads, and once more when it is dropped. All of these are one call, as long as the window
    /// lasts.
    ///
    /// A span that is created once and entered repeatedly, such as that of a model's layer or a worker's loop, looks
    /// the same. So another enter begins a new call:
    ///
    /// - if it is in another call of the enclosing span: a layer that is entered once in each `forward` is called as
    ///   often as that;
    /// - if it is in the same enter of the enclosing span, and was created outside that span: a layer that is entered
    ///   twice in each `forward` is called twice. A future is created in the span in which it is polled, as a rule; one
    ///   that was created outside, and is polled several times in one enter of another span, is called as often;
    /// - if a step has ended since the previous enter, by [`step`](crate::Profiler::step), on the thread of both and
    ///   outside the span.
    ///
    /// A span that is entered repeatedly outside other spans and steps is one call.
    ///
    /// ```
    /// # use kernspan::trace::Span;
    /// /// How long a future waited before this poll.
    /// fn waited(poll: Span<'_>) -> Option<std::time::Duration> {
    ///     poll.previous().map(|previous| poll.start().since(previous.end()))
    /// }
    /// ```
    pub fn previous(self) -> Option<Span<'a>> {
        self.data().previous.map(|id| Span::new(self.trace, id.index()))
    }

    /// The first enter of the call that this one belongs to: see [`previous`](Self::previous).
    pub fn first(self) -> Span<'a> {
        std::iter::successors(Some(self), |span| span.previous()).last().unwrap_or(self)
    }

    /// The calls that this one was caused by, as [`tracing::Span::follows_from`] says, each by its first enter.
    ///
    /// A service that computes several requests together says so with it: the span of the batch follows from those of
    /// the requests. Causes are known if that was said in the window, and they were entered in it.
    ///
    /// ```
    /// # use kernspan::trace::Span;
    /// /// The requests that are computed in a batch.
    /// fn requests(batch: Span<'_>) -> Vec<&str> {
    ///     batch.follows_from().map(Span::name).collect()
    /// }
    /// ```
    ///
    /// [`tracing::Span::follows_from`]: https://docs.rs/tracing/latest/tracing/struct.Span.html#method.follows_from
    pub fn follows_from(self) -> impl ExactSizeIterator<Item = Span<'a>> {
        let follows = &self.trace.follows;
        let causes = if follows.is_empty() { None } else { follows.get(&self.first().id()) };
        causes.map_or(&[][..], Vec::as_slice).iter().map(move |cause| Span::new(self.trace, cause.index()))
    }

    /// This span, its parent, and so on outwards.
    pub fn stack(self) -> impl Iterator<Item = Span<'a>> {
        std::iter::successors(Some(self), |span| span.parent())
    }

    /// The step it began in.
    pub fn step(self) -> Option<&'a Step> {
        self.data().step.map(|id| &self.trace.steps[id.index()])
    }

    /// The id of the step it began in.
    pub fn step_id(self) -> Option<StepId> {
        self.data().step
    }

    /// When it was entered, or when the window opened if that was later.
    pub fn start(self) -> Timestamp {
        self.data().start
    }

    /// When it was exited, or when the window closed if that was earlier.
    pub fn end(self) -> Timestamp {
        self.data().end
    }

    /// The time from start to end.
    pub fn duration(self) -> Duration {
        self.end().since(self.start())
    }

    /// The part of the duration during which no nested span was open.
    pub fn self_time(self) -> Duration {
        Duration::from_nanos(self.data().self_nanos)
    }

    /// The ends that lie outside the window.
    pub fn cut(self) -> Cut {
        self.data().cut
    }

    /// The fields recorded up to the end of this instance, and after it if it was the span's latest.
    pub fn fields(self) -> Fields<'a> {
        self.trace.fields(self.data().callsite, self.data().fields)
    }

    /// The value of the field `name`.
    pub fn field(self, name: &str) -> Option<&'a Value> {
        self.fields().get(name)
    }

    /// What the span allocated and freed on the heap while no nested span was open; nothing if
    /// [that was not counted](Trace::is_heap_counted).
    pub fn heap(self) -> HeapUse {
        self.trace.heap.as_ref().and_then(|heap| heap.get(&self.id())).copied().unwrap_or_default()
    }

    /// The CPU time, if it was read.
    pub(super) fn cpu(self) -> Option<SpanCpuTime> {
        self.trace.cpu_times.get(&self.id()).copied()
    }

    /// The OpenTelemetry span that a `tracing-opentelemetry` layer in the same subscriber created for this span, if
    /// any.
    ///
    /// All instances of a span have the same context. It requires the feature `tracing-opentelemetry`. It is also
    /// `None` if [it could not be looked up](Self::is_context_known).
    pub fn context(self) -> Option<TraceContext> {
        self.trace.contexts.get(&self.id()).copied().flatten()
    }

    /// Whether it is known if the span has a [`context`](Self::context).
    ///
    /// It is unknown for a span that was entered before the window opened, on a thread other than the one that opened
    /// it, and not exited before the window closed: a context can be looked up only on a thread that enters or exits
    /// the span.
    ///
    /// ```
    /// # use kernspan::trace::Span;
    /// /// Whether an exporter is to send the span itself, as no other layer does.
    /// fn is_ours(span: Span<'_>) -> bool {
    ///     span.context().is_none() && span.is_context_known()
    /// }
    /// ```
    pub fn is_context_known(self) -> bool {
        let cut = self.cut();
        !(cut.start && cut.end) || self.trace.contexts.contains_key(&self.id())
    }

    /// The stage of the input pipeline that the span represents, if any.
    pub fn input_stage(self) -> Option<InputStage> {
        InputStage::of(self)
    }

    /// The functions on the call stack when the span was entered, innermost first; empty unless enabled with
    /// [`backtraces`](crate::ProfilerBuilder::backtraces).
    pub fn backtrace(self) -> &'a [String] {
        self.trace.backtraces.get(&self.id()).map_or(&[], Vec::as_slice)
    }
}

impl Trace {
    /// Returns the ids of all spans, each after its parent and its caller; `None` if there is a cycle, which only a
    /// file that was tampered with has.
    pub(crate) fn caller_order(&self) -> Option<Vec<SpanId>> {
        let all = (0..self.spans.len()).map(SpanId::new);
        if self.callers.is_empty() {
            return Some(all.collect());
        }
        let (mut order, mut states) = (Vec::with_capacity(self.spans.len()), vec![VisitState::New; self.spans.len()]);
        let mut waiting = Vec::new();
        for first in all {
            waiting.push(first);
            while let Some(&span) = waiting.last() {
                let before = [self.spans[span.index()].parent, self.callers.get(&span).copied().flatten()];
                let missing = before.into_iter().flatten().find(|span| states[span.index()] != VisitState::Done);
                match missing.map(|span| (span, states[span.index()])) {
                    _ if states[span.index()] == VisitState::Done => drop(waiting.pop()),
                    None => {
                        states[span.index()] = VisitState::Done;
                        order.push(span);
                        waiting.pop();
                    }
                    Some((_, VisitState::Waiting)) => return None,
                    Some((missing, _)) => {
                        states[span.index()] = VisitState::Waiting;
                        waiting.push(missing);
                    }
                }
            }
        }
        Some(order)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum VisitState {
    New,
    /// It comes after a span that is being visited.
    Waiting,
    Done,
}

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

#[cfg(test)]
mod tests {
    use crate::trace::{
        SpanId,
        sample::{gpu_trace, set_caller, set_parent},
    };

    #[test]
    fn a_span_comes_after_its_parent_and_its_caller() {
        let mut trace = gpu_trace();
        let ids =
            |order: Option<Vec<SpanId>>| -> Option<Vec<_>> { Some(order?.into_iter().map(SpanId::index).collect()) };
        let all: Vec<_> = (0..trace.spans.len()).collect();
        assert_eq!(ids(trace.caller_order()), Some(all.clone()));
        set_caller(&mut trace, 0, Some(3));
        trace.spans[3].parent = None;
        let order = ids(trace.caller_order()).unwrap();
        let place = |span| order.iter().position(|other| *other == span);
        assert!(place(3) < place(0) && order.len() == all.len(), "{order:?}");
        set_parent(&mut trace, 3, 0);
        assert_eq!(ids(trace.caller_order()), None);
        set_caller(&mut trace, 0, None);
        assert_eq!(ids(trace.caller_order()), Some(all));
    }
}
