//! The check whether a run is worse than its baseline.

mod counts;
mod thresholds;
mod times;

pub use self::thresholds::{Metric, Threshold, ThresholdError, Thresholds};

use crate::{
    baseline::{Baseline, BaselineFinding},
    comparison::Comparison,
    text,
};
use serde::Serialize;
use std::fmt;

/// The result of comparing runs with their baseline: what is worse, and why.
///
/// Counts come first: launches, grids, copies, bytes, allocations and floating-point operations are the same in each
/// run of the same program, so even one more is always found, without noise. Times are adjusted for the machine's
/// [drift](crate::comparison::Drift), and are worse if the whole interval of their change is beyond the threshold. If
/// only part of it is, the check is inconclusive and reports how much more data would settle it. A step that takes five
/// times as long is worse whatever its interval. `Display` prints all of it.
///
/// ```
/// # fn example(run: &kernspan_check::Baseline) -> Result<(), Box<dyn std::error::Error>> {
/// use kernspan_check::{Baseline, Check, Thresholds};
///
/// let baseline = Baseline::from_json(&std::fs::read("baseline.json")?)?;
/// let check = Check::of(run, &baseline, &Thresholds::default().with("step=3%")?);
/// assert!(check.is_ok(), "{check}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// The problems: counts first, then times, the largest first.
    pub problems: Vec<Problem>,
    /// Times that may be worse by more than their threshold, without being certain.
    pub unclear: Vec<Problem>,
    /// Changes that are not problems.
    pub notes: Vec<String>,
    /// Everything that was compared.
    pub comparison: Comparison,
}

impl Check {
    /// Checks runs against their baseline: see [`check`](crate::check()), which uses the default thresholds.
    pub fn of(runs: &Baseline, baseline: &Baseline, thresholds: &Thresholds) -> Self {
        let comparison = Comparison::of(baseline, runs);
        let mut found = counts::check(&comparison, thresholds);
        found.add(times::check(&comparison, thresholds));
        let mut notes = comparison.notes.clone();
        notes.extend(found.notes);
        let is_new = |finding: &BaselineFinding| format!("new finding: {} [{}]", finding.title, finding.kind);
        notes.extend(comparison.new_findings.iter().map(is_new));
        Self { problems: found.problems, unclear: found.unclear, notes, comparison }
    }

    /// Returns whether the runs are worse than the baseline, are not, or whether that is uncertain.
    pub fn verdict(&self) -> CheckVerdict {
        match (self.problems.is_empty(), self.unclear.is_empty()) {
            (false, _) => CheckVerdict::Worse,
            (true, false) => CheckVerdict::Inconclusive,
            (true, true) => CheckVerdict::NotWorse,
        }
    }

    /// Returns whether nothing is known to be worse: the [verdict](Self::verdict) is not [`CheckVerdict::Worse`], but
    /// may be [`CheckVerdict::Inconclusive`].
    pub fn is_ok(&self) -> bool {
        self.verdict() != CheckVerdict::Worse
    }

    /// Returns the name of the span that has become worse the most, if known.
    pub fn worst_span(&self) -> Option<&str> {
        self.problems.iter().find_map(|problem| problem.path.last()).map(String::as_str)
    }
}

/// Checks runs against their baseline, with the default [`Thresholds`]. See the [crate](crate) for an example.
///
/// The order is: this run, against that baseline.
pub fn check(runs: &Baseline, baseline: &Baseline) -> Check {
    Check::of(runs, baseline, &Thresholds::default())
}

/// The result of a [`Check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CheckVerdict {
    /// A count or a time is worse by more than its threshold.
    Worse,
    /// Nothing is worse by more than its threshold.
    NotWorse,
    /// Nothing is known to be worse, but a time may be, or times could not be compared. More steps or runs would settle
    /// it.
    Inconclusive,
}

impl fmt::Display for CheckVerdict {
    /// Writes `worse than the baseline`, `not worse than the baseline` or `inconclusive against the baseline`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Worse => "worse than the baseline",
            Self::NotWorse => "not worse than the baseline",
            Self::Inconclusive => "inconclusive against the baseline",
        })
    }
}

/// Something that is worse than in the baseline, or may be.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// The quantity.
    pub metric: Metric,
    /// The names of the spans, from the outside in; empty for the whole step.
    pub path: Vec<String>,
    /// The place in the source of the innermost of them, as `file:line`.
    pub location: Option<String>,
    /// One sentence: what has changed, and by how much.
    pub text: String,
    /// The changes that explain it, a sentence each.
    pub reasons: Vec<String>,
}

/// The findings of one part of a check.
#[derive(Default)]
struct Found {
    problems: Vec<Problem>,
    unclear: Vec<Problem>,
    notes: Vec<String>,
}

impl Found {
    fn add(&mut self, other: Self) {
        self.problems.extend(other.problems);
        self.unclear.extend(other.unclear);
        self.notes.extend(other.notes);
    }
}

impl fmt::Display for Problem {
    /// Writes one line, followed by an indented line for each reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        if let Some(location) = &self.location {
            write!(f, " ({location})")?;
        }
        writeln!(f)?;
        self.reasons.iter().try_for_each(|reason| writeln!(f, "  - {reason}"))
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { before, after, step, whole_step, .. } = &self.comparison;
        let plural = |count: u64, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        write!(f, "{}: ", self.verdict())?;
        write!(f, "{} of {}, ", plural(after.runs, "run"), plural(after.steps, "step"))?;
        writeln!(f, "compared with {} of {}", plural(before.runs, "run"), plural(before.steps, "step"))?;
        self.problems.iter().try_for_each(|problem| write!(f, "worse: {problem}"))?;
        self.unclear.iter().try_for_each(|problem| write!(f, "cannot tell: {problem}"))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))?;
        let (was, is) = (step.before.value, step.after.value);
        if was > 0.0 || is > 0.0 {
            let change = text::percent(whole_step.change.value, was);
            writeln!(f, "a step takes {}, before {} ({change})", text::time(is), text::time(was))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
