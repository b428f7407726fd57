//! Element-wise kernels that run one after another over the same data.

use super::{
    super::finding::FindingKind,
    framework::{is_framework, owner},
    place,
    window::{Candidate, Window, total},
    words,
};
use crate::trace::{Detail, Framework, Span, Work};
use std::collections::{BTreeSet, HashMap};

/// The least number of kernels over all of the data that make a chain. Two or three are common between products, and
/// frameworks have no operation for them.
const LENGTH: usize = 4;
/// The same if others over rows are between them, as in an RMS norm, and the least number of all.
const LENGTH_WITH_ROWS: (usize, usize) = (3, 5);
/// Kernels are over the same data if none has this many times the threads of another: one thread computes one to four
/// elements in the kernels of PyTorch and Candle.
const THREADS: u64 = 4;
/// The least nanoseconds of each of them. Of shorter ones, the launches matter, which other rules look at.
const SHORTEST: u64 = 10_000;
/// The time of a fused kernel: that of the shortest kernel over all of the data, which reads one tensor and writes one,
/// and one more operand.
const FUSED: f64 = 1.5;
/// The part of the time of chains in Candle's backward pass that goes with those of the forward pass. Its gradients are
/// made of element-wise kernels in any case, but of a fused operation's there are fewer.
const CANDLE_BACKWARD: f64 = 0.4;

/// Finds chains of element-wise kernels in the forward pass, with those of the backward pass that belong to them.
pub(super) fn unfused_chain(window: &Window<'_>) -> Vec<Candidate> {
    let chains = chains(window);
    let (forward, backward): (Vec<_>, Vec<_>) = chains.into_iter().partition(|chain| !chain.is_backward);
    if forward.len() < window.count() {
        return Vec::new();
    }
    let fused = |factor: f64, backward_part: f64| {
        let mut costs = window.costs();
        for chain in forward.iter().chain(&backward) {
            let nanos = chain.nanos(window);
            let least = (chain.shortest as f64 * factor).min(nanos as f64 / 2.0);
            let left = if chain.is_backward { nanos as f64 - (nanos as f64 - least) * backward_part } else { least };
            let (&first, rest) = chain.tasks.split_first().unwrap_or((&0, &[]));
            costs.set_task(first, left as u64);
            for &task in rest {
                costs.remove_task(task);
            }
            // Launches go with their kernels, and the time in which the host prepares them.
            let items: Vec<usize> = chain.tasks.iter().filter_map(|&task| window.simulation.tasks[task].item).collect();
            for pair in items.windows(2).filter(|pair| pair[0] < pair[1] && !chain.is_backward) {
                (pair[0] + 1..=pair[1]).filter(|&item| !window.simulation.items[item].waited()).for_each(|item| {
                    costs.set_item(item, 0);
                });
            }
        }
        costs
    };
    let part = if window.framework == Framework::Candle { CANDLE_BACKWARD } else { 1.0 };
    let all: Vec<usize> = forward.iter().chain(&backward).flat_map(|chain| chain.tasks.iter().copied()).collect();
    let nanos = total(forward.iter().chain(&backward).map(|chain| chain.nanos(window)));
    if window.is_negligible(nanos) {
        return Vec::new();
    }
    // The operations of the longest chain, which name what it computes.
    let Some(longest) = forward.iter().max_by_key(|chain| chain.nanos(window)) else { return Vec::new() };
    let names: Vec<&str> =
        longest.tasks.iter().map(|&task| name(window.trace().work_of(window.simulation.tasks[task].work))).collect();
    let span = window.trace().work_of(window.simulation.tasks[longest.tasks[0]].work).span().map(Span::id);
    let span = owner(window.trace(), span).or(span);
    let what = recognise(&names);
    // Candle's activations are the only operations that are one kernel and have a gradient.
    if window.framework == Framework::Candle
        && what.is_none_or(|what| !backward.is_empty() && ![GELU, SILU].contains(&what))
    {
        return Vec::new();
    }
    let each = words::nanos(window.per_step(nanos));
    let place = place::name(window.trace(), span);
    let count = words::digits(all.len() as f64 / window.count() as f64);
    let of_what = what.map_or(String::new(), |what| format!(", as {what}"));
    vec![Candidate {
        kind: FindingKind::UnfusedChain,
        title: format!(
            "{count} element-wise kernels a step run one after another over the same data{of_what}, for {each} of \
             each step, mostly in {place}"
        ),
        span,
        evidence: vec![
            format!("The longest chain is {}.", names.join(", ")),
            format!(
                "{} chains of the forward pass and {} of the backward pass in a step.",
                words::digits(forward.len() as f64 / window.count() as f64),
                words::digits(backward.len() as f64 / window.count() as f64)
            ),
            format!("Assumes that a fused kernel takes {FUSED} times as long as the shortest of its chain."),
        ],
        ranges: window.task_ranges(&all),
        costs: fused(FUSED, part),
        least: Some(fused(2.0 * FUSED, part / 2.0)),
        most: Some(fused(1.0, (part * 1.5).min(1.0))),
        others: Vec::new(),
    }]
}

/// Kernels that follow each other in a stream.
struct Chain {
    tasks: Vec<usize>,
    /// The nanoseconds of the shortest kernel over all of the data.
    shortest: u64,
    is_backward: bool,
}

impl Chain {
    fn nanos(&self, window: &Window<'_>) -> u64 {
        let nanos =
            |&task: &usize| window.trace().work_of(window.simulation.tasks[task].work).duration().as_nanos() as u64;
        total(self.tasks.iter().map(nanos))
    }
}

