//! The vital signs of a run: the table of averages and peaks, and the energy of steps, samples and operations.

use super::{Report, table::Table};
use crate::{
    analysis::{Analysis, RunEnergy, RunVitals, VitalSummary},
    trace::{Cut, convention},
    units,
};
use std::fmt;

/// The vital signs of a run, and how much work its recorded steps did.
#[derive(Debug, Default)]
pub(super) struct VitalsOfRun {
    pub(super) run: RunVitals,
    /// Whole steps that were recorded.
    steps: u64,
    samples: f64,
    tokens: f64,
    flops: f64,
}

/// The energy of a unit of work: that of a step of the run, by the work of a recorded step. `None` if the program does
/// not say how much that is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct EnergyRates {
    /// Joules for each step of the run.
    pub per_step: Option<f64>,
    /// Joules for each sample: see [`convention::SAMPLES`].
    pub per_sample: Option<f64>,
    /// Joules for each token: see [`convention::TOKENS`].
    pub per_token: Option<f64>,
    /// Joules for each 10¹² floating-point operations.
    pub per_teraflop: Option<f64>,
}

impl Report {
    /// Returns the vital signs of the whole run, recorded or not, if
    /// [`Activity::Vitals`](crate::Activity::Vitals) is recorded. The report prints them.
    ///
    /// ```
    /// # fn show(report: &kernspan::Report) {
    /// if let Some(cpu) = report.vitals().get("process.cpus") {
    ///     println!("{:.1} CPUs on average, {:.1} at most", cpu.average, cpu.peak);
    /// }
    /// # }
    /// ```
    pub fn vitals(&self) -> &RunVitals {
        &self.vitals.run
    }

    /// Returns the energy of a step, and of the samples, tokens and operations in it.
    pub fn energy_rates(&self) -> EnergyRates {
        let VitalsOfRun { run, steps, samples, tokens, flops } = &self.vitals;
        let per_step = run.energy.as_ref().and_then(RunEnergy::per_step);
        let per = |work: f64| {
            let of_step = work / (*steps).max(1) as f64;
            per_step.filter(|_| of_step > 0.0).map(|joules| joules / of_step)
        };
        EnergyRates { per_step, per_sample: per(*samples), per_token: per(*tokens), per_teraflop: per(*flops / 1e12) }
    }

    /// Returns the table of vital signs: the average and the peak of each, and the time above its threshold.
    pub(super) fn vitals_table(&self) -> Table {
        let rows = &self.vitals.run.signs;
        let above = |row: &VitalSummary| {
            let above = row.above.filter(|above| !above.time.is_zero())?;
            Some(format!("{} above {}", units::time(above.time), row.sign.unit().format(above.limit)))
        };
        let mut table = Table::default();
        table.text("Vital sign", rows, |row| row.sign.to_string());
        table.number("Average", rows, |row| row.sign.unit().format(row.average));
        table.number("Peak", rows, |row| row.sign.unit().format(row.peak));
        table.text("Threshold", rows, above);
        table
    }

    /// Writes the energy, and what is not known.
    pub(super) fn write_vitals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = &self.vitals.run;
        if let Some(energy) = &run.energy {
            let joules = |number| units::amount(number, "J");
            write!(f, "energy: {} ± {}", joules(energy.joules()), joules(energy.error()))?;
            for (index, part) in energy.uses.iter().enumerate() {
                let (start, end) = (if index == 0 { " (" } else { "; " }, index + 1 == energy.uses.len());
                let method = part.method.as_str();
                let (watts, end) = (units::amount(part.watts(), "W"), if end { ")" } else { "" });
                write!(f, "{start}{} {}, {watts} on average, {method}{end}", part.subject, joules(part.joules))?;
            }
            let rates = self.energy_rates();
            let rates = [
                (rates.per_step, "step"),
                (rates.per_sample, "sample"),
                (rates.per_token, "token"),
                (rates.per_teraflop, "TFLOP"),
            ];
            for (number, what) in rates.iter().filter_map(|(rate, what)| Some(((*rate)?, what))) {
                write!(f, ", {} a {what}", joules(number))?;
            }
            writeln!(f)?;
            if let Some(carbon) = &energy.carbon {
                let (grams, each) = (units::amount(carbon.grams, "g"), units::digits(carbon.grams_per_kwh));
                writeln!(f, "CO₂: {grams} at {each} g/kWh ({})", carbon.source)?;
            }
            if let Some(cost) = energy.cost {
                writeln!(f, "price of the electricity: {}", units::digits(cost))?;
            }
        }
        run.problems.iter().try_for_each(|problem| writeln!(f, "vital signs: {problem}"))
    }
}

