//! The time of each GPU, broken down without overlap.

use super::intervals::{Interval, Intervals};
use crate::trace::{Detail, DeviceId, Timestamp, Trace, Work};
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

/// Returns how each GPU that did anything spent its time. HolisticTraceAnalysis calls this the temporal breakdown.
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
    let mut devices: BTreeMap<DeviceId, [Vec<Interval>; 3]> = BTreeMap::new();
    for work in trace.work() {
        let interval = Interval { start: work.start(), end: work.end(), requested: None };
        devices.entry(work.stream().device()).or_default()[WorkKind::of(work) as usize].push(interval);
    }
    devices.into_iter().map(|(device, kinds)| of_device(device, kinds)).collect()
}

fn of_device(device: DeviceId, [compute, communication, copies]: [Vec<Interval>; 3]) -> DeviceBreakdown {
    let all = || compute.iter().chain(&communication).chain(&copies);
    let start = all().map(|interval| interval.start).min().unwrap_or_default();
    let end = all().map(|interval| interval.end).max().unwrap_or_default();
    let covered = |intervals: Vec<Interval>| Intervals::new(intervals).covered(start, end);
    let busy = covered(all().copied().collect());
    let kernels = covered(compute.iter().chain(&communication).copied().collect());
    let compute = covered(compute);
    let duration = end.since(start);
    DeviceBreakdown {
        device,
        duration,
        compute,
        exposed_communication: kernels.saturating_sub(compute),
        exposed_copies: busy.saturating_sub(kernels),
        idle: duration.saturating_sub(busy),
    }
}

/// The kinds of work that a breakdown tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkKind {
    Compute,
    Communication,
    Copy,
}

impl WorkKind {
    fn of(work: Work<'_>) -> Self {
        match work.detail() {
            Detail::Kernel(kernel) if is_communication(&kernel.name) => Self::Communication,
            Detail::Kernel(_) => Self::Compute,
            Detail::Copy(_) | Detail::Fill(_) => Self::Copy,
        }
    }
}

/// Whether a kernel of this name communicates with other GPUs: NCCL's do.
pub(crate) fn is_communication(kernel: &str) -> bool {
    kernel.starts_with("nccl")
}

/// A stream's idle time between two pieces of work, by the reason for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StreamIdle {
    /// The GPU.
    pub device: DeviceId,
    /// The driver's number of the context.
    pub context: u32,
    /// The driver's number of the stream.
    pub stream: u32,
    /// Gaps before work that the host asked for after the gap had begun: the host was too slow.
    pub host_wait: Duration,
    /// Other gaps of less than [`StreamIdle::KERNEL_DELAY`]: what it takes to start the next kernel.
    pub kernel_wait: Duration,
    /// Other gaps, such as those before work that waits for another stream.
    pub other: Duration,
}

impl StreamIdle {
    /// The length up to which a gap between two kernels is what it takes to start the second.
    pub const KERNEL_DELAY: Duration = Duration::from_nanos(30);

    /// The sum of all gaps.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.host_wait + self.kernel_wait + self.other
    }
}

/// Returns how long each stream was idle between its work, and why. HolisticTraceAnalysis calls this the idle time
/// breakdown; it counts gaps of work that overlaps as negative, and streams of all GPUs and contexts with the same
/// number as one.
///
/// ```
/// # fn show(trace: &kernspan::Trace) {
/// for stream in kernspan::analysis::stream_idle(trace) {
///     println!("stream {}: {:?} waiting for the host", stream.stream, stream.host_wait);
/// }
/// # }
/// ```
#[must_use]
pub fn stream_idle(trace: &Trace) -> Vec<StreamIdle> {
    let of_stream = |((device, context, stream), work): (StreamKey, Vec<Work<'_>>)| {
        let mut idle = StreamIdle { device, context, stream, ..StreamIdle::default() };
        let mut last: Option<Timestamp> = None;
        for work in work {
            if let Some(last) = last.filter(|last| *last < work.start()) {
                let gap = work.start().since(last);
                let by_host = work.call().is_some_and(|call| call.start() > last);
                let sum = match () {
                    () if by_host => &mut idle.host_wait,
                    () if gap < StreamIdle::KERNEL_DELAY => &mut idle.kernel_wait,
                    () => &mut idle.other,
                };
                *sum += gap;
            }
            last = last.max(Some(work.end()));
        }
        idle
    };
    by_stream(trace).into_iter().map(of_stream).collect()
}

