//! The step waits for its data.

use super::{
    super::{finding::FindingKind, simulation::Costs},
    place,
    window::{Candidate, Window},
    words,
};
use crate::trace::{Span, StepId};
use std::collections::{BTreeMap, BTreeSet};

/// The part of a step that it takes to receive a batch from another process, which more of them do not change.
/// PyTorch's loader takes 1.4 ms for a batch of a few KiB in a training that was looked at.
const RECEIVING: f64 = 0.1;

/// Finds time that the steps' thread spends in the input pipeline.
pub(super) fn input_bound(window: &Window<'_>) -> Vec<Candidate> {
    let trace = window.trace();
    // Calls of the GPU's API in the pipeline stay: the batch has to be copied in any case.
    let loading = window.items().filter(|(_, item)| item.thread == window.thread && item.call.is_none());
    let loading = loading.filter_map(|(index, item)| Some((index, Some(window.input_of(item.span)?), item.nanos())));
    let groups = window.groups(loading);
    let nanos = groups.iter().map(|group| group.nanos).sum();
    let Some(first) = groups.first().filter(|_| !window.is_negligible(nanos)) else { return Vec::new() };
    let has_processes = trace.spans().any(|span| span.name().contains("_MultiProcessingDataLoaderIter"));
    if has_processes && (window.per_step(nanos) as f64) < RECEIVING * window.step.as_nanos() as f64 {
        return Vec::new();
    }
    let all: Vec<usize> = groups.iter().flat_map(|group| group.members.iter().copied()).collect();
    let mut costs = window.costs();
    all.iter().for_each(|&item| costs.set_item(item, 0));
    let each = words::nanos(window.each_step(all.iter().map(|&item| (item, window.simulation.items[item].nanos()))));
    let mut evidence = vec![format!("The steps' thread is in the input pipeline for {each} of a step.")];
    let is_outermost = |span: &Span<'_>| window.input_of(Some(span.id())) == Some(span.id());
    let workers: Vec<_> = window.spans_of_others().filter(is_outermost).collect();
    if !workers.is_empty() {
        let threads: BTreeSet<_> = workers.iter().map(|span| span.track().thread()).collect();
        let busy: u64 = workers.iter().map(|span| span.duration().as_nanos() as u64).fold(0, u64::saturating_add);
        let threads = match threads.len() {
            1 => "One other thread loads".to_owned(),
            threads => format!("{threads} other threads load"),
        };
        evidence.push(format!("{threads} data, for {} of each step in all.", words::nanos(window.per_step(busy))));
    }
    let least = window.simulation.is_host_only().then(|| with_one_more(window, &all, !workers.is_empty()));
    vec![Candidate {
        kind: FindingKind::InputBound,
        title: format!("each step waits {each} for its data, in {}", place::name(trace, first.span)),
        span: first.span,
        evidence,
        ranges: window.item_ranges(&all),
        costs,
        least,
        most: None,
        others: Vec::new(),
    }]
}

/// Returns the costs if the data is loaded by one thread beside the step, or, if other threads load it already, twice
/// as fast: the batch of a step is then ready after the time of its loading, or after half of the step.
fn with_one_more(window: &Window<'_>, loading: &[usize], has_workers: bool) -> Costs {
    let mut loads: BTreeMap<StepId, u64> = BTreeMap::new();
    for item in loading.iter().map(|&item| &window.simulation.items[item]) {
        if let Some(step) = item.step {
            *loads.entry(step).or_default() += item.nanos();
        }
    }
    let mut costs = window.costs();
    for &index in loading {
        let item = &window.simulation.items[index];
        let Some((step, load)) = item.step.and_then(|step| Some((step, *loads.get(&step)?))) else { continue };
        let all = window.trace().steps()[step.index()].duration().as_nanos() as u64;
        let rest = all.saturating_sub(load);
        let ready = if has_workers { all / 2 } else { load };
        let left = ready.saturating_sub(rest).min(load);
        costs.set_item(index, 0);
        costs.scale_item(index, item.nanos() as f64 * left as f64 / load.max(1) as f64);
    }
    costs
}
