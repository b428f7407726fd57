//! The parts of a document that only TensorBoard's plugin for PyTorch, torch-tb-profiler, reads: modules, call stacks,
//! collectives, and steps of non-zero length.

use super::flavor::Flavor;
use crate::{
    export::{flows::LaunchFlows, gpu_ranges::Cause, json::Quoted},
    trace::{ApiCall, ApiCallId, Attribution, Detail, Span, SpanId, Step, Timestamp, Trace, TrackId, WorkId},
};
use rustc_hash::{FxHashMap, FxHashSet};

/// The name by which the plugin recognizes the loading of data.
const DATA_LOADING: &str = "enumerate(DataLoader)#kernspan.__next__";

/// Names, modules and call stacks of spans. Spans must be looked up in order.
#[derive(Debug)]
pub(super) struct SpanExtras {
    stacks: CallStacks,
    modules: Modules,
    /// The tracks on which `step()` is called.
    stepping: FxHashSet<TrackId>,
}

impl SpanExtras {
    /// Returns the extras of a trace's spans, or `None` in other flavors.
    pub(super) fn new(trace: &Trace, flavor: Flavor) -> Option<Self> {
        let stepping = || trace.steps().iter().map(Step::track_id).collect();
        let extras = || Self { stacks: CallStacks::default(), modules: Modules::default(), stepping: stepping() };
        (flavor == Flavor::TorchTensorBoard).then(extras)
    }

    /// Returns the name to write for a span, if its own would mislead the plugin.
    pub(super) fn name(&self, span: Span<'_>) -> Option<&'static str> {
        // The plugin takes such a span for a step, and fails if it cannot parse the number.
        let is_step = span.name().starts_with("ProfilerStep#");
        // A span read from a PyTorch file already has such a name.
        let is_named = span.name().starts_with("enumerate(DataLoader)#");
        let is_loading = !is_named && self.waits_for_data(span);
        if is_loading { Some(DATA_LOADING) } else { is_step.then_some("ProfilerStep") }
    }

    /// Returns whether the training waits while the span loads data. Other threads load ahead. Spans inside another
    /// span that loads data keep their names.
    fn waits_for_data(&self, span: Span<'_>) -> bool {
        let is_outermost = || span.stack().skip(1).all(|outer| outer.input_stage().is_none());
        span.input_stage().is_some() && self.stepping.contains(&span.track_id()) && is_outermost()
    }

    /// Returns whether the plugin accepts the span's inputs: a collective must have a type for each shape.
    pub(super) fn may_have_inputs(&self, span: Span<'_>) -> bool {
        let op = span.fields().op();
        !is_collective(span.name()) || op.shapes().count() == op.dtypes().count()
    }

    /// Returns the module that a span calls, if it is a call of a module.
    pub(super) fn module<'a>(&mut self, span: Span<'a>) -> Option<Module<'a>> {
        span.fields().op().module().map(|path| self.modules.of(span, path))
    }

    /// Returns the call stack of a span. This must be called for every span, in order.
    pub(super) fn call_stack(&mut self, span: Span<'_>) -> &Quoted {
        self.stacks.of(span)
    }
}

/// The modules and the call tree of the spans so far.
#[derive(Debug, Default)]
struct Modules {
    /// The number of each module, by its path.
    ids: FxHashMap<String, usize>,
    /// The number of each node of the call tree, by its parent and its module.
    ///
    /// The plugin has a row for each node. If each call were a node, a module that is called twice would have two rows
    /// that both show the sum.
    nodes: FxHashMap<(Option<usize>, usize), usize>,
    /// The nodes of the spans that are calls of modules.
    node_of: FxHashMap<SpanId, usize>,
}

/// A call of a module.
#[derive(Debug)]
pub(super) struct Module<'a> {
    pub(super) path: &'a str,
    /// The number of the module.
    pub(super) id: usize,
    /// The number of the node in the call tree.
    pub(super) node: usize,
    /// The node around it.
    pub(super) parent: Option<usize>,
}

impl Modules {
    /// Returns the module of a span whose fields name this path.
    fn of<'a>(&mut self, span: Span<'_>, path: &'a str) -> Module<'a> {
        let parent = span.stack().skip(1).find_map(|outer| self.node_of.get(&outer.id()).copied());
        let next = self.ids.len();
        let id = match self.ids.get(path) {
            Some(known) => *known,
            None => *self.ids.entry(path.to_owned()).or_insert(next),
        };
        // PyTorch counts nodes from 1.
        let next = self.nodes.len() + 1;
        let node = *self.nodes.entry((parent, id)).or_insert(next);
        self.node_of.insert(span.id(), node);
        Module { path, id, node, parent }
    }
}

/// The call stack of each span, innermost first: `src/model.rs(7): forward;src/main.rs(4): train`. The plugin parses
/// file and line from this form.
#[derive(Debug, Default)]
struct CallStacks {
    /// The index of the stack of each span so far.
    stack_of: Vec<usize>,
    /// The index of each stack, by its innermost callsite and the stack around it.
    known: FxHashMap<(usize, Option<usize>), usize>,
    stacks: Vec<CallStack>,
}

/// A call stack as text.
#[derive(Debug)]
struct CallStack {
    plain: String,
    quoted: Quoted,
}

