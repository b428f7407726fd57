//! How long steps take: the durations on the host, and the typical step of all windows.

use super::units;
use crate::{
    analysis::{TypicalStep, quantile},
    trace::Step,
};
use std::{fmt, time::Duration};

/// The durations of the recorded steps, without steps that are cut by the edge of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct StepTimes {
    times: Vec<Duration>,
    numbers: Vec<u64>,
    /// The binary logarithm of the number of steps of which one is kept.
    #[cfg_attr(feature = "serde", serde(skip))]
    thinned: u32,
    /// The number of all steps.
    steps: u64,
    #[cfg_attr(feature = "serde", serde(skip))]
    sum: Duration,
    #[cfg_attr(feature = "serde", serde(skip))]
    longest: Duration,
}

/// A recorded step that took more than [`StepTimes::SLOW`] times the median. `Display` writes `step 37 took 65.0 ms,
/// 17 times the median`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SlowStep {
    /// The number of the step in the run, counted from 0.
    pub number: u64,
    /// How long it took.
    pub duration: Duration,
    /// `duration` as a multiple of the median of all recorded steps.
    pub factor: f64,
}

/// The typical steps of windows, added up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TypicalSteps {
    /// The times of the windows' typical steps, each times the number of the window's steps.
    sum: TypicalStep,
    /// The number of steps of all these windows.
    steps: u64,
}

impl StepTimes {
    /// The most steps that are kept one by one. Of more steps, every second is kept, or every fourth, and so on.
    pub const STEPS: usize = 1 << 17;
    /// A step that took more than this many times the median is slow.
    pub const SLOW: f64 = 3.0;
    /// The number of steps from which on a median says something.
    pub(super) const ENOUGH: usize = 5;

    /// Adds the steps of a window.
    pub(super) fn add(&mut self, steps: &[Step]) {
        for step in steps.iter().filter(|step| !step.cut().any()) {
            self.add_step(Some(step.number()), step.duration());
        }
    }

    fn add_step(&mut self, number: Option<u64>, time: Duration) {
        if self.times.len() == Self::STEPS {
            keep_every_second(&mut self.times);
            keep_every_second(&mut self.numbers);
            self.thinned += 1;
        }
        if self.steps.trailing_zeros() >= self.thinned {
            self.times.push(time);
            self.numbers.extend(number);
        }
        self.steps += 1;
        self.sum += time;
        self.longest = self.longest.max(time);
    }

    /// Returns the duration of each step, in the order of the steps. If there are more than [`Self::STEPS`], it is that
    /// of every second step, or of every fourth, and so on.
    pub fn times(&self) -> &[Duration] {
        &self.times
    }

    /// Returns the number of each step in the run, in the same order.
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Returns the number of steps.
    pub fn count(&self) -> u64 {
        self.steps
    }

    /// Returns the duration of the longest step, or `None` if there are no steps.
    pub fn longest(&self) -> Option<Duration> {
        (self.steps > 0).then_some(self.longest)
    }

    /// Returns the steps in [`times`](Self::times) that took more than [`Self::SLOW`] times the median, slowest first.
    /// There are none if fewer than five steps were recorded.
    pub fn slow(&self) -> Vec<SlowStep> {
        let enough = self.times.len() >= Self::ENOUGH;
        let median = self.percentile(50.0).filter(|median| enough && !median.is_zero());
        let Some(median) = median else { return Vec::new() };
        let step = |(&number, &duration): (&u64, &Duration)| {
            let factor = duration.as_secs_f64() / median.as_secs_f64();
            (factor > Self::SLOW).then_some(SlowStep { number, duration, factor })
        };
        let mut slow: Vec<_> = self.numbers.iter().zip(&self.times).filter_map(step).collect();
        slow.sort_by_key(|step| std::cmp::Reverse(step.duration));
        slow
    }

    /// Returns whether no whole step was recorded.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Returns the mean duration, or `None` if there are no steps.
    pub fn mean(&self) -> Option<Duration> {
        let nanos = self.sum.as_nanos().checked_div(self.steps.into())?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Returns a percentile of the durations in [`times`](Self::times), or `None` if there are no steps.
    ///
    /// It lies between the two durations that are nearest by rank: the median of an even number of steps is the mean of
    /// the middle two. All percentiles of reports and comparisons are defined so.
    ///
    /// # Panics
    ///
    /// If `percent` is not between 0 and 100.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        assert!((0.0..=100.0).contains(&percent), "{percent} is not a percentage");
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        quantile(&sorted, percent / 100.0)
    }
}

