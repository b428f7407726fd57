//! The background threads: one collects, one reads GPU records, and one correlates and exports.

#[cfg(feature = "serving")]
use crate::serving::RequestRecorder;
use crate::{
    analysis::{Analysis, FollowedMemory, FollowedRun, RunVitals},
    budget::Budget,
    collector::Collector,
    correlate::{correlate, join_stacks},
    disk_limit::DiskLimit,
    export::{Chrome, Exporter, Html, Perfetto, Run},
    failure::{Failure, Failures, panic_message},
    file::FileError,
    memory::{MemoryThread, TakenSnapshots},
    recording::{Kept, Recording},
    report::{Report, incomplete},
    request::{Recorded, Ticket},
    sampling::{Symbols, WindowStacks},
    steps::{NamedSteps, StepThread},
    thread::{STUCK_AFTER, join_unless_stuck, spawn},
    trace::{Gpu, Losses, Metadata},
    vitals::VitalsThread,
};
use std::{
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
        mpsc::{Receiver, Sender},
    },
    thread::JoinHandle,
};

/// The threads of one profiler.
#[derive(Debug)]
pub(crate) struct Pipeline {
    collecting: JoinHandle<Losses>,
    /// The thread that reads GPU records, if there is one, and a number that changes whenever it makes progress.
    reading: Option<(JoinHandle<Losses>, Arc<AtomicU64>)>,
    exporting: JoinHandle<Outcome>,
    /// Ends the exporting thread while others still have senders.
    last_word: Sender<ToExports>,
    /// The thread that passes on every step, if an exporter takes them.
    steps: Option<StepThread>,
}

/// A message to the exporting thread, which also ends when all senders are gone.
#[derive(Debug)]
pub(crate) enum ToExports {
    Window(Box<Recording>),
    /// No further window comes, though a thread that is stuck still has a sender.
    End,
}

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) report: Report,
    pub(crate) failures: Failures,
}

/// An exporter, and the name under which its failures are reported.
pub(crate) struct NamedExporter {
    pub(crate) name: String,
    exporter: Box<dyn Exporter>,
}

impl Pipeline {
    /// Starts the threads. `reading` is the thread that reads GPU records, if there is one.
    pub(crate) fn start(
        collector: Collector,
        reading: Option<(JoinHandle<Losses>, Arc<AtomicU64>)>,
        exports: Exports,
        last_word: Sender<ToExports>,
        steps: Option<StepThread>,
    ) -> io::Result<Self> {
        let exporting = spawn("kernspan-export", move || exports.run())?;
        let collecting = spawn("kernspan-collect", move || collector.run())?;
        Ok(Self { collecting, reading, exporting, last_word, steps })
    }

    /// Waits until everything recorded has been exported, but for no thread that is stuck in a library.
    pub(crate) fn join(self) -> Outcome {
        // Each thread ends after the one before it, which held the other end of its queue.
        let collected = self.collecting.join();
        let read = self
            .reading
            .map(|(reading, progress)| join_unless_stuck(reading, STUCK_AFTER, || progress.load(Ordering::Relaxed)));
        let is_stuck = matches!(read, Some(None));
        if is_stuck {
            let _ = self.last_word.send(ToExports::End);
        }
        drop(self.last_word);
        let losses = [Some(collected), read.flatten()];
        let mut outcome = self.exporting.join().unwrap_or_else(|panic| Outcome {
            failures: [Failure::of_panic("kernspan", None, &panic_message(&*panic))].into_iter().collect(),
            ..Outcome::default()
        });
        for losses in losses.into_iter().flatten() {
            match losses {
                Ok(losses) => outcome.report.add_losses(losses),
                Err(panic) => outcome.failures.add(Failure::of_panic("kernspan", None, &panic_message(&*panic))),
            }
        }
        if is_stuck {
            let problem = "CUPTI does not return from a call, so windows that waited for GPU records are lost";
            outcome.failures.add(Failure::new("kernspan", None, problem.into()));
        }
        // Joined last, since step exporters finish after the last window.
        let steps = self.steps.map(StepThread::join).unwrap_or_default();
        outcome.report.add_files(steps.files);
        outcome.report.add_deliveries(steps.deliveries);
        outcome.failures.append(steps.failures);
        outcome.report.set_failed_exports(outcome.failures.count());
        outcome.failures.append(steps.undelivered);
        outcome
    }
}

