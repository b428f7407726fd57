//! The functions and lines that spans were in when their threads were sampled.

use super::{
    frame_origin::{FrameOrigin, place},
    sampled_time::{SampledTime, SamplingTotals},
};
use crate::trace::{
    Attribution, Callsite, CallsiteId, Span, StackFrame, StackFrameId, StackNodeId, StackSample, StackSampling, Trace,
};
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, time::Duration};

/// A line that spans of one callsite were in themselves, and not in spans inside them.
///
/// Frames of the standard library, of tokio, rayon, crossbeam, tracing and kernspan are folded, and so is the C library
/// if one of these called it: their time belongs to the line that called them.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SampledLine {
    /// The name of the spans; `None` for the time outside all spans.
    pub span: Option<String>,
    /// The place of the spans in the source.
    pub span_location: Option<String>,
    /// Whether this is what threads of a pool did for the spans, and not the spans' own threads:
    /// [`Attribution::HandedOff`].
    pub pool: bool,
    /// The innermost line, such as `candle-core-0.9.1/src/tensor.rs:9`; `None` if there is no debug information.
    pub line: Option<String>,
    /// The innermost function, or its library such as `[libm.so.6]` if that has no symbols.
    pub function: String,
    /// The program or the library that contains the function.
    pub library: String,
    /// The innermost line of the program's own source, such as `src/model.rs:42`: it is the same line, or leads to it
    /// through functions of libraries. A file is the program's own unless Cargo has downloaded it or it is the standard
    /// library's.
    pub own_line: Option<String>,
    /// The function that contains [`own_line`](Self::own_line).
    pub own_function: Option<String>,
    /// The time in this line.
    pub time: SampledTime,
    /// The time in all lines of these spans, of their own threads or of a pool's.
    pub span_time: SampledTime,
}

impl SampledLine {
    /// The percentage of its span's CPU time from which a line stands out.
    pub const HOT: f64 = 10.0;

    /// Returns the percentage of the spans' CPU time: see [`SampledTime::percent_of`].
    #[must_use]
    pub fn percent(&self) -> Option<f64> {
        self.time.percent_of(&self.span_time)
    }

    /// Returns by how many points the percentage may be off: see [`SampledTime::margin_of`].
    #[must_use]
    pub fn margin(&self) -> Option<f64> {
        self.time.margin_of(&self.span_time)
    }

    /// Whether the line takes at least [`HOT`](Self::HOT) percent of its span's CPU time.
    #[must_use]
    pub fn is_hot(&self) -> bool {
        self.percent().is_some_and(|percent| percent >= Self::HOT)
    }

    /// The time by which lines are sorted. Threads that wait outside all spans are idle.
    fn weight(&self) -> Duration {
        let waiting = self.span.as_ref().map_or(Duration::ZERO, |_| self.time.waiting);
        self.time.cpu.saturating_add(waiting)
    }

    /// Returns what [`span_label`] says of the spans.
    pub(crate) fn span_label(&self) -> Option<String> {
        self.span.as_deref().map(|name| span_label(name, self.pool))
    }

    fn place(&self) -> [Option<&str>; 8] {
        [
            self.span.as_deref(),
            self.span_location.as_deref(),
            self.pool.then_some("pool"),
            self.line.as_deref(),
            Some(&self.function),
            Some(&self.library),
            self.own_line.as_deref(),
            self.own_function.as_deref(),
        ]
    }
}

/// A function that threads were in, over all spans.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SampledFunction {
    /// The function, or its library such as `[libm.so.6]` if that has no symbols.
    pub function: String,
    /// The program or the library that contains it.
    pub library: String,
    /// The time in the function itself, and in functions of the runtime that it called: see [`SampledLine`].
    pub self_time: SampledTime,
    /// The time in the function and in all that it called. A recursive function counts once.
    pub total_time: SampledTime,
    /// The spans that it ran in, with the total time in each, most CPU time first. `None` is outside all spans, and
    /// `forward (pool)` what threads of a pool did for `forward`.
    pub spans: Vec<(Option<String>, SampledTime)>,
    /// The time of all samples.
    pub all_time: SampledTime,
}

impl SampledFunction {
    /// Returns the percentage of all sampled CPU time that the function itself took.
    #[must_use]
    pub fn self_percent(&self) -> Option<f64> {
        self.self_time.percent_of(&self.all_time)
    }

    /// Returns the percentage of all sampled CPU time that the function took with all that it called.
    #[must_use]
    pub fn total_percent(&self) -> Option<f64> {
        self.total_time.percent_of(&self.all_time)
    }
}

/// The sampled stacks of windows as tables: the lines of each span, and the functions over all spans.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SampledStacks {
    pub(crate) lines: Vec<SampledLine>,
    pub(crate) functions: Vec<SampledFunction>,
    pub(crate) totals: SamplingTotals,
}

