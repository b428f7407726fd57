//! Tests of CPU time, against readings of the same clocks in the test itself: inside a span and around it. So they hold
//! however busy the machine is.

mod steps;

use crate::support::{profiled, span};
use kernspan::{
    Chrome, CpuTime, Exporter, Perfetto, Profiler, ProfilerBuilder, Report, Schedule, Trace, analysis::Analysis,
    report::Hint, trace::Span,
};
use rustix::time::{ClockId, clock_gettime};
use std::{
    fs,
    future::{Future, poll_fn},
    hint::black_box,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};
use tracing::{Instrument, Level, debug_span, info_span};

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The CPU time of this thread.
fn now() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// Computes until this thread has run so much longer.
fn compute(cpu: Duration) {
    let until = now() + cpu;
    while now() < until {
        black_box((0..100_u64).map(black_box).sum::<u64>());
    }
}

const MILLIS: Duration = Duration::from_millis(1);

/// Runs this in a span. Returns the least and the most CPU time that the span can have.
fn bounded(span: tracing::Span, run: impl FnOnce()) -> (Duration, Duration) {
    let before = now();
    let inside = span.in_scope(|| {
        let begin = now();
        run();
        now() - begin
    });
    drop(span);
    (inside, now() - before)
}

#[track_caller]
fn check(span: Span<'_>, (least, most): (Duration, Duration)) {
    let cpu = span.cpu_time().unwrap_or_else(|| panic!("{} has no CPU time", span.name()));
    assert!(least <= cpu && cpu <= most, "{}: {least:?} <= {cpu:?} <= {most:?}", span.name());
}

/// Records this with the CPU time of all spans.
fn record(run: impl FnOnce(&Profiler)) -> (Arc<Trace>, Report) {
    record_with(|builder| builder.cpu_time(CpuTime::spans()), run)
}

fn record_with(
    setup: impl FnOnce(ProfilerBuilder) -> ProfilerBuilder,
    run: impl FnOnce(&Profiler),
) -> (Arc<Trace>, Report) {
    let (mut traces, report) = profiled(setup, run);
    assert_eq!(traces.len(), 1);
    (traces.remove(0), report)
}

#[test]
fn a_span_that_waits_differs_from_one_that_computes() {
    let mut bounds = Vec::new();
    let (trace, report) = record(|_| {
        let outer = bounded(info_span!("outer"), || {
            bounds.push(bounded(info_span!("waits"), || thread::sleep(50 * MILLIS)));
            bounds.push(bounded(info_span!("computes"), || compute(20 * MILLIS)));
            compute(5 * MILLIS);
        });
        bounds.push(outer);
    });
    let [waits, computes, outer] = ["waits", "computes", "outer"].map(|name| span(&trace, name));
    [waits, computes, outer].into_iter().zip(&bounds).for_each(|(span, &bounds)| check(span, bounds));
    assert!(computes.cpu_time() >= Some(20 * MILLIS) && waits.duration() >= 50 * MILLIS);
    let nested = waits.cpu_time().unwrap() + computes.cpu_time().unwrap();
    assert_eq!(outer.self_cpu_time(), Some(outer.cpu_time().unwrap() - nested));
    assert!(outer.self_cpu_time() >= Some(5 * MILLIS));
    assert!(trace.has_cpu_times() && trace.losses().is_empty());

    let rows = report.averages().rows();
    for span in [waits, computes, outer] {
        let row = rows.iter().find(|row| row.name == span.name()).unwrap();
        assert_eq!((row.total_on_cpu, row.self_on_cpu), (span.cpu_time(), span.self_cpu_time()));
        let percent = 100.0 * span.cpu_time().unwrap().as_secs_f64() / span.duration().as_secs_f64();
        assert!((row.on_cpu_percent.unwrap() - percent).abs() < 1e-6, "{row:?}");
    }
    let table = report.averages().to_string();
    assert!(["On CPU", "On CPU %", "Self on CPU"].iter().all(|column| table.contains(column)), "{table}");
}

#[test]
fn only_spans_of_the_chosen_levels_are_timed() {
    let mut bounds = None;
    let (trace, _) = record_with(
        |builder| builder.cpu_time(CpuTime::spans().max_level(Level::INFO)),
        |_| {
            bounds = Some(bounded(info_span!("coarse"), || {
                debug_span!("fine").in_scope(|| {
                    compute(5 * MILLIS);
                    info_span!("innermost").in_scope(|| compute(3 * MILLIS));
                });
            }));
        },
    );
    let [coarse, fine, innermost] = ["coarse", "fine", "innermost"].map(|name| span(&trace, name));
    check(coarse, bounds.unwrap());
    assert_eq!((fine.cpu_time(), fine.self_cpu_time()), (None, None));
    // The time of the span in between belongs to the one around it.
    assert_eq!(coarse.self_cpu_time(), Some(coarse.cpu_time().unwrap() - innermost.cpu_time().unwrap()));
}

#[test]
fn nothing_is_read_unless_it_is_asked_for() {
    let program = |profiler: &Profiler| {
        info_span!("work").in_scope(|| ());
        profiler.step();
    };
    let (trace, report) = record_with(|builder| builder, program);
    assert!(!trace.has_cpu_times() && trace.counters().is_empty());
    assert_eq!(report.averages().rows()[0].total_on_cpu, None);
    let (trace, report) = record_with(|builder| builder.cpu_time(CpuTime::default()), program);
    assert!(!trace.has_cpu_times() && !trace.counters().is_empty());
    assert!(!report.averages().to_string().contains("On CPU"));
    assert!(!report.hints().iter().any(|hint| matches!(hint, Hint::NoCpuTime { .. })));
}

