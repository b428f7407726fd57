//! Tests of the rules for windows without a GPU, each on a written trace with the fault and on its repair.

mod gpu;
mod off_cpu;

use crate::{
    Trace,
    analysis::{Analysis, Finding, FindingKind},
    trace::sample::{HostTrace, set_fields},
};
use std::time::Duration;

const MILLI: u64 = 1000;

fn findings(trace: &Trace) -> Vec<Finding> {
    Analysis::of(trace).findings().to_vec()
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns the trace of ten steps, each with what `step` adds to it.
fn steps(mut step: impl FnMut(&mut HostTrace, u64)) -> Trace {
    let mut trace = HostTrace::default();
    (0..10).for_each(|number| step(&mut trace, number));
    trace.trace()
}

/// Returns the only finding, and checks what all findings have in common.
#[track_caller]
fn only(trace: &Trace) -> Finding {
    let mut found = findings(trace);
    assert_eq!(found.len(), 1, "{found:#?}");
    let finding = found.remove(0);
    let saving = finding.saving;
    assert!(saving.least < saving.likely && saving.likely < saving.most, "{finding:#?}");
    // Slow steps cost more than a typical one takes.
    assert!(saving.most <= finding.step || finding.kind == FindingKind::OutlierSteps, "{finding:#?}");
    assert!(!finding.evidence.is_empty() && !finding.ranges.is_empty() && finding.location.is_some(), "{finding:#?}");
    assert!(finding.ranges.iter().all(|range| range.step.is_some()));
    finding
}

#[test]
fn a_step_that_loads_its_data_is_input_bound() {
    let trace = |load: u64, name: &'static str| {
        steps(|it, number| {
            // The first step takes a second longer to load, and the times of the others differ a little.
            let load = load * MILLI + 10 * number + if number == 0 { 1_000 * MILLI } else { 0 };
            it.step(load + 20 * MILLI).span(0, name, 0, load).span(0, "train_step", load, load + 20 * MILLI);
            it.span(0, "forward", load, load + 10 * MILLI);
        })
    };
    let finding = only(&trace(80, "next_batch"));
    assert_eq!((finding.kind, finding.path.join(" > ").as_str()), (FindingKind::InputBound, "next_batch"));
    assert_eq!(finding.saving.likely.as_millis(), 80, "that of the typical step");
    assert_eq!(finding.step.as_millis(), 100);
    assert!(finding.title.contains("80.0 ms"), "{}", finding.title);
    // One more thread can load while the step computes: that saves the time of computing.
    assert_eq!(finding.saving.least.as_millis(), 17, "20 ms, less 2 % of the step");
    // Repaired: the next batch is there.
    assert_eq!(findings(&trace(0, "next_batch")), []);
    // Nothing says that the span loads data.
    assert_eq!(findings(&trace(80, "prepare")), []);
}

#[test]
fn a_span_that_takes_no_time_is_closed() {
    let trace = steps(|it, _| {
        it.step(100 * MILLI).span(0, "train_step", 0, 100 * MILLI).span(0, "next_batch", 0, 0);
    });
    assert_eq!(findings(&trace), []);
}

#[test]
fn a_span_around_the_loop_is_in_each_step() {
    let mut trace = HostTrace::default();
    for number in 0..10 {
        trace.step(100 * MILLI).span(0, "next_batch", 0, 80 * MILLI).span(0, "train_step", 80 * MILLI, 100 * MILLI);
        if number == 0 {
            trace.span(0, "train", 0, 1_000 * MILLI);
        }
    }
    let finding = only(&trace.trace());
    assert_eq!((finding.kind, finding.path.join(" > ").as_str()), (FindingKind::InputBound, "train > next_batch"));
}

