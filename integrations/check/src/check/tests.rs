mod noise;

use super::{Check, CheckVerdict, Metric, Thresholds};
use crate::{
    baseline::Baseline,
    sample::{Event, Kind, Window},
};

/// Returns a run of three windows, to which `change` is done.
fn run(change: impl Fn(&mut Window)) -> Baseline {
    let window = |number| {
        let mut window = Window::numbered(number);
        change(&mut window);
        window.trace()
    };
    Baseline::of(&[window(0), window(1), window(2)])
}

fn check(after: &Baseline) -> Check {
    super::check(after, &run(|_| ()))
}

#[test]
fn a_run_is_not_worse_than_itself() {
    let check = check(&run(|_| ()));
    assert!(check.is_ok() && check.problems.is_empty() && check.notes.is_empty(), "{check}");
    // A single run does not show how much runs differ.
    let verdict = "inconclusive against the baseline: 1 run of 6 steps, compared with 1 run of 6 steps\ncannot tell: \
                   the step: 100 µs instead of 100 µs, +0.0 % (";
    assert!(check.to_string().starts_with(verdict), "{check}");
}

#[test]
fn one_more_launch_a_step_is_worse_and_put_on_its_span() {
    let after = run(|window| window.repeat(Kind::Kernel, "forward"));
    let check = check(&after);
    assert!(!check.is_ok());
    assert_eq!(check.worst_span(), Some("forward"));
    let text = check.to_string();
    let line = "worse: train_step > forward: 1 more kernel launch a step (2 instead of 1) (src/model.rs:7)\n  \
                - 1 more of kernel gemm\n";
    assert!(text.contains(line), "{text}");
    let off = Thresholds::default().with("kernels@forward=1").unwrap().with("gpu=off").unwrap();
    let allowed = Check::of(&after, &run(|_| ()), &off);
    assert!(allowed.is_ok(), "{allowed}");
}

#[test]
fn one_more_allocation_and_copy_a_step_are_worse() {
    let allocation = check(&run(|window| {
        let is_allocation = |event: &&Event| event.kind == Kind::Memory && event.bytes > 0;
        let again: Vec<_> = window.events.iter().filter(is_allocation).cloned().collect();
        window.events.extend(again);
    }));
    let problems: Vec<_> =
        allocation.problems.iter().map(|problem| (problem.metric.to_string(), problem.path.last().cloned())).collect();
    let forward = || Some("forward".to_owned());
    assert_eq!(problems, [("allocations".to_owned(), forward()), ("allocated_bytes".to_owned(), forward())]);
    let copy = check(&run(|window| window.repeat(Kind::Copy, "train_step")));
    assert!(copy.to_string().contains("worse: train_step: 1 more copy a step (2 instead of 1)"), "{copy}");
    assert!(
        copy.to_string().contains("worse: train_step: 3.91 KiB more copied a step (7.81 KiB instead of 3.91 KiB)"),
        "{copy}"
    );
}

/// Returns a run of six steps that allocate on the heap in `forward`: so often in most steps, and more in one.
fn allocating(allocations: u64, bytes: u64) -> Baseline {
    heap(Some([allocations, bytes]))
}

fn heap(heap: Option<[u64; 2]>) -> Baseline {
    let mut window = Window::empty(600.0);
    for step in 0..6_u32 {
        let (t, span) = (100.0 * f64::from(step), 2 * u64::from(step) + 1);
        window.step(t, t + 100.0);
        window.span("train_step", span, t, t + 90.0);
        window.span("forward", span + 1, t + 10.0, t + 40.0);
    }
    for (step, span) in window.of(Kind::Span, "forward").into_iter().enumerate() {
        // A map grows.
        let odd = u64::from(step == 4);
        span.heap = heap.map(|[allocations, bytes]| [allocations + 40 * odd, bytes + 5_000 * odd]);
    }
    Baseline::of(&[window.trace()])
}

#[test]
fn one_more_heap_allocation_a_step_is_worse_and_put_on_its_span() {
    let before = allocating(20, 10_000);
    assert!(super::check(&allocating(20, 10_050), &before).is_ok(), "50 bytes are less than 1 %");
    let check = super::check(&allocating(21, 10_500), &before);
    let text = check.to_string();
    assert!(text.contains("worse: train_step > forward: 1 more heap allocation a step (21 instead of 20)"), "{text}");
    assert!(text.contains("worse: train_step > forward: 500 B more allocated on the heap a step ("), "{text}");
    let off = Thresholds::default().with("heap_allocations=1").unwrap().with("heap_bytes=5%").unwrap();
    assert!(Check::of(&allocating(21, 10_500), &before, &off).is_ok());
    assert!(super::check(&before, &allocating(21, 10_500)).is_ok(), "fewer are not worse");
}

#[test]
fn a_heap_that_was_not_recorded_is_not_compared() {
    let (with, without) = (allocating(20, 10_000), heap(None));
    for check in [super::check(&with, &without), super::check(&without, &with)] {
        assert!(check.is_ok(), "{check}");
        let note = "note: heap allocations are not compared: they were not recorded in all runs ";
        assert!(check.to_string().contains(note), "{check}");
    }
}

#[test]
fn work_that_moved_to_another_span_is_a_note() {
    let check = check(&run(|window| {
        for kind in [Kind::Call, Kind::Kernel] {
            window.of(kind, "forward").into_iter().for_each(|event| event.span += 1);
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
    let grid = check(&run(|window| {
        window.of(Kind::Kernel, "forward").into_iter().for_each(|kernel| kernel.grid[0] *= 2);
    }));
    assert_eq!(grid.problems[0].metric, Metric::Grid, "{grid}");
    let memory = check(&run(|window| window.events.iter_mut().for_each(|it| it.in_use *= 2)));
    assert!(
        memory.to_string().contains("worse: peak memory of GPU 0: 9.95 KiB instead of 4.98 KiB (+100.0 %)"),
        "{memory}"
    );
}

#[test]
fn other_machines_are_a_note() {
    let check = check(&run(|window| window.host = "other"));
    assert_eq!(check.verdict(), CheckVerdict::Inconclusive);
    let text = check.to_string();
    assert!(text.contains("cannot tell: times are not compared: the machines differ\n"), "{text}");
    let off = ["step=off", "span=off", "gpu=off"];
    let counts = off.iter().fold(Thresholds::default(), |thresholds, off| thresholds.with(off).unwrap());
    let other = run(|window| window.host = "other");
    assert_eq!(Check::of(&other, &run(|_| ()), &counts).verdict(), CheckVerdict::NotWorse);
    assert!(text.contains("note: different machines, so times are not compared"), "{check}");
}
