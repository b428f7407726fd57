//! TensorBoard's files: profiles, scalars, texts and hyperparameters.
//!
//! [`profile`] writes the profile of a window. Everything else goes into the [events file](events_file) of the run: the
//! [`scalars`] of every step, and those that only a recorded window has.

mod capture;
mod configuration;
mod crc;
mod events_file;
mod profile;
mod scalars;
mod summary;
mod tag;

use self::{
    capture::{Capture, FailedProfiles},
    events_file::{EventsFile, SharedFile},
    scalars::{ScalarExporter, StepScalars},
    summary::Summary,
};
use super::{
    exporter::{ExportResult, Exporter, Run, StepExporter},
    run_id::RunId,
};
use crate::{
    analysis::Analysis,
    file,
    trace::{Metadata, Step, Timestamp, Value},
};
use std::{error::Error, path::PathBuf};

/// An exporter for [TensorBoard](https://www.tensorflow.org/tensorboard): a profile of each window, and scalars of
/// every step, recorded or not.
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
/// To view the files: `pip install tensorboard xprof`, then `tensorboard --logdir runs`.
///
/// # Profiles
///
/// The profile plugin, [XProf](https://openxla.org/xprof), shows each window as a session:
///
/// | page | shows |
/// |---|---|
/// | Overview | times of steps, the GPU's part in them, the longest operations, the share of 16-bit compute, losses |
/// | Trace Viewer | threads with their spans and calls, streams with their kernels, arrows between them, counters |
/// | Kernel Stats | each kernel with its launch, registers, occupancy and operation |
/// | Framework Op Stats | spans by their paths, as `train_step/forward/linear`, with the host's and the GPU's time |
/// | HLO Op Stats, Roofline | the same with [FLOPs and bytes](crate::trace::convention), and the source location |
/// | Memory Profile | the GPU's memory over time, and its owners at the peak, with [`Activity::Memory`] |
/// | Input Pipeline | [data loading](crate::trace::InputStage), and copies to the device |
///
/// [`Activity::Memory`]: crate::Activity::Memory
///
/// An operation is a path of spans on one thread. Its occurrences are the enters of the innermost span, so a future has
/// one per poll; the [report](crate::Report) counts calls. Where a framework reports its
/// [operations](crate::trace::Operation), their names are added to the path. XProf accepts few characters in paths:
/// others become `_`, and `::` becomes a slash.
///
/// XProf changes some of what it shows:
///
/// - A step is over when the GPU has done all its work, and the next one begins then, so that all steps together are as
///   long as they were.
/// - The overview numbers steps from 0; the trace viewer uses their own numbers. It leaves out steps in which a known
///   GPU had nothing to do, and if there are more than five, the first and the last.
/// - Only copies to the device count as input in the overview. The input pipeline page shows how long the host waited,
///   and [`Verdict`](crate::analysis::Verdict) says whether that was too long.
/// - Memory over time has at most a thousand points. Its page is empty if no memory was allocated or freed, as in later
///   steps of a framework that keeps its memory.
/// - Charts and tables are drawn by a library that Google serves. Without a network, the trace viewer works, and the
///   other pages show only the figures at the side.
/// - XProf caches its results alongside the profiles.
///
/// Each session is a folder, `plugins/profile/{date}_steps_{first}-{last}`. The ranks of a run write into the same one,
/// `{run}_window_{n}_from_step_{first}`, without a message between them, and can be chosen as hosts. The name of the
/// run is `KERNSPAN_RUN_ID`, or that of torchrun, Slurm, PBS or LSF. If none of them distinguishes runs and a folder is
/// used again, set `KERNSPAN_RUN_ID`, so that ranks of different runs do not meet. A session that already has a file of
/// this rank is left alone, and the next one gets a number.
///
/// # Scalars
///
/// Every step has:
///
/// - `step/time_ms` and `step/per_second`: how long it took. The first step of a run has neither, since it began when
///   the profiler was built, before data was loaded.
/// - `step/samples_per_second`, if [`samples_per_step`](Self::samples_per_step) was called or the step has a counter
///   `samples`.
/// - `NAME`, the last value in the step of the counter `NAME`: `tracing::info!(counter.loss = 0.3)` is `loss`.
///
/// Recorded steps also have, as far as they are known (see [`StepGpu`](crate::analysis::StepGpu)), `gpu/busy_percent`,
/// `gpu/kernels`, `gpu/copied_bytes`, `gpu/peak_memory_bytes` and `gpu/mfu_percent`. GPUs other than the first are
/// `gpu1/…` and so on.
///
/// With [hardware counters](crate::ProfilerBuilder::counters), they have the [mean](Analysis::step_counters) of each
/// metric while the GPU worked for the step: `gpu/sm_active_percent`, `gpu/tensor_active_percent`,
/// `gpu/dram_active_percent`, `gpu/dram_read_bytes_per_second`, `gpu/dram_write_bytes_per_second`,
/// `gpu/pcie_received_bytes_per_second`, `gpu/pcie_sent_bytes_per_second`, `gpu/sm_clock_hertz`, and `gpu/NAME` for
/// metrics that the program named.
///
/// Windows have `profiler/lost`, which is [`Losses::total`](crate::trace::Losses::total), at the window's last step. A
/// window without steps has it at the last step of the previous window.
///
/// The run has three texts: `kernspan/configuration`, the program with its [arguments](Self::arguments) and how it was
/// profiled; `kernspan/gpu`, the GPUs; and for each window `kernspan/findings`, what makes its
/// [steps slow](Analysis::findings), if anything is found.
///
/// A counter that is not finite is written unchanged, and TensorBoard marks it. TensorBoard stores scalars with 32
/// bits. Counters may have any name: names longer than 256 bytes are truncated, control characters become `_`, and a
/// name already used by one of the scalars above gets the prefix `counter/`.
///
/// # Files
///
/// Each run writes a new file, `events.out.tfevents.{unix seconds}.{host}.{pid}.{n}`, at least twice a second, so at
/// most half a second is lost if the process is killed. TensorBoard takes all files in a folder for one run. So use a
/// separate folder for each run, but for a run that was interrupted and resumed the same one, with
/// [`first_step`](Self::first_step). If a run has several processes, [rank](crate::ProfilerBuilder::rank) 0 writes into
/// the folder, and the others into `rank1`, `rank2` and so on inside it.
///
/// If the file is deleted during the run, perhaps with its folder, a new one is started for what follows.
///
/// Scalars and texts that cannot be written are kept for a while and retried. A profile that cannot be written is lost,
/// since it may be large. [`finish`](crate::Profiler::finish) reports both; of consecutive profiles that fail for the
/// same reason, it reports the first and the number of the others. The training continues.
#[derive(Debug)]
#[must_use = "an exporter does nothing until it is given to `ProfilerBuilder::export`"]
pub struct TensorBoard {
    folder: PathBuf,
    hparams: Vec<(String, Value)>,
    scalars: StepScalars,
    /// Whether the command line may be written.
    arguments: bool,
    file: Option<SharedFile>,
    /// Whether steps are exported as they end, rather than only with traces.
    live: bool,
    /// The name of the run, if step summaries are requested.
    run_id: Option<RunId>,
    /// The text about GPUs that was last written.
    gpu: Option<String>,
    failed_profiles: FailedProfiles,
    /// The last step of the windows so far, in TensorBoard's numbering.
    last_window_step: Option<u64>,
}

