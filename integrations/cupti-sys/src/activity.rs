//! Prefixes of CUPTI's activity records that have the same layout in every release from 12.0 to 13.4.

use crate::layout::structs;
use std::{ffi::c_char, ptr};

/// A struct that is a prefix of an activity record.
///
/// # Safety
///
/// The type is `repr(C)`, and any bytes are a value of it: it has only integers and raw pointers.
pub unsafe trait Prefix: Copy {}

/// Reads the prefix of a record; `None` if there are too few bytes.
///
/// ```
/// use cupti_sys::{ActivityApi, read};
///
/// let mut bytes = [0; 40];
/// bytes[4..8].copy_from_slice(&307_u32.to_ne_bytes());
/// assert_eq!(read::<ActivityApi>(&bytes).unwrap().cbid, 307);
/// assert!(read::<ActivityApi>(&bytes[..39]).is_none());
/// ```
pub fn read<T: Prefix>(record: &[u8]) -> Option<T> {
    // SAFETY: there are enough bytes, `Prefix` says that any bytes are a valid `T`, and the read may be unaligned.
    (record.len() >= size_of::<T>()).then(|| unsafe { ptr::read_unaligned(record.as_ptr().cast()) })
}

structs! {
    /// A kernel: [`kind::CONCURRENT_KERNEL`](crate::kind::CONCURRENT_KERNEL).
    ActivityKernel, "CUpti_ActivityKernel" {
        /// The kind of record.
        0 kind: u32,
        /// Cache configuration, requested and executed.
        4 cache_config: u8,
        /// Shared memory configuration.
        5 shared_memory_config: u8,
        /// Registers per thread.
        6 registers_per_thread: u16,
        /// Requested partitioned global caching.
        8 partitioned_global_cache_requested: u32,
        /// Executed partitioned global caching.
        12 partitioned_global_cache_executed: u32,
        /// Start time in nanoseconds; 0 if unknown.
        16 start: u64,
        /// End time in nanoseconds; 0 if unknown or not ended yet.
        24 end: u64,
        /// End time of the kernel and all kernels that it launched, in nanoseconds; 0 if unknown.
        32 completed: u64,
        /// The device.
        40 device_id: u32,
        /// The context.
        44 context_id: u32,
        /// The stream.
        48 stream_id: u32,
        /// Blocks of the grid along x.
        52 grid_x: i32,
        /// Blocks of the grid along y.
        56 grid_y: i32,
        /// Blocks of the grid along z.
        60 grid_z: i32,
        /// Threads of a block along x.
        64 block_x: i32,
        /// Threads of a block along y.
        68 block_y: i32,
        /// Threads of a block along z.
        72 block_z: i32,
        /// Static shared memory, in bytes.
        76 static_shared_memory: i32,
        /// Dynamic shared memory, in bytes.
        80 dynamic_shared_memory: i32,
        /// Local memory per thread, in bytes.
        84 local_memory_per_thread: u32,
        /// Local memory of the kernel, in bytes.
        88 local_memory_total: u32,
        /// The correlation id of the launch.
        92 correlation_id: u32,
        /// The grid's id.
        96 grid_id: i64,
        /// The mangled name. CUPTI owns it; it is valid while the kernel's module and CUPTI are loaded.
        104 name: *const c_char,
        /// Reserved by CUPTI.
        112 reserved0: *const u8,
        /// Time at which it was queued in the command buffer, if latency timestamps are on.
        120 queued: u64,
        /// Time at which the command buffer was submitted, if latency timestamps are on.
        128 submitted: u64,
        /// The launch type, a `CUpti_ActivityLaunchType`.
        136 launch_type: u8,
        /// Whether a shared memory carve-out was requested.
        137 is_shared_memory_carveout_requested: u8,
        /// The requested carve-out, in percent.
        138 shared_memory_carveout_requested: u8,
        /// Reserved by CUPTI.
        139 padding: u8,
        /// Shared memory set by the driver, in bytes.
        140 shared_memory_executed: u32,
        /// The node of the graph, or 0.
        144 graph_node_id: u64,
        /// The requested limit of shared memory.
        152 shmem_limit_config: u32,
        /// The graph, or 0.
        156 graph_id: u32,
    }

    /// A call of the driver or runtime API: [`kind::DRIVER`](crate::kind::DRIVER),
    /// [`kind::RUNTIME`](crate::kind::RUNTIME).
    ActivityApi, "CUpti_ActivityAPI" {
        /// The kind of record.
        0 kind: u32,
        /// The function: see [`cbid`](crate::cbid).
        4 cbid: u32,
        /// Time of the call, in nanoseconds.
        8 start: u64,
        /// Time of the return, in nanoseconds.
        16 end: u64,
        /// The process.
        24 process_id: u32,
        /// The thread, numbered as [`Cupti::set_thread_id_type`](crate::Cupti::set_thread_id_type) chooses.
        28 thread_id: u32,
        /// The correlation id, shared by all work that the call caused.
        32 correlation_id: u32,
        /// The return value.
        36 return_value: u32,
    }

    /// A copy: [`kind::MEMCPY`](crate::kind::MEMCPY).
    ActivityMemcpy, "CUpti_ActivityMemcpy" {
        /// The kind of record.
        0 kind: u32,
        /// The direction: see [`copy_kind`](crate::copy_kind).
        4 copy_kind: u8,
        /// The kind of memory read: see [`memory_kind`](crate::memory_kind).
        5 src_kind: u8,
        /// The kind of memory written: see [`memory_kind`](crate::memory_kind).
        6 dst_kind: u8,
        /// 1 if it was asynchronous.
        7 flags: u8,
        /// The number of bytes.
        8 bytes: u64,
        /// Start time, in nanoseconds.
        16 start: u64,
        /// End time, in nanoseconds.
        24 end: u64,
        /// The device.
        32 device_id: u32,
        /// The context.
        36 context_id: u32,
        /// The stream.
        40 stream_id: u32,
        /// The correlation id of the call.
        44 correlation_id: u32,
        /// Not used by CUPTI any more.
        48 runtime_correlation_id: u32,
        /// Reserved by CUPTI.
        52 pad: u32,
        /// Reserved by CUPTI.
        56 reserved0: *const u8,
        /// The node of the graph, or 0.
        64 graph_node_id: u64,
        /// The graph, or 0.
        72 graph_id: u32,
        /// The hardware channel.
        76 channel_id: u32,
    }

    /// A copy from one device to another: [`kind::MEMCPY2`](crate::kind::MEMCPY2).
    ActivityMemcpyPtoP, "CUpti_ActivityMemcpyPtoP" {
        /// The kind of record.
        0 kind: u32,
        /// The direction: see [`copy_kind`](crate::copy_kind).
        4 copy_kind: u8,
        /// The kind of memory read: see [`memory_kind`](crate::memory_kind).
        5 src_kind: u8,
        /// The kind of memory written: see [`memory_kind`](crate::memory_kind).
        6 dst_kind: u8,
        /// 1 if it was asynchronous.
        7 flags: u8,
        /// The number of bytes.
        8 bytes: u64,
        /// Start time, in nanoseconds.
        16 start: u64,
        /// End time, in nanoseconds.
        24 end: u64,
        /// The device.
        32 device_id: u32,
        /// The context.
        36 context_id: u32,
        /// The stream.
        40 stream_id: u32,
        /// The device read from.
        44 src_device_id: u32,
        /// The context read from.
        48 src_context_id: u32,
        /// The device written to.
        52 dst_device_id: u32,
        /// The context written to.
        56 dst_context_id: u32,
        /// The correlation id of the call.
        60 correlation_id: u32,
        /// Reserved by CUPTI.
        64 reserved0: *const u8,
        /// The node of the graph, or 0.
        72 graph_node_id: u64,
        /// The graph, or 0.
        80 graph_id: u32,
        /// The hardware channel.
        84 channel_id: u32,
    }

    /// Memory set to a value: [`kind::MEMSET`](crate::kind::MEMSET).
    ActivityMemset, "CUpti_ActivityMemset" {
        /// The kind of record.
        0 kind: u32,
        /// The value.
        4 value: u32,
        /// The number of bytes.
        8 bytes: u64,
        /// Start time, in nanoseconds.
        16 start: u64,
        /// End time, in nanoseconds.
        24 end: u64,
        /// The device.
        32 device_id: u32,
        /// The context.
        36 context_id: u32,
        /// The stream.
        40 stream_id: u32,
        /// The correlation id of the call.
        44 correlation_id: u32,
        /// 1 if it was asynchronous.
        48 flags: u16,
        /// The kind of memory written: see [`memory_kind`](crate::memory_kind).
        50 memory_kind: u16,
        /// Reserved by CUPTI.
        52 pad: u32,
        /// Reserved by CUPTI.
        56 reserved0: *const u8,
        /// The node of the graph, or 0.
        64 graph_node_id: u64,
        /// The graph, or 0.
        72 graph_id: u32,
        /// The hardware channel.
        76 channel_id: u32,
    }

    /// A synchronisation: [`kind::SYNCHRONIZATION`](crate::kind::SYNCHRONIZATION).
    ActivitySynchronization, "CUpti_ActivitySynchronization" {
        /// The kind of record.
        0 kind: u32,
        /// The type of synchronisation: see [`sync_type`](crate::sync_type).
        4 r#type: u32,
        /// Start time of the wait, in nanoseconds.
        8 start: u64,
        /// End time of the wait, in nanoseconds.
        16 end: u64,
        /// The correlation id of the call.
        24 correlation_id: u32,
        /// The context.
        28 context_id: u32,
        /// The stream, or `u32::MAX`.
        32 stream_id: u32,
        /// The event, or `u32::MAX`.
        36 cuda_event_id: u32,
    }

    /// Overhead of CUPTI or the driver: [`kind::OVERHEAD`](crate::kind::OVERHEAD).
    ActivityOverhead, "CUpti_ActivityOverhead" {
        /// The kind of record.
        0 kind: u32,
        /// The kind of overhead: see [`overhead_kind`](crate::overhead_kind).
        4 overhead_kind: u32,
        /// The kind of object it is attributed to: see [`object_kind`](crate::object_kind).
        8 object_kind: u32,
        /// The process, if the object is a process or a thread; else the device.
        12 process_id: u32,
        /// The thread, if the object is a thread; else the context.
        16 thread_id: u32,
        /// The stream, if the object is a stream.
        20 stream_id: u32,
        /// Start time, in nanoseconds.
        24 start: u64,
        /// End time, in nanoseconds.
        32 end: u64,
    }
}

macro_rules! prefixes {
    ($($name:ident),*) => {$(
        // SAFETY: the struct is `repr(C)`, and its fields are integers and raw pointers.
        unsafe impl Prefix for $name {}
    )*};
}

prefixes!(
    ActivityKernel,
    ActivityApi,
    ActivityMemcpy,
    ActivityMemcpyPtoP,
    ActivityMemset,
    ActivitySynchronization,
    ActivityOverhead
);
