//! What torch-tb-profiler wants besides: modules, call stacks and collectives, and steps that it does not divide by.

#[cfg(test)]
mod tests;

use super::{flavor::Flavor, json::Json, kineto::Kineto, rows::tid};
use crate::{
    export::{flows::Flows, ranges::Cause},
    trace::{ApiCall, ApiCallId, Attribution, Detail, Span, SpanId, Step, Timestamp, Trace, TrackId, WorkId},
};
use rustc_hash::FxHashMap;
use std::{
    collections::BTreeSet,
    io::{self, Write},
};

/// What the plugin takes for the loading of data.
const DATA_LOADING: &str = "enumerate(DataLoader)#kernspan.__next__";

/// What spans have besides, in this flavor.
pub(super) struct Extras {
    stacks: CallStacks,
    modules: Modules,
    /// The threads that step.
    stepping: BTreeSet<TrackId>,
}

impl Extras {
    pub(super) fn of(trace: &Trace, flavor: Flavor) -> Option<Self> {
        let stepping = || trace.steps().iter().map(Step::track_id).collect();
        let extras = || Self { stacks: CallStacks::default(), modules: Modules::default(), stepping: stepping() };
        (flavor == Flavor::TorchTensorBoard).then(extras)
    }

    /// What the span is called, if not by its name.
    pub(super) fn name(&self, span: Span<'_>) -> Option<&'static str> {
        // A step, to the plugin, if it can read the number, and else an error.
        let is_step = span.name().starts_with("ProfilerStep#");
        if self.waits_for_data(span) { Some(DATA_LOADING) } else { is_step.then_some("ProfilerStep") }
    }

    /// Whether the training waits while the span loads data. What other threads load is loaded in advance, and what is inside keeps its name.
    fn waits_for_data(&self, span: Span<'_>) -> bool {
        let is_outermost = || span.stack().skip(1).all(|outer| outer.input_stage().is_none());
        span.input_stage().is_some() && self.stepping.contains(&span.track_id()) && is_outermost()
    }

    /// Whether the plugin takes what the span says of its inputs: of a collective it wants a type for each shape.
    pub(super) fn may_have_inputs(&self, span: Span<'_>) -> bool {
        let op = span.fields().op();
        !is_collective(span.name()) || op.shapes().count() == op.dtypes().count()
    }

    /// The call stack of a span, as JSON. Spans come in order.
    pub(super) fn call_stack(&mut self, span: Span<'_>) -> &[u8] {
        self.stacks.of(span)
    }
}

impl<W: Write> Kineto<'_, W> {
    /// The module that a span is, around it: of what is equally long the plugin takes the first for the outer one.
    pub(super) fn module(&mut self, span: Span<'_>, extras: &mut Extras) {
        let Some(path) = span.fields().op().module() else { return };
        let module = extras.modules.of(span, path);
        let (start, duration) = (self.time(span.start()), self.duration(span.start(), span.end()));
        let pid = self.pid;
        let json = self.event();
        json.raw("{\"ph\":\"X\",\"cat\":\"python_function\",\"name\":").string(&format!("nn.Module: {path}"));
        json.raw(",\"pid\":").number(pid).raw(",\"tid\":").number(tid(span.track()));
        json.raw(",\"ts\":").raw(start).raw(",\"dur\":").raw(duration);
        json.raw(",\"args\":{\"Python id\":").number(module.place).raw(",\"Python parent id\":");
        match module.parent {
            Some(parent) => json.number(parent),
            None => json.raw("null"),
        };
        json.raw(",\"Python module id\":").number(module.path).raw("}}");
    }

