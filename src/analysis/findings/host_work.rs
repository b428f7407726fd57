//! The host computes between launches.

use super::{
    super::{finding::FindingKind, simulation::Item},
    framework::{is_framework, owner},
    place,
    window::{Candidate, Window},
    words,
};
use crate::trace::{Framework, Span, SpanId};
use std::collections::HashSet;

/// Time between two calls from which on the host did more than prepare the next call.
const WORK: u64 = 15_000;
/// The same in Python, where the interpreter and the framework take tens of microseconds for a call: by the trainings
/// that were looked at, an optimizer's step takes up to 470 µs before its first launch.
const WORK_IN_PYTHON: u64 = 700_000;

/// Finds spans of the user in which the host computes while the GPU waits, outside of the input pipeline.
pub(super) fn host_work(window: &Window<'_>) -> Vec<Candidate> {
    let trace = window.trace();
    let calling = spans_that_call(window);
    let work = window.items().filter(|(_, item)| is_work(window, item, &calling));
    let groups = window.groups(work.map(|(index, item)| (index, owner(trace, item.span), item.nanos())));
    let mut candidates = Vec::new();
    for group in groups.into_iter().take_while(|group| !window.is_negligible(group.nanos)).take(3) {
        let mut costs = window.costs();
        group.members.iter().for_each(|&item| costs.set_item(item, 0));
        let place = match group.span {
            Some(_) => format!("in {}", place::name(trace, group.span)),
            None => "outside of all spans".to_owned(),
        };
        let each = words::nanos(window.per_step(group.nanos));
        let often = words::times(group.members.len(), window.count());
        candidates.push(Candidate {
            kind: FindingKind::HostWork,
            title: format!("the host computes for {each} of each step {place}, and the GPU waits for it"),
            span: group.span,
            evidence: vec![format!("It does so {often} in a step.")],
            ranges: window.item_ranges(&group.members),
            costs,
            least: None,
            most: None,
            others: Vec::new(),
        });
    }
    candidates
}

/// The spans from which the GPU's API is called, and the spans around these.
pub(super) fn spans_that_call(window: &Window<'_>) -> HashSet<SpanId> {
    let mut calling = HashSet::new();
    for call in window.trace().api_calls() {
        for span in call.span().into_iter().flat_map(Span::stack) {
            if !calling.insert(span.id()) {
                break;
            }
        }
    }
    calling
}

/// Whether an item is work of the user on the host: long, or in a span of the user that does nothing else; and not the
/// input pipeline.
pub(super) fn is_work(window: &Window<'_>, item: &Item, calling: &HashSet<SpanId>) -> bool {
    if item.call.is_some() || item.waited() || window.input_of(item.span).is_some() {
        return false;
    }
    let trace = window.trace();
    // Burn's operations are queued by the thread of the user, and launched by another: the time is the framework's.
    if window.framework == Framework::Burn && item.span.is_some_and(|span| calling.contains(&span)) {
        return false;
    }
    let is_python = window.framework == Framework::PyTorch;
    let is_long = item.nanos() >= if is_python { WORK_IN_PYTHON } else { WORK };
    let Some(span) = item.span.map(|id| trace.span(id)) else { return is_python && is_long };
    // A framework's own operation is work if it is far too long for one that only launches, such as one on the CPU.
    let is_users = !is_framework(span) || item.nanos() >= WORK_IN_PYTHON;
    let does_nothing_else = owner(trace, Some(span.id())).is_some_and(|owner| !calling.contains(&owner));
    does_nothing_else || (is_long && is_users)
}
