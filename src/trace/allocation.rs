//! Allocations and frees of GPU memory.

use super::{Attribution, DeviceId, Span, SpanId, Timestamp, Trace, Track, TrackId};

/// The stored data of an [`Allocation`].
#[derive(Clone, Debug)]
pub(crate) struct AllocationData {
    pub(crate) at: Timestamp,
    pub(crate) context: u32,
    pub(crate) device: DeviceId,
    pub(crate) address: u64,
    pub(crate) bytes: Option<u64>,
    pub(crate) change: MemoryChange,
    pub(crate) pooled: bool,
    pub(crate) by_framework: bool,
    /// Bytes in use on the device after the change.
    pub(crate) in_use: u64,
    /// Bytes that the device's pool has reserved, if known.
    pub(crate) reserved: u64,
    pub(crate) track: TrackId,
    pub(crate) attribution: Attribution,
    pub(crate) span: Option<SpanId>,
}

/// Whether memory was allocated or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryChange {
    /// Memory was allocated.
    Allocate,
    /// Memory was freed.
    Free,
}

impl Trace {
    /// Allocations and frees of GPU memory, in chronological order: those of tensors where a framework reports them,
    /// as Burn does, and elsewhere those of the driver.
    pub fn allocations(&self) -> impl ExactSizeIterator<Item = Allocation<'_>> {
        self.allocations.iter().map(|data| Allocation::new(self, data))
    }

    /// Allocations and frees by the driver on devices whose [`allocations`](Self::allocations) a framework reports, in
    /// chronological order: the pages that the framework divides. Files do not have them, except recorded windows.
    pub fn pages(&self) -> impl ExactSizeIterator<Item = Allocation<'_>> {
        self.pages.iter().map(|data| Allocation::new(self, data))
    }
}

/// A change of a device's memory: an allocation or a free.
#[derive(Clone, Copy, Debug)]
pub struct Allocation<'a> {
    trace: &'a Trace,
    data: &'a AllocationData,
}

impl<'a> Allocation<'a> {
    fn new(trace: &'a Trace, data: &'a AllocationData) -> Self {
        Self { trace, data }
    }

    /// When it happened.
    pub fn at(self) -> Timestamp {
        self.data.at
    }

    /// When the program requested it, at the latest: when it happened, or when its span ended if that was earlier. A
    /// framework that queues work may allocate later.
    pub fn requested(self) -> Timestamp {
        self.span().map_or(self.at(), |span| self.at().min(span.end()))
    }

    /// The device: the one that ran work of the same context, or the first device if no such work was recorded.
    pub fn device(self) -> DeviceId {
        self.data.device
    }

    /// The address of the memory, or the number that a framework gave it.
    pub fn address(self) -> u64 {
        self.data.address
    }

    /// The number of bytes; `None` for a free by the driver of memory that was allocated before the window.
    pub fn bytes(self) -> Option<u64> {
        self.data.bytes
    }

    /// Whether it was allocated or freed.
    pub fn change(self) -> MemoryChange {
        self.data.change
    }

    /// The change in bytes in use, negative for a free; 0 if the size is unknown.
    pub fn delta(self) -> i64 {
        let bytes = i64::try_from(self.data.bytes.unwrap_or(0)).unwrap_or(i64::MAX);
        if self.data.change == MemoryChange::Free { -bytes } else { bytes }
    }

    /// Whether the memory comes from a pool: one of the driver's stream-ordered ones, through `cuMemAllocAsync` and
    /// `cuMemFreeAsync`, or one of a framework's.
    pub fn pooled(self) -> bool {
        self.data.pooled
    }

    /// Whether a framework reported it, which serves tensors from its own pool: see
    /// [`HandOver::allocated`](crate::framework::HandOver::allocated).
    pub fn by_framework(self) -> bool {
        self.data.by_framework
    }

    /// Bytes in use on the device after the change.
    ///
    /// The count starts with the bytes that the device's pool had in use when the window opened. So it never includes
    /// memory allocated without a pool before the window, and it still includes memory freed without a known size.
    pub fn in_use(self) -> u64 {
        self.data.in_use
    }

    /// Bytes that the device's pool has reserved: as many as when the window opened, or [`in_use`](Self::in_use) if
    /// that is more.
    pub fn reserved(self) -> u64 {
        self.data.reserved
    }

    /// The track of the calling thread.
    pub fn track(self) -> &'a Track {
        self.trace.track(self.data.track)
    }

    /// How its span was found.
    pub fn attribution(self) -> Attribution {
        self.data.attribution
    }

    /// The span that allocated or freed the memory.
    pub fn span(self) -> Option<Span<'a>> {
        self.data.span.map(|id| self.trace.span(id))
    }
}
