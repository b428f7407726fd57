//! Baselines as JSON.

use super::{Baseline, run::BaselineRun, span::BaselineSpan, times::Times};
use std::{error, fmt};

/// The reason why a baseline cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum BaselineError {
    /// It is no JSON, or no baseline.
    Json(serde_json::Error),
    /// It was written by a newer version of kernspan.
    Format {
        /// The version of its format.
        found: u32,
    },
    /// It contradicts itself.
    Invalid(&'static str),
}

impl Baseline {
    /// Returns the baseline as JSON.
    pub fn to_json(&self) -> String {
        // Neither maps with other keys nor floating-point numbers can fail here.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a baseline that [`to_json`](Self::to_json) or the command `kernspan baseline` has written.
    ///
    /// # Errors
    ///
    /// If it is no baseline, or if a newer version of kernspan has written it.
    pub fn from_json(json: &[u8]) -> Result<Self, BaselineError> {
        // A list would be read as the members of an object, in their order.
        if json.trim_ascii_start().first() == Some(&b'[') {
            return Err(BaselineError::Invalid("it is a list"));
        }
        let mut baseline: Self = serde_json::from_slice(json).map_err(BaselineError::Json)?;
        match baseline.format {
            0 => return Err(BaselineError::Invalid("it has no format")),
            1..=Self::FORMAT => {}
            found => return Err(BaselineError::Format { found }),
        }
        baseline.runs.iter_mut().try_for_each(mend)?;
        Ok(baseline)
    }
}

fn mend(run: &mut BaselineRun) -> Result<(), BaselineError> {
    if run.spans.iter().enumerate().any(|(index, span)| span.parent.is_some_and(|parent| parent >= index)) {
        return Err(BaselineError::Invalid("a span is called from a later one"));
    }
    let spans = run.spans.iter_mut().flat_map(BaselineSpan::times_mut);
    spans.chain([&mut run.durations]).for_each(Times::mend);
    run.stride = run.stride.max(1);
    Ok(())
}

impl fmt::Display for BaselineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "not a baseline: {error}"),
            Self::Format { found } => write!(
                f,
                "format {found} is of a newer version of kernspan; this version reads up to {}",
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
