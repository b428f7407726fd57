//! Metrics of recorded windows.

use super::{
    super::histogram::KERNEL_BOUNDS,
    metrics,
    received::{buckets, collected, histograms, of, points},
};
use kernspan::{
    Trace,
    trace::sample::{gpu_trace, losses_mut},
};

#[test]
fn windows_are_added_up() {
    let mut metrics = metrics(None, &[]);
    let mut trace = gpu_trace();
    losses_mut(&mut trace).late = 3;
    losses_mut(&mut trace).gpu_dropped = 1;
    metrics.add_window(&trace);
    metrics.add_window(&trace);
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
fn what_was_not_recorded_is_not_told_of() {
    let mut metrics = metrics(None, &[]);
    metrics.add_window(&Trace::default());
    let found = collected(&mut metrics, 1, &[]);
    let recorded = |name: &&String| name.starts_with("gpu.") || name.starts_with("kernspan.");
    assert_eq!(found.keys().filter(recorded).collect::<Vec<_>>(), [""; 0]);
}
