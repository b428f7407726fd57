//! Samples are in the spans that were open on their threads.

use super::{compute, frame, is_sampled, record};
use kernspan::{Samples, Trace, trace::Span};
use std::{
    sync::Mutex,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tracing::{dispatcher, info_span};

/// A span as the program itself sees it, in nanoseconds: from after it was entered to before it is exited.
struct Logged {
    thread: String,
    name: &'static str,
    start: u64,
    end: u64,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos().try_into().unwrap()
}

macro_rules! work {
    ($name:ident) => {
        #[inline(never)]
        fn $name(duration: Duration) {
            let start = Instant::now();
            while start.elapsed() < duration {
                compute();
            }
        }
    };
}

work!(work_outer);
work!(work_inner);
work!(work_between);

/// Enters spans of 20 µs to 50 ms for some time, one in the other, with gaps.
fn run(seed: u64, log: &Mutex<Vec<Logged>>) {
    let thread = thread::current().name().unwrap().to_owned();
    let (start, mut random) = (Instant::now(), seed);
    let mut mine = Vec::new();
    while start.elapsed() < Duration::from_secs(4) {
        // Uniform in the exponent: there are as many below a millisecond as above.
        let mut duration = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let exponent = (random >> 40) as f64 / (1 << 24) as f64;
            Duration::from_secs_f64(20e-6 * (50e-3_f64 / 20e-6).powf(exponent))
        };
        work_between(duration() / 4);
        info_span!("outer").in_scope(|| {
            let outer = now();
            work_outer(duration() / 3);
            let before = now();
            mine.push(Logged { thread: thread.clone(), name: "outer", start: outer, end: before });
            info_span!("inner").in_scope(|| {
                let inner = now();
                work_inner(duration() / 3);
                mine.push(Logged { thread: thread.clone(), name: "inner", start: inner, end: now() });
            });
            let after = now();
            work_outer(duration() / 3);
            mine.push(Logged { thread: thread.clone(), name: "outer", start: after, end: now() });
        });
    }
    log.lock().unwrap().append(&mut mine);
}

/// Compares with functions that only run in one span, and with the log. Returns how often.
fn check(trace: &Trace, log: &[Logged]) -> (usize, usize) {
    let (mut by_function, mut by_log) = (0, 0);
    for sample in trace.stack_samples().filter(|sample| !sample.is_at_edge()) {
        let span = sample.span().map(Span::name);
        let functions = [("work_outer", Some("outer")), ("work_inner", Some("inner")), ("work_between", None)];
        for (function, expected) in functions {
            if frame(sample, function).is_some() {
                by_function += 1;
                assert_eq!(span, expected, "{function} {sample:?}");
            }
        }
        let (at, thread) = (sample.at().as_unix_nanos(), sample.track().thread_name());
        let logged = log.iter().find(|logged| logged.thread == thread && logged.start <= at && at < logged.end);
        if let Some(logged) = logged {
            by_log += 1;
            assert_eq!(span, Some(logged.name), "at {at}, from {} to {}", logged.start, logged.end);
        }
    }
    (by_function, by_log)
}

#[test]
fn samples_are_in_the_spans_that_the_program_logged() {
    let log = Mutex::new(Vec::new());
    let trace = record(Samples::default().hertz(999), || {
        let dispatch = dispatcher::get_default(Clone::clone);
        thread::scope(|scope| {
            for seed in 0..3 {
                let (dispatch, log) = (dispatch.clone(), &log);
                let run = move || dispatcher::with_default(&dispatch, || run(seed, log));
                thread::Builder::new().name(format!("worker {seed}")).spawn_scoped(scope, run).unwrap();
            }
        });
    });
    if !is_sampled(&trace) {
        return;
    }
    let log = log.into_inner().unwrap();
    let (by_function, by_log) = check(&trace, &log);
    let edges = trace.stack_samples().filter(|sample| sample.is_at_edge()).count();
    println!("{by_function} by function, {by_log} by the log of {} spans, {edges} at edges", log.len());
    // Some 3,500 and 2,300, and fewer of both on a busy machine, as spans last until a time.
    assert!(by_function > 500 && by_log > 500, "{by_function} {by_log}");
}
