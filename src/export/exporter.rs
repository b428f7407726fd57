//! The traits of exporters, of windows and of steps.

use super::run_id::RunId;
#[cfg(feature = "serving")]
use crate::serving::{RequestRecorder, Requests};
use crate::{
    activity::Activity,
    analysis::{Analysis, FollowedRun, VitalSigns},
    delivery::Delivery,
    schedule::Phase,
    trace::{Metadata, Timestamp},
};
use std::{
    error::Error,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

/// The result of an export: the files written, or the reason they could not be.
pub type ExportResult = Result<Vec<PathBuf>, Box<dyn std::error::Error + Send + Sync>>;

/// A destination for traces: it receives each recorded window, as the [`Analysis`] of its [`Trace`](crate::Trace).
///
/// Exporters run on a background thread, one after another, never two at once. One that fails or panics is reported by
/// [`finish`](crate::Profiler::finish); the others continue. Spans created by an exporter are not recorded.
///
/// Only [`export`](Self::export) is required:
///
/// ```
/// use kernspan::{Exporter, Profiler, analysis::Analysis, export::ExportResult};
/// use std::{collections::BTreeMap, path::PathBuf};
///
/// /// Writes how often each span was entered, into a file in this folder.
/// struct Counts(PathBuf);
///
/// impl Exporter for Counts {
///     fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
///         let mut counts = BTreeMap::new();
///         window.spans().for_each(|span| *counts.entry(span.name()).or_insert(0) += 1);
///         let file = self.0.join(format!("counts-{}.txt", window.window()));
///         std::fs::write(&file, format!("{counts:#?}"))?;
///         Ok(vec![file]) // The report lists it.
///     }
/// }
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let runs = folder.path();
/// let (layer, profiler) = Profiler::builder().export(Counts(runs.into())).build()?;
/// # drop(layer);
/// # profiler.finish()?;
/// # Ok::<(), kernspan::Error>(())
/// ```
pub trait Exporter: Send + 'static {
    /// Exports one window, and returns the files it wrote.
    ///
    /// # Errors
    ///
    /// Anything to be reported as a [`Failure`](crate::Failure).
    fn export(&mut self, window: &Analysis<'_>) -> ExportResult;

    /// Checks that traces can be exported. [`build`](crate::ProfilerBuilder::build) calls it once, so that mistakes are
    /// found before the training begins. By default, it does nothing.
    ///
    /// Exporters that write into a folder create it if it does not exist, and write and remove a small file. The folder
    /// stays.
    ///
    /// # Errors
    ///
    /// The reason nothing can be exported, which [`build`](crate::ProfilerBuilder::build) returns in
    /// [`Error::Exporters`](crate::Error::Exporters). A panic counts as an error.
    fn check(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }

    /// Returns the exporter's name, as used in a [`Failure`](crate::Failure). By default, the name of its type, without
    /// its path and its generic parameters.
    fn name(&self) -> &str {
        type_name::<Self>()
    }

    /// Returns a [`StepExporter`] for the summaries of every step, recorded or not. It is called once, when the
    /// profiler is built. By default, there is none; if no exporter has one, the summaries cost nothing.
    fn steps(&mut self, run: &Run) -> Option<Box<dyn StepExporter>> {
        let _ = run;
        None
    }
}

/// The last segment of a type's path: `Chrome` for `kernspan::export::chrome::Chrome`.
fn type_name<T: ?Sized>() -> &'static str {
    let name = std::any::type_name::<T>();
    name.split('<').next().and_then(|path| path.rsplit("::").next()).unwrap_or(name)
}

/// The exporter behind [`on_trace`](crate::ProfilerBuilder::on_trace).
pub(crate) struct OnTrace<F>(pub(crate) F);

impl<F: FnMut(&Analysis<'_>) + Send + 'static> Exporter for OnTrace<F> {
    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        (self.0)(window);
        Ok(Vec::new())
    }

    fn name(&self) -> &str {
        "on_trace"
    }
}

