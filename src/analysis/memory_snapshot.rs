//! Who holds the memory of GPUs at one moment of the run.

use crate::{
    trace::{DeviceId, Timestamp},
    units,
};
use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

/// The allocations on GPUs that are live at one moment, with the spans that made them.
///
/// Taken by [`Profiler::memory_snapshot`](crate::Profiler::memory_snapshot). `Display` writes a line for each GPU and
/// for each of the largest [`holders`](Self::holders):
///
/// ```text
/// GPU memory at step 120, when 2.00 GiB could not be allocated in attention < forward (src/model.rs:88)
///   GPU 0: 78.1 GiB in 412 allocations; 1.20 GiB in use elsewhere; the device has 79.6 GiB
///   61.0 GiB in 120 allocations of steps 0 to 119: cache < forward < train_step (src/model.rs:42)
/// ```
///
/// [`write_torch_snapshot`](crate::export::write_torch_snapshot) writes it for PyTorch's viewer of memory.
#[derive(Clone, Debug)]
pub struct MemorySnapshot {
    reason: SnapshotReason,
    step: u64,
    at: Timestamp,
    gpus: Vec<SnapshotGpu>,
    /// In the order in which they were made.
    allocations: Vec<HeldAllocation>,
    stacks: Vec<Arc<[MemoryFrame]>>,
}

/// The reason for a [`MemorySnapshot`]. `Display` writes a few words.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SnapshotReason {
    /// The program asked for it.
    Asked,
    /// More than this fraction of the GPU's memory was in use.
    Above {
        /// The GPU.
        device: DeviceId,
        /// The fraction, from 0 to 1.
        fraction: f64,
    },
    /// An allocation failed for lack of memory.
    AllocationFailed {
        /// The GPU.
        device: DeviceId,
        /// The bytes that were asked for.
        bytes: u64,
        /// The spans in which they were asked for, innermost first.
        frames: Vec<MemoryFrame>,
    },
}

/// The memory of a GPU as a whole, in a [`MemorySnapshot`]. `Display` writes a few words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SnapshotGpu {
    /// The GPU.
    pub device: DeviceId,
    /// The bytes of all allocations in the snapshot.
    pub held: u64,
    /// The number of these allocations.
    pub allocations: u64,
    /// The bytes in use elsewhere on the device, if known: of other processes, of memory that was allocated before the
    /// profiler was built, of pools that keep what is freed, and of contexts and kernels.
    pub others: Option<u64>,
    /// The size of the device's memory in bytes, if known.
    pub size: Option<u64>,
}

/// A live allocation of a [`MemorySnapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldAllocation {
    /// The GPU.
    pub device: DeviceId,
    /// The address.
    pub address: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// The number of the step in which it was made.
    pub step: u64,
    /// When it was made.
    pub at: Timestamp,
    /// The index of its stack.
    pub(crate) stack: u32,
}

/// A span in the stack of an allocation or of a thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryFrame {
    /// The name of the span.
    pub name: Cow<'static, str>,
    /// The source file of the span, if known.
    pub file: Option<&'static str>,
    /// The line in that file, if known.
    pub line: Option<u32>,
}

/// Live allocations on one GPU that were made in the same spans. `Display` writes one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryHolder<'a> {
    /// The GPU.
    pub device: DeviceId,
    /// The spans, innermost first; empty if none was open on the thread.
    pub frames: &'a [MemoryFrame],
    /// The bytes of all its allocations.
    pub bytes: u64,
    /// The number of its allocations.
    pub allocations: u64,
    /// The number of the step in which the oldest was made.
    pub first_step: u64,
    /// The number of the step in which the newest was made.
    pub last_step: u64,
}

impl MemorySnapshot {
    /// The number of holders that are printed.
    pub const PRINTED: usize = 10;

