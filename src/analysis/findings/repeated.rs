//! Spans that do work of the same shapes twice in a step.

use super::{
    super::finding::{FindingKind, TimeRange},
    place,
    window::{Candidate, Window},
    words,
};
use crate::trace::{CallsiteId, Detail, Span, SpanId, StepId};
use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
};

/// The least number of kernels that make two spans comparable.
const KERNELS: u64 = 4;

/// The work of a span and of all spans in it.
#[derive(Default)]
struct Done {
    shapes: DefaultHasher,
    kernels: u64,
    tasks: Vec<usize>,
}

/// Finds spans that are called exactly twice in each step from the same span, and launch the same kernels of the same
/// shapes both times. Layers of a model are alike, too: so spans are left alone that are called more often, or that are
/// deeper inside than the phases of a step.
pub(super) fn repeated_work(window: &Window<'_>) -> Vec<Candidate> {
    let trace = window.trace();
    let mut done: HashMap<SpanId, Done> = HashMap::new();
    for (index, _, work) in window.tasks() {
        for span in work.span().into_iter().flat_map(Span::stack) {
            let done = done.entry(span.id()).or_default();
            done.tasks.push(index);
            match work.detail() {
                Detail::Kernel(kernel) => {
                    (&kernel.name, kernel.grid, kernel.block).hash(&mut done.shapes);
                    done.kernels += 1;
                }
                Detail::Copy(copy) => (copy.bytes, copy.direction.as_str()).hash(&mut done.shapes),
                Detail::Fill(fill) => fill.bytes.hash(&mut done.shapes),
            }
        }
    }
    let mut calls: BTreeMap<(CallsiteId, Option<SpanId>, StepId), Vec<SpanId>> = BTreeMap::new();
    for span in trace.spans() {
        let Some(step) = span.step_id().filter(|&step| window.is_whole(step)) else { continue };
        let is_phase = span.parent().is_none_or(|parent| parent.parent().is_none());
        if !is_phase || span.track().thread() != window.thread {
            continue;
        }
        calls.entry((span.callsite_id(), span.parent().map(Span::id), step)).or_default().push(span.id());
    }
    let mut repeated: BTreeMap<CallsiteId, Vec<SpanId>> = BTreeMap::new();
    for ((callsite, ..), spans) in calls {
        let [first, second] = spans[..] else { continue };
        let same = |one: &Done, other: &Done| {
            one.kernels >= KERNELS && one.kernels == other.kernels && one.shapes.finish() == other.shapes.finish()
        };
        if done.get(&first).zip(done.get(&second)).is_some_and(|(one, other)| same(one, other)) {
            repeated.entry(callsite).or_default().push(second);
        }
    }
    let in_each_step = repeated.into_values().filter(|spans| spans.len() >= window.count());
    let mut candidates = Vec::new();
    for spans in in_each_step {
        let is_inside = |span: Option<SpanId>| {
            span.map(|id| trace.span(id))
                .is_some_and(|span| span.stack().any(|span| spans.binary_search(&span.id()).is_ok()))
        };
        let mut costs = window.costs();
        let tasks: Vec<usize> = spans.iter().flat_map(|span| done[span].tasks.iter().copied()).collect();
        tasks.iter().for_each(|&task| costs.remove_task(task));
        for (index, item) in window.items() {
            if is_inside(item.span) {
                costs.set_item(index, 0);
            }
        }
        let kernels = done[&spans[0]].kernels;
        let nanos: u64 = tasks
            .iter()
            .map(|&task| {
                let task = &window.simulation.tasks[task];
                task.end.since(task.start).as_nanos() as u64
            })
            .sum();
        let place = place::name(trace, Some(spans[0]));
        candidates.push(Candidate {
            kind: FindingKind::RepeatedWork,
            title: format!("{place} runs twice in each step, with the same kernels and shapes"),
            span: Some(spans[0]),
            evidence: vec![format!(
                "{kernels} kernels each time; the second takes {} on the GPU.",
                words::nanos(window.per_step(nanos))
            )],
            ranges: spans
                .iter()
                .map(|&span| {
                    let span = trace.span(span);
                    TimeRange::new(trace, span.start(), span.end())
                })
                .collect(),
            costs,
            least: None,
            most: None,
            others: Vec::new(),
        });
    }
    candidates
}
