use super::{Attribution, DeviceId, Span, SpanId, Timestamp, Trace, Track, TrackId};

#[derive(Clone, Debug)]
pub(crate) struct AllocationData {
    pub(crate) at: Timestamp,
    pub(crate) context: u32,
    pub(crate) device: DeviceId,
    pub(crate) address: u64,
    pub(crate) bytes: Option<u64>,
    pub(crate) change: MemoryChange,
    pub(crate) pooled: bool,
    /// Bytes in use on the device afterwards.
    pub(crate) in_use: u64,
    /// Bytes reserved on the device, as far as known.
    pub(crate) reserved: u64,
    pub(crate) track: TrackId,
    pub(crate) attribution: Attribution,
    pub(crate) span: Option<SpanId>,
}

/// Whether memory was taken or given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryChange {
    /// It was allocated.
    Allocate,
    /// It was freed.
    Free,
}

/// Memory of a device that was allocated or freed.
#[derive(Clone, Copy, Debug)]
pub struct Allocation<'a> {
    trace: &'a Trace,
    data: &'a AllocationData,
}

impl<'a> Allocation<'a> {
    pub(super) fn new(trace: &'a Trace, data: &'a AllocationData) -> Self {
        Self { trace, data }
    }

    /// When.
    pub fn at(self) -> Timestamp {
        self.data.at
    }

    /// On which device: the one on which work of the same context was seen, or the first if none was.
    pub fn device(self) -> DeviceId {
        self.data.device
    }

    /// The address.
    pub fn address(self) -> u64 {
        self.data.address
    }

    /// How many bytes. Not known where memory is freed that was allocated before the window.
    pub fn bytes(self) -> Option<u64> {
        self.data.bytes
    }

    /// Whether it was allocated or freed.
    pub fn change(self) -> MemoryChange {
        self.data.change
    }

    /// How many bytes more, or less, are in use now. 0 where that is not known.
    pub fn delta(self) -> i64 {
        let bytes = i64::try_from(self.data.bytes.unwrap_or(0)).unwrap_or(i64::MAX);
        if self.data.change == MemoryChange::Free { -bytes } else { bytes }
    }

    /// Whether it is in the order of a stream, from a pool of the driver's: `cuMemAllocAsync` and `cuMemFreeAsync`.
    pub fn pooled(self) -> bool {
        self.data.pooled
    }

    /// Bytes in use on the device afterwards: what the device's pool had in use when the window opened, and what was allocated
    /// since. Memory that is freed without its size being known is still counted, and what was allocated before the window
    /// without a pool never was.
    pub fn in_use(self) -> u64 {
        self.data.in_use
    }

    /// Bytes that the device's pool has taken from the device: as many as when the window opened, or as are in use if that is more.
    pub fn reserved(self) -> u64 {
        self.data.reserved
    }

    /// The track of the thread that called.
    pub fn track(self) -> &'a Track {
        self.trace.track(self.data.track)
    }

    /// How it is known which span it belongs to.
    pub fn attribution(self) -> Attribution {
        self.data.attribution
    }

    /// The span that made it.
    pub fn span(self) -> Option<Span<'a>> {
        self.data.span.map(|id| self.trace.span(id))
    }
}