/// A destination for step summaries: it receives every step, recorded or not.
///
/// Recording a trace all the time would cost too much. A summary does not: it has the step's duration and its counters
/// (`tracing::info!(counter.loss = 0.3)`), and costs the thread that ends the step well below a microsecond.
///
/// An [`Exporter`] that wants summaries returns one of these from [`Exporter::steps`]. It runs on a background thread.
/// If it fails or panics, it is still called again, and [`finish`](crate::Profiler::finish) reports the failure,
/// identical ones only once. Spans it creates are not recorded.
///
/// ```
/// use kernspan::{Exporter, Profiler, Schedule, analysis::Analysis};
/// use kernspan::export::{ExportResult, Run, StepExporter, StepSummary};
/// use std::{error::Error, time::Duration};
/// # use tracing_subscriber::prelude::*;
///
/// /// Prints the steps that were slow.
/// struct SlowSteps(Duration);
///
/// impl Exporter for SlowSteps {
///     fn export(&mut self, _: &Analysis<'_>) -> ExportResult {
///         Ok(vec![])
///     }
///
///     fn steps(&mut self, run: &Run) -> Option<Box<dyn StepExporter>> {
///         eprintln!("{} begins", run.metadata.process);
///         Some(Box::new(Self(self.0)))
///     }
/// }
///
/// impl StepExporter for SlowSteps {
///     fn steps(&mut self, steps: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>> {
///         for step in steps.iter().filter(|step| step.duration > self.0) {
///             eprintln!("step {} took {:?}, loss {:?}", step.number, step.duration, step.counter("loss"));
///         }
///         Ok(())
///     }
/// }
///
/// let (layer, profiler) = Profiler::builder()
///     .schedule(Schedule::manual()) // Records nothing.
///     .export(SlowSteps(Duration::from_millis(100)))
///     .build()?;
/// # tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
/// for batch in 1..10 {
///     tracing::info!(counter.loss = 1.0 / f64::from(batch));
///     profiler.step();
/// }
/// # });
/// profiler.finish()?;
/// # Ok::<(), kernspan::Error>(())
/// ```
pub trait StepExporter: Send + 'static {
    /// Takes the steps that ended since the last call, in order.
    ///
    /// It is called at least twice a second, with no steps if none has ended, so that it can write what it has
    /// buffered.
    ///
    /// # Errors
    ///
    /// Anything to be reported as a [`Failure`](crate::Failure).
    fn steps(&mut self, steps: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Notes that the run ends by a panic, as when a training fails and its profiler is dropped. It is called before
    /// [`finish`](Self::finish). By default, it does nothing.
    fn panicked(&mut self) {}

    /// Ends the run, and returns the files written. It is called once, after the last steps and the last window. By
    /// default, there are no files.
    ///
    /// # Errors
    ///
    /// Anything to be reported as a [`Failure`](crate::Failure).
    fn finish(&mut self) -> ExportResult {
        Ok(Vec::new())
    }

    /// Returns how much was sent over the network and how much of it arrived, for the [`Report`](crate::Report). It is
    /// called after [`finish`](Self::finish). By default, nothing was sent.
    fn deliveries(&self) -> Vec<Delivery> {
        Vec::new()
    }
}

/// A step, recorded or not: its number, its duration and its counters.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepSummary {
    /// The step's number in the run, from 0. A number is missing only if its step was
    /// [lost](crate::trace::Losses::steps).
    pub number: u64,
    /// The step's phase in the schedule.
    pub phase: Phase,
    /// The start, on the wall clock: the end of the previous step, or for step 0 the moment the profiler was built.
    pub start: Timestamp,
    /// The time from start to end. Setting the wall clock meanwhile does not change it.
    pub duration: Duration,
    /// Whether [`step`](crate::Profiler::step) ended it. If not, the run ended first; such a step has a summary only if
    /// it has counters, as from a validation after the last step.
    pub ended: bool,
    /// The counters, each with its last value in the step, from any thread. The value may not be finite.
    pub counters: Vec<(&'static str, f64)>,
}

