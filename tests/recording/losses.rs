//! Tests of bounded memory: records that do not fit are counted, so that kept and lost records add up.

use crate::support::{PATIENCE, eventually, profiled, steps::step_summaries};
use kernspan::{analysis::Analysis, trace::Counter};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
    mpsc,
};
use tracing::{info, info_span};

#[test]
fn a_full_lane_drops_whole_spans_and_counts_them() {
    const SPANS: u64 = 20_000;
    let (traces, report) = profiled(
        |builder| builder.lane_capacity(64),
        |_| {
            for turn in 0..SPANS / 2 {
                let _outer = info_span!("outer", turn).entered();
                info_span!("inner").in_scope(|| ());
            }
        },
    );
    let losses = report.losses();
    assert!(losses.lane_full > 0, "a lane of 64 records cannot hold this");
    assert_eq!(report.spans() + losses.lane_full, SPANS);
    assert_eq!((losses.total(), traces[0].losses()), (losses.lane_full, losses));
    // Spans that were kept are complete.
    assert!(traces[0].spans().all(|span| !span.cut().any()));
    assert!(traces[0].spans().filter(|span| span.name() == "outer").all(|span| span.field("turn").is_some()));
}

#[test]
fn a_full_lane_drops_operations_and_counts_them() {
    const OPERATIONS: u64 = 20_000;
    let add = Arc::new(kernspan::trace::Operation::new("add"));
    let (traces, report) = profiled(
        |builder| builder.lane_capacity(64),
        |profiler| {
            let hand_over = profiler.hand_over();
            let _span = info_span!("work").entered();
            (0..OPERATIONS).for_each(|_| hand_over.operation(&add));
        },
    );
    let lost = report.losses().lane_full;
    assert!(lost > 0, "a lane of 64 records cannot hold this");
    assert_eq!(traces[0].operations().len() as u64 + lost, OPERATIONS);
    assert_eq!((report.spans(), report.losses().total()), (1, lost));
    assert!(traces[0].operations().all(|call| call.span().is_some_and(|span| span.name() == "work")));
}

#[test]
fn past_the_memory_limit_operations_are_counted() {
    const OPERATIONS: u64 = 60_000;
    let (traces, report) = profiled(
        |builder| builder.memory_limit_bytes(1 << 20).lane_capacity(1 << 20),
        |profiler| {
            let hand_over = profiler.hand_over();
            // Half of the operations are reported once, and are owned by the record alone.
            let add = Arc::new(kernspan::trace::Operation::new("add"));
            for turn in 0..OPERATIONS {
                let once = Arc::new(kernspan::trace::Operation::new("once").with("turn", turn));
                hand_over.operation(if turn % 2 == 0 { &add } else { &once });
            }
        },
    );
    let lost = report.losses().over_memory;
    assert_eq!(traces[0].operations().len() as u64 + lost, OPERATIONS);
    assert_eq!(report.losses().total(), lost);
    // A mebibyte holds 32,768 records that own nothing.
    assert!(lost > OPERATIONS - 30_000, "{lost}");
}

#[test]
fn deep_nesting_in_a_full_lane_keeps_every_exit() {
    fn down(depth: u32) {
        info_span!("deep").in_scope(|| {
            if depth > 1 {
                down(depth - 1);
            }
        });
    }
    let (traces, report) = profiled(|builder| builder.lane_capacity(64), |_| (0..200).for_each(|_| down(100)));
    assert_eq!(report.spans() + report.losses().lane_full, 200 * 100);
    assert!(report.losses().lane_full > 0);
    assert!(traces[0].spans().all(|span| !span.cut().any()));
}

#[test]
fn past_the_memory_limit_spans_and_events_are_counted() {
    const TURNS: u64 = 60_000;
    let (traces, report) = profiled(
        |builder| builder.memory_limit_bytes(1 << 20).lane_capacity(1 << 20),
        |_| {
            let _run = info_span!("run").entered();
            for turn in 0..TURNS {
                info_span!("work", turn).in_scope(|| info!("event"));
            }
        },
    );
    let trace = &traces[0];
    let losses = report.losses();
    assert!(losses.over_memory > 0, "a mebibyte cannot hold this");
    assert_eq!(losses.lane_full, 0);
    let kept = trace.spans().len() as u64 + trace.events().len() as u64;
    assert_eq!(kept + losses.over_memory, 1 + 2 * TURNS);
    // The exits of spans that were kept were kept as well.
    let cut: Vec<_> = trace.spans().filter(|span| span.cut().any()).map(|span| (span.id(), span.name())).collect();
    assert!(cut.is_empty(), "{cut:?} of {}", trace.spans().len());
    assert!(kept * 32 < 2 << 20, "{kept} records are more than was allowed");
}

