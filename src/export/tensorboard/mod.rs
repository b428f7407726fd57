//! TensorBoard's files: profiles, scalars, texts and hyperparameters.

mod capture;
mod configuration;
#[cfg(test)]
mod consumers;
mod crc;
mod events_file;
mod profile;
mod scalars;
mod summary;
mod tag;
mod window;

use self::{
    capture::Capture,
    events_file::EventsFile,
    scalars::{Scalars, StepScalars},
    summary::Summary,
};
use super::{ExportResult, Exporter, Run, RunId, StepExporter};
use crate::{
    file::FileError,
    trace::{Metadata, Step, Timestamp, Trace, Value},
};
use std::{
    error::Error as _,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Writes for [TensorBoard](https://www.tensorflow.org/tensorboard): a profile of each window, and the vital signs of every step, also
/// while the schedule waits.
///
/// ```no_run
/// # use kernspan::{Profiler, TensorBoard};
/// let (layer, profiler) = Profiler::builder()
///     .export(TensorBoard::to_dir("runs/mnist").samples_per_step(64).hparam("lr", 0.001).hparam("optimizer", "adamw"))
///     .build()?;
/// # drop((layer, profiler));
/// # Ok::<(), kernspan::Error>(())
/// ```
///
/// and `pip install tensorboard xprof`, `tensorboard --logdir runs`.
///
/// # Profiles
///
/// The profile plugin, [XProf](https://openxla.org/xprof), shows each window as a session:
///
/// | page | what it shows here |
/// |---|---|
/// | Overview | how long the steps took, what the GPU did in them, the operations that took the longest, how much was computed with 16 bits; and as a banner, what was lost |
/// | Trace Viewer | threads with their spans and calls, streams with their kernels, arrows between them, counters |
/// | Kernel Stats | each kernel with its launch, registers, occupancy and operation |
/// | Framework Op Stats | spans by their paths, as `train_step/forward/linear`, on the host and with the GPU's time in them |
/// | HLO Op Stats, Roofline | the same with FLOPs and bytes, where [spans or operations say them](crate::trace::convention), and the place in the source |
/// | Memory Profile | the GPU's memory over time and whose it was at the peak, with [`Activity::Memory`](crate::Activity::Memory) |
/// | Input Pipeline | [data loading](crate::trace::InputStage), and copies to the device |
///
/// An operation is a path of spans, to which the names of a framework's [operations](crate::trace::Operation) are added where it tells of
/// them. XProf takes few characters in paths, so others are `_` there, and `::` is a slash.
///
/// What XProf does in its own way: a step is over when what it asked the GPU for is, and the next one begins then, so that all of them
/// together are as long as they were. The overview numbers steps from 0 (the trace viewer has their own numbers), leaves out those in
/// which a GPU that it knows of had nothing to do, and of more than five the first and the last. It takes only copies to the device for
/// input; what the host waited for is on the page of the input pipeline, and [`Verdict`](crate::analysis::Verdict) says whether that was too
/// long. Memory over time has a thousand points at the most, and its page is empty where nothing was taken from the GPU or given back, as
/// in later steps of a framework that keeps what it once took. Its charts and tables are drawn by Google's library from the network:
/// without it, the trace viewer works, and of the other pages no more than the figures at the side, though all of the data is there.
/// XProf keeps what it works out beside the profiles.
///
/// Each session is a folder, `plugins/profile/{date}_steps_{first}-{last}`. The ranks of a run write into the same one,
/// `{run}_window_{n}_from_step_{first}`, without a message between them, and can be chosen as hosts. The run is what `KERNSPAN_RUN_ID`
/// says, or torchrun, Slurm, PBS or LSF; where none of them tells runs apart, and a folder is used again, set it, lest ranks of
/// different runs meet. A session that has this rank's file already is left alone, and the next one gets a number.
///
/// # Scalars
///
/// | tag | of | what |
/// |---|---|---|
/// | `step/time_ms`, `step/per_second` | every step but the run's first | how long it took. The first has all since the profiler was made in it, as the loading of data, so that its time says little |
/// | `step/samples_per_second` | the same | if [`samples_per_step`](Self::samples_per_step) was called, or the step has a counter `samples` |
/// | `NAME` | every step | the last value in the step of the counter `NAME`: `tracing::info!(counter.loss = 0.3)` is `loss` |
/// | `gpu/busy_percent`, `gpu/kernels`, `gpu/copied_bytes`, `gpu/peak_memory_bytes`, `gpu/mfu_percent` | recorded steps | see [`StepGpu`](crate::analysis::StepGpu); what is not known is left out. Of other GPUs than the first, `gpu1/…` |
/// | `profiler/lost` | windows | [`Losses::total`](crate::trace::Losses::total), at the last step; of a window without steps, at the last step of the one before |
/// | `kernspan/configuration`, `kernspan/gpu` | the run | texts: what ran, with its [arguments](Self::arguments), and how it was profiled; and on which GPUs |
///
/// A counter that is not finite is written as it is, and TensorBoard marks it. TensorBoard keeps scalars with 32 bits. Names of
/// counters may be anything: what is longer than 256 bytes is cut, control characters become `_`, and a name that is one of the others
/// in the table gets `counter/` before it.
///
/// # Files
///
/// There is a new file for each run, `events.out.tfevents.{unix seconds}.{host}.{pid}.{n}`, written at least twice a second, so that
/// no more is lost if the process is killed. TensorBoard takes all files of a folder for one run: so have a folder for each run, and for
/// one that is interrupted and resumed the same, with [`first_step`](Self::first_step). Of a run of several processes, the
/// [rank](crate::ProfilerBuilder::rank) 0 writes into the folder, and the others into `rank1`, `rank2` and so on inside it.
///
/// If the file is deleted meanwhile, maybe with its folder, another one is begun with what comes then.
///
/// Scalars and texts that cannot be written are kept for a while and tried again. A profile that cannot be written is lost, as it may
/// be large. Of both [`finish`](crate::Profiler::finish) tells, of profiles that fail one after the other for the same reason with the
/// first of them and the number of the others; the training goes on.
#[derive(Debug)]
pub struct TensorBoard {
    folder: PathBuf,
    hparams: Vec<(String, Value)>,
    scalars: StepScalars,
    /// Whether the command line may be told.
    arguments: bool,
    file: Option<SharedFile>,
    /// Whether steps are told of as they end, and not only by traces.
    live: bool,
    /// The name of the run, if steps are told of as they end.
    run_id: Option<RunId>,
    /// What was said of GPUs last.
    gpu: Option<String>,
    profiles: Profiles,
    /// The last step of which a window told, as TensorBoard numbers them.
    last_window_step: Option<u64>,
}

/// Profiles that could not be written.
#[derive(Debug, Default)]
struct Profiles {
    /// Why the last one could not, unless it could.
    problem: Option<String>,
    /// Those of which nobody was told, as the one before had failed for the same reason: told of in the end.
    untold: Arc<AtomicU64>,
}

impl Profiles {
    /// Whether a failure has to be told of now. A folder that cannot be written is so for every window, and would be reported without end.
    fn is_news(&mut self, error: &FileError) -> bool {
        // Every window has a path of its own, so it is the cause that is compared.
        let problem = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        let news = self.problem.as_ref() != Some(&problem);
        self.problem = Some(problem);
        if !news {
            self.untold.fetch_add(1, Ordering::Relaxed);
        }
        news
    }
}

/// Shared by what every step knows and what windows do: there is one file in a run.
type SharedFile = Arc<Mutex<EventsFile>>;

fn lock(file: &SharedFile) -> MutexGuard<'_, EventsFile> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TensorBoard {
    /// Writes into this folder, which is made if it is not there.
    pub fn to_dir(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            hparams: Vec::new(),
            scalars: StepScalars::new(None, 0),
            arguments: true,
            file: None,
            live: false,
            run_id: None,
            gpu: None,
            profiles: Profiles::default(),
            last_window_step: None,
        }
    }

    /// How many samples, images or tokens a step takes, for `step/samples_per_second`. Where steps differ, have a counter `samples`
    /// (`tracing::info!(counter.samples = batch.len())`) instead, which counts for the step it is in. By default, neither.
    #[must_use]
    pub fn samples_per_step(mut self, samples: u64) -> Self {
        self.scalars.samples_per_step = Some(samples);
        self
    }

    /// The number of the run's first step, if it goes on from a checkpoint. What earlier files of the folder have of this step and later
    /// ones, from after the checkpoint, TensorBoard then forgets: with its fast loader, of each tag from the step on at which it comes again. Profiles
    /// have the numbers that the profiler counts. By default, 0.
    #[must_use]
    pub fn first_step(mut self, step: u64) -> Self {
        self.scalars.first_step = step;
        self
    }

    /// A hyperparameter and its value: a number, a text or a boolean. With one or more of them, TensorBoard has a table of runs with
    /// hyperparameters and the last values of all scalars. A run whose profiler is dropped by a panic has failed there.
    #[must_use]
    pub fn hparam(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.hparams.retain(|(known, _)| *known != name);
        self.hparams.push((name, value));
        self
    }

    /// Whether the text `kernspan/configuration` has the arguments of the command line, all of them. Say no where they may hold what is not for
    /// everybody who sees the charts, such as passwords or keys. By default, yes.
    #[must_use]
    pub fn arguments(mut self, arguments: bool) -> Self {
        self.arguments = arguments;
        self
    }

    /// The step at which something of a window is told, or without one the last step of which a window told: where a tag comes again at an earlier
    /// step, TensorBoard forgets all that the tag had from there on. The steps that are told of as they end may be further already, so they do not count.
    fn window_step(&mut self, step: Option<u64>) -> u64 {
        let step = step.map(|step| self.scalars.number(step)).or(self.last_window_step);
        let step = step.unwrap_or_else(|| self.scalars.number(0));
        self.last_window_step = Some(step);
        step
    }

    /// The file of the run, with what is said once. The first to need it says when the run began.
    fn file(&mut self, metadata: &Metadata, at: Timestamp, configuration: Option<String>) -> SharedFile {
        let Self { folder, hparams, scalars, file, .. } = self;
        let make = || {
            let mut file = EventsFile::new(folder, metadata, at, scalars.first_step);
            let mut summary = Summary::default();
            configuration.iter().for_each(|text| summary.text(tag::CONFIGURATION, text));
            if !hparams.is_empty() && metadata.rank == 0 {
                // Sessions of one group are repeated runs of the same, and averaged.
                let group = format!("{}.{}.{}", metadata.host, metadata.pid, at.as_unix_nanos());
                summary.hparams(hparams, &group, at);
            }
            file.add(at, scalars.number(0), &summary);
            file.keep_head();
            Arc::new(Mutex::new(file))
        };
        Arc::clone(file.get_or_insert_with(make))
    }
}

