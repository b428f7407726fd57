//! The comparison of two baselines: the step, spans, counts, kernels, memory and findings.
//!
//! [`Comparison`] contains all of it. [`KernelTimes`] compares what baselines lack, the times of kernels.

mod drift;
mod estimate;
mod explanation;
mod kernels;
mod sample;
mod spans;
pub mod text;
mod time_change;

pub use self::{
    drift::Drift,
    estimate::Estimate,
    explanation::Explanation,
    kernels::{KernelChange, KernelShapeChange, KernelTimeChange, KernelTimes, KernelUse},
    spans::{Presence, SpanChange},
    time_change::{MoreData, Outcome, TimeChange},
};
pub use crate::counts::CountChange;

#[cfg(test)]
pub(crate) use self::sample::Random;

use self::{
    drift::Factors,
    estimate::Noise,
    sample::{Sample, quantile},
    spans::{Alignment, Tables},
};
use crate::{
    baseline::{Baseline, BaselineFinding, BaselineRun, BaselineSpan, Machine, Times},
    counts::CountKind,
};
use kernspan::report::units;
use serde::Serialize;
use std::{collections::BTreeSet, fmt};

/// A comparison of the runs before with the runs after: what has changed, by how much, and what explains it.
///
/// Counts are compared exactly. Times are means over runs of their typical steps, the middle half by duration, adjusted
/// for the [`Drift`] that all spans have in common. As all are means over the same steps, the change of a span is the
/// sum of its own and those of the spans in it. The 99 % interval is that of the logarithm of their ratio, from the
/// spread between runs, so that no time gets shorter by more than 100 %. With one run on a side, a spread of 5 %
/// between runs is assumed; with fewer than five steps, one of 10 % between steps. The same input gives the same
/// result, whatever the order of runs.
///
/// ```
/// # fn example(yesterday: &[kernspan::Trace], today: &[kernspan::Trace]) {
/// use kernspan_check::{Baseline, Comparison};
///
/// let comparison = Comparison::of(&Baseline::of(yesterday), &Baseline::of(today));
/// for explanation in comparison.explanations().iter().take(3) {
///     println!("{explanation}");
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// The side before.
    pub before: SideSummary,
    /// The side after.
    pub after: SideSummary,
    /// Differences that make the comparison harder: different machines, programs or versions, lost records.
    pub notes: Vec<String>,
    /// Whether times can be compared: the machines are alike.
    pub are_times_comparable: bool,
    /// How much longer everything took on the host.
    pub drift: Drift,
    /// How much longer everything took on GPUs.
    pub gpu_drift: Drift,
    /// The duration of a step. Its `change` is that of the sum of the self times of spans, without the drift.
    pub step: TimeChange,
    /// The duration of a step as it is, with the drift in its `change`.
    pub whole_step: TimeChange,
    /// The counts of the whole step that have changed.
    pub counts: Vec<CountChange>,
    /// The spans of each path, in tree order.
    pub spans: Vec<SpanChange>,
    /// The kernels whose launches or blocks have changed.
    pub kernels: Vec<KernelChange>,
    /// The memory peak of each GPU.
    pub memory: Vec<PeakChange>,
    /// Findings that were not there before.
    pub new_findings: Vec<BaselineFinding>,
    /// Findings that are no longer there.
    pub gone_findings: Vec<BaselineFinding>,
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SideSummary {
    /// The number of runs.
    pub runs: u64,
    /// The number of whole steps recorded.
    pub steps: u64,
    /// The names of the programs.
    pub programs: Vec<String>,
    /// The machines.
    pub machines: Vec<Machine>,
    /// The version of kernspan.
    pub kernspan: String,
}

/// The peak memory of a GPU before and after, in bytes: the median over runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PeakChange {
    /// The number of the GPU.
    pub device: u32,
    /// Bytes before.
    pub before: u64,
    /// Bytes after.
    pub after: u64,
}

