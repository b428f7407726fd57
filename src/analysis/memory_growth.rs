//! Whether a memory grows over the steps of a run, and how fast.

use super::memory_series::{MemoryPoint, MemorySeries, MemorySource};

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

impl MemorySource {
    /// Whether it has exactly what the program uses, without what an allocator keeps.
    fn is_exact(self) -> bool {
        matches!(self, Self::Gpu(_) | Self::Pool(_))
    }

    /// The growth over a run that may have other causes than a leak: an allocator that keeps freed memory, lists of
    /// figures for each step. What is in use of a pool has nothing of either.
    fn insignificant(self) -> u64 {
        match self {
            Self::Heap => 512 << 10,
            Self::Gpu(_) | Self::Pool(_) => 64 << 10,
            Self::Process | Self::GpuReserved(_) | Self::GpuProcess(_) | Self::GpuDevice(_) | Self::PoolReserved(_) => {
                16 << 20
            }
        }
    }
}

/// How a memory grows in a part of a run.
struct Trend {
    bytes_per_step: f64,
    /// The bytes from the beginning to the end.
    bytes: f64,
    /// The level of each quarter.
    quarters: Vec<f64>,
}

impl MemorySeries {
    /// The fewest points and steps that show a trend: below, caches still fill, and allocators still grow.
    const ENOUGH: (usize, u64) = (16, 40);
    /// A growth is steady if each quarter of the run adds at least this part of the mean: a cache that is full, or a
    /// single jump, adds nothing in some of them.
    const STEADY: f64 = 0.4;
    /// The number of parts that a run is looked at in, and how many must be higher than the one before: steps may be
    /// longer than the time between two points, so that one part need not show the lowest use.
    const PARTS: usize = 8;
    const RISING: usize = 6;
    /// The least significance of a trend of all points, and of either half, as standard deviations of Mann and
    /// Kendall's statistic. Of 400 simulated runs each, without a leak none was above; with one of 64 KiB a step in 200
    /// steps that use up to 6 MiB in their course, 95 % were. A jump has no trend in one of the halves.
    const SIGNIFICANT: (f64, f64) = (5.0, 1.0);
    /// The least significance of a trend that windows support. 2 % of runs without a trend have it.
    const SUPPORTED: f64 = 2.0;

    /// Whether there are enough readings to tell if the memory grows, and they are spread over the steps.
    #[must_use]
    pub fn is_long_enough(&self) -> bool {
        let (Some(first), Some(last)) = (self.points().first(), self.points().last()) else { return false };
        let points = self.since(first.step + (last.step - first.step) / 4);
        Self::are_enough(points) && Self::parts(points, Self::PARTS).is_some()
    }

    /// Returns how many readings, over how many steps, [are enough](Self::is_long_enough) if they are spread evenly: so
    /// that there are enough after the first quarter.
    pub(crate) fn enough() -> (usize, u64) {
        let (points, steps) = Self::ENOUGH;
        ((points * 4).div_ceil(3), (steps * 4).div_ceil(3))
    }

    /// Returns the points from a step on.
    fn since(&self, step: u64) -> &[MemoryPoint] {
        &self.points()[self.points().partition_point(|point| point.step < step)..]
    }

    fn are_enough(points: &[MemoryPoint]) -> bool {
        let (enough_points, enough_steps) = Self::ENOUGH;
        let steps = points.first().zip(points.last()).map_or(0, |(first, last)| last.step - first.step);
        points.len() >= enough_points && steps >= enough_steps
    }

    /// Returns how the memory grows, if it does so steadily: not only while the first quarter of the run fills caches,
    /// not by a jump, and not up to a level at which it stays. A growth that began later must have lasted for the
    /// second half of the run. Of a memory that is not read [long enough](Self::is_long_enough), nothing is known.
    pub fn growth(&self) -> Option<MemoryGrowth> {
        let (first, last) = (self.points().first()?.step, self.points().last()?.step);
        // In a shorter part, what a step uses for a moment looks more like growth. Eight numbers without a trend rise
        // all the time once in 40,000 times.
        self.growth_of(self.since(first + (last - first) / 4), Self::RISING)
            .or_else(|| self.growth_of(self.since(first + (last - first) / 2), Self::PARTS - 1))
    }

    /// Returns how the memory grows in the last part of the run, if at least so many parts of it are higher than the
    /// one before.
    fn growth_of(&self, points: &[MemoryPoint], enough_rising: usize) -> Option<MemoryGrowth> {
        if !Self::are_enough(points) {
            return None;
        }
        let trend = Self::trend_of_lowest(points, enough_rising)
            .or_else(|| Self::trend_of_all(points).filter(|_| self.source().is_exact()))
            .filter(|trend| trend.bytes >= self.source().insignificant() as f64)?;
        self.describe(points, &trend)
    }

