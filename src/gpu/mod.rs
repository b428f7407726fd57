//! The GPU side of capture: kernels, copies and waits, as recorded by the vendor's library.
//!
//! The calls that cause them are in the host's lanes, between the spans around them. A [`GpuSource`] reads the records,
//! and [`gather`] keeps them until their window is complete.

pub(crate) mod calls;
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub(crate) mod cupti;
mod detach;
pub(crate) mod gather;

pub(crate) use self::detach::DetachPolicy;

use crate::{
    activity::Activities,
    budget::Budget,
    host::Host,
    recording::HandOn,
    schedule::WaitLength,
    trace::{DeviceId, Gpu, GpuProblem, Losses},
};
use std::{fmt, io, sync::Arc, thread::JoinHandle};

/// The user's settings for GPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuSettings {
    pub(crate) activities: Activities,
    pub(crate) detach: DetachPolicy,
    /// Whether the bytes of records are kept for writing to a file.
    pub(crate) keep_raw: bool,
}

/// A vendor's profiling library, as the session sees it: it records while windows are open.
///
/// All methods but [`memory`](Self::memory) are called by the stepping thread, between two steps.
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

    /// Returns, for each device that the program uses, the bytes in use of the driver's pool, and the device's size.
    fn memory(&self) -> Vec<(DeviceId, u64, u64)>;
}

/// A source, with the thread that reads its records.
pub(crate) struct Started {
    pub(crate) source: Arc<dyn GpuSource>,
    pub(crate) thread: JoinHandle<Losses>,
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
