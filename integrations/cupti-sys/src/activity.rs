//! Activity records, as prefixes that are the same in every release from 12.0 to 13.4.

use crate::{Cupti, layout::structs, result};
use std::{ffi::c_char, fmt, iter::FusedIterator, ptr};

/// A struct that is a prefix of an activity record.
///
/// # Safety
///
/// The type is `repr(C)`, and any bytes are a value of it: it has only integers and raw pointers.
pub unsafe trait Prefix: Copy {}

/// Reads a record's prefix; none if there are too few bytes.
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
    // SAFETY: there are enough bytes, any bytes are a `T` (so says `Prefix`), and they may lie anywhere.
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
        /// Registers of a thread.
        6 registers_per_thread: u16,
        /// Partitioned global caching that was asked for.
        8 partitioned_global_cache_requested: u32,
        /// Partitioned global caching that was used.
        12 partitioned_global_cache_executed: u32,
        /// When it began, in nanoseconds; 0 if that could not be had.
        16 start: u64,
        /// When it ended, in nanoseconds; 0 if it has not, or if that could not be had.
        24 end: u64,
        /// When it and the kernels it launched had ended; 0 if not known.
        32 completed: u64,
        /// The device.
        40 device_id: u32,
        /// The context.
        44 context_id: u32,
        /// The stream.
        48 stream_id: u32,
        /// Blocks of the grid.
        52 grid_x: i32,
        /// Blocks of the grid.
        56 grid_y: i32,
        /// Blocks of the grid.
        60 grid_z: i32,
        /// Threads of a block.
        64 block_x: i32,
        /// Threads of a block.
        68 block_y: i32,
        /// Threads of a block.
        72 block_z: i32,
        /// Static shared memory, in bytes.
        76 static_shared_memory: i32,
        /// Dynamic shared memory, in bytes.
        80 dynamic_shared_memory: i32,
        /// Local memory of a thread, in bytes.
        84 local_memory_per_thread: u32,
        /// Local memory of the kernel, in bytes.
        88 local_memory_total: u32,
        /// What its launch has, too.
        92 correlation_id: u32,
        /// The grid's id.
        96 grid_id: i64,
        /// The mangled name. It belongs to CUPTI, and is there as long as the kernel's module and CUPTI are.
        104 name: *const c_char,
        /// Not to be used.
        112 reserved0: *const u8,
        /// When it was queued in the command buffer, if latency timestamps are on.
        120 queued: u64,
        /// When the command buffer was submitted, if latency timestamps are on.
        128 submitted: u64,
        /// How it was launched.
        136 launch_type: u8,
        /// Whether a shared memory carve-out was asked for.
        137 is_shared_memory_carveout_requested: u8,
        /// The carve-out that was asked for, in percent.
        138 shared_memory_carveout_requested: u8,
        /// Not to be used.
        139 padding: u8,
        /// Shared memory set by the driver, in bytes.
        140 shared_memory_executed: u32,
        /// The node of the graph, or 0.
        144 graph_node_id: u64,
        /// Which limit of shared memory was asked for.
        152 shmem_limit_config: u32,
        /// The graph, or 0.
        156 graph_id: u32,
    }

    /// A call of the driver or runtime API: [`kind::DRIVER`](crate::kind::DRIVER), [`kind::RUNTIME`](crate::kind::RUNTIME).
    ActivityApi, "CUpti_ActivityAPI" {
        /// The kind of record.
        0 kind: u32,
        /// The function: see [`cbid`](crate::cbid).
        4 cbid: u32,
        /// When it was called, in nanoseconds.
        8 start: u64,
        /// When it returned, in nanoseconds.
        16 end: u64,
        /// The process.
        24 process_id: u32,
        /// The thread: what that is, says [`Cupti::set_thread_id_type`].
        28 thread_id: u32,
        /// What everything that came of it has, too.
        32 correlation_id: u32,
        /// What it returned.
        36 return_value: u32,
    }

    /// A copy: [`kind::MEMCPY`](crate::kind::MEMCPY).
    ActivityMemcpy, "CUpti_ActivityMemcpy" {
        /// The kind of record.
        0 kind: u32,
        /// From where to where: see [`copy_kind`](crate::copy_kind).
        4 copy_kind: u8,
        /// What memory was read: see [`memory_kind`](crate::memory_kind).
        5 src_kind: u8,
        /// What memory was written: see [`memory_kind`](crate::memory_kind).
        6 dst_kind: u8,
        /// 1 if it was asynchronous.
        7 flags: u8,
        /// How many bytes.
        8 bytes: u64,
        /// When it began, in nanoseconds.
        16 start: u64,
        /// When it ended, in nanoseconds.
        24 end: u64,
        /// The device.
        32 device_id: u32,
        /// The context.
        36 context_id: u32,
        /// The stream.
        40 stream_id: u32,
        /// What its call has, too.
        44 correlation_id: u32,
        /// Not used any more.
        48 runtime_correlation_id: u32,
        /// Not to be used.
        52 pad: u32,
        /// Not to be used.
        56 reserved0: *const u8,
        /// The node of the graph, or 0.
        64 graph_node_id: u64,
        /// The graph, or 0.
        72 graph_id: u32,
        /// The hardware channel.
        76 channel_id: u32,
    }

    /// A copy from a device to another: [`kind::MEMCPY2`](crate::kind::MEMCPY2).
    ActivityMemcpyPtoP, "CUpti_ActivityMemcpyPtoP" {
        /// The kind of record.
        0 kind: u32,
        /// From where to where: see [`copy_kind`](crate::copy_kind).
        4 copy_kind: u8,
        /// What memory was read: see [`memory_kind`](crate::memory_kind).
        5 src_kind: u8,
        /// What memory was written: see [`memory_kind`](crate::memory_kind).
        6 dst_kind: u8,
        /// 1 if it was asynchronous.
        7 flags: u8,
        /// How many bytes.
        8 bytes: u64,
        /// When it began, in nanoseconds.
        16 start: u64,
        /// When it ended, in nanoseconds.
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
        /// What its call has, too.
        60 correlation_id: u32,
        /// Not to be used.
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
        /// How many bytes.
        8 bytes: u64,
        /// When it began, in nanoseconds.
        16 start: u64,
        /// When it ended, in nanoseconds.
        24 end: u64,
        /// The device.
        32 device_id: u32,
        /// The context.
        36 context_id: u32,
        /// The stream.
        40 stream_id: u32,
        /// What its call has, too.
        44 correlation_id: u32,
        /// 1 if it was asynchronous.
        48 flags: u16,
        /// What memory was written: see [`memory_kind`](crate::memory_kind).
        50 memory_kind: u16,
        /// Not to be used.
        52 pad: u32,
        /// Not to be used.
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
        /// Who waits for what: see [`sync_type`](crate::sync_type).
        4 r#type: u32,
        /// When the waiting began, in nanoseconds.
        8 start: u64,
        /// When it was over, in nanoseconds.
        16 end: u64,
        /// What its call has, too.
        24 correlation_id: u32,
        /// The context.
        28 context_id: u32,
        /// The stream, or `u32::MAX`.
        32 stream_id: u32,
        /// The event, or `u32::MAX`.
        36 cuda_event_id: u32,
    }

    /// Time that CUPTI or the driver took: [`kind::OVERHEAD`](crate::kind::OVERHEAD).
    ActivityOverhead, "CUpti_ActivityOverhead" {
        /// The kind of record.
        0 kind: u32,
        /// What it was: see [`overhead_kind`](crate::overhead_kind).
        4 overhead_kind: u32,
        /// Whom it delayed: see [`object_kind`](crate::object_kind).
        8 object_kind: u32,
        /// The process, if the object is one or a thread; else the device.
        12 process_id: u32,
        /// The thread, if the object is one; else the context.
        16 thread_id: u32,
        /// The stream, if the object is one.
        20 stream_id: u32,
        /// When it began, in nanoseconds.
        24 start: u64,
        /// When it ended, in nanoseconds.
        32 end: u64,
    }
}

