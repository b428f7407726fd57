//! What is known of every step, as scalars.

use super::{SharedFile, lock, summary::Summary, tag};
use crate::{
    export::{ExportResult, StepExporter, StepSigns},
    trace::{Timestamp, Trace},
};
use rustc_hash::FxHashMap;
use std::{error::Error, time::Duration};

/// How scalars of steps are made.
#[derive(Clone, Debug)]
pub(super) struct StepScalars {
    pub(super) samples_per_step: Option<u64>,
    /// Added to the numbers of steps.
    pub(super) first_step: u64,
    /// The tags of counters, by their names.
    tags: FxHashMap<String, String>,
}

impl StepScalars {
    /// Names of counters that are remembered: a recording may have any.
    const TAGS: usize = 4096;

    pub(super) fn new(samples_per_step: Option<u64>, first_step: u64) -> Self {
        Self { samples_per_step, first_step, tags: FxHashMap::default() }
    }

    /// The number of a step as TensorBoard has it.
    pub(super) fn number(&self, step: u64) -> u64 {
        // A signed number there.
        self.first_step.saturating_add(step).min(i64::MAX.cast_unsigned())
    }

    /// The scalars of a step, and of one that is not over only the counters.
    fn of<'a>(
        &mut self,
        duration: Option<Duration>,
        counters: impl Iterator<Item = (&'a str, f64)> + Clone,
    ) -> Summary {
        let mut summary = Summary::default();
        if let Some(duration) = duration {
            summary.scalar(tag::STEP_TIME, duration.as_secs_f64() * 1e3);
            let told = counters.clone().filter(|&(name, _)| name == tag::SAMPLES).map(|(_, value)| value).last();
            let samples = told.or(self.samples_per_step.map(|samples| samples as f64));
            if !duration.is_zero() {
                summary.scalar(tag::STEPS_PER_SECOND, 1.0 / duration.as_secs_f64());
                samples
                    .iter()
                    .for_each(|samples| summary.scalar(tag::SAMPLES_PER_SECOND, samples / duration.as_secs_f64()));
            }
        }
        counters.for_each(|(name, value)| summary.scalar(self.tag(name), value));
        summary
    }

    fn tag(&mut self, name: &str) -> &str {
        if !self.tags.contains_key(name) {
            if self.tags.len() >= Self::TAGS {
                self.tags.clear();
            }
            self.tags.insert(name.to_owned(), tag::of_counter(name));
        }
        self.tags.get(name).map_or("", String::as_str)
    }

    /// The same of the steps of a trace that no run told of: each with its end, its number and its scalars.
    pub(super) fn of_trace(&mut self, trace: &Trace) -> Vec<(Timestamp, u64, Summary)> {
        let mut found = Vec::new();
        for step in trace.steps() {
            let within = |&&(at, _): &&(Timestamp, f64)| step.start() <= at && at < step.end();
            let counters = trace.counters().iter().filter_map(|counter| {
                let (_, value) = counter.samples().iter().rev().find(within)?;
                Some((counter.name(), *value))
            });
            let counters: Vec<_> = counters.collect();
            let duration = Some(step.duration()).filter(|_| !step.cut().any());
            found.push((step.end(), self.number(step.number()), self.of(duration, counters.into_iter())));
        }
        found
    }
}

/// Writes the scalars of every step.
#[derive(Debug)]
pub(super) struct Scalars {
    pub(super) file: SharedFile,
    pub(super) scalars: StepScalars,
    /// Whether there are hyperparameters, whose session ends with the run.
    pub(super) hparams: bool,
    /// The last step, and when it ended.
    pub(super) last: (Timestamp, u64),
}

impl StepExporter for Scalars {
    fn steps(&mut self, steps: &[StepSigns]) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut file = lock(&self.file);
        for step in steps {
            let duration = step.ended.then_some(step.duration);
            let summary = self.scalars.of(duration, step.counters.iter().copied());
            self.last = (step.end(), self.scalars.number(step.number));
            file.add(step.end(), self.last.1, &summary);
        }
        Ok(file.flush()?)
    }

    fn finish(&mut self) -> ExportResult {
        let mut file = lock(&self.file);
        if self.hparams {
            let (at, step) = self.last;
            let mut summary = Summary::default();
            summary.hparams_end(at);
            file.add(at, step, &summary);
        }
        file.flush()?;
        match file.dropped() {
            0 => Ok(file.tell().into_iter().collect()),
            dropped => {
                Err(format!("{dropped} events are missing, as the file could not be written for too long").into())
            }
        }
    }
}
