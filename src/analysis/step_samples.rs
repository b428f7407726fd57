//! Samples of each span in each step, for statistics over steps.

use super::{
    analysis::Analysis, count_kind::CountKind, critical_path::PathKind, span_calls::SpanCalls, span_flops::SpanFlops,
};
use crate::trace::{Detail, FieldRange, Kernel, MemoryChange, Span, SpanId, StepId, Trace};
use rustc_hash::FxHashMap;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The whole steps of a window, and what the spans of each path did in them.
#[derive(Debug, Default)]
pub(crate) struct StepSamples {
    /// The duration of each step that was looked at.
    pub(crate) durations: Vec<Duration>,
    /// The number of whole steps, of which some may not have been looked at.
    pub(crate) whole_steps: u64,
    /// All work of each step.
    pub(crate) totals: Vec<StepCounts>,
    /// The paths of spans, a parent before its children.
    pub(crate) paths: Vec<SamplePath>,
    /// The samples, path by path: one for each step that was looked at.
    samples: Vec<SpanSample>,
    /// The samples of GPU work and allocations of no span.
    pub(crate) unattributed: Vec<SpanSample>,
    /// The time of each step in which no span of the step was open on its thread.
    pub(crate) outside: Vec<Duration>,
    /// The part of that on the critical path.
    pub(crate) exposed_outside: Vec<Duration>,
    /// The launches of each kernel in each step.
    pub(crate) kernels: BTreeMap<KernelShape, Vec<u32>>,
    /// More than 0 if spans or kernels have no path or row of their own, since there were too many.
    pub(crate) left_out: u64,
}

/// The path of a span: its own name, and the path that it is called from.
#[derive(Debug)]
pub(crate) struct SamplePath {
    pub(crate) parent: Option<usize>,
    pub(crate) name: Arc<str>,
    pub(crate) target: Arc<str>,
    /// `file:line`, if known.
    pub(crate) location: Option<String>,
}

/// The time and counts of the spans of a path in one step, without spans called from them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpanSample {
    /// Self time on the thread of the step: the time of the step is the sum over all paths, and the time outside.
    pub(crate) host: Duration,
    /// Self time on other threads.
    pub(crate) background: Duration,
    /// The time of GPU work.
    pub(crate) gpu: Duration,
    /// The time on the critical path, in which spans of any thread did something themselves. If the host waits for the
    /// GPU, the work that it waits for is on the path instead.
    pub(crate) exposed_host: Duration,
    /// The time on the critical path in which GPU work of the spans ran.
    pub(crate) exposed_gpu: Duration,
    pub(crate) counts: StepCounts,
}

/// Counts of one step, in the order of [`CountKind::ALL`]. Floating-point operations are with nested spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepCounts(pub(crate) [u64; StepCounts::LEN]);

/// The identity of a kernel: its name, blocks and threads in a block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KernelShape {
    pub(crate) name: Arc<str>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
}

impl StepCounts {
    /// The number of counts.
    pub(crate) const LEN: usize = CountKind::ALL.len();

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
        }
    }

    fn add_allocation(&mut self, bytes: u64) {
        self.add(CountKind::Allocations, 1);
        self.add(CountKind::AllocatedBytes, bytes);
    }
}

impl StepSamples {
    /// The most steps of a window that are looked at, spread evenly.
    pub(crate) const STEPS: usize = 128;
    /// The most paths that are kept apart. Spans of later ones count for the span that they are called from.
    pub(crate) const PATHS: usize = 1_000;
    /// The most names in a path. Spans that are nested deeper count for the one at this depth.
    pub(crate) const DEPTH: u32 = 64;
    /// The most kernels that are kept apart.
    pub(crate) const KERNELS: usize = 1_000;
    /// The most samples. If there are many paths, fewer steps are looked at, but at least a few.
    const SAMPLES: usize = 1 << 14;
    const FEW_STEPS: usize = 8;