#[test]
fn workers_that_are_too_slow_load_twice_as_fast_at_the_least() {
    let trace = steps(|it, _| {
        it.step(100 * MILLI).span(0, "data", 0, 80 * MILLI).span(0, "train_step", 80 * MILLI, 100 * MILLI);
        it.span(1, "load_batch", 0, 100 * MILLI);
    });
    let finding = only(&trace);
    assert_eq!(
        (finding.kind, finding.saving.likely, finding.saving.least),
        (FindingKind::InputBound, millis(80), millis(48))
    );
    assert!(finding.evidence[1].starts_with("One other thread loads data, for 100 ms"), "{:?}", finding.evidence);
    assert!(finding.advice().contains("too slow: use more of them"), "{}", finding.advice());
}

#[test]
fn a_thread_that_loads_ahead_need_not_be_named_for_it() {
    let trace = |busy: u64| {
        steps(|it, _| {
            it.step(100 * MILLI).span(0, "next_batch", 0, 80 * MILLI).span(0, "train_step", 80 * MILLI, 100 * MILLI);
            if busy > 0 {
                it.span(1, "spirals", 0, busy * MILLI);
            }
        })
    };
    let slow = only(&trace(95));
    assert!(slow.evidence[1].starts_with("`spirals` (model.rs:3) on `worker 1` seems to make the data"), "{slow:?}");
    assert!(slow.advice().contains("already, and are too slow"), "{}", slow.advice());
    // It idles: one more would not help.
    let idle = only(&trace(3));
    assert!(idle.advice().contains("already, and idle"), "{}", idle.advice());
    assert_eq!(idle.saving.least, Duration::ZERO);
    assert!(only(&trace(0)).advice().contains("Prepare batches on other threads"));
}

#[test]
fn the_place_of_a_loop_is_not_in_an_integration() {
    let mut trace = steps(|it, _| {
        it.step(100 * MILLI).span(0, "epoch", 0, 100 * MILLI).span(0, "data", 0, 80 * MILLI);
    });
    trace.callsites[1].target = "kernspan_candle::data".into();
    let finding = only(&trace);
    assert_eq!(finding.path, ["epoch", "data"]);
    assert_eq!(finding.location.as_deref(), Some("src/model.rs:1"), "of the span around it");
    for span in 0..trace.spans.len() {
        if trace.spans[span].callsite.index() == 1 {
            set_fields(&mut trace, span, &[("op.location", "src/main.rs:40")]);
        }
    }
    let finding = only(&trace);
    assert_eq!(finding.location.as_deref(), Some("src/main.rs:40"));
    assert!(finding.title.ends_with("in `data` (main.rs:40)"), "{}", finding.title);
}

#[test]
fn a_lock_that_another_thread_holds_is_a_wait() {
    let trace = |wait: u64| {
        steps(|it, _| {
            it.step(100 * MILLI).span(0, "train_step", 0, 100 * MILLI).span(0, "lock_params", 0, wait * MILLI);
            it.span(1, "evaluate", 0, wait * MILLI);
        })
    };
    let finding = only(&trace(30));
    assert_eq!((finding.kind, finding.saving.likely), (FindingKind::HostWait, millis(30)));
    assert_eq!(finding.path, ["train_step", "lock_params"]);
    assert!(finding.title.contains("waits for a lock for 30.0 ms of each step in `lock_params`"), "{}", finding.title);
    assert!(
        finding.evidence[1].contains("`evaluate` (model.rs:3) is open on `worker 1` for 30.0 ms"),
        "{:?}",
        finding.evidence
    );
    assert_eq!(findings(&trace(1)), []);
}

#[test]
fn waiting_for_threads_that_work_is_no_fault() {
    // The workers' share: all of the wait, half of it, and no spans at all.
    let trace = |worked: u64| {
        steps(|it, _| {
            it.step(100 * MILLI).span(0, "train_step", 0, 100 * MILLI).span(0, "join_workers", 10 * MILLI, 90 * MILLI);
            if worked > 0 {
                it.span(1, "shard", 10 * MILLI, (10 + worked) * MILLI);
                it.span(2, "shard", 10 * MILLI, (10 + worked) * MILLI);
            }
        })
    };
    assert_eq!(findings(&trace(80)), []);
    assert_eq!(findings(&trace(0)), [], "what other threads do is not known");
    let finding = only(&trace(40));
    assert_eq!(
        (finding.kind, finding.saving.likely, finding.saving.least),
        (FindingKind::HostWait, millis(40), millis(0))
    );
}

