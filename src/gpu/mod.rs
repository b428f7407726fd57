//! The GPU side of capture: kernels, copies and waits, as the vendor's library records them.
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
    trace::{Gpu, GpuProblem, Losses},
};
use std::{fmt, io, sync::Arc, thread::JoinHandle};

/// The user's settings for GPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuSettings {
    pub(crate) activities: Activities,
    pub(crate) detach: DetachPolicy,
    /// Whether the bytes of records are kept, to be written to a file.
    pub(crate) keep_raw: bool,
}

/// A vendor's profiling library, as the session sees it: it is told when windows open and close, and records in them.
///
/// All of it is called by the thread that steps, between two steps.
pub(crate) trait GpuSource: fmt::Debug + Send + Sync {
    /// Whether it records, and if not, why not.
    fn gpu(&self) -> Gpu;

    /// Gets everything ready for the next window, which may take some milliseconds.
    fn prepare(&self);

    /// Says that a window is about to open.
    fn open(&self);

    /// Says that the window is open.
    fn opened(&self);

    /// Says that no window is open, nor will be for this long.
    fn rest(&self, wait: WaitLength);

    /// Says that a step has ended while no window is open.
    fn tick(&self);
}

/// A source, with the thread that reads what it records.
pub(crate) struct Started {
    pub(crate) source: Arc<dyn GpuSource>,
    pub(crate) thread: JoinHandle<Losses>,
    /// Takes windows that have been collected on the host's side.
    pub(crate) collected: HandOn,
}

/// Starts the source of this machine's GPUs, which gives the windows back, with what GPUs did in them, to `hand_on`.
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
