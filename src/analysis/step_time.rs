//! The time of a step: the one definition that tables, pages, findings and comparisons share.
//!
//! The duration of a step on the host says little if the host runs ahead of the GPU: it launches work that the GPU does
//! much later. So a step lasts from the end of all that came before it until the host and the GPU are both done with
//! it: its [`StepInterval`]. Intervals of one thread do not overlap, so that their times add up to that of the loop.

use super::{
    quantile::quantile,
    sorted::{SortedMap, SortedSet},
};
use crate::trace::{ApiCall, StepId, ThreadId, Timestamp, Trace, Work};
use std::time::Duration;

/// When a whole step was worked on, by the host and the GPU.
///
/// Work belongs to the step that launched it. The interval starts with the step on the host, or when the GPU has done
/// all that was launched before, whichever is later. It ends with the step on the host, or when the GPU has done the
/// last work of the step, whichever is later.
///
/// Streams that only copy run alongside: their work does not extend a step if other streams have kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepInterval {
    pub(crate) id: StepId,
    /// The number of the step in the run, counted from 0.
    pub step: u64,
    /// When all that came before the step was done.
    pub start: Timestamp,
    /// When the step was done.
    pub end: Timestamp,
    /// The duration of the step on the host.
    pub host: Duration,
}

impl StepInterval {
    /// Returns the time of the step.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.end.since(self.start)
    }
}

/// The time of a step over many steps: the mean of those that are no outliers, so that the parts of a step add up to
/// it.
///
/// `Display` writes one line for reports: `a step takes 14.3 ms; the host takes 6.10 ms of it and runs ahead of the
/// GPU`.
///
/// # Outliers
///
/// A step is an outlier if it takes more than 1.5 times the median, and differs from the median by more than 5.2 times
/// the median of all such differences: 3.5 standard deviations, if times are normally distributed. If more than a
/// quarter of the steps are that slow, the program has slow steps, and none of them is an outlier. Of two steps, none
/// is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StepTime {
    /// The mean time of a step.
    pub mean: Duration,
    /// The mean duration of these steps on the host.
    pub host: Duration,
    /// A quarter of the steps took no longer than this.
    pub lower: Duration,
    /// The median time of a step.
    pub median: Duration,
    /// Three quarters of the steps took no longer than this.
    pub upper: Duration,
    /// The number of steps that these figures are of.
    pub steps: u64,
    /// The number of outliers, which are left out.
    pub outliers: u64,
    /// The mean time of all steps, outliers included.
    pub with_outliers: Duration,
}

impl StepTime {
    /// The least time of an outlier, in medians. Regular steps of the trainings in `tests/fixtures/trainings` differ by
    /// up to a fifth; half a step more is what people notice in a chart.
    pub const OUTLIER: f64 = 1.5;
    /// The least distance of an outlier from the median, in median absolute deviations: 3.5 standard deviations of
    /// 1.4826 such deviations each, as Iglewicz and Hoaglin recommend.
    const DEVIATIONS: f64 = 3.5 * 1.4826;
    /// The fewest steps of which one can be told from the others.
    const FEWEST: usize = 3;
    /// At most one in so many steps is an outlier.
    const RARE: usize = 4;
    /// The host runs ahead if it takes less than this part of a step. Hosts that wait for the GPU in each step differ
    /// from it by a few percent in the trainings of `tests/fixtures`, as both are means over few steps.
    const AHEAD: f64 = 0.9;

    /// Returns the time of a step, of the time of each step and its duration on the host; `None` if there are none.
    pub(crate) fn of(steps: impl Iterator<Item = (Duration, Duration)> + Clone) -> Option<Self> {
        let mean = |times: &[Duration]| {
            let count = u32::try_from(times.len()).unwrap_or(u32::MAX);
            times.iter().sum::<Duration>().checked_div(count)
        };
        let all: Vec<Duration> = steps.clone().map(|(time, _)| time).collect();
        let limit = Self::longest(all.iter().copied());
        let (mut regular, host): (Vec<_>, Vec<_>) = steps.filter(|(time, _)| *time <= limit).unzip();
        regular.sort_unstable();
        Some(Self {
            mean: mean(&regular)?,
            host: mean(&host)?,
            lower: quantile(&regular, 0.25)?,
            median: quantile(&regular, 0.5)?,
            upper: quantile(&regular, 0.75)?,
            steps: regular.len() as u64,
            outliers: (all.len() - regular.len()) as u64,
            with_outliers: mean(&all)?,
        })
    }

    /// Returns the longest time of a step that is no outlier.
    pub(crate) fn longest(times: impl Iterator<Item = Duration>) -> Duration {
        let mut sorted: Vec<Duration> = times.collect();
        sorted.sort_unstable();
        let median = quantile(&sorted, 0.5).unwrap_or_default();
        let mut deviations: Vec<Duration> = sorted.iter().map(|time| time.abs_diff(median)).collect();
        deviations.sort_unstable();
        let spread = quantile(&deviations, 0.5).unwrap_or_default().mul_f64(Self::DEVIATIONS);
        let limit = median + spread.max(median.mul_f64(Self::OUTLIER - 1.0));
        let outliers = sorted.len() - sorted.partition_point(|time| *time <= limit);
        let is_rare = outliers <= (sorted.len() / Self::RARE).max(1);
        if sorted.len() >= Self::FEWEST && is_rare { limit } else { Duration::MAX }
    }

