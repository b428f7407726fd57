//! GPUs, as their driver describes them.

use super::id::define_id;
use std::fmt;

define_id! {
    /// The number of a GPU, as the driver counts them.
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct DeviceId(u32);

    /// The number.
    pub const fn as_u32;
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A GPU, as its driver describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Device {
    /// The driver's number for the device.
    pub id: DeviceId,
    /// The model name, such as `NVIDIA H200`.
    pub name: String,
    /// The unique id of this card, `GPU-` and hexadecimal digits; empty if unknown.
    pub uuid: String,
    /// The size of its memory in bytes.
    pub memory: u64,
    /// The compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// The number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Threads in a warp.
    pub warp_size: u32,
    /// The maximum number of threads in a block.
    pub threads_per_block: u32,
    /// The maximum number of threads on a multiprocessor.
    pub threads_per_multiprocessor: u32,
    /// The maximum number of blocks on a multiprocessor.
    pub blocks_per_multiprocessor: u32,
    /// The maximum number of registers per block.
    pub registers_per_block: u32,
    /// The number of registers per multiprocessor.
    pub registers_per_multiprocessor: u32,
    /// The maximum shared memory per block, in bytes.
    pub shared_memory_per_block: u32,
    /// The maximum shared memory per block for a kernel that opts in to more, in bytes.
    pub shared_memory_per_block_optin: u32,
    /// The shared memory per multiprocessor, in bytes.
    pub shared_memory_per_multiprocessor: u32,
    /// The shared memory that the driver reserves in each block, in bytes.
    pub shared_memory_reserved: u32,
    /// The maximum clock rate of the multiprocessors, in kHz.
    pub clock_khz: u32,
    /// The maximum clock rate of the memory, in kHz.
    pub memory_clock_khz: u32,
    /// The width of the memory bus, in bits.
    pub memory_bus_bits: u32,
}

impl Device {
    /// The maximum memory bandwidth in bytes per second, if the driver reports the clock and the bus width: two
    /// transfers per memory clock cycle, each as wide as the bus.
    pub fn memory_bytes_per_second(&self) -> Option<u64> {
        let bytes = 2 * 1000 * u64::from(self.memory_clock_khz) * u64::from(self.memory_bus_bits) / 8;
        (bytes > 0).then_some(bytes)
    }
}
