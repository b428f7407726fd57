//! Memory in the course of a run, and whether it grows.

use crate::trace::{DeviceId, Timestamp};
use std::fmt;

/// A memory whose use is followed over the steps of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum MemorySource {
    /// The resident memory of the process.
    Process,
    /// The resident memory when the profiler was built, plus what the program has allocated on the heap since, minus
    /// what it has freed: see [`Allocator`](crate::Allocator).
    Heap,
    /// What is in use of the driver's pool of a GPU, from which `cuMemAllocAsync` allocates.
    Gpu(DeviceId),
    /// What a framework's own pool has given to tensors.
    Pool(MemoryPool),
    /// What a framework's own pool has taken from the device, whether or not it is in use.
    Reserved(MemoryPool),
}

/// The memory pool of a framework on one of its devices: see [`HandOver::follow_pool`].
///
/// `Display` writes the name of its counters without their ending, such as `memory.burn0`.
///
/// [`HandOver::follow_pool`]: crate::framework::HandOver::follow_pool
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryPool {
    /// The name of the framework, in lower case: `burn`.
    pub framework: &'static str,
    /// The number of the device. On CUDA it is that of the GPU.
    pub device: DeviceId,
}

impl MemoryPool {
    /// Names the pool of a framework on a device.
    pub fn new(framework: &'static str, device: u32) -> Self {
        Self { framework, device: DeviceId::new(device) }
    }
}

impl fmt::Display for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory.{}{}", self.framework, self.device)
    }
}

impl MemorySource {
    /// The growth over a run that may have other causes than a leak: an allocator that keeps freed memory, lists of
    /// figures for each step. What is in use of a pool has nothing of either.
    fn insignificant(self) -> u64 {
        match self {
            Self::Process | Self::Reserved(_) => 16 << 20,
            Self::Heap => 512 << 10,
            Self::Gpu(_) | Self::Pool(_) => 64 << 10,
        }
    }
}

impl fmt::Display for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process => f.write_str("process memory"),
            Self::Heap => f.write_str("the heap"),
            Self::Gpu(device) => write!(f, "GPU {device} memory"),
            Self::Pool(MemoryPool { framework, device }) => write!(f, "{framework} memory on device {device}"),
            Self::Reserved(MemoryPool { framework, device }) => {
                write!(f, "memory reserved by {framework} on device {device}")
            }
        }
    }
}

/// The bytes in use at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryPoint {
    /// The number of the step at that moment.
    pub step: u64,
    /// The moment, in nanoseconds of the wall clock.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub at: Timestamp,
    /// The bytes in use.
    pub bytes: u64,
}

/// A memory over the steps of a run, as a sample that is spread evenly over it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MemorySeries {
    source: MemorySource,
    limit: Option<u64>,
    peak: u64,
    points: Vec<MemoryPoint>,
}

/// The steady growth of a memory.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryGrowth {
    /// The bytes by which each step adds to it.
    pub bytes_per_step: f64,
    /// The step from which on it has grown like this.
    pub first_step: u64,
    /// The bytes that it has grown by since.
    pub bytes: u64,
    /// In how many more steps the memory is full, if its size is known.
    pub full_in: Option<u64>,
}

impl MemorySeries {
    /// The number of points at which every other one is dropped.
    const CAPACITY: usize = 512;
    /// The fewest points and steps that show a trend: below, caches still fill, and allocators still grow.
    const ENOUGH: (usize, u64) = (16, 40);
    /// A growth is steady if each quarter of the run adds at least this part of the mean: a cache that is full, or a
    /// single jump, adds nothing in some of them.
    const STEADY: f64 = 0.4;
    /// The number of parts that a run is looked at in, and how many must be higher than the one before: steps may be
    /// longer than the time between two points, so that one part need not show the lowest use.
    const PARTS: usize = 8;
    const RISING: usize = 6;

    /// Creates an empty series of a memory of this size, if known.
    pub(crate) fn new(source: MemorySource, limit: Option<u64>) -> Self {
        Self { source, limit, peak: 0, points: Vec::new() }
    }