/// The state of the export thread, which turns each recording into a trace for the report and the exporters.
pub(crate) struct Exports {
    pub(crate) closed: Receiver<ToExports>,
    pub(crate) budget: Arc<Budget>,
    /// The number of windows that have been exported.
    pub(crate) exported: Arc<AtomicU32>,
    pub(crate) metadata: Arc<Metadata>,
    /// The state to report when GPUs are not recorded.
    pub(crate) without_gpu: Gpu,
    pub(crate) exporters: Vec<NamedExporter>,
    /// The exporter that also gets windows that were requested for a folder of their own.
    pub(crate) observer: Option<NamedExporter>,
    /// Failures before the first window.
    pub(crate) failures: Failures,
    /// The folder that windows are recorded to, if requested.
    pub(crate) raw_folder: Option<PathBuf>,
    /// The thread that follows the memory of the run, if it is followed.
    pub(crate) memory: Option<MemoryThread>,
    /// The thread that reads vital signs, if they are recorded.
    pub(crate) vitals: Option<VitalsThread>,
    /// Where what was followed over the run is put at its end, for exporters.
    pub(crate) followed: Arc<OnceLock<FollowedRun>>,
    /// The requests of the run, if they are counted.
    #[cfg(feature = "serving")]
    pub(crate) requests: Option<Arc<RequestRecorder>>,
    /// The last window that the flight recorder has closed.
    pub(crate) recent: Option<Recording>,
    /// The limit on the files of windows, if there is one.
    pub(crate) disk_limit: Option<DiskLimit>,
    /// Names and lines of sampled stacks.
    pub(crate) symbols: Symbols,
}

impl Exports {
    fn run(mut self) -> Outcome {
        let mut outcome = Outcome { failures: std::mem::take(&mut self.failures), ..Outcome::default() };
        while let Ok(ToExports::Window(recording)) = self.closed.recv() {
            let mut recording = *recording;
            // Before their memory is counted.
            recording.window.stacks.iter_mut().for_each(WindowStacks::complete);
            match recording.window.kept {
                Some(Kept::InMemory) => self.keep(Some(recording)),
                Some(Kept::Written) => {
                    let before = self.recent.take();
                    self.export_all(before.into_iter().chain([recording]).collect(), &mut outcome);
                }
                None => self.export_all(vec![recording], &mut outcome),
            }
            self.exported.fetch_add(1, Ordering::Release);
        }
        self.keep(None);
        let followed = FollowedRun { memory: self.end_memory(&mut outcome), vitals: self.end_vitals() };
        outcome.report.add_followed(self.followed.get_or_init(|| followed).clone());
        outcome
    }

    /// Ends the thread that follows the memory of the run, with a last reading.
    fn end_memory(&mut self, outcome: &mut Outcome) -> FollowedMemory {
        let Some(memory) = self.memory.take() else { return FollowedMemory::default() };
        let history = Arc::clone(&memory.history);
        if let Err(problem) = memory.end() {
            outcome.failures.add(Failure::new("kernspan", None, problem.into()));
        }
        let TakenSnapshots { snapshots, files, failures } = history.take_snapshots();
        outcome.report.add_files(files);
        let failed = |error: FileError| Failure::new("MemorySnapshots", None, error.into());
        failures.into_iter().map(failed).for_each(|failure| outcome.failures.add(failure));
        FollowedMemory { series: history.series(), snapshots }
    }

    /// Ends the thread that reads vital signs, with a last reading.
    fn end_vitals(&mut self) -> RunVitals {
        let Some(vitals) = self.vitals.take() else { return RunVitals::default() };
        let history = Arc::clone(&vitals.history);
        drop(vitals);
        history.run()
    }

    /// Keeps a window of the flight recorder instead of the one before it.
    fn keep(&mut self, recent: Option<Recording>) {
        if let Some(dropped) = std::mem::replace(&mut self.recent, recent) {
            self.budget.give_back(dropped.charged());
        }
    }

    /// Exports windows, the last of which may answer a request.
    fn export_all(&mut self, mut recordings: Vec<Recording>, outcome: &mut Outcome) {
        let ticket = recordings.last_mut().and_then(|last| last.window.ticket.take());
        let mut of_request = ticket.as_ref().and_then(Ticket::folder).map(exporters_into);
        let mut answer = Recorded::default();
        for recording in recordings {
            let (charged, window) = (recording.charged(), recording.window.index);
            // A bug of ours with one window must not cost the others.
            let export = || self.export(recording, of_request.as_mut(), ticket.is_some(), outcome);
            match catch_unwind(AssertUnwindSafe(export)) {
                Ok(recorded) => answer.extend(recorded),
                Err(panic) => {
                    let failure = Failure::of_panic("kernspan", Some(window), &panic_message(&*panic));
                    answer.failures.push(failure.to_string());
                    outcome.failures.add(failure);
                }
            }
            self.budget.give_back(charged);
        }
        // A ticket that is dropped says that nothing was recorded.
        if let Some(ticket) = ticket.filter(|_| answer != Recorded::default()) {
            ticket.done(answer);
        }
    }

