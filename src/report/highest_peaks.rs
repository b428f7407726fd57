//! The highest memory peak of each GPU.

use super::memory_peak::MemoryPeak;
use crate::trace::{Allocation, DeviceId, Trace};
use std::collections::BTreeMap;

/// The highest memory peak of each GPU, over all windows.
#[derive(Debug, Default)]
pub(super) struct HighestPeaks(BTreeMap<DeviceId, MemoryPeak>);

impl HighestPeaks {
    /// Adds the allocations of a window.
    pub(super) fn add(&mut self, trace: &Trace) {
        let mut highest: BTreeMap<DeviceId, (usize, Allocation<'_>)> = BTreeMap::new();
        for (index, allocation) in trace.allocations().enumerate() {
            let peak = highest.entry(allocation.device()).or_insert((index, allocation));
            if allocation.in_use() > peak.1.in_use() {
                *peak = (index, allocation);
            }
        }
        for (device, (index, allocation)) in highest {
            // It takes long to find the owners, so only those of a new highest peak are looked for.
            if self.get(device).is_none_or(|peak| peak.in_use < allocation.in_use()) {
                self.0.insert(device, MemoryPeak::after(trace, index, allocation));
            }
        }
    }

    /// Returns the peak of a GPU, if it allocated or freed memory.
    pub(super) fn get(&self, device: DeviceId) -> Option<&MemoryPeak> {
        self.0.get(&device)
    }

    /// Returns the peak of each GPU.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &MemoryPeak> {
        self.0.values()
    }
}
