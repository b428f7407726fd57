//! Tests of sampled call stacks, on the kernel of this machine.
//!
//! Where the kernel refuses to sample, tests that need it say so and pass, except on CI.

#![cfg(all(feature = "sampling", target_os = "linux"))]

mod forks;
mod library;
mod pools;
mod refusals;
mod shares;
mod spans;
mod waits;

#[path = "../support/mod.rs"]
mod support;

use kernspan::{
    Activity, Collected, Profiler, Samples, Trace,
    trace::{StackFrame, StackSample},
};
use rustix::time::{ClockId, clock_gettime};
use std::{
    hint::black_box,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tracing::subscriber::with_default;
use tracing_subscriber::prelude::*;

/// All threads of the process are sampled, and tests run in parallel.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records what this does, in one window.
fn record(samples: Samples, run: impl FnOnce()) -> Trace {
    let _alone = alone();
    let collected = Collected::new();
    let builder = Profiler::builder().activities([Activity::Host]).samples(samples).export(collected.clone());
    let (layer, profiler) = builder.build().unwrap();
    with_default(tracing_subscriber::registry().with(layer), run);
    profiler.finish().unwrap();
    Trace::clone(&collected.only())
}

/// Whether the kernel samples. If it does not, the test cannot tell anything.
fn is_sampled(trace: &Trace) -> bool {
    match trace.stack_sampling().unwrap().problem() {
        Some(problem) if problem.starts_with("stacks are not sampled") => {
            eprintln!("NOT TESTED: {problem}");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{problem}");
            false
        }
        _ => true,
    }
}

/// The time that this thread has run.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// Computes for some ten microseconds.
#[inline(always)]
fn compute() {
    let mut sum = 1.0_f64;
    for i in 0..black_box(300_u32) {
        sum = black_box(sum * 1.000_001 + f64::from(i));
    }
    black_box(sum);
}

/// The parts of the time that three functions have.
const SHARES: [f64; 3] = [0.6, 0.3, 0.1];
/// The time that each way to call them has on a CPU, for 5,000 samples and some in the kernel, which are left out.
const EACH: Duration = Duration::from_millis(2800);
const HERTZ: u32 = 1999;

/// Calls three functions in turn until each has had its share. Each works until this thread has run for so long.
fn take_turns<F: Fn(Duration)>(functions: [F; 3]) {
    let start = cpu_time();
    let mut spent = Duration::ZERO;
    // Turns of different lengths, so that they are not in step with the samples.
    for turn in (0..).map(|turn| Duration::from_micros(7_000 + turn % 13 * 500)) {
        for (function, share) in functions.iter().zip(SHARES) {
            spent += turn.mul_f64(share);
            function(start + spent);
        }
        if spent >= EACH {
            return;
        }
    }
}

/// Checks that the samples of a thread are in these functions by their shares.
fn check_shares(trace: &Trace, thread: &str, functions: [&str; 3]) {
    let samples =
        || trace.stack_samples().filter(|sample| !sample.is_waiting() && sample.track().thread_name() == thread);
    let counts = functions.map(|function| samples().filter(|sample| frame(*sample, function).is_some()).count());
    let all: usize = counts.iter().sum();
    // On a busy machine, rings may be read too late, and of timers that are due while a hypervisor runs others, several
    // give one sample: 4,379 of 5,600 were seen, none of them lost.
    let lost = trace.losses().stack_samples;
    assert!(all >= 1000 && all as u64 + lost >= 2800, "{thread}: {counts:?}, {lost} lost");
    for (count, share) in counts.into_iter().zip(SHARES) {
        let found = count as f64 / all as f64;
        // 3 points with all of the samples; four standard errors if there are fewer.
        let error = (share * (1.0 - share) / all as f64).sqrt();
        let allowed = (4.0 * error).max(0.03);
        assert!((found - share).abs() < allowed, "{thread}: {found:.3} instead of {share}: {counts:?}");
    }
    println!("{thread}: {counts:?}");
}

fn frame<'a>(sample: StackSample<'a>, function: &str) -> Option<&'a StackFrame> {
    sample.stack().find(|frame| frame.function().ends_with(function))
}
