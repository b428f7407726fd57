//! The critical path: what a window would have been shorter without.

use super::simulation::{Segment, SegmentKind, Simulation};
use crate::trace::{ApiCallId, Span, SpanId, Timestamp, WorkId};
use std::time::Duration;

/// A part of the critical path: see [`Analysis::critical_path`](super::Analysis::critical_path).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathPart {
    /// Its beginning: the end of the part before it.
    pub start: Timestamp,
    /// Its end.
    pub end: Timestamp,
    /// The kind of time that passes.
    pub kind: PathKind,
    /// The span: the innermost one on the host, or that of the work on the GPU.
    pub span: Option<SpanId>,
    /// The work that runs or begins, if it is on the GPU or on its way there.
    pub work: Option<WorkId>,
    /// The API call, if the host is in one.
    pub call: Option<ApiCallId>,
}

/// The kind of a [`PathPart`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum PathKind {
    /// The host computes, or is in an API call that waits for nothing.
    Host,
    /// The host gets to know that the GPU, or another thread, has finished.
    Return,
    /// Work that the host has asked for is on its way to the GPU, which could begin it.
    Launch,
    /// The GPU is busy with work that was asked for before the window.
    Earlier,
    /// The GPU runs a kernel, a copy or a fill.
    Gpu,
    /// The GPU begins work that it has been asked for before, after other work has ended.
    Gap,
}

impl PathPart {
    /// Returns how long it takes.
    pub fn duration(&self) -> Duration {
        self.end.since(self.start)
    }
}

/// Returns the critical path of a window: see [`Analysis::critical_path`](super::Analysis::critical_path).
pub(super) fn critical_path(simulation: &Simulation<'_>) -> Vec<PathPart> {
    if simulation.is_host_only() {
        return Vec::new();
    }
    let trace = simulation.trace;
    let part = |segment: Segment| {
        let work = |task: usize| Some(simulation.tasks[task].work);
        let (kind, work, item) = match segment.kind {
            SegmentKind::Item(item) => (PathKind::Host, None, Some(item)),
            SegmentKind::Return(item) => (PathKind::Return, None, Some(item)),
            SegmentKind::Launch(task) => (PathKind::Launch, work(task), simulation.tasks[task].item),
            SegmentKind::Earlier(task) => (PathKind::Earlier, work(task), None),
            SegmentKind::Task(task) => (PathKind::Gpu, work(task), None),
            SegmentKind::Gap(task) => (PathKind::Gap, work(task), None),
        };
        let item = item.map(|item| &simulation.items[item]);
        let of_work = work.and_then(|work| trace.work_of(work).span()).map(Span::id);
        PathPart {
            start: segment.start,
            end: segment.end,
            kind,
            span: of_work.or(item.and_then(|item| item.span)),
            work,
            call: item.and_then(|item| item.call),
        }
    };
    simulation.critical_path().into_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::PathKind;
    use crate::{Trace, analysis::Analysis, trace::sample::gpu_trace};
    use std::time::Duration;

    /// Checks that parts follow each other from the first step on, and returns the time of each kind.
    #[track_caller]
    fn check(trace: &Trace) -> impl Fn(PathKind) -> Duration + use<> {
        let path = Analysis::of(trace).critical_path().to_vec();
        assert!(!path.is_empty());
        assert!(path.windows(2).all(|pair| pair[0].end == pair[1].start), "{path:#?}");
        assert!(path.iter().all(|part| part.start < part.end));
        move |kind| path.iter().filter(|part| part.kind == kind).map(super::PathPart::duration).sum()
    }

    #[test]
    fn parts_follow_each_other() {
        let times = check(&gpu_trace());
        assert!(times(PathKind::Gpu) > Duration::ZERO && times(PathKind::Host) > Duration::ZERO);
        assert_eq!(Analysis::of(&Trace::default()).critical_path(), []);
    }

    #[cfg(all(feature = "cuda", target_os = "linux"))]
    #[test]
    fn the_path_of_recorded_trainings_is_where_they_are_slow() {
        let fixture = |name: &str| {
            let path = format!("{}/tests/fixtures/faults/{name}.kernspan", env!("CARGO_MANIFEST_DIR"));
            crate::replay(std::fs::File::open(path).unwrap()).unwrap()
        };
        let share = |name: &str, kind| {
            let trace = fixture(name);
            let times = check(&trace);
            // If the GPU is behind, the first steps wait for work from before the window, which is left out.
            let kinds = [PathKind::Host, PathKind::Return, PathKind::Launch, PathKind::Gpu, PathKind::Gap];
            let all: Duration = kinds.into_iter().map(&times).sum();
            times(kind).as_secs_f64() / all.as_secs_f64()
        };
        // The host is the bottleneck, and then the GPU.
        assert!(share("host-work-faulty", PathKind::Host) > 0.9);
        assert!(share("input-faulty", PathKind::Host) > 0.9);
        assert!(share("f32-matmul-faulty", PathKind::Gpu) > 0.9);
        assert!(share("exposed-copy-faulty", PathKind::Gpu) > 0.9);
        // The GPU waits for the host between its waits for the GPU.
        assert!(share("scalar-read-faulty", PathKind::Return) > 0.05);
        // A graph: its kernels follow each other.
        assert!(share("launch-bound-repaired", PathKind::Host) < 0.2);
    }
}