impl Exporter for TensorBoard {
    fn export(&mut self, trace: &Trace) -> ExportResult {
        let mut files = Vec::new();
        // All that takes long comes first: steps cannot be written down while the file is locked.
        let steps = if self.live { Vec::new() } else { self.scalars.of_trace(trace) };
        let window = window::scalars(trace);
        let shared = self.file(trace.metadata(), trace.start(), None);
        let mut file = lock(&shared);
        steps.iter().for_each(|(at, step, summary)| file.add(*at, *step, summary));
        let first = self.window_step(trace.steps().first().map(Step::number));
        for (at, step, summary) in window {
            file.add(at, self.window_step(step), &summary);
        }
        let gpu = configuration::gpu(trace);
        if self.gpu.as_ref() != Some(&gpu) {
            let mut summary = Summary::default();
            summary.text(tag::GPU, &gpu);
            file.add(trace.end(), first, &summary);
            self.gpu = Some(gpu);
        }
        if !self.live {
            // Otherwise whoever tells of every step writes it, and says so once if that fails.
            file.flush()?;
            files.extend(file.tell());
        }
        drop(file);
        let run_id = if self.live { self.run_id.clone() } else { RunId::from_env() };
        match Capture::new(trace, run_id.as_ref()).write(&self.folder, |out| profile::write(trace, out)) {
            Ok(file) => {
                self.profiles.problem = None;
                files.push(file);
            }
            // Without anybody who could tell of it in the end, each is told of.
            Err(error) if !self.live || self.profiles.is_news(&error) => return Err(error.into()),
            Err(_) => {}
        }
        Ok(files)
    }

    fn steps(&mut self, run: &Run) -> Option<Box<dyn StepExporter>> {
        self.live = true;
        self.run_id.clone_from(&run.id);
        let arguments =
            || std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
        let arguments: Option<Vec<_>> = self.arguments.then(arguments);
        let configuration = configuration::configuration(run, arguments.as_deref());
        let file = self.file(&run.metadata, run.start, Some(configuration));
        let hparams = !self.hparams.is_empty() && run.metadata.rank == 0;
        let last = (run.start, self.scalars.number(0));
        let untold_profiles = Arc::clone(&self.profiles.untold);
        Some(Box::new(Scalars {
            file,
            scalars: self.scalars.clone(),
            hparams,
            failed: false,
            last,
            failing: false,
            untold_profiles,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::TensorBoard;

    #[test]
    fn a_window_without_steps_is_told_of_where_the_one_before_ended() {
        let mut exporter = TensorBoard::to_dir("unused").first_step(10);
        let steps = [None, Some(5), None, Some(6), None].map(|step| exporter.window_step(step));
        assert_eq!(steps, [10, 15, 15, 16, 16]);
    }
}
