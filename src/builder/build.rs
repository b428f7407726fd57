//! Building a profiler: checks the settings, starts the threads, and puts the parts together.

use super::{
    ProfilerBuilder,
    background::{Background, BackgroundParts},
};
#[cfg(any(feature = "serving", all(feature = "control", unix)))]
use crate::control::Control;
#[cfg(all(feature = "signals", unix))]
use crate::exit::SavedOnExit;
#[cfg(feature = "serving")]
use crate::serving::{RequestKind, RequestLog, RequestRecorder, ServingParts, ServingThread, Slo};
use crate::{
    activity::Activity,
    budget::Budget,
    clock::Clock,
    cpu_time::{CpuTime, ThreadMeter, UsageMeter},
    disk_limit::DiskLimit,
    ending::{AtEnd, Ending, Shown},
    error::Error,
    export::{LatestVitals, Run, RunId},
    failure::{Failure, Failures},
    file,
    flight::FlightRecorder,
    gpu::GpuSettings,
    heap::Counting,
    host::{Host, ProfilerLayer, StepOn},
    memory::{MemorySnapshots, RunMemory},
    pipeline::NamedExporter,
    profiler::{Followed, Profiler},
    recording::Kept,
    sampling::{Sampler, Samples},
    schedule::Schedule,
    session::{Session, SessionParts, write_on_panic},
    steps::NamedSteps,
    trace::Gpu,
    vitals::Vitals,
};
#[cfg(all(feature = "control", unix))]
use crate::{
    control::{Listener, ListenerParts, LiveRun, is_free},
    exit,
};
#[cfg(all(feature = "control", unix))]
use signal_hook::consts::SIGUSR2;
use std::{
    ops::RangeInclusive,
    sync::{Arc, mpsc},
};
use tracing::level_filters::LevelFilter;

