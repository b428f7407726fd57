//! Turns the records of each thread into spans, events, API calls, allocations and operations.

use super::{Callsites, backtrace::frames, enters::Enters, gpu::Origins, nest, operations::Operations};
use crate::{
    clock::{Ticks, Timeline},
    recording::{Callsite, DeviceCall, Function, MemoryCall, MemoryFacts, Origin, Record, RegistryId, ThreadRecords},
    trace::{
        AllocationData, Api, ApiCallData, Attribution, CallsiteId, Cut, DeviceId, EventData, FieldData, FieldRange,
        MemoryChange, OperationCallData, SpanData, SpanId, Trace, TraceContext, Track, TrackId, Value,
    },
};
use std::{
    collections::{HashMap, HashSet},
    ops::RangeInclusive,
    sync::Arc,
};

/// The state of adding the records of threads to a trace.
pub(super) struct Threads<'a> {
    trace: &'a mut Trace,
    callsites: &'a mut Callsites,
    timeline: &'a Timeline,
    window: RangeInclusive<Ticks>,
    functions: &'a HashMap<Function, Arc<str>>,
    operations: &'a mut Operations,
    origins: Origins,
    enters: Enters,
    /// The instances of each span on which fields were recorded after it was entered, with the moments they were
    /// entered.
    updated: HashMap<RegistryId, Vec<(Ticks, SpanId)>>,
    updates: Vec<Update>,
    /// The fields that instances of a span share, by address, which stays the same as long as this map holds them.
    shared: HashMap<*const FieldData, (Arc<[FieldData]>, FieldRange)>,
}

/// Fields that were recorded on a span after it was entered.
struct Update {
    at: Ticks,
    id: RegistryId,
    /// The instance that was open on the recording thread, if there was one.
    instance: Option<SpanId>,
    fields: Vec<FieldData>,
}