/// How many pieces of work a stream had still to begin, over time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct QueueLength {
    /// The GPU.
    pub device: DeviceId,
    /// The driver's number of the context.
    pub context: u32,
    /// The driver's number of the stream.
    pub stream: u32,
    /// The length of the queue after each change, in nanoseconds since 1970.
    pub changes: Vec<(u64, u64)>,
}

impl QueueLength {
    /// The most pieces of work that were queued at once.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.changes.iter().map(|&(_, length)| length).max().unwrap_or(0)
    }

    /// The mean length of the queue over time, from its first change to its last.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let (Some(first), Some(last)) = (self.changes.first(), self.changes.last()) else { return 0.0 };
        let area = |pair: &[(u64, u64)]| (pair[1].0 - pair[0].0) as f64 * pair[0].1 as f64;
        let sum: f64 = self.changes.windows(2).map(area).sum();
        if last.0 > first.0 { sum / (last.0 - first.0) as f64 } else { 0.0 }
    }
}

/// Returns how much work was queued on each stream: more from the call that asks for it, less when it begins. The host
/// is ahead of the GPU while the queue is long. Work whose call was not recorded is left out.
///
/// ```
/// # fn show(trace: &kernspan::Trace) {
/// for queue in kernspan::analysis::queue_lengths(trace) {
///     println!("stream {}: at most {} in the queue, {:.1} on average", queue.stream, queue.longest(), queue.mean());
/// }
/// # }
/// ```
#[must_use]
pub fn queue_lengths(trace: &Trace) -> Vec<QueueLength> {
    let of_stream = |((device, context, stream), work): (StreamKey, Vec<Work<'_>>)| {
        let known = work.iter().filter_map(|work| Some((work.call()?.start(), work.start())));
        // At the same moment, what is asked for comes first.
        let mut changes: Vec<_> = known.flat_map(|(asked, began)| [(asked, 0), (began.max(asked), 1)]).collect();
        changes.sort_unstable();
        let mut length = 0_u64;
        let change = |(at, is_begin): (Timestamp, i32)| {
            length = if is_begin == 1 { length.saturating_sub(1) } else { length + 1 };
            (at.as_unix_nanos(), length)
        };
        QueueLength { device, context, stream, changes: changes.into_iter().map(change).collect() }
    };
    by_stream(trace).into_iter().map(of_stream).collect()
}

/// The device, context and number of a stream.
type StreamKey = (DeviceId, u32, u32);

/// Returns the work of each stream in the order of its starts, that of all its rows together.
fn by_stream(trace: &Trace) -> BTreeMap<StreamKey, Vec<Work<'_>>> {
    let mut streams: BTreeMap<StreamKey, Vec<Work<'_>>> = BTreeMap::new();
    for work in trace.work() {
        let stream = work.stream();
        streams.entry((stream.device(), stream.context(), stream.number())).or_default().push(work);
    }
    streams.values_mut().for_each(|work| work.sort_by_key(|work| work.start()));
    streams
}

#[cfg(test)]
mod tests {
    use super::{breakdown, queue_lengths, stream_idle};
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

    #[test]
    fn gaps_and_work_of_a_stream_are_all_its_time() {
        let trace = gpu_trace();
        let idle = stream_idle(&trace);
        let seven = idle.iter().find(|idle| idle.stream == 7).unwrap();
        let work: Vec<_> = trace.work().filter(|work| work.stream().number() == 7).collect();
        let busy: Duration = work.iter().map(|work| work.duration()).sum();
        let (first, last) = (work.first().unwrap().start(), work.last().unwrap().end());
        assert_eq!(seven.total() + busy, last.since(first));
    }

    #[test]
    fn what_is_queued_begins_in_the_end() {
        for queue in queue_lengths(&gpu_trace()) {
            assert_eq!(queue.changes.last().map_or(0, |&(_, length)| length), 0, "{queue:?}");
            assert!(queue.mean() <= queue.longest() as f64);
        }
    }
}
