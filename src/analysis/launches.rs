//! Launches: what they cost the host, and how long their work waited.

use crate::trace::{ApiCall, Timestamp, Trace, Work};
use std::time::Duration;

/// A call that asked for GPU work: a launch of a kernel or graph, or a copy or fill of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Launch<'a> {
    /// The name of the function, such as `cuLaunchKernel`.
    pub function: &'a str,
    /// The [correlation id](crate::trace::ApiCall::correlation) of the call and its work.
    pub correlation: u32,
    /// The number of pieces of work: 1, unless a graph was launched.
    pub pieces: u64,
    /// The time that the call took on the host.
    pub host: Duration,
    /// The time that its work took, the sum of all pieces.
    pub gpu: Duration,
    /// The time from the return of the call to the beginning of its first work; zero if that began before.
    ///
    /// [`Work::delay`] is the time from the beginning of the call.
    pub delay: Duration,
}

impl Launch<'_> {
    /// Returns whether the call took longer than its work. If most launches do, the GPU waits for the host.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.gpu < self.host
    }
}

/// Returns what each launch cost the host, how long its work took, and how long that waited for its turn.
///
/// Work whose call was not recorded is left out, and so are calls that failed or asked for nothing.
/// HolisticTraceAnalysis calls this the CUDA kernel launch statistics. It knows `cudaLaunchKernel`,
/// `cudaLaunchKernelExC`, `cudaMemcpyAsync` and `cudaMemsetAsync` only, neither graphs nor the driver's functions.
///
/// ```
/// # fn show(trace: &kernspan::Trace) {
/// let launches = kernspan::analysis::launches(trace);
/// let short = launches.iter().filter(|launch| launch.is_short()).count();
/// println!("{short} of {} launches took longer than their work", launches.len());
/// # }
/// ```
#[must_use]
pub fn launches(trace: &Trace) -> Vec<Launch<'_>> {
    let mut of_call = vec![CallWork::default(); trace.api_calls().len()];
    for work in trace.work() {
        if let Some(call) = work.call() {
            of_call[call.id().index()].add(work);
        }
    }
    trace.api_calls().zip(of_call).filter_map(|(call, work)| work.launched_by(call)).collect()
}

/// The work of one call.
#[derive(Clone, Copy, Default)]
struct CallWork {
    pieces: u64,
    duration: Duration,
    /// The beginning of the first piece.
    first: Option<Timestamp>,
}

impl CallWork {
    fn add(&mut self, work: Work<'_>) {
        self.pieces += 1;
        self.duration += work.duration();
        self.first = Some(self.first.map_or(work.start(), |first| first.min(work.start())));
    }

    /// Returns the launch, or `None` if there is no work.
    fn launched_by(self, call: ApiCall<'_>) -> Option<Launch<'_>> {
        Some(Launch {
            function: call.name(),
            correlation: call.correlation(),
            pieces: self.pieces,
            host: call.duration(),
            gpu: self.duration,
            delay: self.first?.since(call.end()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Launch, launches};
    use crate::trace::{Trace, sample::gpu_trace};
    use std::time::Duration;

    #[test]
    fn graphs_are_one_launch_and_work_without_a_call_is_none() {
        let trace = gpu_trace();
        let launches = launches(&trace);
        let micros = Duration::from_micros;
        let mut seen: Vec<_> = launches.iter().map(|launch| (launch.function, launch.pieces)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [("cuGraphLaunch", 2), ("cuLaunchKernel", 1), ("cuMemcpyHtoDAsync", 1)]);
        assert_eq!(launches.len(), trace.api_calls().len());
        // Each call takes 2 µs, and returns 1 µs before its work begins.
        assert!(launches.iter().all(|launch| (launch.host, launch.delay) == (micros(2), micros(1))));
        let gpu: Vec<_> = launches.iter().map(|launch| launch.gpu).collect();
        assert_eq!((gpu.iter().sum(), gpu.iter().max()), (micros(2 * (4 + 20 + 30 + 20)), Some(&micros(30))));
        assert!(!launches.iter().any(Launch::is_short));
        assert_eq!(super::launches(&Trace::default()), []);
    }

    #[test]
    fn work_may_begin_before_its_call_returns() {
        let mut trace = gpu_trace();
        for call in &mut trace.api_calls {
            call.end = call.end + Duration::from_micros(8);
        }
        let launches = launches(&trace);
        assert!(launches.iter().all(|launch| launch.delay.is_zero()));
        let short = launches.iter().filter(|launch| launch.is_short()).count();
        assert_eq!(short, 2, "the copies are shorter than their calls");
    }
}
