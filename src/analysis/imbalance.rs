//! Uneven work: ranks wait for each other because they have different amounts to compute.

use super::{
    analysis::Analysis,
    collective_calls::{CollectiveCall, is_collective},
};
use crate::{
    trace::{Span, SpanId},
    units,
};
use rustc_hash::FxHashMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

/// How much ranks have to compute in each step, and how long they wait for each other.
///
/// No single rank is late if each step has another one with the most to compute, as with sequences of different
/// lengths, or if several ranks have more to compute than the rest.
#[derive(Clone, Debug, Default)]
pub struct WorkBalance {
    steps: BTreeMap<u64, BTreeMap<u32, StepWork>>,
}

/// A step of one rank.
#[derive(Clone, Debug, Default)]
struct StepWork {
    duration: Duration,
    /// The time on the GPU by the name of the span, without collectives.
    gpu: FxHashMap<Arc<str>, Duration>,
    waits: Duration,
}

/// Ranks that wait for each other, since they have different amounts to compute. `Display` writes a sentence.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct UnevenWork {
    /// The time of a step that half of the ranks wait at least.
    pub waits: Duration,
    /// The time of a step.
    pub step: Duration,
    /// The number of steps.
    pub steps: usize,
    /// The ranks with the most to compute in some step, if it is another one from step to step; otherwise those that
    /// have more to compute than the others in all steps.
    pub ranks: Vec<u32>,
    /// Whether it is another rank from step to step.
    pub changes: bool,
    /// The correlation of the two spans with the most GPU time, over ranks and steps. Near 1, both grow with the same
    /// quantity, such as the length of a sequence.
    pub correlation: Option<f64>,
}

impl WorkBalance {
    /// The part of a step that half of the ranks must wait: one in 10. Chosen as twice what makes a single rank late,
    /// since among many ranks some are slow by chance.
    const WAITS_ONE_IN: u32 = 10;
    /// The correlation of computing and waiting from which on the one explains the other.
    const EXPLAINS: f64 = -0.8;
    /// The part of the variance that is the same in all steps from which on the same ranks have more to compute.
    const SAME: f64 = 0.5;
    /// The least correlation of two spans that grow with the same quantity, as in
    /// [`PipelineWhatIf`](super::PipelineWhatIf).
    const TOGETHER: f64 = 0.9;
    /// The least ranks and steps. The same rank has the most to compute three times in a row by chance.
    const LEAST: (usize, usize) = (3, 4);

    /// Adds a whole step of a rank: its time, the time on its GPU by span, and how long it waits for others.
    pub fn add<'a>(
        &mut self,
        rank: u32,
        step: u64,
        duration: Duration,
        gpu: impl IntoIterator<Item = (&'a str, Duration)>,
        waits: Duration,
    ) {
        let work = self.steps.entry(step).or_default().entry(rank).or_default();
        work.duration = duration;
        work.waits += waits;
        for (span, time) in gpu {
            *work.gpu.entry(span.into()).or_default() += time;
        }
    }

    /// Adds the steps of a window and its GPU times, without waits.
    pub fn add_window(&mut self, window: &Analysis<'_>) {
        let trace = window.trace();
        let mut names: FxHashMap<Option<SpanId>, Arc<str>> = FxHashMap::default();
        let rank = trace.metadata().rank;
        for step in trace.steps().iter().filter(|step| !step.cut().any()) {
            self.add(rank, step.number(), step.duration(), [], Duration::ZERO);
        }
        for work in trace.work().filter(|work| !is_collective(*work)) {
            let Some(step) = work.step().filter(|step| !step.cut().any()) else { continue };
            let Some(of_rank) = self.steps.get_mut(&step.number()).and_then(|ranks| ranks.get_mut(&rank)) else {
                continue;
            };
            let name = names.entry(work.span().map(Span::id));
            let name = name.or_insert_with(|| work.span().map_or_else(Arc::default, |span| span.name().into()));
            *of_rank.gpu.entry(Arc::clone(name)).or_default() += work.duration();
        }
    }

