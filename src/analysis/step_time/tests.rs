//! Tests of the time of a step.

use super::{StepTime, step_intervals};
use crate::{
    analysis::Analysis,
    trace::{
        Trace,
        sample::{GpuTrace, HostTrace, at, gpu_trace, set_steps},
    },
};
use proptest::prelude::*;
use std::time::Duration;

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn times(trace: &Trace) -> Vec<u128> {
    step_intervals(trace).iter().map(|step| step.time().as_micros()).collect()
}

fn of(times: &[u64]) -> StepTime {
    StepTime::of(times.iter().map(|&time| (micros(time), micros(time)))).unwrap()
}

#[test]
fn steps_that_wait_for_the_gpu_take_as_long_as_on_the_host() {
    let trace = gpu_trace();
    assert_eq!(times(&trace), [100, 100]);
    let step = Analysis::of(&trace).step_time().unwrap();
    assert_eq!((step.mean, step.host, step.steps, step.outliers), (micros(100), micros(100), 2, 0));
    assert!(!step.host_runs_ahead());
    assert_eq!(Analysis::of(&Trace::default()).step_time(), None);
}

/// Returns a trace whose GPU takes 300 µs for each step, and whose host launches all of it in 20 µs a step.
fn ahead() -> GpuTrace {
    let mut trace = GpuTrace::default();
    for _ in 0..4 {
        trace.step(|step| {
            step.launch("gemm", 100).launch("gemm", 100).launch("gemm", 100).host(5);
        });
    }
    trace
}

#[test]
fn steps_of_a_host_that_runs_ahead_take_as_long_as_their_work() {
    let trace = ahead().trace();
    // A kernel begins 5 µs after its call, or 1 µs after the one before it.
    assert_eq!(times(&trace), [307, 303, 303, 303]);
    let step = Analysis::of(&trace).step_time().unwrap();
    assert_eq!((step.mean, step.host), (micros(304), micros(20)));
    assert!(step.host_runs_ahead());
}

#[test]
fn work_from_before_the_window_is_no_part_of_the_first_step() {
    let mut trace = ahead().trace();
    // The first step was launched before the window opened: its work runs in it, and has no call.
    trace.steps.remove(0);
    trace.work.iter_mut().take(3).for_each(|work| (work.call, work.step) = (None, None));
    for work in &mut trace.work {
        work.step = work.step.and_then(|step| step.index().checked_sub(1)).map(crate::trace::StepId::new);
    }
    assert_eq!(times(&trace), [303, 303, 303]);
    // It was not recorded at all: the next step's first kernel had to wait for something.
    trace.work.drain(..3);
    assert_eq!(times(&trace), [302, 303, 303]);
}

#[test]
fn copies_on_a_stream_of_their_own_run_alongside() {
    let mut trace = ahead().trace();
    let mut copy = trace.work[0].clone();
    trace.streams.push(crate::trace::Stream { number: 8, ..trace.streams[0] });
    copy.stream = crate::trace::StreamId::new(1);
    copy.detail = gpu_trace().work[0].detail.clone();
    (copy.start, copy.end) = (at(10), at(5000));
    trace.work.push(copy);
    assert_eq!(times(&trace), [307, 303, 303, 303]);
}

#[test]
fn time_between_steps_is_no_part_of_them() {
    let mut trace = gpu_trace();
    (trace.spans, trace.work, trace.api_calls) = Default::default();
    (trace.allocations, trace.waits) = Default::default();
    set_steps(&mut trace, &[100_000, 120_000, 400_000]);
    trace.steps[2].start = trace.steps[2].start + micros(50);
    assert_eq!(times(&trace), [100, 120, 350]);
}

#[test]
fn rare_slow_steps_are_outliers_and_frequent_ones_are_not() {
    let step = of(&[100, 100, 900, 110]);
    assert_eq!((step.mean, step.steps, step.outliers), (Duration::from_nanos(103_333), 3, 1));
    // Four steps of a run, seen: the shortest is not the time of a step.
    let step = of(&[11_800, 9_000, 8_800, 23_800]);
    assert_eq!((step.mean.as_micros(), step.outliers), (9_866, 1));
    // A loader that is slow in 7 of 20 steps, and a lock that nine wait for.
    let mut slow_loader = [166; 20];
    slow_loader[..7].fill(270);
    let step = of(&slow_loader);
    assert_eq!((step.mean.as_micros(), step.outliers), (202, 0));
    let mut lock = [100; 20];
    lock[..9].fill(160);
    assert_eq!(of(&lock).outliers, 0);
    assert_eq!((of(&[100, 900]).outliers, of(&[7]).mean), (0, micros(7)), "too few to tell");
    assert_eq!(StepTime::of(std::iter::empty()), None);
    let step = of(&[10, 20, 30, 50]);
    assert_eq!([step.lower, step.median, step.upper].map(|time| time.as_nanos()), [17_500, 25_000, 35_000]);
}

#[test]
fn without_a_gpu_it_is_the_time_on_the_host() {
    let mut host = HostTrace::default();
    for micros in [100, 100, 900, 110] {
        host.step(micros).span(0, "data", 0, 80);
    }
    assert_eq!(times(&host.trace()), [100, 100, 900, 110]);
}

#[test]
#[cfg(feature = "read")]
fn a_recorded_training_takes_as_long_as_it_was_measured_to() {
    let path = format!("{}/tests/fixtures/trainings/gelu-by-hand-mlp-fault.json.gz", env!("CARGO_MANIFEST_DIR"));
    let trace = crate::read::read(path).unwrap().into_iter().next().unwrap();
    let step = Analysis::of(&trace).step_time().unwrap();
    // 14.254 ms without a profiler: see `trainings.jsonl`. On the host, recorded steps take 5.4 to 7.4 ms.
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    assert!((13.8..14.8).contains(&millis(step.mean)), "{step:?}");
    assert!((5.0..8.0).contains(&millis(step.host)) && step.host_runs_ahead(), "{step:?}");
}

proptest! {
    #[test]
    fn intervals_follow_each_other(times in prop::collection::vec((0_u64..210, 0_u64..160), 11)) {
        let mut trace = gpu_trace();
        for (work, (start, length)) in trace.work.iter_mut().zip(times) {
            (work.start, work.end) = (at(start), at(start + length));
        }
        let steps = step_intervals(&trace);
        prop_assert!(steps.windows(2).all(|pair| pair[0].end <= pair[1].start || pair[1].time().is_zero()));
        prop_assert!(steps.iter().all(|step| step.start <= step.end));
        let breakdown = Analysis::of(&trace).step_breakdown().to_vec();
        prop_assert!(breakdown.iter().all(|row| row.parts.total() == row.duration));
        prop_assert!(Analysis::of(&trace).gpu_steps().iter().all(|step| step.usage.busy <= step.usage.duration));
    }
}
