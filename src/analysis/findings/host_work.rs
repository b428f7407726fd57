//! The host computes between launches.

use super::{
    super::{finding::FindingKind, simulation::Item},
    place,
    window::{Candidate, Window},
    words,
};
use crate::trace::{Span, SpanId};
use std::collections::HashSet;

/// Time between two calls from which on the host did more than prepare the next call.
pub(super) const WORK: u64 = 15_000;

/// Finds spans in which the host computes while the GPU waits, outside of the input pipeline.
pub(super) fn host_work(window: &Window<'_>) -> Vec<Candidate> {
    let calling = spans_that_call(window);
    let work = window.items().filter(|(_, item)| is_work(window, item, &calling));
    let groups = window.groups(work.map(|(index, item)| (index, item.span, item.nanos())));
    let mut candidates = Vec::new();
    for group in groups.into_iter().take_while(|group| !window.is_negligible(group.nanos)).take(5) {
        let mut costs = window.costs();
        group.members.iter().for_each(|&item| costs.set_item(item, 0));
        let place = place::name(window.trace(), group.span);
        let each = words::nanos(window.per_step(group.nanos));
        let often = words::times(group.members.len(), window.count());
        candidates.push(Candidate {
            kind: FindingKind::HostWork,
            title: format!("the host computes for {each} of each step in {place}, and the GPU waits for it"),
            span: group.span,
            evidence: vec![format!("It does so {often} in a step.")],
            ranges: window.item_ranges(&group.members),
            costs,
            least: None,
            most: None,
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

/// Whether an item is work of the host: long, or in a span that does nothing else; and not the input pipeline.
pub(super) fn is_work(window: &Window<'_>, item: &Item, calling: &HashSet<SpanId>) -> bool {
    let Some(span) = item.span.map(|id| window.trace().span(id)) else { return false };
    let is_input = || window.input_of(item.span).is_some();
    item.call.is_none() && !item.waited() && (item.nanos() >= WORK || !calling.contains(&span.id())) && !is_input()
}
