//! Records of API calls, packed so that they fit into a [`Record`](super::Record).

use crate::{clock::Ticks, trace::MemoryChange};

/// A call to a device's API that has returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceCall {
    pub(crate) start: Ticks,
    /// The time that the call took, in multiples of [`UNIT`](Self::UNIT).
    length: u32,
    /// The correlation id, shared with the records of the work that the call caused.
    pub(crate) correlation: u32,
    pub(crate) function: u16,
    pub(crate) result: u16,
    pub(crate) api: u8,
}

impl DeviceCall {
    /// The number of ticks in one unit of the length: a few nanoseconds, so that a call may take up to twenty seconds.
    const UNIT: u64 = 16;

    /// Creates the record of a call that returns at `end`.
    pub(crate) fn new(start: Ticks, end: Ticks, correlation: u32, api: u8, function: u32, result: u32) -> Self {
        let units = end.0.saturating_sub(start.0) / Self::UNIT;
        Self {
            start,
            length: u32::try_from(units).unwrap_or(u32::MAX),
            correlation,
            function: u16::try_from(function).unwrap_or(u16::MAX),
            result: u16::try_from(result).unwrap_or(u16::MAX),
            api,
        }
    }

    /// Creates the record of a call made before the window, or before calls were watched. It starts at 0.
    pub(crate) fn before_window(correlation: u32) -> Self {
        Self { start: Ticks(0), length: 0, correlation, function: 0, result: 0, api: 0 }
    }

    /// Whether the call was made before the window.
    pub(crate) fn is_before_window(&self) -> bool {
        self.start == Ticks(0)
    }

    /// The moment at which the call returned.
    pub(crate) fn end(&self) -> Ticks {
        Ticks(self.start.0.saturating_add(u64::from(self.length) * Self::UNIT))
    }
}

/// A change in a device's memory made by a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryCall {
    pub(crate) at: Ticks,
    pub(crate) address: u64,
    /// The [`MemoryFacts`]: the bytes in the low bits, above them the context, then the flags.
    packed: u64,
}

/// The facts that [`MemoryCall`] packs into one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryFacts {
    /// The number of bytes allocated; 0 for a free by the driver.
    pub(crate) bytes: u64,
    /// The context; the device if a framework reported the change.
    pub(crate) context: u16,
    pub(crate) change: MemoryChange,
    pub(crate) pooled: bool,
    /// Whether a framework reported the change, and not the driver.
    pub(crate) by_framework: bool,
}

impl MemoryCall {
    const FREE: u64 = 1 << 63;
    const POOLED: u64 = 1 << 62;
    const BY_FRAMEWORK: u64 = 1 << 61;
    const CONTEXT: u64 = (1 << 14) - 1;
    const BYTES: u64 = (1 << 47) - 1;

    pub(crate) fn new(at: Ticks, address: u64, facts: MemoryFacts) -> Self {
        let MemoryFacts { bytes, context, change, pooled, by_framework } = facts;
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(change == MemoryChange::Free, Self::FREE)
            | flag(pooled, Self::POOLED)
            | flag(by_framework, Self::BY_FRAMEWORK);
        let context = (u64::from(context) & Self::CONTEXT) << Self::BYTES.count_ones();
        Self { at, address, packed: flags | context | bytes.min(Self::BYTES) }
    }

    pub(crate) fn facts(&self) -> MemoryFacts {
        let free = self.packed & Self::FREE != 0;
        MemoryFacts {
            bytes: self.packed & Self::BYTES,
            context: (self.packed >> Self::BYTES.count_ones() & Self::CONTEXT) as u16,
            change: if free { MemoryChange::Free } else { MemoryChange::Allocate },
            pooled: self.packed & Self::POOLED != 0,
            by_framework: self.packed & Self::BY_FRAMEWORK != 0,
        }
    }
}
