//! The builder of a profiler: its settings and their defaults.

mod background;
mod build;
mod limits;
mod samplers;
#[cfg(feature = "serving")]
mod serving;

#[cfg(all(feature = "control", unix))]
use crate::control::Listen;
#[cfg(feature = "serving")]
use crate::serving::{RequestKind, RequestLog, Slo};
use crate::{
    activity::{Activities, Activity},
    analysis::Analysis,
    cpu_time::CpuTime,
    export::{Exporter, OnTrace, RunId},
    flight::FlightRecorder,
    gpu::{Counters, DetachPolicy},
    memory::MemorySnapshots,
    pipeline::NamedExporter,
    profiler::Profiler,
    sampling::Samples,
    schedule::Schedule,
    trace::Metadata,
    vitals::Vitals,
};
use std::{fmt, path::PathBuf, time::Duration};

/// A builder of a profiler, made by [`Profiler::builder`].
///
/// | setting | by default |
/// |---|---|
/// | [`enabled`](Self::enabled) | yes |
/// | [`schedule`](Self::schedule) | record from the start to the end |
/// | [`step_on`](Self::step_on) | steps end where [`Profiler::step`] is called |
/// | `request_on` (feature `serving`) | no span is a request |
/// | `slo`, `request_log` (feature `serving`) | no objectives for requests, no periodic report of them |
/// | [`activities`](Self::activities) | spans, kernels and copies |
/// | [`memory_snapshots`](Self::memory_snapshots) | allocations are followed in windows only |
/// | [`vitals`](Self::vitals) | none are read |
/// | [`samples`](Self::samples) | none: only spans say what threads do |
/// | [`cpu_time`](Self::cpu_time) | wall-clock time only |
/// | [`flight_recorder`](Self::flight_recorder) | none: nothing is kept of steps that are not recorded |
/// | [`counters`](Self::counters) | none of the GPU's hardware counters |
/// | [`detach_after`](Self::detach_after) | as soon as it pays, or [`DETACH_AFTER`](Self::DETACH_AFTER), 250 ms |
/// | [`export`](Self::export), [`on_trace`](Self::on_trace) | nowhere; the report is there all the same |
/// | [`print_report`](Self::print_report) | not if the profiler is dropped |
/// | [`show_progress`](Self::show_progress) | on a terminal, if `finish()` takes more than a second |
/// | `listen` (feature `control`) | nobody can ask the run from outside |
/// | `nvtx` (feature `nvtx`) | spans are not NVTX ranges |
/// | [`backtraces`](Self::backtraces) | none |
/// | [`heap_lines`](Self::heap_lines) | none |
/// | [`rank`](Self::rank) | the rank in the launcher's environment variables |
/// | [`lane_capacity`](Self::lane_capacity) | [`LANE_CAPACITY`](Self::LANE_CAPACITY) records, 2 MiB a thread |
/// | [`memory_limit_bytes`](Self::memory_limit_bytes) | [`MEMORY_LIMIT_BYTES`](Self::MEMORY_LIMIT_BYTES), 256 MiB |
/// | [`disk_limit_bytes`](Self::disk_limit_bytes) | none |
/// | [`live_spans`](Self::live_spans) | [`LIVE_SPANS`](Self::LIVE_SPANS), 16,384 |
#[must_use = "call `build` to get the layer and the profiler"]
pub struct ProfilerBuilder {
    /// The reason why the profiler is off, if it is.
    off: Option<String>,
    schedule: Schedule,
    step_on: Option<String>,
    #[cfg(feature = "serving")]
    requests: Vec<RequestKind>,
    #[cfg(feature = "serving")]
    slos: Vec<Slo>,
    #[cfg(feature = "serving")]
    request_log: Option<RequestLog>,
    exporters: Vec<NamedExporter>,
    print_report: bool,
    show_progress: bool,
    #[cfg(all(feature = "signals", unix))]
    save_within: Option<Duration>,
    #[cfg(all(feature = "control", unix))]
    listen: Option<Listen>,
    /// The exporter that keeps what those who watch the run are shown.
    observer: Option<NamedExporter>,
    #[cfg(all(feature = "nvtx", unix))]
    nvtx: bool,
    backtraces: bool,
    heap_lines: bool,
    lane_capacity: usize,
    memory_limit_bytes: usize,
    disk_limit_bytes: Option<u64>,
    live_spans: usize,
    activities: Activities,
    detach: DetachPolicy,
    counters: Counters,
    raw_folder: Option<PathBuf>,
    snapshots: Option<MemorySnapshots>,
    vitals: Option<Vitals>,
    samples: Option<Samples>,
    cpu_time: Option<CpuTime>,
    flight: Option<FlightRecorder>,
    metadata: Metadata,
}

