//! Element-wise kernels that run one after another over the same data.

use super::{
    super::{
        finding::FindingKind,
        phase::{Phase, PhaseMarks},
        sorted::SortedSet,
    },
    window::{Candidate, Window, total},
    words::{self, is_framework, owner},
};
use crate::trace::{Detail, Direction, Framework, Span, Work};
use rustc_hash::FxHashMap;

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
/// The tensors that a fused kernel reads and writes: one of each, and one more operand. It takes as long for each of
/// them as the shortest kernel over all of the data does for its own.
const FUSED: f64 = 3.0;
/// The part of the time of chains in Candle's backward pass that goes with those of the forward pass. Its gradients are
/// made of element-wise kernels in any case, but of a fused operation's there are fewer.
const CANDLE_BACKWARD: f64 = 0.4;
/// The part of the GPU's time for PyTorch's chains that goes with a fused operation. Neighbors, such as the sum of a
/// residual or the product after SiLU, are no part of it and stay kernels of their own. In five trainings of
/// `tests/fixtures/trainings` that the GPU bounds with the fix, too, it is 0.58 (RMS norm), 0.70 (layer norm), 0.76
/// (SiLU), 0.92 (Mish) and 0.93 (GELU); this is the mean.
const PYTORCH: f64 = 0.78;