#[test]
fn steps_survive_a_flood_wherever_they_are() {
    const STEPS: u64 = 18;
    fn flood() {
        (0..5_000).for_each(|turn| info_span!("operation", turn).in_scope(|| ()));
    }
    // Directly inside the step; and in a step that lies in two other spans.
    for outer in [0, 2] {
        let (traces, report) = profiled(
            |builder| builder.memory_limit_bytes(4 << 20).lane_capacity(1 << 20),
            |profiler| {
                let _outer: Vec<_> = (0..outer).map(|_| info_span!("outer").entered()).collect();
                for _ in 0..STEPS {
                    info_span!("train_step").in_scope(flood);
                    profiler.step();
                }
            },
        );
        assert!(report.losses().over_memory > 0, "four mebibytes cannot hold this");
        let steps = traces[0].spans().filter(|span| span.name() == "train_step").count() as u64;
        assert_eq!((traces[0].steps().len() as u64, steps), (STEPS, STEPS));
    }
}

#[test]
fn steps_and_outer_spans_survive_a_flood_of_inner_ones() {
    const STEPS: u64 = 18;
    let (traces, report) = profiled(
        |builder| builder.memory_limit_bytes(4 << 20).lane_capacity(1 << 20),
        |profiler| {
            for _ in 0..STEPS {
                info_span!("train_step").in_scope(|| {
                    info_span!("forward").in_scope(|| {
                        for turn in 0..5_000 {
                            info_span!("operation", turn).in_scope(|| info!("event"));
                        }
                    });
                });
                profiler.step();
            }
        },
    );
    let count = |name: &str| traces[0].spans().filter(|span| span.name() == name).count() as u64;
    assert!(count("operation") < STEPS * 5_000, "four mebibytes cannot hold this");
    assert_eq!((traces[0].steps().len() as u64, count("train_step"), count("forward")), (STEPS, STEPS, STEPS));
    // The report says so before any figure, and what to do.
    let printed = report.width(200).to_string();
    let (warning, _) = printed.split_once('\n').unwrap();
    assert!(
        warning.starts_with("WARNING: incomplete: ") && warning.contains("% of all records were dropped"),
        "{printed}"
    );
    assert!(printed.contains("; raise `memory_limit_bytes`, or record fewer steps\n"), "{printed}");
    assert!(!printed.contains("nothing"), "{printed}");
}

#[test]
fn texts_that_are_cut_are_counted() {
    let (_, report) = profiled(
        |builder| builder,
        |_| {
            info_span!("long", text = "x".repeat(5_000), short = "y").in_scope(|| info!("{}", "z".repeat(2_000)));
        },
    );
    assert_eq!((report.losses().truncated, report.losses().total(), report.losses().dropped()), (2, 2, 0));
    let printed = report.to_string();
    assert!(printed.contains("\nincomplete: 2 fields cut to 1024 bytes\n"), "{printed}");
}

#[test]
fn memory_is_given_back_after_each_window() {
    let exported = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&exported);
    let (traces, report) = profiled(
        |builder| {
            let builder = builder.memory_limit_bytes(1 << 20).schedule(kernspan::Schedule::new().active(1));
            builder.on_trace(move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
            })
        },
        |profiler| {
            for step in 0..20 {
                (0..1_300).for_each(|_| info_span!("work").in_scope(|| ()));
                profiler.step();
                // A window takes a quarter of the memory.
                eventually("the export", || (exported.load(Ordering::Relaxed) > step).then_some(()));
            }
        },
    );
    assert_eq!(traces.len(), 20);
    assert!(report.losses().is_empty(), "{}", report.losses());
    assert_eq!(report.spans(), 26_000);
}

#[test]
fn fields_of_too_many_living_spans_are_counted() {
    let many = 40_000;
    let (traces, report) = profiled(
        |builder| builder.lane_capacity(1 << 18),
        |_| {
            let living: Vec<_> = (0..many).map(|turn| info_span!("alive", turn)).collect();
            living.iter().for_each(|span| span.in_scope(|| ()));
        },
    );
    let with_fields = traces[0].spans().filter(|span| !span.fields().is_empty()).count() as u64;
    assert!(report.losses().fields > 0);
    assert_eq!(with_fields + report.losses().fields, many);
    assert_eq!(report.spans(), many);
}

