//! The time of each GPU, broken down without overlap.

use super::kernel_kinds::{KernelKinds, kernel_kinds};
use crate::trace::{DeviceId, Timestamp, Trace};
use std::{collections::BTreeMap, time::Duration};

/// The time of a GPU from its first work to its last, each moment counted once.
///
/// A moment is compute if a kernel runs then that is no communication; else exposed communication if such a kernel
/// runs; else an exposed copy if memory is copied or set; else it is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DeviceBreakdown {
    /// The GPU.
    pub device: DeviceId,
    /// The time from the start of the first work to the end of the last.
    pub duration: Duration,
    /// The time in which kernels computed.
    pub compute: Duration,
    /// The time in which kernels communicated with other GPUs, and none computed.
    pub exposed_communication: Duration,
    /// The time in which memory was copied or set, and no kernel ran.
    pub exposed_copies: Duration,
    /// The time in which nothing ran.
    pub idle: Duration,
}

/// Returns how each GPU that did anything spent its time.
///
/// HolisticTraceAnalysis calls this the temporal breakdown: its compute time is `compute`, its non-compute time the sum
/// of both that are exposed. It takes the GPUs of a process for one, and waits of streams for work.
///
/// ```
/// # fn show(trace: &kernspan::Trace) {
/// for gpu in kernspan::analysis::breakdown(trace) {
///     println!("GPU {}: {:?} of {:?} idle", gpu.device, gpu.idle, gpu.duration);
/// }
/// # }
/// ```
#[must_use]
pub fn breakdown(trace: &Trace) -> Vec<DeviceBreakdown> {
    let mut ends: BTreeMap<DeviceId, (Timestamp, Timestamp)> = BTreeMap::new();
    for work in trace.work() {
        let (start, end) = ends.entry(work.stream().device()).or_insert((work.start(), work.end()));
        (*start, *end) = (work.start().min(*start), work.end().max(*end));
    }
    let of_device = |kinds: KernelKinds| {
        let duration = ends.get(&kinds.device).map_or(Duration::ZERO, |(start, end)| end.since(*start));
        DeviceBreakdown {
            device: kinds.device,
            duration,
            compute: kinds.any_compute(),
            exposed_communication: kinds.communication + kinds.communication_and_memory,
            exposed_copies: kinds.memory,
            idle: duration.saturating_sub(kinds.busy()),
        }
    };
    kernel_kinds(trace).into_iter().map(of_device).collect()
}

#[cfg(test)]
mod tests {
    use super::breakdown;
    use crate::trace::{Trace, sample::gpu_trace};
    use std::time::Duration;

    #[test]
    fn every_moment_is_counted_once() {
        let trace = gpu_trace();
        for gpu in breakdown(&trace) {
            let sum = gpu.compute + gpu.exposed_communication + gpu.exposed_copies + gpu.idle;
            assert_eq!(sum, gpu.duration);
            assert!(gpu.compute > Duration::ZERO && gpu.exposed_copies > Duration::ZERO && gpu.idle > Duration::ZERO);
        }
        assert_eq!(breakdown(&Trace::default()), []);
    }
}