impl StepSummary {
    /// Returns the summary of a step that has ended and has no counters: for tests of a [`StepExporter`].
    ///
    /// ```
    /// use kernspan::{Phase, export::StepSummary, trace::Timestamp};
    /// use std::time::Duration;
    ///
    /// let mut step = StepSummary::new(7, Phase::Wait, Timestamp::now(), Duration::from_millis(100));
    /// step.counters.push(("loss", 0.5));
    /// assert_eq!(step.counter("loss"), Some(0.5));
    /// ```
    pub fn new(number: u64, phase: Phase, start: Timestamp, duration: Duration) -> Self {
        Self { number, phase, start, duration, ended: true, counters: Vec::new() }
    }

    /// Returns the end, on the wall clock.
    pub fn end(&self) -> Timestamp {
        let nanos = u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX);
        Timestamp::from_unix_nanos(self.start.as_unix_nanos().saturating_add(nanos))
    }

    /// Returns the last value of a counter in the step.
    pub fn counter(&self, name: &str) -> Option<f64> {
        self.counters.iter().find_map(|&(known, value)| (known == name).then_some(value))
    }
}

/// A run of a program, as far as known when the profiler is built.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run {
    /// The name that the launcher gave to the run, which is the same on all ranks.
    pub id: Option<RunId>,
    /// The metadata that every trace of the run has.
    pub metadata: Arc<Metadata>,
    /// The moment the profiler was built.
    pub start: Timestamp,
    /// The schedule, as human-readable text.
    pub schedule: String,
    /// The activities that are recorded.
    pub activities: Vec<Activity>,
    /// The durations of steps that were not recorded, or of a sample of them, once the run has ended: those of the
    /// [`Report`](crate::Report).
    pub(crate) unrecorded: Arc<OnceLock<Vec<Duration>>>,
    /// The memory and the vital signs of the run, if they were followed, once the last window has been exported.
    pub(crate) followed: Arc<OnceLock<FollowedRun>>,
    /// The latest reading of vital signs, if they are read.
    pub(crate) vitals: LatestVitals,
    /// The requests of the run, if they are counted.
    #[cfg(feature = "serving")]
    pub(crate) requests: Option<Arc<RequestRecorder>>,
}

/// The latest reading of vital signs, shared with the thread that reads them.
pub(crate) type LatestVitals = Arc<Mutex<Option<Arc<VitalSigns>>>>;

impl Run {
    /// Returns the latest vital signs: see [`Profiler::vitals`](crate::Profiler::vitals).
    pub fn vitals(&self) -> Option<Arc<VitalSigns>> {
        self.vitals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns all requests so far: see [`Profiler::requests`](crate::Profiler::requests).
    #[cfg(feature = "serving")]
    pub fn requests(&self) -> Requests {
        self.requests.as_ref().map(|recorder| recorder.requests()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Exporter, OnTrace};
    use crate::{
        analysis::Analysis,
        export::{Chrome, Collected, ExportResult, Html, Perfetto, Stacks, TensorBoard},
    };

    struct Plain;

    struct Generic<T>(T);

    impl Exporter for Plain {
        fn export(&mut self, _: &Analysis<'_>) -> ExportResult {
            Ok(Vec::new())
        }
    }

    impl<T: Send + 'static> Exporter for Generic<T> {
        fn export(&mut self, _: &Analysis<'_>) -> ExportResult {
            Ok(Vec::new())
        }
    }

    #[test]
    fn exporters_are_named_after_their_types() {
        let exporters: [(Box<dyn Exporter>, &str); 9] = [
            (Box::new(Plain), "Plain"),
            (Box::new(Generic(Generic(Plain))), "Generic"),
            (Box::new(OnTrace(|_: &Analysis<'_>| ())), "on_trace"),
            (Box::new(Chrome::to_dir("")), "Chrome"),
            (Box::new(Perfetto::to_dir("")), "Perfetto"),
            (Box::new(TensorBoard::to_dir("")), "TensorBoard"),
            (Box::new(Stacks::to_dir("")), "Stacks"),
            (Box::new(Html::to_dir("")), "Html"),
            (Box::new(Collected::new()), "Collected"),
        ];
        for (exporter, name) in exporters {
            assert_eq!(exporter.name(), name);
        }
    }
}
