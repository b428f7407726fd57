//! A change that a check has found.

use super::thresholds::Metric;
use std::fmt;

/// Something that is worse than in the baseline, or that may be.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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

impl fmt::Display for Problem {
    /// Writes a line, and an indented one for each reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        if let Some(location) = &self.location {
            write!(f, " ({location})")?;
        }
        writeln!(f)?;
        self.reasons.iter().try_for_each(|reason| writeln!(f, "  - {reason}"))
    }
}
