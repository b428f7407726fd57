//! The memory of a run over its steps: what grows, and the spans that keep it.

use super::Report;
use crate::{
    analysis::{
        FollowedMemory, HeapLine, KeptMemory, MemoryGrowth, MemorySeries, MemorySnapshot, MemorySource, heap_lines,
        kept_memory, kept_pages, sort_heap_lines,
    },
    trace::Trace,
    units,
};
use rustc_hash::FxHashMap;
use std::fmt;

/// Whether the memory of a run grows steadily: see [`Report::leaks`].
///
/// `Display` writes one line for each leak, or one that says that there is none, or why that is not known.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "verdict", content = "detail", rename_all = "snake_case"))]
#[must_use]
pub enum Leaks {
    /// These memories grow steadily.
    Found(Vec<Leak>),
    /// No memory grows steadily.
    None,
    /// The run was too short to tell.
    TooShort(TooShort),
    /// No memory was recorded: neither [`Activity::Memory`](crate::Activity::Memory) nor
    /// [`Activity::Heap`](crate::Activity::Heap) is set, or the report is of files.
    NotRecorded,
}

/// What was read of a memory that was not followed long enough to tell whether it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TooShort {
    /// The memory.
    pub source: MemorySource,
    /// How often it was read.
    pub readings: usize,
    /// The number of steps from the first reading to the last.
    pub steps: u64,
    /// The number of readings that it takes, spread over the steps. They are 10 ms apart at first.
    pub readings_needed: usize,
    /// The number of steps that it takes.
    pub steps_needed: u64,
}

impl fmt::Display for Leaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(leaks) => {
                let mut gap = "";
                leaks
                    .iter()
                    .try_for_each(|leak| write!(f, "{}possible leak: {leak}", std::mem::replace(&mut gap, "\n")))
            }
            Self::None => f.write_str("no memory grows steadily"),
            Self::TooShort(too_short) => write!(f, "{too_short}"),
            Self::NotRecorded => f.write_str("whether memory grows is not known: it was not recorded"),
        }
    }
}

impl fmt::Display for TooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, readings, steps, readings_needed, steps_needed } = self;
        let count = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let (times, steps) = (count(*readings as u64, "time"), count(*steps, "step"));
        write!(f, "too short to tell whether memory leaks: {source} was read {times} in {steps}; it takes ")?;
        write!(f, "{readings_needed} readings, 10 ms apart at first, spread over {steps_needed} steps")
    }
}

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

impl LeakOwner {
    /// The number of owners that are printed.
    const PRINTED: usize = 3;

    /// Writes the first owners, after a word for what they did, as the end of a sentence.
    pub(super) fn write(owners: &[Self], did: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, owner) in owners.iter().take(Self::PRINTED).enumerate() {
            if index == 0 {
                write!(f, "; {did}: ")?;
            } else {
                f.write_str(", ")?;
            }
            write!(f, "{} a step by {owner}", units::bytes(owner.bytes_per_step as u64))?;
        }
        Ok(())
    }
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
        LeakOwner::write(owners, "allocated and kept", f)
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
    kept: KeptByPath,
    /// The pages that frameworks' pools have taken from the driver and kept.
    kept_pages: KeptByPath,
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

    /// Returns the memory that grows steadily over the run, with the spans that keep it, or that there is none, or that
    /// the run was too short to tell. The report prints leaks, and that it was too short.
    ///
    /// ```
    /// # fn show(report: &kernspan::Report) {
    /// use kernspan::report::Leaks;
    ///
    /// assert_eq!(report.leaks(), Leaks::None, "{}", report.leaks());
    /// # }
    /// ```
    pub fn leaks(&self) -> Leaks {
        self.memory.leaks()
    }

    /// Returns the memory snapshots that were taken automatically: see [`MemorySnapshots`](crate::MemorySnapshots). The
    /// report prints them.
    pub fn memory_snapshots(&self) -> &[MemorySnapshot] {
        &self.memory.followed.snapshots
    }
}