    /// Adds how long ranks wait for each other in collectives of several.
    pub fn add_waits<'a>(&mut self, ranks: impl IntoIterator<Item = (u32, &'a [CollectiveCall])>) {
        type Key<'a> = (u64, &'a Arc<str>, u32);
        let mut all: BTreeMap<Key<'_>, Vec<(u32, Duration)>> = BTreeMap::new();
        for (rank, calls) in ranks {
            for call in calls.iter().filter(|call| !call.operation.is_pairwise()) {
                all.entry((call.step, &call.group, call.number)).or_default().push((rank, call.duration()));
            }
        }
        for ((step, ..), ranks) in all {
            let shortest = ranks.iter().map(|(_, time)| *time).min().unwrap_or_default();
            let Some(of_step) = self.steps.get_mut(&step) else { continue };
            for (rank, time) in ranks {
                of_step.entry(rank).or_default().waits += time - shortest;
            }
        }
    }

    /// Returns whether work is uneven. It is not if one rank is late, which is to be fixed first.
    pub fn uneven(&self) -> Option<UnevenWork> {
        let all: BTreeSet<u32> = self.steps.values().flat_map(|ranks| ranks.keys().copied()).collect();
        let steps: Vec<_> = self.steps.values().filter(|ranks| ranks.len() == all.len()).collect();
        if all.len() < Self::LEAST.0 || steps.len() < Self::LEAST.1 {
            return None;
        }
        let median = |ranks: &BTreeMap<u32, StepWork>, of: fn(&StepWork) -> Duration| {
            let mut values: Vec<_> = ranks.values().map(of).collect();
            let middle = (values.len() - 1) / 2;
            *values.select_nth_unstable(middle).1
        };
        let count = u32::try_from(steps.len()).unwrap_or(u32::MAX);
        let waits = steps.iter().map(|ranks| median(ranks, |it| it.waits)).sum::<Duration>() / count;
        let step = steps.iter().map(|ranks| median(ranks, |it| it.duration)).sum::<Duration>() / count;
        if step.is_zero() || waits.saturating_mul(Self::WAITS_ONE_IN) < step {
            return None;
        }
        // Each value without the mean of its step.
        let without_mean = |of: &dyn Fn(&StepWork) -> f64| {
            let of_step = |ranks: &&BTreeMap<u32, StepWork>| {
                let mean = ranks.values().map(of).sum::<f64>() / ranks.len() as f64;
                ranks.values().map(|it| of(it) - mean).collect::<Vec<_>>()
            };
            steps.iter().map(of_step).collect::<Vec<_>>()
        };
        let computing = without_mean(&|it| it.gpu.values().sum::<Duration>().as_secs_f64());
        let waiting = without_mean(&|it| it.waits.as_secs_f64());
        if correlation(&computing.concat(), &waiting.concat())? > Self::EXPLAINS {
            return None;
        }
        let of_rank = |rank: usize| computing.iter().map(|ranks| ranks[rank]).sum::<f64>() / steps.len() as f64;
        let means: Vec<f64> = (0..all.len()).map(of_rank).collect();
        let square = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>();
        let same = square(&means) * steps.len() as f64 / square(&computing.concat());
        let changes = same < Self::SAME;
        let ranks: BTreeSet<usize> = if changes {
            computing
                .iter()
                .filter_map(|ranks| (0..ranks.len()).max_by(|a, b| ranks[*a].total_cmp(&ranks[*b])))
                .collect()
        } else {
            // Ranks that exceed the mean by at least half as much as the one with the most.
            let most = means.iter().copied().fold(0.0, f64::max);
            (0..means.len()).filter(|rank| 2.0 * means[*rank] >= most).collect()
        };
        let numbers: Vec<u32> = all.into_iter().collect();
        let most = self.largest_spans(&steps);
        let correlation = most.and_then(|most| {
            let [one, other] =
                most.map(|span| without_mean(&|it| it.gpu.get(&span).map_or(0.0, Duration::as_secs_f64)));
            correlation(&one.concat(), &other.concat())
        });
        let ranks = ranks.into_iter().map(|rank| numbers[rank]).collect();
        Some(UnevenWork { waits, step, steps: steps.len(), ranks, changes, correlation })
    }

    /// Returns the two spans with the most GPU time.
    fn largest_spans(&self, steps: &[&BTreeMap<u32, StepWork>]) -> Option<[Arc<str>; 2]> {
        let mut spans: BTreeMap<&Arc<str>, Duration> = BTreeMap::new();
        for (span, time) in steps.iter().flat_map(|ranks| ranks.values()).flat_map(|it| &it.gpu) {
            *spans.entry(span).or_default() += *time;
        }
        let mut spans: Vec<_> = spans.into_iter().collect();
        spans.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        Some([Arc::clone(spans.first()?.0), Arc::clone(spans.get(1)?.0)])
    }
}

