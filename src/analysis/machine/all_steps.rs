//! CPUs that are saturated in all steps alike, so that there are no others to compare them with.

use super::{
    super::{
        finding::{Finding, FindingKind, Remedy, Saving, TimeRange},
        open_question::{OpenQuestion, QuestionKind},
        sorted::SortedMap,
        step_time::StepTime,
        vital_signs::VitalSign,
    },
    CONDITIONS, Condition, NEARLY_ALL, RANGES, STEPS, Side, comparable_steps, mean, signal,
};
use crate::{
    trace::{StackSample, Step, Trace},
    units,
};
use std::time::Duration;

/// The least part of a step without a CPU that is reported: interrupts and kernel threads take up to a hundredth on a
/// machine that is otherwise idle.
const LEAST_PREEMPTED: f64 = 0.02;
/// Part of a step by which the next run of the same program differs: that of other findings.
const NOISE: f64 = 0.02;
/// The part of busy CPUs from which on it is the process itself that keeps them busy.
const OWN: f64 = 0.8;

/// Finds steps whose thread is ready to run, but has no CPU, by its sampled stacks. With a GPU, that need not delay the
/// step, so nothing is said.
pub(super) fn preempted(trace: &Trace, steps: &[&Step]) -> Option<Finding> {
    let thread = trace.track(steps.first()?.track_id()).thread();
    let longest = StepTime::longest(steps.iter().map(|step| step.duration()));
    let steps: Vec<&Step> = steps.iter().copied().filter(|step| step.duration() <= longest).collect();
    if trace.work().len() > 0 || steps.len() < STEPS {
        return None;
    }
    let is_own = |sample: &StackSample<'_>| sample.is_preempted() && sample.track().thread() == thread;
    let mut waits: SortedMap<u64, Vec<StackSample<'_>>> = SortedMap::default();
    for sample in trace.stack_samples().filter(is_own) {
        // A thread without a CPU cannot end its step.
        let step = steps.partition_point(|step| step.start() <= sample.at()).checked_sub(1).map(|index| steps[index]);
        if let Some(step) = step.filter(|step| sample.at() < step.end()) {
            waits.or_default(step.number()).push(sample);
        }
    }
    let in_step = |step: &Step| -> Duration {
        waits.get(&step.number()).into_iter().flatten().map(|sample| sample.duration()).sum()
    };
    let times: Vec<f64> = steps.iter().map(|step| in_step(step).as_secs_f64()).collect();
    let (each, step) = (mean(&times), Side { steps: steps.clone(), values: Vec::new() }.mean().0);
    let squares: f64 = times.iter().map(|time| (time - each).powi(2)).sum();
    let error = (squares / (times.len() as f64 - 1.0).max(1.0) / times.len() as f64).sqrt();
    if each < LEAST_PREEMPTED * step || each <= 2.0 * error {
        return None;
    }
    let time = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let signs = CpuSigns::of(trace, &steps);
    // Its own threads have to run at some time.
    let least = if signs.is_own() { 0.0 } else { each - 2.0 * error - NOISE * step };
    let saving = Saving::new(time(least.max(0.0)), time(each), time((each + 2.0 * error + NOISE * step).min(step)));
    let kind = FindingKind::CpuSaturated;
    let count = waits.values().map(Vec::len).sum::<usize>();
    let mut evidence = vec![format!(
        "Others took its CPU {} times a step, by sampled stacks.",
        units::digits(count as f64 / steps.len() as f64)
    )];
    evidence.extend(signs.sentences());
    let ranges =
        waits.values().flatten().map(|sample| TimeRange::new(trace, sample.at(), sample.at() + sample.duration()));
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_by_key(|range| std::cmp::Reverse(range.duration()));
    ranges.truncate(RANGES);
    Some(Finding {
        kind,
        title: format!("the steps' thread is ready to run but has no CPU for {} of each step", units::time(time(each))),
        path: Vec::new(),
        location: None,
        evidence,
        ranges,
        remedies: vec![Remedy { change: kind.advice(trace.framework()).to_owned(), saving }],
        saving,
        step: time(step).max(Duration::from_nanos(1)),
        steps: steps.len() as u64,
        each: Some(time(each)),
    })
}