    pub(crate) fn new(
        reason: SnapshotReason,
        step: u64,
        at: Timestamp,
        mut allocations: Vec<HeldAllocation>,
        stacks: Vec<Arc<[MemoryFrame]>>,
    ) -> Self {
        allocations.sort_unstable_by_key(|allocation| (allocation.at, allocation.address));
        let mut sums: BTreeMap<DeviceId, SnapshotGpu> = BTreeMap::new();
        for HeldAllocation { device, bytes, .. } in &allocations {
            let unused = SnapshotGpu { device: *device, held: 0, allocations: 0, others: None, size: None };
            let gpu = sums.entry(*device).or_insert(unused);
            gpu.held = gpu.held.saturating_add(*bytes);
            gpu.allocations += 1;
        }
        Self { reason, step, at, gpus: sums.into_values().collect(), allocations, stacks }
    }

    /// Adds what is known of a GPU as a whole: the bytes in use by anybody, and its size.
    pub(crate) fn add_device(&mut self, device: DeviceId, in_use: Option<u64>, size: Option<u64>) {
        let index = self.gpus.binary_search_by_key(&device, |gpu| gpu.device).unwrap_or_else(|index| {
            self.gpus.insert(index, SnapshotGpu { device, held: 0, allocations: 0, others: None, size: None });
            index
        });
        let gpu = &mut self.gpus[index];
        (gpu.others, gpu.size) = (in_use.map(|in_use| in_use.saturating_sub(gpu.held)), size);
    }

    /// The reason for taking it.
    pub fn reason(&self) -> &SnapshotReason {
        &self.reason
    }

    /// The number of the step in which it was taken.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// When it was taken.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// The memory of each GPU as a whole.
    pub fn gpus(&self) -> &[SnapshotGpu] {
        &self.gpus
    }

    /// The live allocations, oldest first.
    pub fn allocations(&self) -> &[HeldAllocation] {
        &self.allocations
    }

    /// The spans in which an allocation of this snapshot was made, innermost first.
    pub fn frames(&self, allocation: &HeldAllocation) -> &[MemoryFrame] {
        self.stacks.get(allocation.stack as usize).map_or(&[], |frames| frames)
    }

    /// Returns who holds the memory: the allocations by GPU and by the spans they were made in, largest first.
    ///
    /// ```
    /// # fn show(profiler: &kernspan::Profiler) -> Result<(), kernspan::Error> {
    /// for holder in profiler.memory_snapshot()?.holders().iter().take(5) {
    ///     println!("{holder}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn holders(&self) -> Vec<MemoryHolder<'_>> {
        let mut holders: BTreeMap<(DeviceId, u32), MemoryHolder<'_>> = BTreeMap::new();
        for allocation in &self.allocations {
            let &HeldAllocation { device, bytes, step, stack, .. } = allocation;
            let holder = holders.entry((device, stack)).or_insert_with(|| {
                let frames = self.frames(allocation);
                MemoryHolder { device, frames, bytes: 0, allocations: 0, first_step: step, last_step: step }
            });
            holder.bytes = holder.bytes.saturating_add(bytes);
            holder.allocations += 1;
            holder.first_step = holder.first_step.min(step);
            holder.last_step = holder.last_step.max(step);
        }
        let mut holders: Vec<_> = holders.into_values().collect();
        holders.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.frames.cmp(b.frames)));
        holders
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for MemorySnapshot {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut snapshot = serializer.serialize_struct("MemorySnapshot", 4)?;
        snapshot.serialize_field("step", &self.step)?;
        snapshot.serialize_field("reason", &self.reason.to_string())?;
        snapshot.serialize_field("gpus", &self.gpus)?;
        snapshot.serialize_field("holders", &self.holders())?;
        snapshot.end()
    }
}

impl fmt::Display for SnapshotReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("when the program asked"),
            Self::Above { device, fraction } => {
                write!(f, "when more than {:.0} % of GPU {device} was in use", fraction * 100.0)
            }
            Self::AllocationFailed { bytes, frames, .. } => {
                write!(f, "when {} could not be allocated in {}", units::bytes(*bytes), Path(frames))
            }
        }
    }
}

