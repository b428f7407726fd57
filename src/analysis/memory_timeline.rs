//! The memory of a GPU over a window, by what it is used for, and how long it is in use.

use super::{
    memory_category::{MemoryCategory, Phases},
    sorted::SortedMap,
};
use crate::{
    trace::{Allocation, DeviceId, MemoryChange, Timestamp, Trace},
    units,
};
use rustc_hash::FxHashMap;
use std::{fmt, num::NonZeroU64, time::Duration};

/// The memory of one GPU over a window: what it is used for, and how long.
///
/// ```
/// use kernspan::{Trace, analysis::MemoryTimeline};
///
/// fn print_peaks(trace: &Trace) {
///     for timeline in MemoryTimeline::of_all(trace) {
///         let peak = timeline.peak();
///         println!("GPU {}: {} bytes after {:?}", timeline.device(), peak.in_use(), peak.after());
///         for (category, bytes) in peak.categories() {
///             println!("  {category}: {bytes}");
///         }
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryTimeline<'a> {
    trace: &'a Trace,
    device: DeviceId,
    blocks: Vec<MemoryBlock<'a>>,
    /// All changes in chronological order, each with the index of the block that it allocates or frees.
    changes: Vec<(Allocation<'a>, Option<usize>)>,
    points: Vec<MemoryUse>,
    peak: MemoryUse,
}

/// Memory that was allocated in the window.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MemoryBlock<'a> {
    /// Its allocation.
    pub allocated: Allocation<'a>,
    /// Its free, if it was recorded.
    pub freed: Option<Allocation<'a>>,
    /// When its address was allocated again, if that happened without a recorded free.
    pub reused: Option<Timestamp>,
    /// What it is used for.
    pub category: MemoryCategory,
}

/// The bytes in use at one moment, by category. Together, the categories are exactly
/// [`Allocation::in_use`](crate::trace::Allocation::in_use).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    after: Duration,
    bytes: [u64; MemoryCategory::ALL.len()],
}

