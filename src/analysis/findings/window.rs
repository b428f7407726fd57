//! A window as rules look at it.

use super::{
    super::{
        counter_use::{CounterBound, CounterSubject, CounterUse, CounterValue},
        finding::{Finding, FindingKind, TimeRange},
        quantile::lower_median,
        simulation::{Costs, Item, Simulation, Task},
        sorted::{SortedMap, SortedSet},
    },
    off_cpu::OffCpu,
};
use crate::trace::{
    ApiCall, CallsiteId, Detail, Device, DeviceId, Framework, MemoryCopy, MetricMeaning, Span, SpanId, Step, StepId,
    ThreadId, Trace, Work,
};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// A window, what was recorded of it, and which of its spans are in few steps only.
pub(super) struct Window<'a> {
    pub(super) simulation: Simulation<'a>,
    /// The time of a step without the cost of recording.
    pub(super) step: Duration,
    /// The same if the host takes these parts of its time.
    pub(super) steps: Vec<(f64, Duration)>,
    /// The relative error of the simulation.
    pub(super) error: f64,
    /// The framework of the program.
    pub(super) framework: Framework,
    /// The thread of the steps.
    pub(super) thread: ThreadId,
    /// The duration of the median step, as recorded.
    pub(super) median: Duration,
    /// The steps that take much longer than the median.
    pub(super) slow: SortedSet<StepId>,
    /// For each span, the outermost around it whose callsite is in less than half of the steps.
    rare: Vec<Option<SpanId>>,
    /// For each span, the outermost around it that is part of the input pipeline.
    inputs: Vec<Option<SpanId>>,
    /// The last task that each item asked for.
    tasks_of_items: FxHashMap<usize, usize>,
    /// The hardware counters of spans and kernels, if they were sampled.
    counters: &'a [CounterUse],
    /// When threads did not run, if that was recorded.
    pub(super) off_cpu: OffCpu<'a>,
}

/// A change that may save time.
pub(super) struct Candidate {
    pub(super) kind: FindingKind,
    pub(super) title: String,
    /// The nanoseconds of a step that the title speaks of, if it does of a time that windows have in common.
    pub(super) each: Option<u64>,
    /// Whether the saving is the mean of steps without a GPU, too, instead of the median.
    pub(super) is_mean: bool,
    /// What to change, if it is not what the kind says.
    pub(super) change: Option<&'static str>,
    /// A span at the place.
    pub(super) span: Option<SpanId>,
    pub(super) evidence: Vec<String>,
    pub(super) ranges: Vec<TimeRange>,
    /// The costs of the window's parts after the change.
    pub(super) costs: Costs,
    /// The same, if the change helps less or more than is likely.
    pub(super) least: Option<Costs>,
    pub(super) most: Option<Costs>,
    /// Other changes that would help.
    pub(super) others: Vec<Alternative>,
}

impl Candidate {
    /// The costs after the change, and if it helps less or more than is likely.
    pub(super) fn all_costs(&self) -> Vec<&Costs> {
        [Some(&self.costs), self.least.as_ref(), self.most.as_ref()].into_iter().flatten().collect()
    }

    /// Returns one that says nothing yet, with the costs of the window's parts after the change.
    pub(super) fn new(kind: FindingKind, costs: Costs) -> Self {
        Self {
            kind,
            title: String::new(),
            each: None,
            is_mean: false,
            change: None,
            span: None,
            evidence: Vec::new(),
            ranges: Vec::new(),
            costs,
            least: None,
            most: None,
            others: Vec::new(),
        }
    }
}

/// Another change that would help.
pub(super) struct Alternative {
    /// What to do, in words.
    pub(super) change: String,
    /// The costs after the change, and if it helps less or more than is likely.
    pub(super) costs: Costs,
    pub(super) least: Option<Costs>,
    pub(super) most: Option<Costs>,
}

/// Items or tasks at one place of the program.
#[derive(Clone, Debug, Default)]
pub(super) struct SpanGroup {
    pub(super) span: Option<SpanId>,
    pub(super) members: Vec<usize>,
    pub(super) nanos: u64,
}

