//! The peak memory of a process, by what the kernel counts for it.

use crate::support::child;
use kernspan::{Profiler, ProfilerBuilder, Report};
use tracing_subscriber::prelude::*;

/// Runs `work` in a process of its own with a profiler of this memory limit, and fails if the memory that the process
/// takes at its peak is more than the limit and a quarter of it. `name` is the name of the test that calls this.
pub(crate) fn check(
    name: &str,
    limit: usize,
    settings: impl FnOnce(ProfilerBuilder) -> ProfilerBuilder,
    work: impl FnOnce(&Profiler),
    check: impl FnOnce(&Report),
) {
    child::alone(name, || {
        warm_up();
        let before = kibibytes("VmRSS:");
        let builder = settings(Profiler::builder().memory_limit_bytes(limit));
        let (layer, profiler) = builder.build().unwrap();
        tracing_subscriber::registry().with(layer).init();
        work(&profiler);
        let report = profiler.finish().unwrap();
        let text = report.to_string();
        let took = kibibytes("VmHWM:") - before;
        let allowed = limit / 1024 * 5 / 4;
        println!("{name}: {took} of {allowed} KiB; {} spans, {}", report.spans(), report.losses());
        assert!(!text.is_empty());
        check(&report);
        assert!(took <= allowed, "{took} KiB at the peak, of {allowed}");
    });
}

/// Runs a profiler once: the kernel counts the pages of the program's own code as soon as it has run, which is
/// several megabytes of a build that is not optimized, whatever the limit.
fn warm_up() {
    let (layer, profiler) = Profiler::builder().build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        tracing::info_span!("step").in_scope(|| ());
        profiler.step();
    });
    assert!(!profiler.finish().unwrap().to_string().is_empty());
}

/// Returns a line of the process's status.
fn kibibytes(line: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let value = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
    value.trim().trim_end_matches(" kB").parse().unwrap()
}
