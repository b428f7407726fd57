//! The host bounds the step: it takes longer to launch kernels than the GPU to run them, or computes between launches.

use super::{
    super::{
        finding::FindingKind,
        kinds::{is_allocation, is_launch, is_load},
        simulation::{Costs, Item, TaskKind},
    },
    chains::is_elementwise,
    copies,
    host_waits::LEAST_OFF_CPU,
    loops,
    off_cpu::WaitStack,
    window::{Alternative, Candidate, SpanGroup, Window, total},
    words::{self, is_framework, owner},
};
use crate::{
    trace::{ApiCall, Framework, Span, SpanId},
    units,
};
use rustc_hash::{FxHashMap, FxHashSet};

/// The number of launches in a step from which on they are many.
const MANY: usize = 20;
/// The part of a step that is saved at least if the host need not launch.
const LEAST_SHARE: f64 = 0.05;
/// The nanoseconds that the host takes to launch a graph: 10 µs by `faults` of `benches/gpu`, on an H200.
const GRAPH: u64 = 10_000;
/// The nanoseconds between two kernels of a graph, by the same.
const GRAPH_GAP: i64 = 100;
/// The host bounds a step if launches take this many times as long as kernels; less is within the error of what is
/// known of the cost of recording.
const AHEAD: f64 = 1.25;
/// The most times that a batch is imagined to be larger: kernels that small have room for it.
const LARGER: f64 = 8.0;
/// The least number of small kernels in a row that are launched for one tensor after another, and how often each of
/// them is at the least: more than a model has between two products.
const RUN: usize = 32;
const REPEATS: usize = 4;
/// The longest kernel that is small, in nanoseconds.
const SMALL: u64 = 20_000;

/// Finds steps that are slow because the host takes longer to launch kernels than the GPU to run them.
///
/// All time of the host that serves only to launch goes with the launches: that of the framework's operations, and of
/// the interpreter between them, on all threads that launch. Time that another rule explains stays.
pub(super) fn launch_bound(window: &Window<'_>) -> Vec<Candidate> {
    let launches: Vec<_> = window.calls().filter(|(_, item, call)| is_launch(*call) && !item.waited()).collect();
    let kernels = window.tasks().filter(|(_, task, work)| task.kind == TaskKind::Kernel && work.kernel().is_some());
    let durations: Vec<u64> = kernels.map(|(_, _, work)| work.duration().as_nanos() as u64).collect();
    if launches.len() < MANY * window.count() || durations.len() < MANY * window.count() {
        return Vec::new();
    }
    let issuing = issuing(window, &launches);
    let own = window.costs();
    let nanos: u64 = issuing.iter().map(|&item| own.item(item)).sum();
    let all = durations.iter().sum::<u64>();
    // If kernels take about as long as their launches, the host is ahead of the GPU, and launches are not the problem.
    if all as f64 * AHEAD > nanos as f64 {
        return Vec::new();
    }
    let graph = in_graph(window, &launches, &issuing);
    let faster = window.simulation.run(&graph);
    if faster.as_secs_f64() > (1.0 - LEAST_SHARE) * window.step.as_secs_f64() {
        return Vec::new();
    }
    let scaled = |factor: f64| {
        let mut costs = window.costs();
        issuing.iter().for_each(|&item| costs.scale_item(item, own.item(item) as f64 * factor));
        costs
    };
    let owner = |item: &Item| owner(window.trace(), item.span).or(item.span);
    let groups = window.groups(launches.iter().map(|&(index, item, _)| (index, owner(item), item.nanos())));
    let span = groups.first().and_then(|group| group.span);
    let often = words::digits(launches.len() as f64 / window.count() as f64);
    let each = words::nanos(nanos / launches.len() as u64);
    let short = words::nanos(all / durations.len() as u64);
    let mut evidence = vec![
        format!("Launching takes {} of a step on the host.", words::nanos(window.per_step(nanos))),
        format!("The kernels take {} of a step.", words::nanos(window.per_step(all))),
        format!("Most of it is in {}.", words::place(window.trace(), span)),
    ];
    let (costs, least, most) = match window.framework {
        Framework::PyTorch | Framework::Other => (graph, Some(scaled(0.4)), None),
        // These cannot capture a step in a graph.
        _ => {
            let times = (nanos as f64 / all.max(1) as f64).clamp(1.0, LARGER);
            evidence.push(format!(
                "The saving is for as many samples as a step has now, in batches {} times as large.",
                words::digits(times)
            ));
            (scaled(1.0 / times), Some(scaled(0.6)), Some(graph))
        }
    };
    // How many of its launches a program needs is not known, unless it has loops that could run once.
    let mut fewer = Alternative {
        change: fewer_launches(window.framework).to_owned(),
        costs: scaled(0.5),
        least: Some(scaled(0.75)),
        most: Some(scaled(0.2)),
    };
    let loops = loops::loops(window);
    let batched = loops::batched(window, &loops);
    if let Some(longest) = loops::describe(window, &loops)
        && window.simulation.run(&batched) < window.simulation.run(&fewer.costs)
    {
        let repeated = words::digits(loops::launches(&loops) as f64 / window.count() as f64);
        evidence.push(format!("{longest} Such loops launch {repeated} of the {often} kernels."));
        fewer =
            Alternative { change: format!("{longest} {}", batched_loops(window.framework)), costs: batched, ..fewer };
    }
    vec![Candidate {
        title: format!("the host launches {often} kernels a step and takes {each} for each, which run for {short}"),
        span,
        evidence,
        ranges: window.item_ranges(&launches.iter().map(|&(index, ..)| index).collect::<Vec<_>>()),
        least,
        most,
        others: vec![fewer],
        ..Candidate::new(FindingKind::LaunchBound, costs)
    }]
}

