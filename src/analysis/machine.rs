//! Findings about the machine: what slowed some steps down and not the others, by the vital signs in the trace.
//!
//! A condition, such as CPUs that are saturated, is there in some readings. Steps within such readings are compared
//! with steps within readings that have none of it. Nothing is found if they take as long. If all steps are alike, such
//! a comparison says nothing; then samples of the steps' thread say for how long it had no CPU.

mod all_steps;

pub(super) use self::all_steps::busy_machine;

use super::{
    finding::{Finding, FindingKind, Remedy, Saving, TimeRange},
    sorted::{SortedMap, SortedSet},
    vital_signs::VitalSign,
};
use crate::{
    trace::{CallsiteId, Counter, Cut, Span, Step, StepId, Timestamp, Trace},
    units,
};
use std::time::Duration;

/// What a vital sign says about steps if it is above a value. Of several GPUs, any one is enough.
struct Condition {
    kind: FindingKind,
    /// The subject and the key of the sign. `gpu` is any GPU.
    signs: &'static [(&'static str, &'static str, f64)],
    /// What steps do, in words.
    during: &'static str,
    /// How far readings lag behind the condition.
    lag: ReadingLag,
}

/// How far readings lag behind a condition.
#[derive(Clone, Copy)]
struct ReadingLag {
    /// How long the first reading with the condition may take to appear.
    onset: Duration,
    /// How long readings still show the condition after it has ended.
    persists: Duration,
}

impl ReadingLag {
    /// Readings are of the time since the one before.
    const NONE: Self = Self { onset: Duration::ZERO, persists: Duration::ZERO };
    /// NVML's samples of processes: each counts for a second. The first ones of a new process came 0.1 to 1.5 s late on
    /// an H200, and in one training of many more than 2 s.
    const PROCESSES: Self = Self { onset: Duration::from_millis(1500), persists: Duration::from_secs(1) };
}

/// The rules. The values are chosen: of a CPU, what is commonly called saturated; of disks and of other processes, what
/// an idle machine has none of. Pressure has twice the limit of `iowait`, as a single thread can have all of it.
const CONDITIONS: [Condition; 5] = [
    Condition {
        kind: FindingKind::CpuSaturated,
        signs: &[("container", "cpu", 90.0), ("container", "cpu_throttled", 20.0), ("machine", "cpu", 90.0)],
        during: "while the CPUs are saturated",
        lag: ReadingLag::NONE,
    },
    Condition {
        kind: FindingKind::DiskWait,
        // One waiting thread is a small share of the time of many CPUs, but counts fully as pressure.
        signs: &[("machine", "iowait", 10.0), ("machine", "io_pressure", 20.0)],
        during: "while threads wait for a disk",
        lag: ReadingLag::NONE,
    },
    Condition {
        kind: FindingKind::Swapping,
        signs: &[("machine", "swap_in", 1e6), ("machine", "swap_out", 1e6)],
        during: "while the machine swaps",
        lag: ReadingLag::NONE,
    },
    Condition {
        kind: FindingKind::ClockThrottling,
        signs: &[("gpu", "thermal_throttle", 0.0), ("gpu", "power_throttle", 0.0), ("machine", "throttles", 0.0)],
        during: "while clocks are lowered because of temperature or power",
        lag: ReadingLag::NONE,
    },
    Condition {
        kind: FindingKind::SharedGpu,
        signs: &[("gpu", "other_processes", 5.0)],
        during: "while another process uses the GPU",
        lag: ReadingLag::PROCESSES,
    },
];

/// The fewest steps of each side, and the fewest readings that have the condition: fewer may differ by chance.
const STEPS: usize = 4;
const READINGS: usize = 2;
/// The part of a step's time that has to be within readings, and within those with the condition.
const MOST_OF: f64 = 0.5;
/// The part of the time after a step that has to be within readings, if they are late: the last one may be missing.
const NEARLY_ALL: f64 = 0.9;
/// The standard errors by which both sides have to differ. Five rules look at each window; a difference of three is by
/// chance in one of seven hundred.
const ERRORS: f64 = 3.0;
/// The least part of a step that a finding saves: that of other findings.
const LEAST_SHARE: f64 = 0.01;
/// The ranges that a finding keeps: as many as other findings do.
const RANGES: usize = 5;

/// A counter of vital signs in a window, with the value above which it has a condition.
struct Signal<'a> {
    counter: &'a Counter,
    limit: f64,
}

