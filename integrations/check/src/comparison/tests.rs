mod properties;

use super::{Comparison, Outcome, Presence};
use crate::{
    baseline::Baseline,
    counts::CountKind,
    sample::{Event, Kind, Window},
};
use kernspan::Report;
use std::time::Duration;

/// Returns runs of three windows each, in which all times are multiplied by those of `factors`, one for each run, and
/// `change` is done to each window.
fn runs(factors: &[f64], change: impl Fn(&mut Window)) -> Baseline {
    let mut windows = Vec::new();
    for (pid, factor) in (100..).zip(factors) {
        for number in 0..3 {
            let mut window = Window { pid, ..Window::numbered(number) };
            change(&mut window);
            window.scale(*factor);
            windows.push(window.trace());
        }
    }
    Baseline::of(&windows)
}

const ALIKE: [f64; 5] = [1.0, 1.01, 0.99, 1.005, 0.995];

#[test]
fn equal_sides_have_no_change() {
    let side = runs(&ALIKE, |_| ());
    let comparison = Comparison::of(&side, &side);
    assert_eq!(comparison.step.change.value, 0.0);
    assert!(comparison.are_times_comparable && comparison.notes.is_empty());
    assert!(comparison.counts.is_empty() && comparison.kernels.is_empty() && comparison.explanations().is_empty());
    assert!(comparison.new_findings.is_empty() && comparison.gone_findings.is_empty());
    for span in &comparison.spans {
        assert_eq!((span.host.change.value, span.gpu.change.value, &span.presence), (0.0, 0.0, &Presence::Both));
        assert_eq!(comparison.outcome(&span.host, 0.02), Outcome::Same, "{span:?}");
    }
}

#[test]
fn the_span_that_is_slower_explains_the_step() {
    let (before, after) = (runs(&ALIKE, |_| ()), runs(&ALIKE, |window| window.slow_down("backward", 8.0)));
    let comparison = Comparison::of(&before, &after);
    assert_eq!(comparison.outcome(&comparison.step, 0.02), Outcome::Worse, "{:?}", comparison.step);
    let explanations = comparison.explanations();
    assert_eq!(explanations[0].path, ["train_step", "backward"]);
    assert!((explanations[0].change.value / 8000.0 - 1.0).abs() < 0.1, "{:?}", explanations[0]);
    let back = Comparison::of(&after, &before);
    assert_eq!(back.outcome(&back.step, 0.02), Outcome::Better);
}

#[test]
fn a_slower_machine_is_told_from_a_slower_program() {
    let slower = ALIKE.map(|factor| 1.3 * factor);
    let (before, after) = (runs(&ALIKE, |_| ()), runs(&slower, |window| window.slow_down("backward", 8.0)));
    let comparison = Comparison::of(&before, &after);
    assert!((comparison.drift.factor.value / 1.3 - 1.0).abs() < 0.02, "{:?}", comparison.drift);
    let outcomes: Vec<_> = comparison.spans.iter().map(|it| (it.name(), comparison.outcome(&it.host, 0.02))).collect();
    for (name, outcome) in outcomes {
        assert_eq!(outcome, if name == "backward" { Outcome::Worse } else { Outcome::Same }, "{name}");
    }
}

/// Returns a run whose host waits in `item` at the end of each step, while the kernel of `backward` computes for so
/// many microseconds.
fn waiting(compute: u32) -> Baseline {
    let windows = (0..3).map(|number| {
        let length = f64::from(compute) + 140.0;
        let mut window = Window { number, ..Window::empty(4.0 * length) };
        for step in 0..4_u32 {
            let (t, span, call) = (length * f64::from(step), 4 * u64::from(step) + 1, 10 * step);
            window.step(t, t + length);
            window.span("train_step", span, t, t + length);
            window.span("data", span + 1, t, t + 20.0);
            window.span("backward", span + 2, t + 20.0, t + 28.0);
            window.span("item", span + 3, t + 28.0, t + length - 5.0);
            window.call("cuLaunchKernel", span + 2, call + 1, t + 21.0, t + 23.0);
            window.call("cuLaunchKernel", span + 2, call + 2, t + 25.0, t + 27.0);
            window.call("cuStreamSynchronize", span + 3, call + 3, t + 28.0, t + length - 5.0);
            let computed = t + 24.0 + f64::from(compute);
            window.work(Kind::Kernel, "gemm", span + 2, call + 1, t + 24.0, computed);
            window.work(Kind::Kernel, "add", span + 2, call + 2, computed, t + length - 6.0);
        }
        window.trace()
    });
    Baseline::of(&windows.collect::<Vec<_>>())
}