impl VitalsOfRun {
    /// Adds the work of the whole steps of a window.
    pub(super) fn add(&mut self, window: &Analysis<'_>) {
        let trace = window.trace();
        for (id, step) in trace.step_ids().zip(trace.steps()).filter(|(_, step)| step.cut() == Cut::default()) {
            self.steps += 1;
            self.flops += window.flops().of_step(id).count as f64;
            for (name, value) in trace.counters_in(step).filter(|(_, value)| value.is_finite()) {
                match name {
                    convention::SAMPLES => self.samples += value,
                    convention::TOKENS => self.tokens += value,
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Report;
    use crate::{
        analysis::{
            Analysis, Carbon, EnergyMethod, EnergyUse, FollowedRun, MachineVitals, RunEnergy, RunVitals, VitalSigns,
            VitalSubject,
        },
        trace::{
            DeviceId, Step,
            sample::{add_counter, gpu_trace, set_flops},
        },
    };
    use std::time::Duration;

    fn report() -> Report {
        let mut trace = gpu_trace();
        let starts: Vec<_> = trace.steps().iter().map(Step::start).collect();
        let samples: Vec<_> = starts.iter().map(|&start| (start, 32.0)).collect();
        add_counter(&mut trace, "samples", &samples);
        set_flops(&mut trace, 0, 4_000_000_000_000, "f32");
        let mut run = RunVitals::default();
        for (seconds, cpu) in [(0, 20.0), (3, 80.0), (1, 95.0)] {
            let machine = MachineVitals { cpu: Some(cpu), cpu_power: Some(100.0), ..MachineVitals::default() };
            let signs = VitalSigns { machine, ..VitalSigns::default() };
            run.add(&signs, Duration::from_secs(seconds), |sign| (sign.key() == "cpu").then_some(90.0));
        }
        run.problems.push("GPUs are not read: there is none".to_owned());
        let part = |subject, method, joules, error| {
            let time = Duration::from_secs(4);
            EnergyUse { subject, method, joules, error, time }
        };
        let uses = vec![
            part(VitalSubject::Gpu(DeviceId::new(0)), EnergyMethod::IntegratedPower, 2800.0, 14.0),
            part(VitalSubject::Machine, EnergyMethod::Counter, 400.0, 0.1),
        ];
        let carbon = Carbon { grams: 0.4, grams_per_kwh: 450.0, source: "a supplier".to_owned() };
        run.energy = Some(RunEnergy { uses, steps: 10, carbon: Some(carbon), cost: Some(0.0003) });
        let mut report = Report::default();
        report.add(&Analysis::of(&trace));
        report.add_followed(FollowedRun { vitals: run, ..FollowedRun::default() });
        report
    }

    #[test]
    fn the_report_has_averages_peaks_and_energy() {
        let report = report();
        let text = report.to_string();
        let has = |line: &str| assert!(text.lines().any(|it| it.trim_end() == line), "{line}\n{text}");
        has("machine.cpu         83.8 %  95.0 %  1.00 s above 90.0 %");
        has("machine.cpu_power    100 W   100 W");
        has("CO₂: 0.400 g at 450 g/kWh (a supplier)");
        has("price of the electricity: 0.000300");
        has("vital signs: GPUs are not read: there is none");
        let energy = "energy: 3.20 kJ ± 14.1 J (gpu0 2.80 kJ, 700 W on average, integrated power; machine 400 J, 100 W \
                      on average, counted), 320 J a step, 10.0 J a sample";
        let text: Vec<_> = text.split_whitespace().collect();
        assert!(text.join(" ").contains(energy), "{text:?}");
        let rates = report.energy_rates();
        assert_eq!((rates.per_step, rates.per_sample, rates.per_token), (Some(320.0), Some(10.0), None));
        // The operations are those of one of the recorded steps.
        let steps = report.steps().count() as f64;
        assert_eq!(rates.per_teraflop, Some(320.0 / (4.0 / steps)));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn vital_signs_are_serialized() {
        let json = serde_json::to_value(report()).unwrap();
        let cpu = &json["vitals"]["signs"][0];
        assert_eq!((&cpu["sign"], &cpu["average"], &cpu["peak"]), (&"machine.cpu".into(), &83.75.into(), &95.0.into()));
        assert_eq!(json["vitals"]["energy"]["uses"][0]["method"], "integrated_power");
        assert_eq!(json["energy_rates"]["per_step"], 320.0);
        assert!(serde_json::to_value(Report::default()).unwrap().get("vitals").is_none());
    }
}