impl Profiler {
    /// Returns a builder of a profiler.
    pub fn builder() -> ProfilerBuilder {
        ProfilerBuilder::new()
    }
}

impl ProfilerBuilder {
    /// The default of [`detach_after`](Self::detach_after), where the schedule does not show that detaching earlier
    /// pays.
    pub const DETACH_AFTER: Duration = Duration::from_millis(250);
    /// The most times that the GPU's profiling library is detached between windows.
    pub const DETACH_MOST: u32 = 100;

    /// The time limit of [`save_on_exit`](Self::save_on_exit).
    #[cfg(all(feature = "signals", unix))]
    pub const SAVE_WITHIN: Duration = Duration::from_secs(10);

    fn new() -> Self {
        Self {
            off: None,
            schedule: Schedule::always(),
            step_on: None,
            #[cfg(feature = "serving")]
            requests: Vec::new(),
            #[cfg(feature = "serving")]
            slos: Vec::new(),
            #[cfg(feature = "serving")]
            request_log: None,
            exporters: Vec::new(),
            print_report: false,
            show_progress: true,
            #[cfg(all(feature = "signals", unix))]
            save_within: None,
            #[cfg(all(feature = "control", unix))]
            listen: None,
            observer: None,
            #[cfg(all(feature = "nvtx", unix))]
            nvtx: false,
            backtraces: false,
            heap_lines: false,
            lane_capacity: Self::LANE_CAPACITY,
            memory_limit_bytes: Self::MEMORY_LIMIT_BYTES,
            disk_limit_bytes: None,
            live_spans: Self::LIVE_SPANS,
            activities: Activities::DEFAULT.into_iter().collect(),
            detach: DetachPolicy { after: Self::DETACH_AFTER, fixed: false, most: Self::DETACH_MOST },
            counters: Counters::default(),
            raw_folder: None,
            snapshots: None,
            vitals: None,
            samples: None,
            cpu_time: None,
            flight: None,
            metadata: Metadata { run: RunId::from_env().map(|run| run.to_string()), ..Metadata::of_this_process() },
        }
    }

