//! The decoder of CUPTI records, which turns bytes into a [`GpuRecord`]. It is safe code: any bytes give a record or an
//! error.

use crate::{
    recording::{GpuRecord, OverheadRecord, WaitRecord, WorkRecord},
    trace::{Detail, Direction, GraphNode, Kernel, MemoryCopy, MemoryFill, MemoryKind, Timestamp, WaitKind},
};
use cupti_sys::{
    ActivityKernel, ActivityMemcpy, ActivityMemcpyPtoP, ActivityMemset, ActivityOverhead, ActivitySynchronization,
    copy_kind, kind, memory_kind, object_kind, overhead_kind, read, sync_type,
};
use std::sync::Arc;

/// A function that finds a kernel's demangled and raw name by the address of the raw one.
pub(crate) trait KernelNames: FnMut(usize) -> (Arc<str>, Arc<str>) {}

impl<F: FnMut(usize) -> (Arc<str>, Arc<str>)> KernelNames for F {}

/// The error for an invalid record: it is too short, or it ends before it starts, which is how CUPTI marks unknown
/// times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

/// Decodes a record; `None` for kinds that are not used.
#[inline]
pub(crate) fn decode(record: &[u8], names: &mut impl KernelNames) -> Result<Option<GpuRecord>, Unreadable> {
    let kind = record.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(Unreadable)?;
    let record = match kind {
        kind::CONCURRENT_KERNEL => GpuRecord::Work(kernel(read(record).ok_or(Unreadable)?, names)?),
        kind::MEMCPY => GpuRecord::Work(copy(read(record).ok_or(Unreadable)?)?),
        kind::MEMCPY2 => GpuRecord::Work(peer_copy(read(record).ok_or(Unreadable)?)?),
        kind::MEMSET => GpuRecord::Work(fill(read(record).ok_or(Unreadable)?)?),
        kind::SYNCHRONIZATION => match wait(read(record).ok_or(Unreadable)?)? {
            Some(wait) => GpuRecord::Wait(wait),
            None => return Ok(None),
        },
        kind::OVERHEAD => GpuRecord::Overhead(overhead(read(record).ok_or(Unreadable)?)?),
        _ => return Ok(None),
    };
    Ok(Some(record))
}

fn extent(start: u64, end: u64) -> Result<(Timestamp, Timestamp), Unreadable> {
    let is_valid = start > 0 && end >= start;
    is_valid.then(|| (Timestamp::from_unix_nanos(start), Timestamp::from_unix_nanos(end))).ok_or(Unreadable)
}

fn graph(graph: u32, node: u64) -> Option<GraphNode> {
    (graph != 0 || node != 0).then_some(GraphNode { graph, node })
}

/// Creates a [`WorkRecord`] from any kind of CUPTI record, since their common fields have the same names.
macro_rules! work {
    ($record:ident, $detail:expr) => {{
        let (start, end) = extent($record.start, $record.end)?;
        Ok(WorkRecord {
            detail: $detail,
            device: $record.device_id,
            context: $record.context_id,
            stream: $record.stream_id,
            start,
            end,
            correlation: $record.correlation_id,
            graph: graph($record.graph_id, $record.graph_node_id),
        })
    }};
}

#[inline]
fn kernel(record: ActivityKernel, names: &mut impl KernelNames) -> Result<WorkRecord, Unreadable> {
    let size = |x: i32, y: i32, z: i32| [x, y, z].map(|length| u32::try_from(length).unwrap_or(0));
    let bytes = |bytes: i32| u32::try_from(bytes).unwrap_or(0);
    work!(record, {
        let (name, raw_name) = names(record.name.addr());
        Detail::Kernel(Kernel {
            name,
            raw_name,
            grid: size(record.grid_x, record.grid_y, record.grid_z),
            block: size(record.block_x, record.block_y, record.block_z),
            registers: record.registers_per_thread,
            static_shared_memory: bytes(record.static_shared_memory),
            dynamic_shared_memory: bytes(record.dynamic_shared_memory),
            queued: (record.queued > 0).then(|| Timestamp::from_unix_nanos(record.queued)),
        })
    })
}

fn copy(record: ActivityMemcpy) -> Result<WorkRecord, Unreadable> {
    let direction = direction(record.copy_kind);
    work!(record, memory_copy(direction, record.src_kind, record.dst_kind, record.bytes))
}

fn peer_copy(record: ActivityMemcpyPtoP) -> Result<WorkRecord, Unreadable> {
    work!(record, memory_copy(Direction::PeerToPeer, record.src_kind, record.dst_kind, record.bytes))
}

fn memory_copy(direction: Direction, from: u8, to: u8, bytes: u64) -> Detail {
    Detail::Copy(MemoryCopy { direction, from: memory(from.into()), to: memory(to.into()), bytes })
}

fn fill(record: ActivityMemset) -> Result<WorkRecord, Unreadable> {
    let memory = memory(record.memory_kind.into());
    work!(record, Detail::Fill(MemoryFill { value: record.value, memory, bytes: record.bytes }))
}

