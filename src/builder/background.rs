//! The background threads of a profiler, and the queues between them.

use crate::{
    analysis::FollowedRun,
    budget::Budget,
    collector::{Collector, Command},
    cpu_time::ThreadMeter,
    disk_limit::DiskLimit,
    error::Error,
    export::LatestVitals,
    failure::Failures,
    gpu::{self, GpuSettings, GpuSource, Ledger, Started},
    host::Host,
    memory::{MemoryParts, MemorySnapshots, MemoryThread, RunMemory},
    pipeline::{Exports, NamedExporter, Pipeline, ToExports},
    recording::{HandOn, Recording},
    sampling::Symbols,
    steps::{FollowedSteps, NamedSteps, StepSender, StepThread},
    trace::{Gpu, GpuProblem, Metadata},
    vitals::{Vitals, VitalsHistory, VitalsThread},
};
use std::{
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::AtomicU32,
        mpsc::{self, Sender},
    },
};

/// The parts that the threads are started with.
pub(super) struct BackgroundParts {
    pub(super) host: Arc<Host>,
    pub(super) budget: Arc<Budget>,
    /// The settings for GPUs, if they are to be recorded.
    pub(super) gpu: Option<GpuSettings>,
    pub(super) metadata: Arc<Metadata>,
    pub(super) exporters: Vec<NamedExporter>,
    /// The exporter that also gets windows that were requested for a folder of their own.
    pub(super) observer: Option<NamedExporter>,
    pub(super) step_exporters: Vec<NamedSteps>,
    /// Whether the memory of the run is followed.
    pub(super) follows_memory: bool,
    /// The settings for memory snapshots, if allocations are followed.
    pub(super) snapshots: Option<MemorySnapshots>,
    /// The settings for vital signs, if they are recorded.
    pub(super) vitals: Option<(Vitals, LatestVitals)>,
    /// Where what was followed over the run is put at its end, for exporters.
    pub(super) followed: Arc<OnceLock<FollowedRun>>,
    /// Failures so far.
    pub(super) failures: Failures,
    pub(super) raw_folder: Option<PathBuf>,
    /// The reader of the threads' CPU time, if that is wanted.
    pub(super) threads: Option<ThreadMeter>,
    /// The limit on the files of windows, if there is one.
    pub(super) disk_limit: Option<DiskLimit>,
}

/// The threads, and the session's ways to them.
pub(super) struct Background {
    pub(super) gpu: Option<Arc<dyn GpuSource>>,
    /// The state to report where GPUs are not recorded.
    pub(super) without_gpu: Gpu,
    /// The way to the collector.
    pub(super) commands: Sender<Command>,
    /// The way to exporters that take every step.
    pub(super) summaries: Option<StepSender>,
    pub(super) pipeline: Pipeline,
    pub(super) memory: RunMemory,
    /// The vital signs, if they are recorded.
    pub(super) vitals: Option<Arc<VitalsHistory>>,
    /// The number of windows that have been exported.
    pub(super) exported: Arc<AtomicU32>,
}

impl Background {
    pub(super) fn start(parts: BackgroundParts) -> Result<Self, Error> {
        let BackgroundParts {
            host, budget, metadata, exporters, observer, step_exporters, failures, raw_folder, ..
        } = parts;
        let (commands, to_collector) = mpsc::channel();
        let (to_exports, closed) = mpsc::channel();
        // The exporters' thread is gone only if it panicked, which whoever joins it will report.
        let last_word = mpsc::Sender::clone(&to_exports);
        let to_exports = move || -> HandOn {
            let to_exports = to_exports.clone();
            Box::new(move |recording: Recording| drop(to_exports.send(ToExports::Window(Box::new(recording)))))
        };
        let wakes = mpsc::channel();
        let follow = |settings| (Arc::new(Ledger::new(Arc::clone(&host), wakes.0.clone())), settings);
        let snapshots = parts.snapshots.map(follow);
        let ledger = snapshots.as_ref().map(|(ledger, _)| Arc::clone(ledger));
        let started = match parts.gpu {
            Some(settings) => {
                let settings = GpuSettings { ledger: ledger.clone(), ..settings };
                gpu::start(settings, &host, &budget, to_exports()).map_err(Error::Thread)?.map_err(Gpu::Unavailable)
            }
            None => Err(Gpu::NotAsked),
        };
        let (gpu, reading, hand_on, without_gpu) = match started {
            Ok(Started { source, thread, progress, collected }) => {
                let hand_on = by_gpu(Arc::clone(&source), collected, to_exports());
                (Some(source), Some((thread, progress)), hand_on, Gpu::NotAsked)
            }
            Err(without_gpu) => (None, None, to_exports(), without_gpu),
        };
        // The exporters' thread ends when the last sender is gone.
        drop(to_exports);
        let collector = Collector::new(Arc::clone(&host), to_collector, hand_on, Arc::clone(&budget), parts.threads);
        let memory = parts.follows_memory.then(|| {
            let (host, gpu, metadata) = (Arc::clone(&host), gpu.clone(), Arc::clone(&metadata));
            MemoryThread::start(MemoryParts { host, gpu, metadata, snapshots, wakes })
        });
        let memory = memory.transpose().map_err(Error::Thread)?;
        let history = memory.as_ref().map(|memory| Arc::clone(&memory.history));
        let run_memory = RunMemory { gpu: gpu.clone(), ledger, history: history.clone() };
        let vitals = parts.vitals.map(|(settings, latest)| VitalsThread::start(settings, Arc::clone(&host), latest));
        let vitals = vitals.transpose().map_err(Error::Thread)?;
        let run_vitals = vitals.as_ref().map(|vitals| Arc::clone(&vitals.history));
        let without = without_gpu.clone();
        let exported = Arc::<AtomicU32>::default();
        let exports = Exports {
            closed,
            budget,
            exported: Arc::clone(&exported),
            metadata,
            without_gpu: without,
            exporters,
            observer,
            failures,
            raw_folder,
            memory,
            vitals,
            followed: parts.followed,
            #[cfg(feature = "serving")]
            requests: host.requests(),
            recent: None,
            disk_limit: parts.disk_limit,
            symbols: Symbols::default(),
        };
        let followed = FollowedSteps { memory: history, vitals: run_vitals.clone() };
        let steps = (!step_exporters.is_empty()).then(|| StepThread::start(host, step_exporters, followed));
        let (summaries, steps) = steps.transpose().map_err(Error::Thread)?.unzip();
        let pipeline = Pipeline::start(collector, reading, exports, last_word, steps).map_err(Error::Thread)?;
        Ok(Self { gpu, without_gpu, commands, summaries, pipeline, memory: run_memory, vitals: run_vitals, exported })
    }
}

/// Returns a callback that passes windows with GPU activity to the thread that adds it, unless that is stuck, and
/// others to the exporters.
fn by_gpu(source: Arc<dyn GpuSource>, mut with_gpu: HandOn, mut without: HandOn) -> HandOn {
    Box::new(move |mut recording| match source.gpu() {
        stuck @ Gpu::Unavailable(GpuProblem::Stuck) => {
            recording.gpu.gpu = stuck;
            without(recording);
        }
        _ if recording.window.with_gpu => with_gpu(recording),
        _ => without(recording),
    })
}