impl SampledStacks {
    /// Returns the tables of a window.
    pub(super) fn of(trace: &Trace) -> Self {
        let Some(sampling) = trace.stack_sampling() else { return Self::default() };
        let mut totals = SamplingTotals {
            hertz: sampling.hertz(),
            lost: sampling.lost(),
            problems: sampling.problem().map(str::to_owned).into_iter().collect(),
            ..SamplingTotals::default()
        };
        let mut stacks: FxHashMap<(SampledSpans, Option<StackNodeId>), SampledTime> = FxHashMap::default();
        for sample in trace.stack_samples() {
            let spans = SampledSpans::of(sample);
            stacks.entry((spans, sample.node())).or_default().add_sample(sample);
            totals.time.add_sample(sample);
            totals.truncated += u64::from(sample.is_truncated());
            totals.outside_spans += u64::from(spans.callsite.is_none());
            totals.pool += u64::from(spans.pool);
        }
        let mut all = Self { totals, ..Self::default() };
        let shown = ShownFrames::of(sampling);
        let mut lines: FxHashMap<(SampledSpans, ShownFrame), SampledTime> = FxHashMap::default();
        for (&(spans, node), time) in &stacks {
            let frame = node.map(|node| shown.nodes[node.index()]).unwrap_or_default();
            lines.entry((spans, frame)).or_default().add(time);
        }
        all.lines = lines.iter().map(|(&(spans, frame), &time)| line(trace, sampling, spans, frame, time)).collect();
        all.functions = functions(trace, sampling, &shown, &stacks);
        all.finish();
        all
    }

    /// Adds the tables of another window.
    pub(crate) fn add(&mut self, more: &Self) {
        self.lines.extend(more.lines.iter().cloned());
        self.functions.extend(more.functions.iter().cloned());
        let (totals, more) = (&mut self.totals, &more.totals);
        totals.hertz = totals.hertz.max(more.hertz);
        totals.time.add(&more.time);
        totals.truncated += more.truncated;
        totals.outside_spans += more.outside_spans;
        totals.pool += more.pool;
        totals.lost += more.lost;
        totals.problems.extend(more.problems.iter().cloned());
        self.finish();
    }

    /// Returns the lines with those of libraries added to the lines of the program that lead to them.
    pub(crate) fn own_lines(&self) -> Vec<SampledLine> {
        let mut lines = self.lines.clone();
        for line in lines.iter_mut().filter(|line| line.own_line.is_some()) {
            line.line.clone_from(&line.own_line);
            line.function = line.own_function.clone().unwrap_or_default();
            line.library.clear();
        }
        merge_lines(&mut lines);
        lines
    }

    /// Merges the rows of the same place, and sorts all rows.
    fn finish(&mut self) {
        merge_lines(&mut self.lines);
        merge_functions(&mut self.functions);
        self.functions.iter_mut().for_each(|function| function.all_time = self.totals.time);
    }
}

/// Merges lines of the same place, and sorts all by their time, most first.
fn merge_lines(lines: &mut Vec<SampledLine>) {
    lines.sort_by(|a, b| a.place().cmp(&b.place()));
    lines.dedup_by(|more, line| {
        let is_same = more.place() == line.place();
        if is_same {
            line.time.add(&more.time);
        }
        is_same
    });
    // Lines of a span are next to each other.
    for of_span in lines.chunk_by_mut(|a, b| a.place()[..3] == b.place()[..3]) {
        let mut span_time = SampledTime::default();
        of_span.iter().for_each(|line| span_time.add(&line.time));
        of_span.iter_mut().for_each(|line| line.span_time = span_time);
    }
    lines.sort_by(|a, b| b.weight().cmp(&a.weight()).then_with(|| b.time.waiting.cmp(&a.time.waiting)));
}

/// Merges rows of the same function, and sorts all by their CPU time, most first.
fn merge_functions(functions: &mut Vec<SampledFunction>) {
    functions.sort_by(|a, b| (&a.function, &a.library).cmp(&(&b.function, &b.library)));
    functions.dedup_by(|more, function| {
        let is_same = (&more.function, &more.library) == (&function.function, &function.library);
        if is_same {
            function.self_time.add(&more.self_time);
            function.total_time.add(&more.total_time);
            function.spans.append(&mut more.spans);
        }
        is_same
    });
    for function in &mut *functions {
        let spans = &mut function.spans;
        spans.sort_by(|a, b| a.0.cmp(&b.0));
        spans.dedup_by(|more, span| {
            let is_same = more.0 == span.0;
            if is_same {
                span.1.add(&more.1);
            }
            is_same
        });
        spans.sort_by_key(|(_, time)| Reverse((time.cpu, time.waiting)));
    }
    let key = |function: &SampledFunction| {
        let (own, total) = (&function.self_time, &function.total_time);
        (own.cpu, total.cpu, own.waiting)
    };
    functions.sort_by_key(|function| Reverse(key(function)));
}

/// The spans that samples are listed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SampledSpans {
    callsite: Option<CallsiteId>,
    pool: bool,
}

impl SampledSpans {
    fn of(sample: StackSample<'_>) -> Self {
        let callsite = sample.span().map(Span::callsite_id);
        Self { callsite, pool: sample.attribution() == Attribution::HandedOff }
    }
}

/// Returns the name of spans as tables have it: `forward`, or `forward (pool)` for what a pool did for them.
fn span_label(name: &str, pool: bool) -> String {
    if pool { format!("{name} (pool)") } else { name.to_owned() }
}