impl TensorBoard {
    /// Creates an exporter that writes into this folder. The folder is created if it does not exist.
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
            failed_profiles: FailedProfiles::default(),
            last_window_step: None,
        }
    }

    /// Sets how many samples, images or tokens a step takes, for `step/samples_per_second`. By default, it is unknown.
    ///
    /// If steps differ, use a counter `samples` instead (`tracing::info!(counter.samples = batch.len())`), which
    /// applies to the step it is in.
    pub fn samples_per_step(mut self, samples: u64) -> Self {
        self.scalars.samples_per_step = Some(samples);
        self
    }

    /// Sets the number of the run's first step, for a run that resumes from a checkpoint. By default, 0.
    ///
    /// TensorBoard then forgets this step and later ones from earlier files in the folder, which are from after the
    /// checkpoint. Its fast loader forgets them for each tag, from the step at which the tag appears again. Profiles
    /// keep the profiler's own numbers.
    pub fn first_step(mut self, step: u64) -> Self {
        self.scalars.first_step = step;
        self
    }

    /// Adds a hyperparameter and its value: a number, a text or a boolean. By default, there is none.
    ///
    /// If there are any, TensorBoard shows a table of runs with their hyperparameters and the last values of all
    /// scalars. There, a run whose profiler is dropped by a panic has failed.
    pub fn hparam(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.hparams.retain(|(known, _)| *known != name);
        self.hparams.push((name, value));
        self
    }

    /// Sets whether the text `kernspan/configuration` includes all command-line arguments. By default, yes.
    ///
    /// Set this to `false` if they may contain secrets, such as passwords or keys.
    pub fn arguments(mut self, arguments: bool) -> Self {
        self.arguments = arguments;
        self
    }

    /// Returns TensorBoard's number for the step at which something about a window is written: that of `step`, or if
    /// there is none, that of the last step of the windows so far.
    ///
    /// If a tag appears again at an earlier step, TensorBoard forgets all values that the tag had from there on. So the
    /// steps that are exported as they end do not count: they may be later ones.
    fn window_step(&mut self, step: Option<u64>) -> u64 {
        let step = step.map(|step| self.scalars.number(step)).or(self.last_window_step);
        let step = step.unwrap_or_else(|| self.scalars.number(0));
        self.last_window_step = Some(step);
        step
    }

    /// Returns the file of the run, creating it if there is none yet. The configuration is written only into a new
    /// file.
    fn file(&mut self, metadata: &Metadata, at: Timestamp, configuration: Option<String>) -> SharedFile {
        let Self { folder, hparams, scalars, file, .. } = self;
        let make = || {
            let mut file = EventsFile::new(folder, metadata, at, scalars.first_step);
            let mut summary = Summary::default();
            configuration.iter().for_each(|text| summary.text(tag::CONFIGURATION, text));
            if !hparams.is_empty() && metadata.rank == 0 {
                // TensorBoard takes the sessions of one group for repetitions of the same run, and averages them.
                let group = format!("{}.{}.{}", metadata.host, metadata.pid, at.as_unix_nanos());
                summary.hparams(hparams, &group, at);
            }
            file.add(at, scalars.number(0), &summary);
            file.keep_head();
            SharedFile::new(file)
        };
        file.get_or_insert_with(make).clone()
    }
}

