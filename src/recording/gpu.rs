//! Records of what GPUs did, owned and free of any vendor's types.

use super::RawRecords;
use crate::trace::{Detail, Device, Gpu, GraphNode, Losses, Timestamp, WaitKind};
use rustc_hash::FxHashMap;
use std::{collections::HashMap, sync::Arc};

/// A piece of work.
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

/// A wait.
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

/// Time that the library took.
#[derive(Clone, Debug)]
pub(crate) struct OverheadRecord {
    pub(crate) name: &'static str,
    pub(crate) thread: Option<u32>,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
}

/// One of them.
#[derive(Clone, Debug)]
pub(crate) enum GpuRecord {
    Work(WorkRecord),
    Wait(WaitRecord),
    Overhead(OverheadRecord),
}

/// A function of an API: which API, and its number there.
pub(crate) type Function = (u8, u32);

/// A pool of a device's memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pool {
    /// Bytes that the driver has taken from the device.
    pub(crate) reserved: u64,
    /// Bytes of those that are in use.
    pub(crate) used: u64,
}

/// What the GPUs did in one window.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuRecording {
    pub(crate) gpu: Gpu,
    pub(crate) devices: Arc<[Device]>,
    pub(crate) work: Vec<WorkRecord>,
    pub(crate) waits: Vec<WaitRecord>,
    pub(crate) overheads: Vec<OverheadRecord>,
    /// The names of the functions that were called.
    pub(crate) functions: HashMap<Function, Arc<str>>,
    /// Each device's pool when the window opened.
    pub(crate) pools: HashMap<u32, Pool>,
    /// The devices of the contexts that were seen.
    pub(crate) contexts: FxHashMap<u32, u32>,
    pub(crate) losses: Losses,
    /// What the records were charged with, in chunks of the budget.
    pub(crate) charged: usize,
    /// The records as they were, if they are to be kept.
    pub(crate) raw: Option<RawRecords>,
}
