//! Traces of programs without a GPU, written step by step.

use super::{at, callsite, set_fields, span, track};
use crate::trace::{Cut, SpanId, Step, StepId, Timestamp, Trace, TrackId, Value};

/// A trace of steps on thread 0, `main`, with spans on it and on other threads.
///
/// The parent of a span is the innermost span of its thread around it.
#[derive(Debug, Default)]
pub struct HostTrace {
    /// The ends of the steps, in microseconds.
    ends: Vec<u64>,
    spans: Vec<HostSpan>,
}

#[derive(Debug)]
struct HostSpan {
    thread: u64,
    name: &'static str,
    start: u64,
    end: u64,
    fields: Vec<(&'static str, Value)>,
}

impl HostTrace {
    /// Adds a step of this many microseconds.
    pub fn step(&mut self, micros: u64) -> &mut Self {
        self.ends.push(self.ends.last().copied().unwrap_or(0) + micros);
        self
    }

    /// Adds a span to the last step, with its start and end in microseconds after the step's start.
    pub fn span(&mut self, thread: u64, name: &'static str, start: u64, end: u64) -> &mut Self {
        let origin = self.ends.len().checked_sub(2).map_or(0, |before| self.ends[before]);
        let (start, end) = (origin + start, origin + end);
        self.spans.push(HostSpan { thread, name, start, end, fields: Vec::new() });
        self
    }

    /// Adds a field to the last span.
    pub fn field(&mut self, name: &'static str, value: impl Into<Value>) -> &mut Self {
        if let Some(span) = self.spans.last_mut() {
            span.fields.push((name, value.into()));
        }
        self
    }

    /// Returns the trace.
    pub fn trace(&mut self) -> Trace {
        self.spans.sort_by_key(|span| (span.thread, span.start, std::cmp::Reverse(span.end)));
        let micros = self.ends.last().copied().unwrap_or(0);
        let mut trace = Trace { start: at(0), end: at(micros), ..Trace::default() };
        let threads = self.spans.iter().map(|span| span.thread).max().unwrap_or(0);
        let name = |thread| if thread == 0 { "main".to_owned() } else { format!("worker {thread}") };
        trace.tracks = (0..=threads).map(|thread| track(1000 + thread, &name(thread))).collect();
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        for (number, (start, &end)) in starts.zip(&self.ends).enumerate() {
            let (start, end) = (at(start), at(end));
            trace.steps.push(Step {
                number: 10 + number as u64,
                track: TrackId::new(0),
                start,
                end,
                cut: Cut::default(),
            });
        }
        for one in &self.spans {
            add(&mut trace, one);
        }
        trace
    }
}

fn add(trace: &mut Trace, one: &HostSpan) {
    let known = trace.callsites.iter().position(|callsite| callsite.name == one.name);
    let index = known.unwrap_or_else(|| {
        let line = Some(trace.callsites.len() as u32 + 1);
        trace.callsites.push(crate::trace::CallsiteData { line, ..callsite(one.name) });
        trace.callsites.len() - 1
    });
    let (start, end): (Timestamp, Timestamp) = (at(one.start), at(one.end));
    let of_thread = TrackId::new(one.thread as usize);
    let parent = trace.spans.iter().rposition(|other| other.track == of_thread && other.end >= end);
    let micros = one.end - one.start;
    if let Some(parent) = parent {
        trace.spans[parent].self_nanos -= micros * 1000;
    }
    let step = trace.step_at(start);
    let mut data = span(index, parent, step.unwrap_or(StepId::new(0)), start, end, micros);
    (data.track, data.step) = (of_thread, step);
    data.parent = parent.map(SpanId::new);
    trace.spans.push(data);
    set_fields(trace, trace.spans.len() - 1, &one.fields);
}
