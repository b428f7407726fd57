//! The tracks of threads: spans, the calls of the GPU's API inside them, events and operations.

use super::{
    event::Event as Packet,
    proto::{ThreadDescriptor, TrackDescriptor, Type},
    sequence::Sequence,
    writer::Writer,
};
use crate::{
    export::{flows::Flows, runs::runs, shape::Shape},
    trace::{ApiCall, Event, OperationCall, OperationId, Span, TrackId, Value},
};
use rustc_hash::FxHashMap;
use std::io::{self, Write};

impl<'a, W: Write> Writer<'a, W> {
    pub(super) fn threads(&mut self, flows: &Flows) -> io::Result<()> {
        let trace = self.trace;
        let tracks = trace.tracks().len();
        let spans = runs(tracks, trace.spans().map(|span| span.track_id().index()));
        let calls = runs(tracks, trace.api_calls().map(|call| call.track_id().index()));
        let events = runs(tracks, trace.events().map(|event| event.track_id().index()));
        let operations = runs(tracks, trace.operations().map(|told| told.track_id().index()));
        let mut thread = self.uuid;
        for (place, track) in trace.tracks().iter().enumerate() {
            let mut descriptor = TrackDescriptor::default();
            if track.overlap() == 0 {
                descriptor.thread = Some(ThreadDescriptor {
                    pid: Some(self.pid()),
                    tid: i64::try_from(track.thread().as_u64()).ok(),
                    thread_name: Some(track.thread_name().to_owned()),
                });
            } else {
                descriptor.parent_uuid = Some(thread);
                descriptor.name = Some(track.label());
            }
            let uuid = self.track(descriptor)?;
            thread = if track.overlap() == 0 { uuid } else { thread };
            let sequence = self.sequence(uuid)?;
            let here = TrackId::new(place);
            let (spans, calls, events) = (spans[place].clone(), calls[place].clone(), events[place].clone());
            let spans = trace.spans().skip(spans.start).take(spans.len());
            let calls = trace.api_calls().skip(calls.start).take(calls.len());
            let events = trace.events().skip(events.start).take(events.len());
            self.slices(
                sequence,
                flows,
                spans.filter(|span| span.track_id() == here),
                calls.filter(|call| call.track_id() == here),
                events.filter(|event| event.track_id() == here),
                trace.operations_at(operations[place].clone()).filter(|told| told.track_id() == here),
            )?;
        }
        Ok(())
    }

    /// Everything on a track in order of time. Of what begins together the span comes first, as it is the outer one.
    fn slices(
        &mut self,
        mut sequence: Sequence,
        flows: &Flows,
        spans: impl Iterator<Item = Span<'a>>,
        calls: impl Iterator<Item = ApiCall<'a>>,
        events: impl Iterator<Item = Event<'a>>,
        operations: impl Iterator<Item = OperationCall<'a>>,
    ) -> io::Result<()> {
        let (mut spans, mut calls, mut events) = (spans.peekable(), calls.peekable(), events.peekable());
        let mut operations = operations.peekable();
        let mut known: FxHashMap<OperationId, Packet> = FxHashMap::default();
        loop {
            let span = spans.peek().map(|span| span.start());
            let call = calls.peek().map(|call| call.start());
            let event = events.peek().map(|event| event.at());
            let operation = operations.peek().map(|told| told.at());
            let Some(next) = [span, call, event, operation].into_iter().flatten().min() else { break };
            if let Some(span) = spans.next_if(|span| span.start() == next) {
                self.span(&mut sequence, span)?;
            } else if let Some(call) = calls.next_if(|call| call.start() == next) {
                self.call(&mut sequence, call, flows)?;
            } else if let Some(event) = events.next_if(|event| event.at() == next) {
                self.event(&mut sequence, event)?;
            } else if let Some(told) = operations.next() {
                self.operation(&mut sequence, told, &mut known)?;
            }
        }
        sequence.finish(self)
    }

    fn span(&mut self, sequence: &mut Sequence, span: Span<'_>) -> io::Result<()> {
        let mut event = sequence.at_callsite(span.callsite_id().index(), span.callsite());
        sequence.annotate(&mut event, span.fields(), None);
        sequence.annotate_cut(&mut event, span.cut());
        if !span.backtrace().is_empty() {
            let stack = Value::Str(span.backtrace().join("\n").into());
            sequence.annotate_one(&mut event, "backtrace", &stack);
        }
        sequence.slice(self, span.start(), span.end(), event)
    }

    fn call(&mut self, sequence: &mut Sequence, call: ApiCall<'_>, flows: &Flows) -> io::Result<()> {
        let mut event = sequence.named(call.name());
        sequence.annotate_one(&mut event, "correlation", &Value::U64(call.correlation().into()));
        if call.result() != 0 {
            sequence.annotate_one(&mut event, "result", &Value::U64(call.result().into()));
        }
        sequence.annotate_cause(&mut event, call.span(), call.attribution());
        flows.of(call.id()).iter().for_each(|work| event.begin_flow(self.flow(*work)));
        sequence.slice(self, call.start(), call.end(), event)
    }

    fn event(&mut self, sequence: &mut Sequence, instant: Event<'_>) -> io::Result<()> {
        let mut event = sequence.make(Type::Instant).name(instant.message());
        sequence.annotate(&mut event, instant.fields(), Some("message"));
        let level = Value::Str(instant.callsite().level().to_string().into());
        sequence.annotate_one(&mut event, "level", &level);
        sequence.instant(self, instant.at(), event)
    }

    /// `known` are those that have been written on this track.
    fn operation(
        &mut self,
        sequence: &mut Sequence,
        told: OperationCall<'_>,
        known: &mut FxHashMap<OperationId, Packet>,
    ) -> io::Result<()> {
        let id = told.operation_id();
        if known.len() >= Shape::KEPT && !known.contains_key(&id) {
            known.clear();
        }
        let alike = known.entry(id).or_insert_with(|| {
            let mut event = sequence.operation(told.name());
            sequence.annotate(&mut event, told.fields(), None);
            event
        });
        let mut event = sequence.again(alike);
        sequence.annotate_cause(&mut event, told.span(), told.attribution());
        sequence.instant(self, told.at(), event)
    }
}