    /// Returns the growth of a memory of which windows show that each step keeps so many bytes, if it grows by about as
    /// much: from half to twice. With that evidence, less significance suffices than without.
    pub(crate) fn growth_by(&self, kept_per_step: f64) -> Option<MemoryGrowth> {
        let (first, last) = (self.points().first()?.step, self.points().last()?.step);
        let quarter = first + (last - first) / 4;
        let points = self.since(quarter);
        let trend = Self::trend_of_means(points).filter(|trend| {
            let expected = kept_per_step * (last - quarter) as f64;
            let is_expected = trend.bytes >= expected / 2.0 && trend.bytes <= expected * 2.0;
            is_expected && trend.bytes >= self.source().insignificant() as f64
        })?;
        (Self::are_enough(points) && significance(points) >= Self::SUPPORTED)
            .then(|| self.describe(points, &trend))
            .flatten()
    }

    /// Describes a trend of the last part of the run.
    fn describe(&self, points: &[MemoryPoint], trend: &Trend) -> Option<MemoryGrowth> {
        let (first, last, slope) = (points.first()?, points.last()?, trend.bytes_per_step);
        // From the end back to where most points are off the line: a step uses more and less memory in its course.
        let levels = points.iter().map(|point| point.bytes as f64 - slope * point.step as f64).collect();
        let level = median(levels)?;
        let off = |point: &MemoryPoint| (point.bytes as f64 - slope * point.step as f64 - level).abs();
        let usual = median(points.iter().map(off).collect())?;
        let is_off = |point: &MemoryPoint| off(point) > (0.1 * trend.bytes).max(3.0 * usual);
        let mut off_line = 0;
        let back = self.points().iter().rev().enumerate().take_while(|(count, point)| {
            off_line += usize::from(is_off(point));
            off_line <= 2 + count / 4
        });
        let on_line = back.map(|(_, point)| point).filter(|point| !is_off(point));
        let first_step = on_line.last().unwrap_or(first).step;
        let free = self.limit().map(|limit| limit.saturating_sub(last.bytes));
        Some(MemoryGrowth {
            bytes_per_step: slope,
            first_step,
            bytes: (slope * (last.step - first_step) as f64) as u64,
            full_in: free.map(|free| (free as f64 / slope) as u64),
        })
    }
    /// Divides points into parts of the same number of steps, not of points: a step that takes long, as one that
    /// compiles kernels, has many. Returns `None` if a part has none.
    fn parts(points: &[MemoryPoint], count: usize) -> Option<Vec<&[MemoryPoint]>> {
        let (first, last) = (points.first()?.step, points.last()?.step);
        let part = |point: &MemoryPoint| (point.step - first) * count as u64 / (last - first + 1);
        let parts: Vec<_> = points.chunk_by(|a, b| part(a) == part(b)).collect();
        (parts.len() == count).then_some(parts)
    }

    /// Whether each quarter of a run adds enough to the one before.
    fn is_steady(quarters: &[f64], growth: f64) -> bool {
        quarters.windows(2).all(|pair| pair[1] - pair[0] >= Self::STEADY * growth / 4.0)
    }

    /// Returns the trend of the lowest use in each part. A step uses more and less memory in its course. What it keeps
    /// shows at the lowest of several moments.
    fn trend_of_lowest(points: &[MemoryPoint], enough_rising: usize) -> Option<Trend> {
        let parts = Self::parts(points, Self::PARTS)?;
        let lowest: Vec<_> = parts.iter().filter_map(|part| part.iter().min_by_key(|point| point.bytes)).collect();
        let bytes = lowest[Self::PARTS - 1].bytes as f64 - lowest[0].bytes as f64;
        let quarters: Vec<f64> = lowest.chunks(2).map(|pair| pair[0].bytes.min(pair[1].bytes) as f64).collect();
        let rising = lowest.windows(2).filter(|pair| pair[1].bytes > pair[0].bytes).count();
        if !Self::is_steady(&quarters, bytes) || rising < enough_rising {
            return None;
        }
        Some(Trend { bytes_per_step: slope(lowest)?, bytes, quarters })
    }

    /// Returns the trend of all points, which shows where steps use much more in their course than they keep. Of
    /// memory that drifts without a leak, as that of a process, it would show that, too.
    fn trend_of_all(points: &[MemoryPoint]) -> Option<Trend> {
        let (first, second) = points.split_at(points.len() / 2);
        let (of_all, of_half) = Self::SIGNIFICANT;
        let is_significant =
            significance(points) >= of_all && significance(first) >= of_half && significance(second) >= of_half;
        Self::trend_of_means(points).filter(|trend| is_significant && Self::is_steady(&trend.quarters, trend.bytes))
    }