impl fmt::Display for MemorySnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "GPU memory at step {}, {}", self.step, self.reason)?;
        self.gpus.iter().try_for_each(|gpu| writeln!(f, "  {gpu}"))?;
        let holders = self.holders();
        holders.iter().take(Self::PRINTED).try_for_each(|holder| writeln!(f, "  {holder}"))?;
        match holders.get(Self::PRINTED..) {
            Some(rest @ [_, ..]) => {
                let bytes = rest.iter().fold(0_u64, |sum, holder| sum.saturating_add(holder.bytes));
                writeln!(f, "  {} in {} other places", units::bytes(bytes), rest.len())
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for SnapshotGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, held, allocations, others, size } = self;
        let plural = if *allocations == 1 { "" } else { "s" };
        write!(f, "GPU {device}: {} in {allocations} allocation{plural}", units::bytes(*held))?;
        if let Some(others) = others.filter(|others| *others > 0) {
            write!(f, "; {} in use elsewhere", units::bytes(others))?;
        }
        size.map_or(Ok(()), |size| write!(f, "; the device has {}", units::bytes(size)))
    }
}

impl fmt::Display for MemoryHolder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, allocations, first_step, last_step, frames, .. } = self;
        let plural = if *allocations == 1 { "" } else { "s" };
        write!(f, "{} in {allocations} allocation{plural} of ", units::bytes(*bytes))?;
        match first_step == last_step {
            true => write!(f, "step {first_step}")?,
            false => write!(f, "steps {first_step} to {last_step}")?,
        }
        write!(f, ": {}", Path(frames))
    }
}

/// The names of spans, innermost first, and the place of the innermost.
struct Path<'a>(&'a [MemoryFrame]);

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(innermost) = self.0.first() else { return f.write_str("code outside spans") };
        for (index, frame) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { " < " })?;
            f.write_str(&frame.name)?;
        }
        match (innermost.file, innermost.line) {
            (Some(file), Some(line)) => write!(f, " ({file}:{line})"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HeldAllocation, MemoryFrame, MemorySnapshot, SnapshotReason};
    use crate::trace::{DeviceId, Timestamp};

    fn frame(name: &'static str) -> MemoryFrame {
        MemoryFrame { name: name.into(), file: Some("src/model.rs"), line: Some(42) }
    }

    fn snapshot(reason: SnapshotReason) -> MemorySnapshot {
        let held = |address, bytes, step, stack| {
            let (device, at) = (DeviceId::new(0), Timestamp::from_unix_nanos(step));
            HeldAllocation { device, address, bytes, step, at, stack }
        };
        let allocations = vec![held(0x300, 1 << 20, 9, 1), held(0x100, 4 << 20, 0, 0), held(0x200, 4 << 20, 3, 1)];
        let stacks = vec![[].into(), [frame("cache"), frame("forward")].into()];
        MemorySnapshot::new(reason, 10, Timestamp::from_unix_nanos(10), allocations, stacks)
    }

    #[test]
    fn the_largest_holders_come_first_and_sum_up_to_the_whole() {
        let mut snapshot = snapshot(SnapshotReason::Asked);
        snapshot.add_device(DeviceId::new(0), Some(16 << 20), Some(1 << 30));
        snapshot.add_device(DeviceId::new(1), None, None);
        let expected = "GPU memory at step 10, when the program asked\n  GPU 0: 9.00 MiB in 3 allocations; 7.00 MiB in \
                        use elsewhere; the device \
                        has 1.00 GiB\n  GPU 1: 0 B in 0 allocations\n  5.00 MiB in 2 allocations of steps 3 to 9: \
                        cache < forward (src/model.rs:42)\n  4.00 MiB in 1 allocation of step 0: code outside spans\n";
        assert_eq!(snapshot.to_string(), expected);
        assert_eq!(snapshot.holders().iter().map(|holder| holder.bytes).sum::<u64>(), snapshot.gpus()[0].held);
        assert!(snapshot.allocations().is_sorted_by_key(|allocation| allocation.at));
    }

    #[test]
    fn the_reason_says_what_failed_and_where() {
        let frames = vec![frame("attention")];
        let failed = SnapshotReason::AllocationFailed { device: DeviceId::new(0), bytes: 2 << 30, frames };
        let text = snapshot(failed).to_string();
        let expected = "step 10, when 2.00 GiB could not be allocated in attention (src/model.rs:42)";
        assert!(text.contains(expected), "{text}");
        let above = SnapshotReason::Above { device: DeviceId::new(0), fraction: 0.9 };
        assert!(snapshot(above).to_string().contains("when more than 90 % of GPU 0 was in use"));
    }
}
