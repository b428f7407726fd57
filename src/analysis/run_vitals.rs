//! The vital signs of a whole run: averages, peaks, and times above thresholds.

use super::{
    run_energy::RunEnergy,
    vital_signs::{VitalSign, VitalSigns},
};
use std::time::Duration;

/// A vital sign over the whole run.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct VitalSummary {
    /// The vital sign.
    pub sign: VitalSign,
    /// Its mean over the time that it was known.
    pub average: f64,
    /// Its highest value.
    pub peak: f64,
    /// The time that it was known.
    pub observed: Duration,
    /// The time that it was above its threshold, if it has one.
    pub above: Option<TimeAbove>,
}

/// The time that a vital sign was above a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TimeAbove {
    /// The threshold, in the unit of the sign.
    pub limit: f64,
    /// The time above it.
    pub time: Duration,
}

/// The vital signs of a run: see [`Report::vitals`](crate::Report::vitals).
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RunVitals {
    /// How often they were read, over the run.
    pub readings: u64,
    /// The signs that were known at some time, each over the whole run.
    pub signs: Vec<VitalSummary>,
    /// What could not be read, and why; a sentence each.
    pub problems: Vec<String>,
    /// The energy that the run has used, as far as it is known.
    pub energy: Option<RunEnergy>,
}

impl VitalSummary {
    fn add(&mut self, value: f64, time: Duration) {
        // A mean of what was seen so far, so that it is right after the first reading, which stands for no time.
        let (before, seconds) = (self.observed.as_secs_f64(), time.as_secs_f64());
        self.average = match before + seconds {
            0.0 => value,
            all => (self.average * before + value * seconds) / all,
        };
        self.observed += time;
        self.peak = self.peak.max(value);
        if let Some(above) = &mut self.above
            && value > above.limit
        {
            above.time += time;
        }
    }
}

impl RunVitals {
    /// Adds a reading that stands for the time since the one before it. `limit` says the threshold of a sign.
    pub(crate) fn add(&mut self, signs: &VitalSigns, time: Duration, limit: impl Fn(VitalSign) -> Option<f64>) {
        self.readings += 1;
        for (sign, value) in signs.values().filter(|(_, value)| value.is_finite()) {
            let index = self.signs.iter().position(|known| known.sign == sign).unwrap_or_else(|| {
                let above = limit(sign).map(|limit| TimeAbove { limit, time: Duration::ZERO });
                let peak = f64::NEG_INFINITY;
                self.signs.push(VitalSummary { sign, average: 0.0, peak, observed: Duration::ZERO, above });
                self.signs.len() - 1
            });
            self.signs[index].add(value, time);
        }
    }

    /// Returns a sign by its name, such as `machine.cpu`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&VitalSummary> {
        self.signs.iter().find(|summary| summary.sign.to_string() == name)
    }

    /// Whether vital signs were not recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.readings == 0 && self.problems.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{RunVitals, VitalSigns};
    use crate::analysis::MachineVitals;
    use std::time::Duration;

    #[test]
    fn averages_are_weighted_by_time() {
        let mut run = RunVitals::default();
        for (cpu, seconds) in [(Some(40.0), 0), (Some(95.0), 1), (None, 5), (Some(20.0), 3)] {
            let machine = MachineVitals { cpu, ..MachineVitals::default() };
            let signs = VitalSigns { machine, ..VitalSigns::default() };
            run.add(&signs, Duration::from_secs(seconds), |_| Some(90.0));
        }
        let cpu = run.get("machine.cpu").unwrap();
        assert_eq!((run.readings, run.signs.len()), (4, 1));
        // What is not known for five seconds counts for none of them.
        assert_eq!((cpu.average, cpu.peak, cpu.observed), (155.0 / 4.0, 95.0, Duration::from_secs(4)));
        assert_eq!(cpu.above.map(|above| above.time), Some(Duration::from_secs(1)));
        assert_eq!(run.get("machine.iowait"), None);
    }
}
