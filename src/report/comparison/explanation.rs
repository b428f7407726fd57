//! Explanations of the difference of the step.

use super::{count_change::CountChange, estimate::Estimate, span_change::SpanChange, text};
use std::fmt;

/// A part of the step's change: the self time of the spans of one path, on the host or on the GPU.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Explanation {
    /// The names of the path, from the outside in.
    pub path: Vec<String>,
    /// The place in the source, as `file:line`.
    pub location: Option<String>,
    /// Whether it is time of the GPU, not of the thread of the step.
    pub is_gpu: bool,
    /// The change of the time in a step, in nanoseconds.
    pub change: Estimate,
    /// The change of the whole step, in nanoseconds.
    pub step: f64,
    /// The counts of these spans that have changed.
    pub counts: Vec<CountChange>,
}

impl Explanation {
    /// The least part of the step that a change is, to be listed.
    const PART: f64 = 0.001;

    /// Returns the changes of self times, largest first. Those in the direction of the step's change come first.
    pub(super) fn all(spans: &[SpanChange], before: f64, step: f64) -> Vec<Self> {
        let of = |span: &SpanChange, is_gpu: bool| {
            let change = if is_gpu { span.gpu.change } else { span.host.change };
            let (path, location) = (span.path.clone(), span.location.clone());
            let is_large = change.value.abs() > Self::PART * before.abs();
            is_large.then(|| Self { path, location, is_gpu, change, step, counts: span.counts.clone() })
        };
        let mut all: Vec<_> = spans.iter().flat_map(|span| [of(span, false), of(span, true)]).flatten().collect();
        let is_against = |it: &Self| (it.change.value < 0.0) != (step < 0.0);
        all.sort_by(|a, b| {
            let size = |it: &Self| it.change.value.abs();
            is_against(a).cmp(&is_against(b)).then_with(|| size(b).total_cmp(&size(a)))
        });
        all
    }
}

impl fmt::Display for Explanation {
    /// Writes `train_step > attention: +0.420ms of +0.500ms, 12 more kernel launches a step (24 instead of 12)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = if self.is_gpu { " (GPU)" } else { "" };
        write!(f, "{}{on}: {}", self.path.join(" > "), text::signed(self.change.value))?;
        // Time of the GPU is no part of the thread's.
        if self.step != 0.0 && !self.is_gpu {
            write!(f, " of {}", text::signed(self.step))?;
        }
        self.counts.iter().try_for_each(|count| write!(f, ", {count}"))
    }
}
