//! Hardware counters, with a fake CUPTI whose samples tell the GPU and the metric, and whose calls fail on request.
//!
//! Whatever fails, kernels are recorded, one sentence says what failed, and the windows after it have samples again.

mod failures;

use crate::{
    fake::{self, Fake, Setting},
    support::eventually,
};
use kernspan::{Collected, Counters, Profiler, Report, Schedule, Trace, trace::GpuCounters};
use std::{ffi::CStr, sync::Arc, time::Duration};
use tracing::info_span;
use tracing_subscriber::prelude::*;

const INTERVAL: Duration = Duration::from_micros(200);
const KERNELS: usize = 5;
const DECODE: &CStr = c"cuptiPmSamplingDecodeData";
const EVALUATE: &CStr = c"cuptiProfilerHostEvaluateToGpuValues";

/// This is not a test but the programs that the others run, each in a process of its own.
#[test]
fn programs() {
    let Some((fake, program)) = Fake::program() else { return };
    match program.as_str() {
        "windows" => windows(fake),
        "two GPUs" => two_gpus(fake),
        "refused" => failures::refused(fake),
        "old" => failures::old(fake),
        "metrics" => failures::metrics(fake),
        "interrupted" => failures::interrupted(fake),
        "detached" => detached(fake),
        "overflow" => overflow(fake),
        "lost" => lost(fake),
        "panic" => failures::panic(fake),
        "slow" => failures::slow(fake),
        program => panic!("no program {program}"),
    }
}

/// A profiler with counters, and what it exports.
struct Run {
    fake: Fake,
    profiler: Profiler,
    collected: Collected,
    _subscriber: tracing::subscriber::DefaultGuard,
}

impl Run {
    fn new(fake: Fake, counters: Counters) -> Self {
        Self::with_memory(fake, counters, 256 << 20)
    }

    fn with_memory(fake: Fake, counters: Counters, bytes: usize) -> Self {
        let collected = Collected::new();
        let builder = Profiler::builder().schedule(Schedule::manual()).counters(counters).memory_limit_bytes(bytes);
        let (layer, profiler) = builder.export(collected.clone()).build().unwrap();
        assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
        let subscriber = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        Self { fake, profiler, collected, _subscriber: subscriber }
    }

    /// Records a window in which a function for counters is called at least this many times.
    fn window(&self, function: &CStr, times: i32) -> Arc<Trace> {
        let before = self.fake.calls(function);
        self.profiler.start();
        info_span!("step").in_scope(|| (0..KERNELS).for_each(|_| self.fake.launch()));
        eventually("calls for counters", || (self.fake.calls(function) >= before + times).then_some(()));
        self.close()
    }

    /// Records a window, however few samples it has.
    fn short_window(&self) -> Arc<Trace> {
        self.profiler.start();
        info_span!("step").in_scope(|| (0..KERNELS).for_each(|_| self.fake.launch()));
        self.close()
    }

    /// Closes the window. All of its kernels are recorded.
    fn close(&self) -> Arc<Trace> {
        let windows = self.collected.traces().len();
        self.profiler.stop();
        let trace = eventually("a window", || self.collected.traces().get(windows).cloned());
        assert_eq!(trace.work().filter(|work| work.span().is_some()).count(), KERNELS);
        trace
    }

    /// Records a window with samples of all GPUs.
    fn sampled(&self) -> Arc<Trace> {
        let trace = self.window(EVALUATE, 400);
        trace.gpu_counters().iter().for_each(|counters| {
            check(counters);
            assert!(counters.samples().len() > 0, "{counters:?}");
        });
        trace
    }

    /// Finishes the run. Nothing is lost but samples of counters.
    fn finish(self) -> Report {
        let report = self.profiler.finish().unwrap();
        let mut lost = report.losses().causes().filter(|&(_, count)| count > 0);
        assert!(lost.all(|(cause, _)| cause == "gpu_counter_samples"), "{}", report.losses());
        report
    }
}

fn counters() -> Counters {
    Counters::default().every(INTERVAL)
}

