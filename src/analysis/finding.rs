//! Findings: what makes a step slow, and what a change would save.

use super::step_time::StepTime;
use crate::{
    trace::{Step, Timestamp, Trace},
    units,
};
use std::{fmt, time::Duration};

/// A reason why steps take longer than they need to, and the time that a change would save.
///
/// [`Analysis::findings`](super::Analysis::findings) returns those of a window,
/// [`Report::findings`](crate::Report::findings) those of a run.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// The kind of problem.
    pub kind: FindingKind,
    /// One sentence: what is slow, and where.
    pub title: String,
    /// The names of the spans around the place, from the outside in; empty if it is in no span.
    pub path: Vec<String>,
    /// The place in the source of the innermost of these spans, as `file:line`.
    pub location: Option<String>,
    /// The numbers that it follows from, a sentence each.
    pub evidence: Vec<String>,
    /// Some of the times to look at in the trace, the longest first.
    pub ranges: Vec<TimeRange>,
    /// The changes that would help, at least one; the first is the one that [`saving`](Self::saving) is about.
    pub remedies: Vec<Remedy>,
    /// The time that a step would be shorter by.
    pub saving: Saving,
    /// The time of a step as it is: [`StepTime::mean`](super::StepTime), the same in all findings of a list. Only
    /// findings about steps that are slower than others have the mean with outliers.
    pub step: Duration,
    /// The number of steps that were looked at.
    pub steps: u64,
    /// The time of a step that the title names, if it does, so that windows of a run can be added up.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) each: Option<Duration>,
}

/// A change that would help, and the time that it would save.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Remedy {
    /// The change, in words of the framework that the program uses.
    pub change: String,
    /// The time that a step would be shorter by.
    pub saving: Saving,
}

/// A stretch of time in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TimeRange {
    /// Its beginning.
    #[cfg_attr(feature = "serde", serde(serialize_with = "unix_nanos"))]
    pub start: Timestamp,
    /// Its end.
    #[cfg_attr(feature = "serde", serde(serialize_with = "unix_nanos"))]
    pub end: Timestamp,
    /// The number of the step in which it begins.
    pub step: Option<u64>,
    /// The time from the beginning of that step, or of the window if there is none, to its start.
    pub offset: Duration,
}

impl TimeRange {
    pub(super) fn new(trace: &Trace, start: Timestamp, end: Timestamp) -> Self {
        let step = trace.step_at(start).map(|id| &trace.steps()[id.index()]);
        let origin = step.map_or(trace.start(), Step::start);
        Self { start, end, step: step.map(Step::number), offset: start.since(origin) }
    }

    /// Returns how long it is.
    pub fn duration(&self) -> Duration {
        self.end.since(self.start)
    }
}

#[cfg(feature = "serde")]
fn unix_nanos<S: serde::Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(at.as_unix_nanos())
}

/// The time that a change would save in each step, by running the recorded steps again without the cause.
///
/// If no GPU activity was recorded, the bounds also cover the differences between steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Saving {
    /// The least that is to be expected.
    pub least: Duration,
    /// The most likely.
    pub likely: Duration,
    /// The most that is to be expected.
    pub most: Duration,
}

impl Saving {
    /// Returns a saving of which the bounds are in order.
    pub(crate) fn new(least: Duration, likely: Duration, most: Duration) -> Self {
        Self { least: least.min(likely), likely, most: most.max(likely) }
    }

    /// Returns no more than a step takes.
    pub(crate) fn within(self, step: Duration) -> Self {
        Self { least: self.least.min(step), likely: self.likely.min(step), most: self.most.min(step) }
    }
}

