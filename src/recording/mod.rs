//! The plain records of one closed window, which capture writes and correlate turns into a [`Trace`](crate::Trace).
//!
//! Threads write [`record`]s and [`device_call`]s into their lanes; [`gpu`] has the records of GPU activity.

mod cost;
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
    record::{Callsite, Record, level_of},
};
pub(crate) use crate::span_table::RegistryId;

use crate::{
    clock::{Anchor, Ticks, Timeline},
    cpu_time::{ProcessUsage, ThreadUsage},
    heap::HeapSamples,
    request::Ticket,
    sampling::WindowStacks,
    thread::ThreadInfo,
    trace::{Cut, Losses},
};
use std::{sync::Arc, time::Instant};
use tracing::level_filters::LevelFilter;

/// A callback that passes a recording on to the next stage.
pub(crate) type HandOn = Box<dyn FnMut(Recording) + Send>;

/// All records of one closed window.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) window: ClosedWindow,
    pub(crate) timeline: Timeline,
    pub(crate) threads: Vec<ThreadRecords>,
    pub(crate) losses: Losses,
    pub(crate) gpu: GpuRecording,
    /// What the process's threads used, if that was read.
    pub(crate) thread_usage: Vec<ThreadUsage>,
}

impl Recording {
    /// The bytes reserved for the window in the [`Budget`](crate::budget::Budget).
    pub(crate) fn charged(&self) -> usize {
        let threads = self.threads.iter().map(|thread| thread.charged).sum::<usize>();
        let stacks = self.window.stacks.as_ref().map_or(0, WindowStacks::charged);
        self.window.charged + threads + self.gpu.charged + stacks + self.thread_usage.len() * ThreadUsage::COST
    }
}

#[cfg(feature = "serving")]
impl Recording {
    /// Returns the spans that were entered in the window, and when.
    pub(crate) fn enters(&self) -> impl Iterator<Item = (RegistryId, Ticks)> {
        let records = self.threads.iter().flat_map(|thread| thread.chunks.iter().flatten());
        records.filter_map(|record| match record {
            Record::Enter { at, id, .. } | Record::EnterKept { at, id, .. } => Some((*id, *at)),
            _ => None,
        })
    }
}

/// The session's own record of a window that has closed.
#[derive(Debug)]
pub(crate) struct ClosedWindow {
    pub(crate) index: u32,
    pub(crate) open: Anchor,
    pub(crate) close: Anchor,
    /// The most verbose level of spans that could be recorded.
    pub(crate) levels: LevelFilter,
    /// When the window closed, from which the wait for late records is measured.
    pub(crate) closed: Instant,
    pub(crate) steps: Vec<StepMark>,
    /// Whether steps were ended by a span closing, rather than by the program.
    pub(crate) steps_by_close: bool,
    /// The number of steps dropped for lack of memory, in this window or before it.
    pub(crate) lost_steps: u64,
    /// The ticks of a typical step before the window, while nothing was recorded.
    pub(crate) unrecorded_step: Option<u64>,
    /// A sample of the allocations on the heap, if it is counted.
    pub(crate) heap: Option<HeapSamples>,
    /// The sampled call stacks, if they are requested.
    pub(crate) stacks: Option<WindowStacks>,
    /// The bytes reserved for the window and its steps in the [`Budget`](crate::budget::Budget).
    pub(crate) charged: usize,
    /// Whether the next window opened at the moment this one closed.
    pub(crate) followed: bool,
    /// Whether the window was opened by the last step and closed by the end of the run. It produces no trace if nothing
    /// happened in it.
    pub(crate) leftover: bool,
    /// The request that it answers, if any.
    pub(crate) ticket: Option<Ticket>,
    /// What becomes of it, if it is of the flight recorder.
    pub(crate) kept: Option<Kept>,
    /// Whether GPU activity was recorded in it, if it is anywhere.
    pub(crate) with_gpu: bool,
}

/// What becomes of a window of the flight recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kept {
    /// It stays in memory until there are newer ones.
    InMemory,
    /// It is exported, after the one before it.
    Written,
}

/// A step, as the session records it.
#[derive(Debug)]
pub(crate) struct StepMark {
    pub(crate) number: u64,
    pub(crate) start: Ticks,
    pub(crate) end: Ticks,
    pub(crate) cut: Cut,
    pub(crate) thread: Arc<ThreadInfo>,
    /// What the process used in the step, if that was read.
    pub(crate) usage: Option<ProcessUsage>,
}

/// The records of one thread, in the order it wrote them.
#[derive(Debug)]
pub(crate) struct ThreadRecords {
    pub(crate) thread: ThreadInfo,
    pub(crate) chunks: Vec<Vec<Record>>,
    /// The bytes reserved for the records in the [`Budget`](crate::budget::Budget).
    pub(crate) charged: usize,
}