    /// Adds a point. Returns false if every other point was dropped, so that the next ones should be further apart.
    pub(crate) fn push(&mut self, step: u64, at: Timestamp, bytes: u64) -> bool {
        self.note_peak(bytes);
        self.points.push(MemoryPoint { step, at, bytes });
        let full = self.points.len() >= Self::CAPACITY;
        if full {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
        }
        !full
    }

    /// Takes note of the bytes at a moment that is no point of the series.
    pub(crate) fn note_peak(&mut self, bytes: u64) {
        self.peak = self.peak.max(bytes);
    }

    /// The memory.
    pub fn source(&self) -> MemorySource {
        self.source
    }

    /// The size of the memory, if known.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// The most bytes seen in use.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// The points, in chronological order.
    pub fn points(&self) -> &[MemoryPoint] {
        &self.points
    }

    /// Returns how the memory grows, if it does so steadily: not only while the first quarter of the run fills caches,
    /// not by a jump, and not up to a level at which it stays.
    pub fn growth(&self) -> Option<MemoryGrowth> {
        let points = &self.points[self.points.len() / 4..];
        let (first, last) = (points.first()?, points.last()?);
        let (enough_points, enough_steps) = Self::ENOUGH;
        if points.len() < enough_points || last.step - first.step < enough_steps {
            return None;
        }
        // A step uses more and less memory in its course. What it keeps shows at the lowest of several moments.
        let lowest: Vec<&MemoryPoint> = points
            .chunks_exact(points.len() / Self::PARTS)
            .take(Self::PARTS)
            .filter_map(|part| part.iter().min_by_key(|point| point.bytes))
            .collect();
        let half = Self::PARTS / 2;
        let pairs = lowest.iter().zip(&lowest[half..]).filter(|(from, to)| to.step > from.step);
        let slopes = pairs.map(|(from, to)| (to.bytes as f64 - from.bytes as f64) / (to.step - from.step) as f64);
        let slope = median(slopes.collect())?;
        let growth = lowest[Self::PARTS - 1].bytes as f64 - lowest[0].bytes as f64;
        let quarters: Vec<f64> = lowest.chunks(2).map(|pair| pair[0].bytes.min(pair[1].bytes) as f64).collect();
        let is_steady = quarters.windows(2).all(|pair| pair[1] - pair[0] >= Self::STEADY * growth / 4.0);
        let rising = lowest.windows(2).filter(|pair| pair[1].bytes > pair[0].bytes).count();
        if !is_steady || rising < Self::RISING || growth < self.source.insignificant() as f64 {
            return None;
        }
        // From the end back to where most points are off the line: a step uses more and less memory in its course.
        let levels = points.iter().map(|point| point.bytes as f64 - slope * point.step as f64).collect();
        let level = median(levels)?;
        let off = |point: &MemoryPoint| (point.bytes as f64 - slope * point.step as f64 - level).abs();
        let usual = median(points.iter().map(off).collect())?;
        let is_off = |point: &MemoryPoint| off(point) > (0.1 * growth).max(3.0 * usual);
        let mut off_line = 0;
        let back = self.points.iter().rev().enumerate().take_while(|(count, point)| {
            off_line += usize::from(is_off(point));
            off_line <= 2 + count / 4
        });
        let on_line = back.map(|(_, point)| point).filter(|point| !is_off(point));
        let first_step = on_line.last().unwrap_or(first).step;
        let free = self.limit.map(|limit| limit.saturating_sub(last.bytes));
        Some(MemoryGrowth {
            bytes_per_step: slope,
            first_step,
            bytes: (slope * (last.step - first_step) as f64) as u64,
            full_in: free.map(|free| (free as f64 / slope) as u64),
        })
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::{MemorySeries, MemorySource};
    use crate::trace::{DeviceId, Timestamp};

    const MIB: u64 = 1 << 20;

    fn series(source: MemorySource, steps: u64, bytes: impl Fn(u64) -> u64) -> MemorySeries {
        let mut series = MemorySeries::new(source, Some(1000 * MIB));
        let mut stride = 1;
        for step in 0..steps {
            if step % stride == 0 && !series.push(step, Timestamp::default(), bytes(step)) {
                stride *= 2;
            }
        }
        series
    }

    fn gpu(steps: u64, bytes: impl Fn(u64) -> u64) -> MemorySeries {
        series(MemorySource::Gpu(DeviceId::default()), steps, bytes)
    }

    /// Numbers from 0 to 99 that follow no pattern.
    fn noise(step: u64) -> u64 {
        (step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 100
    }

    #[test]
    fn a_leak_is_found_with_its_rate_and_beginning() {
        let growth = gpu(200, |step| 100 * MIB + step * MIB).growth().unwrap();
        assert_eq!((growth.bytes_per_step, growth.first_step, growth.bytes), (MIB as f64, 0, 199 * MIB));
        assert_eq!(growth.full_in, Some(1000 - 299));
        // Within 200 steps, under steps that take much more for a while.
        let busy = gpu(200, |step| 100 * MIB + step * 100_000 + if step % 7 == 0 { 50 * MIB } else { 0 });
        let growth = busy.growth().unwrap();
        assert!((90_000.0..110_000.0).contains(&growth.bytes_per_step), "{growth:?}");
        // It begins in the middle of the run.
        let late = gpu(2_000, |step| 100 * MIB + step.saturating_sub(900) * MIB / 10).growth();
        assert!(late.is_none_or(|growth| (600..1_100).contains(&growth.first_step)), "{late:?}");
    }

    #[test]
    fn what_does_not_leak_is_not_called_a_leak() {
        assert!(gpu(10_000, |_| 100 * MIB).growth().is_none());
        assert!(gpu(10_000, |step| 100 * MIB + noise(step) * MIB).growth().is_none(), "noise");
        assert!(gpu(10_000, |step| 100 * MIB + step.min(6_000) * 1000).growth().is_none(), "a cache that is full");
        assert!(gpu(10_000, |step| if step < 5_000 { 100 * MIB } else { 500 * MIB }).growth().is_none(), "a jump");
        assert!(gpu(10_000, |step| 100 * MIB + step % 1_000 * MIB / 10).growth().is_none(), "a sawtooth");
        assert!(gpu(10_000, |step| 500 * MIB - step).growth().is_none(), "it shrinks");
        assert!(gpu(30, |step| step * MIB).growth().is_none(), "too few steps");
        // Some kilobytes over the whole run are nothing for a heap.
        assert!(series(MemorySource::Heap, 10_000, |step| 100 * MIB + step * 16).growth().is_none());
        assert!(series(MemorySource::Process, 10_000, |step| 100 * MIB + step * 1_000).growth().is_none());
    }

    /// A step uses up to 6 MiB in its course, and is looked at at any moment of it.
    #[test]
    fn the_course_of_a_step_neither_hides_a_leak_nor_looks_like_one() {
        const RUNS: u64 = 300;
        let found = |leak: u64| {
            let run = |seed: u64| {
                let mut series = MemorySeries::new(MemorySource::Gpu(DeviceId::default()), None);
                for point in 0..75 {
                    let (step, in_step) = (point * 200 / 75, noise(seed * 1_000 + point) * 6 * MIB / 100);
                    series.push(step, Timestamp::default(), 3 * MIB + step * leak + in_step);
                }
                series.growth().is_some()
            };
            (0..RUNS).filter(|&seed| run(seed)).count()
        };
        assert!(found(0) <= 1, "{} false alarms", found(0));
        assert!(found(64 << 10) >= 280, "{} of {RUNS} found", found(64 << 10));
    }

    #[test]
    fn a_long_run_takes_as_many_points_as_a_short_one() {
        let series = gpu(1_000_000, |step| step);
        assert!((256..512).contains(&series.points().len()), "{}", series.points().len());
        assert!(series.peak() > 990_000);
    }
}
