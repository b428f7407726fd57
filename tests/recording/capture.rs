//! Tests of the capture of spans and events, however they are used.

use crate::support::{names, profiled, span, trace_of, tree};
use kernspan::{
    Collected, Profiler, Schedule,
    trace::{Timestamp, Value},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Barrier},
    time::{Duration, Instant, UNIX_EPOCH},
};
use tracing::{Level, info, info_span, instrument};
use tracing_subscriber::{EnvFilter, filter::LevelFilter, prelude::*};

#[test]
fn spans_nest_as_they_were_entered() {
    let trace = trace_of(|_| {
        let _step = info_span!("step").entered();
        info_span!("forward").in_scope(|| info_span!("linear").in_scope(|| ()));
        info_span!("backward").in_scope(|| ());
    });
    assert_eq!(tree(&trace), "step\n  forward\n    linear\n  backward\n");
}

#[test]
fn time_is_right() {
    let unix = || UNIX_EPOCH.elapsed().unwrap();
    let (before, began) = (unix(), Instant::now());
    let mut inside = Duration::ZERO;
    let trace = trace_of(|_| {
        let _outer = info_span!("outer").entered();
        info_span!("inner").in_scope(|| {
            let entered = Instant::now();
            // Long enough that a wrong rate of the clock shows. How long it is does not matter.
            std::thread::sleep(Duration::from_millis(20));
            inside = entered.elapsed();
        });
    });
    let (outside, after) = (began.elapsed(), unix());
    let (outer, inner) = (span(&trace, "outer"), span(&trace, "inner"));
    // The rate of the clock is exact to half a percent.
    assert!(inner.duration() >= inside * 99 / 100, "{:?}, not {inside:?}", inner.duration());
    assert!(outer.duration() <= outside * 101 / 100, "{:?}, not {outside:?}", outer.duration());
    assert!(trace.start() <= outer.start() && outer.start() < inner.start());
    assert!(inner.end() <= outer.end() && outer.end() <= trace.end());
    assert_eq!(outer.self_time(), outer.duration() - inner.duration());
    // The times are those of the wall clock, not of a clock that counts from the start of the machine.
    let (slack, at) = (Duration::from_secs(1), |time: Timestamp| Duration::from_nanos(time.as_unix_nanos()));
    assert!(before <= at(trace.start()) + slack && at(trace.end()) <= after + slack);
}

#[test]
fn a_callsite_says_where_it_is() {
    #[instrument(target = "model", level = "debug")]
    fn forward() {}
    let trace = trace_of(|_| forward());
    let callsite = span(&trace, "forward").callsite();
    assert_eq!((callsite.name(), callsite.target()), ("forward", "model"));
    assert_eq!(callsite.level(), kernspan::trace::Level::Debug);
    assert_eq!(callsite.file(), Some(file!()));
    assert!(callsite.line().is_some());
}

#[test]
fn a_span_entered_for_ever_has_an_instance_each_time() {
    let trace = trace_of(|_| {
        let attention = info_span!("attn", layer = 3);
        for _ in 0..1000 {
            let _step = info_span!("step").entered();
            attention.in_scope(|| ());
        }
    });
    let instances: Vec<_> = trace.spans().filter(|span| span.name() == "attn").collect();
    assert_eq!(instances.len(), 1000);
    assert!(instances.iter().all(|span| span.parent().unwrap().name() == "step"));
    assert!(instances.iter().all(|span| span.field("layer") == Some(&Value::I64(3))));
}

#[test]
fn ids_that_the_registry_uses_again_are_not_confused() {
    // The registry uses one slot for all of these spans, and reuses its ids after some thousand.
    let program = |_: &Profiler| {
        for turn in 0..30_000_u64 {
            match turn % 3 {
                0 => info_span!("zero", turn).in_scope(|| ()),
                1 => info_span!("one").in_scope(|| ()),
                _ => info_span!("two", turn).in_scope(|| ()),
            }
        }
    };
    // The lane has room for all records, whether it is emptied meanwhile or not.
    let (traces, _) = profiled(|builder| builder.lane_capacity(1 << 18), program);
    let trace = &traces[0];
    assert!(trace.losses().is_empty(), "{}", trace.losses());
    for (turn, span) in (0..).zip(trace.spans()) {
        assert_eq!(span.name(), ["zero", "one", "two"][turn as usize % 3]);
        assert_eq!(span.field("turn").and_then(Value::as_u64), (turn % 3 != 1).then_some(turn));
    }
}

