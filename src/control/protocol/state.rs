//! The messages about a run: its state, its windows, and what those who watch it are shown.

use crate::{
    analysis::Finding,
    request::Recorded,
    schedule::Phase,
    session::Status,
    trace::{Gpu, Metadata},
    units,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

/// The state of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RunStatus {
    /// The name of the program.
    pub program: String,
    /// The process id.
    pub pid: u32,
    /// The rank in a distributed run.
    pub rank: u32,
    /// The number of processes in the run.
    pub world_size: u32,
    /// The name of the host.
    pub host: String,
    /// The name that the launcher gave to the run, the same on all ranks.
    pub run: Option<String>,
    /// The version of kernspan in the program.
    pub version: String,
    /// The current step, counted from 0.
    pub step: u64,
    /// Whether the run is divided into steps.
    pub has_steps: bool,
    /// The steps in a second, over the last ten seconds.
    pub steps_per_second: Option<f64>,
    /// The time of a typical step that is not recorded, in nanoseconds.
    pub step_time_ns: Option<u64>,
    /// The phase of the current step: `wait`, `warmup`, `record` or `record_and_save`.
    pub phase: String,
    /// Whether a window is open.
    pub recording: bool,
    /// The schedule, in words.
    pub schedule: String,
    /// The number of windows that have closed.
    pub windows: u32,
    /// The number of those that are not exported yet.
    pub pending: u32,
    /// The number of requests whose windows have not begun.
    pub requests: u64,
    /// Whether GPUs are recorded, and if not, why not, in words.
    pub gpu: String,
    /// Whether GPUs are recorded.
    pub records_gpu: bool,
    /// Whether the run has ended.
    pub ended: bool,
}

/// The facts of a run that do not change.
#[derive(Debug)]
pub(in crate::control) struct RunFacts {
    pub(in crate::control) metadata: Arc<Metadata>,
    pub(in crate::control) run: Option<String>,
}

impl RunStatus {
    pub(in crate::control) fn new(facts: &RunFacts, status: Status, gpu: &Gpu, steps_per_second: Option<f64>) -> Self {
        let metadata = &facts.metadata;
        Self {
            program: metadata.process.clone(),
            pid: metadata.pid,
            rank: metadata.rank,
            world_size: metadata.world_size,
            host: metadata.host.clone(),
            run: facts.run.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            step: status.step,
            has_steps: status.has_steps,
            steps_per_second,
            step_time_ns: status.step_time.map(nanos),
            phase: phase_name(status.phase).to_owned(),
            recording: status.recording,
            schedule: status.schedule,
            windows: status.windows,
            pending: status.pending,
            requests: status.requests as u64,
            gpu: gpu.to_string(),
            records_gpu: gpu.is_available(),
            ended: status.ended,
        }
    }
}

/// A window that was requested: [`Recorded`] as it is sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RecordedWindow {
    /// The number of the window.
    pub window: u32,
    /// The number of its first step, if it has any.
    pub first_step: Option<u64>,
    /// The number of its steps.
    pub steps: u64,
    /// The number of its spans.
    pub spans: u64,
    /// The number of kernels, copies and fills on GPUs.
    pub gpu_work: u64,
    /// The number of those that belong to no span.
    pub unattributed: u64,
    /// The files that were written for it.
    pub files: Vec<PathBuf>,
    /// The findings of the window.
    pub findings: Vec<FindingSummary>,
    /// The failures of exporters.
    pub failures: Vec<String>,
}

impl From<&Recorded> for RecordedWindow {
    fn from(recorded: &Recorded) -> Self {
        Self {
            window: recorded.window,
            first_step: recorded.first_step,
            steps: recorded.steps,
            spans: recorded.spans,
            gpu_work: recorded.gpu_work,
            unattributed: recorded.unattributed,
            // A path that is not UTF-8 cannot be sent as it is.
            files: recorded.files.iter().map(|file| file.to_string_lossy().into_owned().into()).collect(),
            findings: recorded.findings.iter().map(FindingSummary::from).collect(),
            failures: recorded.failures.clone(),
        }
    }
}

