//! What GPU memory is used for, derived from the spans that allocate and free it.

use super::phase::{Phase, PhaseMarks};
use crate::trace::{Allocation, Detail, Direction, MemoryChange, Span, ThreadId, Timestamp, Trace};
use rustc_hash::FxHashMap;
use std::fmt;

/// What GPU memory is used for, as in PyTorch's `export_memory_timeline`.
///
/// It is derived from the span that allocated the memory, and from how long it was in use. Spans tell the backward pass
/// and the optimizer by their names: those of PyTorch, `kernspan-candle` and `kernspan-burn`, or your own `backward`
/// and `optimizer`. Everything else counts as the forward pass. So the category is an inference, not a measurement. Of
/// a framework that allocates pages, divides them itself and does not report its tensors, it is the category of the
/// page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum MemoryCategory {
    /// In use when the window opened: parameters, the state of the optimizer, and anything else from before. Which is
    /// which was not recorded. It includes memory that was freed without its size being known.
    Before,
    /// Allocated in the forward pass, and still in use at the end of the window, more than a step later: parameters,
    /// buffers and caches that the window saw being created, and leaks, which [`kept_memory`](super::kept_memory) lists
    /// by span.
    Parameters,
    /// Allocated by the optimizer, and in use after the end of the step.
    OptimizerState,
    /// Allocated in the backward pass, and in use until the optimizer.
    Gradients,
    /// Allocated in the forward pass, and in use after it.
    Activations,
    /// Allocated by the [input pipeline](crate::trace::InputStage), or for a copy from the host.
    Inputs,
    /// Allocated by the optimizer, and freed before the end of the step. These are as large as the parameters, whatever
    /// the batch size.
    OptimizerTemporaries,
    /// Allocated and freed in the same forward or backward pass.
    Temporaries,
    /// Allocated outside of all spans.
    Unknown,
}

impl MemoryCategory {
    /// All categories, in the order in which they are shown.
    pub const ALL: [Self; 9] = [
        Self::Before,
        Self::Parameters,
        Self::OptimizerState,
        Self::Gradients,
        Self::Activations,
        Self::Inputs,
        Self::OptimizerTemporaries,
        Self::Temporaries,
        Self::Unknown,
    ];

    /// The name, such as `optimizer state`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Before => "before the window",
            Self::Parameters => "parameters and caches",
            Self::OptimizerState => "optimizer state",
            Self::Gradients => "gradients",
            Self::Activations => "activations",
            Self::Inputs => "inputs",
            Self::OptimizerTemporaries => "optimizer temporaries",
            Self::Temporaries => "temporaries",
            Self::Unknown => "unknown",
        }
    }

    /// Whether the memory is assumed to grow in proportion to the batch size: activations, inputs and temporaries of
    /// both passes do, and so does unknown memory, since it is safer to expect too much.
    pub fn grows_with_batch(self) -> bool {
        matches!(self, Self::Activations | Self::Inputs | Self::Temporaries | Self::Unknown)
    }
}

impl fmt::Display for MemoryCategory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// PyTorch's allocator rounds sizes up to a multiple of this many bytes (`kMinBlockSize` in `CUDACachingAllocator`).
const ROUNDING: u64 = 512;

/// What is known about a window in order to tell the categories of its memory.
pub(super) struct Phases<'a> {
    trace: &'a Trace,
    marks: PhaseMarks,
    /// When each phase began, in chronological order. A phase that comes again is a new entry.
    starts: Vec<(Timestamp, Phase)>,
    /// The starts of the optimizer's phases, as indices.
    optimizers: Vec<usize>,
    /// When each thread launched work, in chronological order, with the bytes of copies from the host.
    launches: FxHashMap<ThreadId, Vec<(Timestamp, Option<u64>)>>,
}

impl<'a> Phases<'a> {
    pub(super) fn of(trace: &'a Trace) -> Self {
        let marks = PhaseMarks::of(trace);
        let marked = trace.spans().filter_map(|span| Some((span.start(), marks.marked_by(span)?)));
        let allocated = trace.allocations().filter(|it| it.change() == MemoryChange::Allocate);
        // A thread that loads data does so during any phase, and tells nothing about it.
        let allocating = allocated.filter_map(|it| it.span().map(|span| (it.requested(), span)));
        let allocating =
            allocating.filter(|(_, span)| !is_input(*span)).map(|(at, span)| (at, marks.phase(Some(span))));
        let mut starts: Vec<_> = allocating.chain(marked).collect();
        starts.sort_by_key(|(at, _)| *at);
        starts.dedup_by_key(|(_, phase)| *phase);
        let is_optimizer = |&start: &usize| starts[start].1 == Phase::Optimizer;
        let optimizers = (0..starts.len()).filter(is_optimizer).collect();
        let mut launches: FxHashMap<_, Vec<_>> = FxHashMap::default();
        for work in trace.work() {
            let Some(call) = work.call() else { continue };
            let uploaded = match work.detail() {
                Detail::Copy(copy) if copy.direction == Direction::HostToDevice => Some(copy.bytes),
                _ => None,
            };
            launches.entry(call.thread()).or_default().push((call.start(), uploaded));
        }
        launches.values_mut().for_each(|launches| launches.sort_by_key(|(at, _)| *at));
        Self { trace, marks, starts, optimizers, launches }
    }