/// Checks that samples are in order and that their values are those of their GPU and metric.
fn check(counters: &GpuCounters) {
    let first = f64::from(10 * (counters.device().as_u32() + 1));
    let expected: Vec<_> = (0..counters.metrics().len()).map(|metric| first + metric as f64).collect();
    let mut reached = None;
    for (time, values) in counters.samples() {
        assert!(reached <= Some(time.start) && time.start < time.end, "{time:?} after {reached:?}");
        assert_eq!(values, expected);
        reached = Some(time.end);
    }
}

/// Returns the problem of the only GPU, unless it is that a busy machine started late.
fn problem(trace: &Trace) -> Option<String> {
    let [counters] = trace.gpu_counters() else { panic!("{:?}", trace.gpu_counters()) };
    check(counters);
    let is_late = |part: &&str| part.starts_with("sampling began");
    let parts: Vec<_> = counters.problem()?.split("; ").filter(|part| !is_late(part)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn samples(trace: &Trace) -> usize {
    trace.gpu_counters().iter().map(|counters| counters.samples().len()).sum()
}

#[test]
fn each_window_has_its_samples_and_profilers_may_follow_each_other() {
    fake::run("counters::programs", "windows");
}

fn windows(fake: Fake) {
    for finalized in 0..3 {
        assert_eq!(fake.finalized(), finalized);
        let run = Run::new(fake, counters());
        for _ in 0..3 {
            let trace = run.sampled();
            assert_eq!(problem(&trace), None);
            let counters = &trace.gpu_counters()[0];
            assert_eq!((counters.metrics().len(), counters.interval(), counters.lost()), (8, INTERVAL, 0));
            // They follow each other, and none is from another window.
            let samples: Vec<_> = counters.samples().map(|(time, _)| time).collect();
            assert!(samples.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(samples.iter().all(|time| time.end > trace.start() && time.start < trace.end()));
        }
        assert!(!run.finish().to_string().contains("samples were lost"));
    }
    // Windows that follow each other without a pause.
    let collected = Collected::new();
    let builder = Profiler::builder().schedule(Schedule::new().active(1).repeat(3)).counters(counters());
    let (_layer, profiler) = builder.export(collected.clone()).build().unwrap();
    for _ in 0..3 {
        let before = fake.calls(EVALUATE);
        eventually("samples", || (fake.calls(EVALUATE) > before + 400).then_some(()));
        profiler.step();
    }
    profiler.finish().unwrap();
    let traces = collected.traces();
    let ends: Vec<_> = traces.iter().map(|trace| trace.gpu_counters()[0].samples().last().unwrap().0.end).collect();
    assert!(traces.iter().all(|trace| problem(trace).is_none()));
    // The last sample of a window is waited for, unless it is the last window.
    assert!(traces.iter().zip(&ends).take(2).all(|(trace, end)| *end >= trace.end()));
    assert_eq!(fake.finalized(), 4);
}

#[test]
fn gpus_are_not_mixed_up_and_one_that_fails_harms_no_other() {
    fake::run("counters::programs", "two GPUs");
}

fn two_gpus(fake: Fake) {
    fake.set(Setting::Devices, 3);
    fake.set(Setting::IdleDevices, 0b111);
    let run = Run::new(fake, counters());
    let trace = run.short_window();
    let unused = "no GPU had a primary context when the window opened, so no counters were sampled";
    assert_eq!((problem(&trace).as_deref(), samples(&trace)), (Some(unused), 0));

    fake.set(Setting::IdleDevices, 0b010);
    let devices = |trace: &Trace| trace.gpu_counters().iter().map(|it| it.device().as_u32()).collect::<Vec<_>>();
    assert_eq!(devices(&run.sampled()), [0, 2]);

    fake.fail(c"cuptiPmSamplingStart", 999, Some(2), 0, 1);
    let trace = run.window(EVALUATE, 400);
    assert_eq!(devices(&trace), [0, 2]);
    let [whole, failed] = trace.gpu_counters() else { panic!() };
    assert!(whole.samples().len() > 0 && failed.samples().len() == 0);
    assert!(failed.problem().unwrap().starts_with("cuptiPmSamplingStart failed with 999"), "{failed:?}");
    assert_eq!(devices(&run.sampled()), [0, 2]);
    let report = run.finish().to_string();
    assert!(report.contains("hardware counters: GPU 2: cuptiPmSamplingStart failed with 999"), "{report}");
    assert_eq!(fake.finalized(), 1);
}

#[test]
fn counters_are_sampled_though_another_tool_has_detached_cupti() {
    fake::run("counters::programs", "detached");
}

fn detached(fake: Fake) {
    fake.finalize();
    let run = Run::new(fake, counters());
    assert_eq!(problem(&run.sampled()), None);
    run.finish();
}

#[test]
fn an_interval_that_overflows_the_hardware_is_widened() {
    fake::run("counters::programs", "overflow");
}

fn overflow(fake: Fake) {
    let run = Run::new(fake, Counters::default().every(Duration::from_micros(50)));
    let widened = "the interval was widened to 100µs, the shortest that can be decoded";
    assert_eq!(problem(&run.sampled()).as_deref(), Some(widened));
    fake.set(Setting::OverflowBelow, 400_000);
    let trace = run.sampled();
    let widened = "the GPU's buffer overflowed, so the interval was widened to 400µs";
    assert_eq!(problem(&trace).as_deref(), Some(widened));
    assert_eq!(trace.gpu_counters()[0].interval(), Duration::from_micros(400));
    // In the middle of a window, whose samples are of two lengths.
    run.profiler.start();
    let before = fake.calls(EVALUATE);
    eventually("samples", || (fake.calls(EVALUATE) > before + 400).then_some(()));
    fake.set(Setting::OverflowBelow, 800_000);
    let trace = run.sampled();
    let counters = &trace.gpu_counters()[0];
    let widths: Vec<_> = counters.samples().map(|(time, _)| time.end.since(time.start).as_micros()).collect();
    assert!(widths.first() == Some(&400) && widths.last() == Some(&800), "{widths:?}");
    assert!(counters.lost() > 0);
    let trace = run.sampled();
    assert_eq!((problem(&trace).as_deref(), trace.gpu_counters()[0].lost()), (Some(&*widened.replace('4', "8")), 0));
    run.finish();
    assert_eq!(fake.finalized(), 1);
}

#[test]
fn samples_that_are_lost_are_counted() {
    fake::run("counters::programs", "lost");
}

fn lost(fake: Fake) {
    let run = Run::new(fake, counters());
    fake.set(Setting::FullImages, 1);
    let trace = run.sampled();
    let behind = "samples were lost, as decoding fell behind: sample less often with `Counters::every`";
    assert_eq!(problem(&trace).as_deref(), Some(behind));
    let counters_of = &trace.gpu_counters()[0];
    let samples: Vec<_> = counters_of.samples().map(|(time, _)| time).collect();
    let gaps = samples.windows(2).map(|pair| pair[1].start.since(pair[0].end).as_nanos() / INTERVAL.as_nanos());
    assert_eq!(gaps.sum::<u128>(), u128::from(counters_of.lost()));
    assert_eq!(problem(&run.sampled()), None);
    assert!(run.finish().to_string().contains(&format!("hardware counters: {behind}\n")));

    let run = Run::with_memory(fake, counters(), 1 << 20);
    run.profiler.start();
    let before = fake.calls(EVALUATE);
    eventually("samples", || (fake.calls(EVALUATE) > before + 10_000).then_some(()));
    run.profiler.stop();
    let trace = eventually("a window", || run.collected.traces().first().cloned());
    assert_eq!(
        problem(&trace).unwrap(),
        "samples were lost, as there was no memory left: raise `memory_limit_bytes` or record fewer steps"
    );
    assert!(trace.gpu_counters()[0].lost() > 0);
    // The memory is given back when the window has been exported.
    assert_eq!(problem(&run.sampled()), None);
    run.finish();
}