    /// Returns the trend of the means of quarters, whatever it is.
    fn trend_of_means(points: &[MemoryPoint]) -> Option<Trend> {
        let mean = |part: &&[MemoryPoint]| part.iter().map(|it| it.bytes as f64).sum::<f64>() / part.len() as f64;
        let quarters: Vec<f64> = Self::parts(points, 4)?.iter().map(mean).collect();
        // From the middle of the first quarter to that of the last are three quarters.
        let bytes = (quarters[3] - quarters[0]) * 4.0 / 3.0;
        Some(Trend { bytes_per_step: slope(points.iter().collect())?, bytes, quarters })
    }
}

/// Returns the median slope between points that are half the run apart, as bytes in a step.
fn slope(points: Vec<&MemoryPoint>) -> Option<f64> {
    let pairs = points.iter().zip(&points[points.len() / 2..]).filter(|(from, to)| to.step > from.step);
    median(pairs.map(|(from, to)| (to.bytes as f64 - from.bytes as f64) / (to.step - from.step) as f64).collect())
}

/// Returns Mann and Kendall's statistic of a trend, in standard deviations: how many more pairs of points rise than
/// fall.
fn significance(points: &[MemoryPoint]) -> f64 {
    let pairs =
        points.iter().enumerate().flat_map(|(index, from)| points[index + 1..].iter().map(move |to| (from, to)));
    let rising: i64 = pairs.map(|(from, to)| i64::from(to.bytes > from.bytes) - i64::from(to.bytes < from.bytes)).sum();
    let count = points.len() as f64;
    rising as f64 / (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).max(1.0).sqrt()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use crate::analysis::{MemorySeries, MemorySource};
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

    /// Numbers from 0 to 99 that follow no pattern, by SplitMix64.
    fn noise(step: u64) -> u64 {
        let mixed = step.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % 100
    }

    #[test]
    fn a_leak_is_found_with_its_rate_and_beginning() {
        let growth = gpu(200, |step| 100 * MIB + step * MIB).growth().unwrap();
        assert_eq!((growth.bytes_per_step, growth.first_step, growth.bytes), (MIB as f64, 0, 199 * MIB));
        assert_eq!(growth.full_in, Some(1000 - 299));
        // Some steps take as long as many others, and so have more points.
        let mut slow = MemorySeries::new(MemorySource::Heap, None);
        for step in 0..200 {
            for _ in 0..if step % 70 == 50 { 100 } else { 1 } {
                slow.push(step, Timestamp::default(), 100 * MIB + step * MIB);
            }
        }
        assert_eq!(slow.growth().unwrap().bytes_per_step, MIB as f64);
        // Within 200 steps, under steps that take much more for a while.
        let busy = gpu(200, |step| 100 * MIB + step * 100_000 + if step % 7 == 0 { 50 * MIB } else { 0 });
        let growth = busy.growth().unwrap();
        assert!((90_000.0..110_000.0).contains(&growth.bytes_per_step), "{growth:?}");
        // It begins in the middle of the run.
        for began in [300, 600, 900] {
            let growth = gpu(2_000, |step| 100 * MIB + step.saturating_sub(began) * MIB / 10).growth().unwrap();
            assert!((began - 200..began + 200).contains(&growth.first_step), "{began}: {growth:?}");
            assert!((growth.bytes_per_step / MIB as f64 - 0.1).abs() < 0.01, "{began}: {growth:?}");
        }
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
    fn busy(seed: u64, leak: impl Fn(u64) -> u64) -> MemorySeries {
        let mut series = MemorySeries::new(MemorySource::Gpu(DeviceId::default()), None);
        for point in 0..75 {
            let (step, in_step) = (point * 200 / 75, noise(seed * 1_000 + point) * 6 * MIB / 100);
            series.push(step, Timestamp::default(), 3 * MIB + leak(step) + in_step);
        }
        series
    }

    const RUNS: u64 = 300;

    #[test]
    fn the_course_of_a_step_neither_hides_a_leak_nor_looks_like_one() {
        let found = |leak: u64| (0..RUNS).filter(|&seed| busy(seed, |step| step * leak).growth().is_some()).count();
        assert!(found(0) <= 1, "{} false alarms", found(0));
        // 13 MiB in all, about twice what one step uses.
        assert!(found(64 << 10) >= RUNS as usize * 95 / 100, "{} of {RUNS} found", found(64 << 10));
    }

    #[test]
    fn what_windows_show_supports_a_trend() {
        let kept = (64 << 10) as f64;
        let found =
            |leak: &dyn Fn(u64) -> u64| (0..RUNS).filter(|&seed| busy(seed, leak).growth_by(kept).is_some()).count();
        assert_eq!(found(&|step| step * (64 << 10)), RUNS as usize);
        assert_eq!(found(&|_| 0), 0, "nothing grows");
        assert_eq!(found(&|step| step.min(50) * (64 << 10)), 0, "a cache that is full after a quarter");
        assert_eq!(found(&|step| step * (512 << 10)), 0, "something else grows");
    }
}
