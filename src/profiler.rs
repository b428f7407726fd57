//! The profiler: the handle that a program steps, starts, stops and finishes.

use crate::{
    Error, ProfilerBuilder,
    activity::{Activities, Activity},
    failure::Failure,
    host::HandOver,
    pipeline::{Outcome, Pipeline},
    report::Report,
    schedule::Phase,
    session::Session,
    trace::Gpu,
};
use std::sync::Arc;

/// A handle to a recording, which it controls, and ends when it is dropped.
///
/// Bind it to a name for as long as the program is to be profiled: `let _ = …` drops it at once. Best end it with
/// [`finish`](Self::finish), since dropping it can report failures only through `tracing` or standard error.
#[must_use = "dropping the profiler ends the recording"]
#[derive(Debug)]
pub struct Profiler {
    session: Arc<Session>,
    /// The background threads, until the recording ends.
    pipeline: Option<Pipeline>,
    activities: Activities,
}

impl Profiler {
    /// Returns a builder of a profiler.
    pub fn builder() -> ProfilerBuilder {
        ProfilerBuilder::new()
    }

    pub(crate) fn new(session: Arc<Session>, pipeline: Pipeline, activities: Activities) -> Self {
        Self { session, pipeline: Some(pipeline), activities }
    }

    #[cfg(test)]
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Ends a step and begins the next. Call it once in each turn of the loop, on any thread, outside of the step's
    /// spans.
    ///
    /// While the schedule waits it takes some twenty nanoseconds, or seventy if an exporter takes every step; at a
    /// window's edge, a few microseconds. Where it has to attach the GPU's profiling library it takes some
    /// milliseconds, the first time ten or twenty: that is what warmup steps are for. It never waits for exporters, nor
    /// for the GPU, unless a [`Watcher`](crate::framework::Watcher) does at a window's edge.
    pub fn step(&self) {
        self.session.step();
    }

    /// The number of the current step, counted from 0.
    pub fn current_step(&self) -> u64 {
        self.session.now().0
    }

    /// The phase of the schedule that the current step is in.
    pub fn phase(&self) -> Phase {
        self.session.now().1
    }

    /// Whether a window is open.
    pub fn is_recording(&self) -> bool {
        self.session.is_recording()
    }

    /// Whether this activity is recorded: see [`ProfilerBuilder::activities`].
    pub fn records(&self, activity: Activity) -> bool {
        self.activities.has(activity)
    }

    /// Whether what GPUs do is recorded, and if not, why not.
    pub fn gpu(&self) -> Gpu {
        self.session.gpu()
    }

    /// Returns a handle for integrations of frameworks that launch on threads of their own: see [`HandOver`].
    pub fn hand_over(&self) -> HandOver {
        HandOver::new(Arc::clone(self.session.host()))
    }

    /// Opens a window now, whatever the schedule says, that stays open until [`stop`](Self::stop). Returns false, and
    /// changes nothing, if a window is open already, or if so many wait to be exported that there is no memory for
    /// another: see [`memory_limit_bytes`](ProfilerBuilder::memory_limit_bytes).
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
        self.session.open()
    }

    /// Closes the window, opened by the schedule or by [`start`](Self::start), and has it exported in the background.
    /// Returns false if none is open.
    ///
    /// The schedule goes on: its next window opens when it is due. Without a schedule, nothing more is recorded until
    /// [`start`](Self::start).
    pub fn stop(&self) -> bool {
        self.session.close()
    }

    /// Opens a window for a scope: [`start`](Self::start) now, [`stop`](Self::stop) when the guard is dropped. If a
    /// window is open already, it is left as it is.
    pub fn record(&self) -> RecordGuard<'_> {
        RecordGuard { profiler: self, started: self.start() }
    }

    /// Ends the recording, waits for the exporters, and returns where the time went.
    ///
    /// # Errors
    ///
    /// [`Error::Run`] with every failure, and the report.
    pub fn finish(mut self) -> Result<Report, Error> {
        let Outcome { report, failures } = self.end().unwrap_or_default();
        if failures.is_empty() { Ok(report) } else { Err(Error::Run { failures, report: Box::new(report) }) }
    }

    fn end(&mut self) -> Option<Outcome> {
        let pipeline = self.pipeline.take()?;
        if self.session.is_forked() {
            // A fork has none of the threads, and its parent exports the recording. To drop either would lock their
            // queues, whose locks may be held by threads that do not exist here.
            std::mem::forget((pipeline, Arc::clone(&self.session)));
            return None;
        }
        let schedule_panic = self.session.end();
        let mut outcome = pipeline.join();
        outcome.report.settle_gpu(self.session.gpu());
        self.session.turn_off();
        outcome.failures.extend(schedule_panic.map(|message| Failure::of_panic("schedule", None, &message)));
        Some(outcome)
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        for failure in self.end().into_iter().flat_map(|outcome| outcome.failures) {
            if tracing::enabled!(tracing::Level::ERROR) {
                tracing::error!(%failure, "kernspan: a failure that nobody asked for");
            } else {
                eprintln!("kernspan: {failure}");
            }
        }
    }
}

/// A guard that closes the window that [`Profiler::record`] opened.
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
