//! The tracks of the host: those of threads, with spans, the GPU API calls inside them, events and operations, and
//! those of calls that were entered several times, such as those of futures, with a slice for each call as a whole.

use super::{
    event::Event as Packet,
    proto::{ThreadDescriptor, TrackDescriptor, Type},
    sequence::Sequence,
    tracks::TrackWriter,
};
use crate::{
    analysis::SpanCalls,
    export::{
        category,
        flows::{CallFlows, LaunchFlows, SpanFlows},
        index_ranges::index_ranges,
        steps::step_name,
        work_text::Cache,
    },
    trace::{ApiCall, Cut, Event, OperationCall, OperationId, Span, SpanId, Timestamp, Trace, TrackId, Value},
};
use rustc_hash::FxHashMap;
use std::{collections::BinaryHeap, io};

/// Writes a track for each track of the trace.
pub(super) fn write(out: &mut TrackWriter<'_>, flows: &LaunchFlows) -> io::Result<()> {
    let trace = out.trace;
    let tracks = trace.tracks().len();
    let spans = index_ranges(tracks, trace.spans().map(|span| span.track_id().index()));
    let calls = index_ranges(tracks, trace.api_calls().map(|call| call.track_id().index()));
    let events = index_ranges(tracks, trace.events().map(|event| event.track_id().index()));
    let operations = index_ranges(tracks, trace.operations().map(|call| call.track_id().index()));
    let call_flows = CallFlows::new(trace);
    let linked = SpanFlows::new(trace);
    let mut thread = out.uuid;
    for (index, track) in trace.tracks().iter().enumerate() {
        let mut descriptor = TrackDescriptor::default();
        if track.overlap() == 0 {
            descriptor.thread = Some(ThreadDescriptor {
                pid: Some(out.pid()),
                tid: i64::try_from(track.thread().as_u64()).ok(),
                thread_name: Some(track.thread_name().to_owned()),
            });
        } else {
            descriptor.parent_uuid = Some(thread);
            descriptor.name = Some(track.label());
        }
        let uuid = out.track(descriptor)?;
        thread = if track.overlap() == 0 { uuid } else { thread };
        let sequence = out.sequence(uuid)?;
        let here = TrackId::new(index);
        let spans = trace.spans_at(spans[index].clone());
        let calls = trace.api_calls_at(calls[index].clone());
        let events = trace.events_at(events[index].clone());
        let operations = trace.operations_at(operations[index].clone());
        let (call_flows, linked, known) = (&call_flows, &linked, Cache::default());
        let writer = ThreadWriter { out, sequence, flows, call_flows, linked, operations: known };
        writer.write(
            spans.filter(|span| span.track_id() == here),
            calls.filter(|call| call.track_id() == here),
            events.filter(|event| event.track_id() == here),
            operations.filter(|call| call.track_id() == here),
        )?;
    }
    Ok(())
}

/// Writes the events of one track.
struct ThreadWriter<'a, 'b> {
    out: &'b mut TrackWriter<'a>,
    sequence: Sequence,
    flows: &'b LaunchFlows,
    call_flows: &'b CallFlows,
    linked: &'b SpanFlows<'a>,
    /// Events of operations, without the parts in which the calls of an operation differ.
    operations: Cache<OperationId, Packet>,
}

