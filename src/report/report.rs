//! The report of a run.

mod files;
mod tables;
mod text;

pub use self::text::ReportView;
pub(crate) use self::text::incomplete;

use super::{
    advice::Advice,
    call_tree::CallTree,
    completeness::{Completeness, records},
    counters::CountersOfRun,
    findings::Findings,
    gpu::GpuSummary,
    leaks::MemoryOfRun,
    modes::ModesOfRun,
    operations::OperationTimes,
    process_cpu::UsageOfRun,
    recording_cost::RecordingCost,
    step_times::StepTimes,
    vitals::VitalsOfRun,
    wrap::{self, terminal_width},
};
#[cfg(feature = "serving")]
use crate::serving::Requests;
use crate::{
    analysis::{Analysis, Finding, FollowedRun, RankWaits, SampledStacks, StepParts, StepTime},
    delivery::Delivery,
    disk_limit::RemovedFiles,
    hint::Hint,
    thread::mute_this_thread,
    trace::{Attributions, Device, DeviceId, Gpu, Level, Losses, Trace},
};
use std::{path::PathBuf, thread, time::Duration};

/// The report of a run: where the time went, over all its windows. [`finish`](crate::Profiler::finish) returns it.
///
/// `Display` writes the table of spans, then the kernels, the operations and the GPUs if there are any, what is
/// missing, and the files that were written, those of one kind in one folder as one line. The text is the same wherever
/// it is printed; [`fit_terminal`](Self::fit_terminal) makes the tables as wide as the terminal. For other tables, see
/// the [module](crate::report). With the feature `serde`, a report can be serialized.
#[derive(Default)]
pub struct Report {
    windows: u32,
    recorded: Duration,
    spans: u64,
    tree: CallTree,
    /// The durations on the host of steps that were not recorded.
    unrecorded: Vec<Duration>,
    gpus: GpuSummary,
    operations: OperationTimes,
    counters: CountersOfRun,
    pub(super) modes: ModesOfRun,
    pub(super) usage: UsageOfRun,
    findings: Findings,
    /// `None` if stacks were not to be sampled.
    stacks: Option<SampledStacks>,
    pub(super) memory: MemoryOfRun,
    pub(super) vitals: VitalsOfRun,
    losses: Losses,
    /// The number of records of all windows.
    records: u64,
    /// The number of exports that failed, once the run has ended.
    failed_exports: Option<u64>,
    /// The first windows that lack launches, and the number of these launches.
    incomplete: Vec<(u32, u64)>,
    /// The number of other windows that lack launches.
    more_incomplete: u64,
    filtered: Option<Level>,
    hints: Vec<Hint>,
    files: Vec<PathBuf>,
    /// The number of files that are not in `files`.
    more_files: u64,
    deliveries: Vec<Delivery>,
    removed: Option<RemovedFiles>,
    #[cfg(feature = "serving")]
    requests: Requests,
}

impl Report {
    /// The most columns of text that a printed report takes by default.
    pub const WIDTH: usize = wrap::WIDTH;
    /// The number of findings that are printed.
    pub const FINDINGS: usize = 3;
    /// The number of rows in the printed table of kernels, and in that of operations.
    const TABLE_ROWS: usize = 10;
    /// The number of incomplete windows for which a line is printed.
    const INCOMPLETE_WINDOWS: usize = 5;
    /// The number of slow steps for which a line is printed.
    const SLOW_STEPS: usize = 5;
    /// The number of records from which two threads analyse a window: that of twice as many takes 0.1 s or more, and a
    /// thread is started in less than a thousandth of that.
    const LARGE: u64 = 50_000;