macro_rules! prefixes {
    ($($name:ident),*) => {$(
        // SAFETY: it is `repr(C)`, and its fields are integers and raw pointers.
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

/// The records of a buffer, one after the other: made by [`Cupti::records`].
pub struct Records<'a> {
    cupti: &'a Cupti,
    buffer: &'a [u8],
    record: *mut u8,
    next: Option<*mut u8>,
    started: bool,
    cut_short: bool,
}

/// The sizes of all records are multiples of this.
const WORD: usize = 8;

impl<'a> Records<'a> {
    pub(crate) fn new(cupti: &'a Cupti, buffer: &'a [u8]) -> Self {
        // CUPTI reads a record's kind before it looks whether the record fits. Records are of whole words, so in a buffer of
        // whole words that is no read beyond the end.
        let buffer = &buffer[..buffer.len() / WORD * WORD];
        Self { cupti, buffer, record: ptr::null_mut(), next: None, started: false, cut_short: false }
    }

    /// Has CUPTI step on. What it returns is checked to lie in the buffer, further on than before.
    fn step(&mut self) -> Option<*mut u8> {
        let start = self.buffer.as_ptr().addr();
        let before = self.record.addr();
        // SAFETY: the buffer is one that CUPTI filled (so says `Cupti::records`), and `record` is null or what CUPTI gave us.
        let code =
            unsafe { self.cupti.next_record(self.buffer.as_ptr().cast_mut(), self.buffer.len(), &mut self.record) };
        let place = self.record.addr();
        let forward = before == 0 || place > before;
        let inside = place >= start && place < start + self.buffer.len();
        let found = code == result::SUCCESS && forward && inside;
        self.cut_short = !found && code != result::MAX_LIMIT_REACHED;
        found.then_some(self.record)
    }

    /// Whether the walk ended before the buffer did, at a record that CUPTI itself does not know. Then the last slice has that
    /// record and all after it in it.
    pub fn is_cut_short(&self) -> bool {
        self.cut_short
    }
}

impl<'a> Iterator for Records<'a> {
    /// The bytes from the beginning of a record to the beginning of the next; for the last, to the end of the buffer.
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if !self.started {
            self.started = true;
            self.next = self.step();
        }
        let record = self.next.take()?;
        self.next = self.step();
        let start = record.addr() - self.buffer.as_ptr().addr();
        let end = self.next.map_or(self.buffer.len(), |next| next.addr() - self.buffer.as_ptr().addr());
        self.buffer.get(start..end)
    }
}

impl FusedIterator for Records<'_> {}

impl fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("bytes", &self.buffer.len()).finish_non_exhaustive()
    }
}