/// Returns the correlation of values whose means are zero; `None` if one of them does not vary.
fn correlation(one: &[f64], other: &[f64]) -> Option<f64> {
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let variances = product(one, one) * product(other, other);
    (variances > 0.0).then(|| product(one, other) / variances.sqrt())
}

impl fmt::Display for UnevenWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The most ranks that are named.
        const NAMED: usize = 8;
        let (waits, step) = (units::time(self.waits), units::time(self.step));
        write!(f, "work is uneven: half of the ranks wait for {waits} or more of a step of {step}, and ")?;
        if !self.changes {
            let names: Vec<_> = self.ranks.iter().take(NAMED).map(ToString::to_string).collect();
            let more = if self.ranks.len() > names.len() { ", …" } else { "" };
            let ranks = if names.len() == 1 { "rank" } else { "ranks" };
            let have = if names.len() == 1 { "has" } else { "have" };
            return write!(f, "{ranks} {}{more} {have} the most to compute in all steps", names.join(", "));
        }
        let (ranks, steps) = (self.ranks.len(), self.steps);
        write!(f, "another one has the most to compute from step to step: {ranks} ranks in {steps} steps")?;
        if self.correlation.is_some_and(|correlation| correlation >= WorkBalance::TOGETHER) {
            f.write_str(". All spans grow together, as with sequences of different lengths")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{UnevenWork, WorkBalance};
    use std::time::Duration;

    /// Returns what is found if ranks compute for so many microseconds forward, and twice as many backward.
    fn found(steps: &[&[u64]]) -> Option<UnevenWork> {
        let micros = Duration::from_micros;
        let mut balance = WorkBalance::default();
        for (step, ranks) in (0..).zip(steps) {
            let longest = ranks.iter().max().unwrap();
            for (rank, forward) in (0..).zip(*ranks) {
                let gpu = [("forward", micros(*forward)), ("backward", micros(2 * forward))];
                balance.add(rank, step, micros(3 * longest + 100), gpu, micros(3 * (longest - forward)));
            }
        }
        balance.uneven()
    }

    #[test]
    fn sequences_of_different_lengths_are_told_from_uneven_ranks() {
        let uneven =
            found(&[&[100, 150, 90, 120], &[190, 100, 110, 120], &[95, 105, 90, 170], &[90, 80, 160, 85]]).unwrap();
        assert!(uneven.changes && uneven.correlation > Some(0.99), "{uneven:?}");
        let text = uneven.to_string();
        assert!(
            text.ends_with("4 ranks in 4 steps. All spans grow together, as with sequences of different lengths"),
            "{text}"
        );
        let same = found(&[&[100, 150, 149, 100, 101][..]; 5]).unwrap();
        assert_eq!((same.changes, &same.ranks[..]), (false, &[1, 2][..]));
        assert!(same.to_string().ends_with("ranks 1, 2 have the most to compute in all steps"), "{same}");
    }

    #[test]
    fn even_work_and_few_steps_say_nothing() {
        assert_eq!(found(&[&[100, 101, 99, 100], &[101, 100, 100, 99], &[100; 4], &[100; 4]]), None);
        assert_eq!(found(&[&[100, 150, 90], &[190, 100, 110], &[95, 105, 170]]), None, "three steps");
        assert_eq!(found(&[]), None);
        // Ranks that wait without computing less are late on the host.
        let mut balance = WorkBalance::default();
        for step in 0..6 {
            for rank in 0..4 {
                let waits = if u64::from(rank) == step % 4 { 0 } else { 40 };
                let gpu = [("forward", Duration::from_micros(50 + (u64::from(rank) * 7 + step * 3) % 5))];
                balance.add(rank, step, Duration::from_micros(100), gpu, Duration::from_micros(waits));
            }
        }
        assert_eq!(balance.uneven(), None);
    }
}
