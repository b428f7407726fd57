//! Calls for counters that fail: when they are set up, in the middle of a window, or in our own thread.

use super::{DECODE, EVALUATE, Run, counters, problem, samples};
use crate::fake::{self, Fake, Setting};
use kernspan::Counters;
use std::ffi::CStr;

const ALWAYS: i32 = i32::MAX;

#[test]
fn what_refuses_counters_is_named_with_what_to_change() {
    fake::run("counters::programs", "refused");
}

pub(super) fn refused(fake: Fake) {
    const SET_CONFIG: &CStr = c"cuptiPmSamplingSetConfig";
    const AVAILABLE: &CStr = c"cuptiPmSamplingGetCounterAvailability";
    let cases = [
        (
            c"cuptiProfilerInitialize",
            15,
            "`libnvperf_host.so`, which belongs next to libcupti, is missing or cannot be",
        ),
        (SET_CONFIG, 26, "another profiler samples the counters of this GPU"),
        (SET_CONFIG, 35, "or set the driver's option `NVreg_RestrictProfilingToAdminUsers=0`"),
        (AVAILABLE, 35, "or set the driver's option `NVreg_RestrictProfilingToAdminUsers=0`"),
        (AVAILABLE, 40, "or set the driver's option `NVreg_RestrictProfilingToAdminUsers=0`"),
        (AVAILABLE, 43, "the counters of a MIG instance cannot be sampled"),
        (AVAILABLE, 33, "the counters of this virtual GPU cannot be sampled"),
        (AVAILABLE, 41, "counters cannot be sampled while confidential computing is on"),
        (AVAILABLE, 45, "counters cannot be sampled in WSL"),
        (AVAILABLE, 27, "this GPU is too old: compute capability 7.5 is needed to sample counters"),
        (c"cuptiProfilerHostInitialize", 999, "cuptiProfilerHostInitialize failed with 999"),
        (
            c"cuptiPmSamplingCounterDataImageInitialize",
            999,
            "cuptiPmSamplingCounterDataImageInitialize failed with 999",
        ),
    ];
    for (function, code, sentence) in cases {
        fake.fail(function, code, None, 0, ALWAYS);
        let run = Run::new(fake, counters());
        for _ in 0..2 {
            let trace = run.short_window();
            let problem = problem(&trace).unwrap();
            // Where `libnvperf_host.so` was looked for is a list.
            assert!(problem.contains(sentence) && (code == 15 || !problem.contains("; ")), "{code}: {problem}");
            assert!(problem.contains(function.to_str().unwrap()), "{problem}");
            assert_eq!(samples(&trace), 0);
        }
        fake.work();
        if function == SET_CONFIG {
            // Another profiler has ended meanwhile.
            assert_eq!(problem(&run.sampled()), None);
        }
        let report = run.finish();
        let [problem] = report.counters().problems() else { panic!("{report}") };
        assert!(problem.contains(sentence), "{problem}");
    }
    fake.set(Setting::Unsupported, 3);
    let run = Run::new(fake, counters());
    let unsupported = "the counters of this GPU cannot be sampled: CUPTI does not support it (vGPU)";
    assert_eq!(problem(&run.short_window()).as_deref(), Some(unsupported));
    run.finish();
    fake.set(Setting::Unsupported, 0);
    let run = Run::new(fake, counters());
    assert_eq!(problem(&run.sampled()), None);
    run.finish();
}

#[test]
fn a_cupti_without_counters_says_so() {
    fake::run_without_counters("counters::programs", "old");
}

pub(super) fn old(fake: Fake) {
    let run = Run::new(fake, counters());
    let trace = run.short_window();
    let problem = problem(&trace).unwrap();
    assert!(problem.starts_with("this CUPTI is older than 12.6, which is needed to sample counters ("), "{problem}");
    assert_eq!(samples(&trace), 0);
    run.finish();
    assert_eq!(fake.finalized(), 1);
}