    /// Exports a window, to the exporters of its request if there are any. The result has findings if `for_answer`.
    fn export(
        &mut self,
        mut recording: Recording,
        of_request: Option<&mut Vec<NamedExporter>>,
        for_answer: bool,
        outcome: &mut Outcome,
    ) -> Recorded {
        let leftover = recording.window.leftover;
        if recording.gpu.gpu == Gpu::NotAsked {
            recording.gpu.gpu = self.without_gpu.clone();
        }
        #[cfg(all(feature = "cuda", target_os = "linux"))]
        let raw = recording.gpu.raw.take().map(|raw| (raw, recording.gpu.pools.clone()));
        let stacks = recording.window.stacks.take().map(|stacks| (stacks, recording.timeline.clone()));
        #[cfg(feature = "serving")]
        let slow = self
            .requests
            .as_ref()
            .map(|requests| (requests.slow_spans(recording.enters()), recording.timeline.clone()));
        let mut trace = correlate(recording, Arc::clone(&self.metadata));
        if let Some((stacks, timeline)) = stacks {
            join_stacks(&mut trace, stacks.resolve(&mut self.symbols), &timeline);
        }
        let host = trace.spans().len() + trace.events().len() + trace.counters().len() + trace.operations().len();
        let gpu = trace.work().len() + trace.api_calls().len() + trace.allocations().len() + trace.waits().len();
        let nothing = host + gpu == 0;
        if leftover && nothing {
            outcome.report.add_losses(*trace.losses());
            return Recorded::default();
        }
        if let Some(memory) = &self.memory {
            trace.counters.extend(memory.history.counters(trace.start(), trace.end()));
        }
        if let Some(vitals) = &self.vitals {
            trace.counters.extend(vitals.history.counters(trace.start(), trace.end()));
        }
        if let Some(limit) = &mut self.disk_limit {
            limit.begin_window();
        }
        let window = Analysis::of(&trace);
        outcome.report.add(&window);
        if let unfinished @ 1.. = trace.losses().gpu_unfinished {
            tracing::warn!("kernspan: {}", incomplete(trace.window(), unfinished));
        }
        #[cfg(all(feature = "cuda", target_os = "linux"))]
        if let (Some(folder), Some((raw, pools))) = (&self.raw_folder, raw) {
            match crate::replay::write(folder, &trace, &raw, &pools) {
                Ok(file) => {
                    self.disk_limit.iter_mut().for_each(|limit| limit.add(std::slice::from_ref(&file)));
                    outcome.report.add_files(vec![file]);
                }
                Err(error) => outcome.failures.add(Failure::new("raw_to_dir", Some(trace.window()), error.into())),
            }
        }
        let mut recorded = Recorded::of(&window);
        let exporters = of_request.unwrap_or(&mut self.exporters);
        for exporter in exporters.iter_mut().chain(&mut self.observer) {
            match exporter.export(&window) {
                Ok(files) => {
                    self.disk_limit.iter_mut().for_each(|limit| limit.add(&files));
                    recorded.files.extend(files);
                }
                Err(failure) => {
                    recorded.failures.push(failure.to_string());
                    outcome.failures.add(failure);
                }
            }
        }
        #[cfg(feature = "serving")]
        if let (Some(requests), Some((slow, timeline))) = (&self.requests, slow) {
            requests.add_window(&window, slow, &recorded.files, |ticks| timeline.at(ticks));
        }
        outcome.report.add_files(recorded.files.clone());
        if let Some((files, removed)) = self.disk_limit.as_mut().and_then(DiskLimit::end_window) {
            tracing::warn!("kernspan: {removed}");
            #[cfg(feature = "serving")]
            self.requests.iter().for_each(|requests| requests.remove_files(&files));
            outcome.report.remove_files(&files, removed);
        }
        if for_answer {
            recorded.findings = window.findings().to_vec();
        }
        recorded
    }
}

/// Returns the exporters of a window that was requested for a folder of its own.
fn exporters_into(folder: &Path) -> Vec<NamedExporter> {
    vec![
        NamedExporter::new(Chrome::to_dir(folder)),
        NamedExporter::new(Perfetto::to_dir(folder)),
        NamedExporter::new(Html::to_dir(folder).one_window()),
    ]
}

impl NamedExporter {
    pub(crate) fn new(exporter: impl Exporter) -> Self {
        Self { name: exporter.name().to_owned(), exporter: Box::new(exporter) }
    }

    /// Returns the failure of the exporter's check, if any.
    pub(crate) fn check(&mut self) -> Option<Failure> {
        match catch_unwind(AssertUnwindSafe(|| self.exporter.check())) {
            Ok(checked) => checked.err().map(|error| Failure::new(&self.name, None, error)),
            Err(panic) => Some(Failure::of_panic(&self.name, None, &panic_message(&*panic))),
        }
    }

    /// Returns the exporter's step exporter, if it takes every step.
    pub(crate) fn steps(&mut self, run: &Run) -> Result<Option<NamedSteps>, Failure> {
        match catch_unwind(AssertUnwindSafe(|| self.exporter.steps(run))) {
            Ok(steps) => Ok(steps.map(|exporter| NamedSteps { name: self.name.clone(), exporter })),
            Err(panic) => Err(Failure::of_panic(&self.name, None, &panic_message(&*panic))),
        }
    }

    fn export(&mut self, window: &Analysis<'_>) -> Result<Vec<PathBuf>, Failure> {
        let number = Some(window.window());
        match catch_unwind(AssertUnwindSafe(|| self.exporter.export(window))) {
            Ok(Ok(files)) => Ok(files),
            Ok(Err(error)) => Err(Failure::new(&self.name, number, error)),
            Err(panic) => Err(Failure::of_panic(&self.name, number, &panic_message(&*panic))),
        }
    }
}

impl fmt::Debug for Exports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.exporters.iter().map(|exporter| &exporter.name)).finish()
    }
}