#[test]
fn a_field_says_whether_a_span_waits() {
    let trace = |wait: &'static str| {
        steps(|it, _| {
            it.step(100 * MILLI).span(0, "train_step", 0, 100 * MILLI).span(0, "throttle", 0, 50 * MILLI);
            it.field("op.wait", wait);
        })
    };
    assert!(only(&trace("sleep")).title.contains("sleeps for 50.0 ms"));
    assert_eq!(findings(&trace("none")), []);
}

#[test]
fn uneven_work_leaves_threads_idle() {
    let trace = |shares: [u64; 4]| {
        steps(|it, number| {
            it.step(100 * MILLI).span(0, "train_step", 0, 100 * MILLI).span(0, "forward", 10 * MILLI, 95 * MILLI);
            let longest = shares.into_iter().max().unwrap();
            for (thread, share) in shares.into_iter().enumerate() {
                // Each step has threads of its own. The last one ends when the call does.
                let start = (95 - longest) * MILLI;
                it.span(1 + 4 * number + thread as u64, "shard", start, start + share * MILLI);
            }
        })
    };
    let finding = only(&trace([80, 20, 20, 20]));
    assert_eq!((finding.kind, finding.saving.likely), (FindingKind::IdleThreads, millis(45)));
    // On two cores, the work takes 70 ms.
    assert_eq!(finding.saving.least, millis(8));
    assert!(finding.title.contains("one of 4 threads takes 80.0 ms where the mean is 35.0 ms"), "{}", finding.title);
    assert_eq!(finding.path, ["train_step", "forward"]);
    assert_eq!(findings(&trace([80, 70, 75, 80])), []);
}

#[test]
fn one_thread_that_works_while_a_pool_idles_is_found() {
    let trace = |alone: u64, pooled: u64| {
        steps(|it, _| {
            let all = alone + pooled;
            it.step(all * MILLI).span(0, "train_step", 0, all * MILLI).span(0, "forward", 0, pooled * MILLI);
            (1..=4).for_each(|thread| {
                it.span(thread, "shard", 0, pooled * MILLI);
            });
            it.span(0, "optimizer", pooled * MILLI, all * MILLI);
        })
    };
    let finding = only(&trace(40, 60));
    assert_eq!((finding.kind, finding.path.join(" > ").as_str()), (FindingKind::IdleThreads, "train_step > optimizer"));
    // With four threads; at the least with two.
    assert_eq!((finding.saving.likely, finding.saving.least), (millis(30), millis(18)));
    assert_eq!(findings(&trace(5, 95)), []);
}

#[test]
fn threads_that_work_whenever_they_like_are_no_pool() {
    // Two threads prefetch, without a name that says so, while the steps' thread computes.
    let trace = steps(|it, number| {
        it.step(100 * MILLI).span(0, "forward", 0, 40 * MILLI).span(0, "backward", 40 * MILLI, 100 * MILLI);
        let start = 7 * number % 50 * MILLI;
        it.span(1, "spirals", start, start + 30 * MILLI).span(2, "spirals", start + MILLI, start + 40 * MILLI);
    });
    assert_eq!(findings(&trace), []);
}

#[test]
fn calls_with_the_same_data_are_repeated() {
    let trace = |texts: [&'static str; 3], every_step_its_own: bool| {
        let names: Vec<String> = (0..30).map(|number| number.to_string()).collect();
        steps(|it, number| {
            it.step(100 * MILLI).span(0, "train_step", 0, 100 * MILLI);
            for (index, text) in texts.into_iter().enumerate() {
                let start = 10 * index as u64;
                it.span(0, "tokenize", start * MILLI, (start + 10) * MILLI);
                let own = names[3 * number as usize + index].as_str();
                it.field("text", if every_step_its_own { own } else { text }).field("vocab_size", 100_u64);
            }
        })
    };
    let finding = only(&trace(["one", "two", "three"], false));
    assert_eq!((finding.kind, finding.saving.likely), (FindingKind::RepeatedCalls, millis(30)));
    assert!(finding.evidence[0].contains("30 calls in 10 steps have 3 different sets of fields."), "{finding:?}");
    assert!(finding.evidence[1].contains("`text=one vocab_size=100`"), "{finding:?}");
    assert_eq!(only(&trace(["one", "one", "one"], false)).saving.likely, millis(30));
    assert_eq!(findings(&trace(["", "", ""], true)), []);
}

