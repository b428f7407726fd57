//! Findings about the machine: what slowed some steps down and not the others, by the vital signs in the trace.
//!
//! A condition, such as CPUs that are saturated, is there in some readings. Steps within such readings are compared
//! with steps within readings that have none of it. Nothing is found if they take as long, or if all steps are alike.

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
    late: Late,
}

/// How long readings still show a condition after it has ended, and how late they may start to.
#[derive(Clone, Copy)]
struct Late {
    over: Duration,
    begins: Duration,
}

impl Late {
    /// Readings are of the time since the one before.
    const NONE: Self = Self { over: Duration::ZERO, begins: Duration::ZERO };
    /// NVML's samples of processes: each counts for a second, and the first ones came 0.1 to 1.5 s late on an H200.
    const PROCESSES: Self = Self { over: Duration::from_secs(1), begins: Duration::from_millis(1500) };
}

/// The rules. The values are chosen: of a CPU, what is commonly called saturated; of disks and of other processes, what
/// an idle machine has none of.
const CONDITIONS: [Condition; 5] = [
    Condition {
        kind: FindingKind::CpuSaturated,
        signs: &[("container", "cpu", 90.0), ("container", "cpu_throttled", 20.0), ("machine", "cpu", 90.0)],
        during: "while the CPUs are saturated",
        late: Late::NONE,
    },
    Condition {
        kind: FindingKind::DiskWait,
        // One waiting thread is a small share of the time of many CPUs, but counts fully as pressure.
        signs: &[("machine", "iowait", 10.0), ("machine", "io_pressure", 20.0)],
        during: "while threads wait for a disk",
        late: Late::NONE,
    },
    Condition {
        kind: FindingKind::Swapping,
        signs: &[("machine", "swap_in", 1e6), ("machine", "swap_out", 1e6)],
        during: "while the machine swaps",
        late: Late::NONE,
    },
    Condition {
        kind: FindingKind::ClockThrottling,
        signs: &[("gpu", "thermal_throttle", 0.0), ("gpu", "power_throttle", 0.0), ("machine", "throttles", 0.0)],
        during: "while clocks are lowered because of temperature or power",
        late: Late::NONE,
    },
    Condition {
        kind: FindingKind::SharedGpu,
        signs: &[("gpu", "other_processes", 5.0)],
        during: "while another process uses the GPU",
        late: Late::PROCESSES,
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

/// What readings say of a stretch of time.
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
    fn over(&self, start: Timestamp, end: Timestamp) -> Stretch {
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
    CONDITIONS.iter().filter_map(|condition| finding(trace, &steps, condition)).collect()
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
    let Late { over, begins } = condition.late;
    for &step in steps {
        let nanos = step.duration().as_nanos() as f64;
        let most = |part: fn(Stretch) -> f64, later: Duration, longer: Duration| {
            let stretch = |signal: &Signal<'_>| signal.over(step.start() + later, step.end() + later + longer);
            signals.iter().map(stretch).map(part).fold(0.0, f64::max)
        };
        let above = |later| most(|stretch| stretch.above, later, Duration::ZERO) >= MOST_OF * nanos;
        let never = || {
            let least = MOST_OF * nanos + NEARLY_ALL * begins.as_nanos() as f64;
            most(|stretch| stretch.above, Duration::ZERO, begins) == 0.0
                && most(|stretch| stretch.known, Duration::ZERO, begins) >= least
        };
        let side = match above(Duration::ZERO) {
            true if above(over) => &mut slowed,
            false if never() => &mut others,
            _ => continue,
        };
        side.steps.push(step);
        side.values.push(worst.over(step.start(), step.end()).mean);
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
    })
}

/// Returns the share of steps that the condition slows down. It follows from the time of all steps with the condition,
/// as steps at its edges are on neither side, and from how many steps of each kind fit into that time.
fn share_of_steps(signals: &[Signal<'_>], steps: &[&Step], long: f64, short: f64) -> f64 {
    let of = |signal: &Signal<'_>| {
        steps.iter().fold((0.0, 0.0), |(known, above), step| {
            let stretch = signal.over(step.start(), step.end());
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
mod tests {
    use super::machine_findings;
    use crate::{
        analysis::{Analysis, Finding, FindingKind},
        trace::{
            Trace,
            sample::{HostTrace, add_counter, at},
        },
    };
    use std::time::Duration;

    const MILLI: u64 = 1000;

    /// Returns forty steps of about 10 ms, in a window with readings every 20 ms of a sign. It is `high` in readings 5
    /// to 9, and steps in these take so much longer.
    fn trace(sign: &str, [low, high]: [f64; 2], longer: u64) -> Trace {
        let mut host = HostTrace::default();
        let (mut now, mut ends) = (0, Vec::new());
        for step in 0..40 {
            let is_slow = (10..20).contains(&step);
            // Steps are never quite alike.
            let micros = 10 * MILLI + step % 3 * 100 + if is_slow { longer } else { 0 };
            host.step(micros).span(0, "train_step", 0, micros - 10);
            now += micros;
            if step % 2 == 1 {
                ends.push((now, if is_slow { high } else { low }));
            }
        }
        let mut trace = host.trace();
        let readings = [(0, low)].into_iter().chain(ends).map(|(micros, value)| (at(micros), value));
        add_counter(&mut trace, &format!("vitals.{sign}"), &readings.collect::<Vec<_>>());
        trace
    }

    fn only(trace: &Trace) -> Finding {
        let mut found = machine_findings(trace);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn steps_that_a_condition_slows_down_are_compared_with_the_others() {
        let finding = only(&trace("machine.cpu", [35.0, 97.0], 4 * MILLI));
        assert_eq!(finding.kind, FindingKind::CpuSaturated);
        assert_eq!(finding.title, "10 of 40 steps take 4.00 ms longer while the CPUs are saturated");
        let expected = [
            "They take 14.1 ms on average, the others 10.1 ms.",
            "`machine.cpu` is 97.00% in these steps, 35.00% in the others.",
        ];
        assert_eq!(finding.evidence, expected);
        // A quarter of the steps.
        let micros = |time: Duration| time.as_micros();
        assert!((950..1050).contains(&micros(finding.saving.likely)), "{:?}", finding.saving);
        assert!(finding.saving.least < finding.saving.likely && finding.saving.likely < finding.saving.most);
        assert!((11_050..11_150).contains(&micros(finding.step)), "{:?}", finding.step);
        assert_eq!((finding.steps, finding.ranges.len()), (40, 5));
        assert!(finding.ranges.iter().all(|range| (20..30).contains(&range.step.unwrap())), "{:?}", finding.ranges);
    }

    #[test]
    fn each_condition_has_its_kind() {
        let cases = [
            ("container.cpu_throttled", 50.0, FindingKind::CpuSaturated),
            ("machine.iowait", 30.0, FindingKind::DiskWait),
            ("machine.io_pressure", 60.0, FindingKind::DiskWait),
            ("machine.swap_in", 50e6, FindingKind::Swapping),
            ("gpu0.thermal_throttle", 100.0, FindingKind::ClockThrottling),
            ("gpu3.power_throttle", 100.0, FindingKind::ClockThrottling),
        ];
        for (sign, high, kind) in cases {
            let trace = trace(sign, [0.0, high], 4 * MILLI);
            assert_eq!(only(&trace).kind, kind, "{sign}");
            // It is among those of the window.
            assert!(Analysis::of(&trace).findings().iter().any(|finding| finding.kind == kind), "{sign}");
        }
        assert_eq!(machine_findings(&trace("gpu0.power", [100.0, 700.0], 4 * MILLI)), []);
    }

    /// Returns sixty steps of 200 ms, of which those in the seconds 4 to 8 take `longer` milliseconds more. Readings,
    /// ten a second, have the condition from `begins` to `over`.
    fn late_trace(longer: u64, [begins, over]: [f64; 2]) -> Trace {
        let mut host = HostTrace::default();
        let mut now = 0;
        for step in 0..60_u64 {
            let is_slow = (4_000..8_000).contains(&now);
            let millis = 200 + step % 3 + if is_slow { longer } else { 0 };
            host.step(MILLI * millis).span(0, "train_step", 0, MILLI * millis - 10);
            now += millis;
        }
        let mut trace = host.trace();
        let readings = (0..=now / 100).map(|index| {
            let second = index as f64 / 10.0;
            (at(index * 100 * MILLI), if second > begins && second <= over { 90.0 } else { 0.0 })
        });
        add_counter(&mut trace, "vitals.gpu1.other_processes", &readings.collect::<Vec<_>>());
        trace
    }

    #[test]
    fn late_readings_of_other_processes_are_allowed_for() {
        // Another process that does nothing more, and one that has ended.
        for (begins, over) in [(4.1, 9.0), (5.4, 9.0), (4.4, 8.0)] {
            let finding = only(&late_trace(100, [begins, over]));
            assert_eq!(finding.kind, FindingKind::SharedGpu);
            let (title, saving) = (&finding.title, finding.saving.likely.as_secs_f64() * 1e3);
            assert!(title.contains("steps take 100 ms longer"), "{title}");
            // 13 or 14 of 60 steps: 23 ms.
            assert!((19.0..31.0).contains(&saving), "{begins} to {over}: {saving}");
        }
        assert_eq!(machine_findings(&late_trace(0, [5.4, 9.0])), []);
    }

    #[test]
    fn without_a_slowdown_nothing_is_said() {
        // Just as fast; faster; all steps alike; the condition never there.
        for (signs, longer) in [([35.0, 97.0], 0), ([95.0, 97.0], 4 * MILLI), ([35.0, 40.0], 4 * MILLI)] {
            assert_eq!(machine_findings(&trace("machine.cpu", signs, longer)), [], "{signs:?}");
        }
        let mut faster = trace("machine.cpu", [97.0, 35.0], 4 * MILLI);
        assert_eq!(machine_findings(&faster), []);
        faster.steps.clear();
        assert_eq!(machine_findings(&faster), []);
    }

    #[test]
    fn steps_that_do_other_work_are_not_compared() {
        let mut host = HostTrace::default();
        let mut readings = vec![(at(0), 0.0)];
        for step in 0..40 {
            let evaluates = step % 4 == 3;
            let micros = if evaluates { 30 * MILLI } else { 10 * MILLI + step % 3 * 100 };
            host.step(micros).span(0, if evaluates { "evaluate" } else { "train_step" }, 0, micros - 10);
            let end = readings.last().unwrap().0 + Duration::from_micros(micros);
            readings.push((end, if evaluates { 50.0 } else { 0.0 }));
        }
        let mut trace = host.trace();
        add_counter(&mut trace, "vitals.machine.iowait", &readings);
        // An evaluation reads its data, and takes longer anyway.
        assert_eq!(machine_findings(&trace), []);
    }

    #[test]
    fn few_readings_and_noise_are_not_enough() {
        // One reading with the condition.
        let mut once = trace("machine.iowait", [0.0, 0.0], 0);
        let samples: Vec<_> =
            (0..=40).map(|index| (at(index * 10_100), if index == 12 { 50.0 } else { 0.0 })).collect();
        once.counters.clear();
        add_counter(&mut once, "vitals.machine.iowait", &samples);
        assert_eq!(machine_findings(&once), []);
        // Steps that differ by more than the condition makes them.
        let mut host = HostTrace::default();
        let mut readings = vec![(at(0), 0.0)];
        for step in 0..40_u64 {
            let micros = 5 * MILLI + (step * 7_919) % (10 * MILLI);
            host.step(micros).span(0, "train_step", 0, 10);
            let end = readings.last().unwrap().0 + Duration::from_micros(micros);
            readings.push((end, if step % 2 == 0 { 50.0 } else { 0.0 }));
        }
        let mut noisy = host.trace();
        add_counter(&mut noisy, "vitals.machine.iowait", &readings);
        assert_eq!(machine_findings(&noisy), []);
    }
}
