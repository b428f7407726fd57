//! What each thread's records say: spans with parents, ends and fields, and events.

use super::{Callsites, gpu::Origins, nest, operations::Operations};
use crate::{
    clock::{Ticks, Timeline},
    recording::{Callsite, DeviceCall, Function, MemoryCall, MemoryFacts, Origin, Record, RegistryId, ThreadRecords},
    trace::{
        AllocationData, Api, ApiCallData, Attribution, CallsiteId, Cut, DeviceId, EventData, FieldData, FieldRange,
        MemoryChange, OperationCallData, SpanData, SpanId, Trace, TraceContext, Track, TrackId, Value,
    },
};
use std::{
    backtrace::Backtrace,
    collections::{HashMap, HashSet},
    ops::RangeInclusive,
    sync::Arc,
};

/// Adds threads to a trace.
pub(super) struct Threads<'a> {
    trace: &'a mut Trace,
    callsites: &'a mut Callsites,
    timeline: &'a Timeline,
    window: RangeInclusive<Ticks>,
    functions: &'a HashMap<Function, Arc<str>>,
    operations: &'a mut Operations,
    origins: Origins,
    /// Instances of spans on which fields were recorded later, with the moment they were entered.
    updated: HashMap<RegistryId, Vec<(Ticks, SpanId)>>,
    updates: Vec<Update>,
    /// Fields that instances have in common, by where they are in memory: there they stay while they are here.
    shared: HashMap<*const FieldData, (Arc<[FieldData]>, FieldRange)>,
}

struct Update {
    at: Ticks,
    id: RegistryId,
    /// The instance that was open on the thread.
    instance: Option<SpanId>,
    fields: Vec<FieldData>,
}

/// What the fields that come next belong to.
enum Owner {
    Span(SpanId),
    /// All that is open of one span; of these there are no more fields.
    Instances(Vec<SpanId>),
    Event,
    Update,
    /// Something after the window's end.
    Nobody,
}

impl<'a> Threads<'a> {
    pub(super) fn new(
        trace: &'a mut Trace,
        callsites: &'a mut Callsites,
        timeline: &'a Timeline,
        window: RangeInclusive<Ticks>,
        functions: &'a HashMap<Function, Arc<str>>,
        operations: &'a mut Operations,
    ) -> Self {
        let (origins, updated, updates, shared) = (Origins::default(), HashMap::new(), Vec::new(), HashMap::new());
        Self { trace, callsites, timeline, window, functions, operations, origins, updated, updates, shared }
    }

    /// Returns on whose behalf calls were made and operations told of.
    pub(super) fn add(mut self, threads: Vec<ThreadRecords>) -> Origins {
        let records = threads.iter().flat_map(|thread| thread.chunks.iter().flatten());
        let updated = records.filter_map(|record| match record {
            Record::Update { id, .. } => Some(*id),
            _ => None,
        });
        self.updated = updated.collect::<HashSet<_>>().into_iter().map(|id| (id, Vec::new())).collect();
        for thread in threads {
            self.add_thread(thread);
        }
        self.apply_updates();
        self.apply_names();
        self.origins
    }

