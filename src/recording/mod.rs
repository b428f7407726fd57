//! The plain records of one closed window: capture writes them, correlate makes a [`Trace`](crate::Trace) of them.
//!
//! [`record`] and [`device_call`] are what a thread writes into its lane, [`gpu`] what was read of the GPUs.

mod device_call;
mod gpu;
mod origin;
mod raw;
mod record;

pub use self::origin::Origin;
pub(crate) use self::{
    device_call::{DeviceCall, MemoryCall, MemoryFacts},
    gpu::{Function, GpuRecord, GpuRecording, OverheadRecord, Pool, WaitRecord, WorkRecord},
    raw::RawRecords,
    record::{Callsite, Record, RegistryId},
};

use crate::{
    clock::{Anchor, Ticks, Timeline},
    thread::ThreadInfo,
    trace::{Cut, Losses},
};
use std::{sync::Arc, time::Instant};
use tracing::level_filters::LevelFilter;

/// Takes a recording on, to whoever is next.
pub(crate) type HandOn = Box<dyn FnMut(Recording) + Send>;

/// The facts of one window, as they were written down.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) window: ClosedWindow,
    pub(crate) timeline: Timeline,
    pub(crate) threads: Vec<ThreadRecords>,
    pub(crate) losses: Losses,
    pub(crate) gpu: GpuRecording,
}

impl Recording {
    /// What the records were charged with, in chunks.
    pub(crate) fn charged(&self) -> usize {
        self.threads.iter().map(|thread| thread.charged).sum::<usize>() + self.gpu.charged
    }
}

/// What the session knows of a window.
#[derive(Debug)]
pub(crate) struct ClosedWindow {
    pub(crate) index: u32,
    pub(crate) open: Anchor,
    pub(crate) close: Anchor,
    /// The most verbose spans that anybody could see.
    pub(crate) levels: LevelFilter,
    /// When the session let it go, for who waits for late records.
    pub(crate) closed: Instant,
    pub(crate) steps: Vec<StepMark>,
    /// Steps past the limit.
    pub(crate) lost_steps: u64,
    /// Whether the next window opened when this one closed.
    pub(crate) followed: bool,
    /// Opened by the last step and closed by the end of the run: not worth a trace if nothing happened in it.
    pub(crate) leftover: bool,
}

/// A step, as the session saw it.
#[derive(Debug)]
pub(crate) struct StepMark {
    pub(crate) number: u64,
    pub(crate) start: Ticks,
    pub(crate) end: Ticks,
    pub(crate) cut: Cut,
    pub(crate) thread: Arc<ThreadInfo>,
}

/// What one thread wrote, in order.
#[derive(Debug)]
pub(crate) struct ThreadRecords {
    pub(crate) thread: ThreadInfo,
    pub(crate) chunks: Vec<Vec<Record>>,
    pub(crate) charged: usize,
}