/// A finding, in a few words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FindingSummary {
    /// The kind, as `kernspan explain` takes it.
    pub kind: String,
    /// One sentence: what is slow, and where.
    pub title: String,
    /// The time that a step would probably be shorter by, in nanoseconds.
    pub saving_ns: u64,
    /// The time of a step as it is, in nanoseconds.
    pub step_ns: u64,
}

impl From<&Finding> for FindingSummary {
    fn from(finding: &Finding) -> Self {
        Self {
            kind: finding.kind.as_str().to_owned(),
            title: finding.title.clone(),
            saving_ns: nanos(finding.saving.likely),
            step_ns: nanos(finding.step),
        }
    }
}

impl fmt::Display for FindingSummary {
    /// Writes the title, and the time that could be saved.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [saving, step] = [self.saving_ns, self.step_ns].map(|nanos| units::time(Duration::from_nanos(nanos)));
        write!(f, "{}: saves about {saving} of {step} a step", self.title)
    }
}

/// The state of a run for those who watch it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Live {
    /// The state of the run.
    pub status: RunStatus,
    /// The steps that have ended since the last state; in the first state, the last 256 steps.
    pub steps: Vec<LiveStep>,
    /// The latest value of each counter of the program, such as the loss.
    pub counters: BTreeMap<String, Number>,
    /// The bytes in use of each kind of memory: `memory.process`, `memory.gpu0` and others.
    pub memory: BTreeMap<String, u64>,
    /// The spans that were open in the last second, those with most time of their own first.
    pub spans: Vec<LiveSpan>,
    /// The number of times that threads were looked at in the last second.
    pub samples: u32,
    /// The last window, if there was one.
    pub last_window: Option<LastWindow>,
}

/// A step that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveStep {
    /// Its number.
    pub number: u64,
    /// Its duration in nanoseconds.
    pub duration_ns: u64,
    /// Whether it was recorded.
    pub recorded: bool,
}

/// A span by samples of the open spans of all threads: all spans of one name and place in the source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LiveSpan {
    /// The name.
    pub name: String,
    /// The place in the source, as `file:line`.
    pub location: Option<String>,
    /// The number of threads that were in the span, on average: 0.5 is half the time of one thread.
    pub threads: f64,
    /// The number of threads for which it was the innermost span, on average.
    pub self_threads: f64,
}

/// The last window that was recorded, by the schedule or by request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LastWindow {
    /// The number of the window.
    pub window: u32,
    /// The time since it closed, in milliseconds.
    pub age_ms: u64,
    /// The number of its first step, if it has any.
    pub first_step: Option<u64>,
    /// The number of its steps.
    pub steps: u64,
    /// The findings, those that save most first.
    pub findings: Vec<FindingSummary>,
    /// The spans with most time of their own.
    pub spans: Vec<WindowSpan>,
}

/// The spans of one name in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct WindowSpan {
    /// The name.
    pub name: String,
    /// The number of spans.
    pub count: u64,
    /// The time in them and not in spans inside, in nanoseconds.
    pub self_ns: u64,
    /// The time of the kernels, copies and fills that they caused, in nanoseconds.
    pub gpu_ns: u64,
}

/// A number as JSON has it, or else as a string: `"NaN"`, `"inf"` or `"-inf"`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "AnyNumber", into = "AnyNumber")]
pub struct Number(pub f64);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum AnyNumber {
    Finite(f64),
    Text(String),
}

impl From<AnyNumber> for Number {
    fn from(number: AnyNumber) -> Self {
        match number {
            AnyNumber::Finite(number) => Self(number),
            AnyNumber::Text(text) => Self(text.parse().unwrap_or(f64::NAN)),
        }
    }
}

impl From<Number> for AnyNumber {
    fn from(Number(number): Number) -> Self {
        if number.is_finite() { Self::Finite(number) } else { Self::Text(number.to_string()) }
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Wait => "wait",
        Phase::Warmup => "warmup",
        Phase::Record => "record",
        Phase::RecordAndSave => "record_and_save",
    }
}

/// Returns a duration in nanoseconds.
pub(in crate::control) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
