//! Tests on traces of a training with two threads of its own, two of rayon and one of Candle's pool.

use super::samples_of_pools;
use crate::trace::{
    CallsiteId, Cut, FieldRange, SpanData, StackFrame, ThreadId, Timestamp, Trace, Track, TrackId,
    sample::{SampledStack, add_stack, at, frame, sample_stacks},
};

const MAIN: usize = 0;
const LOADER: usize = 1;
const RAYON: usize = 2;
const OTHER_RAYON: usize = 3;
const CANDLE: usize = 4;

/// Frames from the outermost one, by their functions.
type Stack = &'static [&'static str];

const WORKS: Stack = &["train::main", "train::step"];
const SLEEPS: Stack = &["train::main", "std::thread::park", "syscall"];
const JOINS: Stack = &[
    "train::main",
    "candle_core::tensor::Tensor::matmul",
    "rayon_core::registry::Registry::in_worker_cold",
    "std::thread::local::LocalKey<T>::with",
    "rayon_core::latch::LockLatch::wait_and_reset",
    "syscall",
];
const EXECUTES: Stack = &["train::main", "candle_core::utils::BarrierPool::execute", "train::relu"];
const JOB: Stack = &[
    "rayon_core::registry::ThreadBuilder::run",
    "rayon_core::registry::WorkerThread::wait_until_cold",
    "<rayon_core::job::StackJob<L,F,R> as rayon_core::job::Job>::execute",
    "rayon_core::registry::Registry::in_worker_cold::{{closure}}",
    "gemm_f32::kernel",
];
const JOB_OF_SCOPE: Stack = &[
    "rayon_core::registry::main_loop",
    "<rayon_core::job::HeapJob<BODY> as rayon_core::job::Job>::execute",
    "core::ops::function::FnOnce::call_once",
    "rayon_core::scope::Scope::spawn::{{closure}}",
    "train::part",
];
const SPAWNED_JOB: Stack = &[
    "rayon_core::registry::main_loop",
    "<rayon_core::job::HeapJob<BODY> as rayon_core::job::Job>::execute",
    "rayon_core::spawn::spawn_job::{{closure}}",
    "train::write_log",
    "rayon_core::scope::scope",
];
const CANDLE_WORK: Stack = &["candle_core::utils::call_trampoline", "train::relu"];

/// A sample, in microseconds: the thread, when it was taken, how long the thread waited if it did, and its stack.
type Sample = (usize, u64, Option<u64>, Stack);

/// Returns the span that each sample of a pool's thread is attributed to. Spans are given as thread, start and end.
fn owners(spans: &[(usize, u64, u64)], samples: &[Sample]) -> Vec<(usize, usize)> {
    found(&trace(spans, samples))
}

fn found(trace: &Trace) -> Vec<(usize, usize)> {
    let found = samples_of_pools(trace, trace.stack_sampling().unwrap());
    found.into_iter().map(|(sample, span)| (sample, span.index())).collect()
}

fn trace(spans: &[(usize, u64, u64)], samples: &[Sample]) -> Trace {
    let names = ["main", "loader", "train", "train", "candle-bp-0"];
    let track =
        |(name, thread): (&str, u64)| Track { thread: ThreadId::new(thread), name: name.to_owned(), overlap: 0 };
    let span = |&(track, start, end): &(usize, u64, u64)| SpanData {
        callsite: CallsiteId::new(0),
        track: TrackId::new(track),
        parent: None,
        previous: None,
        step: None,
        start: at(start),
        end: at(end),
        self_nanos: 0,
        fields: FieldRange::default(),
        cut: Cut::default(),
    };
    let mut trace = Trace {
        start: at(0),
        end: at(1_000),
        tracks: names.into_iter().zip(1..).map(track).collect(),
        spans: spans.iter().map(span).collect(),
        ..Trace::default()
    };
    sample_stacks(&mut trace, 1_000_000, 0, None);
    for &(track, micros, waited, stack) in samples {
        let frames: Vec<StackFrame> = stack.iter().map(|function| frame(function, "", "train")).collect();
        let nanos = waited.map_or(1_000, |micros| 1_000 * micros);
        let (waiting, stack) = (waited.is_some(), frames.iter().collect());
        let moment = Timestamp::from_unix_nanos(at(micros).as_unix_nanos());
        let open = spans.iter().rposition(|&(of, start, end)| of == track && at(start) <= moment && moment <= at(end));
        add_stack(&mut trace, &SampledStack { micros, nanos, track, span: open, stack, waiting, ..Default::default() });
    }
    trace
}