/// The owner of the fields, contexts and backtraces that come next in a thread's records.
enum Owner {
    Span(SpanId),
    /// All open instances of a span. Only a context comes next, and no fields.
    Instances(Vec<SpanId>),
    Event,
    Update,
    /// A span or event after the end of the window, which is left out.
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
        let (origins, enters) = (Origins::default(), Enters::default());
        let (updated, updates, shared) = (HashMap::new(), Vec::new(), HashMap::new());
        Self { trace, callsites, timeline, window, functions, operations, origins, enters, updated, updates, shared }
    }

    /// Adds the threads. Returns the origins of the calls, allocations and operations that were made on behalf of
    /// others, and the enters of all spans.
    pub(super) fn add(mut self, threads: Vec<ThreadRecords>) -> (Origins, Enters) {
        // The lists of the trace are made once, as large as they become: growing them would take more memory.
        let (mut spans, mut events, mut fields, mut operations) = (0, 0, 0, 0);
        for record in threads.iter().flat_map(|thread| thread.chunks.iter().flatten()) {
            match record {
                Record::Open { .. } | Record::Enter { .. } => spans += 1,
                Record::Event { .. } => events += 1,
                Record::Field(_) => fields += 1,
                Record::Operation { .. } => operations += 1,
                Record::Update { id, .. } => drop(self.updated.entry(*id).or_default()),
                _ => {}
            }
        }
        self.trace.spans.reserve_exact(spans);
        self.enters.reserve(spans);
        self.trace.events.reserve_exact(events);
        self.trace.fields.reserve_exact(fields);
        self.trace.operation_calls.reserve_exact(operations);
        self.origins.operations.reserve_exact(operations);
        for thread in threads {
            self.add_thread(thread);
        }
        self.apply_updates();
        self.apply_names();
        (self.origins, self.enters)
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
                Record::Join { .. } | Record::Joined => {}
                Record::Open { id, callsite } => {
                    owner = self.enter(&mut open, id, callsite, None);
                }
                Record::Enter { at, id, callsite } => {
                    owner = self.enter(&mut open, id, callsite, Some(at));
                }
                Record::Exit { at, id } => {
                    if let Some(index) = open.iter().rposition(|(open, _)| *open == id) {
                        let (_, span) = open.remove(index);
                        if at <= *self.window.end() {
                            let span = &mut self.trace.spans[span.index()];
                            // On some machines, the cycle counters of two cores differ a little.
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
                Record::Parent { id } if matches!(owner, Owner::Span(_)) => self.enters.add_parent(id),
                // These were made before the window or after it.
                Record::Call(_) | Record::Memory(_) | Record::Operation { .. } | Record::Parent { .. } => {}
                Record::Field(field) => self.add_field(&owner, field),
                Record::Fields(fields) => self.share_fields(&owner, fields),
                Record::ContextOf { id } => {
                    // A thread may have entered a span twice.
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

        let no_calls = calls.is_empty()
            && self.trace.allocations.len() == first_allocation
            && self.trace.operation_calls.len() == first_operation;
        // A call inside another one returns first, and so is written first.
        calls.sort_by_key(|(call, _)| call.start);
        for (call, origin) in calls {
            self.trace.api_calls.push(call);
            self.origins.calls.push(origin);
        }
        let spans = &mut self.trace.spans[first_span..];
        if spans.is_empty() && self.trace.events.len() == first_event && no_calls {
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

    /// Begins an instance of a span. `at` is `None` if it was entered before the window.
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
            previous: None,
            step: None,
            start: at.map_or(self.trace.start, |at| self.timeline.at(at)),
            end: self.trace.end,
            self_nanos: 0,
            fields: self.no_fields(),
            cut: Cut { start: at.is_none(), end: true },
        });
        self.enters.add(at, id, span, open.last().map(|&(_, parent)| parent));
        open.push((id, span));
        if let Some(instances) = self.updated.get_mut(&id) {
            instances.push((at.unwrap_or_default(), span));
        }
        Owner::Span(span)
    }

    /// Whether a call was made in the window. A call that was made while the window opened counts as made at its
    /// opening; only 0 stands for a call before the window.
    fn is_inside(&self, start: Ticks) -> bool {
        start != Ticks(0) && start <= *self.window.end()
    }

    fn api_call(&self, call: DeviceCall, track: TrackId, innermost: Option<&(RegistryId, SpanId)>) -> ApiCallData {
        let (function, start) = (u32::from(call.function), self.timeline.at(call.start));
        let name = self.functions.get(&(call.api, function)).map(Arc::clone);
        let span = innermost.map(|&(_, span)| span);
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

    fn allocation(&self, call: MemoryCall, track: TrackId, innermost: Option<&(RegistryId, SpanId)>) -> AllocationData {
        let MemoryFacts { bytes, context, change, pooled } = call.facts();
        let span = innermost.map(|&(_, span)| span);
        AllocationData {
            at: self.timeline.at(call.at),
            context: context.into(),
            // Filled in when the GPU's records say which device the context belongs to.
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

    /// Returns an empty range at the end of the trace's fields, to which fields can be added.
    fn no_fields(&self) -> FieldRange {
        FieldRange { start: u32::try_from(self.trace.fields.len()).unwrap_or(u32::MAX), len: 0 }
    }

    /// Adds a field to its owner. The fields of an owner follow it at once, so they lie next to each other.
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

    /// Sets the OpenTelemetry context of the owner.
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

    /// Gives an instance the fields that all instances of its span share.
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

    /// Adds the fields of updates to their instances: to the one that was open on the recording thread, or else to the
    /// one that was entered last at that moment, on any thread.
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
                // The fields of a span lie next to each other. So they are copied to the end if one is added and they
                // are not there already, or if one is changed and other instances share them.
                let is_recorded = self.trace.fields[range.as_range()].iter().any(|old| old.index == field.index);
                let in_place = if is_recorded {
                    !shared.contains(&range.start)
                } else {
                    range.as_range().end == self.trace.fields.len()
                };
                if !in_place {
                    let start = self.trace.fields.len();
                    self.trace.fields.extend_from_within(range.as_range());
                    range.start = u32::try_from(start).unwrap_or(u32::MAX);
                }
                let recorded = self.trace.fields[range.as_range()].iter_mut().find(|old| old.index == field.index);
                if let Some(old) = recorded {
                    old.value = field.value;
                    continue;
                }
                self.trace.fields.push(field);
                range.len += 1;
            }
        }
    }

    /// Gives spans the names that their field `op.name` has: see [`convention::NAME`](crate::trace::convention::NAME).
    fn apply_names(&mut self) {
        let name_fields: Vec<_> =
            (0..self.callsites.len()).map(|index| self.callsites.name_field(CallsiteId::new(index))).collect();
        for span in &mut self.trace.spans {
            let Some(index) = name_fields[span.callsite.index()] else { continue };
            let name = self.trace.fields[span.fields.as_range()].iter().find(|field| field.index == index);
            if let Some(Value::Str(name)) = name.map(|field| &field.value) {
                span.callsite = self.callsites.renamed(span.callsite, name);
            }
        }
    }
}

/// Returns the attribution of a call on its own thread.
fn attribution(span: Option<SpanId>) -> Attribution {
    if span.is_some() { Attribution::Direct } else { Attribution::Unattributed }
}