#[test]
fn metrics_that_cannot_be_measured_are_left_out_by_name() {
    fake::run("counters::programs", "metrics");
}

pub(super) fn metrics(fake: Fake) {
    let asked = ["no__such.avg", "sm__throughput.avg", "sm__warps_active.avg"];
    let run = Run::new(fake, asked.into_iter().fold(counters(), Counters::metric));
    let trace = run.sampled();
    assert_eq!(
        problem(&trace).unwrap(),
        "the metric no__such.avg is left out: this GPU does not have it; the metric sm__throughput.avg is left out: it \
         does not fit on the counters in one pass with the metrics before it"
    );
    let names: Vec<_> = trace.gpu_counters()[0].metrics().iter().map(|metric| metric.name().to_owned()).collect();
    assert_eq!((names.len(), names[8].as_str()), (9, "sm__warps_active.avg"));
    run.finish();

    let run = Run::new(fake, counters().without_defaults().metric("no__such.avg"));
    let trace = run.short_window();
    let left = "the metric no__such.avg is left out: this GPU does not have it; none of the metrics can be measured";
    assert_eq!((problem(&trace).as_deref(), samples(&trace)), (Some(left), 0));
    run.finish();
}

#[test]
fn a_call_that_fails_ends_sampling_for_one_window_only() {
    fake::run("counters::programs", "interrupted");
}

pub(super) fn interrupted(fake: Fake) {
    let run = Run::new(fake, counters());
    // In the middle of a window: after the second time that samples are decoded.
    for (function, after) in [
        (c"cuptiPmSamplingStart", 0),
        (c"cuptiPmSamplingStop", 0),
        (DECODE, 2),
        (c"cuptiPmSamplingGetCounterDataInfo", 2),
        (c"cuptiPmSamplingCounterDataGetSampleInfo", 300),
        (EVALUATE, 300),
    ] {
        let name = function.to_str().unwrap();
        fake.fail(function, 999, None, after, 1);
        let trace = if name.ends_with("Stop") { run.sampled() } else { run.window(function, after + 1) };
        assert_eq!(problem(&trace).unwrap(), format!("{name} failed with 999 (no text)"));
        // Samples from before it are kept, and others are counted.
        assert_eq!(samples(&trace) > 0, !name.ends_with("Start"), "{name}");
        let is_cut = after > 0;
        assert_eq!(trace.gpu_counters()[0].lost() > 0, is_cut, "{name}");
        assert_eq!(problem(&run.sampled()), None, "after {name}");
    }
    run.finish();
    assert_eq!(fake.finalized(), 1);
}

#[test]
fn a_panic_costs_the_counters_only() {
    fake::run("counters::programs", "panic");
}

pub(super) fn panic(fake: Fake) {
    // No vector has this many bytes.
    fake.set(Setting::DataSize, u64::MAX);
    let run = Run::new(fake, counters());
    for _ in 0..2 {
        let trace = run.short_window();
        let problem = problem(&trace).unwrap();
        assert!(problem.starts_with("the thread that samples counters panicked"), "{problem}");
        assert_eq!(samples(&trace), 0);
    }
    run.finish();
    // It has released the counters, so CUPTI is detached, and the next profiler can use them.
    assert_eq!(fake.finalized(), 1);
    fake.set(Setting::DataSize, 0);
    let run = Run::new(fake, counters());
    assert_eq!(problem(&run.sampled()), None);
    run.finish();
}

#[test]
fn a_window_does_not_wait_for_counters_that_are_set_up_slowly() {
    fake::run("counters::programs", "slow");
}

pub(super) fn slow(fake: Fake) {
    fake.set(Setting::Blocked, 1);
    let run = Run::new(fake, counters());
    let trace = run.short_window();
    assert_eq!(problem(&trace).as_deref(), Some("the counters were not set up when the window closed"));
    fake.set(Setting::Blocked, 0);
    assert_eq!(problem(&run.sampled()), None);
    run.finish();
    assert_eq!(fake.finalized(), 1);
}