    /// Returns the report of these windows, for traces that were kept or replayed.
    ///
    /// ```
    /// # fn show(trace: &kernspan::Trace) {
    /// println!("{}", kernspan::Report::of([trace]));
    /// # }
    /// ```
    pub fn of<'a>(windows: impl IntoIterator<Item = &'a Trace>) -> Self {
        let mut report = Self::default();
        for trace in windows {
            let window = Analysis::of(trace);
            if records(trace) < Self::LARGE {
                report.add(&window);
                continue;
            }
            // Another thread makes the findings meanwhile. If it cannot be started, this one does.
            thread::scope(|scope| {
                let find = || {
                    mute_this_thread();
                    window.findings().len()
                };
                let _ = thread::Builder::new().name("kernspan-findings".to_owned()).spawn_scoped(scope, find);
                report.add(&window);
            });
        }
        report
    }

    /// Adds a window.
    pub(crate) fn add(&mut self, window: &Analysis<'_>) {
        let trace = window.trace();
        self.windows += 1;
        self.recorded += trace.duration();
        self.spans += trace.spans().len() as u64;
        self.tree.add(trace, window.flops());
        self.gpus.add(window);
        self.operations.add(trace);
        self.counters.add(window);
        self.usage.add(trace);
        self.modes.add(window);
        self.memory.add(trace);
        self.vitals.add(window);
        if trace.stack_sampling().is_some() {
            self.stacks.get_or_insert_default().add(window.sampled_stacks());
        }
        self.losses += *trace.losses();
        self.records += records(trace);
        match trace.losses().gpu_unfinished {
            0 => {}
            unfinished if self.incomplete.len() < Self::INCOMPLETE_WINDOWS => {
                self.incomplete.push((trace.window(), unfinished));
            }
            _ => self.more_incomplete += 1,
        }
        self.filtered = trace.filtered().or(self.filtered);
        // Last, as another thread may be making them.
        self.findings.add(window);
    }

    /// Sets the state of the GPUs, if no window has set it.
    pub(crate) fn settle_gpu(&mut self, gpu: Gpu) {
        if self.gpus.state == Gpu::NotAsked {
            self.gpus.state = gpu;
        }
    }

    /// Adds the durations on the host of steps that were not recorded.
    pub(crate) fn add_unrecorded_steps(&mut self, times: Vec<Duration>) {
        self.unrecorded = times;
    }

    /// Adds what was followed over the whole run.
    pub(crate) fn add_followed(&mut self, followed: FollowedRun) {
        self.memory.followed = followed.memory;
        self.vitals.run = followed.vitals;
    }

    /// Adds losses that belong to no window.
    pub(crate) fn add_losses(&mut self, losses: Losses) {
        self.losses += losses;
    }

    /// Sets the requests of the run.
    #[cfg(feature = "serving")]
    pub(crate) fn set_requests(&mut self, requests: Requests) {
        self.requests = requests;
    }

    /// Returns all requests of the run: see [`serving`](crate::serving). There are none unless
    /// [`request_on`](crate::ProfilerBuilder::request_on) names their spans.
    #[cfg(feature = "serving")]
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Sets the number of exports that failed.
    pub(crate) fn set_failed_exports(&mut self, failed: u64) {
        self.failed_exports = Some(failed);
    }

    /// Adds reasons why less was recorded than the program may expect.
    pub(crate) fn add_hints(&mut self, hints: Vec<Hint>) {
        self.hints.extend(hints);
    }

    /// Adds the results of exporters that send elsewhere.
    pub(crate) fn add_deliveries(&mut self, deliveries: Vec<Delivery>) {
        self.deliveries.extend(deliveries);
    }

    /// Returns the report to be printed in at most `columns` columns of text. Only paths of files may be longer, and a
    /// table with the columns that are never left out, which take some fifty.
    pub fn width(&self, columns: usize) -> ReportView<'_> {
        ReportView { report: self, width: columns }
    }

    /// Returns the report to be printed with tables as wide as the terminal, or of [`Self::WIDTH`] if standard output
    /// is no terminal.
    ///
    /// ```
    /// # fn show(report: &kernspan::Report) {
    /// println!("{}", report.fit_terminal());
    /// # }
    /// ```
    pub fn fit_terminal(&self) -> ReportView<'_> {
        self.width(terminal_width().unwrap_or(Self::WIDTH))
    }

    /// Returns the number of recorded windows.
    pub fn windows(&self) -> u32 {
        self.windows
    }

    /// Whether nothing was recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Returns how long the windows were open, added up.
    pub fn recorded(&self) -> Duration {
        self.recorded
    }

    /// Returns the number of recorded spans: one for each enter. For calls, see [`calls`](Self::calls).
    pub fn spans(&self) -> u64 {
        self.spans
    }

    /// Returns the number of recorded calls, of which each has one or more spans, with those that are cut by the edge
    /// of a window: see [`Average::calls`](super::Average::calls).
    pub fn calls(&self) -> u64 {
        self.tree.nodes().iter().map(|node| node.totals.calls + node.totals.cut_calls).sum()
    }

    /// Returns the time of a step over all windows, which is the one that findings speak of; `None` if no whole step
    /// was recorded. Of several ranks, it is that of the slowest.
    ///
    /// ```
    /// # fn show(report: &kernspan::Report) {
    /// if let Some(step) = report.step_time() {
    ///     println!("{:?} a step, half of them between {:?} and {:?}", step.mean, step.lower, step.upper);
    /// }
    /// # }
    /// ```
    pub fn step_time(&self) -> Option<StepTime> {
        self.findings.step_time()
    }

    /// Returns where the time of a step goes, on average over the GPUs of the rank that [`step_time`](Self::step_time)
    /// is of. The parts add up to that time. For each GPU of each rank, see [`StepTimes::parts_by_gpu`].
    ///
    /// ```
    /// # fn show(report: &kernspan::Report) {
    /// for (part, time) in report.step_parts().iter().flat_map(|parts| parts.iter()) {
    ///     println!("{}: {time:?}", part.as_str());
    /// }
    /// # }
    /// ```
    pub fn step_parts(&self) -> Option<StepParts> {
        let (slowest, step) = self.steps().slowest()?;
        let steps = self.steps().regular();
        let parts = steps.iter().filter(|step| step.rank == slowest).map(|step| step.parts);
        Some(parts.sum::<StepParts>().each(step.steps))
    }

    /// Returns the time that a step would take without the cost of recording, by the simulation that savings are from.
    /// It differs from the recorded time by little, unless a profiler slows the program down.
    pub fn step_without_recording(&self) -> Option<Duration> {
        self.findings.step_without_recording()
    }

    /// Returns the recorded steps.
    pub fn steps(&self) -> &StepTimes {
        self.findings.steps()
    }

    /// Returns how much longer recorded steps took on the host than others of the same run, or `None` if there are
    /// fewer than five of either kind.
    pub fn recording_cost(&self) -> Option<RecordingCost> {
        RecordingCost::of(self.unrecorded.clone(), self.steps().on_host())
    }

    /// Returns what could not be recorded, over the whole run.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Returns what is missing from the run: records that were dropped, exports that failed, spans that a collector did
    /// not receive.
    ///
    /// ```
    /// # fn show(report: &kernspan::Report) {
    /// if !report.completeness().is_complete() {
    ///     eprintln!("{}", report.completeness());
    /// }
    /// # }
    /// ```
    pub fn completeness(&self) -> Completeness {
        let undelivered = self.deliveries.iter().map(|delivery| (delivery.what, delivery.lost()));
        Completeness {
            losses: self.losses,
            kept: self.records,
            failed_exports: self.failed_exports,
            undelivered: undelivered.filter(|(_, lost)| *lost > 0).collect(),
            is_forked: self.hints.contains(&Hint::Forked),
        }
    }

    /// Returns the most verbose level of spans that could be recorded, or `None` if all levels could.
    ///
    /// There is such a level if the subscriber has a filter for all its layers or each layer has one, or if a feature
    /// of `tracing` turns more verbose levels off. Filters may disable spans of this level, too: see
    /// [`Hint::Disabled`]. The spans of candle-transformers have [`Level::Trace`].
    pub fn filtered(&self) -> Option<Level> {
        self.filtered
    }

    /// Returns why less was recorded than the program may expect: why there are no spans, which spans filters disabled,
    /// and whether steps are counted twice. The report prints them.
    ///
    /// The spans that filters disabled are known if the subscriber is still there when the profiler finishes.
    pub fn hints(&self) -> &[Hint] {
        &self.hints
    }

    /// Returns whether GPUs were recorded, and if not, why not. It is that of the last window that was to record them.
    pub fn gpu(&self) -> &Gpu {
        &self.gpus.state
    }

    /// Returns the GPUs that the process sees.
    pub fn devices(&self) -> &[Device] {
        &self.gpus.devices
    }

    /// Returns the number of recorded kernels, copies and fills.
    pub fn gpu_work(&self) -> u64 {
        self.gpus.attributions.total()
    }

    /// Returns how many kernels, copies and fills were attributed to a span, by the kind of attribution.
    pub fn attributions(&self) -> Attributions {
        self.gpus.attributions
    }

    /// Returns what makes steps slow, over all windows, by the time that a change would save: see
    /// [`Analysis::findings`]. The report prints the first [`Self::FINDINGS`].
    ///
    /// ```
    /// # fn show(report: &kernspan::Report) {
    /// if let Some(first) = report.findings().first() {
    ///     println!("{} (saves {:.0} %): {}", first.title, first.percent(), first.advice());
    /// }
    /// # }
    /// ```
    pub fn findings(&self) -> Vec<Finding> {
        self.findings.merged()
    }

    /// Compares the ranks of a run of several processes.
    pub(crate) fn rank_waits(&self) -> RankWaits {
        self.findings.rank_waits()
    }

    /// Returns the findings to be printed, with their evidence and with what to change.
    ///
    /// ```
    /// # fn show(report: &kernspan::Report) {
    /// println!("{}", report.advice().fit_terminal());
    /// # }
    /// ```
    pub fn advice(&self) -> Advice {
        let none = match () {
            () if self.steps().is_empty() => Advice::NO_STEPS,
            () if self.gpu_work() == 0 => Advice::NOTHING_ON_HOST,
            () => Advice::NOTHING,
        };
        let (findings, is_host_only) = (self.findings(), self.gpu_work() == 0);
        let questions = self.open_questions(&findings);
        Advice::new(findings, none).questions(questions).step(self.step_time()).host_only(is_host_only)
    }

    /// Returns what takes a notable part of steps and is not in one of these findings.
    pub(super) fn open_questions(&self, findings: &[Finding]) -> Vec<String> {
        self.findings.open_questions(findings)
    }

    /// Returns what exporters have sent elsewhere, such as to an OpenTelemetry collector, and what was lost on the way.
    pub fn deliveries(&self) -> &[Delivery] {
        &self.deliveries
    }

    /// Returns the most bytes of a GPU's memory that were in use after an allocation, if allocations were recorded.
    pub fn peak_memory(&self, device: DeviceId) -> Option<u64> {
        self.gpus.memory.get(device).map(|peak| peak.in_use)
    }
}

#[cfg(test)]
mod tests;