type LaunchCall<'w, 'a> = (usize, &'w Item, ApiCall<'a>);

/// Returns the items that serve only to launch.
fn issuing(window: &Window<'_>, launches: &[LaunchCall<'_, '_>]) -> Vec<usize> {
    let threads: FxHashSet<_> = launches.iter().map(|(_, item, _)| item.thread).collect();
    let calling = spans_that_call(window);
    let elsewhere = copies::tiny(window).into_iter().flat_map(|run| run.items);
    let elsewhere: FxHashSet<usize> = elsewhere.chain(runs(window).into_iter().flat_map(|run| run.items)).collect();
    let explains = |index: usize, item: &Item| match item.call.map(|id| window.trace().api_call(id)) {
        Some(call) => is_allocation(call) || is_load(call) || window.copy_of(index).is_some(),
        None => window.input_of(item.span).is_some() || is_work(window, item, &calling),
    };
    let is_one = |(index, item): &(usize, &Item)| {
        threads.contains(&item.thread) && !item.waited() && !elsewhere.contains(index) && !explains(*index, item)
    };
    window.items().filter(is_one).map(|(index, _)| index).collect()
}

/// Returns the costs if all that is launched in a step were one graph.
fn in_graph(window: &Window<'_>, launches: &[LaunchCall<'_, '_>], issuing: &[usize]) -> Costs {
    let mut costs = window.costs();
    issuing.iter().for_each(|&item| costs.set_item(item, 0));
    let mut first_of_step = FxHashMap::default();
    for &(index, item, _) in launches {
        if first_of_step.insert(item.step, ()).is_none() {
            costs.set_item(index, GRAPH.min(item.nanos()));
        }
    }
    costs.limit_gaps(GRAPH_GAP);
    costs
}

/// Finds short element-wise kernels that are launched for one tensor after another, as optimizers without fused kernels
/// do, and loops over parameters.
pub(super) fn tensor_by_tensor(window: &Window<'_>) -> Vec<Candidate> {
    let runs = runs(window);
    let removed: Vec<usize> = runs.iter().flat_map(|run| run.launches.iter().copied()).collect();
    let nanos = total(runs.iter().flat_map(|run| &run.items).map(|&item| window.simulation.items[item].nanos()));
    if removed.len() < RUN * window.count() || window.is_negligible(nanos) {
        return Vec::new();
    }
    let mut costs = window.costs();
    runs.iter().flat_map(|run| &run.items).for_each(|&item| costs.set_item(item, 0));
    let tasks = removed.iter().filter_map(|&launch| window.task_of(launch));
    tasks.for_each(|task| costs.remove_task(task));
    let span = removed.first().and_then(|&item| window.simulation.items[item].span);
    let stack = span.into_iter().flat_map(|id| window.trace().span(id).stack());
    let optimizer = stack.filter(|span| span.name().starts_with("Optimizer.")).map(Span::id).next();
    let span = optimizer.or_else(|| owner(window.trace(), span));
    let place = match span {
        Some(_) => format!(", in {}", words::place(window.trace(), span)),
        None => String::new(),
    };
    let often = words::digits(removed.len() as f64 / window.count() as f64);
    vec![Candidate {
        title: format!("{often} short kernels a step are launched for one tensor after another{place}"),
        span,
        evidence: vec![format!("The host takes {} of a step to launch them.", words::nanos(window.per_step(nanos)))],
        ranges: window.item_ranges(&removed),
        ..Candidate::new(FindingKind::TensorByTensor, costs)
    }]
}

