mod noise;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod recorded;

use super::{Check, CheckVerdict, Metric, Thresholds};
use crate::{
    Trace,
    report::Baseline,
    trace::sample::{gpu_trace, repeat_work},
};
use std::sync::Arc;

/// Returns a run of three windows, to which `change` is done.
fn run(change: impl Fn(&mut Trace)) -> Baseline {
    let window = |number| {
        let mut trace = gpu_trace();
        change(&mut trace);
        trace.window = number;
        trace
    };
    Baseline::of(&[window(0), window(1), window(2)])
}

fn check(after: &Baseline) -> Check {
    Check::of(&run(|_| ()), after, &Thresholds::default())
}

/// Returns the indices of the work of spans of this name.
fn work_of(trace: &Trace, name: &str) -> Vec<usize> {
    let is_of = |work: &crate::trace::Work<'_>| work.span().is_some_and(|span| span.name() == name);
    trace.work().filter(is_of).map(|work| work.id().index()).collect()
}

#[test]
fn a_run_is_not_worse_than_itself() {
    let check = check(&run(|_| ()));
    assert!(check.is_ok() && check.problems.is_empty() && check.notes.is_empty(), "{check}");
    // A single run does not show how much runs differ.
    let verdict = "inconclusive against the baseline: 1 run of 6 steps, compared with 1 run of 6 steps\ncannot tell: \
                   the step: 100.000µs instead of 100.000µs, +0.0 % (";
    assert!(check.to_string().starts_with(verdict), "{check}");
}

#[test]
fn one_more_launch_a_step_is_worse_and_put_on_its_span() {
    let check = check(&run(|trace| {
        work_of(trace, "forward").into_iter().for_each(|work| repeat_work(trace, work, 1));
    }));
    assert!(!check.is_ok());
    assert_eq!(check.worst_span(), Some("forward"));
    let text = check.to_string();
    let line = "worse: train_step > forward: 1 more kernel launch a step (2 instead of 1) (src/model.rs:7)\n  \
                - 1 more of kernel gemm\n";
    assert!(text.contains(line), "{text}");
    let off = Thresholds::default().with("kernels@forward=1").unwrap().with("gpu=off").unwrap();
    let allowed = Check::of(
        &run(|_| ()),
        &run(|trace| {
            work_of(trace, "forward").into_iter().for_each(|work| repeat_work(trace, work, 1));
        }),
        &off,
    );
    assert!(allowed.is_ok(), "{allowed}");
}

#[test]
fn one_more_allocation_and_copy_a_step_are_worse() {
    let allocation = check(&run(|trace| {
        let more: Vec<_> =
            trace.allocations.iter().filter(|it| it.change == crate::trace::MemoryChange::Allocate).cloned().collect();
        trace.allocations.extend(more);
    }));
    let problems: Vec<_> =
        allocation.problems.iter().map(|problem| (problem.metric.to_string(), problem.path.last().cloned())).collect();
    let forward = || Some("forward".to_owned());
    assert_eq!(problems, [("allocations".to_owned(), forward()), ("allocated_bytes".to_owned(), forward())]);
    let copy = check(&run(|trace| {
        let copies: Vec<_> = work_of(trace, "train_step");
        copies.into_iter().for_each(|work| repeat_work(trace, work, 1));
    }));
    assert!(copy.to_string().contains("worse: train_step: 1 more copy a step (2 instead of 1)"), "{copy}");
    assert!(
        copy.to_string().contains("worse: train_step: 3.91 KB more copied a step (7.81 KB instead of 3.91 KB)"),
        "{copy}"
    );
}

#[test]
fn work_that_moved_to_another_span_is_a_note() {
    let check = check(&run(|trace| {
        for work in work_of(trace, "forward") {
            let span = trace.work[work].span.unwrap();
            trace.work[work].span = Some(crate::trace::SpanId::new(span.index() + 1));
        }
    }));
    assert!(check.problems.iter().all(|problem| !matches!(problem.metric, Metric::Count(_))), "{check}");
    assert!(
        check.notes.iter().any(|note| note.starts_with("1 more kernel launch a step (3 instead of 2) in")),
        "{check}"
    );
}

#[test]
fn other_grids_and_peaks_are_worse() {
    let grid = check(&run(|trace| {
        for work in work_of(trace, "forward") {
            if let crate::trace::Detail::Kernel(kernel) = &mut trace.work[work].detail {
                kernel.grid[0] *= 2;
            }
        }
    }));
    assert_eq!(grid.problems[0].metric, Metric::Grid, "{grid}");
    let memory = check(&run(|trace| trace.allocations.iter_mut().for_each(|it| it.in_use *= 2)));
    assert!(
        memory.to_string().contains("worse: peak memory of GPU 0: 9.95 KB instead of 4.98 KB (+100.0 %)"),
        "{memory}"
    );
}

#[test]
fn other_machines_are_a_note() {
    let check = check(&run(|trace| Arc::make_mut(&mut trace.metadata).host = "other".to_owned()));
    assert_eq!(check.verdict(), CheckVerdict::Inconclusive);
    let text = check.to_string();
    assert!(text.contains("cannot tell: times, which are not compared: the machines differ\n"), "{text}");
    let off = ["step=off", "span=off", "gpu=off"];
    let counts = off.iter().fold(Thresholds::default(), |thresholds, off| thresholds.with(off).unwrap());
    let other = run(|trace| Arc::make_mut(&mut trace.metadata).host = "other".to_owned());
    assert_eq!(Check::of(&run(|_| ()), &other, &counts).verdict(), CheckVerdict::NotWorse);
    assert!(text.contains("note: other machines, so that times are not compared"), "{check}");
}
