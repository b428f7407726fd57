//! The protocol that a running program is asked in: lines of JSON over a Unix socket.
//!
//! The program speaks first, with [`Reply::Hello`]. Each [`Request`] is a line and is answered with one line or more,
//! the last of which says how it ended. Requests of a connection are answered one after another. `docs/control.md` has
//! a session as it looks on the wire. [`Client`](super::Client) speaks it.
//!
//! Unknown members of a request are an error. Replies may get more members in later versions of the same protocol, so
//! those that a client does not know are ignored.

mod state;

pub use self::state::{
    FindingSummary, LastWindow, Live, LiveSpan, LiveStep, Number, RecordedWindow, RunStatus, WindowSpan,
};
pub(super) use self::state::{RunFacts, nanos};

use crate::request::RecordRequest;
use serde::{Deserialize, Serialize};
use std::{path::PathBuf, time::Duration};

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

/// A request for a window. Either `steps`, `duration_ms` or `recent` must be given, and at most one of `at_step` and
/// `when`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Record {
    /// The number of steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// The time in milliseconds, up to the end of the step in which it has passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Whether to write what the [flight recorder](crate::FlightRecorder) has kept, instead of steps to come.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub recent: bool,
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
        let request = match (self.steps, self.duration_ms, self.recent) {
            (Some(steps), None, false) => RecordRequest::steps(steps),
            (None, Some(millis), false) => RecordRequest::duration(Duration::from_millis(millis)),
            (None, None, true) if self.at_step.is_none() && self.when.is_none() => RecordRequest::recent(),
            _ => return Err("expected either steps, duration_ms or recent".to_owned()),
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
