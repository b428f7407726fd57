//! Samples of each span in each step, for statistics over steps.

use crate::{
    counts::CountKind,
    span_paths::{SpanPath, SpanPaths},
};
use kernspan::{
    analysis::{Analysis, PathKind, PathPart},
    trace::{Detail, HeapUse, Kernel, MemoryChange, Span, SpanId, StepId, Timestamp, Trace, Work},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The whole steps of a window, and what the spans of each path did in them.
#[derive(Debug, Default)]
pub(crate) struct StepSamples {
    /// The duration of each sampled step.
    pub(crate) durations: Vec<Duration>,
    /// The number of whole steps, some of which may not have been sampled.
    pub(crate) whole_steps: u64,
    /// All work of each step.
    pub(crate) totals: Vec<StepCounts>,
    /// The paths of spans, a parent before its children.
    pub(crate) paths: Vec<SpanPath>,
    /// The samples, path by path: one for each sampled step.
    samples: Vec<SpanSample>,
    /// The samples of unattributed GPU work and allocations.
    pub(crate) unattributed: Vec<SpanSample>,
    /// The time of each step in which none of its spans was open on its thread.
    pub(crate) outside: Vec<Duration>,
    /// The part of that on the critical path.
    pub(crate) exposed_outside: Vec<Duration>,
    /// The launches of each kernel in each step.
    pub(crate) kernels: BTreeMap<KernelShape, Vec<u32>>,
    /// More than 0 if spans or kernels have no path or row of their own because there were too many.
    pub(crate) left_out: u64,
}

/// The time and counts of the spans of a path in one step, without the spans called from them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpanSample {
    /// Self time on the thread of the step: the time of the step is the sum over all paths, plus the time outside.
    pub(crate) host: Duration,
    /// Self time on other threads.
    pub(crate) background: Duration,
    /// The time of GPU work.
    pub(crate) gpu: Duration,
    /// The time on the critical path in which the spans themselves were active, on any thread. If the host waits for
    /// the GPU, the work it waits for is on the path instead.
    pub(crate) exposed_host: Duration,
    /// The time on the critical path in which GPU work of the spans ran.
    pub(crate) exposed_gpu: Duration,
    pub(crate) counts: StepCounts,
}

/// Counts of one step, in the order of [`CountKind::ALL`]. Floating-point operations include those of nested spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepCounts(pub(crate) [u64; CountKind::ALL.len()]);

/// The identity of a kernel: its name, blocks and threads per block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KernelShape {
    pub(crate) name: Arc<str>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
}

impl StepCounts {
    fn add(&mut self, kind: CountKind, by: u64) {
        let count = &mut self.0[kind as usize];
        *count = count.saturating_add(by);
    }

    fn add_work(&mut self, detail: &Detail) {
        match detail {
            Detail::Kernel(_) => self.add(CountKind::Kernels, 1),
            Detail::Copy(copy) => {
                self.add(CountKind::Copies, 1);
                self.add(CountKind::CopiedBytes, copy.bytes);
            }
            Detail::Fill(_) => self.add(CountKind::Fills, 1),
            _ => {}
        }
    }

    fn add_heap(&mut self, heap: HeapUse) {
        self.add(CountKind::HeapAllocations, heap.allocations);
        self.add(CountKind::HeapBytes, heap.allocated);
    }

    fn add_allocation(&mut self, bytes: u64) {
        self.add(CountKind::Allocations, 1);
        self.add(CountKind::AllocatedBytes, bytes);
    }
}

/// A window, the paths of its spans, and its steps by their positions among the sampled ones.
struct Window<'a> {
    trace: &'a Trace,
    of_span: Vec<Option<usize>>,
    positions: Vec<Option<usize>>,
}

impl Window<'_> {
    fn position(&self, step: Option<StepId>) -> Option<usize> {
        self.positions[step?.index()]
    }

    /// Returns the position of the step that contains a moment.
    fn position_at(&self, at: Timestamp) -> Option<usize> {
        let steps = self.trace.steps();
        let step = steps.partition_point(|step| step.start() <= at).checked_sub(1)?;
        self.positions[step].filter(|_| at < steps[step].end())
    }

    fn path(&self, span: Option<SpanId>) -> Option<usize> {
        self.of_span[span?.index()]
    }
}

