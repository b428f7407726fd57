//! The details of kernels, copies and fills.

use super::Timestamp;
use std::sync::Arc;

/// The kind of a piece of [`Work`](super::Work), and the facts specific to this kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Detail {
    /// A kernel.
    Kernel(Kernel),
    /// A memory copy.
    Copy(MemoryCopy),
    /// A fill: memory set to a value.
    Fill(MemoryFill),
}

/// The facts about a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernel {
    /// The demangled name.
    pub name: Arc<str>,
    /// The mangled name, as the compiler emitted it.
    pub raw_name: Arc<str>,
    /// Blocks in each dimension.
    pub grid: [u32; 3],
    /// Threads per block in each dimension.
    pub block: [u32; 3],
    /// Registers per thread.
    pub registers: u16,
    /// Shared memory per block, fixed at compile time, in bytes.
    pub static_shared_memory: u32,
    /// Shared memory per block, requested at launch, in bytes.
    pub dynamic_shared_memory: u32,
    /// When the host queued it, if the driver says so.
    pub queued: Option<Timestamp>,
}

/// The facts about a memory copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryCopy {
    /// The direction of the copy.
    pub direction: Direction,
    /// The kind of memory that was read.
    pub from: MemoryKind,
    /// The kind of memory that was written.
    pub to: MemoryKind,
    /// The number of bytes copied.
    pub bytes: u64,
}

/// The facts about a fill: memory set to a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryFill {
    /// The value, one, two or four bytes wide.
    pub value: u32,
    /// The kind of memory that was written.
    pub memory: MemoryKind,
    /// The number of bytes written.
    pub bytes: u64,
}

/// The direction of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Direction {
    /// From the host to a device.
    HostToDevice,
    /// From a device to the host.
    DeviceToHost,
    /// Within a device.
    DeviceToDevice,
    /// Within the host's memory.
    HostToHost,
    /// From one device to another.
    PeerToPeer,
    /// To, from or between CUDA arrays.
    Array,
    /// Any other or unknown direction.
    #[default]
    Unknown,
}

impl Direction {
    /// PyTorch's name for it: `HtoD`, `DtoH`, ….
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HostToDevice => "HtoD",
            Self::DeviceToHost => "DtoH",
            Self::DeviceToDevice => "DtoD",
            Self::HostToHost => "HtoH",
            Self::PeerToPeer => "PtoP",
            Self::Array => "Array",
            Self::Unknown => "Unknown",
        }
    }
}

/// The kind of memory that a copy or fill reads or writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Ordinary host memory.
    Pageable,
    /// Page-locked host memory.
    Pinned,
    /// Device memory.
    Device,
    /// A CUDA array on a device.
    Array,
    /// Managed memory, which migrates to where it is used.
    Managed,
    /// A static variable on a device.
    Static,
    /// The kind is unknown.
    #[default]
    Unknown,
}

impl MemoryKind {
    /// PyTorch's name for it: `Pageable`, `Pinned`, `Device`, ….
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pageable => "Pageable",
            Self::Pinned => "Pinned",
            Self::Device => "Device",
            Self::Array => "Array",
            Self::Managed => "Managed",
            Self::Static => "Device Static",
            Self::Unknown => "Unknown",
        }
    }
}