    /// The collective that a call launches, around the call.
    pub(super) fn collective(&mut self, call: ApiCall<'_>, collectives: &Collectives) {
        let Some(&(name, id)) = collectives.0.get(&call.id()) else { return };
        let (start, duration) = (self.time(call.start()), self.duration(call.start(), call.end()));
        let pid = self.pid;
        let json = self.event();
        json.raw("{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":").string(name);
        json.raw(",\"pid\":").number(pid).raw(",\"tid\":").number(tid(call.track()));
        json.raw(",\"ts\":").raw(start).raw(",\"dur\":").raw(duration);
        json.raw(",\"args\":{\"External id\":").number(id).raw("}}");
    }
}

/// Call stacks out of the spans that a span lies in, innermost first, as `src/model.rs(7): forward;src/main.rs(4): train`. That is how the
/// plugin finds file and line.
#[derive(Default)]
struct CallStacks {
    /// The stack of each span so far.
    of_spans: Vec<usize>,
    /// Stacks by their innermost callsite and the stack around it.
    known: FxHashMap<(usize, Option<usize>), usize>,
    texts: Vec<Text>,
}

struct Text {
    plain: String,
    json: Vec<u8>,
}

impl CallStacks {
    /// Bytes of a stack at the most.
    const LONGEST: usize = 4096;

