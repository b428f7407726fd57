//! The steps' thread waits for its data.

use super::{
    super::{
        finding::FindingKind,
        simulation::Costs,
        sorted::{SortedMap, SortedSet},
    },
    waits_for::WaitsFor,
    window::{Candidate, Window, total},
    words,
};
use crate::trace::{CallsiteId, Framework, Span, StepId, ThreadId};
use std::time::Duration;

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
    let nanos_each = window.each_step(all.iter().map(|&item| (item, window.simulation.items[item].nanos())));
    let each = words::nanos(nanos_each);
    let mut evidence = vec![format!("The steps' thread is in the input pipeline for {each} of a step.")];
    let loaders = Loaders::of(window);
    evidence.extend(loaders.evidence(window));
    let least = window.simulation.is_host_only().then(|| with_one_more(window, &all, &loaders));
    vec![Candidate {
        title: format!("each step waits {each} for its data, in {}", words::place(trace, first.span)),
        span: first.span,
        evidence,
        ranges: window.item_ranges(&all),
        least,
        each: Some(nanos_each),
        change: loaders.change(window),
        ..Candidate::new(FindingKind::InputBound, costs)
    }]
}

/// The part of a step for which a thread that loads is busy from which on it may be too slow.
const BUSY: f64 = 0.5;
/// Spans that make a batch each are called this often in a step, at the least and at the most.
const CALLS: (f64, f64) = (0.5, 2.0);

/// The threads that load data ahead of the steps' thread.
struct Loaders<'a> {
    spans: Vec<Span<'a>>,
    threads: SortedSet<ThreadId>,
    /// Whether names or fields say that they load, as opposed to one call for each step.
    is_said: bool,
}

impl<'a> Loaders<'a> {
    fn of(window: &Window<'a>) -> Self {
        let is_outermost = |span: &Span<'_>| window.input_of(Some(span.id())) == Some(span.id());
        let mut spans: Vec<_> = window.spans_of_others().filter(is_outermost).collect();
        let is_said = !spans.is_empty();
        if !is_said {
            spans = once_a_step(window);
        }
        let threads = spans.iter().map(|span| span.track().thread()).collect();
        Self { spans, threads, is_said }
    }

    /// The nanoseconds of a step for which they load in all.
    fn nanos(&self, window: &Window<'_>) -> u64 {
        window.per_step(total(self.spans.iter().map(|span| span.duration().as_nanos() as u64)))
    }

    /// Whether the step may wait because they are too slow.
    fn are_busy(&self, window: &Window<'_>) -> bool {
        let of_each = self.nanos(window) as f64 / self.threads.len().max(1) as f64;
        of_each >= BUSY * window.median.as_nanos() as f64
    }

    fn evidence(&self, window: &Window<'_>) -> Option<String> {
        let (first, time) = (self.spans.first()?, words::nanos(self.nanos(window)));
        let threads = match self.threads.len() {
            1 => "One other thread loads".to_owned(),
            threads => format!("{threads} other threads load"),
        };
        Some(match self.is_said {
            true => format!("{threads} data, for {time} of each step in all."),
            false => format!(
                "{} on `{}` seems to make the data: it is called about once for each step, and takes {time} of it.",
                words::place(window.trace(), Some(first.id())),
                first.track().thread_name()
            ),
        })
    }

    /// Returns what to change if other threads load already.
    fn change(&self, window: &Window<'_>) -> Option<&'static str> {
        // Its workers are processes, which the trace does not have.
        if self.spans.is_empty() || window.framework == Framework::PyTorch {
            return None;
        }
        Some(match self.are_busy(window) {
            true => MORE_LOADERS,
            false => IDLE_LOADERS,
        })
    }
}

/// What to change if threads that load are too slow.
const MORE_LOADERS: &str = "Other threads load ahead of the step already, and are too slow: use more of them, or do \
                            less for each sample.";
/// The same if they idle for most of the time.
const IDLE_LOADERS: &str = "Other threads load ahead of the step already, and idle for most of it: let the channel \
                            hold more batches, and leave them a CPU, with fewer threads elsewhere.";

/// Returns the spans of other threads, outside of others, that are called about as often as there are steps.
fn once_a_step<'a>(window: &Window<'a>) -> Vec<Span<'a>> {
    let mut calls: SortedMap<CallsiteId, Vec<Span<'a>>> = SortedMap::default();
    for span in window.spans_of_others().filter(|span| span.parent().is_none() && WaitsFor::of(*span).is_none()) {
        calls.or_default(span.callsite_id()).push(span);
    }
    let (least, most) = CALLS;
    let steps = window.simulation.steps.len() as f64;
    let is_one = |spans: &Vec<Span<'_>>| (least * steps..=most * steps).contains(&(spans.len() as f64));
    let longest = |spans: &Vec<Span<'_>>| spans.iter().map(|span| span.duration()).sum::<Duration>();
    calls.into_values().filter(is_one).max_by_key(longest).unwrap_or_default()
}

/// Returns the costs if the data is loaded by one thread beside the step, or, if other threads load it already, twice
/// as fast: the batch of a step is then ready after the time of its loading, or after half of the step. If these are
/// not the reason, nothing may change.
fn with_one_more(window: &Window<'_>, loading: &[usize], loaders: &Loaders<'_>) -> Costs {
    if !loaders.spans.is_empty() && !loaders.are_busy(window) {
        return window.costs();
    }
    let mut loads: SortedMap<StepId, u64> = SortedMap::default();
    for item in loading.iter().map(|&item| &window.simulation.items[item]) {
        if let Some(step) = item.step {
            *loads.or_default(step) += item.nanos();
        }
    }
    let mut costs = window.costs();
    for &index in loading {
        let item = &window.simulation.items[index];
        let Some((step, load)) = item.step.and_then(|step| Some((step, *loads.get(&step)?))) else { continue };
        let all = window.trace().steps()[step.index()].duration().as_nanos() as u64;
        let rest = all.saturating_sub(load);
        let ready = if loaders.spans.is_empty() { load } else { all / 2 };
        let left = ready.saturating_sub(rest).min(load);
        costs.set_item(index, 0);
        costs.scale_item(index, item.nanos() as f64 * left as f64 / load.max(1) as f64);
    }
    costs
}
