//! A request for a window while the program runs, and what becomes of it.

mod step_condition;

pub use self::step_condition::StepCondition;

use crate::{
    analysis::Finding,
    trace::{Step, Trace},
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A request for a window of its own, whatever the schedule says.
///
/// ```
/// use kernspan::control::RecordRequest;
/// use std::time::Duration;
///
/// let next = RecordRequest::steps(10);
/// // All ranks of a run that are asked for the same steps record the same ones.
/// let later = RecordRequest::steps(10).at_step(40_000).into_dir("runs/step-40000");
/// let slow = RecordRequest::duration(Duration::from_secs(5)).when("step_time > 2*median".parse()?);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a request does nothing until it is given to `Control::record`"]
pub struct RecordRequest {
    pub(crate) length: RequestLength,
    pub(crate) start: RequestStart,
    pub(crate) folder: Option<PathBuf>,
}

/// How long a requested window is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestLength {
    Steps(u64),
    Duration(Duration),
    /// What the flight recorder has kept.
    Recent,
}

/// Where a requested window is to begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RequestStart {
    NextStep,
    AtStep(u64),
    When(StepCondition),
}

impl RecordRequest {
    /// Asks for this many steps, from the next one on. It must not be 0.
    pub fn steps(steps: u64) -> Self {
        Self { length: RequestLength::Steps(steps), start: RequestStart::NextStep, folder: None }
    }

    /// Asks for whole steps until this time has passed, from the next one on. A program that has no steps is recorded
    /// from now on.
    pub fn duration(duration: Duration) -> Self {
        Self { length: RequestLength::Duration(duration), start: RequestStart::NextStep, folder: None }
    }

    /// Asks for what the [flight recorder](crate::FlightRecorder) has kept, instead of steps to come.
    pub fn recent() -> Self {
        Self { length: RequestLength::Recent, start: RequestStart::NextStep, folder: None }
    }

    /// Sets the first step, counted from 0. It must not have begun.
    pub fn at_step(mut self, step: u64) -> Self {
        self.start = RequestStart::AtStep(step);
        self
    }

    /// Waits until a step meets this condition. With a [flight recorder](crate::FlightRecorder), the window is what
    /// that has kept, up to and with the slow step, whatever was asked for. Without one, or while another window is
    /// open, the slow step is over: the window begins with the step after it.
    pub fn when(mut self, condition: StepCondition) -> Self {
        self.start = RequestStart::When(condition);
        self
    }

    /// Writes the window into this folder, as a Chrome trace, a Perfetto trace and an HTML page. By default, it goes to
    /// the exporters of the profiler.
    pub fn into_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        match self.length {
            RequestLength::Recent if self.start != RequestStart::NextStep => {
                Err("what was kept has no step to begin with, nor a condition".to_owned())
            }
            RequestLength::Steps(0) => Err("a window of 0 steps was requested: ask for 1 or more".to_owned()),
            RequestLength::Duration(Duration::ZERO) => Err("a window of no duration was requested".to_owned()),
            _ => Ok(()),
        }
    }
}

/// A request that was made, and what has become of it.
///
/// ```
/// use kernspan::{Profiler, Schedule, control::Progress};
/// # use tracing_subscriber::prelude::*;
///
/// # let folder = tempfile::tempdir().unwrap();
/// let (layer, profiler) = Profiler::builder().schedule(Schedule::manual()).build()?;
/// # tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
/// let requested = profiler.record_next(2);
/// for _ in 0..4 {
///     tracing::info_span!("train_step").in_scope(|| ());
///     profiler.step();
/// }
/// let recorded = requested.wait().unwrap();
/// assert_eq!((recorded.first_step, recorded.steps), (Some(1), 2));
/// assert!(matches!(requested.progress(), Progress::Done(_)));
/// # });
/// # profiler.finish()?;
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Requested(Arc<Shared>);

/// How far a request has come.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// The window is not open yet.
    Waiting,
    /// The window is open.
    Recording,
    /// The window has closed, and is being written.
    Writing,
    /// The window is written.
    Done(Arc<Recorded>),
    /// There is no window, for this reason.
    Failed(String),
}

impl Progress {
    /// Returns whether nothing more will happen.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Failed(_))
    }
}

/// A window that was requested.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Recorded {
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
    pub findings: Vec<Finding>,
    /// The failures of exporters.
    pub failures: Vec<String>,
}

