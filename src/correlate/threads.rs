//! Turns the records of each thread into spans, events, API calls, allocations and operations.

use super::{
    Callsites,
    backtrace::frames,
    enters::Enters,
    fields::Updates,
    gpu::Origins,
    nest,
    tables::Operations,
    thread_state::{Owner, ThreadState},
};
use crate::{
    clock::{Ticks, Timeline},
    recording::{Callsite, DeviceCall, Function, MemoryCall, MemoryFacts, Record, RegistryId, ThreadRecords},
    trace::{
        AllocationData, Api, ApiCallData, Attribution, CallsiteId, Cut, DeviceId, EventData, FieldData, FieldRange,
        MemoryChange, Operation, OperationCallData, SpanData, SpanId, Trace, TraceContext, Track, TrackId, Value,
    },
};
use rustc_hash::FxHashMap;
use std::{collections::HashMap, ops::RangeInclusive, sync::Arc};

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
    updates: Updates,
    /// The fields that instances of a span share, by address, which stays the same as long as this map holds them.
    shared: HashMap<*const FieldData, (Arc<[FieldData]>, FieldRange)>,
    /// The CPU time in nanoseconds of spans that have it.
    cpu_times: FxHashMap<SpanId, u64>,
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
        let (updates, shared, cpu_times) = Default::default();
        Self { trace, callsites, timeline, window, functions, operations, origins, enters, updates, shared, cpu_times }
    }

    /// Adds the threads. Returns the origins of the calls, allocations and operations that were made on behalf of
    /// others, and the enters of all spans.
    pub(super) fn add(mut self, threads: Vec<ThreadRecords>) -> (Origins, Enters) {
        self.reserve(&threads);
        for thread in threads {
            self.add_thread(thread);
        }
        let shared = self.shared.values().map(|(_, range)| range.start).collect();
        std::mem::take(&mut self.updates).apply(self.trace, *self.window.end(), &shared);
        self.apply_names();
        self.trace.set_cpu_times(self.cpu_times);
        (self.origins, self.enters)
    }

    /// Makes the lists of the trace as large as they become: growing them would take more memory.
    fn reserve(&mut self, threads: &[ThreadRecords]) {
        let (mut spans, mut events, mut fields, mut operations) = (0, 0, 0, 0);
        for record in threads.iter().flat_map(|thread| thread.chunks.iter().flatten()) {
            match record {
                Record::Open { .. } | Record::Enter { .. } | Record::EnterKept { .. } => spans += 1,
                Record::Event { .. } => events += 1,
                Record::Field(_) => fields += 1,
                Record::Operation { .. } => operations += 1,
                Record::Update { id, .. } => self.updates.expect(*id),
                _ => {}
            }
        }
        self.trace.spans.reserve_exact(spans);
        self.enters.reserve(spans);
        self.trace.events.reserve_exact(events);
        self.trace.fields.reserve_exact(fields);
        self.trace.operation_calls.reserve_exact(operations);
        self.origins.operations.reserve_exact(operations);
    }

    fn add_thread(&mut self, thread: ThreadRecords) {
        let ThreadRecords { thread, chunks, .. } = thread;
        let first_span = self.trace.spans.len();
        let before = self.count_others();
        let mut state = ThreadState::new(TrackId::new(self.trace.tracks.len()));
        for record in chunks.into_iter().flatten() {
            self.add_record(&mut state, record);
        }
        // A call inside another one returns first, and so is written first.
        state.calls.sort_by_key(|(call, _)| call.start);
        for (call, origin) in state.calls {
            self.trace.api_calls.push(call);
            self.origins.calls.push(origin);
        }
        if self.trace.spans.len() == first_span && self.count_others() == before {
            return;
        }
        let spans = &mut self.trace.spans[first_span..];
        nest::self_times(spans, first_span);
        let overlaps = nest::overlaps(spans, first_span);
        for overlap in 0..=overlaps.iter().copied().max().unwrap_or(0) {
            self.trace.tracks.push(Track { thread: thread.id, name: thread.name.clone(), overlap });
        }
        for (span, overlap) in spans.iter_mut().zip(overlaps) {
            span.track = TrackId::new(state.track.index() + overlap as usize);
        }
    }

    /// The number of items other than spans for which a thread needs a track.
    fn count_others(&self) -> usize {
        let trace = &self.trace;
        trace.events.len() + trace.api_calls.len() + trace.allocations.len() + trace.operation_calls.len()
    }

    fn add_record(&mut self, state: &mut ThreadState, record: Record) {
        match record {
            Record::Join { .. } | Record::Joined => {}
            Record::Open { id, callsite } => self.enter(state, id, callsite, None, false),
            Record::Enter { at, id, callsite } => self.enter(state, id, callsite, Some(at), false),
            Record::EnterKept { at, id, callsite } => self.enter(state, id, callsite, Some(at), true),
            Record::Exit { at, id } => self.exit(state, id, at),
            Record::Event { at, callsite } => self.add_event(state, at, callsite),
            Record::Update { at, id } => {
                self.updates.begin(at, id, state.instances(id).next_back());
                state.owner = Owner::Update;
            }
            Record::Follows { at, id, cause } => self.enters.add_follows(at, id, cause),
            Record::Adopt(origin) => state.adopted = origin,
            Record::Call(call) if self.is_inside(call.start) => {
                let call = self.api_call(call, state);
                state.calls.push((call, state.adopted));
            }
            Record::Memory(call) if self.is_inside(call.at) => {
                let allocation = self.allocation(call, state);
                self.trace.allocations.push(allocation);
                self.origins.allocations.push(state.adopted);
            }
            Record::Pool { device, used, reserved } => {
                self.trace.pools.insert(DeviceId::new(device), (used, reserved));
            }
            Record::Operation { at, operation } if self.is_inside(at) => {
                let call = self.operation_call(at, operation, state);
                self.trace.operation_calls.push(call);
                self.origins.operations.push(state.adopted);
            }
            // The launch is recorded, or it was made before the window and its kernel is not in it either.
            Record::Collective { at, collective } if self.is_inside(at) => {
                let launch = state.calls.last().map(|(call, _)| call.correlation);
                self.origins.collectives.extend(launch.map(|correlation| (correlation, collective)));
            }
            Record::Heap(used) => {
                if let Some((span, heap)) = state.innermost().zip(self.trace.heap.as_mut()) {
                    *heap.entry(span).or_default() += used;
                }
            }
            Record::CpuStart { nanos } => {
                if let Owner::Span(span) = state.owner {
                    state.cpu_starts.push((span, nanos));
                }
            }
            Record::CpuEnd { nanos, id } => state.cpu = state.cpu_time(id, nanos),
            Record::Parent { id } if matches!(state.owner, Owner::Span(_)) => self.enters.add_parent(id),
            // These were made before the window or after it.
            Record::Call(_) | Record::Memory(_) | Record::Parent { .. } => {}
            Record::Operation { .. } | Record::Collective { .. } => {}
            Record::Field(field) => self.add_field(&state.owner, field),
            Record::Fields(fields) => self.share_fields(&state.owner, fields),
            Record::ContextOf { id } => {
                // A thread may have entered a span twice.
                let instances: Vec<_> = state.instances(id).collect();
                self.trace.contexts.extend(instances.iter().map(|&span| (span, None)));
                state.owner = Owner::Instances(instances);
            }
            Record::Context { trace, span } => self.add_context(&state.owner, trace, span, true),
            Record::Unsampled { trace, span } => self.add_context(&state.owner, trace, span, false),
            Record::Backtrace(backtrace) => {
                if let Owner::Span(span) = state.owner {
                    self.trace.backtraces.insert(span, frames(&backtrace));
                }
            }
        }
    }

    /// Begins an instance of a span. `at` is `None` if it was entered before the window.
    fn enter(
        &mut self,
        state: &mut ThreadState,
        id: RegistryId,
        callsite: Callsite,
        at: Option<Ticks>,
        made_outside: bool,
    ) {
        if at.is_some_and(|at| at > *self.window.end()) {
            state.owner = Owner::Nobody;
            return;
        }
        let parent = state.innermost();
        let span = SpanId::new(self.trace.spans.len());
        self.trace.spans.push(SpanData {
            callsite: self.callsites.id(callsite),
            track: TrackId::new(0),
            parent,
            previous: None,
            step: None,
            start: at.map_or(self.trace.start, |at| self.timeline.at(at)),
            end: self.trace.end,
            self_nanos: 0,
            fields: self.no_fields(),
            cut: Cut { start: at.is_none(), end: true },
        });
        self.enters.add(at, id, span, parent, made_outside);
        state.open.push((id, span));
        self.updates.add_instance(id, at, span);
        state.owner = Owner::Span(span);
    }

    /// Ends the instance of a span that was entered last.
    fn exit(&mut self, state: &mut ThreadState, id: RegistryId, at: Ticks) {
        let Some(index) = state.open.iter().rposition(|(open, _)| *open == id) else { return };
        let (_, span) = state.open.remove(index);
        if at <= *self.window.end() {
            let data = &mut self.trace.spans[span.index()];
            // On some machines, the cycle counters of two cores differ a little.
            data.end = self.timeline.at(at).max(data.start);
            data.cut.end = false;
            self.cpu_times.extend(state.cpu.take().filter(|(timed, _)| *timed == span));
        }
    }

    fn add_event(&mut self, state: &mut ThreadState, at: Ticks, callsite: Callsite) {
        if at > *self.window.end() {
            state.owner = Owner::Nobody;
            return;
        }
        self.trace.events.push(EventData {
            callsite: self.callsites.id(callsite),
            track: state.track,
            span: state.innermost(),
            at: self.timeline.at(at),
            fields: self.no_fields(),
        });
        state.owner = Owner::Event;
    }

    /// Whether a call was made in the window. A call that was made while the window opened counts as made at its
    /// opening; only 0 stands for a call before the window.
    fn is_inside(&self, start: Ticks) -> bool {
        start != Ticks(0) && start <= *self.window.end()
    }

    fn api_call(&mut self, call: DeviceCall, state: &ThreadState) -> ApiCallData {
        let (function, start) = (u32::from(call.function), self.timeline.at(call.start));
        let name = self.functions.get(&(call.api, function)).map(Arc::clone);
        let span = state.innermost();
        ApiCallData {
            api: if call.api == Api::CUDA_RUNTIME { Api::CudaRuntime } else { Api::CudaDriver },
            function,
            name: name.unwrap_or_else(|| Arc::from(format!("function {function}"))),
            track: state.track,
            start,
            end: self.timeline.at(call.end()).max(start),
            correlation: call.correlation,
            result: call.result.into(),
            attribution: attribution(span),
            span,
            batch: self.operations.batch(state.adopted),
        }
    }

    fn allocation(&self, call: MemoryCall, state: &ThreadState) -> AllocationData {
        let MemoryFacts { bytes, context, change, pooled, by_framework } = call.facts();
        let span = state.innermost();
        AllocationData {
            at: self.timeline.at(call.at),
            context: context.into(),
            // That of the driver's changes is filled in when the GPU's records say which the context belongs to.
            device: if by_framework { DeviceId::new(context.into()) } else { DeviceId::default() },
            address: call.address,
            bytes: (change == MemoryChange::Allocate || by_framework).then_some(bytes),
            change,
            pooled,
            by_framework,
            in_use: 0,
            reserved: 0,
            track: state.track,
            attribution: attribution(span),
            span,
        }
    }

    fn operation_call(&mut self, at: Ticks, operation: Arc<Operation>, state: &ThreadState) -> OperationCallData {
        let span = state.innermost();
        OperationCallData {
            operation: self.operations.id(operation),
            track: state.track,
            at: self.timeline.at(at),
            attribution: attribution(span),
            span,
            step: None,
            batch: self.operations.batch(state.adopted),
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
            Owner::Update => return self.updates.add_field(field),
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