#[test]
fn each_thread_has_its_own_time() {
    let mut bounds = Vec::new();
    let (trace, _) = record(|_| {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let thread = |name: &'static str, cpu: Duration| {
            let dispatch = dispatch.clone();
            thread::spawn(move || {
                let span = || if name == "busy" { info_span!("busy") } else { info_span!("idle") };
                tracing::dispatcher::with_default(&dispatch, || bounded(span(), || compute(cpu)))
            })
        };
        let threads = [thread("busy", 20 * MILLIS), thread("idle", Duration::ZERO)];
        let main = bounded(info_span!("main"), || {
            bounds.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
        });
        bounds.push(main);
    });
    for (name, bounds) in ["busy", "idle", "main"].into_iter().zip(bounds) {
        check(span(&trace, name), bounds);
    }
}

#[test]
fn a_future_has_the_time_of_all_its_polls() {
    let (trace, report) = record(|_| {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let mut polls = 0;
        let future = poll_fn(move |_| {
            polls += 1;
            compute(10 * MILLIS);
            if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
        });
        let mut future = Box::pin(future.instrument(info_span!("task")));
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        let rest = thread::spawn(move || {
            tracing::dispatcher::with_default(&dispatch, || {
                let mut context = Context::from_waker(Waker::noop());
                assert!(future.as_mut().poll(&mut context).is_ready());
                drop(future);
            });
        });
        rest.join().unwrap();
    });
    let polls: Vec<_> = trace.spans().filter(|span| span.name() == "task").collect();
    let threads: Vec<_> = polls.iter().map(|span| span.track().thread()).collect();
    assert!(threads.iter().any(|thread| *thread != threads[0]), "{threads:?}");
    let sum: Duration = polls.iter().map(|span| span.cpu_time().unwrap()).sum();
    assert!(sum >= 20 * MILLIS);
    let row = &report.averages().rows()[0];
    assert_eq!((row.calls, row.total_on_cpu), (1, Some(sum)));
}

#[test]
fn a_span_cut_by_the_edge_of_a_window_has_none() {
    let mut bounds = None;
    let (trace, _) = record_with(
        |builder| builder.cpu_time(CpuTime::spans()).schedule(Schedule::manual()),
        |profiler| {
            let before = info_span!("before").entered();
            assert!(profiler.start());
            bounds = Some(bounded(info_span!("whole"), || compute(MILLIS)));
            drop(before);
            let _after = info_span!("after").entered();
            profiler.stop();
        },
    );
    check(span(&trace, "whole"), bounds.unwrap());
    for name in ["before", "after"] {
        assert_eq!((span(&trace, name).cpu_time(), span(&trace, name).cut().any()), (None, true), "{name}");
    }
}

#[test]
fn readings_that_do_not_fit_are_counted() {
    const SPANS: u64 = 20_000;
    let (trace, report) = record_with(
        |builder| builder.cpu_time(CpuTime::spans()).lane_capacity(64),
        |_| {
            for _ in 0..SPANS / 2 {
                let _outer = info_span!("outer").entered();
                info_span!("inner").in_scope(|| ());
            }
        },
    );
    let lost = report.losses().lane_full;
    assert!(lost > 0, "a lane of 64 records cannot hold this");
    let untimed = trace.spans().filter(|span| span.cpu_time().is_none()).count() as u64;
    let dropped = SPANS - report.spans();
    assert!(dropped + untimed <= lost, "{dropped} dropped, {untimed} without CPU time, {lost} lost");
    assert!(trace.spans().all(|span| !span.cut().any()));
    // A reading is never taken for that of another span.
    for span in trace.spans().filter(|span| span.cpu_time().is_some()) {
        let nested: Duration = trace
            .spans()
            .skip(span.id().index() + 1)
            .take_while(|other| other.start() < span.end())
            .filter_map(Span::cpu_time)
            .sum();
        assert!(nested <= span.cpu_time().unwrap());
    }
}

#[test]
fn files_keep_the_time_of_spans() {
    let (trace, _) = record(|_| {
        let _outer = info_span!("outer", "CPU ns" = "a field of the same name").entered();
        info_span!("inner").in_scope(|| compute(MILLIS));
    });
    let folder = tempfile::tempdir().unwrap();
    let files = Perfetto::to_dir(folder.path()).export(&Analysis::of(&trace)).unwrap();
    let bytes = fs::read(&files[0]).unwrap();
    assert!(bytes.windows(6).any(|bytes| bytes == b"CPU ns"));
    #[cfg(feature = "read")]
    {
        let files = Chrome::to_dir(folder.path()).export(&Analysis::of(&trace)).unwrap();
        let read = kernspan::read(&files[0]).unwrap().remove(0);
        for name in ["outer", "inner"] {
            let [recorded, read] = [&trace, &read].map(|trace| span(trace, name));
            assert!(recorded.cpu_time().is_some());
            assert_eq!(read.cpu_time(), recorded.cpu_time());
            assert_eq!(read.self_cpu_time(), recorded.self_cpu_time());
        }
        assert_eq!(span(&read, "outer").field("CPU ns").unwrap().as_str(), Some("a field of the same name"));
    }
}