/// Returns the chains of the steps. Optimizers are left out: those of Candle and Burn have no fused kernel, and that of
/// PyTorch is about its launches.
fn chains(window: &Window<'_>) -> Vec<Chain> {
    let mut streams: HashMap<_, Vec<(usize, Work<'_>)>> = HashMap::new();
    for (index, _, work) in window.tasks() {
        let stream = work.stream();
        streams.entry((stream.device(), stream.context(), stream.number())).or_default().push((index, work));
    }
    let mut chains = Vec::new();
    for tasks in streams.values_mut() {
        tasks.sort_by_key(|(_, work)| work.start());
        let place = |work: Work<'_>| {
            let span = work.span().map(Span::id);
            let is_operator = work.span().is_some_and(|span| span.callsite().target() == "cpu_op");
            if is_operator { owner(window.trace(), span) } else { span }
        };
        let part = |work: Work<'_>| (work.step_id(), phase(work), place(work));
        let is_element = |work: Work<'_>| work.kernel().is_some_and(|kernel| is_elementwise(&kernel.name));
        // Fills do not end a chain, as sums and Candle's gradients need them, nor do copies of a few bytes.
        let is_fill = |work: Work<'_>| matches!(work.detail(), Detail::Fill(_));
        let is_between = |work: Work<'_>| is_fill(work) || work.kernel().is_none() && work.duration().as_micros() < 5;
        let runs = tasks.chunk_by(|(_, one), (_, next)| {
            part(*one) == part(*next)
                && (is_element(*one) || is_between(*one)) == (is_element(*next) || is_between(*next))
        });
        for run in runs.filter(|run| run.iter().any(|(_, work)| is_element(*work))) {
            let phase = phase(run[0].1);
            if phase == Phase::Optimizer {
                continue;
            }
            let kernels: Vec<_> = run.iter().filter(|(_, work)| is_element(*work)).collect();
            let threads = |work: &Work<'_>| {
                work.kernel().map_or(0, |kernel| {
                    kernel
                        .grid
                        .iter()
                        .chain(&kernel.block)
                        .map(|&length| u64::from(length))
                        .fold(1, u64::saturating_mul)
                })
            };
            let most = kernels.iter().map(|(_, work)| threads(work)).max().unwrap_or(0);
            let full = || kernels.iter().filter(|(_, work)| threads(work).saturating_mul(THREADS) >= most);
            let shortest = full().map(|(_, work)| work.duration().as_nanos() as u64).min().unwrap_or(0);
            let (with_rows, all) = LENGTH_WITH_ROWS;
            let count = full().count();
            let is_long = count >= LENGTH || count >= with_rows && kernels.len() >= all;
            if is_long && shortest >= SHORTEST {
                let of_chain = run.iter().filter(|(_, work)| is_element(*work) || is_fill(*work));
                let tasks = of_chain.map(|(index, _)| *index).collect();
                chains.push(Chain { tasks, shortest, is_backward: phase == Phase::Backward });
            }
        }
    }
    chains
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Forward,
    Backward,
    Optimizer,
}

/// Returns the phase of a step that launched a piece of work, by the spans around it.
fn phase(work: Work<'_>) -> Phase {
    for span in work.span().into_iter().flat_map(Span::stack) {
        let name = span.name();
        if name.starts_with("autograd::") || name == "backward" {
            return Phase::Backward;
        }
        if name.starts_with("Optimizer.") || name == "optimizer" || name == "step" {
            return Phase::Optimizer;
        }
    }
    Phase::Forward
}

/// Whether a kernel of this name computes each element, or sums over rows, by the names that PyTorch and Candle use.
pub(super) fn is_elementwise(name: &str) -> bool {
    if name.contains("elementwise_kernel") || name.contains("reduce_kernel") {
        return !name.contains("FillFunctor");
    }
    let parts = ["_f32", "_f16", "_bf16", "_f64"];
    let Some(stem) = parts.iter().find_map(|part| name.strip_suffix(part)) else { return false };
    let is_unary_or_binary = |stem: &str| {
        stem.starts_with(['u', 'b'])
            && stem.len() <= 12
            && stem.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    stem == "affine" || stem.starts_with("cast_") || stem.starts_with("fast_") || is_unary_or_binary(stem)
}

/// The name of the operation that a kernel is for: the innermost span of the framework, or else the kernel's.
fn name(work: Work<'_>) -> &str {
    let of_span = work.span().filter(|span| is_framework(*span) && span.name().starts_with("aten::"));
    of_span.map_or_else(
        || work.kernel().map_or("", |kernel| &kernel.name),
        |span| span.name().trim_start_matches("aten::"),
    )
}

const GELU: &str = "GELU does";
const SILU: &str = "SiLU does";

/// Returns what these operations compute, as far as their names say it.
fn recognise(names: &[&str]) -> Option<&'static str> {
    let parts: BTreeSet<&str> = names.iter().flat_map(|name| name.split(['_', ':', '<', ' '])).collect();
    let has = |words: &[&str]| words.iter().any(|word| parts.contains(word));
    match () {
        () if has(&["tanh", "utanh", "erf", "uerf"]) => Some(GELU),
        () if has(&["exp", "uexp"]) && has(&["sum", "amax", "max"]) => Some("softmax does"),
        () if has(&["sqrt", "usqrt", "rsqrt", "urecip"]) && has(&["mean", "sum"]) => Some("layer or RMS norm does"),
        () if has(&["sin", "usin", "cos", "ucos"]) => Some("a rotary embedding does"),
        () if has(&["sigmoid", "usigmoid", "silu", "usilu", "exp", "uexp"]) => Some(SILU),
        () => None,
    }
}