    /// Sets whether the profiler is on. By default, it is.
    ///
    /// If it is off, its layer wants no spans, no thread is started, CUDA is not initialised and nothing is written.
    /// [`Profiler::start`] returns false, and the report has a [`Hint`](crate::report::Hint) that says so.
    ///
    /// ```
    /// # use kernspan::Profiler;
    /// let (layer, profiler) = Profiler::builder().enabled(false).build()?;
    /// # drop(layer);
    /// assert!(!profiler.start());
    /// let report = profiler.finish()?;
    /// assert_eq!(report.to_string(), "the profiler is off, and recorded nothing (enabled(false))\n");
    /// # Ok::<(), kernspan::Error>(())
    /// ```
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.off = (!enabled).then(|| "enabled(false)".to_owned());
        self
    }

    /// Turns the profiler off for this reason.
    #[cfg(feature = "config")]
    pub(crate) fn off_because(mut self, reason: String) -> Self {
        self.off = Some(reason);
        self
    }

    /// Sets when to record. By default, from the start to the end.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Sets which activities are recorded: PyTorch's `activities`. By default, [`Activity::Host`],
    /// [`Activity::Kernels`] and [`Activity::Copies`].
    ///
    /// ```
    /// # use kernspan::{Activity, Profiler};
    /// let everything = [Activity::Host, Activity::Kernels, Activity::Copies, Activity::Memory, Activity::Sync];
    /// let (layer, profiler) = Profiler::builder().activities(everything).build()?;
    /// # drop(layer);
    /// println!("{}", profiler.gpu()); // whether there is a GPU, and if not, why not
    /// # profiler.finish()?;
    /// # Ok::<(), kernspan::Error>(())
    /// ```
    pub fn activities(mut self, activities: impl IntoIterator<Item = Activity>) -> Self {
        self.activities = activities.into_iter().collect();
        self
    }

    /// Sets how long the GPU's profiling library stays attached while nothing is recorded. By default, it is detached
    /// as soon as that pays, and otherwise after [`Self::DETACH_AFTER`].
    ///
    /// While CUPTI is attached, each launch takes 0.4 to 1.5 µs longer even while nothing is recorded. To detach it and
    /// attach it again takes twelve milliseconds (on an H200, with CUPTI 13.0) and half a megabyte of the GPU's memory,
    /// which CUPTI does not give back. So it is detached if the coming wait has more than 17,000 launches and 200 ms,
    /// by the schedule and by the steps of the last window, and after the last window. That happens when the window is
    /// complete, in the next `step()`, which then waits for the work that the GPU has been given. With
    /// [`Schedule::from_fn`] and [`Schedule::manual`] the length of the wait is not known.
    ///
    /// CUPTI is not attached again for 100 ms, as a thread may still be on its way out of it: `step()` and `start()`
    /// wait for that. Between windows it is detached no more than [`Self::DETACH_MOST`] times.
    pub fn detach_after(mut self, idle: Duration) -> Self {
        self.detach = DetachPolicy { after: idle, fixed: true, ..self.detach };
        self
    }

    /// Sets a folder into which each window is also written raw: the bytes that the GPU's profiling library recorded,
    /// and the spans and operations around them. By default, there is none.
    ///
    /// [`replay`] makes a trace of such a file, on any machine: for tests, and to report faults. There must be waits
    /// between windows. If one follows the other at once, records of the second may be in the file of the first.
    ///
    /// [`replay`]: crate::replay()
    #[cfg(all(feature = "cuda", target_os = "linux"))]
    pub fn raw_to_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.raw_folder = Some(folder.into());
        self
    }

    /// Follows every allocation on GPUs from now on, whether or not a window is open, so that
    /// [`Profiler::memory_snapshot`] can say who holds the memory. By default, allocations are followed in windows.
    ///
    /// Snapshots are also taken automatically, when little memory is left and when an allocation fails: see
    /// [`MemorySnapshots`]. [`Activity::Memory`] is then recorded, too. CUPTI stays attached for the whole run, which
    /// costs as much as [`detach_after`](Self::detach_after) says; if only memory is recorded, only calls that allocate
    /// and free take longer. Virtual memory (`cuMemCreate`), memory nodes of graphs and what a framework's own pool
    /// does with its memory are not followed.
    pub fn memory_snapshots(mut self, snapshots: MemorySnapshots) -> Self {
        self.snapshots = Some(snapshots);
        self
    }

    /// Keeps the last steps in memory, and writes them when a step is slow, a thread panics or the process is ended:
    /// see [`FlightRecorder`]. By default, nothing is kept of steps that the schedule does not record.
    pub fn flight_recorder(mut self, recorder: FlightRecorder) -> Self {
        self.flight = Some(recorder);
        self
    }

    /// Sets the name of a span that ends a step whenever it closes, so that [`Profiler::step`] need not be called. By
    /// default, there is none.
    ///
    /// Calls of [`Profiler::step`] would then be steps of their own. It is the name in the source, not the one that a
    /// field may [give to the span](crate::trace::convention::NAME).
    pub fn step_on(mut self, span_name: impl Into<String>) -> Self {
        self.step_on = Some(span_name.into());
        self
    }

    /// Adds an exporter: [`Chrome`](crate::Chrome), [`Perfetto`](crate::Perfetto), [`TensorBoard`](crate::TensorBoard),
    /// [`Stacks`](crate::Stacks), [`Collected`](crate::Collected) or your own.
    pub fn export<E: Exporter>(mut self, exporter: E) -> Self {
        self.exporters.push(NamedExporter::new(exporter));
        self
    }

    /// Adds a function that is called with each window: PyTorch's `on_trace_ready`. It runs on a background thread.
    pub fn on_trace(self, function: impl FnMut(&Analysis<'_>) + Send + 'static) -> Self {
        self.export(OnTrace(function))
    }

    /// Sets whether the report is written to standard error if the profiler is dropped rather than
    /// [finished](Profiler::finish), as when `main` returns early or panics. By default, no.
    ///
    /// Failures are written there in any case.
    pub fn print_report(mut self, print: bool) -> Self {
        self.print_report = print;
        self
    }

    /// Sets whether a line on the terminal shows the progress of [`finish`](Profiler::finish), if it takes more than a
    /// second and standard error is a terminal. By default, yes.
    pub fn show_progress(mut self, show: bool) -> Self {
        self.show_progress = show;
        self
    }

    /// Saves the recording also if `SIGINT` (Ctrl-C), `SIGTERM` or a call of [`exit`](std::process::exit) ends the
    /// process, in at most [`Self::SAVE_WITHIN`]: see [`save_on_exit_within`](Self::save_on_exit_within). By default,
    /// no.
    #[cfg(all(feature = "signals", unix))]
    pub fn save_on_exit(self) -> Self {
        self.save_on_exit_within(Self::SAVE_WITHIN)
    }

    /// As [`save_on_exit`](Self::save_on_exit), in at most this time.
    ///
    /// At the first signal the window is closed and exported, failures are written to standard error, and the signal
    /// then ends the process as it would have. A second signal ends it at once. Signals that are ignored, as in a job
    /// that a shell has started in the background, stay so. `exit` waits for the exporters likewise, so that a profiler
    /// in a `static`, which is never dropped, is saved too. A fork saves nothing, and a signal ends it at once.
    ///
    /// # Handlers of the program
    ///
    /// A signal that has a handler when the first profiler with this setting is built is left to that handler. The
    /// recording is then saved when the program drops or finishes the profiler, or calls `exit`; it is lost if the
    /// handler ends the process otherwise. So register handlers first, and build the profiler then.
    ///
    /// A handler that is registered later by `tokio::signal` or `signal_hook` is called as well, but the process ends
    /// as soon as the recording is saved, which may be before that handler is done. `tokio::signal::ctrl_c()` registers
    /// its handler when it is first polled; `tokio::signal::unix::signal` does so when it is called. One that is
    /// registered later by `ctrlc::set_handler` replaces the profiler's, so that the program ends by itself, as with
    /// handlers registered before; and `ctrlc::try_set_handler` returns an error.
    #[cfg(all(feature = "signals", unix))]
    pub fn save_on_exit_within(mut self, limit: Duration) -> Self {
        self.save_within = Some(limit);
        self
    }

    /// Listens for other processes of this user, so that they can look at the run and ask for windows: `kernspan ps`,
    /// `kernspan record --pid`, [`Client`](crate::control::Client). By default, nothing listens.
    ///
    /// The socket is in `$XDG_RUNTIME_DIR/kernspan`, or else in `/tmp/kernspan-UID`, where only this user and root can
    /// reach it, and is removed at the end of the run. The first `SIGUSR2` records a window, too: see [`Listen`]. While
    /// nobody asks, it costs the program as much as an exporter that takes every step: nothing in a span, some fifty
    /// nanoseconds a step. While somebody watches, another thread also looks at the spans that are open, fifty times a
    /// second.
    #[cfg(all(feature = "control", unix))]
    pub fn listen(mut self, listen: Listen) -> Self {
        self.listen = Some(listen);
        self
    }

    /// Sets whether a backtrace is taken at every enter: PyTorch's `with_stack`. By default, no: it costs microseconds
    /// a span, and the stack of spans is there anyway.
    pub fn backtraces(mut self, take: bool) -> Self {
        self.backtraces = take;
        self
    }

    /// Sets whether sampled allocations have the line of the program that made them, with [`Activity::Heap`] and on
    /// Unix: see [`Report::heap_lines`](crate::Report::heap_lines). By default, no: a sample then costs microseconds,
    /// and one whose stack is new waits if another thread is writing a backtrace. Lines need debug information
    /// (`debug = "line-tables-only"` in Cargo's profile); without it, functions are named instead. The stacks of a run
    /// take up to 16 MB, which [`memory_limit_bytes`](Self::memory_limit_bytes) does not include.
    pub fn heap_lines(mut self, take: bool) -> Self {
        self.heap_lines = take;
        self
    }

    /// Sets the rank of this process among `world_size`. By default, it is read from the environment: see
    /// [`Metadata::RANK_VARIABLES`].
    pub fn rank(mut self, rank: u32, world_size: u32) -> Self {
        (self.metadata.rank, self.metadata.world_size) = (rank, world_size);
        self
    }

    /// Adds an entry to the metadata of every trace.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.user.insert(key.into(), value.into());
        self
    }
}

impl fmt::Debug for ProfilerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProfilerBuilder")
            .field("schedule", &self.schedule)
            .field("step_on", &self.step_on)
            .field("exporters", &self.exporters.iter().map(|exporter| &exporter.name).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
