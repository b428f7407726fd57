//! Tests of waits that were measured, and of what is said where they were not.

use super::{MILLI, findings, millis, only, steps};
use crate::{
    Report, Trace,
    analysis::FindingKind,
    trace::{
        SpanId,
        sample::{HostTrace, SampledStack, add_counter, add_stack, at, frame, sample_stacks},
    },
};
use std::time::Duration;

/// Returns steps of 22 ms, of which `name` takes 15.
fn program(name: &'static str) -> Trace {
    steps(|it, _| {
        it.step(22 * MILLI).span(0, name, 0, 15 * MILLI).span(0, "train_step", 15 * MILLI, 22 * MILLI);
    })
}

/// Has the spans of each name run for a part of their time, and the process for so many milliseconds of each step.
fn set_cpu(trace: &mut Trace, shares: &[(&str, f64)], process: f64) {
    let share = |name: &str| shares.iter().find(|(of, _)| *of == name).map(|(_, share)| *share);
    let time = |index: usize| {
        let span = trace.span(SpanId::new(index));
        Some((span.id(), (span.duration().as_nanos() as f64 * share(span.name())?) as u64))
    };
    let times = (0..trace.spans.len()).filter_map(time).collect();
    trace.set_cpu_times(times);
    let readings: Vec<_> =
        trace.steps.iter().map(|step| (step.start + Duration::from_nanos(1), process / 1e3)).collect();
    add_counter(trace, "cpu.seconds", &readings);
}

/// Samples one wait in each span of this name, of all but a tenth of it, in these functions, outermost first.
fn set_waits(trace: &mut Trace, name: &str, functions: &[&str]) {
    sample_stacks(trace, 1000, 0, None);
    let frames: Vec<_> = functions
        .iter()
        .map(|function| match function.starts_with("std::") {
            true => frame(function, "/rustc/59807616/library/std/src/sync/mutex.rs:1", "train"),
            false => frame(function, "src/main.rs:12", "train"),
        })
        .collect();
    for index in 0..trace.spans.len() {
        let span = trace.span(SpanId::new(index));
        if span.name() != name {
            continue;
        }
        let nanos = span.duration().as_nanos() as u64 / 10 * 9;
        let micros = (span.start().as_unix_nanos() - at(0).as_unix_nanos()) / 1000;
        let stack = frames.iter().collect();
        let sample = SampledStack { micros, nanos, span: Some(index), stack, waiting: true, ..SampledStack::default() };
        add_stack(trace, &sample);
    }
}

fn advice(trace: &Trace) -> String {
    Report::of([trace]).advice().width(1000).to_string()
}

#[test]
fn a_span_that_is_off_the_cpu_waits_whatever_its_name() {
    let mut trace = program("load");
    set_cpu(&mut trace, &[("load", 0.01), ("train_step", 1.0)], 7.0);
    let finding = only(&trace);
    assert_eq!(finding.kind, FindingKind::HostWait);
    assert_eq!(finding.title, "the steps' thread is off the CPU for 14.8 ms of each step in `load` (model.rs:1)");
    assert!((14_800..14_900).contains(&finding.saving.likely.as_micros()), "{:?}", finding.saving);
    assert_eq!(finding.saving.least, Duration::ZERO, "nobody knows what it waits for");
    assert!(finding.evidence.iter().any(|it| it.contains("runs for 1.0 % of that")), "{finding:?}");
    assert!(finding.evidence.iter().any(|it| it.contains(".samples(")), "{finding:?}");
    // It computes.
    let mut trace = program("load");
    set_cpu(&mut trace, &[("load", 0.97), ("train_step", 1.0)], 22.0);
    assert_eq!(findings(&trace), []);
    assert!(advice(&trace).contains(
        "`load` (model.rs:1) takes 15.0 ms of each 22.0 ms step (68.2 %), outside of spans in it. Its thread runs for \
         97.0 %"
    ));
}

