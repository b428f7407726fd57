//! The steps of a run, for a chart.

use crate::{
    analysis::{StepTime, quantile},
    export::json::Object,
};
use std::time::Duration;

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

    /// Writes the points, with the median of all and the longest time that is no outlier.
    pub(super) fn write(&self, section: &mut Object<'_>) {
        let mut times: Vec<_> = self.points.iter().map(|point| Duration::from_nanos(point.longest)).collect();
        let longest = StepTime::longest(times.iter().copied());
        times.sort_unstable();
        section.number("median", quantile(&times, 0.5).unwrap_or_default().as_nanos());
        match longest {
            Duration::MAX => section.null("longest"),
            longest => section.number("longest", longest.as_nanos()),
        }
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
