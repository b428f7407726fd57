//! Explanations of the change in the step.

use super::{critical_step, estimate::Estimate, spans::SpanChange, text};
use crate::counts::CountChange;
use serde::Serialize;
use std::fmt;

/// A part of the step's change: the self time of the spans of one path, on the host or on the GPU.
///
/// With GPU activity, only time on the [critical path](kernspan::analysis::Analysis::critical_path) counts. The host
/// waiting for the GPU is not an explanation, but the work it waits for is. What is hidden by something else explains
/// nothing.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The names of the path, from the outside in.
    pub path: Vec<String>,
    /// The place in the source, as `file:line`.
    pub location: Option<String>,
    /// Whether it is GPU time.
    pub is_gpu: bool,
    /// Whether it is time on the critical path.
    pub is_critical: bool,
    /// The change of the time in a step, in nanoseconds.
    pub change: Estimate,
    /// Whether the change is not noise: see [`TimeChange::is_sure`](super::TimeChange::is_sure).
    pub is_sure: bool,
    /// The change of the whole step, in nanoseconds.
    pub step: f64,
    /// The whole step before, in nanoseconds, on the host or on the GPU, whichever takes longer.
    pub before: f64,
    /// The counts of these spans that have changed.
    pub counts: Vec<CountChange>,
}

impl Explanation {
    /// The smallest change listed, as a fraction of the step. A change of a thousandth of the step does not matter, and
    /// the list of a program with hundreds of spans stays short.
    const PART: f64 = 0.001;

    /// Returns the change in percent of the step before.
    pub fn percent(&self) -> f64 {
        if self.before > 0.0 { 100.0 * self.change.value / self.before } else { 0.0 }
    }

    /// Returns the changes in self times, largest first. Those in the direction of the step's change come first.
    pub(super) fn all(spans: &[SpanChange], before: f64, step: f64) -> Vec<Self> {
        let is_critical = critical_step(spans).is_some();
        let of = |span: &SpanChange, is_gpu: bool| {
            // Spans of other threads may be on the critical path, too.
            let own = match is_gpu {
                true => &span.gpu,
                false if is_critical && span.host.is_nothing() => &span.background,
                false => &span.host,
            };
            let exposed = if is_gpu { span.exposed_gpu.change } else { span.exposed_host.change };
            let change = if is_critical { smaller(own.change, exposed) } else { own.change };
            let (path, location, counts) = (span.path.clone(), span.location.clone(), span.counts.clone());
            let is_sure = change.is_sure() || (change == own.change && own.is_sure());
            (Self { path, location, is_gpu, is_critical, change, is_sure, step, before, counts }, exposed)
        };
        let mut all: Vec<_> = spans.iter().flat_map(|span| [of(span, false), of(span, true)]).collect();
        if is_critical {
            add_hidden(&mut all, step);
        }
        let is_large = |it: &Self| it.change.value.abs() > Self::PART * before.abs();
        let mut all: Vec<_> = all.into_iter().map(|(explanation, _)| explanation).filter(is_large).collect();
        let is_against = |it: &Self| (it.change.value < 0.0) != (step < 0.0);
        all.sort_by(|a, b| {
            let size = |it: &Self| it.change.value.abs();
            is_against(a).cmp(&is_against(b)).then_with(|| size(b).total_cmp(&size(a)))
        });
        all
    }
}

/// Explains the rest of the step's change by time that takes as long as before, but is now hidden, or no longer is:
/// copies on another stream, launches that the GPU does not wait for. Each explanation comes with the change of its
/// time on the critical path.
fn add_hidden(all: &mut [(Explanation, Estimate)], step: f64) {
    let is_toward = |change: f64| change != 0.0 && (change < 0.0) == (step < 0.0);
    let explained: f64 = all.iter().map(|(it, _)| it.change.value).filter(|change| is_toward(*change)).sum();
    let mut rest = step.abs() - explained.abs();
    let more = |(it, exposed): &(Explanation, Estimate)| match is_toward(exposed.value) {
        true => exposed.value.abs() - it.change.value.abs(),
        false => 0.0,
    };
    let mut order: Vec<_> = (0..all.len()).collect();
    order.sort_by(|&a, &b| more(&all[b]).total_cmp(&more(&all[a])));
    for index in order {
        let part = more(&all[index]).min(rest);
        if part <= 0.0 {
            break;
        }
        rest -= part;
        let (explanation, exposed) = &mut all[index];
        let factor = (explanation.change.value.abs() + part) / exposed.value.abs();
        explanation.change = exposed.times(factor);
        explanation.is_sure = explanation.change.is_sure();
    }
}

/// Returns the smaller of both changes, or none if they have opposite signs.
///
/// Time that has not changed may move onto the critical path because something else has left it. And time that has
/// changed may be hidden on both sides.
fn smaller(own: Estimate, exposed: Estimate) -> Estimate {
    match (own.value < 0.0) == (exposed.value < 0.0) {
        true if own.value.abs() < exposed.value.abs() => own,
        true => exposed,
        false => Estimate::default(),
    }
}

impl fmt::Display for Explanation {
    /// Writes `train_step > attention: +0.420 ms of +0.500 ms, 12 more kernel launches a step (24 instead of 12)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = if self.is_gpu { " (GPU)" } else { "" };
        write!(f, "{}{on}: {}", self.path.join(" > "), text::signed(self.change.value))?;
        // GPU time is not part of the thread's time, unless it is on the critical path.
        if self.step != 0.0 && (!self.is_gpu || self.is_critical) {
            write!(f, " of {}", text::signed(self.step))?;
        }
        self.counts.iter().try_for_each(|count| write!(f, ", {count}"))
    }
}
