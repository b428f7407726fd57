//! The steps of a run: their durations, for a chart, and where their time went, by GPU and rank.

use crate::{
    analysis::{Analysis, StepBreakdown},
    export::json::Object,
    trace::DeviceId,
};
use std::{collections::BTreeMap, time::Duration};

/// The durations of all steps of a run, in bounded memory.
///
/// Beyond [`Self::POINTS`] steps, two neighbours become one point, which has the shorter and the longer of their times,
/// so no outlier is lost.
#[derive(Clone, Debug)]
pub(super) struct StepSeries {
    points: Vec<StepPoint>,
    /// The number of steps that a new point covers.
    stride: u64,
}

/// One step, or several in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StepPoint {
    first: u64,
    steps: u64,
    shortest: u64,
    longest: u64,
}

impl Default for StepSeries {
    fn default() -> Self {
        Self { points: Vec::new(), stride: 1 }
    }
}

impl StepSeries {
    /// The maximum number of points in the chart.
    const POINTS: usize = 8_192;

    /// Adds a step. Steps come in order.
    pub(super) fn add(&mut self, number: u64, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        match self.points.last_mut() {
            Some(last) if last.steps < self.stride && number == last.first.saturating_add(last.steps) => {
                *last = last.with(&StepPoint { first: number, steps: 1, shortest: nanos, longest: nanos });
            }
            _ => self.points.push(StepPoint { first: number, steps: 1, shortest: nanos, longest: nanos }),
        }
        if self.points.len() > Self::POINTS {
            self.points = self.points.chunks(2).map(|pair| pair[1..].iter().fold(pair[0], StepPoint::with)).collect();
            self.stride *= 2;
        }
    }

    /// Returns the number of steps.
    pub(super) fn count(&self) -> u64 {
        self.points.iter().map(|point| point.steps).fold(0, u64::saturating_add)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    pub(super) fn write(&self, section: &mut Object<'_>) {
        let mut column = |key, of: fn(&StepPoint) -> u64| {
            section.array(key, |array| self.points.iter().for_each(|point| array.number(of(point))));
        };
        column("first", |point| point.first);
        column("counts", |point| point.steps);
        column("low", |point| point.shortest);
        column("high", |point| point.longest);
    }
}

impl StepPoint {
    /// Returns the point of these steps and those of a later one.
    fn with(self, later: &Self) -> Self {
        Self {
            first: self.first,
            steps: later.first.saturating_add(later.steps).saturating_sub(self.first),
            shortest: self.shortest.min(later.shortest),
            longest: self.longest.max(later.longest),
        }
    }
}

/// Where the time of typical steps went, for each GPU of each rank.
#[derive(Debug, Default)]
pub(super) struct Breakdowns {
    sums: BTreeMap<(u32, Option<DeviceId>), BreakdownSum>,
    /// The number of steps that are left out because they took very long.
    slow: u64,
}

/// The parts of the steps of one GPU, added up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BreakdownSum {
    pub(super) steps: u32,
    pub(super) duration: Duration,
    pub(super) parts: [Duration; Breakdowns::PARTS.len()],
}

impl Breakdowns {
    /// The names of the parts, in the order of [`StepBreakdown::parts`].
    pub(super) const PARTS: [&str; 8] = [
        "compute",
        "communication",
        "copies",
        "input, GPU idle",
        "synchronizing, GPU idle",
        "launching, GPU idle",
        "host, GPU idle",
        "outside of spans, GPU idle",
    ];
    /// The part of [`Self::PARTS`] in which a rank may wait for others.
    const COMMUNICATION: usize = 1;

    /// Adds the steps of a window that took no longer than `longest`.
    pub(super) fn add<'w, 'a>(&mut self, window: &'w Analysis<'a>, longest: Duration) -> Vec<&'w StepBreakdown<'a>> {
        let all = window.step_breakdown();
        let breakdowns: Vec<_> = all.iter().filter(|step| step.duration <= longest).collect();
        self.slow += (all.len() - breakdowns.len()) as u64;
        for step in &breakdowns {
            let sum = self.sums.entry((window.metadata().rank, step.device)).or_default();
            sum.steps = sum.steps.saturating_add(1);
            sum.duration = sum.duration.saturating_add(step.duration);
            for (part, (_, time)) in sum.parts.iter_mut().zip(step.parts()) {
                *part = part.saturating_add(time);
            }
        }
        breakdowns
    }

    /// Returns the number of steps that are left out because they took very long.
    pub(super) fn slow(&self) -> u64 {
        self.slow
    }

    /// Returns the sums of each rank and GPU.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (u32, Option<DeviceId>, &BreakdownSum)> {
        self.sums.iter().map(|((rank, device), sum)| (*rank, *device, sum))
    }

    /// Returns the sum over all ranks and GPUs.
    pub(super) fn total(&self) -> BreakdownSum {
        let mut total = BreakdownSum::default();
        for sum in self.sums.values() {
            total.steps = total.steps.saturating_add(sum.steps);
            total.duration = total.duration.saturating_add(sum.duration);
            for (part, time) in total.parts.iter_mut().zip(sum.parts) {
                *part = part.saturating_add(time);
            }
        }
        total
    }

    /// Returns the names of the parts, which do not mention the GPU if there is none.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        let has_gpu = self.iter().any(|(_, device, _)| device.is_some());
        Self::PARTS.iter().map(move |part| if has_gpu { part } else { part.split(',').next().unwrap_or(part) })
    }
}

impl BreakdownSum {
    /// Returns the parts of a step on average.
    pub(super) fn means(&self) -> [Duration; Breakdowns::PARTS.len()] {
        self.parts.map(|part| part / self.steps.max(1))
    }

    /// Returns a step on average.
    pub(super) fn mean(&self) -> Duration {
        self.duration / self.steps.max(1)
    }

    /// Returns the time of a step, on average, without that in which it only communicates: ranks wait for the slowest
    /// one in their collectives, so that this is where they differ, although their steps take equally long.
    pub(super) fn own(&self) -> Duration {
        self.mean().saturating_sub(self.means()[Breakdowns::COMMUNICATION])
    }
}

#[cfg(test)]
mod tests {
    use super::{StepPoint, StepSeries};
    use std::time::Duration;

    #[test]
    fn no_outlier_is_lost_in_a_long_run() {
        let mut series = StepSeries::default();
        for number in 0..100_000 {
            let nanos = if number == 77_777 { 9_000 } else { 1_000 + number % 3 };
            series.add(number, Duration::from_nanos(nanos));
        }
        assert!(series.points.len() <= StepSeries::POINTS, "{}", series.points.len());
        assert_eq!(series.points.iter().map(|point| point.longest).max(), Some(9_000));
        assert_eq!(series.points.iter().map(|point| point.steps).sum::<u64>(), 100_000);
        assert!(series.points.windows(2).all(|pair| pair[0].first + pair[0].steps == pair[1].first));
    }

    #[test]
    fn few_steps_are_points_of_their_own() {
        let mut series = StepSeries::default();
        [5, 6, 9].into_iter().for_each(|number| series.add(number, Duration::from_nanos(number)));
        let point = |first| StepPoint { first, steps: 1, shortest: first, longest: first };
        assert_eq!(series.points, [point(5), point(6), point(9)]);
    }
}
