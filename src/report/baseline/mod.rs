//! Statistics of runs, to compare other runs with.

mod count_range;
#[cfg(feature = "read")]
mod json;
mod machine;
mod run;
mod span;
mod times;

#[cfg(feature = "read")]
pub use self::json::BaselineError;
pub use self::{
    count_range::CountRange,
    machine::Machine,
    run::{BaselineKernel, BaselineRun},
    span::BaselineSpan,
    times::Times,
};

use super::findings::Findings;
use crate::{
    analysis::{Analysis, Finding, SpanFlops},
    trace::Trace,
};
use std::time::Duration;

/// Statistics of one or several runs, to compare others with: steps, spans, counts, kernels, memory and findings.
///
/// [`Report::baseline`](crate::Report::baseline) returns that of a run, [`Baseline::of`] that of traces. With the
/// feature `read` it can be written to a small JSON file and read back; the command `kernspan baseline` does the same.
/// [`Comparison`](super::Comparison) compares two of them, and [`Report::check`](crate::Report::check) says whether a
/// run is worse than its baseline.
///
/// ```
/// # fn example(yesterday: &[kernspan::Trace], today: &[kernspan::Trace]) {
/// use kernspan::report::{Baseline, Comparison};
///
/// let comparison = Comparison::of(&Baseline::of(yesterday), &Baseline::of(today));
/// println!("{comparison}");
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(any(feature = "read", feature = "serde"), derive(serde::Serialize))]
#[cfg_attr(feature = "read", derive(serde::Deserialize))]
#[cfg_attr(feature = "read", serde(default))]
#[non_exhaustive]
pub struct Baseline {
    /// The version of the format: see [`Self::FORMAT`].
    pub format: u32,
    /// The version of kernspan that made it.
    pub kernspan: String,
    /// The runs.
    pub runs: Vec<BaselineRun>,
    /// The findings of all runs, by the time that they would save.
    pub findings: Vec<BaselineFinding>,
    /// The number of runs that are left out, since there are more than [`Self::RUNS`].
    pub left_out: u64,
}

/// A finding of the runs of a baseline: see [`Finding`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(any(feature = "read", feature = "serde"), derive(serde::Serialize))]
#[cfg_attr(feature = "read", derive(serde::Deserialize))]
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
    /// The time that a step would likely be shorter by.
    pub saving: Duration,
}

impl Baseline {
    /// The version of the format that this version of kernspan writes.
    pub const FORMAT: u32 = 1;
    /// The most runs that are kept.
    pub const RUNS: usize = 64;
    /// The most findings that are kept.
    const FINDINGS: usize = 100;

    /// Returns the statistics of these windows. Those of one process are one run.
    pub fn of<'a>(windows: impl IntoIterator<Item = &'a Trace>) -> Self {
        let mut windows: Vec<_> = windows.into_iter().collect();
        windows.sort_by_key(|window| (window.start(), window.window()));
        let (mut baseline, mut findings) = (Self::default(), Findings::default());
        for window in windows {
            baseline.add(window, &SpanFlops::of(window));
            findings.add(&Analysis::of(window));
        }
        baseline.with_findings(&findings.merged())
    }

    /// Adds a window, but for its findings.
    pub(super) fn add(&mut self, trace: &Trace, flops: &SpanFlops) {
        let run = match self.runs.iter().rposition(|run| run.goes_on_in(trace)) {
            Some(run) => run,
            None if self.runs.len() >= Self::RUNS => {
                self.left_out = self.left_out.saturating_add(1);
                return;
            }
            None => {
                self.runs.push(BaselineRun::new(trace));
                self.runs.len() - 1
            }
        };
        self.runs[run].add(trace, flops);
    }

    /// Returns it with these findings, as made by this version of kernspan.
    pub(super) fn with_findings(mut self, findings: &[Finding]) -> Self {
        let finding = |finding: &Finding| BaselineFinding {
            kind: finding.kind.as_str().to_owned(),
            title: finding.title.clone(),
            path: finding.path.clone(),
            location: finding.location.clone(),
            saving: finding.saving.likely,
        };
        self.findings = findings.iter().take(Self::FINDINGS).map(finding).collect();
        Self { format: Self::FORMAT, kernspan: env!("CARGO_PKG_VERSION").to_owned(), ..self }
    }

    /// Adds the runs of another baseline, and the findings that this one does not have.
    pub fn merge(&mut self, other: Self) {
        let room = Self::RUNS.saturating_sub(self.runs.len());
        let more = other.runs.len().saturating_sub(room) as u64;
        self.left_out = self.left_out.saturating_add(other.left_out).saturating_add(more);
        self.runs.extend(other.runs.into_iter().take(room));
        for finding in other.findings {
            let is_same = |it: &BaselineFinding| it.kind == finding.kind && it.path == finding.path;
            if self.findings.len() < Self::FINDINGS && !self.findings.iter().any(is_same) {
                self.findings.push(finding);
            }
        }
    }

    /// Says which kind of machine the runs were on, where the hosts' names differ from run to run, as in CI.
    pub fn set_machine_kind(&mut self, kind: &str) {
        self.runs.iter_mut().for_each(|run| run.machine.kind = Some(kind.to_owned()));
    }

    /// Returns the number of whole steps of all runs.
    pub fn steps(&self) -> u64 {
        self.runs.iter().fold(0, |sum, run| sum.saturating_add(run.steps))
    }
}

#[cfg(test)]
mod tests;
