//! The protocol that a running program is asked in: lines of JSON over a Unix socket.
//!
//! The program speaks first, with [`Reply::Hello`]. Each [`Request`] is a line and is answered with one line or more,
//! the last of which says how it ended. Requests of a connection are answered one after another. `docs/control.md` has
//! a session as it looks on the wire. [`Client`](super::Client) speaks it.
//!
//! Unknown members of a request are an error. Replies may get more members in later versions of the same protocol, so
//! those that a client does not know are ignored.

use crate::{
    analysis::Finding,
    request::{RecordRequest, Recorded},
    schedule::Phase,
    session::Status,
    trace::{Gpu, Metadata},
    units,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

/// The version of the protocol. It changes when a client of an earlier one would misunderstand a reply.
pub const PROTOCOL: u32 = 1;
/// The most bytes of a request, with its line end: enough for several paths of the longest kind.
pub const MAX_REQUEST: usize = 64 << 10;
/// The time between two states of [`Request::Watch`], unless it says otherwise.
pub const WATCH_EVERY: Duration = Duration::from_millis(500);
/// The shortest time between two states: five times as often as steps are looked at would show nothing new.
pub const WATCH_EVERY_MIN: Duration = Duration::from_millis(100);

/// A request to a program.
///
/// ```
/// use kernspan::control::protocol::{Record, Request};
///
/// let request: Request = serde_json::from_str(r#"{"request": "record", "steps": 10, "at_step": 40000}"#).unwrap();
/// let expected = Record { steps: Some(10), at_step: Some(40_000), ..Record::default() };
/// assert_eq!(request, Request::Record(expected));
/// let misspelt = serde_json::from_str::<Request>(r#"{"request": "record", "step": 10}"#);
/// assert!(misspelt.unwrap_err().to_string().contains("unknown field `step`"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Request {
    /// Asks for the state of the run: [`Reply::Status`].
    Status {},
    /// Asks for a window: [`Reply::Progress`] at each change and every second, then [`Reply::Recorded`].
    Record(Record),
    /// Closes the window that is open: [`Reply::Stopped`].
    Stop {},
    /// Asks who holds the memory of GPUs: [`Reply::Snapshot`].
    Snapshot {
        /// The folder for a file that PyTorch's viewer of memory reads. It must be absolute.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        out: Option<PathBuf>,
    },
    /// Replaces the schedule: [`Reply::Scheduled`].
    Schedule {
        /// The schedule, such as `wait=5,warmup=1,active=3,repeat=2` or `steps=100..110`.
        schedule: String,
    },
    /// Asks for the state of the run again and again: [`Reply::Live`], until the client hangs up.
    Watch {
        /// The time between two states in milliseconds, at least [`WATCH_EVERY_MIN`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        every_ms: Option<u64>,
    },
}

/// A request for a window. Either `steps` or `duration_ms` must be given, and at most one of `at_step` and `when`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Record {
    /// The number of steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// The time in milliseconds, up to the end of the step in which it has passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The first step, which must not have begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_step: Option<u64>,
    /// A condition on a step, after which the window begins: `step_time > 2*median`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The folder for the files, instead of the exporters of the program. It must be absolute, and is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<PathBuf>,
}

impl Record {
    /// Asks for this many steps, from the next one on.
    pub fn steps(steps: u64) -> Self {
        Self { steps: Some(steps), ..Self::default() }
    }

    /// Returns the request as the program makes it, or what is wrong with it.
    pub(super) fn to_request(&self) -> Result<RecordRequest, String> {
        let request = match (self.steps, self.duration_ms) {
            (Some(steps), None) => RecordRequest::steps(steps),
            (None, Some(millis)) => RecordRequest::duration(Duration::from_millis(millis)),
            _ => return Err("expected either steps or duration_ms".to_owned()),
        };
        let request = match (self.at_step, &self.when) {
            (None, None) => request,
            (Some(step), None) => request.at_step(step),
            (None, Some(condition)) => request.when(condition.parse()?),
            _ => return Err("expected at_step or when, not both".to_owned()),
        };
        request.check()?;
        match &self.out {
            None => Ok(request),
            Some(folder) if folder.is_absolute() => Ok(request.into_dir(folder)),
            Some(folder) => Err(format!("the folder {} is not absolute", folder.display())),
        }
    }
}