fn wait(record: ActivitySynchronization) -> Result<Option<WaitRecord>, Unreadable> {
    let (start, end) = extent(record.start, record.end)?;
    let kind = match record.r#type {
        sync_type::EVENT_SYNCHRONIZE => WaitKind::Event,
        sync_type::STREAM_WAIT_EVENT => WaitKind::StreamForEvent,
        sync_type::STREAM_SYNCHRONIZE => WaitKind::Stream,
        sync_type::CONTEXT_SYNCHRONIZE => WaitKind::Context,
        _ => return Ok(None),
    };
    let valid = |id: u32| (id != u32::MAX).then_some(id);
    Ok(Some(WaitRecord {
        kind,
        start,
        end,
        correlation: record.correlation_id,
        context: record.context_id,
        stream: valid(record.stream_id),
        event: valid(record.cuda_event_id),
    }))
}

fn overhead(record: ActivityOverhead) -> Result<OverheadRecord, Unreadable> {
    let (start, end) = extent(record.start, record.end)?;
    let name = match record.overhead_kind {
        overhead_kind::DRIVER_COMPILER => "Driver Compiler",
        overhead_kind::BUFFER_FLUSH => "Buffer Flush",
        overhead_kind::INSTRUMENTATION => "Instrumentation",
        overhead_kind::RESOURCE => "Resource",
        overhead_kind::RUNTIME_TRIGGERED_MODULE_LOADING => "Runtime Triggered Module Loading",
        overhead_kind::LAZY_FUNCTION_LOADING => "Lazy Function Loading",
        overhead_kind::COMMAND_BUFFER_FULL => "Command Buffer Full",
        overhead_kind::ACTIVITY_BUFFER_REQUEST => "Activity Buffer Request",
        overhead_kind::UVM_ACTIVITY_INIT => "UVM Activity Init",
        _ => "Unknown",
    };
    let thread = (record.object_kind == object_kind::THREAD).then_some(record.thread_id);
    Ok(OverheadRecord { name: name.into(), thread, start, end })
}

fn direction(kind: u8) -> Direction {
    match u32::from(kind) {
        copy_kind::HTOD => Direction::HostToDevice,
        copy_kind::DTOH => Direction::DeviceToHost,
        copy_kind::DTOD => Direction::DeviceToDevice,
        copy_kind::HTOH => Direction::HostToHost,
        copy_kind::PTOP => Direction::PeerToPeer,
        copy_kind::HTOA..=copy_kind::DTOA => Direction::Array,
        _ => Direction::Unknown,
    }
}

fn memory(kind: u32) -> MemoryKind {
    match kind {
        memory_kind::PAGEABLE => MemoryKind::Pageable,
        memory_kind::PINNED => MemoryKind::Pinned,
        memory_kind::DEVICE => MemoryKind::Device,
        memory_kind::ARRAY => MemoryKind::Array,
        memory_kind::MANAGED | memory_kind::MANAGED_STATIC => MemoryKind::Managed,
        memory_kind::DEVICE_STATIC => MemoryKind::Static,
        _ => MemoryKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::{GpuRecord, Unreadable, decode};
    use cupti_sys::kind;
    use proptest::prelude::*;
    use std::sync::Arc;

    const KINDS: [u32; 6] =
        [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMCPY2, kind::MEMSET, kind::SYNCHRONIZATION, kind::OVERHEAD];

    fn decoded(record: &[u8]) -> Result<Option<GpuRecord>, Unreadable> {
        decode(record, &mut |address| (Arc::from(format!("{address:x}")), Arc::from("raw")))
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_record_that_makes_sense_or_an_error(
            kind in prop_oneof![prop::sample::select(&KINDS[..]), any::<u32>()],
            rest in prop::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(u8::MAX)], 0..300),
        ) {
            let record = [&kind.to_ne_bytes()[..], &rest].concat();
            let (start, end) = match decoded(&record) {
                Ok(Some(GpuRecord::Work(work))) => (work.start, work.end),
                Ok(Some(GpuRecord::Wait(wait))) => (wait.start, wait.end),
                Ok(Some(GpuRecord::Overhead(overhead))) => (overhead.start, overhead.end),
                Ok(None) => {
                    prop_assert!(!KINDS.contains(&kind) || kind == kind::SYNCHRONIZATION);
                    return Ok(());
                }
                Err(Unreadable) => {
                    prop_assert!(KINDS.contains(&kind));
                    return Ok(());
                }
            };
            prop_assert!(start.as_unix_nanos() > 0 && start <= end);
        }

        #[test]
        fn a_record_cut_off_is_an_error_or_the_same_record(
            kind in prop::sample::select(&KINDS[..]),
            rest in prop::collection::vec(any::<u8>(), 300),
            cut in 0_usize..300,
        ) {
            let record = [&kind.to_ne_bytes()[..], &rest].concat();
            let [whole, cut] = [&record[..], &record[..cut]].map(decoded);
            let same = format!("{cut:?}") == format!("{whole:?}");
            prop_assert!(cut.is_err() || same);
        }
    }

    #[test]
    fn a_record_without_a_kind_is_an_error() {
        for record in [&[][..], &[10], &[10, 0, 0]] {
            assert_eq!(decoded(record).unwrap_err(), Unreadable);
        }
    }
}