#[test]
fn losses_are_shown_wherever_the_trace_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (_, report) = profiled(
        |builder| {
            let builder = builder.lane_capacity(64).export(kernspan::Chrome::to_dir(path));
            builder.export(kernspan::Perfetto::to_dir(path)).export(kernspan::Stacks::to_dir(path))
        },
        |_| (0..10_000).for_each(|_| info_span!("work").in_scope(|| ())),
    );
    let text = report.losses().to_string();
    assert!(text.starts_with("lost "));
    let printed = format!("thread buffer full: {} records dropped; raise `lane_capacity`\n", report.losses().lane_full);
    assert!(report.to_string().contains(&printed));
    assert_eq!(report.files().len(), 3);
    for file in report.files() {
        let content = String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned();
        assert!(content.contains(&text), "{} does not say {text}", file.display());
    }
}

#[test]
fn past_the_memory_limit_no_exit_is_taken_for_anothers() {
    // Each window gives its memory back while the next is open, and spans are exited out of order. A window takes most
    // of the memory, and the first is held for some time.
    let (release, is_released) = mpsc::channel::<()>();
    let hold = move |trace: &Analysis<'_>| {
        if trace.window() == 0 {
            is_released.recv_timeout(PATIENCE).unwrap();
        }
    };
    let (traces, report) = profiled(
        |builder| {
            let builder = builder.memory_limit_bytes(1 << 20).lane_capacity(1 << 20).on_trace(hold);
            builder.schedule(kernspan::Schedule::new().active(1))
        },
        |profiler| {
            for step in 0..30 {
                if step == 10 {
                    release.send(()).unwrap();
                }
                for _ in 0..5_000 {
                    let (a, b) = (info_span!("a").entered(), info_span!("b").entered());
                    info_span!("inside").in_scope(|| ());
                    drop(a);
                    drop(b);
                }
                profiler.step();
            }
        },
    );
    assert!(report.losses().over_memory > 0 && report.spans() > 0);
    assert_eq!(report.spans() + report.losses().total(), 30 * 5_000 * 3);
    for trace in traces {
        assert!(trace.spans().all(|span| !span.cut().any() && span.stack().count() <= 3));
    }
}

#[test]
fn text_counts_towards_the_memory_limit() {
    let text = "x".repeat(1_000);
    let (traces, report) = profiled(
        |builder| builder.memory_limit_bytes(1 << 20).lane_capacity(1 << 20),
        |_| (0..20_000).for_each(|_| info!("{text}")),
    );
    assert!(report.losses().over_memory > 0);
    assert!(traces[0].events().len() < 2_000, "{} events of a kilobyte in a mebibyte", traces[0].events().len());
}

#[test]
fn counters_that_are_no_numbers_or_are_on_spans_are_counted() {
    let (traces, report) = profiled(
        |builder| builder,
        |_| {
            info!(counter.loss = 0.5, counter.name = "adam", counter.done = true, counter.big = 1_i128);
            info!(counter.text = %"0.5", other = "text");
            info_span!("work", counter.loss = 0.5, other = 1).in_scope(|| ());
        },
    );
    let trace = &traces[0];
    let counters: Vec<_> = trace.counters().iter().map(Counter::name).collect();
    assert_eq!((counters, trace.events().len()), (vec!["loss"], 2));
    assert_eq!((report.losses().counters, report.losses().total()), (5, 5));
    let text = report.to_string();
    let expected = "incomplete: 5 counter values dropped\ncounter value not a number: 5 values dropped; write numbers";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn counters_that_are_no_numbers_are_counted_in_steps_that_are_not_recorded_too() {
    let (steps, report) = step_summaries(
        |builder| builder.schedule(kernspan::Schedule::new().wait(2).active(1).repeat(1)),
        |profiler| {
            for _ in 0..3 {
                info!(counter.loss = 0.5, counter.name = "adam", counter.done = true);
                profiler.step();
            }
        },
    );
    assert!(steps.len() == 3 && steps.iter().all(|step| step.counter("loss") == Some(0.5)), "{steps:?}");
    assert_eq!(report.unwrap().losses().counters, 6);
}
