//! The traces of a run: one for each step and rank, each linked to the run.

use super::{
    ids::{Of, Parent, SpanKey, TraceId},
    sampling::Sampler,
};
use crate::{
    export::RunId,
    trace::{Metadata, Timestamp},
};

/// The run, as traces know it.
#[derive(Clone, Debug)]
pub(super) struct RunTrace {
    /// The trace that the run itself is a span of.
    pub(super) trace: TraceId,
    /// That span, of this rank.
    pub(super) span: SpanKey,
    /// What the steps' traces are derived of.
    base: TraceId,
    pub(super) parent: Option<Parent>,
    rank: u32,
    sampler: Sampler,
}

/// The trace of a step, or of a window without any, and the span at its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepTrace {
    pub(super) trace: TraceId,
    pub(super) root: SpanKey,
}

impl RunTrace {
    /// The run that this process is a rank of. All its ranks know it by its parent, or by what their launcher calls it. Where there are no others to
    /// agree with, it is told from other runs by when it began.
    pub(super) fn new(metadata: &Metadata, start: Timestamp, parent: Option<Parent>, sampler: Sampler) -> Self {
        let said = RunId::from_env().map_or_else(String::new, |id| id.to_string());
        let known = metadata.world_size > 1 && (parent.is_some() || !said.is_empty());
        let alone = format!("{} {} {}", metadata.host, metadata.pid, start.as_unix_nanos());
        let run = TraceId::of_text(&format!("{said} {}", if known { "" } else { &alone }));
        let (trace, base) = parent.map_or((run, run), |parent| (parent.trace, run.under(parent)));
        let span = base.span(Of::RunSpan, metadata.rank.into());
        Self { trace, base, span, parent, rank: metadata.rank, sampler }
    }

    /// Whether the run's own span is sent.
    pub(super) fn is_sampled(&self) -> bool {
        self.sampler.keeps(self.trace, self.parent)
    }

    /// The run's span, for others to be its children.
    pub(super) fn traceparent(&self) -> String {
        format!("00-{:?}-{:?}-{:02x}", self.trace, self.span, u8::from(self.is_sampled()))
    }

    /// The trace of a step; none if it is not sampled.
    pub(super) fn step(&self, number: u64) -> Option<StepTrace> {
        self.sampled(self.step_ids(number))
    }

    /// The trace of a window, for what is in no step.
    pub(super) fn window(&self, index: u32) -> Option<StepTrace> {
        self.sampled(self.window_ids(index))
    }

    /// As [`step`](Self::step), sampled or not.
    pub(super) fn step_ids(&self, number: u64) -> StepTrace {
        self.of(Of::Step, number)
    }

    pub(super) fn window_ids(&self, index: u32) -> StepTrace {
        self.of(Of::Window, index.into())
    }

    fn of(&self, of: Of, number: u64) -> StepTrace {
        let trace = self.base.derive(of, [number, self.rank.into()]);
        StepTrace { trace, root: trace.span(Of::Root, 0) }
    }

    fn sampled(&self, step: StepTrace) -> Option<StepTrace> {
        self.sampler.keeps(step.trace, self.parent).then_some(step)
    }

    /// Whether what is under a span of another's is sampled: not if that is not, as nobody would see it.
    pub(super) fn sends_under(&self, parent: Parent) -> bool {
        parent.sampled && self.sampler.keeps(parent.trace, Some(parent))
    }
}