fn keep_every_second<T>(list: &mut Vec<T>) {
    let mut index = 0_usize;
    list.retain(|_| {
        index += 1;
        index % 2 == 1
    });
}

impl From<Vec<Duration>> for StepTimes {
    /// Makes the durations of steps whose numbers are not known.
    fn from(times: Vec<Duration>) -> Self {
        let mut steps = Self::default();
        times.into_iter().for_each(|time| steps.add_step(None, time));
        steps
    }
}

impl fmt::Display for SlowStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, duration, factor } = self;
        let factor = if *factor < 10.0 { format!("{factor:.1}") } else { format!("{factor:.0}") };
        write!(f, "step {number} took {}, {factor} times the median", units::time(*duration))
    }
}

impl fmt::Display for StepTimes {
    /// Writes `6 steps, 3.12 ms on average (median 3.00 ms, longest 3.87 ms)`, or nothing if there are no steps. From a
    /// hundred steps on, it also writes the time that 99 % of them were within.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(mean) = self.mean() else { return Ok(()) };
        let time = |percent| units::time(self.percentile(percent).unwrap_or_default());
        match self.steps {
            1 => return write!(f, "1 step of {}", units::time(mean)),
            steps => write!(f, "{steps} steps, {} on average (median {}", units::time(mean), time(50.0))?,
        }
        if self.steps >= 100 {
            write!(f, ", 99 % within {}", time(99.0))?;
        }
        write!(f, ", longest {})", units::time(self.longest))
    }
}

impl TypicalSteps {
    /// Adds a window with this many whole steps.
    pub(super) fn add(&mut self, step: TypicalStep, steps: u64) {
        let factor = u32::try_from(steps).unwrap_or(u32::MAX);
        let add = |sum: &mut Duration, time: Duration| *sum = sum.saturating_add(time.saturating_mul(factor));
        add(&mut self.sum.recorded, step.recorded);
        add(&mut self.sum.own, step.own);
        add(&mut self.sum.host, step.host);
        self.sum.steps += step.steps;
        self.sum.slow += step.slow;
        self.steps += steps;
    }

    /// Returns the mean over windows, by their steps; `None` if there is no step.
    pub(super) fn mean(&self) -> Option<TypicalStep> {
        let steps = u32::try_from(self.steps).unwrap_or(u32::MAX);
        let mut mean = self.sum;
        for time in [&mut mean.recorded, &mut mean.own, &mut mean.host] {
            *time = time.checked_div(steps)?;
        }
        Some(mean)
    }
}

