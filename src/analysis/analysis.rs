//! The analysis of one window, shared by all who ask.

use super::{
    counter_use::{self, CounterSubject, CounterUse},
    critical_path::{self, PathPart},
    finding::Finding,
    findings::{self, WindowFindings},
    flops::SpanFlops,
    gpu_steps,
    gpu_usage::StepGpu,
    modes::{self, ModeUse},
    request_gpu::{self, RequestGpuTime},
    sampled_stacks::{SampledFunction, SampledLine, SampledStacks},
    simulation::Simulation,
    sorted::SortedSet,
    span_costs::{self, SpanCost},
    step_breakdown::{self, StepBreakdown},
    step_time::{self, StepInterval, StepTime},
};
use crate::trace::Trace;
use std::{ops::Deref, sync::OnceLock};

/// A recorded window and what can be computed from it: everything when it is first asked for, and only once.
///
/// [Exporters](crate::Exporter) and [`on_trace`](crate::ProfilerBuilder::on_trace) are given one, so that the report
/// and all of them share the work. It dereferences to its [`Trace`].
///
/// ```
/// use kernspan::{Trace, analysis::Analysis};
///
/// fn print(trace: &Trace) {
///     let window = Analysis::of(trace);
///     println!("window {}: {} spans", window.window(), window.spans().len());
///     for finding in window.findings() {
///         println!("{}: {} (saves {:?})", finding.kind, finding.title, finding.saving.likely);
///     }
/// }
/// # print(&Trace::default());
/// ```
#[derive(Debug)]
pub struct Analysis<'a> {
    trace: &'a Trace,
    simulated: OnceLock<Simulated>,
    flops: OnceLock<SpanFlops>,
    step_intervals: OnceLock<Vec<StepInterval>>,
    gpu_steps: OnceLock<Vec<StepGpu>>,
    step_breakdown: OnceLock<Vec<StepBreakdown<'a>>>,
    counter_uses: OnceLock<Vec<CounterUse>>,
    sampled: OnceLock<SampledStacks>,
}

/// What the simulation of a window says. The simulation itself takes some hundred bytes for each call and kernel, so it
/// is not kept.
#[derive(Debug, Default)]
struct Simulated {
    /// Nothing if the window cannot be simulated.
    found: Option<WindowFindings>,
    critical_path: Vec<PathPart>,
}

impl<'a> Analysis<'a> {
    /// Returns the analysis of a window, of which nothing is computed yet.
    #[must_use]
    pub fn of(trace: &'a Trace) -> Self {
        Self {
            trace,
            simulated: OnceLock::new(),
            flops: OnceLock::new(),
            step_intervals: OnceLock::new(),
            gpu_steps: OnceLock::new(),
            step_breakdown: OnceLock::new(),
            counter_uses: OnceLock::new(),
            sampled: OnceLock::new(),
        }
    }

