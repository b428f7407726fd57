//! Keys of GPU work for caches.

use crate::trace::{Detail, DeviceId, Direction, MemoryKind, NameKey, Work};
use std::hash::{Hash, Hasher};

/// A cache key for a piece of work: everything about it except when it ran and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkKey {
    Kernel {
        device: DeviceId,
        names: [NameKey; 2],
        grid: [u32; 3],
        block: [u32; 3],
        registers: u16,
        shared_memory: [u32; 2],
    },
    Copy {
        direction: Direction,
        from: MemoryKind,
        to: MemoryKind,
    },
    Fill {
        memory: MemoryKind,
    },
}

impl Hash for WorkKey {
    /// Hashes only enough to distinguish most keys.
    fn hash<H: Hasher>(&self, state: &mut H) {
        match *self {
            Self::Kernel {
                names: [name, _],
                grid: [x, y, z],
                block: [threads, ..],
                shared_memory: [_, shared],
                ..
            } => {
                let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
                (name, pair(x, y), pair(z ^ shared, threads)).hash(state);
            }
            Self::Copy { direction, from, to } => (direction as u8, from as u8, to as u8).hash(state),
            Self::Fill { memory } => (memory as u8).hash(state),
        }
    }
}

impl WorkKey {
    pub(super) fn of(work: Work<'_>) -> Self {
        match work.detail() {
            Detail::Kernel(kernel) => Self::Kernel {
                device: work.stream().device(),
                names: [NameKey::of(&kernel.name), NameKey::of(&kernel.raw_name)],
                grid: kernel.grid,
                block: kernel.block,
                registers: kernel.registers,
                shared_memory: [kernel.static_shared_memory, kernel.dynamic_shared_memory],
            },
            Detail::Copy(copy) => Self::Copy { direction: copy.direction, from: copy.from, to: copy.to },
            Detail::Fill(fill) => Self::Fill { memory: fill.memory },
        }
    }
}