/// Allocations that were in use for about as long. `Display` writes the range: `10 µs to 100 µs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryLifetimes {
    /// The shortest time in the range; `None` for memory that was still in use when the window closed.
    pub from: Option<Duration>,
    /// The end of the range, which is not part of it.
    pub below: Option<Duration>,
    /// The number of allocations.
    pub allocations: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl<'a> MemoryTimeline<'a> {
    /// The most [`points`](Self::points): enough for a chart that is as wide as a screen.
    pub const POINTS: usize = 1_000;

    /// Returns the memory of a GPU, or `None` if no allocation or free of its memory was recorded.
    pub fn of(trace: &'a Trace, device: DeviceId) -> Option<Self> {
        let changes: Vec<_> = trace.allocations().filter(|change| change.device() == device).collect();
        (!changes.is_empty()).then(|| Self::new(trace, device, changes, &Phases::of(trace)))
    }

    /// Returns the memory of each GPU that allocated or freed some, in the order of their numbers.
    pub fn of_all(trace: &'a Trace) -> Vec<Self> {
        let mut devices: SortedMap<DeviceId, Vec<Allocation<'a>>> = SortedMap::default();
        for change in trace.allocations() {
            devices.or_default(change.device()).push(change);
        }
        let phases = Phases::of(trace);
        devices.into_iter().map(|(device, changes)| Self::new(trace, device, changes, &phases)).collect()
    }

    fn new(trace: &'a Trace, device: DeviceId, changes: Vec<Allocation<'a>>, phases: &Phases<'_>) -> Self {
        let mut live: FxHashMap<u64, usize> = FxHashMap::default();
        let mut blocks: Vec<MemoryBlock<'a>> = Vec::new();
        let mut belonging = Vec::with_capacity(changes.len());
        for change in changes {
            let block = match change.change() {
                MemoryChange::Allocate => {
                    let category = MemoryCategory::Unknown;
                    blocks.push(MemoryBlock { allocated: change, freed: None, reused: None, category });
                    if let Some(before) = live.insert(change.address(), blocks.len() - 1) {
                        blocks[before].reused = Some(change.at());
                    }
                    Some(blocks.len() - 1)
                }
                MemoryChange::Free => live.remove(&change.address()).inspect(|&it| blocks[it].freed = Some(change)),
            };
            belonging.push((change, block));
        }
        for block in &mut blocks {
            block.category = phases.category(block.allocated, block.freed, block.end());
        }
        let (points, peak) = (Vec::new(), MemoryUse::default());
        let mut timeline = Self { trace, device, blocks, changes: belonging, points, peak };
        timeline.sample();
        timeline
    }

    /// Takes the points: of each part of the changes, the one after which the most memory was in use.
    fn sample(&mut self) {
        let part = self.changes.len().div_ceil(Self::POINTS).max(1);
        let mut points: Vec<MemoryUse> = Vec::new();
        let mut count = 0;
        self.walk(|now| {
            match points.last_mut() {
                Some(last) if count % part != 0 => *last = last.higher(now),
                _ => points.push(now),
            }
            count += 1;
        });
        self.peak = points.iter().copied().reduce(MemoryUse::higher).unwrap_or_default();
        self.points = points;
    }

    /// Visits the memory in use after each change, in chronological order.
    fn walk(&self, mut visit: impl FnMut(MemoryUse)) {
        let mut live = [0_u64; MemoryCategory::ALL.len()];
        // The block at each address, as an address may be allocated again without a free.
        let mut at_address: FxHashMap<u64, usize> = FxHashMap::default();
        for &(change, block) in &self.changes {
            let ended = match change.change() {
                MemoryChange::Allocate => block.and_then(|block| at_address.insert(change.address(), block)),
                MemoryChange::Free => at_address.remove(&change.address()),
            };
            if let Some(ended) = ended.map(|ended| self.blocks[ended]) {
                let bytes = &mut live[ended.category as usize];
                *bytes = bytes.saturating_sub(ended.bytes());
            }
            if let (MemoryChange::Allocate, Some(block)) = (change.change(), block) {
                let block = self.blocks[block];
                let bytes = &mut live[block.category as usize];
                *bytes = bytes.saturating_add(block.bytes());
            }
            visit(MemoryUse::new(change.at().since(self.trace.start()), live, change.in_use()));
        }
    }

    /// The window.
    pub fn trace(&self) -> &'a Trace {
        self.trace
    }

    /// The GPU.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// The memory in use over time: at most [`Self::POINTS`], in chronological order. Of longer timelines these are the
    /// local maxima, so the peak is always among them.
    pub fn points(&self) -> &[MemoryUse] {
        &self.points
    }

    /// The first moment at which the most memory was in use.
    pub fn peak(&self) -> MemoryUse {
        self.peak
    }

    /// All memory that was allocated in the window, in chronological order.
    pub fn blocks(&self) -> &[MemoryBlock<'a>] {
        &self.blocks
    }

    /// All changes of the GPU's memory, in chronological order, each with the block that it allocates or frees. A free
    /// of memory from before the window has none.
    pub fn changes(&self) -> impl ExactSizeIterator<Item = (Allocation<'a>, Option<&MemoryBlock<'a>>)> {
        self.changes.iter().map(|(change, block)| (*change, block.map(|block| &self.blocks[block])))
    }

    /// Returns the number and bytes of allocations by how long they were in use: by powers of ten from 10 µs to 1 s.
    /// The last range has what was still in use when the window closed.
    pub fn lifetimes(&self) -> Vec<MemoryLifetimes> {
        let ends = (4..=9).map(|power| Duration::from_nanos(10_u64.pow(power)));
        let froms = std::iter::once(Duration::ZERO).chain(ends.clone());
        let range = |(from, below)| MemoryLifetimes { from: Some(from), below, ..MemoryLifetimes::default() };
        let mut ranges: Vec<_> = froms.zip(ends.map(Some).chain([None])).map(range).collect();
        ranges.push(MemoryLifetimes::default());
        let still_in_use = ranges.len() - 1;
        for block in &self.blocks {
            let index = block.lifetime().map_or(still_in_use, |time| {
                ranges[..still_in_use].iter().take_while(|it| it.below.is_some_and(|below| time >= below)).count()
            });
            let range = &mut ranges[index];
            range.allocations += 1;
            range.bytes = range.bytes.saturating_add(block.bytes());
        }
        ranges
    }

    /// Estimates the peak at another batch size: at each moment, the memory that
    /// [grows with the batch](MemoryCategory::grows_with_batch) is scaled by `batch / recorded`, and the rest stays.
    ///
    /// The peak may be at another moment than the recorded one. Workspaces of libraries, the fragmentation of an
    /// allocator and the memory of the driver are not part of it.
    pub fn estimated_peak(&self, recorded: NonZeroU64, batch: NonZeroU64) -> MemoryUse {
        let mut highest: Option<MemoryUse> = None;
        self.walk(|now| {
            let scaled = now.scaled(recorded, batch);
            highest = Some(highest.map_or(scaled, |highest| highest.higher(scaled)));
        });
        highest.unwrap_or_default()
    }
}