    fn of(&mut self, span: Span<'_>) -> &[u8] {
        // A parent is before its children.
        let around = span.parent().and_then(|parent| self.of_spans.get(parent.id().index()).copied());
        let stack = *self.known.entry((span.callsite_id().index(), around)).or_insert_with(|| {
            let mut plain = frame(span);
            if let Some(around) = around {
                plain = plain + ";" + &self.texts[around].plain;
            }
            // Of a recursion the innermost will do: all of them would be a square of its depth.
            if plain.len() > Self::LONGEST {
                let frames = (0..=Self::LONGEST).rev().find(|&end| plain.is_char_boundary(end)).unwrap_or(0);
                let frames = plain[..frames].rfind(';').unwrap_or(frames);
                plain.truncate(frames);
            }
            let mut json = Json::new(io::sink());
            json.string(&plain);
            self.texts.push(Text { plain, json: json.into_buffer() });
            self.texts.len() - 1
        });
        self.of_spans.push(stack);
        &self.texts[stack].json
    }
}

/// A span as a line of a call stack, which ends where the next `;` is.
fn frame(span: Span<'_>) -> String {
    let callsite = span.callsite();
    let frame = match (callsite.file(), callsite.line()) {
        (Some(file), Some(line)) => format!("{file}({line}): {}", callsite.name()),
        _ => callsite.name().to_owned(),
    };
    frame.replace(';', ",")
}

/// Modules and where in others they are called.
#[derive(Default)]
struct Modules {
    paths: FxHashMap<String, usize>,
    /// By the place around and the module. The plugin has a row for each place: with places numbered like this, and not calls, a module
    /// that is called twice has one row and not two that both say the sum.
    places: FxHashMap<(Option<usize>, usize), usize>,
    /// The places of the spans that are modules.
    of_spans: FxHashMap<SpanId, usize>,
}

struct Module {
    path: usize,
    place: usize,
    parent: Option<usize>,
}

impl Modules {
    fn of(&mut self, span: Span<'_>, path: &str) -> Module {
        let parent = span.stack().skip(1).find_map(|outer| self.of_spans.get(&outer.id()).copied());
        let next = self.paths.len();
        let path = match self.paths.get(path) {
            Some(known) => *known,
            None => *self.paths.entry(path.to_owned()).or_insert(next),
        };
        // From 1, as PyTorch has it.
        let next = self.places.len() + 1;
        let place = *self.places.entry((parent, path)).or_insert(next);
        self.of_spans.insert(span.id(), place);
        Module { path, place, parent }
    }
}

/// Calls that launch nothing but a collective: what that is called, and the id of its op.
#[derive(Default)]
pub(super) struct Collectives(FxHashMap<ApiCallId, (&'static str, usize)>);

impl Collectives {
    pub(super) fn of(trace: &Trace, flows: &Flows, flavor: Flavor) -> Self {
        if flavor != Flavor::TorchTensorBoard {
            return Self::default();
        }
        let launched = |call: ApiCall<'_>| {
            let name = |work: &WorkId| {
                let Detail::Kernel(kernel) = &trace.work[work.index()].detail else { return None };
                collective(&kernel.name)
            };
            let (first, others) = flows.of(call.id()).split_first()?;
            let first = name(first)?;
            (others.iter().all(|work| name(work) == Some(first)) && nests(call)).then_some(first)
        };
        // After those of spans.
        let first = trace.spans().len() + 1;
        let named = trace.api_calls().filter_map(|call| Some((call.id(), launched(call)?)));
        Self(named.enumerate().map(|(place, (call, name))| (call, (name, first + place))).collect())
    }

    /// The op that a call and its work belong to.
    pub(super) fn id(&self, call: Option<ApiCallId>) -> Option<usize> {
        self.0.get(&call?).map(|(_, id)| *id)
    }
}

/// Whether an op around the call lies in the span that the call belongs to, which is no such op by itself.
fn nests(call: ApiCall<'_>) -> bool {
    call.attribution() != Attribution::HandedOff && call.span().is_none_or(|span| !is_collective(span.name()))
}

/// Whether the plugin takes what has this name for a collective.
fn is_collective(name: &str) -> bool {
    name.starts_with("nccl:") || name.starts_with("gloo:")
}

/// The collective that a kernel of NCCL does, as PyTorch calls it.
fn collective(kernel: &str) -> Option<&'static str> {
    let prefixes = ["ncclDevKernel_", "ncclKernel_", "ncclSymDevKernel_", "ncclSymkDevKernel_"];
    let rest = prefixes.iter().find_map(|prefix| kernel.strip_prefix(prefix))?;
    Some(match rest.split(['_', '(']).next()? {
        "AllReduce" => "nccl:all_reduce",
        "AllGather" => "nccl:all_gather",
        "ReduceScatter" => "nccl:reduce_scatter",
        "Reduce" => "nccl:reduce",
        "Broadcast" => "nccl:broadcast",
        // One kernel does both.
        "SendRecv" => "nccl:send_recv",
        _ => return None,
    })
}

/// Whether the plugin makes an op of a range on the GPU, as of one on the host.
pub(super) fn is_op_on_gpu(trace: &Trace, cause: Cause) -> bool {
    match cause {
        Cause::Step(_) => true,
        Cause::Span(span) => {
            let name = trace.span(span).name();
            is_collective(name) || name.starts_with("ProfilerStep#")
        }
    }
}

/// Which steps are shown as such.
pub(super) fn steps_shown(trace: &Trace, flavor: Flavor) -> Vec<bool> {
    match flavor {
        Flavor::Kineto => vec![true; trace.steps().len()],
        Flavor::TorchTensorBoard => steps_with_time(trace),
    }
}

/// Which steps the plugin leaves some time. It has a step begin when the GPU has done what the one before launched, and divides by what
/// is left of it: a step of nothing loses it the whole file.
fn steps_with_time(trace: &Trace) -> Vec<bool> {
    let steps = trace.steps();
    let mut device_ends: Vec<Option<Timestamp>> = vec![None; steps.len()];
    for (call, end) in trace.work().filter_map(|work| Some((work.call()?, work.end()))) {
        let after = steps.partition_point(|step| step.start() <= call.start());
        if let Some(place) = after.checked_sub(1).filter(|place| call.end() <= steps[*place].end()) {
            device_ends[place] = device_ends[place].max(Some(end));
        }
    }
    let uses_gpu = device_ends.iter().any(Option::is_some);
    let mut until = Timestamp::default();
    let each = steps.iter().zip(device_ends).map(|(step, device_end)| {
        let start = if uses_gpu { step.start().max(until) } else { step.start() };
        until = Some(step.end()).max(device_end).unwrap_or_default().max(start);
        start < until
    });
    each.collect()
}
