//! The profiler: the handle that a program uses to step, start, stop and finish.

#[cfg(all(feature = "signals", unix))]
use crate::exit::SavedOnExit;
#[cfg(feature = "serving")]
use crate::serving::{RequestRecorder, Requests};
use crate::{
    activity::{Activities, Activity},
    analysis::{MemorySnapshot, MemorySource, VitalSigns},
    control::Control,
    ending::{Ending, note_printed},
    error::Error,
    host::HandOver,
    memory::RunMemory,
    pipeline::Outcome,
    report::Report,
    request::{RecordRequest, Requested},
    schedule::Phase,
    session::Session,
    trace::Gpu,
    vitals::VitalsHistory,
};
use std::{
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
};

/// A handle that controls a recording and ends it when dropped.
///
/// Bind it to a name for as long as the program is to be profiled: `let _ = …` drops it at once. Prefer to end it with
/// [`finish_and_print`](Self::finish_and_print) or [`finish`](Self::finish), which return failures. A profiler that is
/// dropped, as when `main` returns early or panics, also exports. It writes each failure to standard error, and the
/// report if [`print_report`](crate::ProfilerBuilder::print_report) is set.
#[must_use = "dropping the profiler ends the recording"]
#[derive(Debug)]
pub struct Profiler {
    session: Arc<Session>,
    ending: Arc<Ending>,
    activities: Activities,
    followed: Followed,
    #[cfg(feature = "serving")]
    requests: Option<Arc<RequestRecorder>>,
    #[cfg(all(feature = "signals", unix))]
    _saved_on_exit: Option<SavedOnExit>,
}

/// What background threads follow over the run.
#[derive(Debug)]
pub(crate) struct Followed {
    pub(crate) memory: RunMemory,
    pub(crate) vitals: Option<Arc<VitalsHistory>>,
}

impl Profiler {
    pub(crate) fn new(
        session: Arc<Session>,
        ending: Arc<Ending>,
        activities: Activities,
        followed: Followed,
        #[cfg(feature = "serving")] requests: Option<Arc<RequestRecorder>>,
        #[cfg(all(feature = "signals", unix))] saved_on_exit: Option<SavedOnExit>,
    ) -> Self {
        Self {
            session,
            ending,
            activities,
            followed,
            #[cfg(feature = "serving")]
            requests,
            #[cfg(all(feature = "signals", unix))]
            _saved_on_exit: saved_on_exit,
        }
    }

    #[cfg(test)]
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Ends a step and begins the next. Call it once per iteration of the loop, on any thread, outside the step's
    /// spans.
    ///
    /// While the schedule waits, it takes about twenty nanoseconds, or seventy if an exporter takes every step; at a
    /// window's edge, a few microseconds. When it has to attach the GPU's profiling library, it takes a few
    /// milliseconds, or ten to twenty the first time: that is what warmup steps are for. It never waits for exporters,
    /// nor for the GPU, unless a [`Watcher`](crate::framework::Watcher) does so at a window's edge.
    pub fn step(&self) {
        self.session.step();
    }

    /// The number of the current step, counted from 0.
    pub fn current_step(&self) -> u64 {
        self.session.now().0
    }

    /// The current step's phase in the schedule.
    pub fn phase(&self) -> Phase {
        self.session.now().1
    }

    /// Whether a window is open, except for those of the flight recorder.
    pub fn is_recording(&self) -> bool {
        self.session.is_recording()
    }

    /// Whether this activity is recorded: see [`ProfilerBuilder::activities`](crate::ProfilerBuilder::activities).
    pub fn records(&self, activity: Activity) -> bool {
        self.activities.has(activity)
    }

    /// Whether GPU activity is recorded, and if not, why not.
    pub fn gpu(&self) -> Gpu {
        self.session.gpu()
    }

    /// Returns who holds the memory of GPUs now: each live allocation, with its step and the spans it was made in.
    ///
    /// It takes a microsecond or so for each dozen of allocations, in which no other can be made. Memory from before
    /// the profiler was built is not in it.
    ///
    /// ```
    /// # fn show(profiler: &kernspan::Profiler) -> Result<(), kernspan::Error> {
    /// let snapshot = profiler.memory_snapshot()?;
    /// println!("{snapshot}");
    /// assert!(snapshot.holders().iter().all(|holder| holder.first_step == 0), "only weights are kept");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::MemorySnapshot`] if allocations are not followed
    /// ([`ProfilerBuilder::memory_snapshots`](crate::ProfilerBuilder::memory_snapshots)), or GPUs are not recorded.
    pub fn memory_snapshot(&self) -> Result<MemorySnapshot, Error> {
        self.followed.memory.snapshot(&self.gpu()).map_err(|problem| Error::MemorySnapshot { problem })
    }