    fn add_thread(&mut self, thread: ThreadRecords) {
        let ThreadRecords { thread, chunks, .. } = thread;
        let (first_span, first_event, first_track) =
            (self.trace.spans.len(), self.trace.events.len(), self.trace.tracks.len());
        let mut open: Vec<(RegistryId, SpanId)> = Vec::new();
        let mut calls: Vec<(ApiCallData, Option<Origin>)> = Vec::new();
        let (first_allocation, first_operation) = (self.trace.allocations.len(), self.trace.operation_calls.len());
        let mut adopted: Option<Origin> = None;
        let mut owner = Owner::Nobody;
        for record in chunks.into_iter().flatten() {
            match record {
                Record::Join { .. } | Record::Told => {}
                Record::Open { id, callsite } => {
                    owner = self.enter(&mut open, id, callsite, None);
                }
                Record::Enter { at, id, callsite } => {
                    owner = self.enter(&mut open, id, callsite, Some(at));
                }
                Record::Exit { at, id } => {
                    if let Some(place) = open.iter().rposition(|(open, _)| *open == id) {
                        let (_, span) = open.remove(place);
                        if at <= *self.window.end() {
                            let span = &mut self.trace.spans[span.index()];
                            // On some machines the counters of two cores differ a little.
                            span.end = self.timeline.at(at).max(span.start);
                            span.cut.end = false;
                        }
                    }
                }
                Record::Event { at, .. } if at > *self.window.end() => owner = Owner::Nobody,
                Record::Event { at, callsite } => {
                    self.trace.events.push(EventData {
                        callsite: self.callsites.id(callsite),
                        track: TrackId::new(first_track),
                        span: open.last().map(|&(_, span)| span),
                        at: self.timeline.at(at),
                        fields: self.no_fields(),
                    });
                    owner = Owner::Event;
                }
                Record::Update { at, id } => {
                    let instance = open.iter().rfind(|(open, _)| *open == id).map(|&(_, span)| span);
                    self.updates.push(Update { at, id, instance, fields: Vec::new() });
                    owner = Owner::Update;
                }
                Record::Adopt(origin) => adopted = origin,
                Record::Call(call) if self.is_inside(call.start) => {
                    let mut call = self.api_call(call, TrackId::new(first_track), open.last());
                    call.batch = self.operations.batch(adopted);
                    calls.push((call, adopted));
                }
                Record::Memory(call) if self.is_inside(call.at) => {
                    let allocation = self.allocation(call, TrackId::new(first_track), open.last());
                    self.trace.allocations.push(allocation);
                    self.origins.allocations.push(adopted);
                }
                Record::Operation { at, operation } if self.is_inside(at) => {
                    let span = open.last().map(|&(_, span)| span);
                    self.trace.operation_calls.push(OperationCallData {
                        operation: self.operations.id(operation),
                        track: TrackId::new(first_track),
                        at: self.timeline.at(at),
                        attribution: attribution(span),
                        span,
                        step: None,
                        batch: self.operations.batch(adopted),
                    });
                    self.origins.operations.push(adopted);
                }
                // Of before the window, or after it.
                Record::Call(_) | Record::Memory(_) | Record::Operation { .. } => {}
                Record::Field(field) => self.add_field(&owner, field),
                Record::Fields(fields) => self.share_fields(&owner, fields),
                Record::Of { id } => {
                    // A span may be open twice.
                    let instances: Vec<_> =
                        open.iter().filter(|(open, _)| *open == id).map(|&(_, span)| span).collect();
                    self.trace.contexts.extend(instances.iter().map(|&span| (span, None)));
                    owner = Owner::Instances(instances);
                }
                Record::Context { trace, span } => self.add_context(&owner, trace, span, true),
                Record::Unsampled { trace, span } => self.add_context(&owner, trace, span, false),
                Record::Backtrace(backtrace) => {
                    if let Owner::Span(span) = owner {
                        self.trace.backtraces.insert(span, frames(&backtrace));
                    }
                }
            }
        }

        let quiet = calls.is_empty()
            && self.trace.allocations.len() == first_allocation
            && self.trace.operation_calls.len() == first_operation;
        // A call that another is made in returns first.
        calls.sort_by_key(|(call, _)| call.start);
        for (call, origin) in calls {
            self.trace.api_calls.push(call);
            self.origins.calls.push(origin);
        }
        let spans = &mut self.trace.spans[first_span..];
        if spans.is_empty() && self.trace.events.len() == first_event && quiet {
            return;
        }
        nest::self_times(spans, first_span);
        let overlaps = nest::overlaps(spans, first_span);
        for overlap in 0..=overlaps.iter().copied().max().unwrap_or(0) {
            self.trace.tracks.push(Track { thread: thread.id, name: thread.name.clone(), overlap });
        }
        for (span, overlap) in spans.iter_mut().zip(overlaps) {
            span.track = TrackId::new(first_track + overlap as usize);
        }
    }