impl ProfilerBuilder {
    /// Builds the layer and the profiler, and starts the background threads. Add the layer to the subscriber, and keep
    /// the profiler: it ends the recording when it is dropped.
    ///
    /// If GPU activities are recorded, as they are by default, this loads and initialises the NVIDIA driver
    /// (`cuInit`), where there is one: `CUDA_VISIBLE_DEVICES` must be set before, and children forked afterwards cannot
    /// use CUDA.
    ///
    /// # Errors
    ///
    /// If a setting is invalid, an exporter [cannot export](crate::Exporter::check), the folder of `raw_to_dir` cannot
    /// be written, or a thread cannot be started.
    pub fn build(mut self) -> Result<(ProfilerLayer, Profiler), Error> {
        if let Some(because) = self.off.take() {
            self.schedule.check().map_err(Error::Schedule)?;
            return Ok(self.build_off(because));
        }
        self.check()?;
        if self.snapshots.is_some() {
            self.activities = self.activities.iter().chain([Activity::Memory]).collect();
        }
        if self.vitals.is_some() {
            self.activities = self.activities.iter().chain([Activity::Vitals]).collect();
        }
        if self.samples.is_some() {
            self.activities = self.activities.iter().chain([Activity::Samples]).collect();
        }
        let clock = Clock::new();
        let heap = self.activities.has(Activity::Heap).then(|| Counting::begin(&clock, self.heap_lines)).transpose();
        let heap = heap.map_err(|problem| Error::Setting { setting: "activities", problem: problem.to_owned() })?;
        let run = self.run(&clock);
        #[cfg(all(feature = "control", unix))]
        let live = self.listen.as_ref().map(|_| Arc::<LiveRun>::default());
        #[cfg(all(feature = "control", unix))]
        self.observe(live.as_ref(), &run);
        let (step_exporters, failures) = self.step_exporters(&run);
        let mut host = Host::new(clock, self.lane_capacity, self.live_spans, !step_exporters.is_empty());
        if heap.is_some() {
            host.count_heap();
        }
        let timed = self.cpu_time.map_or(LevelFilter::OFF, CpuTime::span_level);
        if timed != LevelFilter::OFF {
            host.time_cpu();
        }
        #[cfg(all(feature = "nvtx", unix))]
        if self.nvtx {
            host.use_nvtx();
        }
        #[cfg(feature = "serving")]
        let requests = run.requests.clone();
        #[cfg(feature = "serving")]
        requests.iter().for_each(|recorder| host.count_requests(Arc::clone(recorder)));
        let on_demand = [
            false,
            #[cfg(feature = "serving")]
            requests.is_some(),
            #[cfg(all(feature = "control", unix))]
            live.is_some(),
        ];
        let on_demand = on_demand.contains(&true);
        let host = Arc::new(host);
        let budget = Arc::new(Budget::new(self.memory_limit_bytes));
        #[cfg(feature = "serving")]
        let run_metadata = Arc::clone(&run.metadata);
        #[cfg(all(feature = "control", unix))]
        let (listen, metadata, run_id) = (self.listen.take(), Arc::clone(&run.metadata), run.id);
        let Self { schedule, step_on, exporters, observer, activities, detach, raw_folder, counters, .. } = self;
        let counters = activities.has(Activity::Counters).then_some(counters);
        let vitals = activities.has(Activity::Vitals).then(|| (self.vitals.unwrap_or_default(), run.vitals));
        let shown = Shown { report: self.print_report, progress: self.show_progress };
        let (keep_raw, keeps_recent) = (raw_folder.is_some(), self.flight.is_some());
        let Background { gpu, without_gpu, commands, summaries, pipeline, memory, vitals, exported } =
            Background::start(BackgroundParts {
                host: Arc::clone(&host),
                budget: Arc::clone(&budget),
                gpu: activities.any_gpu().then_some(GpuSettings {
                    activities,
                    detach,
                    keep_raw,
                    ledger: None,
                    counters,
                }),
                metadata: run.metadata,
                followed: run.followed,
                vitals,
                exporters,
                observer,
                step_exporters,
                follows_memory: activities.has(Activity::Memory) || activities.has(Activity::Heap),
                snapshots: self.snapshots,
                failures,
                raw_folder,
                threads: self.cpu_time.map(|_| ThreadMeter::default()),
                disk_limit: self.disk_limit_bytes.map(DiskLimit::new),
            })?;
        let samples = activities.has(Activity::Samples).then(|| self.samples.unwrap_or_default());
        let sampler = samples.map(|samples| Sampler::start(samples, host.clock(), &budget));
        let sampler = sampler.transpose().map_err(Error::Thread)?;
        let session = Arc::new(Session::start(SessionParts {
            host: Arc::clone(&host),
            gpu,
            without_gpu,
            schedule,
            step_on: step_on.clone(),
            commands,
            summaries,
            budget,
            exported,
            heap,
            sampler,
            usage: self.cpu_time.map(|_| UsageMeter::default()),
            flight: self.flight,
            on_demand,
        }));
        if keeps_recent {
            write_on_panic(&session);
        }
        let step_on = step_on.map(|name| {
            let session = Arc::clone(&session);
            StepOn { name, step: Box::new(move || session.step_by_close()) }
        });
        let at_end = AtEnd::default();
        #[cfg(all(feature = "control", unix))]
        let at_end = match listen.zip(live) {
            None => at_end,
            Some((settings, live)) => {
                let control = Control::new(Arc::clone(&session), memory.clone());
                let (host, run) = (Arc::clone(&host), run_id.map(|id| id.to_string()));
                let signal_is_free = settings.wants_signal() && is_free(exit::is_default(SIGUSR2));
                let parts = ListenerParts { control, host, metadata, run, live, settings, signal_is_free };
                let listener = Listener::start(parts);
                let listener =
                    listener.map_err(|error| Error::Setting { setting: "listen", problem: error.to_string() })?;
                AtEnd::new(move || listener.close())
            }
        };
        let layer = ProfilerLayer::new(host, activities.has(Activity::Host), step_on, self.backtraces, timed);
        let ending = Ending::new(Arc::clone(&session), pipeline, activities, shown, run.unrecorded, at_end);
        #[cfg(feature = "serving")]
        let serving = requests.clone().map(|recorder| {
            let control = Control::new(Arc::clone(&session), memory.clone());
            let log = self.request_log.take().map(|log| (log, (*run_metadata).clone()));
            ServingThread::start(ServingParts {
                recorder,
                log,
                record: Box::new(move |request| control.record(request)),
            })
        });
        #[cfg(feature = "serving")]
        let serving = serving.transpose().map_err(Error::Thread)?;
        #[cfg(feature = "serving")]
        let ending = ending.with_serving(serving);
        let ending = Arc::new(ending);
        // This is the last step, so that functions that CUDA has called at exit are called later.
        #[cfg(all(feature = "signals", unix))]
        let saved_on_exit = self.save_within.map(|within| SavedOnExit::new(&ending, within)).transpose();
        #[cfg(all(feature = "signals", unix))]
        let saved_on_exit =
            saved_on_exit.map_err(|error| Error::Setting { setting: "save_on_exit", problem: error.to_string() })?;
        let profiler = Profiler::new(
            session,
            ending,
            activities,
            Followed { memory, vitals },
            #[cfg(feature = "serving")]
            requests,
            #[cfg(all(feature = "signals", unix))]
            saved_on_exit,
        );
        Ok((layer, profiler))
    }

    /// Builds a layer and a profiler that do nothing, as if it had finished.
    fn build_off(self, because: String) -> (ProfilerLayer, Profiler) {
        let host = Arc::new(Host::new(Clock::mock(), Self::LEAST_LANE_CAPACITY, 0, false));
        let (commands, _) = mpsc::channel();
        let session = Arc::new(Session::start(SessionParts {
            host: Arc::clone(&host),
            gpu: None,
            without_gpu: Gpu::NotAsked,
            schedule: Schedule::manual(),
            step_on: None,
            commands,
            summaries: None,
            budget: Arc::new(Budget::new(0)),
            heap: None,
            sampler: None,
            usage: None,
            exported: Arc::default(),
            flight: None,
            on_demand: false,
        }));
        session.end(Kept::InMemory);
        session.turn_off();
        let ending = Arc::new(Ending::off(Arc::clone(&session), self.activities, because));
        let profiler = Profiler::new(
            session,
            ending,
            self.activities,
            Followed { memory: RunMemory { gpu: None, ledger: None, history: None }, vitals: None },
            #[cfg(feature = "serving")]
            None,
            #[cfg(all(feature = "signals", unix))]
            None,
        );
        (ProfilerLayer::new(host, false, None, false, LevelFilter::OFF), profiler)
    }