impl Recorded {
    /// Returns the facts of a window, without its files and findings.
    pub(crate) fn of(trace: &Trace) -> Self {
        Self {
            window: trace.window(),
            first_step: trace.steps().first().map(Step::number),
            steps: trace.steps().len() as u64,
            spans: trace.spans().len() as u64,
            gpu_work: trace.work().len() as u64,
            unattributed: trace.attributions().unattributed,
            ..Self::default()
        }
    }

    /// Adds the window that follows.
    pub(crate) fn extend(&mut self, next: Self) {
        self.window = next.window;
        self.first_step = self.first_step.or(next.first_step);
        self.steps += next.steps;
        self.spans += next.spans;
        self.gpu_work += next.gpu_work;
        self.unattributed += next.unattributed;
        // The page of all windows is one file.
        let new = next.files.into_iter().filter(|file| !self.files.contains(file)).collect::<Vec<_>>();
        self.files.extend(new);
        self.findings.extend(next.findings);
        self.failures.extend(next.failures);
    }
}

#[derive(Debug)]
struct Shared {
    folder: Option<PathBuf>,
    progress: Mutex<(Progress, bool)>,
    changed: Condvar,
}

impl Shared {
    /// The progress, and whether the request was withdrawn.
    fn lock(&self) -> MutexGuard<'_, (Progress, bool)> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, progress: Progress) {
        self.lock().0 = progress;
        self.changed.notify_all();
    }
}

impl Requested {
    /// Returns how far the request has come.
    pub fn progress(&self) -> Progress {
        self.0.lock().0.clone()
    }

    /// Waits until the window is written. Do not call it on the thread that steps: the steps would never come.
    ///
    /// # Errors
    ///
    /// The reason there is no window.
    pub fn wait(&self) -> Result<Arc<Recorded>, String> {
        let over = |state: &mut (Progress, bool)| !state.0.is_over();
        let state = self.0.changed.wait_while(self.0.lock(), over).unwrap_or_else(PoisonError::into_inner);
        match &state.0 {
            Progress::Done(recorded) => Ok(Arc::clone(recorded)),
            Progress::Failed(reason) => Err(reason.clone()),
            _ => Err("the window was lost".to_owned()),
        }
    }

    /// Waits until the progress differs from this one, for a certain time at most, and returns it.
    pub fn wait_for_change(&self, from: &Progress, at_most: Duration) -> Progress {
        let until = Instant::now() + at_most;
        let mut state = self.0.lock();
        while state.0 == *from {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.0.clone()
    }

    /// Withdraws the request, unless its window is open already.
    pub fn cancel(&self) {
        self.0.lock().1 = true;
    }

    /// Returns a request that is refused.
    pub(crate) fn refused(reason: impl Into<String>) -> Self {
        Self(Arc::new(Shared {
            folder: None,
            progress: Mutex::new((Progress::Failed(reason.into()), false)),
            changed: Condvar::new(),
        }))
    }
}

/// The other end of a [`Requested`], which travels with the window. If it is dropped before the window is written, the
/// request has failed.
#[derive(Debug)]
pub(crate) struct Ticket(Arc<Shared>);

impl Ticket {
    /// Why what the flight recorder has kept cannot be written, though there is one.
    pub(crate) const OTHER_WINDOW: &str = "the flight recorder is paused while another window is open";

    pub(crate) fn new(folder: Option<PathBuf>) -> (Self, Requested) {
        let progress = Mutex::new((Progress::Waiting, false));
        let shared = Arc::new(Shared { folder, progress, changed: Condvar::new() });
        (Self(Arc::clone(&shared)), Requested(shared))
    }

    /// The folder that the window is written to, if it is not the exporters'.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.0.folder.as_deref()
    }

    /// Whether the request was withdrawn.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.lock().1
    }

    pub(crate) fn opened(&self) {
        self.0.set(Progress::Recording);
    }

    pub(crate) fn closed(&self) {
        self.0.set(Progress::Writing);
    }

    pub(crate) fn done(self, recorded: Recorded) {
        self.0.set(Progress::Done(Arc::new(recorded)));
    }

    pub(crate) fn fail(self, reason: impl Into<String>) {
        self.0.set(Progress::Failed(reason.into()));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.0.lock().0.is_over() {
            self.0.set(Progress::Failed("nothing was recorded".to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Progress, Ticket};

    #[test]
    fn a_ticket_that_is_lost_fails_its_request() {
        let (ticket, requested) = Ticket::new(None);
        ticket.opened();
        assert_eq!(requested.progress(), Progress::Recording);
        drop(ticket);
        assert_eq!(requested.wait(), Err("nothing was recorded".to_owned()));
    }
}