    /// Returns the samples of a window.
    pub(crate) fn of(trace: &Trace, flops: &SpanFlops) -> Self {
        let whole: Vec<_> = (0..trace.steps().len()).filter(|&step| !trace.steps()[step].cut().any()).collect();
        if whole.is_empty() {
            return Self::default();
        }
        let mut paths = Paths::default();
        let of_span = paths.of_spans(trace);
        let limit = (Self::SAMPLES / paths.list.len().max(1)).clamp(Self::FEW_STEPS, Self::STEPS);
        let stride = whole.len().div_ceil(limit);
        let steps: Vec<_> = whole.iter().step_by(stride).map(|&step| StepId::new(step)).collect();
        let mut position = vec![None; trace.steps().len()];
        steps.iter().enumerate().for_each(|(at, step)| position[step.index()] = Some(at));
        let durations: Vec<_> = steps.iter().map(|step| trace.steps()[step.index()].duration()).collect();
        let mut samples = Self {
            whole_steps: whole.len() as u64,
            totals: vec![StepCounts::default(); steps.len()],
            samples: vec![SpanSample::default(); paths.list.len() * steps.len()],
            unattributed: vec![SpanSample::default(); steps.len()],
            outside: durations.clone(),
            exposed_outside: vec![Duration::ZERO; steps.len()],
            kernels: BTreeMap::new(),
            left_out: paths.left_out,
            paths: paths.list,
            durations,
        };
        steps.iter().enumerate().for_each(|(at, &step)| {
            samples.totals[at].add(CountKind::Flops, flops.of_step(step).count);
        });
        samples.add_spans(trace, flops, &of_span, &position);
        samples.add_gpu(trace, &of_span, &position);
        samples.add_exposed(trace, &of_span, &position);
        samples
    }

    /// Returns the samples of a path, one for each step.
    pub(crate) fn of_path(&self, path: usize) -> &[SpanSample] {
        let steps = self.durations.len();
        &self.samples[path * steps..(path + 1) * steps]
    }

    fn add_spans(&mut self, trace: &Trace, flops: &SpanFlops, of_span: &[Option<u32>], position: &[Option<usize>]) {
        let calls = SpanCalls::of(trace);
        for span in trace.spans() {
            let Some(step) = span.step_id() else { continue };
            let (Some(path), Some(at)) = (of_span[span.id().index()], position[step.index()]) else { continue };
            let sample = &mut self.samples[path as usize * self.durations.len() + at];
            if calls.first(span.id()) == span.id() {
                sample.counts.add(CountKind::Calls, 1);
                self.totals[at].add(CountKind::Calls, 1);
            }
            sample.counts.add(CountKind::Flops, flops.of_span(span.id()).count);
            let step = &trace.steps()[step.index()];
            if span.track().thread() != trace.track(step.track_id()).thread() {
                sample.background = sample.background.saturating_add(span.self_time());
            } else if span.end() <= step.end() {
                // A span that goes on in later steps, such as that of an epoch, is in none of them.
                sample.host = sample.host.saturating_add(span.self_time());
                self.outside[at] = self.outside[at].saturating_sub(span.self_time());
            }
        }
    }

    fn add_gpu(&mut self, trace: &Trace, of_span: &[Option<u32>], position: &[Option<usize>]) {
        let steps = self.durations.len();
        let place = |span: Option<SpanId>| span.and_then(|span| of_span[span.index()]);
        for work in trace.work() {
            let Some(at) = work.step_id().and_then(|step| position[step.index()]) else { continue };
            let sample = match place(work.span().map(Span::id)) {
                Some(path) => &mut self.samples[path as usize * steps + at],
                None => &mut self.unattributed[at],
            };
            sample.gpu = sample.gpu.saturating_add(work.duration());
            sample.counts.add_work(work.detail());
            self.totals[at].add_work(work.detail());
            if let Some(kernel) = work.kernel() {
                self.add_kernel(kernel, at);
            }
        }
        for allocation in trace.allocations().filter(|it| it.change() == MemoryChange::Allocate) {
            let step = trace.step_at(allocation.at());
            let Some(at) = step.and_then(|step| position[step.index()]) else { continue };
            let sample = match place(allocation.span().map(Span::id)) {
                Some(path) => &mut self.samples[path as usize * steps + at],
                None => &mut self.unattributed[at],
            };
            let bytes = allocation.bytes().unwrap_or(0);
            sample.counts.add_allocation(bytes);
            self.totals[at].add_allocation(bytes);
        }
    }

