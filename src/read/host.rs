//! Events of the host: spans, steps, events, counters and operations.

use super::{
    callsites::{Callsites, Target, TextKey},
    event::Event,
    growth::push,
    header::{Header, level},
    inputs::{add_flops, add_inputs},
    raw::Raw,
    rows::Rows,
};
use crate::export::RESERVED;
use crate::trace::{
    BatchIds, CallsiteId, Counter, Cut, EventData, FieldData, FieldRange, HeapUse, Operation, OperationCallData,
    OperationId, Span, SpanData, SpanId, Step, Timestamp,
};
use rustc_hash::FxHashMap;
use std::{borrow::Cow, sync::Arc};

/// The events of the host, in the order of the document. Tracks are rows of the document.
#[derive(Debug, Default)]
pub(super) struct HostEvents {
    pub(super) spans: Vec<SpanData>,
    /// The `External id` of each span; 0 if it has none.
    pub(super) ids: Vec<u64>,
    /// The parents of spans that differ from the spans around them on their row.
    pub(super) parents: Vec<(SpanId, Option<u64>)>,
    /// The callers of spans that differ from their parents.
    pub(super) callers: Vec<(SpanId, Option<u64>)>,
    /// The first enters of the calls that spans follow from.
    pub(super) follows: Vec<(SpanId, Vec<u64>)>,
    pub(super) backtraces: Vec<(SpanId, Vec<String>)>,
    pub(super) heap: Vec<(SpanId, HeapUse)>,
    pub(super) cpu_times: Vec<(SpanId, u64)>,
    pub(super) steps: Vec<Step>,
    pub(super) events: Vec<EventData>,
    counters: FxHashMap<String, Vec<(Timestamp, f64)>>,
    pub(super) operations: Vec<Arc<Operation>>,
    operation_ids: FxHashMap<TextKey, OperationId>,
    pub(super) operation_calls: Vec<OperationCallData>,
    /// The `External id` of the span of each operation, and its step if that is not the one it was reported in.
    pub(super) operation_links: Vec<(u64, Option<Option<u64>>)>,
    pub(super) batches: BatchIds,
    /// The spans at which arrows begin and end, by arrow id.
    arrows: FxHashMap<u64, (Option<SpanId>, Option<SpanId>)>,
    /// The spans at which arrows from forward to backward operators begin, and those at which they end, with the
    /// arrows' ids.
    link_ends: [Vec<(u32, SpanId)>; 2],
    /// The number of ends of such arrows that are not at a span.
    lost_link_ends: u64,
    /// The number of skipped arguments of each name in [`OF_TORCH`].
    passed_over: [u64; OF_TORCH.len()],
    scratch: Vec<FieldData>,
    /// The arguments of the current span or operation that become fields.
    facts: TextKey,
}

/// The arguments of torch's operators that do not describe what was done.
const OF_TORCH: [&str; 6] =
    ["Ev Idx", "Record function id", "Sequence number", "Fwd thread id", "Python id", "Python parent id"];

/// Whether an argument of a span or event is one of its fields.
fn is_field(key: &str, is_torch: bool) -> bool {
    !RESERVED.contains(&key) && (!is_torch || !OF_TORCH.contains(&key))
}

/// Whether an argument of a span becomes a field, or several.
fn is_fact(key: &str, is_torch: bool) -> bool {
    (is_torch && matches!(key, "Input Dims" | "Input type")) || is_field(key, is_torch)
}

/// Reads a list of numbers.
fn numbers(list: &str) -> Option<Vec<u64>> {
    list.strip_prefix('[')?.strip_suffix(']')?.split(',').map(|number| number.trim().parse().ok()).collect()
}

/// Reads what a span allocated and freed: the number of allocations, the bytes allocated, and those freed.
fn heap_use(list: &str) -> Option<HeapUse> {
    let [allocations, allocated, freed] = numbers(list)?.try_into().ok()?;
    Some(HeapUse { allocations, allocated, freed })
}