/// Launches of short element-wise kernels in a row, of which each is there for many tensors.
struct TensorRun {
    /// The launches that one launch of the same kernel for all tensors would replace.
    launches: Vec<usize>,
    /// These, and the items in which the host prepares them.
    items: Vec<usize>,
}

fn runs(window: &Window<'_>) -> Vec<TensorRun> {
    // Their launches would be another finding if they were few and long.
    let launches: Vec<_> = window.calls().filter(|(_, item, call)| is_launch(*call) && !item.waited()).collect();
    let name = |&(index, ..): &LaunchCall<'_, '_>| -> Option<&str> {
        let task = &window.simulation.tasks[window.task_of(index)?];
        let work = window.trace().work_of(task.work);
        let kernel = work.kernel()?;
        let is_small = work.duration().as_nanos() as u64 <= SMALL && is_elementwise(&kernel.name);
        is_small.then_some(&*kernel.name)
    };
    // A loop that copies something for each tensor is about the copies.
    let copies: FxHashSet<usize> = copies::tiny(window).into_iter().flat_map(|run| run.items).collect();
    let in_a_row = launches.chunk_by(|one, next| {
        (one.1.thread, one.1.step) == (next.1.thread, next.1.step)
            && name(one).is_some() == name(next).is_some()
            && !(one.0..next.0).any(|item| copies.contains(&item))
    });
    let mut runs = Vec::new();
    for row in in_a_row {
        let names: FxHashSet<&str> = row.iter().filter_map(name).collect();
        if row.len() < RUN || names.is_empty() || row.len() < REPEATS * names.len() {
            continue;
        }
        let mut kept: FxHashSet<&str> = FxHashSet::default();
        let mut run = TensorRun { launches: Vec::new(), items: Vec::new() };
        let mut before = row[0].0;
        for launch in row {
            if name(launch).is_some_and(|name| !kept.insert(name)) {
                run.launches.push(launch.0);
                run.items.extend((before + 1..=launch.0).filter(|&item| !window.simulation.items[item].waited()));
            }
            before = launch.0;
        }
        runs.push(run);
    }
    runs
}

/// Time between two calls from which on the host did more than prepare the next call.
const WORK: u64 = 15_000;
/// The same in Python, where the interpreter and the framework take tens of microseconds for a call: by the trainings
/// that were looked at, an optimizer's step takes up to 470 µs before its first launch.
const WORK_IN_PYTHON: u64 = 700_000;

/// Finds spans of the user in which the host computes while the GPU waits, outside of the input pipeline.
pub(super) fn host_work(window: &Window<'_>) -> Vec<Candidate> {
    let trace = window.trace();
    let calling = spans_that_call(window);
    let work = window.items().filter(|(_, item)| is_work(window, item, &calling));
    let groups = window.groups(work.map(|(index, item)| (index, owner(trace, item.span), item.nanos())));
    let mut candidates = Vec::new();
    for group in groups.into_iter().take_while(|group| !window.is_negligible(group.nanos)).take(3) {
        let mut costs = window.costs();
        group.members.iter().for_each(|&item| costs.set_item(item, 0));
        let place = match group.span {
            Some(_) => format!("in {}", words::place(trace, group.span)),
            None => "outside of all spans".to_owned(),
        };
        let each = words::nanos(window.per_step(group.nanos));
        let often = words::times(group.members.len(), window.count());
        let (waits, measured) = off_cpu(window, &group);
        let what = if waits { "waits" } else { "computes" };
        candidates.push(Candidate {
            title: format!("the host {what} for {each} of each step {place}, and the GPU waits for it"),
            each: Some(window.per_step(group.nanos)),
            span: group.span,
            evidence: std::iter::once(format!("It does so {often} in a step.")).chain(measured).collect(),
            ranges: window.item_ranges(&group.members),
            ..Candidate::new(FindingKind::HostWork, costs)
        });
    }
    candidates
}

/// Returns whether the host is off the CPU for most of the time in a group's spans, and what was measured of that.
fn off_cpu(window: &Window<'_>, group: &SpanGroup) -> (bool, Vec<String>) {
    let (trace, off_cpu) = (window.trace(), &window.off_cpu);
    let Some(span) = group.span.map(|id| trace.span(id)).filter(|&span| off_cpu.is_known(span)) else {
        return (false, Vec::new());
    };
    let waited = |&index: &usize| {
        let item = &window.simulation.items[index];
        item.span.map_or(0.0, |id| item.nanos() as f64 * off_cpu.waiting_share(trace.span(id)))
    };
    let share = group.members.iter().map(waited).sum::<f64>() / group.nanos.max(1) as f64;
    let runs = format!("Its thread runs for {} of that.", units::percent(100.0 * (1.0 - share).max(0.0)));
    let stack = off_cpu.stack(span.callsite_id()).filter(|_| share >= LEAST_OFF_CPU).map(WaitStack::sentence);
    (share >= LEAST_OFF_CPU, std::iter::once(runs).chain(stack).collect())
}

