//! The length of each stream's queue over time.

use super::stream_work::{StreamKey, stream_work};
use crate::trace::{DeviceId, Timestamp, Trace, Work};

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

#[cfg(test)]
mod tests {
    use super::queue_lengths;
    use crate::trace::sample::gpu_trace;

    #[test]
    fn what_is_queued_begins_in_the_end() {
        for queue in queue_lengths(&gpu_trace()) {
            assert_eq!(queue.changes.last().map_or(0, |&(_, length)| length), 0, "{queue:?}");
            assert!(queue.mean() <= queue.longest() as f64);
        }
    }
}
