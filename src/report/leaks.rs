//! The memory of a run over its steps: what grows, and the spans that keep it.

use super::Report;
use crate::{
    analysis::{
        FollowedMemory, HeapLine, KeptMemory, MemoryGrowth, MemorySeries, MemorySnapshot, MemorySource, heap_lines,
        kept_memory, sort_heap_lines,
    },
    trace::Trace,
    units,
};
use rustc_hash::FxHashMap;
use std::fmt;

/// A memory that grows steadily, and the spans whose allocations outlive their step.
///
/// `Display` writes a few words such as `GPU 0 memory grows by 4.00 MiB a step since step 12 (1.20 GiB so far); full in
/// about 25,000 steps; kept: 4.00 MiB a step by cache < forward < train_step (src/model.rs:42)`.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Leak {
    /// The memory that grows.
    pub source: MemorySource,
    /// How it grows.
    pub growth: MemoryGrowth,
    /// The spans whose allocations were still in use a step later, most bytes first; empty if no window recorded
    /// allocations of this memory.
    pub owners: Vec<LeakOwner>,
}

/// Spans of one path that keep memory.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LeakOwner {
    /// The names of the span that allocated the memory and of the spans around it, from the inside out; empty if no
    /// span is known.
    pub path: Vec<String>,
    /// The place of the innermost span in the source, such as `src/model.rs:42`, if known.
    pub location: Option<String>,
    /// The line of the program that allocated most of it, if [`heap_lines`](crate::ProfilerBuilder::heap_lines) is set.
    pub line: Option<String>,
    /// The bytes that it keeps in each step; on the heap, an estimate from samples.
    pub bytes_per_step: f64,
    /// The allocations that it keeps in each step; on the heap, the number of samples.
    pub allocations_per_step: f64,
}

impl Leak {
    /// The number of owners that are printed.
    const PRINTED: usize = 3;
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, growth, owners } = self;
        let rate = units::bytes(growth.bytes_per_step as u64);
        let (first, bytes) = (growth.first_step, units::bytes(growth.bytes));
        write!(f, "{source} grows by {rate} a step since step {first} ({bytes} so far)")?;
        if let Some(steps) = growth.full_in {
            write!(f, "; full in about {steps} steps at this rate")?;
        }
        for (index, owner) in owners.iter().take(Self::PRINTED).enumerate() {
            f.write_str(if index == 0 { "; allocated and kept: " } else { ", " })?;
            write!(f, "{} a step by {owner}", units::bytes(owner.bytes_per_step as u64))?;
        }
        Ok(())
    }
}

impl fmt::Display for LeakOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.is_empty() {
            true => f.write_str("code outside spans")?,
            false => f.write_str(&self.path.join(" < "))?,
        }
        self.location.as_ref().map_or(Ok(()), |location| write!(f, " ({location})"))?;
        self.line.as_ref().map_or(Ok(()), |line| write!(f, " at {line}"))
    }
}

/// The memory of the run, and what its windows say about allocations that are kept.
#[derive(Debug, Default)]
pub(super) struct MemoryOfRun {
    pub(super) followed: FollowedMemory,
    kept: FxHashMap<(MemorySource, Vec<String>), KeptMemory>,
    /// What lines of the program allocated.
    lines: FxHashMap<String, HeapLine>,
    /// The number of steps in which allocations were watched.
    steps: u64,
}

impl Report {
    /// Returns the memory of the process and of its GPUs over all steps of the run, recorded or not, if
    /// [`Activity::Memory`](crate::Activity::Memory) or [`Activity::Heap`](crate::Activity::Heap) is recorded.
    pub fn memory_series(&self) -> &[MemorySeries] {
        &self.memory.followed.series
    }

    /// Returns the memory that grows steadily over the run, with the spans that keep it. The report prints them.
    ///
    /// ```
    /// # fn show(report: &kernspan::Report) {
    /// assert!(report.leaks().is_empty(), "{}", report.leaks()[0]);
    /// # }
    /// ```
    pub fn leaks(&self) -> Vec<Leak> {
        self.memory.leaks()
    }