/// A stretch of time as readings show it.
#[derive(Clone, Copy, Default)]
struct Stretch {
    /// The nanoseconds that readings stand for, and those of readings with the condition.
    known: f64,
    above: f64,
    /// The mean value.
    mean: f64,
}

impl Signal<'_> {
    /// Returns what readings say of a stretch. A reading stands for the time since the one before.
    fn stretch(&self, start: Timestamp, end: Timestamp) -> Stretch {
        let samples = self.counter.samples();
        // The first reading that ends in the stretch or later.
        let first = samples.partition_point(|&(at, _)| at <= start).max(1);
        let (mut known, mut above, mut sum) = (0.0, 0.0, 0.0);
        for pair in samples.get(first - 1..).unwrap_or_default().windows(2) {
            let ((before, _), (at, value)) = (pair[0], pair[1]);
            if before >= end {
                break;
            }
            let nanos = at.min(end).since(before.max(start)).as_nanos() as f64;
            known += nanos;
            sum += nanos * value;
            above += if value > self.limit { nanos } else { 0.0 };
        }
        Stretch { known, above, mean: if known > 0.0 { sum / known } else { 0.0 } }
    }

    /// Returns the moments of readings with the condition.
    fn moments(&self) -> impl Iterator<Item = Timestamp> {
        let ends = self.counter.samples().iter().skip(1);
        ends.filter(|(_, value)| *value > self.limit).map(|(at, _)| *at)
    }
}

/// The steps of one side of a comparison.
#[derive(Default)]
struct Side<'a> {
    steps: Vec<&'a Step>,
    /// The mean value of the sign that says most, in each step.
    values: Vec<f64>,
}

impl Side<'_> {
    /// Returns the mean of the durations in seconds, and the variance of that mean.
    fn mean(&self) -> (f64, f64) {
        let times: Vec<f64> = self.steps.iter().map(|step| step.duration().as_secs_f64()).collect();
        let (mean, count) = (mean(&times), times.len() as f64);
        let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
        (mean, squares / (count - 1.0).max(1.0) / count.max(1.0))
    }
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}

/// Returns what slowed steps of a window down: a pure function of its steps, spans and vital signs.
pub(super) fn machine_findings(trace: &Trace) -> Vec<Finding> {
    let steps = comparable_steps(trace);
    let mut found: Vec<_> = CONDITIONS.iter().filter_map(|condition| finding(trace, &steps, condition)).collect();
    if found.iter().all(|finding| finding.kind != FindingKind::CpuSaturated) {
        found.extend(all_steps::preempted(trace, &steps));
    }
    found
}

/// Returns the whole steps that do the same work: those without spans that less than half of the steps have, such as an
/// evaluation, and without the first step of a run.
fn comparable_steps(trace: &Trace) -> Vec<&Step> {
    let mut seen: SortedMap<CallsiteId, SortedSet<StepId>> = SortedMap::default();
    let of_step = |span: Span<'_>| Some((span.callsite_id(), span.step_id()?));
    for (callsite, step) in trace.spans().filter_map(of_step) {
        seen.or_default(callsite).insert(step);
    }
    let mut special: SortedSet<StepId> = SortedSet::default();
    for step in seen.values().filter(|steps| 2 * steps.len() < trace.steps().len()).flat_map(|steps| steps.iter()) {
        special.insert(*step);
    }
    let all = trace.step_ids().zip(trace.steps());
    let whole = all.filter(|(id, step)| step.cut() == Cut::default() && step.number() > 0 && !special.contains(id));
    whole.map(|(_, step)| step).collect()
}