#[test]
fn a_span_can_move_between_threads() {
    let trace = trace_of(|_| {
        let span = info_span!("poll", task = 7);
        span.in_scope(|| ());
        let there = span.clone();
        std::thread::Builder::new().name("worker".into()).spawn(move || there.in_scope(|| ())).unwrap().join().unwrap();
    });
    let threads: Vec<_> = trace.spans().map(|span| span.track().thread_name().to_owned()).collect();
    assert_eq!(names(&trace), ["poll", "poll"]);
    assert!(threads.contains(&"worker".to_owned()));
    assert!(trace.spans().all(|span| span.field("task") == Some(&Value::I64(7))));
    assert_ne!(trace.tracks()[0].thread(), trace.tracks()[1].thread());
}

#[test]
fn exits_out_of_order_are_put_on_a_track_of_their_own() {
    let trace = trace_of(|_| {
        let (a, b) = (info_span!("a"), info_span!("b"));
        let a = a.entered();
        let b = b.entered();
        info_span!("inside").in_scope(|| ());
        drop(a);
        drop(b);
        info_span!("after").in_scope(|| ());
    });
    let (a, b) = (span(&trace, "a"), span(&trace, "b"));
    assert_eq!(b.parent().unwrap().name(), "a");
    assert!(a.end() < b.end() && b.start() < a.end());
    assert_eq!((a.track().overlap(), b.track().overlap()), (0, 1));
    assert_eq!(span(&trace, "inside").track().overlap(), 1);
    assert_eq!(span(&trace, "after").track().overlap(), 0);
}

#[test]
fn nesting_may_be_deep() {
    fn down(depth: u32) {
        if depth > 0 {
            info_span!("deep", depth).in_scope(|| down(depth - 1));
        }
    }
    let trace = trace_of(|_| down(1000));
    let deepest = trace.spans().max_by_key(|span| span.stack().count()).unwrap();
    assert_eq!(deepest.stack().count(), 1000);
    assert_eq!(deepest.field("depth").and_then(Value::as_u64), Some(1));
    assert!(trace.spans().all(|span| !span.cut().any()));
}

#[test]
fn threads_that_are_gone_are_there() {
    let trace = trace_of(|_| {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        for turn in 0..20 {
            let dispatch = dispatch.clone();
            let work =
                move || tracing::dispatcher::with_default(&dispatch, || info_span!("work", turn).in_scope(|| ()));
            std::thread::spawn(work).join().unwrap();
        }
    });
    assert_eq!(trace.spans().len(), 20);
    assert!(trace.losses().is_empty());
}

#[test]
fn a_panic_closes_the_spans_it_passes() {
    let trace = trace_of(|_| {
        let _outer = info_span!("outer").entered();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            info_span!("failing").in_scope(|| std::panic::resume_unwind(Box::new("oh")));
        }));
        assert!(panicked.is_err());
        info_span!("going on").in_scope(|| ());
    });
    assert_eq!(tree(&trace), "outer\n  failing\n  going on\n");
}

#[test]
fn events_are_moments_inside_spans() {
    let trace = trace_of(|_| {
        info!("outside");
        info_span!("step").in_scope(|| tracing::warn!(code = 7, "inside {}", 1));
    });
    let events: Vec<_> = trace.events().collect();
    assert_eq!(events.iter().map(|event| event.message()).collect::<Vec<_>>(), ["outside", "inside 1"]);
    assert!(events[0].span().is_none());
    assert_eq!(events[1].span().unwrap().name(), "step");
    assert_eq!(events[1].fields().get("code"), Some(&Value::I64(7)));
    assert_eq!(events[1].callsite().level(), kernspan::trace::Level::Warn);
}

#[test]
fn backtraces_are_taken_on_demand() {
    #[inline(never)]
    fn somewhere_deep() {
        info_span!("deep").in_scope(|| std::hint::black_box(()));
    }
    let (traces, _) = profiled(|builder| builder.backtraces(true), |_| somewhere_deep());
    let backtrace = span(&traces[0], "deep").backtrace();
    assert!(backtrace.first().is_some_and(|frame| frame.contains("somewhere_deep")), "{backtrace:#?}");
    assert!(trace_of(|_| somewhere_deep()).spans().all(|span| span.backtrace().is_empty()));
}