    /// Returns the memory snapshots that were taken automatically: see [`MemorySnapshots`](crate::MemorySnapshots). The
    /// report prints them.
    pub fn memory_snapshots(&self) -> &[MemorySnapshot] {
        &self.memory.followed.snapshots
    }
}

impl MemoryOfRun {
    /// The most paths that are kept apart, so that a run of many windows stays bounded.
    const PATHS: usize = 10_000;
    /// The part of steps in which a span must keep memory to be an owner of a leak: what is kept once is a cache. Half
    /// as many on the heap, where allocations are sampled.
    const OFTEN: f64 = 0.5;
    /// The part of the growth that an owner must explain to be worth naming.
    const WORTH: f64 = 0.1;

    pub(super) fn add(&mut self, trace: &Trace) {
        for new in heap_lines(trace) {
            if let Some(known) = self.lines.get_mut(&new.line) {
                known.add(&new);
            } else if self.lines.len() < Self::PATHS {
                self.lines.insert(new.line.clone(), new);
            }
        }
        let (kept, steps) = kept_memory(trace);
        self.steps += steps;
        for new in kept {
            let key = (new.source, new.path.clone());
            if let Some(known) = self.kept.get_mut(&key) {
                known.bytes = known.bytes.saturating_add(new.bytes);
                known.allocations += new.allocations;
                known.steps += new.steps;
                known.line = new.line.or_else(|| known.line.take());
            } else if self.kept.len() < Self::PATHS {
                self.kept.insert(key, new);
            }
        }
    }

    pub(super) fn has_lines(&self) -> bool {
        !self.lines.is_empty()
    }

    pub(super) fn heap_lines(&self) -> Vec<HeapLine> {
        let mut lines: Vec<_> = self.lines.values().cloned().collect();
        sort_heap_lines(&mut lines);
        lines
    }

    pub(super) fn leaks(&self) -> Vec<Leak> {
        let growths: Vec<_> =
            self.followed.series.iter().filter_map(|series| Some((series.source(), series.growth()?))).collect();
        let is_cause = |source: MemorySource| match source {
            // A heap that grows makes the process grow.
            MemorySource::Process => growths.iter().all(|(source, _)| *source != MemorySource::Heap),
            // What a pool has in use says more than the pool as a whole.
            MemorySource::GpuProcess(id) => {
                self.followed.series.iter().all(|series| series.source() != MemorySource::Gpu(id))
            }
            MemorySource::GpuReserved(_) | MemorySource::GpuDevice(_) => false,
            MemorySource::Heap | MemorySource::Gpu(_) => true,
        };
        let leak = |&(source, growth): &_| Leak { source, growth, owners: self.owners(source, &growth) };
        growths.iter().filter(|(source, _)| is_cause(*source)).map(leak).collect()
    }

    fn owners(&self, source: MemorySource, growth: &MemoryGrowth) -> Vec<LeakOwner> {
        // What the process keeps can be told only of its heap, and on a GPU only of its allocations.
        let source = match source {
            MemorySource::Process => MemorySource::Heap,
            MemorySource::GpuProcess(device) => MemorySource::Gpu(device),
            source => source,
        };
        let steps = self.steps.max(1) as f64;
        let often = if source == MemorySource::Heap { Self::OFTEN / 2.0 } else { Self::OFTEN };
        let is_owner = |kept: &&KeptMemory| {
            let often = kept.steps as f64 >= often * steps;
            kept.source == source && often && kept.bytes as f64 / steps >= Self::WORTH * growth.bytes_per_step
        };
        let mut kept: Vec<_> = self.kept.values().filter(is_owner).collect();
        kept.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
        let owner = |kept: &KeptMemory| LeakOwner {
            path: kept.path.clone(),
            location: kept.location.clone(),
            line: kept.line.clone(),
            bytes_per_step: kept.bytes as f64 / steps,
            allocations_per_step: kept.allocations as f64 / steps,
        };
        kept.into_iter().map(owner).collect()
    }
}
