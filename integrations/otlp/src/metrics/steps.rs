//! Metrics of every step, recorded or not.

use super::{
    encode::Writer,
    histogram::{Exemplar, Histogram, STEP_BOUNDS},
    instruments,
};
use crate::{attributes::name, run_trace::RunTrace};
use kernspan::{Phase, analysis::VitalSign, export::StepSummary, trace::convention};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The steps so far.
#[derive(Debug)]
pub(super) struct Steps {
    samples_per_step: Option<u64>,
    /// The ids of the run, from which those of exemplars are derived; `None` without exemplars.
    exemplars: Option<RunTrace>,
    durations: [(&'static str, Histogram); 3],
    /// The number of the last step that ended.
    number: Option<u64>,
    counters: BTreeMap<&'static str, f64>,
    /// How many counter values were dropped.
    dropped: u64,
    pace: Pace,
}

impl Steps {
    /// How many counters are kept. Each is a time series in the user's storage.
    const MOST_COUNTERS: usize = 256;

    pub(super) fn new(samples_per_step: Option<u64>, exemplars: Option<RunTrace>, now: Instant) -> Self {
        Self {
            samples_per_step,
            exemplars,
            durations: ["wait", "warmup", "record"].map(|phase| (phase, Histogram::new(STEP_BOUNDS))),
            number: None,
            counters: BTreeMap::new(),
            dropped: 0,
            pace: Pace::new(now),
        }
    }

    pub(super) fn add(&mut self, step: &StepSummary, now: Instant) {
        // Vital signs have metrics of their own.
        for &(counter, value) in step.counters.iter().filter(|(name, _)| !name.starts_with(VitalSign::COUNTER)) {
            let has_room = self.counters.len() < Self::MOST_COUNTERS;
            match self.counters.get_mut(counter) {
                Some(known) => *known = value,
                None if has_room => drop(self.counters.insert(counter, value)),
                None => self.dropped += 1,
            }
        }
        if !step.ended {
            return;
        }
        self.number = Some(step.number);
        // The first step includes everything before the loop.
        if step.number > 0 {
            self.add_duration(step);
            let samples = step.counter(convention::SAMPLES).or(self.samples_per_step.map(|samples| samples as f64));
            self.pace.add(step.duration, samples, now);
        }
    }

    fn add_duration(&mut self, step: &StepSummary) {
        let (_, durations) = &mut self.durations[match step.phase {
            Phase::Wait => 0,
            Phase::Warmup => 1,
            Phase::Record | Phase::RecordAndSave => 2,
        }];
        let value = step.duration.as_secs_f64();
        durations.add(value);
        let run = self.exemplars.as_ref().filter(|_| step.phase.is_recording());
        if let Some(trace) = run.and_then(|run| run.step(step.number)) {
            durations.add_exemplar(Exemplar { at: step.end(), value, trace: Some(trace), file: None });
        }
    }

    /// How many counter values were dropped because there were too many names.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(super) fn write(&mut self, now: Instant, writer: &mut Writer<'_>) {
        writer.metric(&instruments::STEP_DURATION, |points| {
            for (phase, durations) in &mut self.durations {
                points.histogram(&[(name::PHASE, phase)], durations);
            }
        });
        writer.metric(&instruments::STEP_NUMBER, |points| {
            self.number.iter().for_each(|&number| points.number(&[], number));
        });
        let rates = self.pace.collect(now);
        writer.metric(&instruments::STEP_RATE, |points| rates.iter().for_each(|rates| points.number(&[], rates.steps)));
        let throughput = rates.and_then(|rates| rates.samples);
        writer.metric(&instruments::THROUGHPUT, |points| throughput.iter().for_each(|&rate| points.number(&[], rate)));
        writer.metric(&instruments::COUNTER, |points| {
            for (counter, &value) in &self.counters {
                points.number(&[(instruments::COUNTER_NAME, counter)], value);
            }
        });
    }
}

/// The rates of steps and samples since the last collection. They are computed from the durations of the steps, since
/// steps are reported with a delay.
#[derive(Debug)]
struct Pace {
    steps: u64,
    time: Duration,
    samples: f64,
    /// The time of steps whose samples are known.
    sampled: Duration,
    /// The rates of the last collection that had steps.
    latest: Option<Rates>,
    /// When the last step was reported.
    reported: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Rates {
    steps: f64,
    samples: Option<f64>,
}

impl Pace {
    fn new(reported: Instant) -> Self {
        Self { steps: 0, time: Duration::ZERO, samples: 0.0, sampled: Duration::ZERO, latest: None, reported }
    }

    fn add(&mut self, duration: Duration, samples: Option<f64>, now: Instant) {
        self.steps += 1;
        self.time = self.time.saturating_add(duration);
        if let Some(samples) = samples {
            self.samples += samples;
            self.sampled = self.sampled.saturating_add(duration);
        }
        self.reported = now;
    }

    /// Returns the rates since the last call. If no step has ended since, they stay the same until the next step is
    /// overdue. Then they fall, so that the rates of a hanging training approach zero.
    fn collect(&mut self, now: Instant) -> Option<Rates> {
        if !self.time.is_zero() {
            let samples = (!self.sampled.is_zero()).then(|| self.samples / self.sampled.as_secs_f64());
            self.latest = Some(Rates { steps: self.steps as f64 / self.time.as_secs_f64(), samples });
            *self = Self { latest: self.latest, ..Self::new(self.reported) };
            return self.latest;
        }
        let Rates { steps, samples } = self.latest?;
        let overdue = (now.saturating_duration_since(self.reported).as_secs_f64() * steps).max(1.0);
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
