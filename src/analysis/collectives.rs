//! Time in which ranks exchange data, and nothing else runs on the GPU.

use super::{
    finding::{Finding, FindingKind, Remedy, Saving, TimeRange},
    intervals::{Interval, Intervals},
    kinds::WorkKind,
    sorted::SortedMap,
};
use crate::{
    trace::{CallsiteId, DeviceId, Span, Step, Trace, Work},
    units::time,
};
use std::{cmp::Reverse, time::Duration};

/// A finding saves at least this part of a step, as those of [`Analysis::findings`](super::Analysis::findings) do.
const LEAST_SHARE: f64 = 0.01;
/// The times to look at that a finding keeps.
const RANGES: usize = 5;
/// The kernels that the evidence names.
const NAMES: usize = 3;

/// The kernels of one GPU.
#[derive(Default)]
struct DeviceKernels<'a> {
    collectives: Vec<Work<'a>>,
    computing: Vec<Interval>,
    /// Those of them that the backward pass has launched.
    backward: Vec<Interval>,
}

/// What a GPU exchanges in the whole steps of a window.
struct Exchange<'a> {
    /// The time in which any collective runs.
    all: Duration,
    /// The part of it in which no kernel computes.
    exposed: Duration,
    /// The time in which kernels compute that could hide collectives, and do not yet.
    room: Duration,
    /// Collectives, and the time of each in which no kernel computes.
    collectives: Vec<(Work<'a>, Duration)>,
}

/// Returns the finding that collectives run while no other kernel does.
///
/// On a rank that waits for others, that includes its waiting: collectives of all ranks end together. So if the traces
/// of several ranks are there, the rank with the least such time has the one that data takes.
pub(crate) fn exposed_collective(trace: &Trace) -> Option<Finding> {
    let whole = trace.steps().iter().filter(|step| !step.cut().any());
    let durations: Vec<_> = whole.map(Step::duration).collect();
    let steps = u32::try_from(durations.len()).ok().filter(|&steps| steps > 0)?;
    let step = durations.iter().sum::<Duration>() / steps;
    let exchange = exchanges(trace).max_by_key(|exchange| exchange.exposed)?;
    let (exposed, room) = (exchange.exposed / steps, exchange.room / steps);
    let saving = Saving::new(Duration::ZERO, exposed.min(room), exposed.min(step));
    if saving.likely.as_secs_f64() < LEAST_SHARE * step.as_secs_f64() {
        return None;
    }
    let mut longest = exchange.collectives.clone();
    longest.sort_by_key(|(_, exposed)| Reverse(*exposed));
    let span = place(&longest);
    let within = span.map_or_else(String::new, |span| format!(", mostly in `{}`", span.name()));
    let kind = FindingKind::ExposedCollective;
    Some(Finding {
        kind,
        title: format!("ranks exchange data for {} of each step while no other kernel runs{within}", time(exposed)),
        path: span.map(path_of).unwrap_or_default(),
        location: span.and_then(|span| span.callsite().location()),
        evidence: evidence(&exchange, exposed, room, steps),
        ranges: longest.iter().take(RANGES).map(|(it, _)| TimeRange::new(trace, it.start(), it.end())).collect(),
        remedies: vec![Remedy { change: kind.advice(trace.framework()).to_owned(), saving }],
        saving,
        step: step.max(Duration::from_nanos(1)),
        steps: u64::from(steps),
        each: None,
    })
}

/// Returns what each GPU with collectives exchanges.
fn exchanges(trace: &Trace) -> impl Iterator<Item = Exchange<'_>> {
    let is_backward = backward_spans(trace);
    let mut gpus: SortedMap<DeviceId, DeviceKernels<'_>> = SortedMap::default();
    for work in trace.work() {
        let kernels = gpus.or_default(work.stream().device());
        match WorkKind::of(work) {
            WorkKind::Communication => kernels.collectives.push(work),
            WorkKind::Compute => {
                kernels.computing.push(interval(work));
                if work.span().is_some_and(|span| is_backward[span.id().index()]) {
                    kernels.backward.push(interval(work));
                }
            }
            WorkKind::Memory => {}
        }
    }
    let of_gpu = |kernels| Exchange::of(trace, kernels);
    gpus.into_values().filter(|kernels| !kernels.collectives.is_empty()).map(of_gpu)
}

impl<'a> Exchange<'a> {
    fn of(trace: &'a Trace, DeviceKernels { collectives, computing, backward }: DeviceKernels<'a>) -> Self {
        let hiding = if backward.is_empty() { computing.clone() } else { backward };
        let [computing, hiding] = [computing, hiding].map(Intervals::new);
        let exchanging = Intervals::new(collectives.iter().map(|&work| interval(work)).collect());
        let (mut all, mut exposed, mut room) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        for step in trace.steps().iter().filter(|step| !step.cut().any()) {
            all += exchanging.covered(step.start(), step.end());
            room += hiding.covered(step.start(), step.end());
            for busy in exchanging.between(step.start(), step.end()) {
                let (start, end) = (busy.start, busy.end);
                exposed += end.since(start).saturating_sub(computing.covered(start, end));
                room = room.saturating_sub(hiding.covered(start, end));
            }
        }
        let own = |work: Work<'_>| work.duration().saturating_sub(computing.covered(work.start(), work.end()));
        let of_steps = collectives.into_iter().filter(|work| work.step().is_some_and(|step| !step.cut().any()));
        Self { all, exposed, room, collectives: of_steps.map(|work| (work, own(work))).collect() }
    }
}