impl Comparison {
    /// Compares two baselines.
    pub fn of(before: &Baseline, after: &Baseline) -> Self {
        let alignment = Alignment::of(before, after);
        let steps = [0, 1].map(|side| alignment.durations(side));
        let [one, other] = &steps;
        let runs = [&alignment.runs[0], &alignment.runs[1]];
        let in_turns = are_in_turns(runs[0], runs[1]);
        let times = |times: fn(&BaselineSpan) -> &Times| [0, 1].map(|side| alignment.matrix(side, times));
        let [host_times, gpu_times] = [times(|span| &span.host), times(|span| &span.gpu)];
        let host = Factors::of([&host_times[0], &host_times[1]], [one, other], in_turns);
        let gpu = Factors::of([&gpu_times[0], &gpu_times[1]], [one, other], in_turns);
        let gpu = gpu.limited_to(Factors::GPU_CLOCKS, [one, other]);
        let tables = Tables::new(&alignment, host_times, gpu_times, [&host, &gpu]);
        let spans = SpanChange::all(&alignment, &tables);
        let count = |side: usize, kind: CountKind| runs[side].iter().map(move |run| run.count(kind));
        let kinds = alignment.kinds().filter_map(|kind| CountChange::of(kind, count(0, kind), count(1, kind)));
        let counts: Vec<_> = kinds.collect();
        let change = |adjusted: [Vec<Vec<f64>>; 2], noise: Noise| {
            let raw = steps.each_ref().map(|side| Sample::new(side.iter().cloned()));
            let change = TimeChange::new(raw, adjusted.map(Sample::new), noise);
            change.of_step().with_work(CountChange::work(&counts))
        };
        let whole_step = change(steps.clone(), Noise::default());
        let [new_findings, gone_findings] = [(after, before), (before, after)].map(|(these, those)| {
            let is_known = |it: &BaselineFinding| those.findings.iter().any(|that| it.is_same(that));
            these.findings.iter().filter(|it| !is_known(it)).cloned().collect()
        });
        let sides = [SideSummary::of(before), SideSummary::of(after)];
        let are_times_comparable =
            sides[0].machines.iter().all(|one| sides[1].machines.iter().all(|it| one.is_like(it)));
        let mut notes = notes(&sides, are_times_comparable, runs);
        notes.extend(behind(&spans, &whole_step));
        let [summary_before, summary_after] = sides;
        Self {
            before: summary_before,
            after: summary_after,
            notes,
            are_times_comparable,
            drift: host.drift(),
            gpu_drift: gpu.drift(),
            step: if host.is_known() { change(tables.host.sums(), host.noise) } else { whole_step },
            whole_step,
            counts,
            spans,
            kernels: KernelChange::all(runs[0], runs[1]),
            memory: peaks(runs[0], runs[1]),
            new_findings,
            gone_findings,
        }
    }

    /// Returns what explains the change in the step: changes in self times on the critical path, largest first.
    ///
    /// Those in the direction of the step's change come first, then those against it.
    pub fn explanations(&self) -> Vec<Explanation> {
        let (before, step) = match critical_step(&self.spans) {
            // If the host waits for a GPU that has become faster, all its spans take less time, which looks like a
            // drift.
            Some([before, after]) => (before.max(self.step.before.value), after - before),
            None => (self.step.before.value, self.step.change.value),
        };
        Explanation::all(&self.spans, before, step)
    }

    /// Returns a change in percent of the step before.
    pub fn percent_of_step(&self, nanos: f64) -> f64 {
        if self.step.before.value > 0.0 { 100.0 * nanos / self.step.before.value } else { 0.0 }
    }

    /// Returns whether a time has changed by more than a fraction of the step, such as `0.01`.
    pub fn outcome(&self, time: &TimeChange, part: f64) -> Outcome {
        match self.are_times_comparable {
            true => time.outcome(part * self.step.before.value),
            false => Outcome::NotCompared,
        }
    }
}

impl SideSummary {
    fn of(side: &Baseline) -> Self {
        let mut machines: Vec<Machine> = Vec::new();
        for run in &side.runs {
            if !machines.contains(&run.machine) {
                machines.push(run.machine.clone());
            }
        }
        let programs: BTreeSet<_> = side.runs.iter().map(|run| run.program.clone()).collect();
        Self {
            runs: side.runs.len() as u64,
            steps: side.steps(),
            programs: programs.into_iter().collect(),
            machines,
            kernspan: side.kernspan.clone(),
        }
    }
}

/// Returns the time of a step on the critical path before and after, split into the host's and the GPU's part. `None`
/// without GPU activity, and in baselines of older versions.
fn critical_step(spans: &[SpanChange]) -> Option<[f64; 2]> {
    let parts = || spans.iter().flat_map(|span| [&span.exposed_host, &span.exposed_gpu]);
    let sides = [parts().map(|part| part.before.value).sum(), parts().map(|part| part.after.value).sum()];
    sides.iter().all(|&side: &f64| side > 0.0).then_some(sides)
}