impl<'a> ThreadWriter<'a, '_> {
    /// Writes everything in chronological order. If several begin together, the span comes first, since it is the outer
    /// one.
    fn write(
        mut self,
        spans: impl Iterator<Item = Span<'a>>,
        calls: impl Iterator<Item = ApiCall<'a>>,
        events: impl Iterator<Item = Event<'a>>,
        operations: impl Iterator<Item = OperationCall<'a>>,
    ) -> io::Result<()> {
        let (mut spans, mut calls) = (spans.peekable(), calls.peekable());
        let (mut events, mut operations) = (events.peekable(), operations.peekable());
        loop {
            let span = spans.peek().map(|span| span.start());
            let call = calls.peek().map(|call| call.start());
            let event = events.peek().map(|event| event.at());
            let operation = operations.peek().map(|call| call.at());
            let Some(next) = [span, call, event, operation].into_iter().flatten().min() else { break };
            if let Some(span) = spans.next_if(|span| span.start() == next) {
                self.span(span)?;
            } else if let Some(call) = calls.next_if(|call| call.start() == next) {
                self.call(call)?;
            } else if let Some(event) = events.next_if(|event| event.at() == next) {
                self.event(event)?;
            } else if let Some(operation) = operations.next() {
                self.operation(operation)?;
            }
        }
        self.sequence.finish(&mut self.out.packets)
    }

    fn span(&mut self, span: Span<'_>) -> io::Result<()> {
        let sequence = &mut self.sequence;
        let category = category::of_span(self.out.trace, span.callsite());
        let mut event = match step_name(self.out.trace, span) {
            Some(step) => sequence.named(category, &step),
            None => sequence.at_callsite(category, span.callsite_id().index(), span.callsite()),
        };
        sequence.annotate_fields(&mut event, span.fields(), None);
        sequence.annotate_cut(&mut event, span.cut());
        if let Some(cpu_time) = span.cpu_time() {
            let nanos = Value::U64(u64::try_from(cpu_time.as_nanos()).unwrap_or(u64::MAX));
            sequence.annotate(&mut event, Span::CPU_TIME, &nanos);
        }
        if !span.backtrace().is_empty() {
            let stack = Value::Str(span.backtrace().join("\n").into());
            sequence.annotate(&mut event, "backtrace", &stack);
        }
        self.linked.to(span).for_each(|flow| event.end_flow(self.out.linked_flow(flow)));
        self.linked.from(span).for_each(|flow| event.begin_flow(self.out.linked_flow(flow)));
        if let Some(flow) = self.call_flows.to(span) {
            event.end_flow(self.out.call_flow(flow));
        }
        if let Some(flow) = self.call_flows.from(span) {
            event.begin_flow(self.out.call_flow(flow));
        }
        sequence.slice(&mut self.out.packets, span.start(), span.end(), event)
    }

    fn call(&mut self, call: ApiCall<'_>) -> io::Result<()> {
        let mut event = self.sequence.named(category::of_call(call), call.name());
        self.sequence.annotate(&mut event, "correlation", &Value::U64(call.correlation().into()));
        if call.result() != 0 {
            self.sequence.annotate(&mut event, "result", &Value::U64(call.result().into()));
        }
        self.sequence.annotate_cause(&mut event, call.span(), call.attribution());
        self.flows.of_call(call.id()).iter().for_each(|work| event.begin_flow(self.out.flow(*work)));
        self.sequence.slice(&mut self.out.packets, call.start(), call.end(), event)
    }

    fn event(&mut self, instant: Event<'_>) -> io::Result<()> {
        let (sequence, packets) = (&mut self.sequence, &mut self.out.packets);
        let mut event = sequence.new_event(Type::Instant).name(instant.message());
        sequence.annotate_fields(&mut event, instant.fields(), Some("message"));
        let level = Value::Str(instant.callsite().level().to_string().into());
        sequence.annotate(&mut event, "level", &level);
        sequence.instant(packets, instant.at(), event)
    }

    fn operation(&mut self, call: OperationCall<'_>) -> io::Result<()> {
        let sequence = &mut self.sequence;
        let known = self.operations.get_or_insert_with(call.operation_id(), || {
            let mut event = sequence.operation(call.name());
            sequence.annotate_fields(&mut event, call.fields(), None);
            event
        });
        let mut event = sequence.copy(known);
        sequence.annotate_cause(&mut event, call.span(), call.attribution());
        sequence.instant(&mut self.out.packets, call.at(), event)
    }
}

