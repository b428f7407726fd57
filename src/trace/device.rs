//! GPUs, as their driver describes them, and how well a kernel fills one.

use super::{Kernel, id::define_id};
use std::fmt;

define_id! {
    /// The number of a GPU, as the driver counts them.
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct DeviceId(u32);

    /// The number.
    pub const fn as_u32;
}

impl DeviceId {
    /// Returns each of these devices once, in order.
    pub(crate) fn distinct(devices: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut devices: Vec<_> = devices.collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }
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

/// Estimates of how well a kernel fills a device, based on the launch size, as PyTorch computes them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Occupancy {
    /// Blocks of the grid per multiprocessor.
    pub blocks_per_multiprocessor: f64,
    /// Warps of the grid per multiprocessor.
    pub warps_per_multiprocessor: f64,
    /// The percentage of a multiprocessor's warps in use while the kernel runs.
    pub percent: f64,
    /// The percentage for a grid large enough to fill the device: what registers, shared memory and the block size
    /// allow.
    pub theoretical_percent: f64,
    /// How many times the grid fills the device: its blocks, divided by those that the device runs at once.
    pub waves: f64,
}

impl Device {
    /// Registers are allocated to warps in multiples of this number.
    const REGISTER_UNIT: u32 = 256;
    /// Parts of a multiprocessor, each of which has its own registers.
    const PARTS: u32 = 4;
    /// Shared memory is allocated to blocks in multiples of this many bytes since compute capability 8.0, and of twice
    /// as many before.
    const SHARED_MEMORY_UNIT: u32 = 128;

    /// Estimates how well a kernel fills this device; `None` if too little is known about the device or the kernel.
    pub fn occupancy(&self, kernel: &Kernel) -> Option<Occupancy> {
        // Records may be garbage, so a size that is impossible for a launch is rejected.
        let volume = |size: [u32; 3]| size.into_iter().try_fold(1, |all: u64, length| all.checked_mul(length.into()));
        let (blocks, threads) = (volume(kernel.grid)?, u32::try_from(volume(kernel.block)?).ok()?);
        if self.multiprocessors == 0 || self.warp_size == 0 || threads == 0 {
            return None;
        }
        let warps = threads.div_ceil(self.warp_size);
        let most_warps = self.threads_per_multiprocessor / self.warp_size;
        let blocks_per_multiprocessor = blocks as f64 / f64::from(self.multiprocessors);
        let most_blocks = f64::from(self.resident_blocks(kernel, warps)?);
        let resident = most_blocks.min(blocks_per_multiprocessor);
        // PyTorch counts a partially filled warp as the fraction of it that has threads.
        let full_warps = f64::from(threads) / f64::from(self.warp_size);
        Some(Occupancy {
            blocks_per_multiprocessor,
            warps_per_multiprocessor: blocks_per_multiprocessor * full_warps,
            percent: (100.0 * resident * full_warps / f64::from(most_warps.max(1))).min(100.0),
            theoretical_percent: (100.0 * most_blocks * f64::from(warps) / f64::from(most_warps.max(1))).min(100.0),
            waves: blocks_per_multiprocessor / most_blocks.max(1.0),
        })
    }

    /// The number of blocks of a kernel that fit on a multiprocessor at once, by the rules of CUDA's occupancy
    /// calculator.
    fn resident_blocks(&self, kernel: &Kernel, warps: u32) -> Option<u32> {
        let by_warps = (self.threads_per_multiprocessor / self.warp_size).checked_div(warps)?;
        let registers = u32::from(kernel.registers).checked_mul(self.warp_size)?;
        let registers = registers.checked_next_multiple_of(Self::REGISTER_UNIT)?;
        let warps_of_part = (self.registers_per_multiprocessor / Self::PARTS).checked_div(registers);
        let by_registers = warps_of_part.map_or(u32::MAX, |of_part| of_part * Self::PARTS / warps);
        let unit = if self.compute_capability.0 >= 8 { Self::SHARED_MEMORY_UNIT } else { 2 * Self::SHARED_MEMORY_UNIT };
        let shared = kernel.static_shared_memory.saturating_add(kernel.dynamic_shared_memory);
        let shared = shared.saturating_add(self.shared_memory_reserved).checked_next_multiple_of(unit)?;
        let by_shared = self.shared_memory_per_multiprocessor.checked_div(shared).unwrap_or(u32::MAX);
        Some(by_warps.min(by_registers).min(by_shared).min(self.blocks_per_multiprocessor))
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::{Kernel, sample::h200};

    /// The estimates of PyTorch for some kernels.
    const TORCH: &str = include_str!("../../tests/fixtures/torch_occupancy.txt");

    #[test]
    fn estimates_are_pytorchs() {
        let mut compared = 0;
        for row in TORCH.lines().filter(|row| !row.starts_with('#')) {
            let columns: Vec<f64> = row.split_whitespace().map(|column| column.parse().unwrap()).collect();
            let &[gx, gy, gz, bx, by, bz, registers, shared, blocks, warps, percent] = columns.as_slice() else {
                panic!("{row}");
            };
            let kernel = Kernel {
                grid: [gx, gy, gz].map(|size| size as u32),
                block: [bx, by, bz].map(|size| size as u32),
                registers: registers as u16,
                static_shared_memory: shared as u32,
                ..Kernel::default()
            };
            let ours = h200().occupancy(&kernel).unwrap();
            assert!((ours.blocks_per_multiprocessor - blocks).abs() < 1e-6, "{row}: {ours:?}");
            assert!((ours.warps_per_multiprocessor - warps).abs() < 1e-6, "{row}: {ours:?}");
            assert_eq!(ours.percent.round(), percent, "{row}: {ours:?}");
            compared += 1;
        }
        assert_eq!(compared, 19);
    }

    /// PyTorch's kernels above are all too small to fill the device. These do fill it; the expected limits follow from
    /// the rules of CUDA's occupancy calculator.
    #[test]
    fn large_grids_are_limited_by_what_a_block_needs() {
        let percent = |threads, registers, shared| {
            let (grid, block) = ([100_000, 1, 1], [threads, 1, 1]);
            let kernel = Kernel { grid, block, registers, dynamic_shared_memory: shared, ..Kernel::default() };
            h200().occupancy(&kernel).unwrap().percent
        };
        assert_eq!(percent(1024, 32, 0), 100.0);
        // 32 blocks, of one warp each.
        assert_eq!(percent(32, 16, 0), 50.0);
        let kernel = Kernel { grid: [132 * 32 * 3, 1, 1], block: [32, 1, 1], registers: 16, ..Kernel::default() };
        assert_eq!(h200().occupancy(&kernel).unwrap().waves, 3.0);
        // 32 blocks, of a warp and a half each.
        assert_eq!(percent(48, 16, 0), 75.0);
        // 8192 registers a warp, so two warps in each of the four parts: two blocks of four warps.
        assert_eq!(percent(128, 255, 0), 12.5);
        // 4352 registers a warp leave three in each part, which are twelve: two blocks of five warps.
        assert_eq!(percent(160, 129, 0), 15.625);
        // 49 KiB a block with the driver's own, of 228: four blocks of four warps.
        assert_eq!(percent(128, 16, 48 << 10), 25.0);
        // 1.125 KiB a block with the driver's own, of 228, but 32 blocks are the most.
        assert_eq!(percent(64, 16, 100), 100.0);
        // 7.125 KiB a block, rounded up to pieces of 128 bytes: exactly 32 of 228.
        assert_eq!(percent(64, 16, 6 * 1024 + 1), 100.0);
        assert_eq!(percent(64, 16, 6 * 1024 + 129), 96.875);
    }
}
