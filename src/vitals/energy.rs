//! Energy from counters of the hardware, or from power where there are none.

use crate::analysis::{EnergyMethod, EnergyUse, VitalSubject};
use std::time::Duration;

/// Adds up the energy of one part: a GPU, or the CPU packages.
#[derive(Clone, Debug)]
#[cfg_attr(not(all(feature = "vitals", target_os = "linux")), allow(dead_code, reason = "nothing is read"))]
pub(super) struct EnergyMeter {
    subject: VitalSubject,
    /// How long the hardware takes to update its counter: a reading may be late by that.
    update: Duration,
    first: Option<Duration>,
    last: Option<PowerReading>,
    joules: f64,
    error: f64,
    counted: bool,
}

/// What was read at one moment.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(all(feature = "vitals", target_os = "linux")), allow(dead_code, reason = "nothing is read"))]
pub(super) struct PowerReading {
    /// The time since the run began.
    pub(super) at: Duration,
    /// The counter in joules, if there is one.
    pub(super) counter: Option<f64>,
    /// Watts, if known.
    pub(super) power: Option<f64>,
    /// The joules after which the counter begins at 0 again, if known.
    pub(super) wraps_at: Option<f64>,
}

#[cfg_attr(not(all(feature = "vitals", target_os = "linux")), allow(dead_code, reason = "nothing is read"))]
impl EnergyMeter {
    /// How often NVML's counter is updated, at least; NVIDIA documents no number. At 700 W it is 70 J.
    pub(super) const NVML_UPDATE: Duration = Duration::from_millis(100);
    /// How often RAPL's counters are updated: about every millisecond (Intel's manual, volume 3B, section 15.10).
    pub(super) const RAPL_UPDATE: Duration = Duration::from_millis(1);

    pub(super) fn new(subject: VitalSubject, update: Duration) -> Self {
        Self { subject, update, first: None, last: None, joules: 0.0, error: 0.0, counted: false }
    }

    /// Adds a reading. Returns the mean power since the one before, if the energy since then is known.
    pub(super) fn add(&mut self, now: PowerReading) -> Option<f64> {
        if now.counter.is_none() && now.power.is_none() {
            return None;
        }
        self.first.get_or_insert(now.at);
        let last = self.last.replace(now)?;
        let seconds = now.at.checked_sub(last.at)?.as_secs_f64();
        let joules = match last.counter.zip(now.counter) {
            Some((before, after)) if after >= before => Some(after - before),
            Some((before, after)) => now.wraps_at.filter(|range| *range >= before).map(|range| range - before + after),
            None => None,
        };
        let joules = match (joules, last.power.zip(now.power)) {
            (Some(joules), _) => {
                self.counted = true;
                joules
            }
            // A trapezoid. Whatever the power was in between, if it did not leave the range of both ends, half of their
            // difference is the most that the mean is off by.
            (None, Some((before, after))) => {
                self.error += (after - before).abs() / 2.0 * seconds;
                (before + after) / 2.0 * seconds
            }
            // The counter was reset. It has counted this much since.
            (None, None) => now.counter.filter(|_| last.counter.is_some())?,
        };
        self.joules += joules;
        (seconds > 0.0).then(|| joules / seconds)
    }

    /// Returns the joules so far; `None` before the second reading.
    pub(super) fn joules(&self) -> Option<f64> {
        self.first.zip(self.last).filter(|(first, last)| last.at > *first).map(|_| self.joules)
    }

    /// Returns the energy so far.
    pub(super) fn total(&self) -> Option<EnergyUse> {
        let time = self.last?.at.checked_sub(self.first?).filter(|time| !time.is_zero())?;
        let watts = self.joules / time.as_secs_f64();
        // The first and the last value of the counter may each be as old as an update.
        let late = if self.counted { watts * self.update.as_secs_f64() } else { 0.0 };
        let method = if self.counted { EnergyMethod::Counter } else { EnergyMethod::IntegratedPower };
        Some(EnergyUse { subject: self.subject, method, joules: self.joules, error: self.error + late, time })
    }
}