/// Main is in its span, and waits for rayon from 200 to 600 µs.
const STEP: (usize, u64, u64) = (MAIN, 100, 900);
const JOINING: Sample = (MAIN, 200, Some(400), JOINS);

#[test]
fn a_job_is_for_the_only_thread_that_waits_for_its_pool() {
    let jobs = [(RAYON, 150, None, JOB), JOINING, (RAYON, 300, None, JOB), (OTHER_RAYON, 300, None, JOB)];
    let late = [(RAYON, 700, None, JOB)];
    assert_eq!(owners(&[STEP], &[&jobs[..], &late].concat()), [(2, 0), (3, 0)]);
    // It was open when the wait began, inside another.
    assert_eq!(owners(&[(MAIN, 0, 1_000), STEP], &jobs), [(2, 1), (3, 1)]);
    // Another thread in a span waits for something else, or works.
    let spans = [STEP, (LOADER, 0, 1_000)];
    assert_eq!(owners(&spans, &[&[(LOADER, 10, Some(900), SLEEPS)], &jobs[..]].concat()), [(3, 0), (4, 0)]);
    assert_eq!(owners(&spans, &[&[(LOADER, 10, None, WORKS)], &jobs[..]].concat()), [(3, 0), (4, 0)]);
}

#[test]
fn nothing_is_guessed_if_another_thread_may_wait_for_the_pool() {
    let job = (RAYON, 300, None, JOB);
    for other in [JOINS, &[]] {
        let samples = [(LOADER, 10, Some(900), other), JOINING, job];
        assert_eq!(owners(&[STEP, (LOADER, 0, 1_000)], &samples), []);
        assert_eq!(owners(&[STEP], &samples), [], "without a span, too");
    }
    // Of a stack that is not complete, the frames of the pool may be missing.
    let mut trace = trace(&[STEP], &[(LOADER, 10, Some(900), SLEEPS), JOINING, job]);
    assert_eq!(found(&trace).len(), 1);
    trace.stack_sampling.as_mut().unwrap().samples[0].truncated = true;
    assert_eq!(found(&trace), []);
}

#[test]
fn a_job_is_for_no_span_if_no_span_waits_for_it() {
    let job = (RAYON, 300, None, JOB);
    assert_eq!(owners(&[STEP], &[(MAIN, 200, Some(400), SLEEPS), job]), []);
    assert_eq!(owners(&[(MAIN, 700, 900)], &[JOINING, job]), []);
    assert_eq!(owners(&[STEP], &[(MAIN, 200, None, WORKS), (MAIN, 700, Some(100), SLEEPS), job]), []);
    // A thread of the pool looks for work.
    let idle: Stack = &["rayon_core::registry::ThreadBuilder::run", "rayon_core::sleep::Sleep::no_work_found"];
    assert_eq!(owners(&[STEP], &[JOINING, (RAYON, 300, None, idle)]), []);
}

#[test]
fn threads_of_another_pool_work_for_somebody_else() {
    assert_eq!(owners(&[STEP], &[JOINING, (CANDLE, 300, None, CANDLE_WORK)]), []);
    let waits = (LOADER, 10, Some(900), SLEEPS);
    assert_eq!(owners(&[STEP], &[waits, (MAIN, 290, None, EXECUTES), (RAYON, 300, None, JOB)]), []);
}

#[test]
fn a_thread_of_the_pool_with_a_span_of_its_own_may_be_the_one_that_it_helps() {
    let job = (RAYON, 300, None, JOB);
    assert_eq!(owners(&[STEP, (OTHER_RAYON, 250, 350)], &[JOINING, job, (OTHER_RAYON, 310, None, JOB)]), []);
}

