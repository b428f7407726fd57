//! Exemplars of the slowest requests: the traces and the files that they are in.

use super::histogram::Exemplar;
use crate::{
    ids::{IdKind, SpanKey, TraceId},
    run_trace::{RunTrace, StepTrace},
};
use kernspan::{
    serving::{RecordedSpan, RequestGroup, Requests, SlowRequest},
    trace::{Timestamp, Trace},
};
use rustc_hash::FxHashSet;
use std::time::Duration;

/// The exemplars that have been sent, and what those to come are made of.
#[derive(Debug)]
pub(super) struct RequestExemplars {
    /// The ids of the run; `None` if its own traces are not sent.
    run: Option<RunTrace>,
    /// The windows whose spans were passed on to be sent.
    windows: FxHashSet<u32>,
    /// The requests whose exemplars were sent, among the slowest that there are.
    sent: FxHashSet<RequestKey>,
    is_on: bool,
}

/// The kind of a request, its start and its time.
type RequestKey = (String, Timestamp, Duration);

/// The exemplar of a request that has not been sent.
#[derive(Debug)]
pub(super) struct RequestExemplar<'a> {
    kind: &'a str,
    request: &'a SlowRequest,
    trace: Option<StepTrace>,
}

impl RequestExemplars {
    pub(super) fn new(run: Option<RunTrace>, is_on: bool) -> Self {
        Self { run, windows: FxHashSet::default(), sent: FxHashSet::default(), is_on }
    }

    /// Notes that the spans of a window are sent. Next to another layer's, the trace of a span is not known here.
    pub(super) fn add_window(&mut self, window: &Trace) {
        if self.is_on && self.run.is_some() && window.spans().all(|span| span.context().is_none()) {
            self.windows.insert(window.window());
        }
    }

    /// Returns the exemplars that have not been sent, the slowest requests last.
    pub(super) fn take<'a>(&mut self, requests: &'a Requests) -> Vec<RequestExemplar<'a>> {
        if !self.is_on {
            return Vec::new();
        }
        let (mut new, mut known) = (Vec::new(), FxHashSet::default());
        for kind in &requests.kinds {
            for request in kind.slowest.iter().rev() {
                let Some(recorded) = &request.recorded else { continue };
                let trace = self.trace(recorded);
                if trace.is_none() && recorded.files.is_empty() {
                    continue;
                }
                let key = (kind.name.clone(), request.start, request.time);
                if !self.sent.contains(&key) {
                    new.push(RequestExemplar { kind: &kind.name, request, trace });
                }
                known.insert(key);
            }
        }
        self.sent = known;
        new
    }

    /// Returns the span of a request, if it is sent: by another layer, or else by this exporter.
    fn trace(&self, recorded: &RecordedSpan) -> Option<StepTrace> {
        if let Some(context) = recorded.context {
            let (trace, root) = (TraceId::foreign(context.trace_id), SpanKey::foreign(context.span_id));
            return context.sampled.then_some(StepTrace { trace, root });
        }
        let run = self.run.as_ref().filter(|_| self.windows.contains(&recorded.window))?;
        let StepTrace { trace, .. } = match recorded.step {
            Some(step) => run.step(step)?,
            None => run.window(recorded.window)?,
        };
        Some(StepTrace { trace, root: trace.span(IdKind::Span, recorded.span.index() as u64) })
    }
}

impl RequestExemplar<'_> {
    /// Returns the exemplar of a time of the request, if it is in this group.
    pub(super) fn of(&self, kind: &str, group: &RequestGroup, time: SlowTime) -> Option<Exemplar> {
        let Self { request, trace, .. } = self;
        if self.kind != kind || request.labels != group.labels {
            return None;
        }
        let file = request.recorded.as_ref().and_then(|recorded| recorded.files.first());
        Some(Exemplar {
            at: request.start + request.latency,
            value: time(request)?.as_secs_f64(),
            trace: *trace,
            file: file.map(|file| file.display().to_string()),
        })
    }
}

/// A time of a slow request, if it has it.
pub(super) type SlowTime = fn(&SlowRequest) -> Option<Duration>;
