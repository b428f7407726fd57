//! The flight recorder's settings: how much of the recent past is kept, and when it is written.

use crate::{request::StepCondition, units};
use std::{fmt, str::FromStr, time::Duration};

/// A flight recorder: it records all the time, keeps the last steps in memory, and writes them when something happens.
///
/// ```
/// use kernspan::{Chrome, FlightRecorder, Profiler, Schedule};
///
/// # let runs = tempfile::tempdir().unwrap();
/// # let runs = runs.path();
/// let (layer, profiler) = Profiler::builder()
///     .schedule(Schedule::manual())
///     .flight_recorder(FlightRecorder::steps(50).on_slow_step("step_time > 3*median".parse()?))
///     .export(Chrome::to_dir(runs))
///     .build()?;
/// # drop(layer);
/// # profiler.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What is kept goes to the exporters, or into a folder of its own if it was [requested](crate::Profiler::write_recent)
/// so:
///
/// - on request;
/// - after a step that meets the [condition](Self::on_slow_step), with that step;
/// - when a thread panics, but no more than once in ten seconds;
/// - when a signal or a call of `exit` ends the process, with `save_on_exit` of [`ProfilerBuilder`] (feature
///   `signals`).
///
/// A run that ends as it should writes nothing of it.
///
/// There is at least as much as was asked for, unless the run is younger, and less than twice as much: it is recorded
/// in windows, of which the last two are kept. They are part of the profiler's
/// [`memory_limit_bytes`](crate::ProfilerBuilder::memory_limit_bytes): one that takes a third of it ends early. Where
/// the schedule or a request records, the flight recorder does not.
///
/// [`ProfilerBuilder`]: crate::ProfilerBuilder
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a flight recorder does nothing until it is given to `ProfilerBuilder::flight_recorder`"]
pub struct FlightRecorder {
    pub(crate) length: FlightLength,
    pub(crate) slow: Option<StepCondition>,
    pub(crate) gpu: bool,
}

/// How much a [`FlightRecorder`] keeps. As text, it is a number of steps, `100`, or a time, `10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlightLength {
    /// So many steps or more.
    Steps(u64),
    /// So much time or more, in whole steps.
    Duration(Duration),
}

impl FromStr for FlightLength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let steps = text.trim().parse().ok().map(Self::Steps);
        let length = steps.or_else(|| units::parse_duration(text.trim()).map(Self::Duration));
        length.ok_or_else(|| format!("expected a number of steps, or a time such as \"10s\", found {text:?}"))
    }
}

impl fmt::Display for FlightLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps(steps) => steps.fmt(f),
            Self::Duration(time) => write!(f, "{time:?}"),
        }
    }
}

impl From<FlightLength> for FlightRecorder {
    fn from(length: FlightLength) -> Self {
        Self { length, slow: None, gpu: false }
    }
}

impl FlightRecorder {
    /// Keeps this many steps or more. It must not be 0.
    pub fn steps(steps: u64) -> Self {
        FlightLength::Steps(steps).into()
    }

    /// Keeps this much time or more, in whole steps.
    pub fn duration(duration: Duration) -> Self {
        FlightLength::Duration(duration).into()
    }

    /// Writes what is kept after a step that meets this condition. By default, no step does.
    pub fn on_slow_step(mut self, condition: StepCondition) -> Self {
        self.slow = Some(condition);
        self
    }

    /// Sets whether GPU activity is recorded, too. By default, only the host's is: CUPTI would stay attached, which
    /// makes each launch take longer.
    pub fn gpu(mut self, record: bool) -> Self {
        self.gpu = record;
        self
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        match self.length {
            FlightLength::Steps(0) => Err("0 steps are to be kept: use 1 or more".to_owned()),
            FlightLength::Duration(Duration::ZERO) => Err("no time is to be kept".to_owned()),
            _ => Ok(()),
        }
    }
}