#[test]
fn sampled_stacks_say_what_a_span_waits_for() {
    for (functions, title) in [
        (["train::main", "std::thread::sleep"], "sleeps for"),
        (["train::update", "std::sync::Mutex::lock"], "waits for a lock for"),
    ] {
        let mut trace = program("update");
        set_waits(&mut trace, "update", &functions);
        let finding = only(&trace);
        assert_eq!((finding.kind, finding.saving.likely), (FindingKind::HostWait, Duration::from_micros(13_500)));
        assert!(finding.title.contains(title), "{}", finding.title);
        let expected = format!("`{}`, called by `{}` (src/main.rs:12)", functions[1], functions[0]);
        assert!(finding.evidence.iter().any(|it| it.contains(&expected)), "{finding:?}");
    }
}

#[test]
fn waiting_for_threads_that_compute_is_no_fault() {
    // Rayon's workers, without spans, use 2 × 15 ms of CPU time meanwhile.
    let mut trace = program("forward");
    set_cpu(&mut trace, &[("forward", 0.02), ("train_step", 1.0)], 37.0);
    assert_eq!(findings(&trace), []);
    let text = advice(&trace);
    assert!(text.contains("`forward` (model.rs:1) is off the CPU for 14.7 ms of each 22.0 ms step"), "{text}");
    assert!(text.contains("With `.samples(Samples::default())`, its stack would be known."), "{text}");
    // Spans of other threads are known to work.
    let mut trace = steps(|it, _| {
        it.step(22 * MILLI).span(0, "forward", 0, 15 * MILLI).span(1, "shard", 0, 15 * MILLI);
    });
    set_cpu(&mut trace, &[("forward", 0.02)], 0.0);
    assert_eq!(findings(&trace), []);
}

#[test]
fn joining_threads_is_no_fault_even_if_they_were_not_sampled() {
    let mut trace = program("forward");
    set_waits(&mut trace, "forward", &["train::forward", "std::thread::scoped::scope"]);
    assert_eq!(findings(&trace), []);
    let text = advice(&trace);
    assert!(text.contains("`forward` (model.rs:1) waits for 13.5 ms of each 22.0 ms step"), "{text}");
    assert!(text.contains("100.0 % of the sampled waits there are in `std::thread::scoped::scope`"), "{text}");
}

#[test]
fn waits_that_not_all_steps_have_count_with_their_mean() {
    // The lock is held in two of five steps.
    let mut trace = steps(|it, number| {
        let wait = if number % 5 < 2 { 2 * MILLI } else { 10 };
        it.step(12 * MILLI).span(0, "update", 0, wait).span(0, "forward", wait, 12 * MILLI);
    });
    set_cpu(&mut trace, &[("update", 0.01), ("forward", 1.0)], 10.0);
    let finding = only(&trace);
    assert!(finding.title.contains("is off the CPU for 798 µs of each step in `update`"), "{}", finding.title);
    assert_eq!(finding.saving.likely.as_micros() / 10, 79, "{:?}", finding.saving);
}

#[test]
fn a_busy_machine_is_no_wait() {
    // A thread that computes loses its CPU for most of the time.
    let mut trace = program("forward");
    set_cpu(&mut trace, &[("forward", 0.3), ("train_step", 0.3)], 6.6);
    assert_eq!(findings(&trace), []);
    assert!(advice(&trace).contains("Its thread runs for 30.0 % of that."), "{}", advice(&trace));
    let mut denied = steps(|it, _| {
        it.step(22 * MILLI).span(0, "throttle", 0, 15 * MILLI).field("op.wait", "none");
    });
    set_cpu(&mut denied, &[("throttle", 0.0)], 0.0);
    assert_eq!(findings(&denied), []);
}