impl StepSamples {
    /// The maximum number of steps sampled in a window, spread evenly. The standard error of a median over 128 steps is
    /// a ninth of their spread; more steps would hardly help, since runs usually differ by more than that.
    pub(crate) const STEPS: usize = 128;
    /// The maximum number of distinct kernels.
    pub(crate) const KERNELS: usize = 1_000;
    /// The maximum number of samples, which take 2.4 MB. With many paths, fewer steps are sampled, but at least a few.
    const SAMPLES: usize = 1 << 14;
    const FEW_STEPS: usize = 8;

    /// Returns the samples of a window.
    pub(crate) fn of(window: &Analysis<'_>) -> Self {
        let trace = window.trace();
        let whole: Vec<_> = (0..trace.steps().len()).filter(|&step| !trace.steps()[step].cut().any()).collect();
        if whole.is_empty() {
            return Self::default();
        }
        let SpanPaths { list: paths, of_span, left_out } = SpanPaths::of(trace);
        let limit = (Self::SAMPLES / paths.len().max(1)).clamp(Self::FEW_STEPS, Self::STEPS);
        let steps: Vec<_> = whole.iter().step_by(whole.len().div_ceil(limit)).collect();
        let mut positions = vec![None; trace.steps().len()];
        steps.iter().enumerate().for_each(|(at, step)| positions[**step] = Some(at));
        let durations: Vec<_> = steps.iter().map(|step| trace.steps()[**step].duration()).collect();
        let mut samples = Self {
            whole_steps: whole.len() as u64,
            totals: vec![StepCounts::default(); steps.len()],
            samples: vec![SpanSample::default(); paths.len() * steps.len()],
            unattributed: vec![SpanSample::default(); steps.len()],
            outside: durations.clone(),
            exposed_outside: vec![Duration::ZERO; steps.len()],
            kernels: BTreeMap::new(),
            left_out,
            paths,
            durations,
        };
        let places = Window { trace, of_span, positions };
        samples.add_spans(&places);
        samples.add_flops(&places);
        samples.add_gpu(&places);
        samples.add_exposed(&places, window.critical_path());
        samples
    }

    /// Returns the samples of a path, one for each step.
    pub(crate) fn of_path(&self, path: usize) -> &[SpanSample] {
        let steps = self.durations.len();
        &self.samples[path * steps..(path + 1) * steps]
    }

    /// Returns the sample of a path in the step at this position, or the unattributed one.
    fn sample(&mut self, path: Option<usize>, at: usize) -> &mut SpanSample {
        match path {
            Some(path) => &mut self.samples[path * self.durations.len() + at],
            None => &mut self.unattributed[at],
        }
    }

    fn add_spans(&mut self, window: &Window<'_>) {
        let trace = window.trace;
        for span in trace.spans() {
            let Some(step) = span.step() else { continue };
            let (Some(path), Some(at)) = (window.path(Some(span.id())), window.position(span.step_id())) else {
                continue;
            };
            let sample = self.sample(Some(path), at);
            if span.track().thread() != trace.tracks()[step.track_id().index()].thread() {
                sample.background = sample.background.saturating_add(span.self_time());
                sample.counts.add_heap(span.heap());
                self.totals[at].add_heap(span.heap());
            } else if span.end() <= step.end() {
                // A span that continues in later steps, such as that of an epoch, is in none of them.
                sample.host = sample.host.saturating_add(span.self_time());
                sample.counts.add_heap(span.heap());
                self.totals[at].add_heap(span.heap());
                self.outside[at] = self.outside[at].saturating_sub(span.self_time());
            }
            // The polls of a future are one call.
            if span.previous().is_none() {
                self.sample(Some(path), at).counts.add(CountKind::Calls, 1);
                self.totals[at].add(CountKind::Calls, 1);
            }
        }
    }

