//! Tests of findings over windows and ranks.

use super::Findings;
use crate::{
    Trace,
    analysis::{Analysis, Finding, FindingKind},
    trace::sample::{HostTrace, gpu_trace, late_ranks},
};
use std::time::Duration;

fn merged(traces: &[Trace]) -> Vec<Finding> {
    let mut run = Findings::default();
    traces.iter().for_each(|trace| run.add(&Analysis::of(trace)));
    run.merged()
}

fn findings(trace: &Trace) -> Vec<Finding> {
    Analysis::of(trace).findings().to_vec()
}

#[test]
fn windows_that_are_alike_have_the_findings_of_one() {
    let trace = gpu_trace();
    let mut run = Findings::default();
    (0..3).for_each(|_| run.add(&Analysis::of(&trace)));
    let (one, all) = (findings(&trace), run.merged());
    assert!(!one.is_empty());
    assert_eq!(all.len(), one.len());
    for (all, one) in all.iter().zip(&one) {
        assert_eq!((all.kind, &all.title, all.saving, all.step), (one.kind, &one.title, one.saving, one.step));
        assert_eq!((all.steps, &all.remedies), (3 * one.steps, &one.remedies));
    }
}

/// Returns a window of ten steps of 20 ms that wait for so many microseconds in a span, inside another one.
fn waiting(name: &'static str, around: &'static str, micros: u64) -> Trace {
    let mut host = HostTrace::default();
    for _ in 0..10 {
        host.step(20_000).span(0, around, 0, 20_000).span(0, name, 0, micros);
    }
    host.trace()
}

#[test]
fn the_title_is_about_the_same_steps_as_the_saving() {
    let traces = [waiting("next_batch", "train", 4_220), waiting("next_batch", "train", 3_380)];
    let all = merged(&traces);
    assert_eq!(all.len(), 1, "{all:#?}");
    assert_eq!(all[0].title, "each step waits 3.80 ms for its data, in `next_batch` (model.rs:2)");
    assert!(all[0].evidence[0].contains("for 3.80 ms of a step"), "{:?}", all[0].evidence);
    assert_eq!(all[0].saving.likely, Duration::from_micros(3_800));
    // All waits of a window are one finding, wherever the longest one is.
    let traces = [waiting("next_batch", "train", 4_220), waiting("fetch_batch", "epoch", 3_380)];
    let all = merged(&traces);
    assert_eq!((all.len(), all[0].saving.likely), (1, Duration::from_micros(3_800)), "{all:#?}");
    assert!(all[0].title.starts_with("each step waits 3.80 ms"), "{}", all[0].title);
}

#[test]
fn a_window_with_too_little_to_report_counts_with_what_it_has() {
    let traces = [waiting("next_batch", "train", 4_000), waiting("next_batch", "train", 190)];
    assert_eq!(findings(&traces[1]), []);
    let all = merged(&traces);
    assert_eq!(all[0].saving.likely, Duration::from_micros(2_000), "{all:#?}");
    // 190 µs are less than rules look at.
    assert!(all[0].title.starts_with("each step waits 2.00 ms"), "{}", all[0].title);
    let expected = [
        "It is in windows of 10 of the 20 steps.",
        "The saving is the mean of all 20 steps; other numbers are of the window that has most of it.",
    ];
    assert!(all[0].evidence.ends_with(&expected.map(str::to_owned)), "{:?}", all[0].evidence);
}

#[test]
fn a_window_that_cannot_be_looked_at_does_not_count() {
    let mut unknown = waiting("next_batch", "train", 4_000);
    unknown.spans.clear();
    let all = merged(&[waiting("next_batch", "train", 4_000), unknown]);
    assert_eq!(all[0].saving.likely, Duration::from_millis(4), "{all:#?}");
}

#[test]
fn a_list_speaks_of_one_step() {
    let mut host = HostTrace::default();
    for number in 0..20 {
        let slow = if number % 10 == 9 { 30_000 } else { 0 };
        host.step(10_000 + slow).span(0, "next_batch", 0, 4_000);
        if slow > 0 {
            host.span(0, "checkpoint", 10_000, 40_000);
        }
    }
    let all = merged(&[host.trace()]);
    let kinds: Vec<_> = all.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [FindingKind::InputBound, FindingKind::OutlierSteps]);
    // The steps without outliers take 10 ms, and all steps 13 ms.
    assert_eq!([&all[0], &all[1]].map(|it| it.step.as_millis()), [10, 13]);
}

#[test]
fn a_window_without_steps_changes_nothing() {
    assert_eq!(merged(&[Trace::default()]), []);
}

#[test]
fn a_slow_loader_on_one_rank_is_not_divided_by_the_number_of_ranks() {
    let traces = late_ranks(&[(20, 1000), (600, 1000), (20, 1000), (20, 1000)]);
    let input = |found: &[Finding]| found.iter().find(|it| it.kind == FindingKind::InputBound).cloned().unwrap();
    let (alone, all) = (input(&findings(&traces[1])), merged(&traces));
    let together = input(&all);
    assert_eq!((together.saving, together.step), (alone.saving, alone.step));
    assert_eq!(together.title, format!("{}, on rank 1", alone.title));
    assert!(together.evidence.iter().any(|it| it.contains("rank 1")), "{:?}", together.evidence);
    let slow = all.iter().find(|it| it.kind == FindingKind::SlowRank).unwrap();
    assert_eq!(slow.saving.likely, Duration::from_micros(580));
    assert!(slow.title.contains("rank 1") && slow.title.contains("`data`"), "{}", slow.title);
}

#[test]
fn ranks_that_are_alike_have_the_findings_of_one() {
    let traces = late_ranks(&[(500, 500); 3]);
    let (one, all) = (findings(&traces[0]), merged(&traces));
    let kinds = |found: &[Finding]| found.iter().map(|it| (it.kind, it.title.clone())).collect::<Vec<_>>();
    assert_eq!(kinds(&all), kinds(&one));
    assert!(all.iter().all(|it| it.kind != FindingKind::SlowRank));
    assert_eq!(all[0].saving, one[0].saving);
}

#[test]
fn what_only_a_fast_rank_has_may_save_nothing() {
    // The others compute for longer, so that the loader of the first rank delays nobody.
    let all = merged(&late_ranks(&[(300, 500), (10, 2000), (10, 2000)]));
    let input = all.iter().find(|it| it.kind == FindingKind::InputBound).unwrap();
    assert_eq!(input.saving.least, Duration::ZERO, "{input:#?}");
    assert!(input.title.ends_with(", on rank 0"), "{}", input.title);
}
