//! The busy time of each GPU, by the kinds of work that ran at once.

use super::{gpu_usage::percent_of, work_kind::WorkKind};
use crate::trace::{DeviceId, Timestamp, Trace};
use std::{collections::BTreeMap, time::Duration};

/// The busy time of a GPU by the kinds of work that ran at once, each moment counted once.
///
/// Work is *compute* if it is a kernel, unless that is one of NCCL's, which are *communication*. Copies and fills of
/// memory are *memory*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KernelKinds {
    /// The GPU.
    pub device: DeviceId,
    /// The time in which only compute ran.
    pub compute: Duration,
    /// The time in which only communication ran.
    pub communication: Duration,
    /// The time in which only memory was copied or filled.
    pub memory: Duration,
    /// The time in which compute and communication ran, and nothing else.
    pub compute_and_communication: Duration,
    /// The time in which compute ran and memory was copied or filled, and nothing else.
    pub compute_and_memory: Duration,
    /// The time in which communication ran and memory was copied or filled, and nothing else.
    pub communication_and_memory: Duration,
    /// The time in which all three ran.
    pub all: Duration,
}

impl KernelKinds {
    /// The time in which anything ran.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.any_compute() + self.communication + self.memory + self.communication_and_memory
    }

    /// The time in which compute ran, whatever else did.
    #[must_use]
    pub fn any_compute(&self) -> Duration {
        self.compute + self.compute_and_communication + self.compute_and_memory + self.all
    }

    /// The time in which communication ran, whatever else did.
    #[must_use]
    pub fn any_communication(&self) -> Duration {
        self.communication + self.compute_and_communication + self.communication_and_memory + self.all
    }

    /// The time in which memory was copied or filled, whatever else ran.
    #[must_use]
    pub fn any_memory(&self) -> Duration {
        self.memory + self.compute_and_memory + self.communication_and_memory + self.all
    }

    /// The percentage of communication that ran beside compute, so that nobody waited for it; `None` without
    /// communication.
    #[must_use]
    pub fn overlap_percent(&self) -> Option<f64> {
        let (all, beside) = (self.any_communication(), self.compute_and_communication + self.all);
        (all > Duration::ZERO).then(|| percent_of(beside, all))
    }

    /// Returns the sum for these kinds, a bit for each [`WorkKind`]; `None` if there are none.
    fn sum_mut(&mut self, kinds: u8) -> Option<&mut Duration> {
        const COMPUTE: u8 = 1 << WorkKind::Compute as u8;
        const COMMUNICATION: u8 = 1 << WorkKind::Communication as u8;
        const MEMORY: u8 = 1 << WorkKind::Memory as u8;
        let (compute, communication, memory) = (kinds & COMPUTE != 0, kinds & COMMUNICATION != 0, kinds & MEMORY != 0);
        match (compute, communication, memory) {
            (false, false, false) => None,
            (true, false, false) => Some(&mut self.compute),
            (false, true, false) => Some(&mut self.communication),
            (false, false, true) => Some(&mut self.memory),
            (true, true, false) => Some(&mut self.compute_and_communication),
            (true, false, true) => Some(&mut self.compute_and_memory),
            (false, true, true) => Some(&mut self.communication_and_memory),
            (true, true, true) => Some(&mut self.all),
        }
    }
}

/// Returns how long each GPU that did anything ran which kinds of work at once. For the time of each kernel, see
/// [`Report::kernels`](crate::Report::kernels).
///
/// HolisticTraceAnalysis calls this the kernel breakdown by type. It shows less: it cuts each piece of time in which
/// the same kinds ran to whole microseconds. If kernels take some microseconds each, it loses a fifth to two fifths of
/// their time. It also takes the GPUs of a process for one, takes waits of streams for events as compute, and leaves
/// out kernels with `Sync` or `Memcpy` in their names.
///
/// ```
/// # fn show(trace: &kernspan::Trace) {
/// for gpu in kernspan::analysis::kernel_kinds(trace) {
///     println!("GPU {}: {:?} only communicating", gpu.device, gpu.communication);
///     if let Some(percent) = gpu.overlap_percent() {
///         println!("{percent:.1} % of the communication was hidden behind compute");
///     }
/// }
/// # }
/// ```
#[must_use]
pub fn kernel_kinds(trace: &Trace) -> Vec<KernelKinds> {
    let mut devices: BTreeMap<DeviceId, Vec<Change>> = BTreeMap::new();
    for work in trace.work() {
        let (kind, changes) = (WorkKind::of(work), devices.entry(work.stream().device()).or_default());
        changes.push(Change { at: work.start(), kind, is_end: false });
        changes.push(Change { at: work.end(), kind, is_end: true });
    }
    devices.into_iter().map(|(device, changes)| of_device(device, changes)).collect()
}

/// A moment at which work begins or ends.
struct Change {
    at: Timestamp,
    kind: WorkKind,
    is_end: bool,
}

fn of_device(device: DeviceId, mut changes: Vec<Change>) -> KernelKinds {
    // Work that takes no time must begin before it ends.
    changes.sort_unstable_by_key(|change| (change.at, change.is_end));
    let mut sums = KernelKinds { device, ..KernelKinds::default() };
    let (mut running, mut since) = ([0_usize; 3], Timestamp::default());
    for Change { at, kind, is_end } in changes {
        let kinds = running.iter().enumerate().map(|(kind, &count)| u8::from(count > 0) << kind).sum();
        if let Some(sum) = sums.sum_mut(kinds) {
            *sum += at.since(since);
        }
        since = at;
        let count = &mut running[kind as usize];
        *count = if is_end { count.saturating_sub(1) } else { *count + 1 };
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::{KernelKinds, kernel_kinds};
    use crate::trace::{
        DeviceId, Trace,
        sample::{at, gpu_trace, kernel},
    };
    use std::time::Duration;

    #[test]
    fn each_moment_counts_for_the_kinds_that_run_then() {
        let mut trace = gpu_trace();
        let micros = Duration::from_micros;
        // In each step a copy of 4 µs, kernels of 20 and 30 µs, and a fill of 10 µs beside the second; then 10 µs.
        let plain = KernelKinds {
            device: DeviceId::new(0),
            compute: micros(2 * (20 + 20) + 10),
            memory: micros(2 * 4),
            compute_and_memory: micros(2 * 10),
            ..KernelKinds::default()
        };
        assert_eq!(kernel_kinds(&trace), [plain]);
        assert_eq!(plain.overlap_percent(), None);
        // Communication from 55 to 95, in a row of its own. It is alone from 80.
        let mut work = trace.work[1].clone();
        (work.detail, work.start, work.end) = (kernel("ncclDevKernel_AllReduce"), at(55), at(95));
        trace.work.push(work);
        let kinds = kernel_kinds(&trace)[0];
        assert_eq!((kinds.communication, kinds.all), (micros(15), micros(10)));
        assert_eq!((kinds.compute_and_communication, kinds.communication_and_memory), (micros(15), micros(0)));
        assert_eq!((kinds.any_compute(), kinds.any_memory()), (plain.any_compute(), plain.any_memory()));
        assert_eq!((kinds.any_communication(), kinds.busy()), (micros(40), plain.busy() + micros(15)));
        assert_eq!(format!("{:.3}", kinds.overlap_percent().unwrap()), "62.500");
        assert_eq!(kernel_kinds(&Trace::default()), []);
    }
}