    /// Adds floating-point operations, as a report does: those that a span states, or else the sum over everything
    /// nested in it, spans and framework operations. Those of a step come from its spans and operations that are not
    /// nested in one that states its own.
    fn add_flops(&mut self, window: &Window<'_>) {
        let trace = window.trace;
        let mut spans = vec![0_u64; trace.spans().len()];
        let operations: Vec<_> = trace.operations().map(|call| call.fields().op().flops().unwrap_or(0)).collect();
        for (call, flops) in trace.operations().zip(&operations) {
            if let Some(span) = call.span() {
                spans[span.id().index()] = spans[span.id().index()].saturating_add(*flops);
            }
        }
        let all: Vec<_> = trace.spans().collect();
        let stated: Vec<_> = all.iter().map(|span| span.fields().op().flops()).collect();
        // Children come after their parents: going backwards, a span is complete when it is reached.
        for (index, span) in all.iter().enumerate().rev() {
            spans[index] = stated[index].unwrap_or(spans[index]);
            if let Some(parent) = span.parent() {
                spans[parent.id().index()] = spans[parent.id().index()].saturating_add(spans[index]);
            }
        }
        let mut is_counted = vec![false; all.len()];
        for (index, span) in all.iter().enumerate() {
            let is_nested = span.parent().is_some_and(|parent| is_counted[parent.id().index()]);
            is_counted[index] = is_nested || stated[index].is_some();
            let Some(at) = window.position(span.step_id()) else { continue };
            if let Some(path) = window.path(Some(span.id())) {
                self.sample(Some(path), at).counts.add(CountKind::Flops, spans[index]);
            }
            if !is_nested && stated[index].is_some() {
                self.totals[at].add(CountKind::Flops, spans[index]);
            }
        }
        for (call, flops) in trace.operations().zip(operations) {
            let is_nested = call.span().is_some_and(|span| is_counted[span.id().index()]);
            if let Some(at) = window.position(call.step_id()).filter(|_| !is_nested) {
                self.totals[at].add(CountKind::Flops, flops);
            }
        }
    }

    fn add_gpu(&mut self, window: &Window<'_>) {
        for work in window.trace.work() {
            let Some(at) = window.position(work.step_id()) else { continue };
            let sample = self.sample(window.path(work.span().map(Span::id)), at);
            sample.gpu = sample.gpu.saturating_add(work.duration());
            sample.counts.add_work(work.detail());
            self.totals[at].add_work(work.detail());
            if let Some(kernel) = work.kernel() {
                self.add_kernel(kernel, at);
            }
        }
        for allocation in window.trace.allocations().filter(|it| it.change() == MemoryChange::Allocate) {
            let Some(at) = window.position_at(allocation.at()) else { continue };
            let bytes = allocation.bytes().unwrap_or(0);
            self.sample(window.path(allocation.span().map(Span::id)), at).counts.add_allocation(bytes);
            self.totals[at].add_allocation(bytes);
        }
    }

    /// Adds the time of each step on the critical path. GPU work counts for the step that requested it: if the host
    /// runs ahead, the sum is the time of a step on the GPU. In a window with very many kernels, only the first steps
    /// are on the path; the others are assumed to be alike.
    fn add_exposed(&mut self, window: &Window<'_>, critical_path: &[PathPart]) {
        let steps = self.durations.len();
        let work_steps: Vec<_> = window.trace.work().map(Work::step_id).collect();
        let mut covered = vec![Duration::ZERO; steps];
        for part in critical_path {
            let is_gpu = match part.kind {
                // Work from steps before the window.
                PathKind::Earlier => continue,
                kind => matches!(kind, PathKind::Gpu | PathKind::Gap),
            };
            let at = match part.work.and_then(|work| work_steps[work.index()]) {
                Some(step) => window.position(Some(step)),
                None => window.position_at(part.start),
            };
            let Some(at) = at else { continue };
            covered[at] += part.duration();
            let sum = match (window.path(part.span), is_gpu) {
                (None, false) => &mut self.exposed_outside[at],
                (path, true) => &mut self.sample(path, at).exposed_gpu,
                (path, false) => &mut self.sample(path, at).exposed_host,
            };
            *sum = sum.saturating_add(part.duration());
        }
        // Half a step: the path of a step it covers may begin late or end early.
        let is_covered = |at: &usize| covered[*at] * 2 >= self.durations[*at];
        let (known, unknown): (Vec<_>, Vec<_>) = (0..steps).partition(is_covered);
        for at in unknown {
            // Without any, as without GPU activity, all are 0.
            let like = known.get(at % known.len().max(1)).copied();
            for samples in self.samples.chunks_mut(steps).chain([&mut *self.unattributed]) {
                let exposed = like.map(|like| (samples[like].exposed_host, samples[like].exposed_gpu));
                (samples[at].exposed_host, samples[at].exposed_gpu) = exposed.unwrap_or_default();
            }
            self.exposed_outside[at] = like.map(|like| self.exposed_outside[like]).unwrap_or_default();
        }
    }

    fn add_kernel(&mut self, kernel: &Kernel, at: usize) {
        let shape = KernelShape { name: Arc::clone(&kernel.name), grid: kernel.grid, block: kernel.block };
        if self.kernels.len() >= Self::KERNELS && !self.kernels.contains_key(&shape) {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        let launches = self.kernels.entry(shape).or_insert_with(|| vec![0; self.durations.len()]);
        launches[at] = launches[at].saturating_add(1);
    }
}

#[cfg(test)]
mod tests;