impl Exporter for TensorBoard {
    fn name(&self) -> &str {
        "TensorBoard"
    }

    fn check(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(file::check(&self.folder)?)
    }

    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        let trace = window.trace();
        let mut files = Vec::new();
        // Before the file is locked, since every step waits for the lock.
        let steps = if self.live { Vec::new() } else { self.scalars.of_window(window) };
        let of_window = scalars::of_window(window);
        let findings = configuration::findings(window);
        // The profile takes by far the longest. Written first, it leaves nothing if the process is killed meanwhile.
        let run_id = if self.live { self.run_id.clone() } else { RunId::from_env() };
        let profile = Capture::new(trace, run_id.as_ref()).write(&self.folder, |out| profile::write(window, out));
        let shared = self.file(trace.metadata(), trace.start(), None);
        let mut file = shared.lock();
        steps.iter().for_each(|(at, step, summary)| file.add(*at, *step, summary));
        let first = self.window_step(trace.steps().first().map(Step::number));
        for (at, step, summary) in of_window {
            file.add(at, self.window_step(step), &summary);
        }
        let gpu = configuration::gpu(trace);
        if self.gpu.as_ref() != Some(&gpu) {
            let mut summary = Summary::default();
            summary.text(tag::GPU, &gpu);
            file.add(trace.end(), first, &summary);
            self.gpu = Some(gpu);
        }
        if let Some(findings) = findings {
            let mut summary = Summary::default();
            summary.text(tag::FINDINGS, &findings);
            file.add(trace.end(), first, &summary);
        }
        if !self.live {
            // Otherwise the exporter of every step writes the file, and reports it if that fails.
            file.flush()?;
            files.extend(file.unreported_path());
        }
        drop(file);
        match profile {
            Ok(file) => {
                self.failed_profiles.written();
                files.push(file);
            }
            // Only the exporter of every step could report the number of the others at the end.
            Err(error) if !self.live || self.failed_profiles.failed(&error) => return Err(error.into()),
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
        Some(Box::new(ScalarExporter {
            file,
            scalars: self.scalars.clone(),
            hparams: !self.hparams.is_empty() && run.metadata.rank == 0,
            failed: false,
            last: (run.start, self.scalars.number(0)),
            failing: false,
            failed_profiles: self.failed_profiles.clone(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::TensorBoard;

    #[test]
    fn a_window_without_steps_is_written_at_the_end_of_the_one_before() {
        let mut exporter = TensorBoard::to_dir("unused").first_step(10);
        let steps = [None, Some(5), None, Some(6), None].map(|step| exporter.window_step(step));
        assert_eq!(steps, [10, 15, 15, 16, 16]);
    }
}
