//! Records of GPU activity, owned and free of vendor types.

use super::RawRecords;
use crate::trace::{Detail, Device, Gpu, GpuCounters, GraphNode, Losses, Timestamp, WaitKind};
use rustc_hash::FxHashMap;
use std::{borrow::Cow, collections::HashMap, sync::Arc};

/// A piece of GPU work.
#[derive(Clone, Debug)]
pub(crate) struct WorkRecord {
    pub(crate) detail: Detail,
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) correlation: u32,
    pub(crate) graph: Option<GraphNode>,
}

/// A synchronisation: the host or a stream waits for a GPU.
#[derive(Clone, Debug)]
pub(crate) struct WaitRecord {
    pub(crate) kind: WaitKind,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) correlation: u32,
    pub(crate) context: u32,
    pub(crate) stream: Option<u32>,
    pub(crate) event: Option<u32>,
}

/// A period taken by the profiling library itself.
#[derive(Clone, Debug)]
pub(crate) struct OverheadRecord {
    pub(crate) name: Cow<'static, str>,
    pub(crate) thread: Option<u32>,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
}

/// A record of any kind.
#[derive(Clone, Debug)]
pub(crate) enum GpuRecord {
    Work(WorkRecord),
    Wait(WaitRecord),
    Overhead(OverheadRecord),
}

/// An API function: CUPTI's number for the API, and for the function in it.
pub(crate) type Function = (u8, u32);

/// The state of a device's memory pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pool {
    /// Bytes that the pool has reserved on the device.
    pub(crate) reserved: u64,
    /// Bytes that are in use.
    pub(crate) used: u64,
}

/// The GPU activity of one window.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuRecording {
    pub(crate) gpu: Gpu,
    pub(crate) devices: Arc<[Device]>,
    pub(crate) work: Vec<WorkRecord>,
    pub(crate) waits: Vec<WaitRecord>,
    pub(crate) overheads: Vec<OverheadRecord>,
    /// The names of the API functions that were called.
    pub(crate) functions: HashMap<Function, Arc<str>>,
    /// Each device's memory pool, by device number, when the window opened.
    pub(crate) pools: HashMap<u32, Pool>,
    /// The device of each context seen, by number.
    pub(crate) contexts: FxHashMap<u32, u32>,
    /// Samples of hardware counters, by device.
    pub(crate) counters: Vec<GpuCounters>,
    pub(crate) losses: Losses,
    /// The bytes reserved for the records in the [`Budget`](crate::budget::Budget).
    pub(crate) charged: usize,
    /// The records as CUPTI wrote them, if they are to be kept.
    pub(crate) raw: Option<RawRecords>,
}
