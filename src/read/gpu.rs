//! Events of GPUs: API calls, work, waits, overheads and memory.

use super::{event::Event, growth::push, rows::Rows};
use crate::{
    recording::{OverheadRecord, WaitRecord, WorkRecord},
    trace::{
        AllocationData, Api, ApiCallData, Attribution, BatchId, Collective, Detail, DeviceId, Direction, GraphNode,
        HostAllocation, Kernel, MemoryChange, MemoryCopy, MemoryFill, MemoryKind, Timestamp, WaitKind,
    },
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{borrow::Cow, sync::Arc};

/// The events of GPUs, in the order of the document. Tracks are rows of the document.
#[derive(Debug, Default)]
pub(super) struct GpuEvents {
    pub(super) calls: Vec<ApiCallData>,
    /// The `External id` of each call; 0 if it has none.
    pub(super) call_ids: Vec<u64>,
    /// The batches of calls, by the numbers that the document gives them.
    pub(super) call_batches: Vec<(usize, u32)>,
    pub(super) work: Vec<WorkRecord>,
    /// The correlation id of each piece of work and its `External id`, if it has both.
    pub(super) work_ids: Vec<(u32, u64)>,
    /// Steps of work that differ from those of their calls, by correlation id.
    pub(super) work_steps: FxHashMap<u32, Option<u64>>,
    /// Exchanges of data between ranks, by correlation id. Equal ones are shared.
    pub(super) collectives: FxHashMap<u32, Arc<Collective>>,
    known_collectives: FxHashSet<Arc<Collective>>,
    pub(super) waits: Vec<WaitRecord>,
    pub(super) overheads: Vec<OverheadRecord>,
    pub(super) allocations: Vec<AllocationData>,
    /// The `External id` of each allocation; 0 if it has none.
    pub(super) allocation_ids: Vec<u64>,
    pub(super) host_allocations: Vec<HostAllocation>,
    pub(super) annotations: Vec<AnnotationEvent>,
    /// The number of ends of other arrows, such as those from calls to their work.
    pub(super) arrow_ends: u64,
    /// The device of each context.
    pub(super) contexts: FxHashMap<u32, u32>,
    names: FxHashSet<Arc<str>>,
    raw_names: FxHashMap<Arc<str>, Arc<str>>,
    copies: FxHashMap<String, (Direction, MemoryKind, MemoryKind)>,
}

/// A label on a stream.
#[derive(Debug)]
pub(super) struct AnnotationEvent {
    pub(super) name: Arc<str>,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    pub(super) device: u32,
    pub(super) stream: u32,
    /// The `External id` of the label on the host; 0 if it has none.
    pub(super) id: u64,
}

impl GpuEvents {
    pub(super) fn add_call(&mut self, event: &Event<'_>, rows: &mut Rows) -> Option<()> {
        let (start, end) = event.extent()?;
        let track = rows.thread(event.pid, event.tid)?;
        let driver_name = event.arg("driver name").text();
        let is_runtime = driver_name.is_none() && event.name.starts_with("cuda");
        let name = self.name(driver_name.as_deref().unwrap_or(&event.name));
        let mut call = ApiCallData {
            api: if is_runtime { Api::CudaRuntime } else { Api::CudaDriver },
            function: 0,
            name,
            track,
            start,
            end,
            correlation: 0,
            result: 0,
            attribution: Attribution::default(),
            span: None,
            batch: None,
        };
        let mut span = 0;
        for (key, raw) in &event.args {
            match &**key {
                "External id" => span = raw.u64().unwrap_or(0),
                "cbid" => call.function = raw.u32().unwrap_or(0),
                "correlation" => call.correlation = raw.u32().unwrap_or(0),
                "result" => call.result = raw.u32().unwrap_or(0),
                "batch" => self.call_batches.extend(raw.u32().map(|batch| (self.calls.len(), batch))),
                _ => {}
            }
        }
        call.attribution = event.attribution(span > 0);
        push(&mut self.call_ids, span);
        push(&mut self.calls, call);
        Some(())
    }

    pub(super) fn add_work(&mut self, event: &Event<'_>) -> Option<()> {
        let (start, end) = event.extent()?;
        let mut work = WorkRecord {
            detail: Detail::Fill(MemoryFill::default()),
            device: 0,
            context: 0,
            stream: 0,
            start,
            end,
            correlation: 0,
            graph: None,
        };
        let mut kernel = Kernel::default();
        let (mut bytes, mut value, mut raw_name) = (0, 0, None);
        let (mut graph, mut node) = (None, None);
        let (mut span, mut step, mut collective) = (0, None, Collective::default());
        for (key, raw) in &event.args {
            match &**key {
                "External id" => span = raw.u64().unwrap_or(0),
                "Collective name" => collective.operation = raw.text().unwrap_or_default().into_owned(),
                "Process Group Name" => collective.group = self.name(&raw.text().unwrap_or_default()),
                "Process Group Description" => collective.description = raw.text().unwrap_or_default().into_owned(),
                "Process Group Ranks" => collective.ranks = ranks(&raw.text().unwrap_or_default()),
                "Group size" => collective.group_size = raw.u32().unwrap_or(0),
                "In msg nelems" => collective.elements_in = raw.u64().unwrap_or(0),
                "Out msg nelems" => collective.elements_out = raw.u64().unwrap_or(0),
                "dtype" => collective.dtype = raw.text().unwrap_or_default().into_owned(),
                "Seq" => collective.sequence = raw.u64(),
                "Algorithm" => collective.algorithm = self.name(&raw.text().unwrap_or_default()),
                "Protocol" => collective.protocol = self.name(&raw.text().unwrap_or_default()),
                "Channels" => collective.channels = raw.u32().unwrap_or(0),
                "Communicator" => {
                    collective.communicator = raw.text().and_then(|text| u64::from_str_radix(&text, 16).ok());
                }
                "Group rank" => collective.group_rank = raw.u32(),
                "Merged collectives" => collective.merged = raw.u32().unwrap_or(0),
                "step" => step = Some(raw.u64()),
                "device" => work.device = raw.u32().unwrap_or(0),
                "context" => work.context = raw.u32().unwrap_or(0),
                "stream" => work.stream = raw.u32().unwrap_or(0),
                "correlation" => work.correlation = raw.u32().unwrap_or(0),
                "queued" => kernel.queued = raw.moment().filter(|at| *at > Timestamp::default()),
                "registers per thread" => kernel.registers = raw.u32().and_then(|it| it.try_into().ok()).unwrap_or(0),
                "shared memory" => kernel.dynamic_shared_memory = raw.u32().unwrap_or(0),
                "grid" => kernel.grid = raw.three().unwrap_or_default(),
                "block" => kernel.block = raw.three().unwrap_or_default(),
                "bytes" => bytes = raw.u64().unwrap_or(0),
                "value" => value = raw.u32().unwrap_or(0),
                "graph id" => graph = raw.u32(),
                "graph node id" => node = raw.u64(),
                "raw name" => raw_name = raw.text(),
                _ => {}
            }
        }
        work.graph = graph.map(|graph| GraphNode { graph, node: node.unwrap_or(0) });
        work.detail = match &*event.category {
            "kernel" => {
                kernel.name = self.name(&event.name);
                kernel.raw_name = match raw_name {
                    Some(raw_name) => self.raw_name(&kernel.name, &raw_name),
                    None => Arc::clone(self.raw_names.get(&kernel.name).unwrap_or(&kernel.name)),
                };
                Detail::Kernel(kernel)
            }
            "gpu_memcpy" => {
                let (direction, from, to) = self.copy(&event.name);
                Detail::Copy(MemoryCopy { direction, from, to, bytes })
            }
            _ => {
                let memory = event.name.strip_prefix("Memset (").and_then(|name| name.strip_suffix(')'));
                Detail::Fill(MemoryFill { value, memory: memory_kind(memory.unwrap_or_default()), bytes })
            }
        };
        self.contexts.insert(work.context, work.device);
        if span > 0 && work.correlation > 0 {
            push(&mut self.work_ids, (work.correlation, span));
        }
        if !collective.operation.is_empty() && work.correlation > 0 {
            let known = self.known_collectives.get(&collective).cloned();
            let collective = known.unwrap_or_else(|| Arc::new(collective));
            self.known_collectives.insert(Arc::clone(&collective));
            self.collectives.insert(work.correlation, collective);
        }
        if let Some(step) = step {
            self.work_steps.insert(work.correlation, step);
        }
        push(&mut self.work, work);
        Some(())
    }

    pub(super) fn add_annotation(&mut self, event: &Event<'_>) -> Option<()> {
        let (start, end) = event.extent()?;
        let device = event.pid.u32()?;
        // In a converted file, an annotation may be on another row of its stream.
        let stream = u32::try_from(event.tid.i64()?.rem_euclid(Rows::TID_STRIDE)).ok()?;
        let (name, id) = (self.name(&event.name), event.arg("External id").u64().unwrap_or(0));
        self.annotations.push(AnnotationEvent { name, start, end, device, stream, id });
        Some(())
    }

    pub(super) fn add_wait(&mut self, event: &Event<'_>) -> Option<()> {
        let (start, end) = event.extent()?;
        let kinds = [WaitKind::Event, WaitKind::StreamForEvent, WaitKind::Stream, WaitKind::Context];
        let kind = kinds.into_iter().find(|kind| kind.as_str() == event.name)?;
        let context = event.arg("context").u32().unwrap_or(0);
        if let Some(device) = event.arg("device").u32() {
            self.contexts.entry(context).or_insert(device);
        }
        self.waits.push(WaitRecord {
            kind,
            start,
            end,
            correlation: event.arg("correlation").u32().unwrap_or(0),
            context,
            stream: event.arg("stream").u32(),
            event: event.arg("wait_on_cuda_event_id").u32(),
        });
        Some(())
    }

    pub(super) fn add_overhead(&mut self, event: &Event<'_>) -> Option<()> {
        let (start, end) = event.extent()?;
        let name = Cow::Owned(event.name.clone().into_owned());
        let thread = event.arg("thread").u32();
        self.overheads.push(OverheadRecord { name, thread, start, end });
        Some(())
    }

    pub(super) fn add_allocation(&mut self, event: &Event<'_>, rows: &mut Rows) -> Option<()> {
        let (at, track) = (event.start()?, rows.thread(event.pid, event.tid)?);
        let delta = event.arg("Bytes").i64()?;
        let address = event.arg("Addr").u64().unwrap_or(0);
        let total = |key| event.arg(key).u64().unwrap_or(0);
        if event.arg("Device Type").u32() == Some(0) {
            let in_use = total("Total Allocated");
            push(&mut self.host_allocations, HostAllocation { at, address, delta, in_use, track });
            return Some(());
        }
        let is_known = event.arg("Bytes unknown").bool() != Some(true);
        let is_freed = delta < 0 || !is_known || event.arg("Freed").bool() == Some(true);
        let span = event.arg("External id").u64().unwrap_or(0);
        push(&mut self.allocation_ids, span);
        let allocation = AllocationData {
            at,
            context: event.arg("context").u32().unwrap_or(0),
            device: DeviceId::new(event.arg("Device Id").u32().unwrap_or(0)),
            address,
            bytes: is_known.then_some(delta.unsigned_abs()),
            change: if is_freed { MemoryChange::Free } else { MemoryChange::Allocate },
            pooled: event.arg("pooled").bool() == Some(true),
            by_framework: event.arg("by framework").bool() == Some(true),
            in_use: total("Total Allocated"),
            reserved: total("Total Reserved"),
            track,
            attribution: event.attribution(span > 0),
            span: None,
        };
        push(&mut self.allocations, allocation);
        Some(())
    }

    /// Gives the calls their batches.
    pub(super) fn set_batches(&mut self, mut id: impl FnMut(u32) -> Option<BatchId>) {
        for (call, batch) in std::mem::take(&mut self.call_batches) {
            self.calls[call].batch = id(batch);
        }
    }

    /// Returns a name, which is stored once.
    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = Arc::from(name);
        self.names.insert(Arc::clone(&name));
        name
    }

    /// Remembers the compiler's name for a kernel, which the file gives once.
    fn raw_name(&mut self, name: &Arc<str>, raw_name: &str) -> Arc<str> {
        let raw_name = self.name(raw_name);
        self.raw_names.insert(Arc::clone(name), Arc::clone(&raw_name));
        raw_name
    }

    /// Returns the direction and the kinds of memory given in the name of a copy.
    fn copy(&mut self, name: &str) -> (Direction, MemoryKind, MemoryKind) {
        if let Some(known) = self.copies.get(name) {
            return *known;
        }
        let rest = name.strip_prefix("Memcpy ").unwrap_or_default();
        let (way, kinds) = rest.split_once(" (").unwrap_or((rest, ""));
        let (from, to) = kinds.trim_end_matches(')').split_once(" -> ").unwrap_or_default();
        let copy = (direction(way), memory_kind(from), memory_kind(to));
        self.copies.insert(name.to_owned(), copy);
        copy
    }
}

fn direction(name: &str) -> Direction {
    use Direction::{Array, DeviceToDevice, DeviceToHost, HostToDevice, HostToHost, PeerToPeer, Unknown};
    let all = [HostToDevice, DeviceToHost, DeviceToDevice, HostToHost, PeerToPeer, Array];
    all.into_iter().find(|direction| direction.as_str() == name).unwrap_or(Unknown)
}

fn memory_kind(name: &str) -> MemoryKind {
    use MemoryKind::{Array, Device, Managed, Pageable, Pinned, Static, Unknown};
    let all = [Pageable, Pinned, Device, Array, Managed, Static];
    all.into_iter().find(|kind| kind.as_str() == name).unwrap_or(Unknown)
}

/// Reads the ranks of a group, as in `[0, 1, 2, 3]`. PyTorch shortens long lists with dots; then they are not known.
fn ranks(text: &str) -> Vec<u32> {
    let list = text.trim().trim_start_matches('[').trim_end_matches(']').split(',');
    list.map(|rank| rank.trim().parse().ok()).collect::<Option<Vec<_>>>().unwrap_or_default()
}
