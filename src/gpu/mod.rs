//! The GPU side of capture: kernels, copies and waits, as recorded by the vendor's library.
//!
//! The calls that cause them are in the host's lanes, between the spans around them. A [`GpuSource`] reads the records,
//! and [`gather`] keeps them until their window is complete.

pub(crate) mod calls;
mod counters;
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub(crate) mod cupti;
mod detach;
pub(crate) mod gather;
pub(crate) mod ledger;

pub use self::counters::Counters;
pub(crate) use self::{detach::DetachPolicy, ledger::Ledger};

use crate::{
    activity::Activities,
    budget::Budget,
    host::Host,
    recording::{HandOn, Pool},
    schedule::WaitLength,
    trace::{DeviceId, Gpu, GpuProblem, Losses},
};
use std::{
    fmt, io,
    sync::{Arc, atomic::AtomicU64},
    thread::JoinHandle,
};

/// The settings for GPUs.
#[derive(Clone, Debug)]
pub(crate) struct GpuSettings {
    pub(crate) activities: Activities,
    pub(crate) detach: DetachPolicy,
    /// Whether the bytes of records are kept for writing to a file.
    pub(crate) keep_raw: bool,
    /// The ledger of allocations, if they are followed in the whole run.
    pub(crate) ledger: Option<Arc<Ledger>>,
    /// The hardware counters to sample, if any.
    pub(crate) counters: Option<Counters>,
}

/// The memory of a GPU at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuMemory {
    pub(crate) device: DeviceId,
    /// The driver's pool, from which `cuMemAllocAsync` allocates, if the program has a context.
    pub(crate) pool: Option<Pool>,
    /// What the whole device is used for, if the caller wants to know, and the system says so.
    pub(crate) shares: Option<GpuShares>,
    /// The size of the device's memory.
    pub(crate) size: u64,
}

impl GpuMemory {
    /// Returns the bytes that cannot be allocated: those in use, without what the pool keeps for reuse.
    pub(crate) fn in_use(&self, ledger: &Ledger) -> u64 {
        let Pool { reserved, used } = self.pool.unwrap_or_default();
        let all = self.shares.map_or(0, |shares| shares.all.saturating_sub(reserved.saturating_sub(used)));
        // Shares may be from a few readings before.
        all.max(used).max(ledger.bytes(self.device))
    }
}

/// The bytes in use of a GPU's memory, in and outside of pools, with contexts and kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuShares {
    /// By all processes.
    pub(crate) all: u64,
    /// By this process. In a container, the system may not know which that is.
    pub(crate) process: Option<u64>,
}

/// A vendor's profiling library, as the session sees it: it records while windows are open.
///
/// The methods about memory may be called by any thread, all others by the stepping thread, between two steps.
pub(crate) trait GpuSource: fmt::Debug + Send + Sync {
    /// Returns whether it records, and if not, why not.
    fn gpu(&self) -> Gpu;

    /// Prepares for the next window, which may take a few milliseconds.
    fn prepare(&self);

    /// Called when a window is about to open.
    fn open(&self);

    /// Called when the window is open.
    fn opened(&self);

    /// Called when no window is open, and none will be for this long.
    fn idle(&self, wait: WaitLength);

    /// Called when a step has ended while no window is open.
    fn tick(&self);

    /// Returns the memory of each device, with the shares of processes if `with_shares`, which takes longer.
    fn memory(&self, with_shares: bool) -> Vec<GpuMemory>;

    /// Returns the most bytes of the driver's pool that were in use since the last reset.
    fn pool_peak(&self, device: DeviceId) -> Option<u64>;

    fn reset_pool_peaks(&self);
}

/// A source, with the thread that reads its records.
pub(crate) struct Started {
    pub(crate) source: Arc<dyn GpuSource>,
    pub(crate) thread: JoinHandle<Losses>,
    /// Changes whenever that thread makes progress.
    pub(crate) progress: Arc<AtomicU64>,
    /// The callback that takes windows once the host's records have been collected.
    pub(crate) collected: HandOn,
}

/// Starts the source of this machine's GPUs. It adds GPU records to each window, and passes the window to `hand_on`.
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub(crate) fn start(
    settings: GpuSettings,
    host: &Arc<Host>,
    budget: &Arc<Budget>,
    hand_on: HandOn,
) -> io::Result<Result<Started, GpuProblem>> {
    cupti::start(settings, host, budget, hand_on)
}

#[cfg(not(all(feature = "cuda", target_os = "linux")))]
pub(crate) fn start(
    _: GpuSettings,
    _: &Arc<Host>,
    _: &Arc<Budget>,
    _: HandOn,
) -> io::Result<Result<Started, GpuProblem>> {
    Ok(Err(GpuProblem::NotBuiltIn))
}