/// Adds numbers from records, which may be garbage.
pub(super) fn total(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// Returns the steps in which a span is open. One around the whole loop is in all of them.
fn steps_of(trace: &Trace, span: Span<'_>) -> impl Iterator<Item = StepId> + use<> {
    let first = trace.steps().partition_point(|step| step.end() <= span.start());
    let past = trace.steps().partition_point(|step| step.start() < span.end());
    // A span may take no time.
    let began = span.step_id().map_or(first, StepId::index);
    (first.min(began)..past.max(began + 1).min(trace.steps().len())).map(StepId::new)
}

/// Returns the outermost span around each span that is of a kind. Spans may be nested deeply, so that each is looked at
/// once, after its parent.
fn outermost(trace: &Trace, is_one: impl Fn(Span<'_>) -> bool) -> Vec<Option<SpanId>> {
    let mut outermost: Vec<Option<SpanId>> = Vec::with_capacity(trace.spans().len());
    for span in trace.spans() {
        let around = span.parent().and_then(|parent| outermost.get(parent.id().index()).copied().flatten());
        outermost.push(around.or_else(|| is_one(span).then(|| span.id())));
    }
    outermost
}

/// The ranges of time that a finding keeps.
const RANGES: usize = 5;

/// Returns the longest of these ranges.
pub(super) fn longest(mut ranges: Vec<TimeRange>) -> Vec<TimeRange> {
    ranges.sort_by_key(|range| std::cmp::Reverse(range.duration()));
    ranges.truncate(RANGES);
    ranges
}

/// The least and the most of its simulated time that the host may take: the cost of recording is not known exactly, and
/// that of PyTorch's profiler differs between machines, by the trainings that were looked at.
pub(super) fn host_range(simulation: &Simulation<'_>) -> (f64, f64) {
    match simulation.host {
        Some(_) => (0.85, 1.1),
        None if simulation.trace.framework() == Framework::PyTorch => (0.65, 1.1),
        None => (0.8, 1.1),
    }
}

impl<'a> Window<'a> {
    pub(super) fn of(simulation: Simulation<'a>, counters: &'a [CounterUse]) -> Option<Self> {
        let trace = simulation.trace;
        let error = simulation.error();
        let step = simulation.run(&simulation.costs());
        let thread = trace.track(trace.steps()[simulation.steps.first()?.index()].track_id()).thread();
        let mut seen: SortedMap<CallsiteId, SortedSet<StepId>> = SortedMap::default();
        for span in trace.spans() {
            seen.or_default(span.callsite_id()).extend(steps_of(trace, span));
        }
        let is_rare = |callsite| seen.get(&callsite).is_some_and(|of| of.len() * 2 < simulation.steps.len());
        let rare = outermost(trace, |span| is_rare(span.callsite_id()));
        let inputs = outermost(trace, |span| span.input_stage().is_some());
        let tasks = simulation.tasks.iter().enumerate();
        let tasks_of_items = tasks.filter_map(|(index, task)| Some((task.item?, index))).collect();
        let duration = |step: &StepId| trace.steps()[step.index()].duration();
        let median = lower_median(simulation.steps.iter().map(duration)).unwrap_or_default();
        let slow = simulation.steps.iter().zip(&simulation.slow).filter(|(_, slow)| **slow).map(|(step, _)| *step);
        let slow = slow.collect();
        let framework = trace.framework();
        let (fast, slow_host) = host_range(&simulation);
        let steps = [1.0, fast, slow_host].map(|host| {
            let mut costs = simulation.costs();
            costs.scale_host(host);
            (host, simulation.run(&costs))
        });
        let steps = steps.to_vec();
        Some(Self {
            simulation,
            step,
            steps,
            error,
            framework,
            thread,
            median,
            slow,
            rare,
            inputs,
            tasks_of_items,
            counters,
            off_cpu: OffCpu::of(trace, thread),
        })
    }

    pub(super) fn trace(&self) -> &'a Trace {
        self.simulation.trace
    }

    /// Returns a percentage that hardware counters have measured while something ran, if they determine it.
    pub(super) fn counter(&self, subject: &CounterSubject, meaning: MetricMeaning) -> Option<f64> {
        let of_subject = self.counters.iter().find(|counters| counters.subject == *subject)?;
        of_subject.value(meaning).filter(|value| value.error <= CounterValue::MAX_ERROR).map(|value| value.mean)
    }

    /// Returns for how much of the time the SMs and the tensor cores were active, and the memory's bandwidth was in
    /// use, in percent, while something ran, if hardware counters determine all of that.
    pub(super) fn busy_parts(&self, subject: &CounterSubject) -> Option<[f64; 3]> {
        let percent = |meaning| self.counter(subject, meaning);
        let sm = percent(MetricMeaning::SmActive)?;
        Some([sm, percent(MetricMeaning::TensorActive)?, percent(MetricMeaning::DramActive)?])
    }

    /// Returns the part of a GPU that limits a kernel, if hardware counters determine it.
    pub(super) fn bound(&self, kernel: &str) -> Option<CounterBound> {
        let [sm, tensor, dram] = self.busy_parts(&CounterSubject::Kernel(kernel.to_owned()))?;
        Some(CounterBound::of(sm, tensor, dram))
    }

    /// Returns the mean frequency of a GPU's SM clock in the steps, in hertz, if it was sampled.
    pub(super) fn sm_clock(&self, device: DeviceId) -> Option<f64> {
        let of_steps = self.counters.iter().filter(|it| it.device == device);
        let of_steps = of_steps.filter(|it| matches!(it.subject, CounterSubject::Step(_)));
        let of_step = |it: &CounterUse| Some((it.value(MetricMeaning::SmClock)?.mean, it.gpu.as_secs_f64()));
        let add = |(sum, time), (clock, seconds)| (sum + clock * seconds, time + seconds);
        let (sum, time) = of_steps.filter_map(of_step).fold((0.0, 0.0), add);
        (time > 0.0).then(|| sum / time)
    }

    pub(super) fn costs(&self) -> Costs {
        self.simulation.costs()
    }

    /// Has the host take this part of its time because it does not wait any more. What Python does after a wait takes
    /// longer, as the thread has slept: by nothing to two fifths in the trainings that were looked at.
    pub(super) fn warm(&self, costs: &mut Costs, part: f64) {
        if self.framework == Framework::PyTorch {
            costs.scale_host(part);
        }
    }

    /// The number of steps that are not slow.
    pub(super) fn count(&self) -> usize {
        self.regular().count()
    }

    /// Nanoseconds of all steps that are not slow, for each of them.
    pub(super) fn per_step(&self, nanos: u64) -> u64 {
        nanos / self.count().max(1) as u64
    }

    /// The nanoseconds of these items in a typical step. In a window without a GPU each step has a time of its own, so
    /// that slow steps can be left out; otherwise it is the mean.
    pub(super) fn each_step(&self, items: impl IntoIterator<Item = (usize, u64)>) -> u64 {
        let mut sums: SortedMap<Option<StepId>, u64> = SortedMap::default();
        for (item, nanos) in items {
            let sum = sums.or_default(self.simulation.items[item].step);
            *sum = sum.saturating_add(nanos);
        }
        if !self.simulation.is_host_only() {
            return self.per_step(total(sums.into_values()));
        }
        lower_median(self.regular().map(|step| sums.get(&Some(step)).copied().unwrap_or(0))).unwrap_or(0)
    }

    /// The steps that are not slow.
    pub(super) fn regular(&self) -> impl Iterator<Item = StepId> {
        self.simulation.steps.iter().copied().filter(|step| !self.slow.contains(step))
    }

    /// Whether something that takes this long in all steps that are not slow is too short to matter.
    pub(super) fn is_negligible(&self, nanos: u64) -> bool {
        (self.per_step(nanos) as f64) < Finding::LEAST_SHARE * self.step.as_nanos() as f64
    }

    /// Whether a step is whole and not slow.
    pub(super) fn is_regular(&self, step: StepId) -> bool {
        self.is_whole(step) && !self.slow.contains(&step)
    }

    /// The items in whole steps that are not slow, but for those of spans that are in few steps only.
    pub(super) fn items(&self) -> impl Iterator<Item = (usize, &Item)> {
        let is_regular = |item: &Item| item.step.is_some_and(|step| self.is_regular(step)) && !self.is_rare(item.span);
        self.simulation.items.iter().enumerate().filter(move |(_, item)| is_regular(item))
    }

    /// The items that are calls.
    pub(super) fn calls(&self) -> impl Iterator<Item = (usize, &Item, ApiCall<'a>)> {
        self.items().filter_map(|(index, item)| Some((index, item, self.trace().api_call(item.call?))))
    }

    /// The tasks that steps launched that are whole and not slow, but for those of spans that are in few steps only.
    pub(super) fn tasks(&self) -> impl Iterator<Item = (usize, &Task, Work<'a>)> {
        let of_regular = self.all_tasks().filter(|(_, _, work)| work.step_id().is_some_and(|id| self.is_regular(id)));
        of_regular.filter(|(_, _, work)| !self.is_rare(work.span().map(Span::id)))
    }

    /// The tasks of whole steps.
    pub(super) fn all_tasks(&self) -> impl Iterator<Item = (usize, &Task, Work<'a>)> {
        let tasks = self.simulation.tasks.iter().enumerate();
        let of_trace = tasks.map(|(index, task)| (index, task, self.trace().work_of(task.work)));
        of_trace.filter(|(_, _, work)| work.step_id().is_some_and(|step| self.is_whole(step)))
    }

    /// The last task that an item asked for.
    pub(super) fn task_of(&self, item: usize) -> Option<usize> {
        self.tasks_of_items.get(&item).copied()
    }

    /// The copy that an item asked for, if it did.
    pub(super) fn copy_of(&self, item: usize) -> Option<&'a MemoryCopy> {
        let task = &self.simulation.tasks[self.task_of(item)?];
        match self.trace().work_of(task.work).detail() {
            Detail::Copy(copy) => Some(copy),
            _ => None,
        }
    }

    pub(super) fn is_whole(&self, step: StepId) -> bool {
        self.simulation.steps.binary_search(&step).is_ok()
    }

    /// Whether a span is, or is in, one that is in less than half of the steps.
    pub(super) fn is_rare(&self, span: Option<SpanId>) -> bool {
        self.outermost_rare(span).is_some()
    }

    /// The outermost of the spans around this one that is in less than half of the steps.
    pub(super) fn outermost_rare(&self, span: Option<SpanId>) -> Option<SpanId> {
        self.rare[span?.index()]
    }

    /// The outermost span of the input pipeline around this one.
    pub(super) fn input_of(&self, span: Option<SpanId>) -> Option<SpanId> {
        self.inputs[span?.index()]
    }

    /// The spans of threads other than the steps', as far as they are open in the steps that are looked at.
    pub(super) fn spans_of_others(&self) -> impl Iterator<Item = Span<'a>> {
        let trace = self.trace();
        let at = |step: Option<&StepId>| step.map(|id| &trace.steps()[id.index()]);
        let from = at(self.simulation.steps.first()).map(Step::start).unwrap_or_default();
        let to = at(self.simulation.steps.last()).map(Step::end).unwrap_or_default();
        let thread = self.thread;
        trace.spans().filter(move |it| it.track().thread() != thread && it.start() < to && from < it.end())
    }

    /// Items or tasks by the callsite of their spans, those that take the most time first.
    pub(super) fn groups(&self, members: impl IntoIterator<Item = (usize, Option<SpanId>, u64)>) -> Vec<SpanGroup> {
        let mut groups: SortedMap<Option<CallsiteId>, SpanGroup> = SortedMap::default();
        for (member, span, nanos) in members {
            let callsite = span.map(|id| self.trace().span(id).callsite_id());
            let group = groups.or_insert_with(callsite, || SpanGroup { span, ..SpanGroup::default() });
            group.members.push(member);
            group.nanos = group.nanos.saturating_add(nanos);
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.nanos));
        groups
    }

    /// The times of items.
    pub(super) fn item_ranges(&self, items: &[usize]) -> Vec<TimeRange> {
        let items = items.iter().map(|&index| &self.simulation.items[index]);
        items.map(|item| TimeRange::new(self.trace(), item.start, item.end)).collect()
    }

    /// The times of spans.
    pub(super) fn span_ranges(&self, spans: impl IntoIterator<Item = SpanId>) -> Vec<TimeRange> {
        let spans = spans.into_iter().map(|id| self.trace().span(id));
        spans.map(|span| TimeRange::new(self.trace(), span.start(), span.end())).collect()
    }

    /// The times of tasks.
    pub(super) fn task_ranges(&self, tasks: &[usize]) -> Vec<TimeRange> {
        let tasks = tasks.iter().map(|&index| &self.simulation.tasks[index]);
        tasks.map(|task| TimeRange::new(self.trace(), task.start, task.end)).collect()
    }

    /// The device that a piece of work ran on.
    pub(super) fn device(&self, work: Work<'_>) -> Option<&'a Device> {
        self.trace().device(work.stream().device())
    }
}
