//! How long steps take, and where their time goes, over all windows and ranks.

use super::units;
use crate::{
    analysis::{Analysis, SortedMap, StepGpu, StepInterval, StepParts, StepTime, quantile},
    trace::DeviceId,
};
use std::{cmp::Reverse, fmt, time::Duration};

/// The recorded steps, without steps that are cut by the edge of a window.
///
/// The time of a step is that of its [interval](crate::analysis::StepInterval): the host and the GPU are both done with
/// it. [`Report::step_time`](crate::Report::step_time) is the mean without outliers, and
/// [`step_parts`](crate::Report::step_parts) adds up to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct StepTimes {
    /// The number of all steps.
    count: u64,
    /// The steps that are kept.
    steps: Vec<RecordedStep>,
    /// The number of steps that were looked at one by one.
    #[cfg_attr(feature = "serde", serde(skip))]
    seen: u64,
    /// The binary logarithm of the number of steps of which one is kept.
    #[cfg_attr(feature = "serde", serde(skip))]
    thinned: u32,
    #[cfg_attr(feature = "serde", serde(skip))]
    longest: Duration,
}

/// A recorded step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RecordedStep {
    /// The rank of the process, 0 if there is only one.
    pub rank: u32,
    /// The number of the step in the run, counted from 0.
    pub number: u64,
    /// How long it took, on the host and the GPU.
    pub time: Duration,
    /// How long it took on the host.
    pub host: Duration,
    /// Where the time went, on average over the GPUs of the process. The parts add up to `time`.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub parts: StepParts,
    /// What each GPU of the process did; none if no GPU did anything in the window.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub gpus: Box<[StepGpu]>,
}

/// Where the time of a step goes on one GPU of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GpuStepParts {
    /// The rank of the process, 0 if there is only one.
    pub rank: u32,
    /// The GPU; `None` if no GPU did anything.
    pub device: Option<DeviceId>,
    /// The number of steps, without outliers.
    pub steps: u64,
    /// The parts of a step on average. They add up to the [time](crate::analysis::StepTime) of a step of the rank.
    pub parts: StepParts,
}

/// A recorded step that is an [outlier](crate::analysis::StepTime#outliers). `Display` writes `step 37 took 65.0 ms, 17
/// times the median`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SlowStep {
    /// The rank of the process, 0 if there is only one.
    pub rank: u32,
    /// The number of the step in the run, counted from 0.
    pub number: u64,
    /// How long it took.
    pub duration: Duration,
    /// `duration` as a multiple of the median of all recorded steps of the rank.
    pub factor: f64,
}

impl StepTimes {
    /// The most steps that are kept one by one. Of more steps, every second is kept, or every fourth, and so on. A step
    /// on one GPU takes some 600 bytes.
    pub const STEPS: usize = 1 << 15;

    /// Adds the steps of a window.
    pub(super) fn add(&mut self, window: &Analysis<'_>) {
        let rank = window.metadata().rank;
        let (divided, rows) = (window.divided_steps(), window.step_breakdown());
        let all = window.step_intervals();
        self.longest = all.iter().map(StepInterval::time).max().max(Some(self.longest)).unwrap_or_default();
        self.count += (all.len() - divided.len()) as u64;
        // A row for each GPU, or one if there is none.
        let each = rows.len().checked_div(divided.len()).unwrap_or_default().max(1);
        let mut of_gpus = window.gpu_steps().chunks(each);
        for (step, rows) in divided.zip(rows.chunks(each)) {
            let parts = rows.iter().map(|row| row.parts).sum::<StepParts>().each(each as u64);
            let gpus = of_gpus.next().unwrap_or_default().into();
            self.add_step(RecordedStep { rank, number: step.step, time: step.time(), host: step.host, parts, gpus });
        }
    }

    fn add_step(&mut self, step: RecordedStep) {
        if self.steps.len() == Self::STEPS {
            let mut index = 0_usize;
            self.steps.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.thinned += 1;
        }
        self.longest = self.longest.max(step.time);
        if self.seen.trailing_zeros() >= self.thinned {
            self.steps.push(step);
        }
        self.seen += 1;
        self.count += 1;
    }

    /// Returns the recorded steps, in the order in which windows were added. If there are more than [`Self::STEPS`], it
    /// is every second step, or every fourth, and so on; of a window without GPU activity, at most 4,000.
    pub fn steps(&self) -> &[RecordedStep] {
        &self.steps
    }