/// Returns which spans are, or are in, one of a backward pass. A parent comes before its children.
fn backward_spans(trace: &Trace) -> Vec<bool> {
    let mut is_backward: Vec<bool> = Vec::with_capacity(trace.spans().len());
    for span in trace.spans() {
        let around = span.parent().is_some_and(|parent| is_backward.get(parent.id().index()) == Some(&true));
        // PyTorch: `autograd::engine::evaluate_function: MulBackward0`.
        is_backward.push(around || span.name().contains("backward") || span.name().contains("Backward"));
    }
    is_backward
}

fn interval(work: Work<'_>) -> Interval {
    Interval { start: work.start(), end: work.end(), requested: None }
}

/// Returns a span of the place whose collectives are exposed for the longest.
fn place<'a>(collectives: &[(Work<'a>, Duration)]) -> Option<Span<'a>> {
    let mut places: SortedMap<CallsiteId, (Duration, Span<'a>)> = SortedMap::default();
    for &(work, exposed) in collectives {
        let Some(span) = work.span() else { continue };
        places.or_insert_with(span.callsite_id(), || (Duration::ZERO, span)).0 += exposed;
    }
    places.into_values().max_by_key(|(exposed, _)| *exposed).map(|(_, span)| span)
}

pub(super) fn path_of(span: Span<'_>) -> Vec<String> {
    /// The most names of a path, the innermost ones, since recursion may be deep.
    const DEPTH: usize = 200;
    let mut path: Vec<_> = span.stack().take(DEPTH).map(|span| span.name().to_owned()).collect();
    path.reverse();
    path
}

fn evidence(exchange: &Exchange<'_>, exposed: Duration, room: Duration, steps: u32) -> Vec<String> {
    let all = exchange.all / steps;
    let mut evidence = vec![
        format!("Collectives run for {} of a step, {} of it while no other kernel does.", time(all), time(exposed)),
        format!("Kernels that could run meanwhile take {} of a step.", time(room)),
    ];
    let mut names: SortedMap<&str, Duration> = SortedMap::default();
    for (work, exposed) in &exchange.collectives {
        let name = work.kernel().map_or("", |kernel| &*kernel.name);
        *names.or_default(name.split('(').next().unwrap_or(name)) += *exposed;
    }
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_by_key(|&(name, exposed)| (Reverse(exposed), name));
    evidence.extend(names.iter().take(NAMES).map(|(name, exposed)| format!("`{name}`: {}.", time(*exposed / steps))));
    evidence
}

#[cfg(test)]
mod tests {
    use super::exposed_collective;
    use crate::{
        analysis::FindingKind,
        trace::{
            Detail,
            sample::{gpu_trace, ranks},
        },
    };
    use std::time::Duration;

    #[test]
    fn collectives_that_nothing_hides_are_found() {
        let [first, second] = ranks();
        let finding = exposed_collective(&first).unwrap();
        assert_eq!(
            (finding.kind, finding.path.join(" > ").as_str()),
            (FindingKind::ExposedCollective, "train_step > backward")
        );
        // The first one is hidden by a kernel of 30 µs until 80 µs, the second runs from 84 to 94 µs.
        let micros = |time: Duration| time.as_micros();
        assert_eq!(micros(finding.saving.least), 0);
        assert_eq!((micros(finding.saving.likely), micros(finding.saving.most)), (10, 10));
        assert_eq!((micros(finding.step), finding.steps), (100, 2));
        assert_eq!(
            finding.title,
            "ranks exchange data for 10.0 µs of each step while no other kernel runs, mostly in `backward`"
        );
        assert!(
            finding.evidence[0].contains("Collectives run for 20.0 µs of a step, 10.0 µs"),
            "{:?}",
            finding.evidence
        );
        assert_eq!(finding.ranges.len(), 4);
        assert!(exposed_collective(&second).unwrap().evidence[0].contains("for 24.0 µs"), "the second rank is later");
    }

    #[test]
    fn without_collectives_or_something_to_hide_them_there_is_none() {
        assert_eq!(exposed_collective(&gpu_trace()), None);
        let [mut trace, _] = ranks();
        trace.work.retain(|work| matches!(&work.detail, Detail::Kernel(it) if it.name.starts_with("nccl")));
        assert_eq!(exposed_collective(&trace), None, "nothing else runs");
        let [mut trace, _] = ranks();
        trace.steps.clear();
        assert_eq!(exposed_collective(&trace), None);
    }

    #[test]
    fn only_what_the_backward_pass_can_hide_is_likely() {
        let [mut trace, _] = ranks();
        // The kernel of `backward` takes 10 µs instead of 30, and hides none of both collectives.
        trace.work.retain(|work| !matches!(&work.detail, Detail::Kernel(it) if &*it.name == "node"));
        let backward = trace.work.iter_mut().filter(|work| {
            matches!(&work.detail, Detail::Kernel(it) if &*it.name == "gemm") && work.span.unwrap().index() % 3 == 2
        });
        backward.for_each(|work| work.end = work.start + Duration::from_micros(10));
        let saving = exposed_collective(&trace).unwrap().saving;
        assert_eq!((saving.likely.as_micros(), saving.most.as_micros()), (10, 20));
    }
}
