//! The details of kernels, copies and fills.

use super::Timestamp;
use std::sync::Arc;

/// The kind of a piece of [`Work`](super::Work), and the facts that only this kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Detail {
    /// A kernel.
    Kernel(Kernel),
    /// A copy of memory.
    Copy(MemoryCopy),
    /// A fill: memory set to a value.
    Fill(MemoryFill),
}

/// The facts of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernel {
    /// The demangled name, for people.
    pub name: Arc<str>,
    /// The name as the compiler gave it.
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

/// The facts of a copy of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryCopy {
    /// The direction: from where to where the bytes went.
    pub direction: Direction,
    /// The kind of memory that was read.
    pub from: MemoryKind,
    /// The kind of memory that was written.
    pub to: MemoryKind,
    /// The number of bytes copied.
    pub bytes: u64,
}

/// The facts of a fill: memory set to a value.
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

/// The direction of a copy: from where to where it went.
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
    /// Any other direction, or one that is not known.
    #[default]
    Unknown,
}

impl Direction {
    /// The name that PyTorch gives it: `HtoD`, `DtoH`, ….
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
    /// Ordinary memory of the host.
    Pageable,
    /// Page-locked memory of the host.
    Pinned,
    /// Memory of a device.
    Device,
    /// A CUDA array of a device.
    Array,
    /// Managed memory, which moves to where it is used.
    Managed,
    /// A static variable of a device.
    Static,
    /// The kind is not known.
    #[default]
    Unknown,
}

impl MemoryKind {
    /// The name that PyTorch gives it: `Pageable`, `Pinned`, `Device`, ….
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
