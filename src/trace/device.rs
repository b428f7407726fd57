use super::Kernel;
use std::fmt;

/// The number of a GPU, as the driver counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DeviceId(u32);

impl DeviceId {
    pub(crate) const fn new(id: u32) -> Self {
        Self(id)
    }

    /// The number.
    pub const fn as_u32(self) -> u32 {
        self.0
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
    /// Its number.
    pub id: DeviceId,
    /// Its name, as `NVIDIA H200`.
    pub name: String,
    /// The driver's id of the very card, as `GPU-` and hexadecimal digits; empty if not known.
    pub uuid: String,
    /// Its memory in bytes.
    pub memory: u64,
    /// The compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Threads of a warp.
    pub warp_size: u32,
    /// The most threads of a block.
    pub threads_per_block: u32,
    /// The most threads on a multiprocessor.
    pub threads_per_multiprocessor: u32,
    /// The most blocks on a multiprocessor.
    pub blocks_per_multiprocessor: u32,
    /// The most registers of a block.
    pub registers_per_block: u32,
    /// Registers of a multiprocessor.
    pub registers_per_multiprocessor: u32,
    /// The most shared memory of a block, in bytes.
    pub shared_memory_per_block: u32,
    /// The same, for kernels that ask for more.
    pub shared_memory_per_block_optin: u32,
    /// Shared memory of a multiprocessor, in bytes.
    pub shared_memory_per_multiprocessor: u32,
    /// Shared memory that the driver takes of each block, in bytes.
    pub shared_memory_reserved: u32,
    /// How fast the multiprocessors run at the most, in kHz.
    pub clock_khz: u32,
    /// How fast the memory runs at the most, in kHz.
    pub memory_clock_khz: u32,
    /// How wide the way to the memory is, in bits.
    pub memory_bus_bits: u32,
}

/// How well a kernel's launch fills a device: estimates from its size, as PyTorch gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Occupancy {
    /// Blocks of the grid for each multiprocessor.
    pub blocks_per_multiprocessor: f64,
    /// Warps of the grid for each multiprocessor.
    pub warps_per_multiprocessor: f64,
    /// The part of a multiprocessor's warps that is in use while the kernel runs, in percent.
    pub percent: f64,
    /// The same, were there blocks enough to fill the device: as much as registers, shared memory and the size of the blocks allow.
    pub theoretical_percent: f64,
}

impl Device {
    /// Registers are given to warps in pieces of so many.
    const REGISTER_UNIT: u32 = 256;
    /// A multiprocessor is in four parts, each with its own registers.
    const PARTS: u32 = 4;
    /// Shared memory is given to blocks in pieces of so many bytes, since compute capability 8.0; twice as many before.
    const SHARED_MEMORY_UNIT: u32 = 128;

    /// Bytes a second between the device and its memory at the most, if the driver says so: two transfers a cycle of the memory's clock, each
    /// as wide as the bus.
    pub fn memory_bytes_per_second(&self) -> Option<u64> {
        let bytes = 2 * 1000 * u64::from(self.memory_clock_khz) * u64::from(self.memory_bus_bits) / 8;
        (bytes > 0).then_some(bytes)
    }

    /// How well a kernel fills this device; none if the device or the kernel is not known well enough.
    pub fn occupancy(&self, kernel: &Kernel) -> Option<Occupancy> {
        // None of what no launch can be, as records may be garbage.
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
        // As PyTorch has it, a warp that is not full counts for the threads it has.
        let full_warps = f64::from(threads) / f64::from(self.warp_size);
        Some(Occupancy {
            blocks_per_multiprocessor,
            warps_per_multiprocessor: blocks_per_multiprocessor * full_warps,
            percent: (100.0 * resident * full_warps / f64::from(most_warps.max(1))).min(100.0),
            theoretical_percent: (100.0 * most_blocks * f64::from(warps) / f64::from(most_warps.max(1))).min(100.0),
        })
    }

    /// How many blocks of a kernel fit on a multiprocessor at once, by the rules of CUDA's occupancy calculator.
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
    use super::super::{Kernel, sample::h200};

    /// What PyTorch says of kernels.
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

    /// PyTorch's kernels above are all too small to fill the device. These are not, and what limits them is worked out by the
    /// rules of CUDA's occupancy calculator.
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