    /// Returns the window.
    #[must_use]
    pub fn trace(&self) -> &'a Trace {
        self.trace
    }

    /// Returns what makes the steps of the window slow, by the time that a change would save, the most first.
    ///
    /// Savings come from running the recorded steps again without the cause, with everything that depends on it: what
    /// the host waits for, what each stream waits for, and which calls made which work. If the GPU is busy meanwhile,
    /// leaving out host work saves nothing, and the result says so. Findings overlap: two of them may save less
    /// together than their sum.
    ///
    /// The list is empty without whole steps. If no GPU activity was recorded, the rules about the host look at the
    /// spans of the steps' thread. Of a window with very many kernels or spans, only the first steps are looked at.
    /// Causes that save less than one percent are left out.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        self.found().map_or(&[], |found| &found.findings)
    }

    /// Returns all that rules say of the window; `None` if they could not look at it.
    pub(crate) fn found(&self) -> Option<&WindowFindings> {
        self.simulated().found.as_ref()
    }

    /// Returns the time of a step: see [`StepTime`]. `None` if no whole step was recorded.
    ///
    /// ```
    /// # fn show(window: &kernspan::analysis::Analysis<'_>) {
    /// if let Some(step) = window.step_time() {
    ///     println!("{step}");
    ///     if step.host_runs_ahead() {
    ///         println!("{:?} on the host, {:?} on the GPU", step.host, step.mean);
    ///     }
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn step_time(&self) -> Option<StepTime> {
        StepTime::of(self.step_intervals().iter().map(|step| (step.time(), step.host)))
    }

    /// Returns when each whole step was worked on, by the host and the GPU, in the order of the steps.
    ///
    /// ```
    /// # fn show(window: &kernspan::analysis::Analysis<'_>) {
    /// for step in window.step_intervals() {
    ///     println!("step {}: {:?}, of which {:?} on the host", step.step, step.time(), step.host);
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn step_intervals(&self) -> &[StepInterval] {
        self.step_intervals.get_or_init(|| step_time::step_intervals(self.trace))
    }

    /// Returns the steps whose parts are computed: all, unless there are very many without GPU activity. Then it is an
    /// even sample of them, as all windows of such programs are looked at, also where memory is scarce.
    pub(crate) fn divided_steps(&self) -> impl ExactSizeIterator<Item = &StepInterval> + Clone {
        let steps = self.step_intervals();
        let has_gpu = self.trace.work().len() > 0;
        let stride = if has_gpu { 1 } else { steps.len().div_ceil(Self::DIVIDED_STEPS).max(1) };
        steps.iter().step_by(stride)
    }

    /// The most steps without GPU activity whose parts are computed. Each takes 500 bytes meanwhile: see
    /// `tests/memory`.
    const DIVIDED_STEPS: usize = 4_000;

    /// Returns the critical path of the whole steps: a chain of parts, from the start of the first step to the end of
    /// the last on the host or on the GPU. Each part begins when the one before it ends.
    ///
    /// Going back from the end, each part follows what it waited for last. A kernel waited for its launch, for the work
    /// before it in its stream, or for work of another stream; a call that waits for the GPU waited for its work; other
    /// time of the host followed the time before it. Time that is not on the path could be longer without delaying the
    /// end. What a change would save is another question, as removing a part makes another chain the longest: see
    /// [`findings`](Self::findings).
    ///
    /// It is empty without whole steps or without GPU work. Of a window with very many kernels, only the first steps
    /// are looked at.
    ///
    /// ```
    /// # use kernspan::analysis::{Analysis, PathKind};
    /// # use std::{collections::BTreeMap, time::Duration};
    /// # fn show(window: &Analysis<'_>) {
    /// let mut kinds: BTreeMap<PathKind, Duration> = BTreeMap::new();
    /// for part in window.critical_path() {
    ///     *kinds.entry(part.kind).or_default() += part.duration();
    /// }
    /// println!("{kinds:?}");
    /// # }
    /// ```
    #[must_use]
    pub fn critical_path(&self) -> &[PathPart] {
        &self.simulated().critical_path
    }

    /// Returns the cost of spans by their path, in the order in which paths begin.
    ///
    /// ```
    /// # fn show(window: &kernspan::analysis::Analysis<'_>) {
    /// for cost in window.span_costs() {
    ///     println!("{}: {:?} on the GPU, {:?} exposed", cost.path.join(" > "), cost.gpu, cost.exposed);
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn span_costs(&self) -> Vec<SpanCost> {
        span_costs::span_costs(self)
    }

    /// Returns what training, validation and inference took, as far as spans are named after them: see
    /// [`Mode`](super::Mode).
    ///
    /// ```
    /// # fn show(window: &kernspan::analysis::Analysis<'_>) {
    /// for usage in window.modes() {
    ///     println!("{}: {} calls in {:?}", usage.mode, usage.calls, usage.total);
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn modes(&self) -> Vec<ModeUse> {
        modes::modes(self.trace)
    }

    /// Returns the usage of each GPU in each whole step, in the order of the steps. GPUs that did nothing in the window
    /// are left out.
    ///
    /// ```
    /// # fn show(window: &kernspan::analysis::Analysis<'_>) {
    /// for step in window.gpu_steps() {
    ///     println!("step {} on GPU {}: busy {:.0} %", step.step, step.device, step.usage.busy_percent());
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn gpu_steps(&self) -> &[StepGpu] {
        let steps = || gpu_steps::gpu_steps(self.trace, self.step_intervals(), self.step_breakdown(), self.flops());
        self.gpu_steps.get_or_init(steps)
    }

    /// Returns where the time of each whole step went, for each GPU that did anything in the window, in the order of
    /// the steps. If no GPU did, all time is the host's; of more than 4,000 such steps, a sample is looked at.
    ///
    /// ```
    /// # fn show(window: &kernspan::analysis::Analysis<'_>) {
    /// for step in window.step_breakdown() {
    ///     for (part, time) in step.parts.iter() {
    ///         println!("step {}: {time:?} of {:?} were {}", step.step, step.duration, part.as_str());
    ///     }
    ///     if let Some((span, time)) = step.host_by_span.first() {
    ///         println!("  the GPU was idle for {time:?} while the host was in {span}");
    ///     }
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn step_breakdown(&self) -> &[StepBreakdown<'a>] {
        let steps = || self.divided_steps().copied().collect::<Vec<_>>();
        self.step_breakdown.get_or_init(|| step_breakdown::step_breakdown(self.trace, &steps()))
    }

    /// Returns how busy the parts of each GPU were while the work of each step, span, module and kernel ran, if
    /// [hardware counters](crate::ProfilerBuilder::counters) were sampled.
    ///
    /// A sample covers all kernels that ran in its interval. Kernels that are shorter are told apart by samples that
    /// they take different parts of; where that is not possible, the [error](super::CounterValue::error) is large.
    ///
    /// ```
    /// # use kernspan::{analysis::Analysis, trace::MetricMeaning};
    /// # fn show(window: &Analysis<'_>) {
    /// for counters in window.counter_uses() {
    ///     if let Some(dram) = counters.value(MetricMeaning::DramActive) {
    ///         println!("{:?}: {:.0} ± {:.0} % of the memory's bandwidth", counters.subject, dram.mean, dram.error);
    ///     }
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn counter_uses(&self) -> &[CounterUse] {
        self.counter_uses.get_or_init(|| counter_use::counter_uses(self.trace))
    }

    /// Returns the hardware counters of a GPU in a step: their means from the step's first to its last work on the GPU.
    /// `None` if samples have measured too little of it: see
    /// [`CounterUse::LEAST_MEASURED`](super::CounterUse::LEAST_MEASURED).
    ///
    /// ```
    /// # fn show(window: &kernspan::analysis::Analysis<'_>) {
    /// for step in window.gpu_steps() {
    ///     for value in window.step_counters(step).iter().flat_map(|counters| &counters.values) {
    ///         println!("step {}: {} {:.1} {}", step.step, value.metric.label(), value.mean, value.metric.unit());
    ///     }
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn step_counters(&self, step: &StepGpu) -> Option<&CounterUse> {
        let subject = CounterSubject::Step(step.step);
        self.counter_uses().iter().find(|counters| counters.device == step.device && counters.subject == subject)
    }

    /// Returns the GPU time of each span of this name that the window has recorded from its creation's first enter to
    /// its last exit, in the order of their ids: the requests of a [service](crate#features).
    ///
    /// Work counts for the request that the span it was launched in works for: see
    /// [`Span::caller`](crate::trace::Span::caller). What is launched in a span that [follows
    /// from](crate::trace::Span::follows_from) several requests, such as that of a batch, is split evenly among them.
    ///
    /// ```
    /// # fn show(window: &kernspan::analysis::Analysis<'_>) {
    /// for time in window.request_gpu_times("request") {
    ///     println!("{:?}: {:?}, of which {:?} shared", time.span, time.total(), time.shared);
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn request_gpu_times(&self, name: &str) -> Vec<RequestGpuTime> {
        request_gpu::request_gpu_times(self.trace, &|span| span.name() == name)
    }

    /// Returns the lines that the time of each span itself went to, by the span's callsite, most time first. It is
    /// empty unless stacks were sampled.
    ///
    /// ```
    /// # fn show(window: &kernspan::analysis::Analysis<'_>) {
    /// for line in window.sampled_lines().iter().filter(|line| line.is_hot()) {
    ///     println!("{:?}: {:.0} % in {:?}", line.span, line.percent().unwrap_or_default(), line.line);
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn sampled_lines(&self) -> &[SampledLine] {
        &self.sampled_stacks().lines
    }

    /// Returns the functions that threads were in, over all spans, most CPU time of their own first. It is empty unless
    /// stacks were sampled.
    #[must_use]
    pub fn sampled_functions(&self) -> &[SampledFunction] {
        &self.sampled_stacks().functions
    }

    /// Returns the tables of the sampled stacks.
    pub(crate) fn sampled_stacks(&self) -> &SampledStacks {
        self.sampled.get_or_init(|| SampledStacks::of(self.trace))
    }

    /// Returns why the MFU of steps is not known; `None` if it is, or if no floating-point operations are known.
    pub(crate) fn no_mfu(&self) -> Option<&str> {
        let gpus: SortedSet<_> = self.gpu_steps().iter().map(|step| step.device).collect();
        gpu_steps::no_mfu(self.trace, self.flops(), gpus.len())
    }

    /// Returns the floating-point operations of spans and steps.
    pub(crate) fn flops(&self) -> &SpanFlops {
        self.flops.get_or_init(|| SpanFlops::of(self.trace))
    }

    fn simulated(&self) -> &Simulated {
        self.simulated.get_or_init(|| {
            let simulation = Simulation::of(self.trace);
            let Some(simulation) = simulation else { return Simulated::default() };
            let critical_path = critical_path::critical_path(&simulation);
            let step = self.step_time().unwrap_or_default();
            let found = findings::findings(simulation, self.counter_uses(), step);
            Simulated { found: Some(found), critical_path }
        })
    }
}

impl Deref for Analysis<'_> {
    type Target = Trace;

    fn deref(&self) -> &Trace {
        self.trace
    }
}

#[cfg(test)]
mod tests {
    use super::Analysis;
    use crate::{
        Chrome, Exporter, Html, Perfetto, Report, Stacks, TensorBoard, analysis::simulation::MADE,
        trace::sample::gpu_trace,
    };

    #[test]
    fn the_report_and_all_exporters_share_one_simulation() {
        let (folder, trace) = (tempfile::tempdir().unwrap(), gpu_trace());
        let (window, before) = (Analysis::of(&trace), MADE.get());
        let folder = folder.path();
        let mut report = Report::default();
        report.add(&window);
        let exporters: [Box<dyn Exporter>; 5] = [
            Box::new(Chrome::to_dir(folder)),
            Box::new(Perfetto::to_dir(folder)),
            Box::new(TensorBoard::to_dir(folder)),
            Box::new(Html::to_dir(folder)),
            Box::new(Stacks::to_dir(folder)),
        ];
        for mut exporter in exporters {
            exporter.export(&window).unwrap();
        }
        assert!(!report.findings().is_empty() && report.step_time().is_some());
        assert_eq!(MADE.get() - before, 1);
    }
}