    /// Returns the most bytes of a memory that were in use at a time since the run began, or since
    /// [`reset_peak_memory`](Self::reset_peak_memory): PyTorch's `max_memory_allocated`. Returns `None` if that is not
    /// known.
    ///
    /// Of [`MemorySource::Gpu`] it is exact: of all allocations if
    /// [`memory_snapshots`](crate::ProfilerBuilder::memory_snapshots) follows them, and else of those from the driver's
    /// pool. Of other memory, it is the highest reading: a hundred are taken in a second at first and while a window is
    /// open, and at least five later.
    ///
    /// ```
    /// use kernspan::{Activity, Profiler, analysis::MemorySource, trace::DeviceId};
    ///
    /// let (layer, profiler) = Profiler::builder().activities([Activity::Host, Activity::Memory]).build()?;
    /// # drop(layer);
    /// profiler.reset_peak_memory();
    /// // … train …
    /// if let Some(bytes) = profiler.peak_memory(MemorySource::Gpu(DeviceId::new(0))) {
    ///     println!("at most {} were in use", kernspan::units::bytes(bytes));
    /// }
    /// # profiler.finish()?;
    /// # Ok::<(), kernspan::Error>(())
    /// ```
    pub fn peak_memory(&self, source: MemorySource) -> Option<u64> {
        self.followed.memory.peak(source)
    }

    /// Resets the peak: see [`peak_memory`](Self::peak_memory).
    ///
    /// This also resets `CU_MEMPOOL_ATTR_USED_MEM_HIGH` of the driver's pools, which a program might read itself.
    pub fn reset_peak_memory(&self) {
        self.followed.memory.reset_peaks();
    }

    /// Returns the latest vital signs, if [they are read](crate::ProfilerBuilder::vitals) and have been once. It takes
    /// a lock and counts a reference, and so may be called in each step.
    ///
    /// ```
    /// # fn train_step(profiler: &kernspan::Profiler) {
    /// if let Some(vitals) = profiler.vitals() {
    ///     let hottest = vitals.gpus.iter().filter_map(|gpu| gpu.temperature).fold(0.0, f64::max);
    ///     println!("{hottest} °C, {:?} CPUs", vitals.process.cpus);
    /// }
    /// # }
    /// ```
    pub fn vitals(&self) -> Option<Arc<VitalSigns>> {
        self.followed.vitals.as_ref()?.latest()
    }

    /// Returns all requests so far: see [`serving`](crate::serving). There are none unless
    /// [`request_on`](crate::ProfilerBuilder::request_on) names their spans.
    ///
    /// It copies the histograms, some microseconds for each group, and delays no request.
    #[cfg(feature = "serving")]
    pub fn requests(&self) -> Requests {
        self.requests.as_ref().map(|requests| requests.requests()).unwrap_or_default()
    }

    /// Returns a handle for integrations of frameworks that launch work on their own threads: see [`HandOver`].
    pub fn hand_over(&self) -> HandOver {
        HandOver::new(Arc::clone(self.session.host()))
    }

    /// Opens a window now, whatever the schedule says, that stays open until [`stop`](Self::stop). Returns false, and
    /// changes nothing, if a window is already open, or if so many windows are waiting to be exported that there is no
    /// memory for another: see [`memory_limit_bytes`](crate::ProfilerBuilder::memory_limit_bytes).
    ///
    /// ```
    /// use kernspan::{Collected, Profiler, Schedule};
    /// # use tracing_subscriber::prelude::*;
    ///
    /// let collected = Collected::new();
    /// let (layer, profiler) = Profiler::builder().schedule(Schedule::manual()).export(collected.clone()).build()?;
    /// # tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
    /// tracing::info_span!("before").in_scope(|| ());
    /// profiler.start();
    /// tracing::info_span!("inside").in_scope(|| ());
    /// profiler.stop();
    /// # });
    /// profiler.finish()?;
    /// let names: Vec<_> = collected.only().spans().map(|span| span.name().to_owned()).collect();
    /// assert_eq!(names, ["inside"]);
    /// # Ok::<(), kernspan::Error>(())
    /// ```
    pub fn start(&self) -> bool {
        self.session.open(None).is_ok()
    }

    /// Opens a window now, as [`start`](Self::start) does, that is written into a folder of its own instead of being
    /// passed to the exporters: as a Chrome trace, a Perfetto trace and an HTML page. The request has
    /// [failed](crate::control::Progress::Failed) if a window is open already, or there is no memory for another.
    ///
    /// ```
    /// # use kernspan::{Profiler, Schedule};
    /// # use tracing_subscriber::prelude::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let (layer, profiler) = Profiler::builder().schedule(Schedule::manual()).build()?;
    /// # tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
    /// let requested = profiler.start_into(folder.join("evaluation"));
    /// tracing::info_span!("evaluate").in_scope(|| ());
    /// profiler.stop();
    /// assert_eq!(requested.wait().unwrap().files.len(), 3);
    /// # });
    /// # profiler.finish()?;
    /// # Ok::<(), kernspan::Error>(())
    /// ```
    pub fn start_into(&self, folder: impl Into<PathBuf>) -> Requested {
        self.control().open(Some(folder.into()))
    }