    /// Whether steps take much longer on the GPU than on the host, which does not wait for it in each step.
    #[must_use]
    pub fn host_runs_ahead(&self) -> bool {
        self.host.as_secs_f64() < Self::AHEAD * self.mean.as_secs_f64()
    }
}

/// The longest time from a call's return to its work if the GPU has nothing else to do. A first piece of work that
/// begins later has waited for work from before the window that was not recorded.
const LONGEST_START: Duration = Duration::from_micros(50);

/// Returns the intervals of the whole steps of a trace, in the order of the steps.
pub(super) fn step_intervals(trace: &Trace) -> Vec<StepInterval> {
    let mut threads: SortedMap<ThreadId, Vec<StepId>> = SortedMap::default();
    for (id, step) in trace.step_ids().zip(trace.steps()) {
        threads.or_default(trace.track(step.track_id()).thread()).push(id);
    }
    let gpu = GpuEnds::of(trace, &threads);
    let mut intervals = Vec::with_capacity(trace.steps().len());
    for steps in threads.values() {
        let mut done = None;
        for &id in steps {
            let step = &trace.steps()[id.index()];
            done = done.max(gpu.before[id.index()]);
            let queued = gpu.first[id.index()].filter(|_| done.is_none()).and_then(FirstWork::unexplained_start);
            let start = step.start().max(done.or(queued).unwrap_or_default());
            let end = step.end().max(gpu.ends[id.index()].unwrap_or_default()).max(start);
            done = done.max(gpu.ends[id.index()]);
            if !step.cut().any() {
                intervals.push(StepInterval { id, step: step.number(), start, end, host: step.duration() });
            }
        }
    }
    intervals.sort_unstable_by_key(|interval| interval.id);
    intervals
}

/// When the GPU was done with steps, by the index of the step.
struct GpuEnds {
    /// The end of the last work that was launched in the step.
    ends: Vec<Option<Timestamp>>,
    /// The end of the last work that was launched in no step, after the step before began and before this one did.
    before: Vec<Option<Timestamp>>,
    /// The work of the step that began first.
    first: Vec<Option<FirstWork>>,
}

/// The work of a step that began first.
#[derive(Clone, Copy)]
struct FirstWork {
    start: Timestamp,
    /// When its call returned.
    launched: Timestamp,
}

impl FirstWork {
    fn unexplained_start(self) -> Option<Timestamp> {
        (self.start.since(self.launched) > LONGEST_START).then_some(self.start)
    }
}

impl GpuEnds {
    fn of(trace: &Trace, threads: &SortedMap<ThreadId, Vec<StepId>>) -> Self {
        let steps = trace.steps().len();
        let mut gpu = Self { ends: vec![None; steps], before: vec![None; steps], first: vec![None; steps] };
        let stream = |work: Work<'_>| (work.stream().device(), work.stream().context(), work.stream().number());
        let with_kernels: SortedSet<_> = trace.work().filter(|work| work.kernel().is_some()).map(stream).collect();
        let counts = |work: &Work<'_>| with_kernels.is_empty() || with_kernels.contains(&stream(*work));
        // When each stream began the first work whose call is known: what it did earlier is from before the window.
        let mut known: SortedMap<_, Timestamp> = SortedMap::default();
        for work in trace.work().filter(|work| work.call().is_some()) {
            let first = known.or_insert_with(stream(work), || work.start());
            *first = work.start().min(*first);
        }
        for work in trace.work().filter(counts) {
            match (work.step_id(), work.call()) {
                (Some(step), call) => {
                    let step = step.index();
                    gpu.ends[step] = gpu.ends[step].max(Some(work.end()));
                    let launched = call.map_or(work.start(), ApiCall::end);
                    let first = FirstWork { start: work.start(), launched };
                    if gpu.first[step].is_none_or(|known| first.start < known.start) {
                        gpu.first[step] = Some(first);
                    }
                }
                (None, call) => {
                    let is_earlier = known.get(&stream(work)).is_some_and(|first| work.start() < *first);
                    if call.is_none() && !is_earlier {
                        continue;
                    }
                    for steps in threads.values() {
                        let is_before = |step: &StepId| {
                            call.is_some_and(|call| trace.steps()[step.index()].start() <= call.start())
                        };
                        let next = steps.partition_point(is_before);
                        if let Some(step) = steps.get(next) {
                            gpu.before[step.index()] = gpu.before[step.index()].max(Some(work.end()));
                        }
                    }
                }
            }
        }
        gpu
    }
}

#[cfg(test)]
mod tests;
