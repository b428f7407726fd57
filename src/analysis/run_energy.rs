//! The energy that a run has used.

use super::vital_signs::VitalSubject;
use std::time::Duration;

/// The joules in a kilowatt-hour.
pub(crate) const KILOWATT_HOUR: f64 = 3.6e6;

/// How energy was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum EnergyMethod {
    /// By a counter of the hardware.
    Counter,
    /// As the integral of the power that was read.
    IntegratedPower,
}

impl EnergyMethod {
    /// Returns the method in words, such as `counted`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counted",
            Self::IntegratedPower => "integrated power",
        }
    }
}

/// The energy that a GPU, or all CPUs, have used during a run.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct EnergyUse {
    /// The GPU, or the machine for its CPU packages.
    pub subject: VitalSubject,
    /// How it was measured.
    pub method: EnergyMethod,
    /// The joules, with those of other processes.
    pub joules: f64,
    /// The joules that they may be off by, because power and counters are known only at some moments.
    pub error: f64,
    /// The time in which they were used.
    pub time: Duration,
}

impl EnergyUse {
    /// Returns the mean power in watts.
    #[must_use]
    pub fn watts(&self) -> f64 {
        if self.time.is_zero() { 0.0 } else { self.joules / self.time.as_secs_f64() }
    }
}

/// The energy of a run, and what follows from it: see [`RunVitals`](super::RunVitals).
///
/// It is the energy of the GPUs that the process may use and of the machine's CPU packages, as far as these are known;
/// memory, disks, fans and cooling are not in it.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RunEnergy {
    /// The energy of each part that is known.
    pub uses: Vec<EnergyUse>,
    /// The number of steps of the run.
    pub steps: u64,
    /// The carbon dioxide that was given off to make the electricity, if its intensity was given.
    pub carbon: Option<Carbon>,
    /// The price of the electricity, if that of a kilowatt-hour was given, in the same currency.
    pub cost: Option<f64>,
}

/// The carbon dioxide of a run.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Carbon {
    /// Grams of CO₂.
    pub grams: f64,
    /// Grams for each kilowatt-hour.
    pub grams_per_kwh: f64,
    /// Where that number comes from.
    pub source: String,
}

impl RunEnergy {
    /// Returns the joules of all parts.
    #[must_use]
    pub fn joules(&self) -> f64 {
        self.uses.iter().map(|part| part.joules).sum()
    }

    /// Returns the joules that they may be off by, all parts together.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.uses.iter().map(|part| part.error).sum()
    }

    /// Returns the joules of a step, if there were any steps.
    #[must_use]
    pub fn per_step(&self) -> Option<f64> {
        (self.steps > 0).then(|| self.joules() / self.steps as f64)
    }

    /// Returns the energy in kilowatt-hours.
    #[must_use]
    pub fn kilowatt_hours(&self) -> f64 {
        self.joules() / KILOWATT_HOUR
    }
}