impl HostEvents {
    pub(super) fn add_span(
        &mut self,
        event: &Event<'_>,
        target: Target,
        name: &str,
        header: &Header,
        rows: &mut Rows,
        callsites: &mut Callsites,
    ) -> Option<()> {
        let (is_ours, is_torch) = (header.is_ours(), header.is_torch());
        let (start, end) = event.extent()?;
        let track = rows.thread(event.pid, event.tid)?;
        let span = SpanId::new(self.spans.len());
        let callsite = callsites.id(target, name, None, event.arg("src"));
        self.facts.clear();
        let mut id = 0;
        let mut cut = Cut::default();
        for (key, raw) in &event.args {
            match &**key {
                "External id" => id = raw.u64().unwrap_or(0),
                "started" => cut.start = raw.bool() == Some(false),
                "finished" => cut.end = raw.bool() == Some(false),
                "parent" if is_ours => self.parents.push((span, raw.u64().filter(|&parent| parent > 0))),
                "caller" if is_ours => self.callers.push((span, raw.u64().filter(|&caller| caller > 0))),
                "follows_from" if is_ours => self.follows.extend(numbers(raw.0).map(|causes| (span, causes))),
                "heap" if is_ours => self.heap.extend(heap_use(raw.0).map(|used| (span, used))),
                Span::CPU_TIME if is_ours => self.cpu_times.extend(raw.u64().map(|nanos| (span, nanos))),
                "Call stack" => {
                    let frames = raw.text().unwrap_or_default();
                    self.backtraces.push((span, frames.split(';').map(str::to_owned).collect()));
                }
                name => match OF_TORCH.iter().position(|known| *known == name).filter(|_| is_torch) {
                    Some(of_torch) => self.passed_over[of_torch] += 1,
                    None if is_fact(name, is_torch) => {
                        self.facts.push(name);
                        self.facts.push(raw.0);
                    }
                    None => {}
                },
            }
        }
        let fields = match self.facts.is_empty() {
            true => FieldRange::default(),
            false => {
                self.facts.push_number(callsite.index());
                callsites.known(&self.facts).unwrap_or_else(|| self.add_fields(event, callsite, is_torch, callsites))
            }
        };
        push(&mut self.ids, id);
        let span = SpanData {
            callsite,
            track,
            parent: None,
            previous: None,
            step: None,
            start,
            end,
            self_nanos: 0,
            fields,
            cut,
        };
        push(&mut self.spans, span);
        Some(())
    }

    /// Stores the fields of a span, and returns their position.
    fn add_fields(
        &mut self,
        event: &Event<'_>,
        callsite: CallsiteId,
        is_torch: bool,
        callsites: &mut Callsites,
    ) -> FieldRange {
        self.scratch.clear();
        for (key, raw) in event.args.iter().filter(|(key, _)| is_fact(key, is_torch)) {
            match &**key {
                "Input Dims" | "Input type" if is_torch => {
                    add_inputs(key, *raw, callsite, callsites, &mut self.scratch);
                }
                key => add_field(key, *raw, callsite, callsites, &mut self.scratch),
            }
        }
        if is_torch {
            let (dims, concrete) = (event.arg("Input Dims"), event.arg("Concrete Inputs"));
            add_flops(&event.name, dims, concrete, callsite, callsites, &mut self.scratch);
        }
        let fields = callsites.store(&mut self.scratch);
        callsites.remember(&self.facts, fields);
        fields
    }

    pub(super) fn add_step(&mut self, event: &Event<'_>, number: u64, header: &Header, rows: &mut Rows) -> Option<()> {
        let (start, end) = event.extent()?;
        let is_false = |key| event.arg(key).bool() == Some(false);
        let cut = Cut { start: is_false("started"), end: is_false("finished") };
        // Steps that do not nest with the spans of their thread are on a separate row.
        let track = match event.arg("thread").0 {
            // A step of torch is also a span, which may have moved to another row of the thread.
            "" if header.is_converted() => rows.main_row(event.pid, event.tid)?,
            "" => rows.thread(event.pid, event.tid)?,
            thread => rows.thread(event.pid, Raw(thread))?,
        };
        self.steps.push(Step { number, track, start, end, cut });
        Some(())
    }

    pub(super) fn add_event(
        &mut self,
        event: &Event<'_>,
        header: &Header,
        rows: &mut Rows,
        callsites: &mut Callsites,
    ) -> Option<()> {
        let (at, track) = (event.start()?, rows.thread(event.pid, event.tid)?);
        let level = event.arg("level").text().and_then(|text| level(&text));
        let source = event.arg("src");
        // A kernspan event has its message as the name.
        let name = match source.text() {
            Some(place) if header.is_ours() => Cow::Owned(format!("event {place}")),
            _ => Cow::clone(&event.name),
        };
        let callsite = callsites.id(Target::Event, &name, level, source);
        self.scratch.clear();
        let message = callsites.field(callsite, "message", (*event.name).into());
        self.scratch.push(message);
        for (key, raw) in event.args.iter().filter(|(key, _)| is_field(key, header.is_torch())) {
            add_field(key, *raw, callsite, callsites, &mut self.scratch);
        }
        let fields = callsites.store(&mut self.scratch);
        self.events.push(EventData { callsite, track, span: None, at, fields });
        Some(())
    }

    pub(super) fn add_counter(&mut self, event: &Event<'_>, name: &str) -> Option<()> {
        let at = event.start()?;
        for (key, raw) in &event.args {
            let value = raw.f64()?;
            let name = match &**key {
                "value" => Cow::Borrowed(name),
                key => Cow::Owned(format!("{name}.{key}")),
            };
            match self.counters.get_mut(&*name) {
                Some(samples) => samples.push((at, value)),
                None => drop(self.counters.insert(name.into_owned(), vec![(at, value)])),
            }
        }
        Some(())
    }

    /// The times of all samples of counters.
    pub(super) fn counters_mut(&mut self) -> impl Iterator<Item = &mut Timestamp> {
        self.counters.values_mut().flatten().map(|(at, _)| at)
    }

    /// The counters, by name.
    pub(super) fn take_counters(&mut self) -> Vec<Counter> {
        let counters = std::mem::take(&mut self.counters).into_iter();
        let mut counters: Vec<_> =
            counters.map(|(name, samples)| Counter { name: Arc::from(&*name), samples }).collect();
        Counter::sort(&mut counters);
        counters
    }