/// A call that was entered several times.
#[derive(Debug)]
struct Call<'a> {
    first: Span<'a>,
    enters: u64,
    start: Timestamp,
    end: Timestamp,
    cut: Cut,
}

/// Writes a group of tracks for the calls that were entered several times, if there are any.
///
/// Calls of one name that overlap are on different tracks of this name, which Perfetto shows as one. All of them are
/// written in one sequence, since there may be thousands.
pub(super) fn write_calls(out: &mut TrackWriter<'_>) -> io::Result<()> {
    let calls = calls(out.trace);
    if calls.is_empty() {
        return Ok(());
    }
    let parent_uuid = Some(out.uuid);
    let group =
        out.track(TrackDescriptor { name: Some("calls".to_owned()), parent_uuid, ..TrackDescriptor::default() })?;
    let mut sequence = out.sequence(group)?;
    // The free tracks of each name.
    let mut free: FxHashMap<&str, Vec<u64>> = FxHashMap::default();
    // The calls that have not ended, with the earliest end on top.
    let mut open: BinaryHeap<Ending<'_>> = BinaryHeap::new();
    for call in &calls {
        while let Some(ending) = open.peek().filter(|ending| ending.end <= call.start) {
            free.entry(ending.name).or_default().push(ending.track);
            end(out, &mut sequence, ending)?;
            open.pop();
        }
        let name = call.first.name();
        let track = match free.get_mut(name).and_then(Vec::pop) {
            Some(track) => track,
            None => out.track(TrackDescriptor {
                name: Some(name.to_owned()),
                parent_uuid: Some(group),
                ..TrackDescriptor::default()
            })?,
        };
        let callsite = call.first.callsite();
        let mut event = sequence.at_callsite(category::CALL, call.first.callsite_id().index(), callsite).track(track);
        sequence.annotate_fields(&mut event, call.first.fields(), None);
        sequence.annotate(&mut event, "enters", &Value::U64(call.enters));
        sequence.annotate_cut(&mut event, call.cut);
        sequence.instant(&mut out.packets, call.start, event)?;
        open.push(Ending { end: call.end, track, name });
    }
    while let Some(ending) = open.pop() {
        end(out, &mut sequence, &ending)?;
    }
    sequence.finish(&mut out.packets)
}

fn end(out: &mut TrackWriter<'_>, sequence: &mut Sequence, ending: &Ending<'_>) -> io::Result<()> {
    let event = sequence.new_event(Type::SliceEnd).track(ending.track);
    sequence.instant(&mut out.packets, ending.end, event)
}

/// The end of a call that is open.
#[derive(Debug, PartialEq, Eq)]
struct Ending<'a> {
    end: Timestamp,
    track: u64,
    name: &'a str,
}

impl Ord for Ending<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // The heap has the greatest on top.
        (other.end, other.track).cmp(&(self.end, self.track))
    }
}

impl PartialOrd for Ending<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the calls that were entered several times, in the order of their starts.
fn calls(trace: &Trace) -> Vec<Call<'_>> {
    if trace.spans().all(|span| span.previous().is_none()) {
        return Vec::new();
    }
    let of_spans = SpanCalls::of(trace);
    let mut calls: FxHashMap<SpanId, Call<'_>> = FxHashMap::default();
    for span in trace.spans().filter(|span| of_spans.is_reentered(span.id())) {
        let first = trace.span(of_spans.first(span.id()));
        let (start, end, cut) = (first.start(), first.end(), Cut::default());
        let call = calls.entry(first.id()).or_insert(Call { first, enters: 0, start, end, cut });
        call.enters += 1;
        (call.start, call.end) = (call.start.min(span.start()), call.end.max(span.end()));
        call.cut.start |= span.cut().start;
        call.cut.end |= span.cut().end;
    }
    let mut calls: Vec<_> = calls.into_values().collect();
    calls.sort_unstable_by_key(|call| (call.start, call.first.id()));
    calls
}
