mod properties;

use super::{Comparison, Outcome, Presence};
use crate::{
    Report, Trace,
    analysis::CountKind,
    report::Baseline,
    trace::{
        Timestamp,
        sample::{gpu_trace, late_ranks, repeat_work},
    },
};
use std::{sync::Arc, time::Duration};

/// Returns runs of three windows each, in which all times are multiplied by those of `factors`, one for each run, and
/// `change` is done to each window.
fn runs(factors: &[f64], change: impl Fn(&mut Trace)) -> Baseline {
    let mut windows = Vec::new();
    for (run, factor) in factors.iter().enumerate() {
        for number in 0..3 {
            let mut trace = gpu_trace();
            // One kernel belongs to no step, and would be on the critical path at the end of the window.
            trace.work.retain(|work| work.step.is_some());
            change(&mut trace);
            trace.window = number;
            Arc::make_mut(&mut trace.metadata).pid = 100 + run as u32;
            scale(&mut trace, *factor);
            windows.push(trace);
        }
    }
    Baseline::of(&windows)
}

/// Multiplies all times of steps, spans and work.
fn scale(trace: &mut Trace, factor: f64) {
    let start = trace.start;
    let scaled = |nanos: u64| (nanos as f64 * factor) as u64;
    let at = |at: &mut Timestamp| {
        *at = start + Duration::from_nanos(scaled(at.since(start).as_nanos() as u64));
    };
    trace.steps.iter_mut().for_each(|step| [&mut step.start, &mut step.end].into_iter().for_each(at));
    for span in &mut trace.spans {
        [&mut span.start, &mut span.end].into_iter().for_each(at);
        span.self_nanos = scaled(span.self_nanos);
    }
    trace.work.iter_mut().for_each(|work| [&mut work.start, &mut work.end].into_iter().for_each(at));
    trace.api_calls.iter_mut().for_each(|call| [&mut call.start, &mut call.end].into_iter().for_each(at));
    trace.waits.iter_mut().for_each(|wait| [&mut wait.start, &mut wait.end].into_iter().for_each(at));
    trace.allocations.iter_mut().for_each(|allocation| at(&mut allocation.at));
}

/// Makes spans of this name, and their step, longer.
fn slow_down(trace: &mut Trace, name: &str, micros: u64) {
    let longer = Duration::from_micros(micros);
    let mut shift = Duration::ZERO;
    let spans: Vec<_> = trace.spans().map(|span| span.name() == name).collect();
    for (span, is_slow) in trace.spans.iter_mut().zip(spans) {
        if span.parent.is_none() {
            // The second step begins later.
            shift = if shift.is_zero() && span.start > trace.start { longer } else { shift };
            span.end = span.end + longer;
        }
        (span.start, span.end) = (span.start + shift, span.end + shift);
        if is_slow {
            span.end = span.end + longer;
            span.self_nanos += longer.as_nanos() as u64;
        }
    }
    // What the second step asks the GPU for comes later, too.
    let second = trace.steps[1].start;
    let later = |start: &mut Timestamp, end: &mut Timestamp| {
        if *start >= second {
            (*start, *end) = (*start + longer, *end + longer);
        }
    };
    trace.work.iter_mut().for_each(|work| later(&mut work.start, &mut work.end));
    trace.api_calls.iter_mut().for_each(|call| later(&mut call.start, &mut call.end));
    trace.waits.iter_mut().for_each(|wait| later(&mut wait.start, &mut wait.end));
    for (index, step) in trace.steps.iter_mut().enumerate() {
        step.start = step.start + longer * index as u32;
        step.end = step.end + longer * (index + 1) as u32;
    }
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
    let (before, after) = (runs(&ALIKE, |_| ()), runs(&ALIKE, |trace| slow_down(trace, "backward", 8)));
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
    let (before, after) = (runs(&ALIKE, |_| ()), runs(&slower, |trace| slow_down(trace, "backward", 8)));
    let comparison = Comparison::of(&before, &after);
    assert!((comparison.drift.factor.value / 1.3 - 1.0).abs() < 0.02, "{:?}", comparison.drift);
    let outcomes: Vec<_> = comparison.spans.iter().map(|it| (it.name(), comparison.outcome(&it.host, 0.02))).collect();
    for (name, outcome) in outcomes {
        assert_eq!(outcome, if name == "backward" { Outcome::Worse } else { Outcome::Same }, "{name}");
    }
}

