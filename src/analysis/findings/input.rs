//! The step waits for its data.

use super::{
    super::finding::FindingKind,
    place,
    window::{Candidate, Window},
    words,
};
use crate::trace::{Span, SpanId};
use std::collections::BTreeSet;

/// Finds time that the steps' thread spends in the input pipeline.
pub(super) fn input_bound(window: &Window<'_>) -> Vec<Candidate> {
    let trace = window.trace();
    let input_of = |span: Option<SpanId>| {
        let stack = span.map(|id| trace.span(id)).into_iter().flat_map(Span::stack);
        stack.filter(|span| span.input_stage().is_some()).last()
    };
    // Calls of the GPU's API in the pipeline stay: the batch has to be copied in any case.
    let loading = window.items().filter(|(_, item)| item.thread == window.thread && item.call.is_none());
    let loading = loading.filter_map(|(index, item)| Some((index, Some(input_of(item.span)?.id()), item.nanos())));
    let groups = window.groups(loading);
    let nanos = groups.iter().map(|group| group.nanos).sum();
    let Some(first) = groups.first().filter(|_| !window.is_negligible(nanos)) else { return Vec::new() };
    let all: Vec<usize> = groups.iter().flat_map(|group| group.members.iter().copied()).collect();
    let mut costs = window.costs();
    all.iter().for_each(|&item| costs.set_item(item, 0));
    let each = words::nanos(window.per_step(nanos));
    let mut evidence = vec![format!("The steps' thread is in the input pipeline for {each} of a step.")];
    let workers: Vec<_> = trace
        .spans()
        .filter(|span| span.input_stage().is_some() && span.track().thread() != window.thread)
        .filter(|span| span.parent().is_none_or(|parent| parent.input_stage().is_none()))
        .collect();
    if !workers.is_empty() {
        let threads: BTreeSet<_> = workers.iter().map(|span| span.track().thread()).collect();
        let busy: u64 = workers.iter().map(|span| span.duration().as_nanos() as u64).sum();
        evidence.push(format!(
            "{} other threads load data, for {} of each step in all.",
            threads.len(),
            words::nanos(window.per_step(busy))
        ));
    }
    vec![Candidate {
        kind: FindingKind::InputBound,
        title: format!("each step waits {each} for its data, in {}", place::name(trace, first.span)),
        span: first.span,
        evidence,
        ranges: window.item_ranges(&all),
        costs,
        least: None,
        most: None,
    }]
}