    /// Asks for a window of so many steps, from the next one on, whatever the schedule says: see
    /// [`Control::record`](crate::control::Control::record).
    pub fn record_next(&self, steps: u64) -> Requested {
        self.control().record(RecordRequest::steps(steps))
    }

    /// Writes what the [flight recorder](crate::FlightRecorder) has kept into a folder; it resumes with the next step.
    /// The request has [failed](crate::control::Progress::Failed) if there is no flight recorder, if another window is
    /// open, or if no step has begun since the recorder last wrote.
    ///
    /// ```
    /// # use kernspan::{FlightRecorder, Profiler, Schedule};
    /// # use tracing_subscriber::prelude::*;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let builder = Profiler::builder().schedule(Schedule::manual()).flight_recorder(FlightRecorder::steps(3));
    /// let (layer, profiler) = builder.build()?;
    /// # tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
    /// for step in 0..100 {
    ///     tracing::info_span!("train_step").in_scope(|| ());
    ///     profiler.step();
    ///     if step == 80 {
    ///         let recorded = profiler.write_recent(folder.join("loss-is-nan")).wait().unwrap();
    ///         assert!((3..6).contains(&recorded.steps));
    ///     }
    /// }
    /// # });
    /// # profiler.finish()?;
    /// # Ok::<(), kernspan::Error>(())
    /// ```
    pub fn write_recent(&self, folder: impl Into<PathBuf>) -> Requested {
        self.control().write_recent(Some(folder.into()))
    }

    /// Returns a handle to look at the run and to ask for windows from other threads.
    pub fn control(&self) -> Control {
        Control::new(Arc::clone(&self.session), self.followed.memory.clone())
    }

    /// Returns the number of windows that have closed and are not exported yet.
    pub fn pending(&self) -> u32 {
        self.session.status().pending
    }

    /// Closes the window, whether opened by the schedule or by [`start`](Self::start), and exports it in the
    /// background. Returns false if none is open.
    ///
    /// The schedule continues: its next window opens when it is due. Without a schedule, nothing more is recorded until
    /// [`start`](Self::start).
    pub fn stop(&self) -> bool {
        self.session.close()
    }

    /// Opens a window for a scope: calls [`start`](Self::start) now and [`stop`](Self::stop) when the guard is dropped.
    /// A window that is already open is left alone.
    pub fn record(&self) -> RecordGuard<'_> {
        RecordGuard { profiler: self, started: self.start() }
    }

    /// Ends the recording, waits for the exporters, and prints the report to standard output, with tables as wide as
    /// the terminal. Returns the report for further use.
    ///
    /// The report is printed even if part of the run failed. The error's text does not repeat it, so a `main` that
    /// returns the error prints both.
    ///
    /// ```
    /// # fn main() -> Result<(), kernspan::Error> {
    /// let (layer, profiler) = kernspan::Profiler::builder().build()?;
    /// # drop(layer);
    /// let report = profiler.finish_and_print()?;
    /// println!("{}", report.averages().limit(5));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Run`] with the failures, and the report.
    pub fn finish_and_print(self) -> Result<Report, Error> {
        let finished = self.finish();
        let report = match &finished {
            Ok(report) => Some(report),
            Err(Error::Run { report, .. }) => Some(&**report),
            Err(_) => None,
        };
        if let Some(report) = report {
            // `println!` would panic if the reader is gone, as in `train | head`.
            let _ = writeln!(io::stdout(), "{}", report.fit_terminal());
            note_printed();
        }
        finished
    }

    /// Ends the recording, waits for the exporters, and returns the report. If that takes longer than a second and
    /// standard error is a terminal, a progress line is shown there. To print the report, use
    /// [`finish_and_print`](Self::finish_and_print).
    ///
    /// # Errors
    ///
    /// [`Error::Run`] with the failures, and the report.
    pub fn finish(self) -> Result<Report, Error> {
        let Outcome { report, failures } = self.ending.end(false).unwrap_or_default();
        let failures = failures.into_vec();
        if failures.is_empty() { Ok(report) } else { Err(Error::Run { failures, report: Box::new(report) }) }
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        self.ending.end_and_print(std::thread::panicking());
    }
}

/// A guard that closes the window opened by [`Profiler::record`].
#[must_use = "dropping the guard closes the window"]
#[derive(Debug)]
pub struct RecordGuard<'a> {
    profiler: &'a Profiler,
    started: bool,
}

impl Drop for RecordGuard<'_> {
    fn drop(&mut self) {
        if self.started {
            self.profiler.stop();
        }
    }
}
