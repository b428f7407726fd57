//! The end of a recording, requested by the profiler, a signal or the exit of the process.

#[cfg(feature = "serving")]
use crate::serving::ServingThread;
use crate::{
    activity::{Activities, Activity},
    failure::{Failure, Grouped},
    hint::Hint,
    pipeline::{Outcome, Pipeline},
    progress::Progress,
    recording::Kept,
    session::Session,
};
use std::{
    env, fmt, fs,
    io::{self, Write},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

/// The parts of a recording that end it. It ends once, for the first caller; later callers wait until it has ended.
#[derive(Debug)]
pub(crate) struct Ending {
    session: Arc<Session>,
    /// The background threads, until the recording ends.
    pipeline: Mutex<Option<Pipeline>>,
    activities: Activities,
    shown: Shown,
    /// The durations of steps that were not recorded, for the exporters.
    unrecorded: Arc<OnceLock<Vec<Duration>>>,
    /// The reason why the profiler is off, if it is.
    off: Option<String>,
    /// The function to call when everything is exported. A fork does not call it.
    at_end: AtEnd,
    /// The thread that adds up requests, until the recording ends.
    #[cfg(feature = "serving")]
    serving: Mutex<Option<ServingThread>>,
}

/// A function that is called once, at the end of a recording.
#[derive(Default)]
pub(crate) struct AtEnd(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl AtEnd {
    #[cfg(all(feature = "control", unix))]
    pub(crate) fn new(function: impl FnOnce() + Send + 'static) -> Self {
        Self(Mutex::new(Some(Box::new(function))))
    }

    fn call(&self) {
        let function = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        function.into_iter().for_each(|function| function());
    }
}

impl fmt::Debug for AtEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtEnd")
    }
}

/// What the end of a recording shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// The report, if the profiler is dropped rather than finished.
    pub(crate) report: bool,
    /// The progress of the exports, on a terminal.
    pub(crate) progress: bool,
}

impl Ending {
    pub(crate) fn new(
        session: Arc<Session>,
        pipeline: Pipeline,
        activities: Activities,
        shown: Shown,
        unrecorded: Arc<OnceLock<Vec<Duration>>>,
        at_end: AtEnd,
    ) -> Self {
        Self {
            session,
            pipeline: Mutex::new(Some(pipeline)),
            activities,
            shown,
            unrecorded,
            off: None,
            at_end,
            #[cfg(feature = "serving")]
            serving: Mutex::default(),
        }
    }

    /// Returns the ending, which ends this thread, too.
    #[cfg(feature = "serving")]
    pub(crate) fn with_serving(self, serving: Option<ServingThread>) -> Self {
        Self { serving: Mutex::new(serving), ..self }
    }

    /// Creates the ending of a profiler that is off: there is nothing to end.
    pub(crate) fn off(session: Arc<Session>, activities: Activities, because: String) -> Self {
        let (pipeline, unrecorded) = (Mutex::default(), Arc::default());
        Self {
            session,
            pipeline,
            activities,
            shown: Shown { report: false, progress: false },
            unrecorded,
            at_end: AtEnd::default(),
            off: Some(because),
            #[cfg(feature = "serving")]
            serving: Mutex::default(),
        }
    }

    /// Ends the recording and waits for the exporters. What the flight recorder has kept is written if `badly`. Returns
    /// `None` if it has ended already. In a fork, nothing ends, and the report says so.
    pub(crate) fn end(&self, badly: bool) -> Option<Outcome> {
        if let Some(because) = &self.off {
            let mut outcome = Outcome::default();
            outcome.report.add_hints(vec![Hint::Off { because: because.clone() }]);
            return Some(outcome);
        }
        if self.session.is_forked() {
            // A fork has none of the threads, and its parent exports the recording. Dropping either would lock their
            // queues, whose locks may be held by threads that do not exist here. The same goes for this lock.
            let pipeline = self.pipeline.try_lock().map(|mut running| running.take());
            #[cfg(feature = "serving")]
            std::mem::forget(self.serving.try_lock().map(|mut serving| serving.take()));
            std::mem::forget((pipeline, Arc::clone(&self.session)));
            let mut outcome = Outcome::default();
            outcome.report.add_hints(vec![Hint::Forked]);
            return Some(outcome);
        }
        // Locked until the end, so that others wait for it.
        let mut running = self.pipeline.lock().unwrap_or_else(PoisonError::into_inner);
        let pipeline = running.take()?;
        let schedule_panic = self.session.end(if badly { Kept::Written } else { Kept::InMemory });
        // The report and the exporters, which finish before it, get the same step counts.
        let unrecorded = self.unrecorded.get_or_init(|| self.session.unrecorded_steps());
        #[cfg(feature = "serving")]
        let served = self.serving.lock().unwrap_or_else(PoisonError::into_inner).take().map(ServingThread::join);
        let progress = self.shown.progress.then(Progress::start).flatten();
        let mut outcome = pipeline.join();
        drop(progress);
        #[cfg(feature = "serving")]
        if let Some(mut served) = served {
            outcome.report.set_requests(served.requests());
            outcome.report.add_files(served.files);
            outcome.failures.append(served.failures);
        }
        self.at_end.call();
        outcome.report.settle_gpu(self.session.gpu());
        outcome.report.add_unrecorded_steps(unrecorded.clone());
        let spans = self.activities.has(Activity::Host).then(|| outcome.report.spans());
        outcome.report.add_hints(self.session.hints(spans));
        self.session.turn_off();
        if let Some(message) = schedule_panic {
            outcome.failures.add(Failure::of_panic("schedule", None, &message));
        }
        Some(outcome)
    }

    /// Like [`end`](Self::end), but writes each failure to standard error, after the report if requested.
    pub(crate) fn end_and_print(&self, badly: bool) {
        if self.off.is_some() {
            return;
        }
        let Some(Outcome { report, failures }) = self.end(badly) else { return };
        // Standard error is the parent's, too, which has the recording.
        if report.hints().contains(&Hint::Forked) {
            return;
        }
        // `eprintln!` would panic if standard error is closed, and so abort a program that is already panicking.
        let mut stderr = io::stderr().lock();
        if self.shown.report {
            let _ = writeln!(stderr, "{report}");
            note_printed();
        }
        for line in Grouped(&failures.into_vec()).lines() {
            let _ = writeln!(stderr, "kernspan: {line}");
        }
        // `let (layer, _) = …` drops an unused profiler at once, which leaves empty files.
        if report.is_empty() {
            let text = "the profiler was dropped before it had recorded anything: keep it until the run ends, as in \
                        `let (layer, profiler) = …`, and call `finish()`";
            let _ = writeln!(stderr, "kernspan: {text}");
            // The layer was not yet in use for the same reason.
            for hint in report.hints().iter().filter(|hint| **hint != Hint::NotInstalled) {
                let _ = writeln!(stderr, "kernspan: {hint}");
            }
        }
    }
}

/// Notes that the program has printed its report, in the file that `kernspan run` names, which then prints no other.
pub(crate) fn note_printed() {
    if let Some(path) = env::var_os("KERNSPAN_PRINTED").filter(|path| !path.is_empty()) {
        let _ = fs::write(path, "");
    }
}
