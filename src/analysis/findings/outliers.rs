//! Steps that take longer than the others.

use super::{
    super::{
        finding::{FindingKind, TimeRange},
        quantile::quantile,
    },
    place,
    window::{Candidate, Window},
    words,
};
use crate::trace::{Span, SpanId};
use std::{collections::BTreeMap, time::Duration};

/// The least number of steps that have outliers.
const STEPS: usize = 5;
/// A step is an outlier from this many times the median on.
const TIMES: f64 = 1.25;

/// Finds steps that take longer than the others, and the spans that only they have.
pub(super) fn outlier_steps(window: &Window<'_>) -> Vec<Candidate> {
    if window.count() < STEPS {
        return Vec::new();
    }
    let trace = window.trace();
    let steps: Vec<_> = window.simulation.steps.iter().map(|id| (*id, &trace.steps()[id.index()])).collect();
    let mut durations: Vec<Duration> = steps.iter().map(|(_, step)| step.duration()).collect();
    durations.sort_unstable();
    let median = quantile(&durations, 0.5).unwrap_or_default();
    let outliers: Vec<_> = steps.iter().filter(|(_, step)| step.duration() > median.mul_f64(TIMES)).collect();
    if outliers.is_empty() || outliers.len() * 2 > steps.len() {
        return Vec::new();
    }
    // Spans that less than half of the steps have, and what is in them.
    let mut rare: BTreeMap<&str, (SpanId, u64)> = BTreeMap::new();
    let mut costs = window.costs();
    for (index, item) in window.simulation.items.iter().enumerate() {
        let whole = item.step.is_some_and(|step| window.is_whole(step));
        let Some(span) = window.outermost_rare(item.span).filter(|_| whole) else { continue };
        costs.set_item(index, 0);
        rare.entry(trace.span(span).name()).or_insert((span, 0)).1 += item.nanos();
    }
    for (index, _, work) in window.all_tasks() {
        if window.is_rare(work.span().map(Span::id)) {
            costs.remove_task(index);
        }
    }
    let Some((name, &(span, nanos))) = rare.iter().max_by_key(|(_, (_, nanos))| *nanos) else { return Vec::new() };
    let numbers: Vec<_> = outliers.iter().take(5).map(|(_, step)| step.number().to_string()).collect();
    vec![Candidate {
        kind: FindingKind::OutlierSteps,
        title: format!(
            "{} of {} steps {} longer than the others, by {}",
            outliers.len(),
            steps.len(),
            if outliers.len() == 1 { "takes" } else { "take" },
            place::name(trace, Some(span))
        ),
        span: Some(span),
        evidence: vec![
            format!("The median step takes {}.", words::time(median)),
            format!("Slow steps: {}.", numbers.join(", ")),
            format!("`{name}` takes {} in all steps.", words::nanos(nanos)),
        ],
        ranges: outliers.iter().map(|(_, step)| TimeRange::new(trace, step.start(), step.end())).collect(),
        costs,
        least: None,
        most: None,
    }]
}