    pub(super) fn add_operation(&mut self, event: &Event<'_>, rows: &mut Rows) -> Option<()> {
        const LINKS: [&str; 7] = ["External id", "span", "attribution", "Input Dims", "Input type", "step", "batch"];
        let (at, track) = (event.start()?, rows.thread(event.pid, event.tid)?);
        let facts = || event.args.iter().filter(|(key, _)| !LINKS.contains(&&**key));
        self.facts.clear();
        self.facts.push(&event.name);
        for (key, raw) in facts() {
            self.facts.push(key);
            self.facts.push(raw.0);
        }
        let operation = self.operation_ids.get(&self.facts).copied().unwrap_or_else(|| {
            let fields = facts().filter_map(|(key, raw)| Some((field_name(key, &LINKS), raw.value()?)));
            let operation = Operation::new(&*event.name);
            let operation = fields.fold(operation, |it, (name, value)| it.with(name.to_owned(), value));
            let next = OperationId::new(self.operations.len());
            self.operations.push(Arc::new(operation));
            self.operation_ids.insert(self.facts.clone(), next);
            next
        });
        let span = event.arg("External id").u64().unwrap_or(0);
        let step = event.arg("step");
        self.operation_links.push((span, (!step.0.is_empty()).then(|| step.u64())));
        self.operation_calls.push(OperationCallData {
            operation,
            track,
            at,
            attribution: event.attribution(span > 0),
            span: None,
            step: None,
            batch: self.batches.id(event.arg("batch").u32().unwrap_or(0)),
        });
        Some(())
    }

    /// Takes one end of an arrow from a forward to a backward operator, at the span read last: in the file, arrows
    /// follow the events at which they begin and end.
    pub(super) fn add_link(&mut self, event: &Event<'_>, begins: bool, rows: &mut Rows) {
        let place = rows.at(event.pid, event.tid).zip(event.start());
        let is_here = self.spans.last().is_some_and(|span| Some((span.track, span.start)) == place);
        match event.id.u32().filter(|_| is_here) {
            Some(id) => push(&mut self.link_ends[usize::from(!begins)], (id, SpanId::new(self.spans.len() - 1))),
            None => self.lost_link_ends += 1,
        }
    }

    /// Returns the forward operators with their backward operators, and the number of ends of arrows that lead nowhere.
    pub(super) fn take_links(&mut self) -> (Vec<(SpanId, SpanId)>, u64) {
        let [mut starts, mut ends] = std::mem::take(&mut self.link_ends);
        let count = (starts.len() + ends.len()) as u64;
        starts.sort_unstable();
        ends.sort_unstable();
        let mut ends = ends.into_iter().peekable();
        let mut links = Vec::with_capacity(starts.len());
        for (id, from) in starts {
            while ends.next_if(|&(other, _)| other < id).is_some() {}
            // No reader accepts an arrow that goes back in time.
            if let Some((_, to)) = ends.next_if(|&(other, _)| other == id)
                && self.spans[from.index()].start <= self.spans[to.index()].start
            {
                links.push((from, to));
            }
        }
        let lost = self.lost_link_ends + count - 2 * links.len() as u64;
        (links, lost)
    }

    /// The arguments of torch's events that the trace does not contain, by name. The ids of Python functions only say
    /// how these nest, which the trace contains.
    pub(super) fn passed_over(&self) -> impl Iterator<Item = (&'static str, u64)> {
        OF_TORCH.into_iter().zip(self.passed_over).filter(|(name, _)| !name.starts_with("Python "))
    }

    /// Takes one end of an arrow between the enters of a call, at the span read last.
    pub(super) fn add_arrow(&mut self, id: u64, begins: bool) {
        let Some(latest) = self.spans.len().checked_sub(1).map(SpanId::new) else { return };
        let (from, to) = self.arrows.entry(id).or_default();
        *(if begins { from } else { to }) = Some(latest);
    }

    /// Links the enters of calls, by the arrows between them.
    pub(super) fn link_enters(&mut self) {
        for (from, to) in std::mem::take(&mut self.arrows).into_values() {
            if let (Some(from), Some(to)) = (from, to) {
                let is_before = |from: SpanId, to: SpanId| {
                    (self.spans[from.index()].start, from) < (self.spans[to.index()].start, to)
                };
                if is_before(from, to) {
                    self.spans[to.index()].previous = Some(from);
                }
            }
        }
    }
}

fn add_field(key: &str, raw: Raw<'_>, callsite: CallsiteId, callsites: &mut Callsites, fields: &mut Vec<FieldData>) {
    if let Some(value) = callsites.value(raw) {
        let field = callsites.field(callsite, field_name(key, &RESERVED), value);
        fields.push(field);
    }
}

/// Returns the name of a field, which kernspan calls `field.NAME` if one of its own arguments has that name.
fn field_name<'k>(key: &'k str, reserved: &[&str]) -> &'k str {
    key.strip_prefix("field.").filter(|name| reserved.contains(name)).unwrap_or(key)
}