    /// Begins an instance; one with no time began before the window.
    fn enter(
        &mut self,
        open: &mut Vec<(RegistryId, SpanId)>,
        id: RegistryId,
        callsite: Callsite,
        at: Option<Ticks>,
    ) -> Owner {
        if at.is_some_and(|at| at > *self.window.end()) {
            return Owner::Nobody;
        }
        let span = SpanId::new(self.trace.spans.len());
        self.trace.spans.push(SpanData {
            callsite: self.callsites.id(callsite),
            track: TrackId::new(0),
            parent: open.last().map(|&(_, span)| span),
            step: None,
            start: at.map_or(self.trace.start, |at| self.timeline.at(at)),
            end: self.trace.end,
            self_nanos: 0,
            fields: self.no_fields(),
            cut: Cut { start: at.is_none(), end: true },
        });
        open.push((id, span));
        if let Some(instances) = self.updated.get_mut(&id) {
            instances.push((at.unwrap_or_default(), span));
        }
        Owner::Span(span)
    }

    /// Whether a call is of the window. One that was entered while the window was being opened is, as of its opening.
    fn is_inside(&self, start: Ticks) -> bool {
        start != Ticks(0) && start <= *self.window.end()
    }

    fn api_call(&self, call: DeviceCall, track: TrackId, inside: Option<&(RegistryId, SpanId)>) -> ApiCallData {
        let (function, start) = (u32::from(call.function), self.timeline.at(call.start));
        let name = self.functions.get(&(call.api, function)).map(Arc::clone);
        let span = inside.map(|&(_, span)| span);
        ApiCallData {
            api: if call.api == Api::CUDA_RUNTIME { Api::CudaRuntime } else { Api::CudaDriver },
            function,
            name: name.unwrap_or_else(|| Arc::from(format!("function {function}"))),
            track,
            start,
            end: self.timeline.at(call.end()).max(start),
            correlation: call.correlation,
            result: call.result.into(),
            attribution: attribution(span),
            span,
            batch: None,
        }
    }

    fn allocation(&self, call: MemoryCall, track: TrackId, inside: Option<&(RegistryId, SpanId)>) -> AllocationData {
        let MemoryFacts { bytes, context, change, pooled } = call.facts();
        let span = inside.map(|&(_, span)| span);
        AllocationData {
            at: self.timeline.at(call.at),
            context: context.into(),
            // Until it is known which one the context is of.
            device: DeviceId::default(),
            address: call.address,
            bytes: (change == MemoryChange::Allocate).then_some(bytes),
            change,
            pooled,
            in_use: 0,
            reserved: 0,
            track,
            attribution: attribution(span),
            span,
        }
    }

    fn no_fields(&self) -> FieldRange {
        FieldRange { start: u32::try_from(self.trace.fields.len()).unwrap_or(u32::MAX), len: 0 }
    }

    /// Fields follow their owner at once, so they lie next to each other.
    fn add_field(&mut self, owner: &Owner, field: FieldData) {
        let range = match owner {
            Owner::Span(span) => &mut self.trace.spans[span.index()].fields,
            Owner::Event => match self.trace.events.last_mut() {
                Some(event) => &mut event.fields,
                None => return,
            },
            Owner::Update => {
                if let Some(update) = self.updates.last_mut() {
                    update.fields.push(field);
                }
                return;
            }
            Owner::Instances(_) | Owner::Nobody => return,
        };
        range.len += 1;
        self.trace.fields.push(field);
    }

    fn add_context(&mut self, owner: &Owner, [high, low]: [u64; 2], span_id: u64, sampled: bool) {
        let spans = match owner {
            Owner::Span(span) => std::slice::from_ref(span),
            Owner::Instances(spans) => spans,
            _ => return,
        };
        let trace_id = u128::from(high) << 64 | u128::from(low);
        let context = TraceContext { trace_id, span_id, sampled };
        self.trace.contexts.extend(spans.iter().map(|&span| (span, Some(context))));
    }