/// Memory that was kept in the windows so far, by where it is and the path of its span.
type KeptByPath = FxHashMap<(MemorySource, Vec<String>), KeptMemory>;

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
        for (all, new) in [(&mut self.kept, kept), (&mut self.kept_pages, kept_pages(trace).0)] {
            for new in new {
                let key = (new.source, new.path.clone());
                if let Some(known) = all.get_mut(&key) {
                    known.bytes = known.bytes.saturating_add(new.bytes);
                    known.allocations += new.allocations;
                    known.steps += new.steps;
                    known.line = new.line.or_else(|| known.line.take());
                } else if all.len() < Self::PATHS {
                    all.insert(key, new);
                }
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

    pub(super) fn leaks(&self) -> Leaks {
        let growths: Vec<_> =
            self.followed.series.iter().filter_map(|series| Some((series.source(), self.growth(series)?))).collect();
        let follows = |is: &dyn Fn(MemorySource) -> bool| self.followed.series.iter().any(|series| is(series.source()));
        let grows = |is: &dyn Fn(MemorySource) -> bool| growths.iter().any(|(source, _)| is(*source));
        let is_cause = |source: MemorySource| match source {
            // A heap that grows makes the process grow, and a pool whose tensors grow takes more from the driver.
            MemorySource::Process => !grows(&|of| of == MemorySource::Heap),
            MemorySource::PoolReserved(pool) => !grows(&|of| of == MemorySource::Pool(pool)),
            MemorySource::Gpu(id) => !grows(&|of| of.pool().is_some_and(|pool| pool.device == id)),
            // The use of a pool says more than the memory of the process as a whole.
            MemorySource::GpuProcess(id) => {
                !follows(&|of| of == MemorySource::Gpu(id) || of.pool().is_some_and(|pool| pool.device == id))
            }
            MemorySource::GpuReserved(_) | MemorySource::GpuDevice(_) => false,
            MemorySource::Heap | MemorySource::Pool(_) => true,
        };
        let leak = |&(source, mut growth): &(MemorySource, MemoryGrowth)| {
            // A framework's pool has no size of its own, but the GPU that it is on has.
            if let Some(pool) = source.pool() {
                let gpu = growths.iter().filter(|(source, _)| source.device() == Some(pool.device));
                growth.full_in = growth.full_in.or(gpu.filter_map(|(_, growth)| growth.full_in).min());
            }
            Leak { source, growth, owners: self.owners(source, growth.bytes_per_step) }
        };
        let leaks: Vec<_> = growths.iter().filter(|(source, _)| is_cause(*source)).map(leak).collect();
        if leaks.is_empty() { self.without_leaks() } else { Leaks::Found(leaks) }
    }

    /// Returns whether there are no leaks, now that none is known.
    fn without_leaks(&self) -> Leaks {
        // The others say nothing of leaks.
        let is_judged = |source| !matches!(source, MemorySource::GpuReserved(_) | MemorySource::GpuDevice(_));
        let is_short = |series: &&MemorySeries| is_judged(series.source()) && !series.is_long_enough();
        let short = self.followed.series.iter().filter(is_short).min_by_key(|series| series.points().len());
        let (readings_needed, steps_needed) = MemorySeries::enough();
        match short {
            Some(series) => {
                let points = series.points();
                let steps = points.first().zip(points.last()).map_or(0, |(first, last)| last.step - first.step);
                let (source, readings) = (series.source(), points.len());
                Leaks::TooShort(TooShort { source, readings, steps, readings_needed, steps_needed })
            }
            None if self.followed.series.is_empty() => Leaks::NotRecorded,
            None => Leaks::None,
        }
    }

    /// Returns how a memory grows. If its course alone does not show it, the windows may: the bytes that spans keep in
    /// most of their steps. They are exact for GPUs only.
    fn growth(&self, series: &MemorySeries) -> Option<MemoryGrowth> {
        let by_windows = || {
            let is_exact = matches!(series.source(), MemorySource::Gpu(_) | MemorySource::Pool(_));
            let kept: f64 = self.owners(series.source(), 0.0).iter().map(|owner| owner.bytes_per_step).sum();
            (is_exact && kept > 0.0).then(|| series.growth_by(kept)).flatten()
        };
        series.growth().or_else(by_windows)
    }

    /// Returns the spans that keep memory, most bytes first, if they explain this growth in each step.
    pub(super) fn owners(&self, source: MemorySource, growth: f64) -> Vec<LeakOwner> {
        let is_paged = |device| self.kept_pages.keys().any(|(it, _)| *it == MemorySource::Gpu(device));
        let (kept, source) = match source {
            // The heap is all of the process that can be told apart, and on a GPU its allocations.
            MemorySource::Process | MemorySource::Heap => (&self.kept, MemorySource::Heap),
            MemorySource::Pool(pool) => (&self.kept, MemorySource::Gpu(pool.device)),
            // The pool holds what it has taken, whether or not tensors do.
            MemorySource::PoolReserved(pool) => (&self.kept_pages, MemorySource::Gpu(pool.device)),
            // Below a framework's pool, the driver knows only pages.
            source => match source.device() {
                Some(id) if is_paged(id) => (&self.kept_pages, MemorySource::Gpu(id)),
                Some(id) => (&self.kept, MemorySource::Gpu(id)),
                None => (&self.kept, source),
            },
        };
        let steps = self.steps.max(1) as f64;
        let often = if source == MemorySource::Heap { Self::OFTEN / 2.0 } else { Self::OFTEN };
        let is_owner = |kept: &&KeptMemory| {
            let often = kept.steps as f64 >= often * steps;
            kept.source == source && often && kept.bytes as f64 / steps >= Self::WORTH * growth
        };
        let mut kept: Vec<_> = kept.values().filter(is_owner).collect();
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

#[cfg(test)]
mod tests {
    use super::{Leaks, MemoryOfRun, TooShort};
    use crate::{
        analysis::{FollowedMemory, MemoryPool, MemorySeries, MemorySource},
        trace::{DeviceId, Timestamp},
    };

    const MIB: u64 = 1 << 20;

    /// Returns the leaks of a run in which each of these grows by so many bytes a step, read in each of these steps.
    fn leaks_in(steps: impl Iterator<Item = u64> + Clone, growing: &[(MemorySource, u64)]) -> Leaks {
        let series = |&(source, bytes): &(MemorySource, u64)| {
            let limit = matches!(source, MemorySource::Gpu(_)).then_some(1000 * MIB);
            let mut series = MemorySeries::new(source, limit);
            for step in steps.clone() {
                series.push(step, Timestamp::default(), 100 * MIB + step * bytes);
            }
            series
        };
        let followed = FollowedMemory { series: growing.iter().map(series).collect(), ..FollowedMemory::default() };
        MemoryOfRun { followed, ..MemoryOfRun::default() }.leaks()
    }

    /// Returns the leaks of 200 steps.
    fn leaks(growing: &[(MemorySource, u64)]) -> Vec<(MemorySource, Option<u64>)> {
        match leaks_in(0..200, growing) {
            Leaks::Found(leaks) => leaks.into_iter().map(|leak| (leak.source, leak.growth.full_in)).collect(),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_leak_is_reported_where_it_begins() {
        let (pool, gpu) = (MemoryPool::new("burn", 0), MemorySource::Gpu(DeviceId::new(0)));
        let (used, reserved) = (MemorySource::Pool(pool), MemorySource::PoolReserved(pool));
        // The size of the GPU is that of the pool, too.
        let full_in = Some(1000 - 299);
        assert_eq!(leaks(&[(gpu, MIB), (used, MIB), (reserved, MIB)]), [(used, full_in)]);
        assert_eq!(leaks(&[(gpu, MIB), (used, 0), (reserved, MIB)]), [(reserved, full_in)]);
        assert_eq!(leaks(&[(gpu, MIB), (used, 0), (reserved, 0)]), [(gpu, full_in)]);
        let other = MemorySource::Gpu(DeviceId::new(1));
        assert_eq!(leaks(&[(other, MIB), (used, MIB)]), [(other, full_in), (used, None)]);
        assert_eq!(leaks_in(0..200, &[(gpu, 0), (used, 0), (reserved, 100)]), Leaks::None);
    }

    #[test]
    fn a_run_that_is_too_short_is_not_called_clean() {
        let heap = MemorySource::Heap;
        // 120 MB kept in 1,200 steps that took 0.15 s.
        let short = leaks_in((0..=1_200).step_by(80), &[(heap, 100_000)]);
        let known = TooShort { source: heap, readings: 16, steps: 1_200, readings_needed: 22, steps_needed: 54 };
        assert_eq!(short, Leaks::TooShort(known));
        assert_eq!(
            short.to_string(),
            "too short to tell whether memory leaks: the heap was read 16 times in 1200 steps; it takes 22 readings, \
             10 ms apart at first, spread over 54 steps"
        );
        // Many readings, but few steps; and nearly all in one step.
        let of = |leaks| matches!(leaks, Leaks::TooShort(TooShort { source: MemorySource::Heap, .. }));
        assert!(of(leaks_in((0..1_000).map(|reading| reading / 25), &[(heap, MIB)])));
        assert!(of(leaks_in((0..100).map(|reading| if reading == 99 { 1_000 } else { 0 }), &[(heap, MIB)])));
        // As long as it says is enough, either way.
        assert_eq!(leaks_in((0..=63).step_by(3), &[(heap, 0)]), Leaks::None);
        assert!(matches!(leaks_in((0..=63).step_by(3), &[(heap, MIB)]), Leaks::Found(_)));
        // A leak of one memory is known, however little another was read.
        assert_eq!(leaks_in(0..0, &[]), Leaks::NotRecorded);
        let unused = MemorySource::GpuReserved(DeviceId::new(0));
        assert_eq!(leaks_in(0..200, &[(heap, 0), (unused, MIB)]), Leaks::None);
    }
}