/// The frames by which a stack is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct ShownFrame {
    /// The innermost one that is not folded, or the innermost one if all are.
    innermost: Option<StackFrameId>,
    /// The innermost one of the program's own source.
    own: Option<StackFrameId>,
}

/// The frames by which each stack is listed, by the stack's innermost node.
#[derive(Debug, Default)]
struct ShownFrames {
    nodes: Vec<ShownFrame>,
    /// Whether the frame of each node is folded.
    folded: Vec<bool>,
}

impl ShownFrames {
    fn of(sampling: &StackSampling) -> Self {
        let origins = FrameOrigin::of_all(&sampling.frames);
        let mut all = Self::default();
        // The innermost frame of each stack that is not folded.
        let mut unfolded: Vec<Option<StackFrameId>> = Vec::with_capacity(sampling.nodes.len());
        // Callers come before those that they call.
        for node in &sampling.nodes {
            let caller = node.caller.map(StackNodeId::index);
            let origin = origins[node.frame.index()];
            let is_folded = match origin {
                FrameOrigin::Runtime => true,
                FrameOrigin::System => caller.is_none_or(|caller| all.folded[caller]),
                FrameOrigin::Library | FrameOrigin::Own => false,
            };
            let outer = caller.and_then(|caller| unfolded[caller]);
            let shown = if is_folded { outer } else { Some(node.frame) };
            let own = caller.and_then(|caller| all.nodes[caller].own);
            let own = if origin == FrameOrigin::Own { Some(node.frame) } else { own };
            all.nodes.push(ShownFrame { innermost: shown.or(Some(node.frame)), own });
            all.folded.push(is_folded);
            unfolded.push(shown);
        }
        all
    }
}

/// The text in place of a function if no stack could be taken.
const UNKNOWN: &str = "[unknown]";

fn line(
    trace: &Trace,
    sampling: &StackSampling,
    spans: SampledSpans,
    shown: ShownFrame,
    time: SampledTime,
) -> SampledLine {
    let frame = |id: StackFrameId| &sampling.frames[id.index()];
    let (innermost, own) = (shown.innermost.map(frame), shown.own.map(frame));
    let callsite = spans.callsite.map(|id| &trace.callsites[id.index()]);
    SampledLine {
        span: callsite.map(|callsite| callsite.name().to_owned()),
        span_location: callsite.and_then(Callsite::location),
        pool: spans.pool,
        line: innermost.and_then(place),
        function: innermost.map_or(UNKNOWN, StackFrame::function).to_owned(),
        library: innermost.map_or("", StackFrame::library).to_owned(),
        own_line: own.and_then(place),
        own_function: own.map(|own| own.function().to_owned()),
        time,
        span_time: SampledTime::default(),
    }
}

/// Returns the functions of all stacks, which [`merge_functions`] sorts.
fn functions(
    trace: &Trace,
    sampling: &StackSampling,
    shown: &ShownFrames,
    stacks: &FxHashMap<(SampledSpans, Option<StackNodeId>), SampledTime>,
) -> Vec<SampledFunction> {
    // Frames differ by line, too.
    let mut indices: FxHashMap<(&str, &str), usize> = FxHashMap::default();
    let mut rows: Vec<SampledFunction> = Vec::new();
    let row_of = |function: &str, library: &str| SampledFunction {
        function: function.to_owned(),
        library: library.to_owned(),
        ..SampledFunction::default()
    };
    let of_frame: Vec<usize> = sampling
        .frames
        .iter()
        .map(|frame| {
            *indices.entry((frame.function(), frame.library())).or_insert_with(|| {
                rows.push(row_of(frame.function(), frame.library()));
                rows.len() - 1
            })
        })
        .collect();
    let mut spans: FxHashMap<(usize, Option<&str>, bool), SampledTime> = FxHashMap::default();
    // The stack in which each function was last seen, since a recursive one counts once.
    let mut seen = vec![usize::MAX; rows.len()];
    for (number, (&(of, node), time)) in stacks.iter().enumerate() {
        let span = of.callsite.map(|id| trace.callsites[id.index()].name());
        let Some(innermost) = node.and_then(|node| shown.nodes[node.index()].innermost) else { continue };
        rows[of_frame[innermost.index()]].self_time.add(time);
        let outer = std::iter::successors(node, |node| sampling.nodes[node.index()].caller);
        let outer = outer.filter(|node| !shown.folded[node.index()]);
        let frames = outer.map(|node| sampling.nodes[node.index()].frame);
        for frame in std::iter::once(innermost).chain(frames) {
            let function = of_frame[frame.index()];
            if std::mem::replace(&mut seen[function], number) != number {
                rows[function].total_time.add(time);
                spans.entry((function, span, of.pool)).or_default().add(time);
            }
        }
    }
    for ((function, span, pool), time) in spans {
        rows[function].spans.push((span.map(|name| span_label(name, pool)), time));
    }
    // Functions whose frames are all folded have no time.
    rows.retain(|row| row.total_time.samples + row.total_time.waits > 0);
    rows
}

#[cfg(test)]
mod tests;