/// Notes that the host runs ahead of the GPU, so that its steps are shorter than those of the GPU: in a short window,
/// nothing makes it wait.
fn behind(spans: &[SpanChange], step: &TimeChange) -> Option<String> {
    // The host runs ahead by a little in any window whose last step does not wait. A fifth of the step is notable.
    const NOTABLE: f64 = 1.2;
    let [before, after] = critical_step(spans)?;
    let is_behind = before > NOTABLE * step.before.value || after > NOTABLE * step.after.value;
    let [before, after] = [before, after].map(text::time);
    is_behind.then(|| format!("the host runs ahead of the GPU, on which a step takes {before} before, {after} after"))
}

/// Returns whether some run of each side began after one of the other side.
fn are_in_turns(before: &[&BaselineRun], after: &[&BaselineRun]) -> bool {
    let ends = |runs: &[&BaselineRun]| {
        let starts = || runs.iter().map(|run| run.start);
        Some((starts().min()?, starts().max()?))
    };
    match (ends(before), ends(after)) {
        (Some(before), Some(after)) => before.1 > after.0 && after.1 > before.0,
        _ => false,
    }
}

fn notes(sides: &[SideSummary; 2], are_alike: bool, all: [&Vec<&BaselineRun>; 2]) -> Vec<String> {
    let mut notes = Vec::new();
    let [before, after] = sides;
    for (side, runs) in ["before", "after"].iter().zip(all) {
        if runs.is_empty() {
            notes.push(format!("no whole step was recorded {side}"));
        }
        let has_heap = |runs: &[&BaselineRun]| runs.iter().any(|run| run.heap);
        let has_no_heap = |runs: &[&BaselineRun]| runs.iter().any(|run| !run.heap);
        if has_no_heap(runs) && all.iter().any(|runs| has_heap(runs)) {
            notes.push(format!("heap allocations are not compared: they were not recorded in all runs {side}"));
        }
        let lost = runs.iter().fold(0_u64, |sum, run| sum.saturating_add(run.lost));
        if lost > 0 {
            notes.push(format!("{lost} records were lost {side}, so counts may be too low"));
        }
    }
    if before.programs != after.programs {
        notes.push(format!(
            "different programs: {} before, {} after",
            before.programs.join(", "),
            after.programs.join(", ")
        ));
    }
    if !are_alike {
        let names = |side: &SideSummary| side.machines.iter().map(Machine::to_string).collect::<Vec<_>>().join(", ");
        notes.push(format!(
            "different machines, so times are not compared: {} before, {} after",
            names(before),
            names(after)
        ));
    }
    if before.kernspan != after.kernspan {
        notes.push(format!("different versions of kernspan: {} before, {} after", before.kernspan, after.kernspan));
    }
    notes
}

fn peaks(before: &[&BaselineRun], after: &[&BaselineRun]) -> Vec<PeakChange> {
    let devices: BTreeSet<u32> = before.iter().chain(after).flat_map(|run| run.peaks.keys().copied()).collect();
    let median = |runs: &[&BaselineRun], device: u32| {
        let mut peaks: Vec<_> = runs.iter().filter_map(|run| Some(*run.peaks.get(&device)? as f64)).collect();
        peaks.sort_unstable_by(f64::total_cmp);
        quantile(&peaks, 0.5).round() as u64
    };
    let change = |device| PeakChange { device, before: median(before, device), after: median(after, device) };
    devices.into_iter().map(change).collect()
}

impl fmt::Display for PeakChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, before, after } = *self;
        let percent = text::percent(after as f64 - before as f64, before as f64);
        write!(
            f,
            "peak memory of GPU {device}: {} instead of {} ({percent})",
            units::bytes(after),
            units::bytes(before)
        )
    }
}

impl fmt::Display for Comparison {
    /// Writes the step, what explains its change, and the counts that have changed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, whole_step, .. } = self;
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))?;
        let (before, after) = (step.before.value, step.after.value);
        write!(f, "step: {} before, {} after", text::time(before), text::time(after))?;
        writeln!(f, " ({})", text::percent(whole_step.change.value, before))?;
        for explanation in self.explanations().iter().take(5) {
            writeln!(f, "{explanation}")?;
        }
        self.counts.iter().try_for_each(|count| writeln!(f, "{count}"))?;
        let peaks = self.memory.iter().filter(|peak| peak.before != peak.after);
        peaks.into_iter().try_for_each(|peak| writeln!(f, "{peak}"))
    }
}

#[cfg(test)]
mod tests;
