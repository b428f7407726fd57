//! Metrics of recorded windows.

use super::{
    super::histogram::KERNEL_BOUNDS,
    metrics,
    received::{buckets, collected, histograms, of, points},
};
use kernspan::{
    Trace,
    analysis::Analysis,
    trace::{
        MetricMeaning,
        sample::{add_gpu_counters, gpu_trace, losses_mut},
    },
};

#[test]
fn windows_are_added_up() {
    let mut metrics = metrics(None, &[]);
    let mut trace = gpu_trace();
    losses_mut(&mut trace).late = 3;
    losses_mut(&mut trace).gpu_dropped = 1;
    metrics.add_window(&Analysis::of(&trace));
    metrics.add_window(&Analysis::of(&trace));
    let found = collected(&mut metrics, 1, &[]);
    let expected = [
        ("gpu.cuda.kernel.launch.calls", &[("", 8.0)][..]),
        ("gpu.cuda.graph.launch.calls", &[("", 4.0)]),
        ("gpu.cuda.memory.copies", &[("HtoD", 4.0)]),
        ("gpu.cuda.memory.copied", &[("HtoD", 16_000.0)]),
        ("gpu.cuda.memory.allocations", &[("", 4.0)]),
        ("kernspan.gpu.busy", &[("GPU-0", 0.59)]),
        ("kernspan.gpu.memory.peak", &[("GPU-0", 5096.0)]),
        ("kernspan.lost", &[("late", 6.0), ("gpu_dropped", 2.0)]),
    ];
    for (name, expected) in expected {
        assert_eq!(points(&found, name), of(expected), "{name}");
    }
    let [kernels] = histograms(&found["gpu.kernel.duration"]) else { panic!("{found:?}") };
    assert_eq!(buckets(kernels, KERNEL_BOUNDS), [(0.000_01, 6), (0.000_02, 4), (0.000_05, 4)]);
    assert_eq!((kernels.min, kernels.max), (Some(0.000_01), Some(0.000_03)));
    assert!((kernels.sum.unwrap() - 0.000_26).abs() < 1e-12, "{:?}", kernels.sum);
}

#[test]
fn hardware_counters_are_the_means_of_the_last_step() {
    let mut metrics = metrics(None, &[]);
    let mut trace = gpu_trace();
    let counters = [
        ("sm__cycles_active.avg", MetricMeaning::SmActive),
        ("dram__read_bytes.sum.per_second", MetricMeaning::DramRead),
        ("sm__cycles_elapsed.avg.per_second", MetricMeaning::SmClock),
        ("lts__t_hit_rate.pct", MetricMeaning::Custom),
        ("sm__inst_executed.sum", MetricMeaning::Custom),
    ];
    // The work of the last step takes 15 µs of the third sample, all of the fourth and 20 µs of the fifth.
    let samples = [0.0, 0.0, 30.0, 60.0, 90.0].map(|sm| [sm, 100.0 * sm, 1e9, 25.0, sm]);
    add_gpu_counters(&mut trace, 0, &counters, 40, &samples.each_ref().map(|sample| &sample[..]));
    metrics.add_window(&Analysis::of(&trace));
    let found = collected(&mut metrics, 1, &[]);
    let expected = [
        ("utilization", &[("GPU-0 sm_active", 0.62), ("GPU-0 lts__t_hit_rate.pct", 0.25)][..]),
        ("throughput", &[("GPU-0 dram_read", 6200.0)]),
        ("frequency", &[("GPU-0 sm_clock", 1e9)]),
        ("value", &[("GPU-0 sm__inst_executed.sum", 62.0)]),
    ];
    for (name, expected) in expected {
        assert_eq!(points(&found, &format!("kernspan.gpu.counter.{name}")), of(expected), "{name}");
    }
    // A window without counters says nothing about them.
    metrics.add_window(&Analysis::of(&gpu_trace()));
    let found = collected(&mut metrics, 2, &[]);
    assert!(found.keys().all(|name| !name.starts_with("kernspan.gpu.counter")), "{found:?}");
}

#[test]
fn what_was_not_recorded_is_not_told_of() {
    let mut metrics = metrics(None, &[]);
    metrics.add_window(&Analysis::of(&Trace::default()));
    let found = collected(&mut metrics, 1, &[]);
    let recorded = |name: &&String| name.starts_with("gpu.") || name.starts_with("kernspan.");
    assert_eq!(found.keys().filter(recorded).collect::<Vec<_>>(), [""; 0]);
}
