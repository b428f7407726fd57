use super::{ExportResult, RunId};
use crate::{
    activity::Activity,
    delivery::Delivery,
    schedule::Phase,
    trace::{Metadata, Timestamp},
};
use std::{error::Error, sync::Arc, time::Duration};

/// Takes the vital signs of every step somewhere, also of those that are not recorded.
///
/// Where a trace is too much, this is what may be had all the time: how long each step took, and the counters
/// (`tracing::info!(counter.loss = 0.3)`) in it. It costs the thread that ends the step well below a microsecond, whatever the schedule says.
///
/// An [`Exporter`](crate::Exporter) that wants it returns one of these from [`Exporter::steps`](crate::Exporter::steps). It runs on a background
/// thread. What fails or panics is reported by [`finish`](crate::Profiler::finish), the same failure once, and it is called again all the
/// same; the training goes on. Spans that it makes are not recorded.
///
/// ```
/// use kernspan::{Exporter, Profiler, Schedule, Trace, export::{ExportResult, Run, StepExporter, StepSummary}};
/// use std::{error::Error, time::Duration};
/// # use tracing_subscriber::prelude::*;
///
/// /// Says which steps were slow.
/// struct SlowSteps(Duration);
///
/// impl Exporter for SlowSteps {
///     fn export(&mut self, _: &Trace) -> ExportResult {
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
    /// It is called at least twice a second, without any steps if none has ended, so that it can write down what it has put aside.
    ///
    /// # Errors
    ///
    /// Whatever is to be reported as a [`Failure`](crate::Failure).
    fn steps(&mut self, steps: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// The thread that ends the run does so since it panics, as when a training fails and its profiler is dropped: called before
    /// [`finish`](Self::finish). By default, that makes no difference.
    fn panicked(&mut self) {}

    /// The run is over: called once, after the last steps have been taken and the last window has been exported. Says which files
    /// there are. By default, none.
    ///
    /// # Errors
    ///
    /// Whatever is to be reported as a [`Failure`](crate::Failure).
    fn finish(&mut self) -> ExportResult {
        Ok(Vec::new())
    }

    /// What became of what was sent elsewhere, for the [`Report`](crate::Report): asked after [`finish`](Self::finish). By default, there is nothing to say.
    fn deliveries(&self) -> Vec<Delivery> {
        Vec::new()
    }
}

/// What is known of every step, recorded or not.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepSummary {
    /// The step's number in the run, counted from 0. Numbers are missing only where steps were [lost](crate::trace::Losses::steps).
    pub number: u64,
    /// What the schedule said for the step.
    pub phase: Phase,
    /// When it began, on the wall clock: when the step before it ended, or the profiler was made.
    pub start: Timestamp,
    /// How long it took; step 0, all since the profiler was made. Setting the wall clock changes only `start`.
    pub duration: Duration,
    /// Whether [`step`](crate::Profiler::step) ended it. If not, the run ended first; such a step is told of only if it has counters, as of a
    /// validation after the last step.
    pub ended: bool,
    /// The counters, with the last value that each had in the step. It may be of any thread, and may not be finite.
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

    /// When it ended.
    pub fn end(&self) -> Timestamp {
        let nanos = u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX);
        Timestamp::from_unix_nanos(self.start.as_unix_nanos().saturating_add(nanos))
    }

    /// The last value of a counter in the step.
    pub fn counter(&self, name: &str) -> Option<f64> {
        self.counters.iter().find_map(|&(known, value)| (known == name).then_some(value))
    }
}

/// A run of a program, as it is known when the profiler is made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run {
    /// The name that the launcher gave to the run, which is the same on all ranks.
    pub id: Option<RunId>,
    /// What every trace of it will say, too.
    pub metadata: Arc<Metadata>,
    /// When it began.
    pub start: Timestamp,
    /// The schedule, for people.
    pub schedule: String,
    /// What is recorded.
    pub activities: Vec<Activity>,
}