    /// Gives an instance the fields that the span has had each time.
    fn share_fields(&mut self, owner: &Owner, fields: Arc<[FieldData]>) {
        let Owner::Span(span) = owner else { return };
        let mut range = self.no_fields();
        range.len = u32::try_from(fields.len()).unwrap_or(u32::MAX);
        let (_, range) = self.shared.entry(fields.as_ptr()).or_insert_with(|| {
            self.trace.fields.extend_from_slice(&fields);
            (fields, range)
        });
        self.trace.spans[span.index()].fields = *range;
    }

    /// Gives fields recorded later to the instance that was open on the thread, or else to the span's latest at that moment, on
    /// whichever thread.
    fn apply_updates(&mut self) {
        self.updates.sort_by_key(|update| update.at);
        self.updated.values_mut().for_each(|instances| instances.sort_by_key(|(entered, _)| *entered));
        let close = *self.window.end();
        let updates = std::mem::take(&mut self.updates);
        let shared: HashSet<_> = self.shared.values().map(|(_, range)| range.start).collect();
        for Update { at, id, instance, fields } in updates.into_iter().filter(|update| update.at <= close) {
            let Some(span) = instance.or_else(|| {
                let instances = self.updated.get(&id)?;
                let later = instances.partition_point(|(entered, _)| *entered <= at);
                instances.get(later.saturating_sub(1)).map(|&(_, span)| span)
            }) else {
                continue;
            };
            for field in fields {
                let range = &mut self.trace.spans[span.index()].fields;
                // A span's fields lie next to each other: with one more, they move to the end unless they are there. So do those that
                // others have, too.
                let known = self.trace.fields[range.as_range()].iter().any(|old| old.index == field.index);
                let stay = if known {
                    !shared.contains(&range.start)
                } else {
                    range.as_range().end == self.trace.fields.len()
                };
                if !stay {
                    let start = self.trace.fields.len();
                    self.trace.fields.extend_from_within(range.as_range());
                    range.start = u32::try_from(start).unwrap_or(u32::MAX);
                }
                let known = self.trace.fields[range.as_range()].iter_mut().find(|old| old.index == field.index);
                if let Some(old) = known {
                    old.value = field.value;
                    continue;
                }
                self.trace.fields.push(field);
                range.len += 1;
            }
        }
    }

    /// Gives spans the names they say they have.
    fn apply_names(&mut self) {
        let name_fields: Vec<_> =
            (0..self.callsites.len()).map(|place| self.callsites.name_field(CallsiteId::new(place))).collect();
        for span in &mut self.trace.spans {
            let Some(index) = name_fields[span.callsite.index()] else { continue };
            let name = self.trace.fields[span.fields.as_range()].iter().find(|field| field.index == index);
            if let Some(Value::Str(name)) = name.map(|field| &field.value) {
                span.callsite = self.callsites.renamed(span.callsite, name);
            }
        }
    }
}

fn attribution(span: Option<SpanId>) -> Attribution {
    if span.is_some() { Attribution::Direct } else { Attribution::Unattributed }
}

/// The functions on a call stack, innermost first, without the machinery that took it.
fn frames(backtrace: &Backtrace) -> Vec<String> {
    let text = backtrace.to_string();
    let frames = text.lines().filter_map(|line| {
        let (number, function) = line.trim_start().split_once(": ")?;
        number.parse::<u32>().ok().map(|_| function.to_owned())
    });
    let machinery = |frame: &String| {
        const CRATES: [&str; 6] =
            ["std::", "core::", "tracing::", "tracing_core::", "tracing_subscriber::", "kernspan::"];
        // Functions of `tracing` that were inlined, of which a program with line tables only does not know the path.
        const INLINED: [&str; 5] = ["{closure#0}", "do_enter", "enter", "entered", "in_scope"];
        let function = frame.trim_start_matches('<');
        let name = function.split_once('<').map_or(function, |(name, _)| name);
        CRATES.iter().any(|path| function.starts_with(path)) || INLINED.contains(&name)
    };
    let mut frames: Vec<_> = frames.skip_while(machinery).collect();
    // What called `main`.
    if let Some(main) = frames.iter().position(|frame| frame.starts_with("std::sys::backtrace::__rust_begin_short")) {
        frames.truncate(main);
    }
    frames
}