#[test]
fn what_was_not_recorded_is_named() {
    let text = advice(&program("load"));
    assert!(text.contains("`load` (model.rs:1) takes 15.0 ms of each 22.0 ms step (68.2 %)"), "{text}");
    assert!(text.contains("`.cpu_time(CpuTime::spans())` tells"), "{text}");
    // A finding answers it.
    let text = advice(&program("next_batch"));
    assert!(text.starts_with("a step takes") && text.contains("[input-bound]"), "{text}");
    assert!(!text.contains("`next_batch` (model.rs:1) takes"), "{text}");
}

#[test]
fn calls_that_look_the_same_are_pointed_out_without_a_saving() {
    let calls = |name: &'static str, longer: u64, fields: bool| {
        steps(|it, _| {
            it.step(20 * MILLI).span(0, "train_step", 0, 20 * MILLI);
            for call in 0..8 {
                let start = 2 * call * MILLI;
                it.span(0, name, start, start + 1_200 + longer * call);
                if fields {
                    it.field("index", call);
                }
            }
        })
    };
    let text = advice(&calls("mask", 0, false));
    assert!(
        text.contains("`mask` (model.rs:2) is called 8 times a step, 1.20 ms each: 9.60 ms of each 20.0 ms"),
        "{text}"
    );
    for other in [calls("layer", 0, false), calls("mask", 0, true), calls("mask", 100, false)] {
        assert_eq!(findings(&other), []);
        assert!(!advice(&other).contains("is called"), "{}", advice(&other));
    }
}

#[test]
fn a_thread_without_a_cpu_in_all_steps_is_found() {
    let trace = |preempted: u64, process: f64| {
        let mut trace = program("forward");
        sample_stacks(&mut trace, 1000, 0, None);
        let frame = frame("[preempted]", "", "");
        for step in 0..10 {
            let stack = vec![&frame];
            let sample =
                SampledStack { micros: 22 * MILLI * step + 500, nanos: preempted * 1000, stack, ..Default::default() };
            add_stack(&mut trace, &SampledStack { span: Some(2 * step as usize), waiting: true, ..sample });
        }
        for (sign, value) in [("machine.cpu", 99.0), ("process.cpu", process), ("process.cpus", 1.0)] {
            let readings: Vec<_> = (0..=10).map(|step| (at(22 * MILLI * step), value)).collect();
            add_counter(&mut trace, &format!("vitals.{sign}"), &readings);
        }
        trace
    };
    let found = findings(&trace(4000, 50.0));
    assert_eq!(found.len(), 1, "{found:#?}");
    let finding = &found[0];
    assert_eq!((finding.kind, finding.saving.likely, finding.step), (FindingKind::CpuSaturated, millis(4), millis(22)));
    assert_eq!(finding.title, "the steps' thread is ready to run but has no CPU for 4.00 ms of each step");
    let expected =
        "`machine.cpu` is 99.0 % on average in these steps. This process keeps 1.00 CPUs busy, others the rest.";
    assert_eq!(finding.evidence[1], expected);
    assert!(finding.saving.least > millis(3));
    // Its own threads have to run at some time.
    assert_eq!(findings(&trace(4000, 98.0))[0].saving.least, Duration::ZERO);
    assert_eq!(findings(&trace(200, 50.0)), [], "as on an idle machine");
    // Without samples, it is not known what that costs.
    let mut unknown = trace(4000, 50.0);
    unknown.stack_sampling = None;
    assert_eq!(findings(&unknown), []);
    let text = advice(&unknown);
    assert!(text.contains("`machine.cpu` is 99.0 % on average, while this process keeps 1.00 CPUs busy."), "{text}");
}

#[test]
fn many_short_steps_with_a_wait_each_are_one_finding() {
    let mut host = HostTrace::default();
    for step in 0..100 {
        host.step(10_500 + step % 7).span(0, "update", 1_000, 3_300).span(0, "forward", 3_300, 10_400);
    }
    let mut trace = host.trace();
    set_cpu(&mut trace, &[("update", 0.014), ("forward", 0.99)], 7.3);
    let finding = only(&trace);
    assert_eq!((finding.kind, finding.path.join(" > ").as_str()), (FindingKind::HostWait, "update"));
}