#[test]
fn a_wait_is_explained_by_the_work_that_is_waited_for() {
    let comparison = Comparison::of(&waiting(2000), &waiting(1000));
    assert_eq!(comparison.outcome(&comparison.whole_step, 0.02), Outcome::Better);
    let item = comparison.spans.iter().find(|span| span.name() == "item").unwrap();
    assert_eq!(item.host.change.value, -1_000_000.0, "the host waits for less time");
    let explanations = comparison.explanations();
    let first = &explanations[0];
    assert_eq!((first.path.join(" > ").as_str(), first.is_gpu), ("train_step > backward", true), "{explanations:#?}");
    assert_eq!(first.change.value, -1_000_000.0);
    assert!(first.to_string().starts_with("train_step > backward (GPU): -1.00 ms of -1.00 ms"), "{first}");
    assert!(explanations.iter().all(|it| !it.path.contains(&"item".to_owned())), "{explanations:#?}");
    // The other way round.
    let back = Comparison::of(&waiting(1000), &waiting(2000)).explanations();
    assert_eq!((back[0].path.join(" > ").as_str(), back[0].is_gpu), ("train_step > backward", true), "{back:#?}");
}

#[test]
fn kernels_that_all_take_half_the_time_are_no_drift() {
    let half = |window: &mut Window| {
        let is_work = |event: &&mut Event| matches!(event.kind, Kind::Kernel | Kind::Copy | Kind::Fill);
        window.events.iter_mut().filter(is_work).for_each(|work| work.end = (work.start + work.end) / 2.0);
    };
    let comparison = Comparison::of(&runs(&ALIKE, |_| ()), &runs(&ALIKE, half));
    assert_eq!(comparison.gpu_drift.factor.value, 1.0);
    let gpu = |name: &str| comparison.spans.iter().find(|span| span.name() == name).unwrap().gpu.change.value;
    assert!((gpu("forward") / -10_000.0 - 1.0).abs() < 0.05 && gpu("backward") < -20_000.0);
}

#[test]
fn a_step_takes_what_the_report_says() {
    let mut window = Window::new();
    // The median of two steps is between them.
    let step = window.events.iter_mut().rfind(|event| event.kind == Kind::Step).unwrap();
    step.end += 31.0;
    let trace = window.trace();
    let median = Report::of([&trace]).steps().percentile(50.0).unwrap();
    assert_eq!(median, Duration::from_nanos(115_500));
    let side = Baseline::of([&trace]);
    assert_eq!(Comparison::of(&side, &side).step.before.value, median.as_nanos() as f64);
}

#[test]
fn one_more_launch_is_found() {
    let (before, after) = (runs(&[1.0], |_| ()), runs(&[1.0], |window| window.repeat(Kind::Kernel, "forward")));
    let comparison = Comparison::of(&before, &after);
    let texts: Vec<_> = comparison.counts.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["1 more kernel launch a step (4 instead of 3)"]);
    let forward = comparison.spans.iter().find(|span| span.name() == "forward").unwrap();
    assert_eq!(forward.counts[0].kind, CountKind::Kernels);
    assert_eq!(comparison.kernels[0].name, "gemm");
    assert_eq!(comparison.kernels[0].difference(), 1.0);
}

#[test]
fn a_span_can_be_added_gone_and_moved() {
    let before = runs(&[1.0], |_| ());
    let rename = |window: &mut Window| window.of(Kind::Span, "forward").into_iter().for_each(|it| it.name = "forward2");
    let renamed = runs(&[1.0], rename);
    let comparison = Comparison::of(&before, &renamed);
    let of = |name: &str| &comparison.spans.iter().find(|span| span.name() == name).unwrap().presence;
    assert_eq!((of("forward"), of("forward2"), of("backward")), (&Presence::Gone, &Presence::Added, &Presence::Both));
    // It follows on `train_step`, instead of being a part of it.
    let moved = runs(&[1.0], |window| {
        window.of(Kind::Span, "train_step").into_iter().for_each(|span| span.end -= 50.0);
    });
    let comparison = Comparison::of(&before, &moved);
    let backward: Vec<_> = comparison.spans.iter().filter(|span| span.name() == "backward").collect();
    assert_eq!(backward.len(), 1);
    assert_eq!(backward[0].path, ["backward"]);
    let from = vec!["train_step".to_owned(), "backward".to_owned()];
    assert_eq!(backward[0].presence, Presence::Moved { from });
    assert_eq!(backward[0].host.change.value, 0.0);
}

#[test]
fn other_machines_are_said_and_only_counts_compared() {
    let before = runs(&ALIKE, |_| ());
    let after = runs(&ALIKE, |window| {
        window.gpu = "NVIDIA T4";
        window.slow_down("backward", 50.0);
    });
    let comparison = Comparison::of(&before, &after);
    assert!(!comparison.are_times_comparable);
    assert_eq!(comparison.outcome(&comparison.step, 0.02), Outcome::NotCompared);
    assert!(
        comparison.notes[0].contains("host (NVIDIA H200) before, host (NVIDIA T4) after"),
        "{:?}",
        comparison.notes
    );
}

#[test]
fn too_few_steps_are_said() {
    let side = Baseline::of([&Window::new().trace()]);
    let comparison = Comparison::of(&side, &side);
    assert_eq!(comparison.outcome(&comparison.step, 0.02).to_string(), "cannot tell: needs 3 more steps on each side");
    let nothing = Comparison::of(&Baseline::default(), &Baseline::default());
    assert!(nothing.notes.iter().any(|note| note == "no whole step was recorded before"), "{:?}", nothing.notes);
    assert!(!nothing.to_string().is_empty());
}