    /// Adds the time of each step on the critical path. That of GPU work counts for the step that asked for it: if the
    /// host runs ahead, the sum is the time of a step on the GPU. Of a window with very many kernels, only the first
    /// steps are on the path; the others are taken to be like these.
    fn add_exposed(&mut self, trace: &Trace, of_span: &[Option<u32>], position: &[Option<usize>]) {
        let steps = self.durations.len();
        let mut covered = vec![Duration::ZERO; steps];
        for part in Analysis::of(trace).critical_path() {
            let is_gpu = match part.kind {
                // Work of steps before the window.
                PathKind::Earlier => continue,
                PathKind::Gpu | PathKind::Gap => true,
                PathKind::Host | PathKind::Return | PathKind::Launch => false,
            };
            let of_work = part.work.and_then(|work| trace.work_of(work).step_id());
            let step = of_work.or_else(|| trace.step_at(part.start));
            let Some(at) = step.and_then(|step| position[step.index()]) else { continue };
            covered[at] += part.duration();
            let path = part.span.and_then(|span| of_span[span.index()]);
            let sample = path.map(|path| &mut self.samples[path as usize * steps + at]);
            let sum = match (sample, is_gpu) {
                (Some(sample), true) => &mut sample.exposed_gpu,
                (Some(sample), false) => &mut sample.exposed_host,
                (None, true) => &mut self.unattributed[at].exposed_gpu,
                (None, false) => &mut self.exposed_outside[at],
            };
            *sum = sum.saturating_add(part.duration());
        }
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

/// Paths of spans, each once.
#[derive(Default)]
struct Paths {
    list: Vec<SamplePath>,
    depths: Vec<u32>,
    /// The path by that of the caller and the name.
    index: FxHashMap<(Option<u32>, Arc<str>), u32>,
    left_out: u64,
}

impl Paths {
    /// The number of places whose paths are remembered while spans are looked at.
    const KNOWN: usize = 1 << 12;

    /// Returns the path of each span.
    fn of_spans(&mut self, trace: &Trace) -> Vec<Option<u32>> {
        let mut of_span: Vec<Option<u32>> = vec![None; trace.spans().len()];
        let mut known: FxHashMap<_, Option<u32>> = FxHashMap::default();
        for id in trace.caller_order().unwrap_or_default() {
            let span = trace.span(id);
            // A layer's span that is made once has no caller, or one that has ended long ago.
            let caller = span.parent().or_else(|| span.caller());
            let caller = caller.and_then(|caller| of_span[caller.id().index()]);
            let FieldRange { start, len } = trace.spans[id.index()].fields;
            let place = (caller, span.callsite_id(), start, len);
            let path = known.get(&place).copied().unwrap_or_else(|| {
                let path = self.path(caller, span);
                if known.len() < Self::KNOWN {
                    known.insert(place, path);
                }
                path
            });
            of_span[id.index()] = path;
        }
        of_span
    }

    /// Returns the path of a span, or that of its caller if there is no room for another one.
    fn path(&mut self, caller: Option<u32>, span: Span<'_>) -> Option<u32> {
        let name: Arc<str> = match span.fields().op().module() {
            Some(module) if module != span.name() => format!("{} ({module})", span.name()).into(),
            _ => span.name().into(),
        };
        let key = (caller, name);
        if let Some(&path) = self.index.get(&key) {
            return Some(path);
        }
        let depth = caller.map_or(1, |caller| self.depths[caller as usize] + 1);
        if self.list.len() >= StepSamples::PATHS || depth > StepSamples::DEPTH {
            self.left_out = self.left_out.saturating_add(1);
            return caller;
        }
        let path = self.list.len() as u32;
        self.list.push(SamplePath {
            parent: caller.map(|caller| caller as usize),
            name: Arc::clone(&key.1),
            target: span.callsite().target().into(),
            location: span.callsite().location(),
        });
        self.depths.push(depth);
        self.index.insert(key, path);
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::StepSamples;
    use crate::{
        analysis::{CountKind, SpanFlops},
        trace::{
            Trace,
            sample::{gpu_trace, set_caller, set_parent, set_track, spans_trace},
        },
    };
    use std::time::Duration;

    fn samples(trace: &Trace) -> StepSamples {
        StepSamples::of(trace, &SpanFlops::of(trace))
    }

    #[test]
    fn each_path_has_a_sample_of_each_step() {
        let samples = samples(&gpu_trace());
        let paths: Vec<_> = samples.paths.iter().map(|path| (path.parent, &*path.name)).collect();
        assert_eq!(paths, [(None, "train_step"), (Some(0), "forward"), (Some(0), "backward")]);
        assert_eq!(samples.durations, [Duration::from_micros(100); 2]);
        assert_eq!(samples.outside, [Duration::from_micros(10); 2]);
        for step in 0..2 {
            let [outer, forward, backward] = [0, 1, 2].map(|path| samples.of_path(path)[step]);
            assert_eq!([outer, forward, backward].map(|sample| sample.host.as_micros()), [20, 30, 40]);
            assert_eq!([outer, forward, backward].map(|sample| sample.gpu.as_micros()), [4, 20, 50]);
            assert_eq!(outer.counts.0, [1, 0, 1, 4000, 0, 0, 0, 0]);
            assert_eq!(forward.counts.0, [1, 1, 0, 0, 0, 1, 4096, 0]);
            assert_eq!(backward.counts.0, [1, 2, 0, 0, 1, 0, 0, 0]);
            assert_eq!(samples.totals[step].0, [3, 3, 1, 4000, 1, 1, 4096, 0]);
        }
        // Each moment of a step is on the critical path once, from the first call on, and to the end of its work.
        for step in 0..2 {
            let of_paths = (0..3).map(|path| samples.of_path(path)[step]).chain([samples.unattributed[step]]);
            let exposed: Duration = of_paths.map(|sample| sample.exposed_host + sample.exposed_gpu).sum();
            let exposed = exposed + samples.exposed_outside[step];
            assert!((98..=105).contains(&exposed.as_micros()), "{exposed:?}");
        }
        let kernels: Vec<_> = samples.kernels.iter().map(|(shape, launches)| (&*shape.name, &launches[..])).collect();
        assert_eq!(kernels, [("gemm", &[2, 2][..]), ("node", &[1, 1])]);
    }

    #[test]
    fn time_on_other_threads_is_kept_apart() {
        let mut trace = gpu_trace();
        set_track(&mut trace, 2, "worker");
        set_caller(&mut trace, 2, Some(0));
        trace.tracks.last_mut().unwrap().thread = crate::trace::ThreadId::new(7);
        let samples = samples(&trace);
        assert_eq!(samples.of_path(2)[0].background, Duration::from_micros(40));
        assert_eq!(samples.of_path(2)[0].host, Duration::ZERO);
        assert_eq!(samples.outside[0], Duration::from_micros(50));
        assert_eq!(samples.of_path(2)[0].counts.0[CountKind::Calls as usize], 1);
    }

    #[test]
    fn deep_and_many_paths_are_bounded() {
        let mut trace = gpu_trace();
        let spans = spans_trace(&[("f", None, 0, 90); 200]);
        (trace.callsites, trace.spans, trace.work) = (spans.callsites, spans.spans, Vec::new());
        trace.allocations.clear();
        for span in 0..200 {
            trace.spans[span].step = Some(crate::trace::StepId::new(0));
            trace.spans[span].self_nanos = 100;
            if span > 0 {
                set_parent(&mut trace, span, span - 1);
            }
        }
        let samples = samples(&trace);
        assert_eq!(samples.paths.len(), 64);
        assert!(samples.left_out > 0);
        assert_eq!(samples.of_path(63)[0].counts.0[CountKind::Calls as usize], 137);
        assert_eq!(samples.of_path(63)[0].host, Duration::from_nanos(13_700));
    }

    #[test]
    fn a_window_without_steps_has_no_samples() {
        assert_eq!(samples(&Trace::default()).durations, []);
    }
}
