//! The traces of a run, of its windows and of its steps, and whether they are sampled.

use crate::ids::{IdKind, Parent, SpanKey, TraceId};
use kernspan::{
    export::RunId,
    trace::{Metadata, Timestamp},
};

/// The ids of a run and of its steps. Each step of each rank has its own trace, which is linked to the span of the run.
#[derive(Clone, Debug)]
pub(crate) struct RunTrace {
    /// The trace that contains the run's span.
    pub(crate) trace: TraceId,
    /// The run's span, on this rank.
    pub(crate) span: SpanKey,
    /// The id from which the traces of steps are derived.
    base: TraceId,
    pub(crate) parent: Option<Parent>,
    rank: u32,
    sampler: Sampler,
}

/// The trace of a step, or of everything outside the steps of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepTrace {
    pub(crate) trace: TraceId,
    /// The root span.
    pub(crate) root: SpanKey,
}

impl RunTrace {
    /// Derives the ids of the run to which this process belongs as a rank.
    ///
    /// All ranks derive the same ids from the parent and the launcher's name for the run. In a run of one rank, or
    /// without either, the host, the process and the start distinguish the run from others.
    pub(crate) fn new(
        metadata: &Metadata,
        start: Timestamp,
        id: Option<&RunId>,
        parent: Option<Parent>,
        sampler: Sampler,
    ) -> Self {
        let name = id.map_or_else(String::new, ToString::to_string);
        let is_shared = metadata.world_size > 1 && (parent.is_some() || !name.is_empty());
        let alone = format!("{} {} {}", metadata.host, metadata.pid, start.as_unix_nanos());
        let run = TraceId::of_text(&format!("{name} {}", if is_shared { "" } else { &alone }));
        let (trace, base) = parent.map_or((run, run), |parent| (parent.trace, run.under(parent)));
        let span = base.span(IdKind::RunSpan, metadata.rank.into());
        Self { trace, base, span, parent, rank: metadata.rank, sampler }
    }

    /// Whether the run's own span is sent.
    pub(crate) fn is_sampled(&self) -> bool {
        self.sampler.keeps(self.trace, self.parent)
    }

    /// The `traceparent` of the run's span.
    pub(crate) fn traceparent(&self) -> String {
        format!("00-{:?}-{:?}-{:02x}", self.trace, self.span, u8::from(self.is_sampled()))
    }

    /// The trace of a step; `None` if it is not sampled.
    pub(crate) fn step(&self, number: u64) -> Option<StepTrace> {
        self.sampled(self.step_ids(number))
    }

    /// The trace of everything outside the steps of a window; `None` if it is not sampled.
    pub(crate) fn window(&self, index: u32) -> Option<StepTrace> {
        self.sampled(self.window_ids(index))
    }

    /// The same as [`step`](Self::step), sampled or not.
    pub(crate) fn step_ids(&self, number: u64) -> StepTrace {
        self.ids(IdKind::Step, number)
    }

    /// The same as [`window`](Self::window), sampled or not.
    pub(crate) fn window_ids(&self, index: u32) -> StepTrace {
        self.ids(IdKind::Window, index.into())
    }

    fn ids(&self, kind: IdKind, number: u64) -> StepTrace {
        let trace = self.base.derive(kind, [number, self.rank.into()]);
        StepTrace { trace, root: trace.span(IdKind::Root, 0) }
    }

    fn sampled(&self, step: StepTrace) -> Option<StepTrace> {
        self.sampler.keeps(step.trace, self.parent).then_some(step)
    }

    /// Whether children of another layer's span are sent. They are not if that span is not, since nobody would see
    /// them.
    pub(crate) fn sends_under(&self, parent: Parent) -> bool {
        parent.sampled && self.sampler.keeps(parent.trace, Some(parent))
    }
}

/// Decides which traces are sent, as one of OpenTelemetry's samplers does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sampler {
    /// Whether the run's parent decides, if it has one.
    parent_based: bool,
    /// The ratio of traces that is sent otherwise, from 0 to 1.
    share: f64,
}

impl Default for Sampler {
    /// `parentbased_always_on`.
    fn default() -> Self {
        Self { parent_based: true, share: 1.0 }
    }
}

impl Sampler {
    /// The sampler with this name in `OTEL_TRACES_SAMPLER`; `share` is the argument of `traceidratio`.
    pub(crate) fn named(name: &str, share: f64) -> Option<Self> {
        let (name, parent_based) = name.strip_prefix("parentbased_").map_or((name, false), |name| (name, true));
        let share = match name {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => share,
            _ => return None,
        };
        Some(Self { parent_based, share })
    }

    /// Whether a trace is sent.
    pub(crate) fn keeps(self, trace: TraceId, parent: Option<Parent>) -> bool {
        match parent.filter(|_| self.parent_based) {
            Some(parent) => parent.sampled,
            None => trace.is_in(self.share),
        }
    }
}
