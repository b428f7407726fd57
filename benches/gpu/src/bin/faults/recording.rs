//! The recorded window of a training.

use crate::{Failure, trainer::Trainer, training::Training};
use kernspan::{Activity, Profiler, Schedule};
use std::{ops::Range, path::Path};
use tracing_subscriber::prelude::*;

/// Counts of a recorded window.
#[derive(Debug)]
pub(crate) struct Recording {
    /// Steps in the window.
    pub(crate) steps: u64,
    /// Kernels in the window.
    pub(crate) kernels: u64,
    /// The losses in words; empty if nothing was lost.
    pub(crate) losses: String,
}

impl Recording {
    const WAIT: u64 = 20;
    const WARMUP: u64 = 2;
    /// Steps after the window.
    const AFTER: u64 = 20;

    /// Returns the recorded steps.
    pub(crate) fn window(training: &Training) -> Range<u64> {
        let first = Self::WAIT + Self::WARMUP;
        first..first + training.recorded_steps
    }

    /// Returns the number of all steps that are run to record a window.
    pub(crate) fn all_steps(training: &Training) -> u64 {
        Self::window(training).end + Self::AFTER
    }

    /// Installs the profiler, runs the training, and writes a window of it to a file.
    ///
    /// Steps are counted from 0 again, so that the loss, which is read in step 49, is read after the window.
    pub(crate) fn make(trainer: &mut Trainer, file: &Path) -> Result<Self, Failure> {
        let training = *trainer.training();
        let folder = file.with_extension("parts");
        std::fs::create_dir_all(&folder)?;
        let activities = [Activity::Host, Activity::Kernels, Activity::Copies];
        let memory = training.record_memory.then_some(Activity::Memory);
        let schedule = Schedule::new().wait(Self::WAIT).warmup(Self::WARMUP).active(training.recorded_steps).repeat(1);
        let (layer, profiler) = Profiler::builder()
            .activities(activities.into_iter().chain(memory))
            .schedule(schedule)
            .raw_to_dir(&folder)
            .build()?;
        if !profiler.gpu().is_available() {
            return Err(profiler.gpu().to_string().into());
        }
        tracing_subscriber::registry().with(layer).init();
        for step in 0..Self::all_steps(&training) {
            trainer.train_step(step)?;
            profiler.step();
        }
        trainer.synchronize()?;
        let report = profiler.finish()?;
        let [recorded] = report.files() else {
            return Err(format!("{} files instead of one window", report.files().len()).into());
        };
        std::fs::rename(recorded, file)?;
        std::fs::remove_dir_all(&folder)?;
        let rows = report.kernels().limit(usize::MAX).rows();
        // Copies and fills have no registers.
        let kernels = rows.iter().filter(|row| row.registers.is_some()).map(|row| row.calls).sum();
        let losses = report.losses();
        let losses = if losses.is_empty() { String::new() } else { losses.to_string() };
        Ok(Self { steps: report.steps().count(), kernels, losses })
    }
}
