//! The tracks of threads: spans, the GPU API calls inside them, events and operations.

use super::{
    event::Event as Packet,
    proto::{ThreadDescriptor, TrackDescriptor, Type},
    sequence::Sequence,
    tracks::TrackWriter,
};
use crate::{
    export::{
        backward_flows::BackwardFlows, cache::Cache, call_flows::CallFlows, category, flows::Flows,
        index_ranges::index_ranges, torch_steps::step_name,
    },
    trace::{ApiCall, Event, OperationCall, OperationId, Span, TrackId, Value},
};
use std::io;

/// Writes a track for each track of the trace.
pub(super) fn write(out: &mut TrackWriter<'_>, flows: &Flows) -> io::Result<()> {
    let trace = out.trace;
    let tracks = trace.tracks().len();
    let spans = index_ranges(tracks, trace.spans().map(|span| span.track_id().index()));
    let calls = index_ranges(tracks, trace.api_calls().map(|call| call.track_id().index()));
    let events = index_ranges(tracks, trace.events().map(|event| event.track_id().index()));
    let operations = index_ranges(tracks, trace.operations().map(|call| call.track_id().index()));
    let call_flows = CallFlows::new(trace);
    let backward = BackwardFlows::new(trace);
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
        let (call_flows, backward, known) = (&call_flows, &backward, Cache::default());
        let writer = ThreadWriter { out, sequence, flows, call_flows, backward, operations: known };
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
    flows: &'b Flows,
    call_flows: &'b CallFlows,
    backward: &'b BackwardFlows<'a>,
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
        if !span.backtrace().is_empty() {
            let stack = Value::Str(span.backtrace().join("\n").into());
            sequence.annotate(&mut event, "backtrace", &stack);
        }
        self.backward.to(span).for_each(|flow| event.end_flow(self.out.backward_flow(flow)));
        self.backward.from(span).for_each(|flow| event.begin_flow(self.out.backward_flow(flow)));
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