/// The kinds of problems that are found, each with a page of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum FindingKind {
    /// The step waits for its data.
    InputBound,
    /// The host waits for the GPU in the step: it reads a value, or synchronises.
    HostSync,
    /// Large results are copied to the host in the step.
    LargeReadback,
    /// Memory is copied from pages that are not locked.
    PageableCopy,
    /// Many small copies are made instead of one.
    TinyCopies,
    /// Copies and kernels take turns, although they could run at the same time.
    ExposedCopy,
    /// The host launches many short kernels, and the GPU waits for it.
    LaunchBound,
    /// The host computes between launches, and the GPU waits for it.
    HostWork,
    /// Memory is allocated or freed in the step by functions that wait for the GPU.
    BlockingAllocation,
    /// Kernels are loaded or compiled in the step.
    KernelLoading,
    /// Kernels are too small to fill the GPU: the batch is small.
    SmallGrid,
    /// Products of matrices are not computed by tensor cores.
    NoTensorCores,
    /// The GPU's clock is below its maximum while it works.
    LowClock,
    /// Some steps take longer than the others.
    OutlierSteps,
    /// A span does work of the same shapes twice in a step.
    RepeatedWork,
    /// The thread of the steps waits for a lock, for another thread, or for time to pass.
    HostWait,
    /// Threads that share the work of a step idle while one of them works.
    IdleThreads,
    /// A span is called with the same data again.
    RepeatedCalls,
    /// Element-wise kernels run one after another over the same data, where one kernel would do.
    UnfusedChain,
    /// Short kernels are launched for one tensor after another, where one launch could do for all of them.
    TensorByTensor,
    /// The same bytes are copied to the GPU in each step.
    SameBytesAgain,
    /// Kernels that exchange data between ranks run while nothing else does.
    ExposedCollective,
    /// One rank takes longer than the others, which wait for it.
    SlowRank,
    /// Some steps take longer while the CPUs are saturated.
    CpuSaturated,
    /// Some steps take longer while threads wait for a disk.
    DiskWait,
    /// Some steps take longer while the machine swaps.
    Swapping,
    /// Some steps take longer while clocks are lowered because of temperature or power.
    ClockThrottling,
    /// Some steps take longer while another process uses the GPU.
    SharedGpu,
}

impl FindingKind {
    /// Whether it is about steps that take longer than others. What these cost is not a part of a typical step.
    pub(super) fn is_about_slow_steps(self) -> bool {
        use FindingKind::{ClockThrottling, CpuSaturated, DiskWait, OutlierSteps, SharedGpu, Swapping};
        matches!(self, OutlierSteps | CpuSaturated | DiskWait | Swapping | ClockThrottling | SharedGpu)
    }

    /// Whether it is about what kernels do, so that the GPU's hardware counters say more.
    pub(super) fn is_about_kernels(self) -> bool {
        matches!(self, Self::SmallGrid | Self::NoTensorCores | Self::LowClock | Self::UnfusedChain)
    }

    /// All kinds.
    pub const ALL: [Self; 28] = [
        Self::InputBound,
        Self::HostSync,
        Self::LargeReadback,
        Self::PageableCopy,
        Self::TinyCopies,
        Self::ExposedCopy,
        Self::LaunchBound,
        Self::HostWork,
        Self::BlockingAllocation,
        Self::KernelLoading,
        Self::SmallGrid,
        Self::NoTensorCores,
        Self::LowClock,
        Self::OutlierSteps,
        Self::RepeatedWork,
        Self::HostWait,
        Self::IdleThreads,
        Self::RepeatedCalls,
        Self::UnfusedChain,
        Self::TensorByTensor,
        Self::SameBytesAgain,
        Self::ExposedCollective,
        Self::SlowRank,
        Self::CpuSaturated,
        Self::DiskWait,
        Self::Swapping,
        Self::ClockThrottling,
        Self::SharedGpu,
    ];

