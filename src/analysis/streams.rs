//! What each CUDA stream did: why it was idle, and how much work was queued on it.

use super::sorted::SortedMap;
use crate::trace::{DeviceId, Timestamp, Trace, Work};
use std::time::Duration;

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
    /// The length up to which a gap between two kernels is what it takes to start the second: 30 µs, as in
    /// HolisticTraceAnalysis, whose documentation says 30 ns.
    pub const KERNEL_DELAY: Duration = Duration::from_micros(30);

    /// The sum of all gaps.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.host_wait + self.kernel_wait + self.other
    }
}

/// Returns how long each stream was idle between its work, and why.
///
/// HolisticTraceAnalysis calls this the idle time breakdown. If work of a stream overlaps, it counts the overlap as a
/// negative gap, and gaps from the end of the work that began last, even if other work still ran. It takes streams of
/// all GPUs and contexts with the same number for one.
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
    stream_work(trace).into_iter().map(of_stream).collect()
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
/// HolisticTraceAnalysis calls this the queue length. It counts work of `cudaLaunchKernel`, `cudaLaunchKernelExC`,
/// `cuLaunchKernel`, `cudaMemcpyAsync` and `cudaMemsetAsync` only, neither graphs nor the driver's copies, and takes
/// streams of all GPUs and contexts with the same number for one.
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
    stream_work(trace).into_iter().map(of_stream).collect()
}

/// The device, context and number of a stream.
type StreamKey = (DeviceId, u32, u32);

/// Returns the work of each stream in the order of its starts, that of all its rows together.
fn stream_work(trace: &Trace) -> SortedMap<StreamKey, Vec<Work<'_>>> {
    let mut streams: SortedMap<StreamKey, Vec<Work<'_>>> = SortedMap::default();
    for work in trace.work() {
        let stream = work.stream();
        streams.or_default((stream.device(), stream.context(), stream.number())).push(work);
    }
    streams.map_values(|mut work| {
        work.sort_by_key(|work| work.start());
        work
    })
}

#[cfg(test)]
mod tests {
    use super::{queue_lengths, stream_idle};
    use crate::trace::{
        Trace,
        sample::{at, gpu_trace},
    };
    use std::time::Duration;

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
    fn short_gaps_before_work_that_was_asked_for_in_time_are_of_kernels() {
        let mut trace = gpu_trace();
        trace.api_calls.iter_mut().for_each(|call| call.start = at(0));
        let of_stream = |trace: &Trace| *stream_idle(trace).iter().find(|idle| idle.stream == 7).unwrap();
        let idle = of_stream(&trace);
        assert_eq!((idle.kernel_wait, idle.host_wait), (idle.total(), Duration::ZERO));
        // Without the second kernel of the first step, there is a gap from 40 to 105.
        trace.work.remove(2);
        let (other, left) = (of_stream(&trace).other, of_stream(&trace).kernel_wait);
        assert_eq!((other, left), (Duration::from_micros(65), idle.kernel_wait - Duration::from_micros(10 + 25)));
    }

    #[test]
    fn what_is_queued_begins_in_the_end() {
        for queue in queue_lengths(&gpu_trace()) {
            assert_eq!(queue.changes.last().map_or(0, |&(_, length)| length), 0, "{queue:?}");
            assert!(queue.mean() <= queue.longest() as f64);
        }
    }
}