#[test]
fn the_barrier_pool_works_for_the_only_thread_that_runs() {
    let waits = (LOADER, 10, Some(900), SLEEPS);
    let work = [(MAIN, 200, None, EXECUTES), (CANDLE, 300, None, CANDLE_WORK), (CANDLE, 950, None, CANDLE_WORK)];
    assert_eq!(owners(&[STEP], &[&[waits], &work[..]].concat()), [(2, 0)]);
    let others: [Sample; 4] = [
        // It may be in the pool's lock, or about to enter it.
        (LOADER, 10, None, WORKS),
        (LOADER, 10, None, EXECUTES),
        (LOADER, 10, Some(900), &["[preempted]"]),
        (LOADER, 10, Some(900), EXECUTES),
    ];
    for other in others {
        let elsewhere = (LOADER, 980, Some(10), SLEEPS);
        assert_eq!(owners(&[STEP], &[&[other], &work[..], &[elsewhere]].concat()), [], "{other:?}");
    }
    let never_in_candle = [waits, (MAIN, 200, None, WORKS), (CANDLE, 300, None, CANDLE_WORK)];
    assert_eq!(owners(&[STEP], &never_in_candle), []);
}

#[test]
fn a_pool_may_work_for_a_thread_of_another_pool() {
    // A job of rayon has Candle's pool help, ...
    let in_job: Stack = &[
        "rayon_core::registry::ThreadBuilder::run",
        "<rayon_core::job::StackJob<L,F,R> as rayon_core::job::Job>::execute",
        "candle_core::utils::BarrierPool::execute",
    ];
    let candle = (CANDLE, 300, None, CANDLE_WORK);
    assert_eq!(owners(&[STEP], &[JOINING, (RAYON, 250, None, in_job), candle]), [(1, 0), (2, 0)]);
    assert_eq!(owners(&[(MAIN, 700, 900)], &[JOINING, (RAYON, 250, None, in_job), candle]), []);
    // ... or the other way round.
    let joins: Stack = &["candle_core::utils::call_trampoline", "rayon_core::registry::Registry::in_worker_cold"];
    let samples = [(MAIN, 200, None, EXECUTES), (CANDLE, 210, None, CANDLE_WORK), (CANDLE, 220, Some(200), joins)];
    assert_eq!(owners(&[STEP], &[&samples[..], &[(RAYON, 300, None, JOB)]].concat()), [(3, 0)]);
}

#[test]
fn nobody_waits_for_spawned_jobs() {
    let scoped = [JOINING, (RAYON, 300, None, JOB_OF_SCOPE), (OTHER_RAYON, 310, None, JOB)];
    assert_eq!(owners(&[STEP], &scoped), [(1, 0), (2, 0)]);
    // What others help with may be for the spawned one.
    assert_eq!(owners(&[STEP], &[&scoped[..], &[(RAYON, 700, None, SPAWNED_JOB)]].concat()), []);
}

#[test]
fn nothing_is_known_of_a_window_with_threads_that_were_not_sampled() {
    let samples = [JOINING, (RAYON, 300, None, JOB)];
    assert_eq!(owners(&[STEP], &samples).len(), 1);
    let mut refused = trace(&[STEP], &samples);
    refused.stack_sampling.as_mut().unwrap().problem = Some("1 thread was not sampled".to_owned());
    assert_eq!(found(&refused), []);
    let mut short = trace(&[STEP], &samples);
    short.stack_sampling.as_mut().unwrap().hertz = 99;
    assert_eq!(found(&short), []);
}

/// Inlined functions have no path in line tables.
#[test]
fn inlined_functions_are_known_by_their_files() {
    let rayon = "/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/rayon-core-1.13.0/src";
    let mut trace =
        trace(&[STEP], &[(MAIN, 200, Some(400), &["train::main", "with", "cold"]), (RAYON, 300, None, JOB)]);
    assert_eq!(found(&trace), []);
    let frames = &mut trace.stack_sampling.as_mut().unwrap().frames;
    let cold = frames.iter_mut().find(|frame| frame.function() == "cold").unwrap();
    *cold = frame("in_worker_cold<train::main::{closure_env#0}, ()>", &format!("{rayon}/registry.rs:525"), "train");
    assert_eq!(found(&trace), [(1, 0)]);
}