    /// Checks the settings, and that exporters can export.
    fn check(&mut self) -> Result<(), Error> {
        self.schedule.check().map_err(Error::Schedule)?;
        let check = |setting, value: usize, allowed: RangeInclusive<usize>| {
            let (least, most) = allowed.into_inner();
            let problem = match value {
                _ if value < least => format!("{value} is less than {least}, so that nothing could be recorded"),
                _ if value > most => format!("{value} is more than {most}, the most that there may be"),
                _ => return Ok(()),
            };
            Err(Error::Setting { setting, problem })
        };
        check("lane_capacity", self.lane_capacity, Self::LEAST_LANE_CAPACITY..=Self::MAX_LANE_CAPACITY)?;
        check("memory_limit_bytes", self.memory_limit_bytes, 1 << 20..=usize::MAX)?;
        check("disk_limit_bytes", self.disk_limit_bytes.map_or(1, |bytes| bytes.min(1) as usize), 1..=1)?;
        check("live_spans", self.live_spans, 0..=Self::MAX_LIVE_SPANS)?;
        let snapshots = self.snapshots.as_ref().map_or(Ok(()), MemorySnapshots::check);
        snapshots.map_err(|problem| Error::Setting { setting: "memory_snapshots", problem })?;
        let counters = self.counters.check();
        counters.map_err(|problem| Error::Setting { setting: "counters", problem })?;
        let flight = self.flight.as_ref().map_or(Ok(()), FlightRecorder::check);
        flight.map_err(|problem| Error::Setting { setting: "flight_recorder", problem })?;
        let vitals = self.vitals.as_ref().map_or(Ok(()), Vitals::check);
        vitals.map_err(|problem| Error::Setting { setting: "vitals", problem })?;
        #[cfg(feature = "serving")]
        RequestKind::check_all(&self.requests).map_err(|problem| Error::Setting { setting: "request_on", problem })?;
        #[cfg(feature = "serving")]
        Slo::check_all(&self.slos, &self.requests).map_err(|problem| Error::Setting { setting: "slo", problem })?;
        #[cfg(feature = "serving")]
        self.request_log
            .as_ref()
            .map_or(Ok(()), RequestLog::check)
            .map_err(|problem| Error::Setting { setting: "request_log", problem })?;
        let samples = self.samples.map_or(Ok(()), Samples::check);
        samples.map_err(|problem| Error::Setting { setting: "samples", problem })?;
        let mut failures: Vec<_> = self.exporters.iter_mut().filter_map(NamedExporter::check).collect();
        let raw = self.raw_folder.as_deref().and_then(|folder| file::check(folder).err());
        failures.extend(raw.map(|error| Failure::new("raw_to_dir", None, error.into())));
        if failures.is_empty() { Ok(()) } else { Err(Error::Exporters { failures }) }
    }

    fn run(&mut self, clock: &Clock) -> Run {
        Run {
            id: RunId::from_env(),
            metadata: Arc::new(std::mem::take(&mut self.metadata)),
            start: clock.anchor().unix,
            schedule: self.schedule.to_string(),
            activities: self.activities.iter().collect(),
            unrecorded: Arc::default(),
            followed: Arc::default(),
            vitals: LatestVitals::default(),
            #[cfg(feature = "serving")]
            requests: (!self.requests.is_empty())
                .then(|| Arc::new(RequestRecorder::new(clock.clone(), &self.requests, std::mem::take(&mut self.slos)))),
        }
    }

    /// Has an exporter keep what those who watch the run are shown.
    #[cfg(all(feature = "control", unix))]
    fn observe(&mut self, live: Option<&Arc<LiveRun>>, run: &Run) {
        let has_exporters = !self.exporters.is_empty();
        self.observer = live.map(|live| NamedExporter::new(live.exporter()));
        self.listen = self.listen.take().map(|listen| match has_exporters {
            true => listen,
            false => listen.without_exporters(&run.metadata),
        });
    }

    /// Returns the exporters that take every step, and the failures of those that could not begin to.
    fn step_exporters(&mut self, run: &Run) -> (Vec<NamedSteps>, Failures) {
        let (mut exporters, mut failures) = (Vec::new(), Failures::default());
        for exporter in self.exporters.iter_mut().chain(&mut self.observer) {
            match exporter.steps(run) {
                Ok(steps) => exporters.extend(steps),
                Err(failure) => failures.add(failure),
            }
        }
        (exporters, failures)
    }
}