    /// The id, which does not change between releases, such as `host-sync`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InputBound => "input-bound",
            Self::HostSync => "host-sync",
            Self::LargeReadback => "large-readback",
            Self::PageableCopy => "pageable-copy",
            Self::TinyCopies => "tiny-copies",
            Self::ExposedCopy => "exposed-copy",
            Self::LaunchBound => "launch-bound",
            Self::HostWork => "host-work",
            Self::BlockingAllocation => "blocking-allocation",
            Self::KernelLoading => "kernel-loading",
            Self::SmallGrid => "small-grid",
            Self::NoTensorCores => "no-tensor-cores",
            Self::LowClock => "low-clock",
            Self::OutlierSteps => "outlier-steps",
            Self::RepeatedWork => "repeated-work",
            Self::HostWait => "host-wait",
            Self::IdleThreads => "idle-threads",
            Self::RepeatedCalls => "repeated-calls",
            Self::UnfusedChain => "unfused-chain",
            Self::TensorByTensor => "tensor-by-tensor",
            Self::SameBytesAgain => "same-bytes-again",
            Self::ExposedCollective => "exposed-collective",
            Self::SlowRank => "slow-rank",
            Self::CpuSaturated => "cpu-saturated",
            Self::DiskWait => "disk-wait",
            Self::Swapping => "swapping",
            Self::ClockThrottling => "clock-throttling",
            Self::SharedGpu => "shared-gpu",
        }
    }

    /// The problem in one sentence.
    pub fn summary(self) -> &'static str {
        match self {
            Self::InputBound => "The step waits for its data.",
            Self::HostSync => "The host waits for the GPU in the step: it reads a value, or synchronises.",
            Self::LargeReadback => "Large results are copied to the host in the step.",
            Self::PageableCopy => "Memory is copied from pages that are not locked.",
            Self::TinyCopies => "Many small copies are made instead of one.",
            Self::ExposedCopy => "Copies and kernels take turns, although they could run at the same time.",
            Self::LaunchBound => "The host launches many short kernels, and the GPU waits for it.",
            Self::HostWork => "The host computes between launches, and the GPU waits for it.",
            Self::BlockingAllocation => "Memory is allocated or freed by functions that wait for the GPU.",
            Self::KernelLoading => "Kernels are loaded or compiled in the step.",
            Self::SmallGrid => "Kernels are too small to fill the GPU: the batch is small.",
            Self::NoTensorCores => "Products of matrices are not computed by tensor cores.",
            Self::LowClock => "The GPU's clock is below its maximum while it works.",
            Self::OutlierSteps => "Some steps take longer than the others.",
            Self::RepeatedWork => "A span does work of the same shapes twice in a step.",
            Self::HostWait => "The thread of the steps waits for a lock, for another thread, or for time to pass.",
            Self::IdleThreads => "Threads that share the work of a step idle while one of them works.",
            Self::RepeatedCalls => "A span is called with the same data again.",
            Self::UnfusedChain => "Element-wise kernels run one after another, where one kernel would do.",
            Self::TensorByTensor => "Short kernels are launched for one tensor after another.",
            Self::SameBytesAgain => "The same bytes are copied to the GPU in each step.",
            Self::ExposedCollective => "Kernels that exchange data between ranks run while nothing else does.",
            Self::SlowRank => "One rank takes longer than the others, which wait for it.",
            Self::CpuSaturated => "Some steps take longer while the CPUs are saturated.",
            Self::DiskWait => "Some steps take longer while threads wait for a disk.",
            Self::Swapping => "Some steps take longer while the machine swaps.",
            Self::ClockThrottling => "Some steps take longer while clocks are lowered because of temperature or power.",
            Self::SharedGpu => "Some steps take longer while another process uses the GPU.",
        }
    }

    /// When it is reported, how its saving is computed, and what to change: its section of `docs/findings.md`, in
    /// Markdown and without the heading.
    ///
    /// ```
    /// use kernspan::analysis::FindingKind;
    ///
    /// assert!(FindingKind::NoTensorCores.explanation().starts_with("**Reported when**"));
    /// ```
    pub fn explanation(self) -> &'static str {
        const PAGE: &str = include_str!("../../docs/findings.md");
        let mut sections = PAGE.split("\n## ");
        let section = sections.find_map(|section| section.strip_prefix(self.as_str())?.strip_prefix('\n'));
        section.unwrap_or_default().trim()
    }

    /// The page of the documentation, as a path in the repository and in the package.
    pub fn page(self) -> String {
        format!("docs/findings.md#{}", self.as_str())
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The part of its saving that a change of the whole program counts for. Chosen on the trainings in
/// `tests/fixtures/trainings`, so that a fault at one place comes before launches that are slow as well.
const WHOLE_PROGRAM: f64 = 0.4;

impl Finding {
    /// A finding saves at least this part of a step.
    pub(crate) const LEAST_SHARE: f64 = 0.01;

    /// Whether it saves enough to be reported.
    pub(crate) fn is_notable(&self) -> bool {
        self.saving.likely.as_secs_f64() >= Self::LEAST_SHARE * self.step.as_secs_f64()
    }

    /// Sets the time of a step, which limits what can be saved.
    pub(crate) fn set_step(&mut self, step: &StepTime) {
        let of_all = self.kind.is_about_slow_steps();
        self.step = if of_all { step.with_outliers } else { step.mean }.max(Duration::from_nanos(1));
        self.saving = self.saving.within(self.step);
        self.remedies.iter_mut().for_each(|remedy| remedy.saving = remedy.saving.within(self.step));
    }

    /// Has the title and the evidence speak of another time of a step than the one of the window that they are from.
    pub(crate) fn restate(&mut self, each: Duration) {
        let Some(before) = self.each.replace(each).map(units::time) else { return };
        let now = units::time(each);
        for sentence in std::iter::once(&mut self.title).chain(&mut self.evidence) {
            *sentence = sentence.replacen(&before, &now, 1);
        }
    }

    /// The saving and the step that it is of, in words: `saves 2.11 ms of 10.3 ms a step (20.5 %)`.
    pub(crate) fn savings_text(&self) -> String {
        let (saving, step) = (units::time(self.saving.likely), units::time(self.step));
        let percent = units::percent(self.percent());
        match self.kind {
            FindingKind::OutlierSteps => {
                format!("saves {saving} of {step} a step, outliers included ({percent})")
            }
            _ => format!("saves {saving} of {step} a step ({percent})"),
        }
    }

    /// The change that [`saving`](Self::saving) is about.
    pub fn advice(&self) -> &str {
        self.remedies.first().map_or("", |remedy| &remedy.change)
    }

    /// The time by which findings are ordered: the likely saving, or two fifths of it if the remedy changes the whole
    /// program, as a graph or a larger batch does, or the machine. A change at one place that saves nearly half as much
    /// comes first.
    pub(crate) fn rank(&self) -> Duration {
        match self.kind {
            FindingKind::LaunchBound | FindingKind::SmallGrid | FindingKind::LowClock => {
                self.saving.likely.mul_f64(WHOLE_PROGRAM)
            }
            _ => self.saving.likely,
        }
    }

    /// The likely saving in percent of the typical step.
    pub fn percent(&self) -> f64 {
        super::gpu_usage::percent_of(self.saving.likely, self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::FindingKind;

    #[test]
    fn each_kind_has_a_section_of_the_documentation() {
        let page = include_str!("../../docs/findings.md");
        for kind in FindingKind::ALL {
            assert!(page.contains(&format!("\n## {kind}\n")), "{kind}");
            assert!(kind.page().ends_with(&format!("#{kind}")));
            let explanation = kind.explanation();
            let has = |words: &str| explanation.contains(words);
            assert!(has("**Reported when**") && has("**Saving**") && has("**Change**"), "{kind}: {explanation}");
        }
        let sections = page.lines().filter(|line| line.starts_with("## ")).count();
        // The first one says how savings are computed.
        assert_eq!(sections, FindingKind::ALL.len() + 1);
    }
}
