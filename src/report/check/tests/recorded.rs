//! Checks of windows that were recorded on a GPU, to which one launch, copy or allocation a step is added.

use super::super::{Check, Metric, Thresholds};
use crate::{
    Trace,
    analysis::CountKind,
    report::Baseline,
    trace::{Detail, MemoryChange, StepId},
};
use std::path::Path;

fn windows() -> Vec<(String, Trace)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gpu");
    let names = ["burn-first", "burn", "calls", "candle", "training"];
    let file = |name: &str| std::fs::File::open(folder.join(format!("{name}.kernspan"))).unwrap();
    let read = |name: &str| crate::replay(file(name)).unwrap();
    names.iter().map(|name| ((*name).to_owned(), read(name))).collect()
}

/// Returns the steps that are whole.
fn steps(trace: &Trace) -> Vec<StepId> {
    trace.step_ids().filter(|step| !trace.steps()[step.index()].cut().any()).collect()
}

fn is_found(before: &Baseline, after: &Trace, kind: CountKind) -> bool {
    let check = Check::of(before, &Baseline::of([after]), &Thresholds::default());
    check.problems.iter().any(|problem| problem.metric == Metric::Count(kind))
}

#[test]
fn one_more_launch_or_copy_a_step_is_always_found() {
    let mut tried = 0;
    for (name, trace) in windows() {
        let before = Baseline::of([&trace]);
        for kind in [CountKind::Kernels, CountKind::Copies] {
            let is_kind = |detail: &Detail| match kind {
                CountKind::Kernels => matches!(detail, Detail::Kernel(_)),
                _ => matches!(detail, Detail::Copy(_)),
            };
            let of_step = |step: StepId| -> Vec<usize> {
                let work = trace.work.iter().enumerate();
                work.filter(|(_, it)| it.step == Some(step) && is_kind(&it.detail)).map(|(index, _)| index).collect()
            };
            let all: Vec<_> = steps(&trace).into_iter().map(of_step).collect();
            let range = before.runs.first().map(|run| run.count(kind)).unwrap_or_default();
            // A count that varies from step to step is compared as a range.
            if !range.is_constant() {
                continue;
            }
            let least = all.iter().map(Vec::len).min().unwrap_or(0);
            for nth in (0..least).step_by((least / 4).max(1)) {
                let mut after = trace.clone();
                after.work.extend(all.iter().map(|of_step| trace.work[of_step[nth]].clone()));
                assert!(is_found(&before, &after, kind), "{name}: {kind} {nth}");
                tried += 1;
            }
        }
    }
    assert!(tried >= 10, "{tried}");
}

#[test]
fn one_more_allocation_a_step_is_always_found() {
    let mut tried = 0;
    for (name, trace) in windows() {
        let before = Baseline::of([&trace]);
        let of_step = |step: StepId| -> Vec<usize> {
            let all = trace.allocations.iter().enumerate();
            let is_in = |at| trace.step_at(at) == Some(step);
            all.filter(|(_, it)| it.change == MemoryChange::Allocate && is_in(it.at)).map(|(index, _)| index).collect()
        };
        let all: Vec<_> = steps(&trace).into_iter().map(of_step).collect();
        let range = before.runs.first().map(|run| run.count(CountKind::Allocations)).unwrap_or_default();
        let least = all.iter().map(Vec::len).min().filter(|_| range.is_constant()).unwrap_or(0);
        for nth in (0..least).step_by((least / 4).max(1)) {
            let mut after = trace.clone();
            after.allocations.extend(all.iter().map(|of_step| trace.allocations[of_step[nth]].clone()));
            assert!(is_found(&before, &after, CountKind::Allocations), "{name}: {nth}");
            tried += 1;
        }
    }
    assert!(tried >= 4, "{tried}");
}