#[test]
fn many_threads_at_once_lose_nothing() {
    let trace = trace_of(|_| {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let barrier = Arc::new(Barrier::new(8));
        let threads: Vec<_> = (0..8_u64)
            .map(|thread| {
                let (dispatch, barrier) = (dispatch.clone(), Arc::clone(&barrier));
                std::thread::spawn(move || {
                    tracing::dispatcher::with_default(&dispatch, || {
                        barrier.wait();
                        for turn in 0..5_000_u64 {
                            let _outer = info_span!("outer", thread).entered();
                            info_span!("inner", turn).in_scope(|| ());
                        }
                    });
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert!(trace.losses().is_empty(), "{}", trace.losses());
    assert_eq!(trace.spans().len(), 8 * 2 * 5_000);
    let inner = trace.spans().filter(|span| span.name() == "inner");
    assert!(inner.into_iter().all(|span| span.parent().unwrap().name() == "outer"));
}

#[test]
fn other_layers_see_what_they_saw_before() {
    #[derive(Clone, Default)]
    struct Log(Arc<std::sync::Mutex<Vec<u8>>>);
    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let program = || {
        let _span = info_span!("shown", x = 1).entered();
        tracing::debug!("hidden");
        info!("printed");
        tracing::trace_span!("verbose").in_scope(|| ());
    };
    let printed = |with_profiler: bool| {
        let log = Log::default();
        let writer = log.clone();
        let fmt = tracing_subscriber::fmt::layer().without_time().with_ansi(false).with_writer(move || writer.clone());
        let fmt = fmt.with_filter(EnvFilter::new("info"));
        let collected = Collected::new();
        let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
        let layer = with_profiler.then_some(layer);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer).with(fmt), program);
        profiler.finish().unwrap();
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        (text, collected.only())
    };
    let (without, _) = printed(false);
    let (with, trace) = printed(true);
    assert_eq!(with, without);
    assert!(with.contains("printed") && !with.contains("hidden"));
    assert_eq!(tree(&trace), "shown{x=1}\n  verbose\n");
    assert_eq!(trace.events().len(), 2);
}

#[test]
fn the_layer_can_have_a_filter_of_its_own() {
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
    let subscriber = tracing_subscriber::registry().with(layer.with_filter(LevelFilter::INFO));
    tracing::subscriber::with_default(subscriber, || {
        let _outer = info_span!("outer").entered();
        tracing::debug_span!("left out").in_scope(|| info_span!("inner").in_scope(|| ()));
    });
    profiler.finish().unwrap();
    assert_eq!(tree(&collected.only()), "outer\n  inner\n");
}

#[test]
fn a_global_filter_decides_for_all() {
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
    let subscriber = tracing_subscriber::registry().with(EnvFilter::new("info")).with(layer);
    tracing::subscriber::with_default(subscriber, || {
        tracing::span!(Level::TRACE, "attn").in_scope(|| info_span!("kept").in_scope(|| ()));
    });
    profiler.finish().unwrap();
    assert_eq!(names(&collected.only()), ["kept"]);
}

#[test]
fn profilers_do_not_disturb_each_other() {
    let (first, second) = (Collected::new(), Collected::new());
    let (layer_1, profiler_1) = Profiler::builder().export(first.clone()).build().unwrap();
    let (layer_2, profiler_2) =
        Profiler::builder().schedule(Schedule::steps(1..=1)).export(second.clone()).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer_1).with(layer_2), || {
        for step in 0..3_u64 {
            info_span!("step", step).in_scope(|| ());
            profiler_2.step();
        }
    });
    let other = trace_of(|_| info_span!("elsewhere").in_scope(|| ()));
    profiler_1.finish().unwrap();
    profiler_2.finish().unwrap();
    assert_eq!(tree(&first.only()), "step{step=0}\nstep{step=1}\nstep{step=2}\n");
    assert_eq!(tree(&second.only()), "step{step=1}\n");
    assert_eq!(names(&other), ["elsewhere"]);
}