    /// Returns the number of steps.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns whether no whole step was recorded.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the time of the longest step, or `None` if there are no steps.
    pub fn longest(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.longest)
    }

    /// Returns a percentile of the times of [`steps`](Self::steps), outliers included, or `None` if there are no steps.
    ///
    /// It lies between the two times that are nearest by rank: the median of an even number of steps is the mean of the
    /// middle two. All percentiles of reports and comparisons are defined so.
    ///
    /// # Panics
    ///
    /// If `percent` is not between 0 and 100.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        assert!((0.0..=100.0).contains(&percent), "{percent} is not a percentage");
        let mut sorted: Vec<Duration> = self.steps.iter().map(|step| step.time).collect();
        sorted.sort_unstable();
        quantile(&sorted, percent / 100.0)
    }

    /// Returns the durations of the steps on the host.
    pub(crate) fn on_host(&self) -> Vec<Duration> {
        self.steps.iter().map(|step| step.host).collect()
    }

    /// Returns the steps of each rank.
    fn ranks(&self) -> SortedMap<u32, Vec<&RecordedStep>> {
        let mut ranks: SortedMap<u32, Vec<&RecordedStep>> = SortedMap::default();
        self.steps.iter().for_each(|step| ranks.or_default(step.rank).push(step));
        ranks
    }

    /// Returns the rank that others wait for, as its steps take the longest, and the time of one of its steps.
    pub(super) fn slowest(&self) -> Option<(u32, StepTime)> {
        let of_rank = |(rank, steps): &(u32, Vec<&RecordedStep>)| Some((*rank, step_time(steps)?));
        self.ranks().iter().filter_map(of_rank).max_by_key(|(rank, step)| (step.mean, Reverse(*rank)))
    }

    /// Returns the steps that are [outliers](crate::analysis::StepTime#outliers) among those of their rank, slowest
    /// first.
    pub fn slow(&self) -> Vec<SlowStep> {
        let mut slow = Vec::new();
        for (rank, steps) in self.ranks() {
            let longest = longest(&steps);
            let mut times: Vec<Duration> = steps.iter().map(|step| step.time).collect();
            times.sort_unstable();
            let median = quantile(&times, 0.5).unwrap_or_default().as_secs_f64();
            slow.extend(steps.iter().filter(|step| step.time > longest).map(|step| SlowStep {
                rank,
                number: step.number,
                duration: step.time,
                factor: step.time.as_secs_f64() / median,
            }));
        }
        slow.sort_by_key(|step| Reverse(step.duration));
        slow
    }

    /// Returns the steps that are no outliers among those of their rank.
    pub(super) fn regular(&self) -> Vec<&RecordedStep> {
        let ranks = self.ranks().into_values();
        ranks
            .flat_map(|steps| {
                let longest = longest(&steps);
                steps.into_iter().filter(move |step| step.time <= longest)
            })
            .collect()
    }

    /// Returns where the time of a step goes on each GPU of each rank, in this order, without outliers.
    pub fn parts_by_gpu(&self) -> Vec<GpuStepParts> {
        let mut rows = Vec::new();
        for (rank, steps) in self.ranks() {
            let longest = longest(&steps);
            let mut gpus: SortedMap<Option<DeviceId>, (u64, StepParts)> = SortedMap::default();
            for step in steps.iter().filter(|step| step.time <= longest) {
                let of_gpus = step.gpus.iter().map(|gpu| (Some(gpu.device), gpu.usage.parts));
                let on_host = step.gpus.is_empty().then_some((None, step.parts));
                for (device, parts) in of_gpus.chain(on_host) {
                    let (steps, sum) = gpus.or_default(device);
                    *steps += 1;
                    *sum += parts;
                }
            }
            let row = |(device, (steps, sum)): (_, (u64, StepParts))| GpuStepParts {
                rank,
                device,
                steps,
                parts: sum.each(steps),
            };
            rows.extend(gpus.into_iter().map(row));
        }
        rows
    }
}

fn longest(steps: &[&RecordedStep]) -> Duration {
    StepTime::longest(steps.iter().map(|step| step.time))
}

fn step_time(steps: &[&RecordedStep]) -> Option<StepTime> {
    StepTime::of(steps.iter().map(|step| (step.time, step.host)))
}

impl fmt::Display for SlowStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, duration, factor, .. } = self;
        let factor = if *factor < 10.0 { format!("{factor:.1}") } else { format!("{factor:.0}") };
        write!(f, "step {number} took {}, {factor} times the median", units::time(*duration))
    }
}