#[test]
fn layers_of_the_same_shape_and_parts_of_a_file_are_not_repeated() {
    let long = "a".repeat(1024) + "…";
    let trace = steps(|it, _| {
        it.step(100 * MILLI).span(0, "train_step", 0, 100 * MILLI).field("path", "train.bin");
        for layer in 0..4 {
            it.span(0, "linear", 10 * layer * MILLI, 10 * (layer + 1) * MILLI);
            it.field("op.shape.input", "[64, 512]").field("heads", 8_u64).field("device", "cpu").field("key", layer);
            let start = (40 + 15 * layer) * MILLI;
            it.span(0, "read_chunk", start, start + 5 * MILLI).field("path", "train.bin");
            it.span(0, "append", start + 5 * MILLI, start + 10 * MILLI).field("path", "log.txt");
            it.span(0, "tokenize", start + 10 * MILLI, start + 15 * MILLI).field("text", long.as_str());
        }
    });
    assert_eq!(findings(&trace), []);
}

#[test]
fn slow_steps_are_counted_and_named() {
    let trace = |slow: u64| {
        let mut trace = HostTrace::default();
        for number in 0..40 {
            let more = if number < slow { 50 * MILLI } else { 0 };
            trace.step(10 * MILLI + more).span(0, "train_step", 0, 10 * MILLI);
            if more > 0 {
                trace.span(0, "checkpoint", 10 * MILLI, 60 * MILLI);
            }
        }
        trace.trace()
    };
    let finding = only(&trace(6));
    assert_eq!(finding.kind, FindingKind::OutlierSteps);
    assert!(finding.title.starts_with("6 of 40 steps take longer"), "{}", finding.title);
    assert!(finding.evidence.contains(&"Slow steps: 10, 11, 12, 13, 14 and 1 more.".to_owned()), "{finding:?}");
    assert_eq!(finding.saving.likely, Duration::from_micros(7_500), "spread over all steps");
    assert_eq!(finding.step, Duration::from_micros(17_500), "the mean of all steps");
    assert!(finding.savings_text().starts_with("saves 7.50 ms of 17.5 ms a step, outliers included"));
    assert!(only(&trace(5)).evidence.contains(&"Slow steps: 10, 11, 12, 13, 14.".to_owned()));
    assert_eq!(findings(&trace(0)), []);
}

#[test]
fn what_comes_before_the_loop_is_part_of_no_step() {
    let trace = steps(|it, number| {
        let setup = if number == 0 { 500 * MILLI } else { 0 };
        it.step(setup + 10 * MILLI).span(0, "train_step", setup, setup + 10 * MILLI);
        if setup > 0 {
            it.span(0, "load_model", 0, setup);
        }
    });
    let mut first = trace.clone();
    first.steps.iter_mut().for_each(|step| step.number -= 10);
    assert_eq!(findings(&first), []);
    assert_eq!(only(&trace).kind, FindingKind::OutlierSteps, "any other step");
}

#[test]
fn without_whole_steps_of_one_thread_there_is_nothing_to_say() {
    let trace = steps(|it, _| {
        it.step(100 * MILLI).span(0, "data", 0, 80 * MILLI).span(1, "data", 0, 80 * MILLI);
    });
    assert_eq!(findings(&trace).len(), 1);
    let mut cut = trace.clone();
    cut.steps.iter_mut().for_each(|step| step.cut.end = true);
    assert_eq!(findings(&cut), []);
    let mut of_two = trace.clone();
    of_two.steps[3].track = of_two.spans.last().unwrap().track;
    assert_eq!(findings(&of_two), []);
}