impl CallStacks {
    /// The maximum length of a stack in bytes.
    const MAX_LEN: usize = 4096;

    /// Returns the stack of the next span.
    fn of(&mut self, span: Span<'_>) -> &Quoted {
        // A parent is before its children.
        let outer = span.parent().and_then(|parent| self.stack_of.get(parent.id().index()).copied());
        let stack = *self.known.entry((span.callsite_id().index(), outer)).or_insert_with(|| {
            let mut plain = frame(span);
            if let Some(outer) = outer {
                plain = plain + ";" + &self.stacks[outer].plain;
            }
            // A recursion keeps its innermost frames: with all of them, the text would grow quadratically with its
            // depth.
            if plain.len() > Self::MAX_LEN {
                let frames = (0..=Self::MAX_LEN).rev().find(|&end| plain.is_char_boundary(end)).unwrap_or(0);
                let frames = plain[..frames].rfind(';').unwrap_or(frames);
                plain.truncate(frames);
            }
            let quoted = Quoted::new(&plain);
            self.stacks.push(CallStack { plain, quoted });
            self.stacks.len() - 1
        });
        self.stack_of.push(stack);
        &self.stacks[stack].quoted
    }
}

/// Returns a span as one frame of a call stack, without the `;` that separates frames.
fn frame(span: Span<'_>) -> String {
    let callsite = span.callsite();
    let frame = match (callsite.file(), callsite.line()) {
        (Some(file), Some(line)) => format!("{file}({line}): {}", callsite.name()),
        _ => callsite.name().to_owned(),
    };
    frame.replace(';', ",")
}

/// The calls that launch only a collective.
#[derive(Debug, Default)]
pub(super) struct Collectives(FxHashMap<ApiCallId, Collective>);

/// The op of a collective. It encloses the call that launches the collective.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collective {
    pub(super) name: &'static str,
    /// The op's `External id`.
    pub(super) id: usize,
}

impl Collectives {
    /// Finds the collectives of a trace. There are none in other flavors.
    pub(super) fn new(trace: &Trace, flows: &LaunchFlows, flavor: Flavor) -> Self {
        if flavor != Flavor::TorchTensorBoard {
            return Self::default();
        }
        let launched = |call: ApiCall<'_>| {
            let name = |work: &WorkId| {
                let Detail::Kernel(kernel) = &trace.work[work.index()].detail else { return None };
                collective(&kernel.name)
            };
            let (first, others) = flows.of_call(call.id()).split_first()?;
            let first = name(first)?;
            (others.iter().all(|work| name(work) == Some(first)) && nests(call)).then_some(first)
        };
        // The ids after those of spans.
        let first = trace.spans().len() + 1;
        let named = trace.api_calls().filter_map(|call| Some((call.id(), launched(call)?)));
        Self(named.zip(first..).map(|((call, name), id)| (call, Collective { name, id })).collect())
    }

    /// Returns the collective that a call launches, if it launches one.
    #[inline]
    pub(super) fn get(&self, call: ApiCallId) -> Option<Collective> {
        self.0.get(&call).copied()
    }
}

/// Returns whether an op around the call nests in the span that the call belongs to, and that span is not such an op
/// itself.
fn nests(call: ApiCall<'_>) -> bool {
    call.attribution() != Attribution::HandedOff && call.span().is_none_or(|span| !is_collective(span.name()))
}

/// Returns whether the plugin takes a span of this name for a collective.
fn is_collective(name: &str) -> bool {
    name.starts_with("nccl:") || name.starts_with("gloo:")
}

/// Returns PyTorch's name for the collective that an NCCL kernel performs.
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

/// Returns whether the plugin would take a range on the GPU for a host op.
pub(super) fn is_op_on_gpu(trace: &Trace, cause: Cause) -> bool {
    let is_op = |name: &str| is_collective(name) || name.starts_with("ProfilerStep#");
    match cause {
        Cause::Step(_) => true,
        Cause::Span(span) => is_op(trace.span(span).name()),
        Cause::Annotation(index) => trace.torch().is_none_or(|torch| is_op(&torch.gpu_annotations[index].name)),
    }
}

/// Returns for each step whether it is called `ProfilerStep#N`, so that readers recognize it as a step.
pub(super) fn steps_shown(trace: &Trace, flavor: Flavor) -> Vec<bool> {
    match flavor {
        Flavor::Kineto => vec![true; trace.steps().len()],
        Flavor::TorchTensorBoard => steps_with_time(trace),
    }
}

/// Returns for each step whether it has any time left in the plugin.
///
/// In the plugin, a step begins when the GPU has done everything that the previous step launched. The plugin divides by
/// the remaining time, and loses the whole file if that is zero.
fn steps_with_time(trace: &Trace) -> Vec<bool> {
    let steps = trace.steps();
    let mut device_ends: Vec<Option<Timestamp>> = vec![None; steps.len()];
    for (call, end) in trace.work().filter_map(|work| Some((work.call()?, work.end()))) {
        let after = steps.partition_point(|step| step.start() <= call.start());
        if let Some(step) = after.checked_sub(1).filter(|step| call.end() <= steps[*step].end()) {
            device_ends[step] = device_ends[step].max(Some(end));
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

#[cfg(test)]
mod tests;