/// The spans from which the GPU's API is called, and the spans around these.
fn spans_that_call(window: &Window<'_>) -> FxHashSet<SpanId> {
    let mut calling = FxHashSet::default();
    for call in window.trace().api_calls() {
        for span in call.span().into_iter().flat_map(Span::stack) {
            if !calling.insert(span.id()) {
                break;
            }
        }
    }
    calling
}

/// Whether an item is work of the user on the host: long, or in a span of the user that does nothing else; and not the
/// input pipeline.
fn is_work(window: &Window<'_>, item: &Item, calling: &FxHashSet<SpanId>) -> bool {
    if item.call.is_some() || item.waited() || window.input_of(item.span).is_some() {
        return false;
    }
    let trace = window.trace();
    // Burn's operations are queued by the thread of the user, and launched by another: the time is the framework's.
    if window.framework == Framework::Burn && item.span.is_some_and(|span| calling.contains(&span)) {
        return false;
    }
    let is_python = window.framework == Framework::PyTorch;
    let is_long = item.nanos() >= if is_python { WORK_IN_PYTHON } else { WORK };
    let Some(span) = item.span.map(|id| trace.span(id)) else { return is_python && is_long };
    // A framework's own operation is work if it is far too long for one that only launches, such as one on the CPU.
    let is_users = !is_framework(span) || item.nanos() >= WORK_IN_PYTHON;
    let does_nothing_else = owner(trace, Some(span.id())).is_some_and(|owner| !calling.contains(&owner));
    does_nothing_else || (is_long && is_users)
}

/// Returns how to launch fewer kernels, the other change that helps a step which launches bound.
fn fewer_launches(framework: Framework) -> &'static str {
    match framework {
        Framework::PyTorch => {
            "Launch fewer kernels: a larger batch, `torch.compile(model)`, `F.scaled_dot_product_attention`, and \
             optimizers with `fused=True`. The saving is that of half as many."
        }
        Framework::Candle => {
            "Launch fewer kernels: operations that are one kernel, such as `Tensor::gelu` and `silu`, and one product \
             for all heads. Inference can use `softmax_last_dim`, `layer_norm`, `rms_norm` and `rope` of `candle_nn`, \
             which have no backward pass. The saving is that of half as many."
        }
        Framework::Burn => {
            "Launch fewer kernels: the features `fusion` and `autotune` of `burn`. The saving is that of half as many."
        }
        Framework::Other => {
            "Launch fewer kernels: a larger batch, or one kernel for several operations. The saving is that of half as \
             many."
        }
    }
}

/// Returns how to run a loop once for all of its members, which is the same change for a step with loops.
fn batched_loops(framework: Framework) -> &'static str {
    match framework {
        Framework::PyTorch => {
            "Run the loop once for all of its members: stack their weights and inputs (`torch.bmm`, \
             `torch.func.vmap`), or use one wider or grouped layer and split its result. If each needs the result of \
             the one before, use an operation that runs all of it, such as `nn.LSTM`; layers cannot be batched."
        }
        Framework::Candle => {
            "Run the loop once for all of its members: stack their weights and inputs (`Tensor::stack`, then one \
             `matmul` with a batch dimension), or use one wider layer and `chunk` its result. This is not possible if \
             each needs the result of the one before."
        }
        Framework::Burn => {
            "Run the loop once for all of its members: stack their weights and inputs (`Tensor::stack`, then one \
             `matmul` with a batch dimension), or use one wider layer and `split` its result. This is not possible if \
             each needs the result of the one before."
        }
        Framework::Other => {
            "Run the loop once for all of its members, with one more dimension of the grid, or a batched product \
             (`cublasSgemmStridedBatched`). This is not possible if each needs the result of the one before."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{batched_loops, fewer_launches};
    use crate::{analysis::FindingKind, trace::Framework};

    #[test]
    fn the_documentation_has_both_for_each_framework() {
        let section: Vec<_> = FindingKind::LaunchBound.explanation().split_whitespace().collect();
        let section = section.join(" ");
        for framework in [Framework::PyTorch, Framework::Candle, Framework::Burn, Framework::Other] {
            assert!(section.contains(fewer_launches(framework)), "{framework:?}: {section}");
            assert!(section.contains(batched_loops(framework)), "{framework:?}: {section}");
        }
    }
}
