//! What is measured of every step, recorded or not.

use super::{
    super::run_trace::RunTrace,
    encode::Writer,
    histogram::{Exemplar, Histogram, STEP_BOUNDS},
    name, table,
};
use crate::{export::StepSummary, schedule::Phase, trace::convention};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// All steps so far.
#[derive(Debug)]
pub(super) struct Steps {
    samples_per_step: Option<u64>,
    /// Whose traces exemplars are of, if there are to be any.
    exemplars: Option<RunTrace>,
    durations: [(&'static str, Histogram); 3],
    /// Of the last step that ended.
    number: Option<u64>,
    counters: BTreeMap<&'static str, f64>,
    /// Values of counters that there was no room for.
    lost: u64,
    pace: Pace,
}

impl Steps {
    /// Names of counters, each of which is a time series for whoever stores them.
    const COUNTERS: usize = 256;

    pub(super) fn new(samples_per_step: Option<u64>, exemplars: Option<RunTrace>, now: Instant) -> Self {
        Self {
            samples_per_step,
            exemplars,
            durations: ["wait", "warmup", "record"].map(|phase| (phase, Histogram::new(STEP_BOUNDS))),
            number: None,
            counters: BTreeMap::new(),
            lost: 0,
            pace: Pace::new(now),
        }
    }

    pub(super) fn add(&mut self, step: &StepSummary, now: Instant) {
        for &(counter, value) in &step.counters {
            let room = self.counters.len() < Self::COUNTERS;
            match self.counters.get_mut(counter) {
                Some(known) => *known = value,
                None if room => drop(self.counters.insert(counter, value)),
                None => self.lost += 1,
            }
        }
        if !step.ended {
            return;
        }
        self.number = Some(step.number);
        // The first has everything before the loop in it.
        if step.number > 0 {
            self.add_time(step);
            let samples = step.counter(convention::SAMPLES).or(self.samples_per_step.map(|samples| samples as f64));
            self.pace.add(step.duration, samples, now);
        }
    }

    fn add_time(&mut self, step: &StepSummary) {
        let (_, durations) = &mut self.durations[match step.phase {
            Phase::Wait => 0,
            Phase::Warmup => 1,
            Phase::Record | Phase::RecordAndSave => 2,
        }];
        let value = step.duration.as_secs_f64();
        durations.add(value);
        let run = self.exemplars.as_ref().filter(|_| step.phase.is_recording());
        if let Some(trace) = run.and_then(|run| run.step(step.number)) {
            durations.explain(Exemplar { at: step.end(), value, trace });
        }
    }

    /// Values of counters that there was no room for.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn write(&mut self, now: Instant, writer: &mut Writer<'_>) {
        writer.metric(&table::STEP_DURATION, |points| {
            for (phase, durations) in &mut self.durations {
                points.histogram(&[(name::PHASE, phase)], durations);
            }
        });
        writer.metric(&table::STEP_NUMBER, |points| self.number.iter().for_each(|&number| points.number(&[], number)));
        let rates = self.pace.collect(now);
        writer.metric(&table::STEP_RATE, |points| rates.iter().for_each(|rates| points.number(&[], rates.steps)));
        let throughput = rates.and_then(|rates| rates.samples);
        writer.metric(&table::THROUGHPUT, |points| throughput.iter().for_each(|&rate| points.number(&[], rate)));
        writer.metric(&table::COUNTER, |points| {
            for (counter, &value) in &self.counters {
                points.number(&[(table::COUNTER_NAME, counter)], value);
            }
        });
    }
}

/// How fast steps are, by the time that they took themselves: it does not matter when they are heard of.
#[derive(Debug)]
struct Pace {
    /// Since metrics were last collected.
    steps: u64,
    time: Duration,
    samples: f64,
    /// Time of steps whose samples are known.
    sampled: Duration,
    /// What was found when there last were steps.
    latest: Option<Rates>,
    /// When a step was last heard of.
    heard: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Rates {
    steps: f64,
    samples: Option<f64>,
}

impl Pace {
    fn new(heard: Instant) -> Self {
        Self { steps: 0, time: Duration::ZERO, samples: 0.0, sampled: Duration::ZERO, latest: None, heard }
    }

    fn add(&mut self, duration: Duration, samples: Option<f64>, now: Instant) {
        self.steps += 1;
        self.time = self.time.saturating_add(duration);
        if let Some(samples) = samples {
            self.samples += samples;
            self.sampled = self.sampled.saturating_add(duration);
        }
        self.heard = now;
    }

    /// The rates since the last call. If no step has ended since, they are what they were, unless the next step is overdue: then no more than one
    /// step in so long. So a training that hangs comes to a rest.
    fn collect(&mut self, now: Instant) -> Option<Rates> {
        if !self.time.is_zero() {
            let samples = (!self.sampled.is_zero()).then(|| self.samples / self.sampled.as_secs_f64());
            self.latest = Some(Rates { steps: self.steps as f64 / self.time.as_secs_f64(), samples });
            *self = Self { latest: self.latest, ..Self::new(self.heard) };
            return self.latest;
        }
        let Rates { steps, samples } = self.latest?;
        let overdue = (now.saturating_duration_since(self.heard).as_secs_f64() * steps).max(1.0);
        Some(Rates { steps: steps / overdue, samples: samples.map(|samples| samples / overdue) })
    }
}

#[cfg(test)]
mod tests {
    use super::{Pace, Rates};
    use std::time::{Duration, Instant};

    #[test]
    fn rates_are_those_of_the_steps_themselves() {
        let now = Instant::now();
        let (second, mut pace) = (Duration::from_secs(1), Pace::new(now));
        assert_eq!(pace.collect(now + second), None);
        for samples in [Some(3.0), None, Some(5.0), None] {
            pace.add(second / 2, samples, now);
        }
        let rates = Rates { steps: 2.0, samples: Some(8.0) };
        assert_eq!(pace.collect(now), Some(rates));
        // The next step is not due yet.
        assert_eq!(pace.collect(now + second / 2), Some(rates));
        assert_eq!(pace.collect(now + 2 * second), Some(Rates { steps: 0.5, samples: Some(2.0) }));
        pace.add(2 * second, None, now + 3 * second);
        assert_eq!(pace.collect(now + 3 * second), Some(Rates { steps: 0.5, samples: None }));
    }

    #[test]
    fn steps_that_take_no_time_have_no_rate() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        pace.add(Duration::ZERO, Some(1.0), now);
        assert_eq!(pace.collect(now), None);
        pace.add(Duration::from_secs(1), Some(1.0), now);
        assert_eq!(pace.collect(now), Some(Rates { steps: 2.0, samples: Some(2.0) }));
    }
}
