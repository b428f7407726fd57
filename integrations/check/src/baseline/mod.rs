//! Statistics of runs, for comparison with other runs.
//!
//! A [`Baseline`] has one [`BaselineRun`] per process, with the duration of each step, the time and the counts of the
//! spans of each path ([`BaselineSpan`]), and the launches of each kernel ([`BaselineKernel`]).

mod run;
mod span;

pub use self::{
    run::{BaselineKernel, BaselineRun, Machine},
    span::{BaselineSpan, Times},
};

use kernspan::{
    Trace,
    analysis::{Analysis, Finding},
    report::Findings,
};
use serde::{Deserialize, Serialize};
use std::{error, fmt, time::Duration};

/// Statistics of one or several runs, for comparison: steps, spans, counts, kernels, memory and findings.
///
/// [`Baseline::of`] computes them from traces, and a [`Recorder`](crate::Recorder) from the running program. They can
/// be written to a small JSON file and read back, as the command `kernspan baseline` does.
/// [`Comparison`](crate::Comparison) compares two baselines, and [`check`](crate::check()) decides whether one is worse
/// than the other.
///
/// ```
/// # fn example(yesterday: &[kernspan::Trace], today: &[kernspan::Trace]) {
/// use kernspan_check::{Baseline, Comparison};
///
/// let comparison = Comparison::of(&Baseline::of(yesterday), &Baseline::of(today));
/// println!("{comparison}");
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Baseline {
    /// The version of the format: see [`Self::FORMAT`].
    pub format: u32,
    /// The version of kernspan that created it.
    pub kernspan: String,
    /// The runs.
    pub runs: Vec<BaselineRun>,
    /// The findings of all runs, ordered by the time they would save.
    pub findings: Vec<BaselineFinding>,
    /// The number of runs left out because there are more than [`Self::RUNS`].
    pub left_out: u64,
}

/// A finding in the runs of a baseline: see [`Finding`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BaselineFinding {
    /// The id of its kind, such as `host-sync`.
    pub kind: String,
    /// One sentence: what is slow, and where.
    pub title: String,
    /// The names of the spans around the place, from the outside in.
    pub path: Vec<String>,
    /// The place in the source, as `file:line`.
    pub location: Option<String>,
    /// The likely saving per step.
    pub saving: Duration,
}

/// The reason a baseline cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum BaselineError {
    /// It is not JSON, or not a baseline.
    Json(serde_json::Error),
    /// It was written by a newer version of kernspan.
    Format {
        /// The version of its format.
        found: u32,
    },
    /// It is inconsistent.
    Invalid(&'static str),
}

impl Baseline {
    /// The format version that this version of kernspan writes.
    pub const FORMAT: u32 = 1;
    /// The maximum number of runs kept. Five to ten are enough for most checks; a file of 64 runs, with 12 spans and 20
    /// steps each, has 300 KB.
    pub const RUNS: usize = 64;
    /// The maximum number of findings kept.
    const FINDINGS: usize = 100;

    /// Returns the statistics of these windows. The windows of one process form one run.
    pub fn of<'a>(windows: impl IntoIterator<Item = &'a Trace>) -> Self {
        let mut windows: Vec<_> = windows.into_iter().collect();
        windows.sort_by_key(|window| (window.start(), window.window()));
        let mut builder = BaselineBuilder::default();
        windows.into_iter().for_each(|window| builder.add(&Analysis::of(window)));
        builder.baseline()
    }

    /// Adds the runs of another baseline, and the findings that this one does not have.
    pub fn merge(&mut self, other: Self) {
        let room = Self::RUNS.saturating_sub(self.runs.len());
        let more = other.runs.len().saturating_sub(room) as u64;
        self.left_out = self.left_out.saturating_add(other.left_out).saturating_add(more);
        self.runs.extend(other.runs.into_iter().take(room));
        for finding in other.findings {
            if self.findings.len() < Self::FINDINGS && !self.findings.iter().any(|it| it.is_same(&finding)) {
                self.findings.push(finding);
            }
        }
    }

    /// Sets the kind of machine that the runs were on, for hosts whose names differ between runs, as in CI.
    pub fn set_machine_kind(&mut self, kind: &str) {
        self.runs.iter_mut().for_each(|run| run.machine.kind = Some(kind.to_owned()));
    }

    /// Returns the number of whole steps in all runs.
    pub fn steps(&self) -> u64 {
        self.runs.iter().fold(0, |sum, run| sum.saturating_add(run.steps))
    }

    /// Returns the baseline as JSON.
    pub fn to_json(&self) -> String {
        // This fails only for maps whose keys are not strings.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a baseline written by [`to_json`](Self::to_json) or the command `kernspan baseline`.
    ///
    /// # Errors
    ///
    /// If it is not a baseline, or if a newer version of kernspan wrote it.
    pub fn from_json(json: &[u8]) -> Result<Self, BaselineError> {
        // serde would accept a list as the members of an object, in order.
        if json.trim_ascii_start().first() == Some(&b'[') {
            return Err(BaselineError::Invalid("it is a list"));
        }
        let mut baseline: Self = serde_json::from_slice(json).map_err(BaselineError::Json)?;
        match baseline.format {
            0 => return Err(BaselineError::Invalid("it has no format")),
            1..=Self::FORMAT => {}
            found => return Err(BaselineError::Format { found }),
        }
        baseline.runs.iter_mut().try_for_each(BaselineRun::validate)?;
        Ok(baseline)
    }
}

impl BaselineFinding {
    fn new(finding: &Finding) -> Self {
        Self {
            kind: finding.kind.as_str().to_owned(),
            title: finding.title.clone(),
            path: finding.path.clone(),
            location: finding.location.clone(),
            saving: finding.saving.likely,
        }
    }

    /// Returns whether it is of the same kind at the same place. Titles contain times, which differ between runs.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.kind, &self.path) == (&other.kind, &other.path)
    }
}

/// A baseline built window by window.
#[derive(Debug, Default)]
pub(crate) struct BaselineBuilder {
    runs: Vec<BaselineRun>,
    findings: Findings,
    left_out: u64,
}

impl BaselineBuilder {
    /// Adds a window: to its run, or as the first of a new one.
    pub(crate) fn add(&mut self, window: &Analysis<'_>) {
        self.findings.add(window);
        let known = self.runs.iter().rposition(|run| run.goes_on_in(window));
        let run = match known {
            Some(run) => run,
            None if self.runs.len() >= Baseline::RUNS => {
                self.left_out = self.left_out.saturating_add(1);
                return;
            }
            None => {
                self.runs.push(BaselineRun::new(window));
                self.runs.len() - 1
            }
        };
        self.runs[run].add(window);
    }

    /// Returns the baseline of the windows so far.
    pub(crate) fn baseline(&self) -> Baseline {
        let findings = self.findings.merged();
        Baseline {
            format: Baseline::FORMAT,
            // All crates of kernspan have the same version.
            kernspan: env!("CARGO_PKG_VERSION").to_owned(),
            runs: self.runs.clone(),
            findings: findings.iter().take(Baseline::FINDINGS).map(BaselineFinding::new).collect(),
            left_out: self.left_out,
        }
    }
}

impl fmt::Display for BaselineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "not a baseline: {error}"),
            Self::Format { found } => write!(
                f,
                "format {found} is from a newer version of kernspan; this version reads up to {}",
                Baseline::FORMAT
            ),
            Self::Invalid(reason) => write!(f, "not a baseline: {reason}"),
        }
    }
}

impl error::Error for BaselineError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Json(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