/// Returns what is not known of CPUs that are saturated in all steps alike; `None` if they are not, or if samples tell
/// for how long the steps' thread had no CPU.
pub(in crate::analysis) fn busy_machine(trace: &Trace) -> Option<OpenQuestion> {
    let steps = comparable_steps(trace);
    let condition = CONDITIONS.iter().find(|condition| condition.kind == FindingKind::CpuSaturated)?;
    let is_sampled = trace.stack_samples().any(StackSample::is_waiting);
    if is_sampled || steps.len() < STEPS || !is_in_nearly_all(trace, &steps, condition) {
        return None;
    }
    let signs = CpuSigns::of(trace, &steps);
    let (sign, percent) = signs.busiest.clone()?;
    let kind = QuestionKind::BusyMachine { sign, percent, own_cpus: signs.own_cpus };
    (!signs.is_own()).then(|| OpenQuestion { path: Vec::new(), place: String::new(), kind, each: Duration::ZERO })
}

/// Whether a condition is there in nearly all of the time of steps.
fn is_in_nearly_all(trace: &Trace, steps: &[&Step], condition: &Condition) -> bool {
    let mut signals = trace.counters().iter().filter_map(|counter| signal(counter, condition));
    signals.any(|signal| {
        let (known, above) = steps.iter().fold((0.0, 0.0), |(known, above), step| {
            let stretch = signal.stretch(step.start(), step.end());
            (known + stretch.known, above + stretch.above)
        });
        known > 0.0 && above >= NEARLY_ALL * known
    })
}

/// The vital signs of CPUs, on average over steps.
struct CpuSigns {
    /// The name and the percentage of the busiest of the machine and the container.
    busiest: Option<(String, f64)>,
    /// The part of the CPUs that it may use which the process keeps busy, in percent, and their number.
    own: Option<f64>,
    own_cpus: Option<f64>,
}

impl CpuSigns {
    fn of(trace: &Trace, steps: &[&Step]) -> Self {
        let sign = |name: &str| {
            let is_it =
                |counter: &&crate::trace::Counter| counter.name().strip_prefix(VitalSign::COUNTER) == Some(name);
            let signal = super::Signal { counter: trace.counters().iter().find(is_it)?, limit: 0.0 };
            let (known, sum) = steps.iter().fold((0.0, 0.0), |(known, sum), step| {
                let stretch = signal.stretch(step.start(), step.end());
                (known + stretch.known, sum + stretch.known * stretch.mean)
            });
            (known > 0.0).then(|| sum / known)
        };
        let busiest = ["container.cpu", "machine.cpu"].into_iter();
        let busiest = busiest.filter_map(|name| Some((name.to_owned(), sign(name)?)));
        Self {
            busiest: busiest.max_by(|one, other| one.1.total_cmp(&other.1)),
            own: sign("process.cpu"),
            own_cpus: sign("process.cpus"),
        }
    }

    /// Whether the process itself keeps the CPUs busy.
    fn is_own(&self) -> bool {
        self.busiest.as_ref().zip(self.own).is_some_and(|((_, all), own)| own >= OWN * all)
    }

    fn sentences(&self) -> Vec<String> {
        let Some((name, all)) = &self.busiest else { return Vec::new() };
        let own = match (self.own_cpus, self.is_own()) {
            (Some(cpus), true) => format!(" This process keeps {} CPUs busy: its own threads.", units::digits(cpus)),
            (Some(cpus), false) => format!(" This process keeps {} CPUs busy, others the rest.", units::digits(cpus)),
            (None, _) => String::new(),
        };
        vec![format!("`{name}` is {} on average in these steps.{own}", units::percent(*all))]
    }
}