/// A line that the program sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reply {
    /// The first line of each connection.
    Hello(Hello),
    /// The request, or the connection, is refused, or the request failed.
    Error {
        /// The reason.
        message: String,
    },
    /// The state of the run.
    Status(RunStatus),
    /// How far a request for a window has come.
    Progress(RecordProgress),
    /// The window is written.
    Recorded(RecordedWindow),
    /// The answer to [`Request::Stop`].
    Stopped {
        /// Whether a window was open.
        closed: bool,
    },
    /// The answer to [`Request::Snapshot`].
    Snapshot(Snapshot),
    /// The answer to [`Request::Schedule`].
    Scheduled {
        /// The schedule, in words.
        schedule: String,
    },
    /// The state of the run, for those who watch it.
    Live(Box<Live>),
}

/// The first line of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The [version](PROTOCOL) of the protocol.
    pub protocol: u32,
    /// The version of kernspan in the program.
    pub version: String,
    /// The process id of the program.
    pub pid: u32,
}

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
pub(super) struct RunFacts {
    pub(super) metadata: Arc<Metadata>,
    pub(super) run: Option<String>,
}

impl RunStatus {
    pub(super) fn new(facts: &RunFacts, status: Status, gpu: &Gpu, steps_per_second: Option<f64>) -> Self {
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

/// How far a request for a window has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordProgress {
    /// The state of the window.
    pub state: RecordState,
    /// The current step of the run.
    pub step: u64,
}

/// The state of a window that was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RecordState {
    /// It is not open yet.
    Waiting,
    /// It is open.
    Recording,
    /// It is being written.
    Writing,
}

/// A window that was requested: [`Recorded`](super::Recorded) as it is sent.
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

impl std::fmt::Display for FindingSummary {
    /// Writes the title, and the time that could be saved.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [saving, step] = [self.saving_ns, self.step_ns].map(|nanos| units::time(Duration::from_nanos(nanos)));
        write!(f, "{}: saves about {saving} of {step} a step", self.title)
    }
}

/// Who holds the memory of GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Snapshot {
    /// The step in which it was taken.
    pub step: u64,
    /// The snapshot as text, a line for each GPU and for each of the largest holders.
    pub text: String,
    /// The file that was written, if one was asked for.
    pub file: Option<PathBuf>,
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
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Live, Number, Record, Reply, Request};

    fn request(text: &str) -> Result<Request, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn unknown_members_of_requests_are_errors() {
        assert_eq!(request(r#"{"request":"status"}"#), Ok(Request::Status {}));
        for wrong in [
            r#"{"request":"status","verbose":true}"#,
            r#"{"request":"record","steps":1,"stepz":2}"#,
            r#"{"request":"watch","every":1}"#,
            r#"{"request":"dance"}"#,
            r#"{"steps":1}"#,
            "[]",
        ] {
            assert!(request(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_record_that_makes_no_sense_is_refused() {
        let ten = Record::steps(10);
        assert!(ten.to_request().is_ok());
        let wrong = [
            Record::default(),
            Record { duration_ms: Some(1), ..ten.clone() },
            Record { at_step: Some(1), when: Some("step_time > 1s".into()), ..ten.clone() },
            Record { when: Some("soon".into()), ..ten.clone() },
            Record { out: Some("runs".into()), ..ten },
            Record::steps(0),
        ];
        for record in wrong {
            assert!(record.to_request().is_err(), "{record:?}");
        }
    }

    #[test]
    fn numbers_that_json_does_not_have_are_sent_as_text() {
        let numbers = [0.25, f64::INFINITY, f64::NEG_INFINITY].map(Number);
        let mut live = Live::default();
        live.counters.extend(["a", "b", "c"].map(String::from).into_iter().zip(numbers));
        let text = serde_json::to_string(&Reply::Live(Box::new(live.clone()))).unwrap();
        assert!(text.contains(r#""counters":{"a":0.25,"b":"inf","c":"-inf"}"#), "{text}");
        assert_eq!(serde_json::from_str::<Reply>(&text).unwrap(), Reply::Live(Box::new(live)));
        let nan: Number = serde_json::from_str(&serde_json::to_string(&Number(f64::NAN)).unwrap()).unwrap();
        assert!(nan.0.is_nan());
    }

    #[test]
    fn replies_may_have_more_members() {
        let later = r#"{"reply":"status","program":"train","colour":"blue"}"#;
        assert!(matches!(serde_json::from_str(later), Ok(Reply::Status(status)) if status.program == "train"));
    }
}