impl MemoryBlock<'_> {
    /// The bytes.
    pub fn bytes(&self) -> u64 {
        self.allocated.bytes().unwrap_or(0)
    }

    /// When it was freed, or else when its address was allocated again; `None` if it was still in use when the window
    /// closed.
    pub fn end(&self) -> Option<Timestamp> {
        self.freed.map(Allocation::at).or(self.reused)
    }

    /// How long it was in use, unless it still was when the window closed.
    pub fn lifetime(&self) -> Option<Duration> {
        Some(self.end()?.since(self.allocated.at()))
    }
}

impl MemoryUse {
    /// Returns the use of memory of which these bytes were allocated in the window. They are no more than is in use,
    /// even if the records contradict that.
    fn new(after: Duration, mut bytes: [u64; MemoryCategory::ALL.len()], in_use: u64) -> Self {
        let mut before = in_use;
        for bytes in &mut bytes {
            *bytes = (*bytes).min(before);
            before -= *bytes;
        }
        bytes[MemoryCategory::Before as usize] = before;
        Self { after, bytes }
    }

    /// Returns the one with more bytes in use; the first of two that have the same.
    fn higher(self, other: Self) -> Self {
        if other.in_use() > self.in_use() { other } else { self }
    }

    fn scaled(mut self, recorded: NonZeroU64, batch: NonZeroU64) -> Self {
        for category in MemoryCategory::ALL.into_iter().filter(|category| category.grows_with_batch()) {
            let bytes = &mut self.bytes[category as usize];
            let scaled = (u128::from(*bytes) * u128::from(batch.get())).div_ceil(u128::from(recorded.get()));
            *bytes = u64::try_from(scaled).unwrap_or(u64::MAX);
        }
        self
    }

    /// The time from the opening of the window.
    pub fn after(&self) -> Duration {
        self.after
    }

    /// All bytes in use.
    pub fn in_use(&self) -> u64 {
        self.bytes.iter().fold(0, |sum, &bytes| sum.saturating_add(bytes))
    }

    /// The bytes of one category.
    pub fn of(&self, category: MemoryCategory) -> u64 {
        self.bytes[category as usize]
    }

    /// The bytes of each category, in the order of [`MemoryCategory::ALL`].
    pub fn categories(&self) -> impl ExactSizeIterator<Item = (MemoryCategory, u64)> + use<> {
        MemoryCategory::ALL.into_iter().zip(self.bytes)
    }
}

impl fmt::Display for MemoryLifetimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.from, self.below.map(units::time)) {
            (None, _) => f.write_str("still in use"),
            (Some(Duration::ZERO), Some(below)) => write!(f, "less than {below}"),
            (Some(from), Some(below)) => write!(f, "{} to {below}", units::time(from)),
            (Some(from), None) => write!(f, "{} or more", units::time(from)),
        }
    }
}

#[cfg(test)]
mod tests;