/// Finds chains of element-wise kernels in the forward pass, with those of the backward pass that belong to them.
pub(super) fn unfused_chain(window: &Window<'_>) -> Vec<Candidate> {
    let chains = chains(window);
    let (forward, backward): (Vec<_>, Vec<_>) = chains.into_iter().partition(|chain| !chain.is_backward);
    if forward.len() < window.count() {
        return Vec::new();
    }
    let fused = |tensors: f64, backward_part: f64, of_gpu: f64| {
        let own = window.costs();
        let mut costs = own.clone();
        for chain in forward.iter().chain(&backward) {
            let nanos = chain.nanos(window);
            let least = (chain.tensor * tensors).min(nanos as f64 / 2.0);
            let part = if chain.is_backward { backward_part } else { 1.0 };
            let left = nanos as f64 - (nanos as f64 - least) * part * of_gpu;
            let (&first, rest) = chain.tasks.split_first().unwrap_or((&0, &[]));
            costs.set_task(first, left as u64);
            for &task in rest {
                costs.remove_task(task);
            }
            // Launches go with their kernels, and the time in which the host prepares them.
            let items: Vec<usize> = chain.tasks.iter().filter_map(|&task| window.simulation.tasks[task].item).collect();
            for pair in items.windows(2).filter(|pair| pair[0] < pair[1]) {
                for item in (pair[0] + 1..=pair[1]).filter(|&item| !window.simulation.items[item].waited()) {
                    costs.set_item(item, (own.item(item) as f64 * (1.0 - part)) as u64);
                }
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
    let names = longest.tasks.iter().map(|&task| name(window.trace().work_of(window.simulation.tasks[task].work)));
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    let span = window.trace().work_of(window.simulation.tasks[longest.tasks[0]].work).span().map(Span::id);
    let span = owner(window.trace(), span).or(span);
    let what = recognise(&names);
    // Fused attention is all that is between its products.
    let is_whole = what.is_some_and(|what| what.starts_with("attention"));
    let of_gpu = if window.framework == Framework::PyTorch && !is_whole { PYTORCH } else { 1.0 };
    // Candle's activations are the only operations that are one kernel and have a gradient.
    if window.framework == Framework::Candle
        && what.is_none_or(|what| !backward.is_empty() && ![GELU, SILU].contains(&what))
    {
        return Vec::new();
    }
    let each = words::nanos(window.per_step(nanos));
    let place = words::place(window.trace(), span);
    let count = words::digits(all.len() as f64 / window.count() as f64);
    let of_what = what.map_or(String::new(), |what| format!(", as {what}"));
    vec![Candidate {
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
            format!(
                "Assumes that a fused kernel reads and writes {FUSED} tensors as fast as the fastest of its chain."
            ),
        ],
        ranges: window.task_ranges(&all),
        least: Some(fused(2.0 * FUSED, part / 2.0, of_gpu)),
        most: Some(fused(FUSED - 1.0, (part * 1.5).min(1.0), 1.0)),
        ..Candidate::new(FindingKind::UnfusedChain, fused(FUSED, part, of_gpu))
    }]
}

/// Kernels that follow each other in a stream.
struct Chain {
    tasks: Vec<usize>,
    /// The nanoseconds of the shortest kernel over all of the data, and those for each tensor that it reads or writes.
    shortest: u64,
    tensor: f64,
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
    let mut streams: FxHashMap<_, Vec<(usize, Work<'_>)>> = FxHashMap::default();
    for (index, _, work) in window.tasks() {
        let stream = work.stream();
        streams.entry((stream.device(), stream.context(), stream.number())).or_default().push((index, work));
    }
    let mut chains = Vec::new();
    let marks = PhaseMarks::of(window.trace());
    for tasks in streams.values_mut() {
        tasks.sort_by_key(|(_, work)| work.start());
        let place = |work: Work<'_>| {
            let span = work.span().map(Span::id);
            let is_operator = work.span().is_some_and(|span| span.callsite().target() == "cpu_op");
            if is_operator { owner(window.trace(), span) } else { span }
        };
        let part = |work: Work<'_>| (work.step_id(), marks.phase(work.span()), place(work));
        let is_element = |work: Work<'_>| work.kernel().is_some_and(|kernel| is_elementwise(&kernel.name));
        // Fills do not end a chain, as sums and Candle's gradients need them, nor do copies of a few bytes.
        let is_fill = |work: Work<'_>| matches!(work.detail(), Detail::Fill(_));
        let is_between = |work: Work<'_>| is_fill(work) || work.kernel().is_none() && work.duration().as_micros() < 5;
        let is_part = |work: Work<'_>| is_element(work) || is_copy(work) || is_between(work);
        let runs = tasks.chunk_by(|(_, one), (_, next)| part(*one) == part(*next) && is_part(*one) == is_part(*next));
        for run in runs.filter(|run| run.iter().any(|(_, work)| is_element(*work))) {
            let phase = marks.phase(run[0].1.span());
            if phase == Phase::Optimizer {
                continue;
            }
            // What is copied before and after a chain may be for others. Between its kernels, it is the same data.
            let first = run.iter().position(|(_, work)| is_element(*work)).unwrap_or(0);
            let last = run.iter().rposition(|(_, work)| is_element(*work)).unwrap_or(first);
            let run = &run[first..=last];
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
            let nanos = |work: &Work<'_>| work.duration().as_nanos() as u64;
            let name_of = |work: &Work<'_>| work.kernel().map_or("", |kernel| &kernel.name).to_owned();
            let times = full().map(|(_, work)| (nanos(work), tensors(&name_of(work))));
            // The copies of a concatenation together read all of the data and write it.
            let joints = run.iter().filter(|(_, work)| is_concatenation(*work)).map(|(_, work)| nanos(work));
            let joints = Some((total(joints), 2.0)).filter(|(nanos, _)| *nanos > 0);
            let (shortest, of_tensors) = times.chain(joints).min_by_key(|(nanos, _)| *nanos).unwrap_or((0, 2.0));
            let (with_rows, all) = LENGTH_WITH_ROWS;
            let count = full().count();
            let is_long = count >= LENGTH || count >= with_rows && kernels.len() >= all;
            if is_long {
                let of_chain = run.iter().filter(|(_, work)| is_element(*work) || is_copy(*work) || is_fill(*work));
                let tasks = of_chain.map(|(index, _)| *index).collect();
                let (tensor, is_backward) = (shortest as f64 / of_tensors, phase == Phase::Backward);
                chains.push(Chain { tasks, shortest, tensor, is_backward });
            }
        }
    }
    // Shorter ones go with those that compute the same on more data, as in the last layers of a CNN.
    let names = |chain: &Chain| -> String {
        let works = chain.tasks.iter().map(|&task| window.trace().work_of(window.simulation.tasks[task].work));
        works.filter(|work| work.kernel().is_some()).map(|work| format!("{},", name(work))).collect()
    };
    let (long, short): (Vec<_>, Vec<_>) = chains.into_iter().partition(|chain| chain.shortest >= SHORTEST);
    let known: SortedSet<String> = long.iter().map(names).collect();
    let is_known = |names: &str| known.iter().any(|known| known.contains(names) || names.contains(known.as_str()));
    let mut chains = long;
    chains.extend(short.into_iter().filter(|chain| is_known(&names(chain))));
    chains
}

/// Whether a kernel of this name computes each element, or sums over rows, by the names that PyTorch and Candle use.
pub(super) fn is_elementwise(name: &str) -> bool {
    if name.contains("elementwise_kernel") || name.contains("reduce_kernel") {
        return !name.contains("FillFunctor");
    }
    // PyTorch's own softmax and dropout, which are kernels between others in an attention that is written out.
    if ["softmax_warp_", "cunn_SoftMax", "fused_dropout_kernel"].iter().any(|part| name.contains(part)) {
        return true;
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

/// Whether a piece of work copies parts of a tensor to their places in it, as `cat` and `stack` do.
fn is_concatenation(work: Work<'_>) -> bool {
    work.kernel().is_some_and(|it| it.name.contains("CatArrayBatchedCopy") || it.name.starts_with("copy2d_"))
}

/// Whether a piece of work copies a tensor, or parts of it, on the GPU.
fn is_copy(work: Work<'_>) -> bool {
    is_concatenation(work) || matches!(work.detail(), Detail::Copy(copy) if copy.direction == Direction::DeviceToDevice)
}

/// Returns how many tensors an element-wise kernel reads and writes. PyTorch has their number in the name of most
/// kernels, and Candle's names begin with the kind of operation.
fn tensors(name: &str) -> f64 {
    let number = name.split_once("array<char*, ").and_then(|(_, rest)| rest.split_once("ul"));
    match number.and_then(|(number, _)| number.parse::<u8>().ok()) {
        Some(number) => f64::from(number.max(2)),
        None if name.contains("BinaryFunctor") || name.starts_with('b') => 3.0,
        None => 2.0,
    }
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
const ROTARY: &str = "a rotary embedding does";

/// Returns what these operations compute, as far as their names say it.
fn recognise(names: &[&str]) -> Option<&'static str> {
    let parts: SortedSet<&str> = names.iter().flat_map(|name| name.split(['_', ':', '<', ' '])).collect();
    let has = |words: &[&str]| words.iter().any(|word| parts.contains(word));
    match () {
        () if has(&["tanh", "utanh"]) && has(&["log", "ulog", "log1p", "softplus"]) => Some("Mish does"),
        () if has(&["tanh", "utanh", "erf", "uerf"]) => Some(GELU),
        () if has(&["softmax"]) => Some("attention does"),
        () if has(&["exp", "uexp"]) && has(&["sum", "amax", "max"]) => Some("softmax does"),
        () if has(&["sqrt", "usqrt", "rsqrt", "urecip"]) && has(&["mean", "sum"]) => Some("layer or RMS norm does"),
        () if has(&["sin", "usin", "cos", "ucos"]) => Some(ROTARY),
        // Half of the values change places with the negated other half, and sines are made before the loop.
        () if has(&["neg", "uneg"]) && has(&["cat", "stack", "copy2d"]) && has(&["mul", "bmul"]) => Some(ROTARY),
        () if has(&["sigmoid", "usigmoid", "silu", "usilu", "exp", "uexp"]) => Some(SILU),
        () => None,
    }
}