impl fmt::Display for TypicalStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [own, recorded, host] = [self.own, self.recorded, self.host].map(units::time);
        write!(f, "a step takes {own}")?;
        if recorded != own {
            write!(f, " ({recorded} as recorded)")?;
        }
        if self.host_runs_ahead() {
            write!(f, "; the host takes {host} of it and runs ahead of the GPU")?;
        }
        match self.slow {
            0 => Ok(()),
            1 => f.write_str("; 1 slow step is left out"),
            slow => write!(f, "; {slow} slow steps are left out"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{StepTimes, TypicalSteps, units};
    use crate::{
        Report,
        analysis::TypicalStep,
        trace::sample::{gpu_trace, late_ranks},
    };
    use std::time::Duration;

    #[test]
    fn percentiles_are_between_the_nearest_times() {
        let steps = StepTimes::from((1..=10).rev().map(Duration::from_millis).collect::<Vec<_>>());
        let micros = |percent| steps.percentile(percent).unwrap().as_micros();
        assert_eq!([0.0, 50.0, 75.0, 100.0].map(micros), [1_000, 5_500, 7_750, 10_000]);
        assert_eq!(StepTimes::default().percentile(50.0), None);
    }

    #[test]
    fn steps_far_above_the_median_are_slow() {
        let times: Vec<_> = [4, 4, 13, 5, 70, 5].map(Duration::from_millis).to_vec();
        let mut steps = StepTimes::default();
        times.iter().zip(33..).for_each(|(&time, number)| steps.add_step(Some(number), time));
        let slow: Vec<_> = steps.slow().iter().map(ToString::to_string).collect();
        assert_eq!(slow, ["step 37 took 70.0 ms, 14 times the median"]);
        let mut few = StepTimes::default();
        [times[0], times[0], times[4]].into_iter().zip(0..).for_each(|(time, number)| few.add_step(Some(number), time));
        assert!(few.slow().is_empty(), "too few to tell");
    }

    #[test]
    fn of_very_many_steps_some_are_kept_evenly() {
        const STEPS: u64 = 5 * StepTimes::STEPS as u64 + 3;
        let mut steps = StepTimes::default();
        (0..STEPS).for_each(|number| steps.add_step(Some(number), Duration::from_nanos(number)));
        assert!((StepTimes::STEPS / 2..=StepTimes::STEPS).contains(&steps.times().len()));
        assert!(steps.times().iter().enumerate().all(|(index, time)| time.as_nanos() == 8 * index as u128));
        assert!(steps.numbers().iter().enumerate().all(|(index, number)| *number == 8 * index as u64));
        assert_eq!((steps.count(), steps.mean()), (STEPS, Some(Duration::from_nanos((STEPS - 1) / 2))));
        assert_eq!(steps.longest(), Some(Duration::from_nanos(STEPS - 1)));
    }

    #[test]
    fn a_mean_is_called_one() {
        let text = |steps| StepTimes::from((1..=steps).map(Duration::from_millis).collect::<Vec<_>>()).to_string();
        assert_eq!([text(0), text(1)], ["", "1 step of 1.00 ms"]);
        assert_eq!(text(4), "4 steps, 2.50 ms on average (median 2.50 ms, longest 4.00 ms)");
        assert_eq!(text(100), "100 steps, 50.5 ms on average (median 50.5 ms, 99 % within 99.0 ms, longest 100 ms)");
    }

    fn step([own, recorded, host]: [u64; 3], slow: u64) -> TypicalStep {
        let [own, recorded, host] = [own, recorded, host].map(Duration::from_millis);
        TypicalStep { own, recorded, host, slow, steps: 4, ..TypicalStep::default() }
    }

    #[test]
    fn the_text_says_what_is_to_be_said() {
        assert_eq!(step([10, 10, 10], 0).to_string(), "a step takes 10.0 ms");
        assert_eq!(
            step([13, 17, 17], 1).to_string(),
            "a step takes 13.0 ms (17.0 ms as recorded); 1 slow step is left out"
        );
        assert_eq!(
            step([14, 14, 6], 2).to_string(),
            "a step takes 14.0 ms; the host takes 6.00 ms of it and runs ahead of the GPU; 2 slow steps are left out"
        );
    }

    #[test]
    fn windows_count_by_their_steps() {
        let mut all = TypicalSteps::default();
        assert_eq!(all.mean(), None);
        all.add(step([10, 20, 20], 0), 4);
        all.add(step([40, 80, 50], 1), 12);
        let mean = all.mean().unwrap();
        assert_eq!([mean.own, mean.recorded].map(|time| time.as_micros()), [32_500, 65_000]);
        assert_eq!((mean.host.as_micros(), mean.steps, mean.slow), (42_500, 8, 1));
    }

    #[test]
    fn a_run_takes_as_long_as_its_slowest_rank() {
        let traces = late_ranks(&[(20, 1000), (600, 1000)]);
        let of = |traces: &[crate::Trace]| Report::of(traces).typical_step();
        let [first, second] = [0, 1].map(|rank| of(&traces[rank..=rank]).unwrap());
        assert_eq!(of(&traces).unwrap().own, first.own.max(second.own));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn all_texts_have_the_same_step() {
        let report = Report::of([&gpu_trace()]);
        let line = report.typical_step().unwrap().to_string();
        assert!(report.to_string().contains(&format!("\n{line}\n")), "{report}");
        let advice = report.advice().width(200).to_string();
        assert!(advice.starts_with(&format!("{line}\n\n1. ")), "{advice}");
        let step = units::time(report.typical_step().unwrap().own);
        assert!(report.findings().iter().all(|finding| units::time(finding.step) == step));
    }
}