fn finding(trace: &Trace, steps: &[&Step], condition: &Condition) -> Option<Finding> {
    let signals: Vec<_> = trace.counters().iter().filter_map(|counter| signal(counter, condition)).collect();
    let moments: SortedSet<_> = signals.iter().flat_map(Signal::moments).collect();
    if moments.len() < READINGS {
        return None;
    }
    // The sign that says most, for the evidence.
    let worst = signals.iter().max_by_key(|signal| signal.moments().count())?;
    let (mut slowed, mut others) = (Side::default(), Side::default());
    let ReadingLag { onset, persists } = condition.lag;
    for &step in steps {
        let nanos = step.duration().as_nanos() as f64;
        let most = |part: fn(Stretch) -> f64, later: Duration, longer: Duration| {
            let stretch = |signal: &Signal<'_>| signal.stretch(step.start() + later, step.end() + later + longer);
            signals.iter().map(stretch).map(part).fold(0.0, f64::max)
        };
        let has_condition = |later| most(|stretch| stretch.above, later, Duration::ZERO) >= MOST_OF * nanos;
        let is_undisturbed = || {
            let least = MOST_OF * nanos + NEARLY_ALL * onset.as_nanos() as f64;
            most(|stretch| stretch.above, Duration::ZERO, onset) == 0.0
                && most(|stretch| stretch.known, Duration::ZERO, onset) >= least
        };
        let side = match has_condition(Duration::ZERO) {
            true if has_condition(persists) => &mut slowed,
            false if is_undisturbed() => &mut others,
            _ => continue,
        };
        side.steps.push(step);
        side.values.push(worst.stretch(step.start(), step.end()).mean);
    }
    if slowed.steps.len() < STEPS || others.steps.len() < STEPS {
        return None;
    }
    let ((long, long_variance), (short, short_variance)) = (slowed.mean(), others.mean());
    let (difference, error) = (long - short, (long_variance + short_variance).sqrt());
    let count = slowed.steps.len() + others.steps.len();
    let share = share_of_steps(&signals, steps, long, short);
    let step = short + share * difference;
    if difference <= ERRORS * error || share * difference < LEAST_SHARE * step {
        return None;
    }
    let time = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let saving = |errors: f64| time(share * (difference + errors * error));
    let saving = Saving::new(saving(-2.0), saving(0.0), saving(2.0).min(time(step)));
    let Condition { kind, during, .. } = *condition;
    let value = |side: &Side<'_>| format_value(worst.counter, mean(&side.values));
    let name = worst.counter.name().strip_prefix(VitalSign::COUNTER).unwrap_or_default();
    let mut ranges: Vec<_> = slowed.steps.iter().map(|step| TimeRange::new(trace, step.start(), step.end())).collect();
    ranges.sort_by_key(|range| std::cmp::Reverse(range.duration()));
    ranges.truncate(RANGES);
    Some(Finding {
        kind,
        title: format!(
            "{} of {count} steps take {} longer {during}",
            slowed.steps.len(),
            units::time(time(difference))
        ),
        path: Vec::new(),
        location: None,
        evidence: vec![
            format!("They take {} on average, the others {}.", units::time(time(long)), units::time(time(short))),
            format!("`{name}` is {} in these steps, {} in the others.", value(&slowed), value(&others)),
        ],
        ranges,
        remedies: vec![Remedy { change: kind.advice(trace.framework()).to_owned(), saving }],
        saving,
        step: time(step).max(Duration::from_nanos(1)),
        steps: count as u64,
        each: None,
    })
}

/// Returns the share of steps that the condition slows down. It follows from the time of all steps with the condition,
/// as steps at its edges are on neither side, and from how many steps of each kind fit into that time.
fn share_of_steps(signals: &[Signal<'_>], steps: &[&Step], long: f64, short: f64) -> f64 {
    let of = |signal: &Signal<'_>| {
        steps.iter().fold((0.0, 0.0), |(known, above), step| {
            let stretch = signal.stretch(step.start(), step.end());
            (known + stretch.known, above + stretch.above)
        })
    };
    let all = signals.iter().map(of).max_by(|one, other| one.1.total_cmp(&other.1));
    let Some((known, above)) = all else { return 0.0 };
    let (with, without) = (above / long, (known - above) / short);
    with / (with + without)
}

/// Returns the counter, if it is of a sign that the condition is about.
fn signal<'a>(counter: &'a Counter, condition: &Condition) -> Option<Signal<'a>> {
    let (subject, key) = counter.name().strip_prefix(VitalSign::COUNTER)?.split_once('.')?;
    let is_it = |of: &str| subject == of || of == "gpu" && subject.starts_with("gpu");
    let (.., limit) = condition.signs.iter().find(|(of, sign, _)| is_it(of) && *sign == key)?;
    Some(Signal { counter, limit: *limit })
}

fn format_value(counter: &Counter, value: f64) -> String {
    let key = counter.name().rsplit('.').next().unwrap_or_default();
    match key {
        "swap_in" | "swap_out" => units::bandwidth(value),
        "throttles" => format!("{}/s", units::digits(value)),
        _ => units::percent(value),
    }
}

#[cfg(test)]
mod tests;