impl fmt::Display for StepTime {
    /// Writes `a step takes 14.3 ms (median 14.2 ms, quartiles 14.0 ms to 14.6 ms); the host takes 6.10 ms of it and
    /// runs ahead of the GPU; 2 outliers are left out (15.1 ms with them)`, as far as there is something to say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [mean, host, lower, median, upper] =
            [self.mean, self.host, self.lower, self.median, self.upper].map(units::time);
        write!(f, "a step takes {mean}")?;
        if lower != upper {
            write!(f, " (median {median}, quartiles {lower} to {upper})")?;
        }
        if self.host_runs_ahead() {
            write!(f, "; the host takes {host} of it and runs ahead of the GPU")?;
        }
        match self.outliers {
            0 => Ok(()),
            1 => write!(f, "; 1 outlier is left out ({} with it)", units::time(self.with_outliers)),
            outliers => {
                write!(f, "; {outliers} outliers are left out ({} with them)", units::time(self.with_outliers))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{RecordedStep, StepTimes, units};
    use crate::{
        Report,
        analysis::StepTime,
        trace::sample::{gpu_trace, late_ranks},
    };
    use std::time::Duration;

    fn of(times: impl IntoIterator<Item = u64>) -> StepTimes {
        let mut steps = StepTimes::default();
        for (number, time) in (0..).zip(times) {
            let time = Duration::from_millis(time);
            steps.add_step(RecordedStep { number, time, host: time, ..RecordedStep::default() });
        }
        steps
    }

    #[test]
    fn percentiles_are_between_the_nearest_times() {
        let steps = of((1..=10).rev());
        let micros = |percent| steps.percentile(percent).unwrap().as_micros();
        assert_eq!([0.0, 50.0, 75.0, 100.0].map(micros), [1_000, 5_500, 7_750, 10_000]);
        assert_eq!(StepTimes::default().percentile(50.0), None);
    }

    #[test]
    fn outliers_are_slow_and_left_out() {
        let steps = of([4, 4, 6, 5, 70, 5]);
        let slow: Vec<_> = steps.slow().iter().map(ToString::to_string).collect();
        assert_eq!(slow, ["step 4 took 70.0 ms, 14 times the median"]);
        let (_, step) = steps.slowest().unwrap();
        assert_eq!((step.mean, step.steps, step.outliers), (Duration::from_micros(4800), 5, 1));
        assert!(of([4, 70]).slow().is_empty(), "too few to tell");
    }

    #[test]
    fn of_very_many_steps_some_are_kept_evenly() {
        const STEPS: u64 = 5 * StepTimes::STEPS as u64 + 3;
        let steps = of(0..STEPS);
        assert!((StepTimes::STEPS / 2..=StepTimes::STEPS).contains(&steps.steps().len()));
        assert!(steps.steps().iter().enumerate().all(|(index, step)| step.number == 8 * index as u64));
        assert_eq!((steps.count(), steps.longest()), (STEPS, Some(Duration::from_millis(STEPS - 1))));
    }

    #[test]
    fn the_text_says_what_is_to_be_said() {
        let text = |[mean, host]: [u64; 2], outliers| {
            let [mean, host] = [mean, host].map(Duration::from_millis);
            let (lower, median, upper) = (mean, mean, mean);
            let with_outliers = 2 * mean;
            StepTime { mean, host, lower, median, upper, steps: 4, outliers, with_outliers }.to_string()
        };
        assert_eq!(text([10, 10], 0), "a step takes 10.0 ms");
        assert_eq!(
            text([14, 6], 2),
            "a step takes 14.0 ms; the host takes 6.00 ms of it and runs ahead of the GPU; 2 outliers are left out \
             (28.0 ms with them)"
        );
        let (_, step) = of([9, 10, 12]).slowest().unwrap();
        assert_eq!(step.to_string(), "a step takes 10.3 ms (median 10.0 ms, quartiles 9.50 ms to 11.0 ms)");
    }

    #[test]
    fn a_run_takes_as_long_as_its_slowest_rank() {
        let traces = late_ranks(&[(20, 1000), (600, 1000)]);
        let of = |traces: &[crate::Trace]| Report::of(traces).step_time();
        let [first, second] = [0, 1].map(|rank| of(&traces[rank..=rank]).unwrap());
        assert_eq!(of(&traces).unwrap().mean, first.mean.max(second.mean));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn all_texts_have_the_same_step() {
        let report = Report::of([&gpu_trace()]);
        let line = report.step_time().unwrap().to_string();
        assert!(report.to_string().contains(&format!("\n{line}\n")), "{report}");
        let advice = report.advice().width(200).to_string();
        assert!(advice.starts_with(&format!("{line}\n\n1. ")), "{advice}");
        let step = units::time(report.step_time().unwrap().mean);
        assert!(report.findings().iter().all(|finding| units::time(finding.step) == step));
    }

    #[test]
    fn parts_add_up_to_the_time_of_a_step() {
        let report = Report::of([&gpu_trace()]);
        let step = report.step_time().unwrap();
        assert_eq!(report.step_parts().unwrap().total(), step.mean);
        assert_eq!(report.steps().parts_by_gpu().len(), 1);
    }
}