    /// Returns the category of memory that was freed by this call, if it was recorded, and at this time, if at all.
    pub(super) fn category(
        &self,
        allocated: Allocation<'_>,
        freed: Option<Allocation<'_>>,
        end: Option<Timestamp>,
    ) -> MemoryCategory {
        let Some(span) = allocated.span() else { return MemoryCategory::Unknown };
        if is_input(span) {
            return MemoryCategory::Inputs;
        }
        let phase = self.marks.phase(Some(span));
        let start = self.index_at(allocated.requested(), Some(phase));
        if phase == Phase::Forward && self.is_uploaded_to(allocated) {
            return MemoryCategory::Inputs;
        }
        let freed_in = freed.and_then(Allocation::span).map(|span| self.marks.phase(Some(span)));
        let end = freed.map(Allocation::requested).or(end);
        let last = end.map(|end| self.index_at(end, freed_in));
        let is_within = last == Some(start) && freed_in.is_none_or(|freed_in| freed_in == phase);
        match phase {
            Phase::Forward if is_within => MemoryCategory::Temporaries,
            Phase::Forward if end.is_none() && self.is_kept(allocated.requested()) => MemoryCategory::Parameters,
            Phase::Forward => MemoryCategory::Activations,
            Phase::Backward if is_within => MemoryCategory::Temporaries,
            Phase::Backward => {
                let next = self.optimizers.get(self.optimizers.partition_point(|&optimizer| optimizer <= start));
                let reaches = next.is_some_and(|next| last.is_none_or(|last| *next <= last));
                let is_gradient =
                    reaches || last.is_none() || freed_in == Some(Phase::Optimizer) || self.optimizers.is_empty();
                if is_gradient { MemoryCategory::Gradients } else { MemoryCategory::Temporaries }
            }
            Phase::Optimizer => {
                let is_temporary = match (end, self.step_at(allocated.requested())) {
                    (None, _) => false,
                    (Some(end), Some(step)) => end <= self.trace.steps()[step].end(),
                    (Some(_), None) => is_within,
                };
                if is_temporary { MemoryCategory::OptimizerTemporaries } else { MemoryCategory::OptimizerState }
            }
        }
    }

    /// The index of the phase at a moment. If one ends and another begins at that moment, it is the one given.
    fn index_at(&self, at: Timestamp, phase: Option<Phase>) -> usize {
        let last = self.starts.partition_point(|(start, _)| *start <= at).saturating_sub(1);
        let same = (0..=last).rev().take_while(|&index| self.starts.get(index + 1).is_none_or(|next| next.0 >= at));
        phase
            .and_then(|phase| { same }.find(|&index| self.starts.get(index).is_some_and(|it| it.1 == phase)))
            .unwrap_or(last)
    }

    /// The index of the step at a moment.
    fn step_at(&self, at: Timestamp) -> Option<usize> {
        let steps = self.trace.steps();
        let step = steps.partition_point(|step| step.start() <= at).checked_sub(1)?;
        (at < steps[step].end()).then_some(step)
    }

    /// Whether the window has a whole step after the one at this moment.
    fn is_kept(&self, at: Timestamp) -> bool {
        let ended = self.step_at(at).map_or(at, |step| self.trace.steps()[step].end());
        self.trace.steps().iter().any(|step| step.start() >= ended && !step.cut().end)
    }

    /// Whether the next thing that the allocating thread launches is a copy from the host into all of this memory.
    fn is_uploaded_to(&self, allocated: Allocation<'_>) -> bool {
        let Some(launches) = self.launches.get(&allocated.track().thread()) else { return false };
        let next = launches.get(launches.partition_point(|(at, _)| *at < allocated.at()));
        let bytes = allocated.bytes().unwrap_or(0);
        next.and_then(|(_, uploaded)| *uploaded)
            .is_some_and(|it| it > 0 && (it == bytes || it.checked_next_multiple_of(ROUNDING) == Some(bytes)))
    }
}

/// Whether a span is part of the input pipeline.
fn is_input(span: Span<'_>) -> bool {
    span.stack().any(|span| span.input_stage().is_some())
}
