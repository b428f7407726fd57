//! Steps that take longer than the others.

use super::{
    super::finding::{FindingKind, TimeRange},
    place,
    window::{Candidate, Window},
    words,
};
use crate::trace::{Span, SpanId, StepId};
use std::collections::{BTreeMap, BTreeSet};

/// The least number of steps that have outliers.
const STEPS: usize = 5;
/// The number of steps that are named.
const NAMED: usize = 5;

/// Finds steps that take longer than the others, and the spans that only they have. The first step of a run is left
/// out: it begins with the recording, so that what the program does before its loop is part of it.
pub(super) fn outlier_steps(window: &Window<'_>) -> Vec<Candidate> {
    let steps = window.simulation.steps.len();
    if steps < STEPS {
        return Vec::new();
    }
    let trace = window.trace();
    let is_later = |step: StepId| window.is_whole(step) && trace.steps()[step.index()].number() > 0;
    // Spans that less than half of the steps have, and what is in them.
    let mut rare: BTreeMap<&str, (SpanId, u64)> = BTreeMap::new();
    let mut having: BTreeSet<StepId> = BTreeSet::new();
    let mut costs = window.costs();
    for (index, item) in window.simulation.items.iter().enumerate() {
        let Some(step) = item.step.filter(|&step| is_later(step)) else { continue };
        let Some(span) = window.outermost_rare(item.span) else { continue };
        costs.set_item(index, 0);
        rare.entry(trace.span(span).name()).or_insert((span, 0)).1 += item.nanos();
        having.insert(step);
    }
    for (index, _, work) in window.all_tasks() {
        let Some(step) = work.step_id().filter(|&step| is_later(step)) else { continue };
        if window.is_rare(work.span().map(Span::id)) {
            costs.remove_task(index);
            having.insert(step);
        }
    }
    let Some((name, &(span, nanos))) = rare.iter().max_by_key(|(_, (_, nanos))| *nanos) else { return Vec::new() };
    let slow: Vec<_> = window.slow.intersection(&having).map(|step| &trace.steps()[step.index()]).collect();
    let count = slow.len();
    if count == 0 || count * 2 > steps {
        return Vec::new();
    }
    let place = place::name(trace, Some(span));
    let verb = if count == 1 { "takes" } else { "take" };
    let numbers: Vec<_> = slow.iter().take(NAMED).map(|step| step.number().to_string()).collect();
    let more = match count.saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    vec![Candidate {
        kind: FindingKind::OutlierSteps,
        title: format!("{count} of {steps} steps {verb} longer than the others, by {place}"),
        span: Some(span),
        evidence: vec![
            format!("The median step takes {}.", words::time(window.median)),
            format!("Slow steps: {}{more}.", numbers.join(", ")),
            format!("`{name}` takes {} in all steps.", words::nanos(nanos)),
        ],
        ranges: slow.iter().map(|step| TimeRange::new(trace, step.start(), step.end())).collect(),
        costs,
        least: None,
        most: None,
        others: Vec::new(),
    }]
}
