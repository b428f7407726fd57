//! The state of the terminal that shows a running program.

use super::gpus::GpuReading;
use kernspan::control::protocol::{Live, RecordProgress, RecordState, RecordedWindow};
use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    time::Duration,
};

/// The state of the screen.
#[derive(Debug, Default)]
pub(super) struct View {
    /// The latest state of the run.
    pub(super) live: Live,
    /// The durations of the last steps, in nanoseconds, oldest first.
    pub(super) steps: VecDeque<u64>,
    /// The latest values of each counter, oldest first.
    pub(super) counters: BTreeMap<String, VecDeque<f64>>,
    pub(super) gpus: Vec<GpuReading>,
    /// A line about the last request or problem.
    pub(super) message: Option<String>,
    /// The page of the last window that was requested here.
    pub(super) page: Option<PathBuf>,
    /// Whether a window was requested here and is not written yet.
    pub(super) asking: bool,
    pub(super) shows_help: bool,
    /// Why the program cannot be watched any more.
    pub(super) ended: Option<String>,
}

/// The durations of the steps that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepTimes {
    pub(super) median: Duration,
    pub(super) p95: Duration,
    pub(super) longest: Duration,
}

impl View {
    /// The number of steps and of values of counters that are kept: as many as a wide terminal has columns.
    const KEPT: usize = 400;

    /// Takes the next state of the run.
    pub(super) fn take(&mut self, live: Live) {
        for step in &live.steps {
            push(&mut self.steps, step.duration_ns);
        }
        for (name, value) in &live.counters {
            push(self.counters.entry(name.clone()).or_default(), value.0);
        }
        if live.status.ended {
            self.ended = Some("the run has ended".to_owned());
        }
        self.live = live;
    }

    /// Takes the progress of a request.
    pub(super) fn progress(&mut self, progress: RecordProgress) {
        let state = match progress.state {
            RecordState::Waiting => "waiting for the next step",
            RecordState::Recording => "recording",
            _ => "writing",
        };
        self.message = Some(format!("{state}, step {}", progress.step));
    }

    /// Takes the answer to a request.
    pub(super) fn answered(&mut self, answer: Result<RecordedWindow, String>) {
        self.asking = false;
        self.message = Some(match answer {
            Ok(recorded) => {
                let page = recorded.files.iter().find(|file| file.extension().is_some_and(|end| end == "html"));
                self.page = page.cloned().or_else(|| self.page.take());
                let steps = match recorded.first_step {
                    Some(first) if recorded.steps == 1 => format!("step {first}"),
                    Some(first) => format!("steps {first} to {}", first + recorded.steps - 1),
                    None => "no step".to_owned(),
                };
                let failed = recorded.failures.first().map(|failure| format!("; {failure}")).unwrap_or_default();
                match page {
                    Some(page) => format!("recorded {steps}: {}{failed}", shown(page)),
                    None => format!("recorded {steps}{failed}"),
                }
            }
            Err(problem) => problem,
        });
    }

    /// Returns the times of the steps that are shown, if there are any.
    pub(super) fn step_times(&self) -> Option<StepTimes> {
        let mut sorted: Vec<u64> = self.steps.iter().copied().collect();
        sorted.sort_unstable();
        let longest = *sorted.last()?;
        let at = |share: f64| Duration::from_nanos(sorted[((sorted.len() - 1) as f64 * share) as usize]);
        Some(StepTimes { median: at(0.5), p95: at(0.95), longest: Duration::from_nanos(longest) })
    }
}

/// Returns a path as it is from the current folder on.
pub(super) fn shown(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let inside = here.as_deref().and_then(|here| path.strip_prefix(here).ok());
    inside.unwrap_or(path).display().to_string()
}

/// Adds a value, and drops the oldest if there are too many.
fn push<T>(values: &mut VecDeque<T>, value: T) {
    if values.len() == View::KEPT {
        values.pop_front();
    }
    values.push_back(value);
}