#[cfg(test)]
mod tests {
    use super::{EnergyMeter, PowerReading};
    use crate::analysis::{EnergyMethod, VitalSubject};
    use proptest::prelude::*;
    use std::time::Duration;

    fn meter() -> EnergyMeter {
        EnergyMeter::new(VitalSubject::Machine, EnergyMeter::RAPL_UPDATE)
    }

    fn power(seconds: f64, watts: f64) -> PowerReading {
        let at = Duration::from_secs_f64(seconds);
        PowerReading { at, counter: None, power: Some(watts), wraps_at: None }
    }

    fn counter(seconds: u64, joules: f64, wraps_at: Option<f64>) -> PowerReading {
        PowerReading { at: Duration::from_secs(seconds), counter: Some(joules), power: None, wraps_at }
    }

    #[test]
    fn integrated_power_equals_closed_forms_within_its_error() {
        // 300 W plus a sine of 100 W and 20 s, read every 0.1 s; its integral is known.
        let watts = |t: f64| 300.0 + 100.0 * (t * std::f64::consts::TAU / 20.0).sin();
        let exact = |t: f64| {
            let omega = std::f64::consts::TAU / 20.0;
            300.0 * t + 100.0 / omega * (1.0 - (omega * t).cos())
        };
        let mut meter = meter();
        for index in 0..=330 {
            let t = f64::from(index) / 10.0;
            meter.add(power(t, watts(t)));
        }
        let total = meter.total().unwrap();
        assert_eq!((total.method, total.time), (EnergyMethod::IntegratedPower, Duration::from_secs(33)));
        let off = (total.joules - exact(33.0)).abs();
        assert!(off <= total.error && off < 0.001 * exact(33.0), "{off} of {}, error {}", exact(33.0), total.error);
        // A linear ramp is exact.
        let mut ramp = self::meter();
        for t in 0..=10 {
            ramp.add(power(f64::from(t), 50.0 * f64::from(t)));
        }
        assert_eq!(ramp.total().unwrap().joules, 2500.0);
    }

    #[test]
    fn a_counter_is_preferred_and_a_reset_loses_no_more_than_it_must() {
        let mut meter = meter();
        let both = |seconds, joules, watts| PowerReading { power: Some(watts), ..counter(seconds, joules, None) };
        assert_eq!(meter.add(both(0, 1000.0, 1.0)), None);
        assert_eq!(meter.add(both(2, 1500.0, 1.0)), Some(250.0));
        // Reset: the power stands in.
        assert_eq!(meter.add(both(3, 10.0, 201.0)), Some(101.0));
        let total = meter.total().unwrap();
        assert_eq!((total.joules, total.method), (601.0, EnergyMethod::Counter));
        assert_eq!(total.error, 100.0 + 601.0 / 3.0 * 0.001);
        // Without power, what it has counted since.
        let mut bare = self::meter();
        for reading in [counter(0, 900.0, None), counter(1, 950.0, None), counter(2, 30.0, None)] {
            bare.add(reading);
        }
        assert_eq!(bare.joules(), Some(80.0));
        assert_eq!(self::meter().total(), None);
    }

    proptest! {
        #[test]
        fn a_counter_that_wraps_gives_the_same_energy(
            range in 1_000_u32..100_000, parts in prop::collection::vec(0_u32..900, 1..200), start in 0_u32..100_000,
        ) {
            let (mut meter, range) = (meter(), f64::from(range));
            let mut exact = f64::from(start) % range;
            meter.add(counter(0, exact, Some(range)));
            let before = exact;
            for (second, part) in (1..).zip(&parts) {
                exact += f64::from(*part);
                meter.add(counter(second, exact % range, Some(range)));
            }
            prop_assert!((meter.total().unwrap().joules - (exact - before)).abs() < 1e-6);
        }
    }
}