/// Returns a run whose host waits in `item` at the end of each step, while the kernel of `backward` computes for so
/// many microseconds.
fn waiting(compute: u64) -> Baseline {
    let windows = (0..3).map(|number| {
        let mut trace = late_ranks(&[(20, compute)]).remove(0);
        // The collective is a short kernel of `backward`, too.
        trace.window = number;
        let length = trace.steps[0].duration();
        let item = trace.callsites.len();
        trace.callsites.push(crate::trace::CallsiteData { name: "item".into(), ..trace.callsites[2].clone() });
        for step in 0..trace.steps.len() {
            let backward = 3 * step + 2;
            let (start, end) = (trace.spans[backward].start, trace.spans[backward].end);
            let waits = start + Duration::from_micros(8);
            let id = crate::trace::SpanId::new(trace.spans.len());
            trace.spans[backward].end = waits;
            trace.spans[backward].self_nanos = 8_000;
            trace.spans.push(crate::trace::SpanData {
                callsite: crate::trace::CallsiteId::new(item),
                start: waits,
                end,
                self_nanos: end.since(waits).as_nanos() as u64,
                ..trace.spans[backward].clone()
            });
            trace.api_calls[3 * step + 2].span = Some(id);
            assert!(end.since(start) < length);
        }
        trace
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
    assert!(first.to_string().starts_with("train_step > backward (GPU): -1.000ms of -1.000ms"), "{first}");
    assert!(explanations.iter().all(|it| !it.path.contains(&"item".to_owned())), "{explanations:#?}");
    // The other way round.
    let back = Comparison::of(&waiting(1000), &waiting(2000)).explanations();
    assert_eq!((back[0].path.join(" > ").as_str(), back[0].is_gpu), ("train_step > backward", true), "{back:#?}");
}

#[test]
fn kernels_that_all_take_half_the_time_are_no_drift() {
    let half = |trace: &mut Trace| {
        for work in &mut trace.work {
            work.end = work.start + work.end.since(work.start) / 2;
        }
    };
    let comparison = Comparison::of(&runs(&ALIKE, |_| ()), &runs(&ALIKE, half));
    assert_eq!(comparison.gpu_drift.factor.value, 1.0);
    let gpu = |name: &str| comparison.spans.iter().find(|span| span.name() == name).unwrap().gpu.change.value;
    assert!((gpu("forward") / -10_000.0 - 1.0).abs() < 0.05 && gpu("backward") < -20_000.0);
}

#[test]
fn medians_are_those_of_the_report() {
    let mut trace = gpu_trace();
    // The median of two steps is between them.
    trace.steps[1].end = trace.steps[1].end + Duration::from_micros(31);
    let median = Report::of([&trace]).steps().percentile(50.0).unwrap();
    assert_eq!(median, Duration::from_nanos(115_500));
    let side = Baseline::of([&trace]);
    assert_eq!(Comparison::of(&side, &side).step.before.value, median.as_nanos() as f64);
}

#[test]
fn one_more_launch_is_found() {
    let (before, after) = (
        runs(&[1.0], |_| ()),
        runs(&[1.0], |trace| {
            let forward: Vec<_> =
                trace.work().filter(|work| work.span().is_some_and(|span| span.name() == "forward")).collect();
            let works: Vec<_> = forward.iter().map(|work| work.id().index()).collect();
            works.into_iter().for_each(|work| repeat_work(trace, work, 1));
        }),
    );
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
    let renamed = runs(&[1.0], |trace| trace.callsites[1].name = "forward2".into());
    let comparison = Comparison::of(&before, &renamed);
    let of = |name: &str| &comparison.spans.iter().find(|span| span.name() == name).unwrap().presence;
    assert_eq!((of("forward"), of("forward2"), of("backward")), (&Presence::Gone, &Presence::Added, &Presence::Both));
    let moved = runs(&[1.0], |trace| {
        for span in 0..trace.spans.len() {
            if trace.span(crate::trace::SpanId::new(span)).name() == "backward" {
                trace.spans[span].parent = None;
            }
        }
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
    let after = runs(&ALIKE, |trace| {
        trace.devices[0].name = "NVIDIA T4".to_owned();
        slow_down(trace, "backward", 50);
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
    let trace = gpu_trace();
    let side = Baseline::of([&trace]);
    let comparison = Comparison::of(&side, &side);
    assert_eq!(comparison.outcome(&comparison.step, 0.02).to_string(), "cannot tell: needs 3 more steps on each side");
    let nothing = Comparison::of(&Baseline::default(), &Baseline::default());
    assert!(nothing.notes.iter().any(|note| note == "no whole step was recorded before"), "{:?}", nothing.notes);
    assert!(!nothing.to_string().is_empty());
}
