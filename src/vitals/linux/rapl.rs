//! The energy of CPU packages: RAPL, as `/sys/class/powercap` has it.

use super::files::SystemFiles;
use crate::{
    analysis::{EnergyUse, MachineVitals, VitalSubject},
    vitals::energy::{EnergyMeter, PowerReading},
};
use std::time::Duration;

/// The energy counters of CPU packages. Most systems let only root read them, since they can leak secrets of other
/// processes (CVE-2020-8694).
#[derive(Debug)]
pub(super) struct Rapl {
    packages: Vec<Package>,
    problem: Option<&'static str>,
}

#[derive(Debug)]
struct Package {
    folder: String,
    /// The joules after which the counter begins at 0 again.
    wraps_at: Option<f64>,
    meter: EnergyMeter,
}

impl Rapl {
    pub(super) fn open(files: &SystemFiles) -> Self {
        let zones = files.list("sys/class/powercap").into_iter();
        // A zone has the parts of its package below it, such as `intel-rapl:0:0`. `psys` is the whole platform, with
        // the packages in it. AMD's packages have the same names.
        let zones = zones.filter(|zone| zone.starts_with("intel-rapl:") && zone.matches(':').count() == 1);
        let folders = zones.map(|zone| format!("sys/class/powercap/{zone}"));
        let is_package =
            |folder: &String| files.text(&format!("{folder}/name")).is_some_and(|name| name.starts_with("package"));
        let folders: Vec<_> = folders.filter(is_package).collect();
        let is_forbidden = folders.iter().any(|folder| files.is_forbidden(&format!("{folder}/energy_uj")));
        let problem = match (folders.is_empty(), is_forbidden) {
            (true, _) => Some("the energy of CPUs is not known: there is no RAPL in /sys/class/powercap"),
            (false, true) => {
                Some("the energy of CPUs is not known: only root may read /sys/class/powercap/intel-rapl:*/energy_uj")
            }
            (false, false) => None,
        };
        let package = |folder: String| {
            let wraps_at = files.number(&format!("{folder}/max_energy_range_uj")).map(|micro: f64| micro / 1e6);
            let meter = EnergyMeter::new(VitalSubject::Machine, EnergyMeter::RAPL_UPDATE);
            Package { folder, wraps_at, meter }
        };
        Self { packages: folders.into_iter().map(package).collect(), problem }
    }

    pub(super) fn problem(&self) -> Option<&str> {
        self.problem
    }

    pub(super) fn read(&mut self, files: &SystemFiles, at: Duration, vitals: &mut MachineVitals) {
        for Package { folder, wraps_at, meter } in &mut self.packages {
            let counter = files.number(&format!("{folder}/energy_uj")).map(|micro: f64| micro / 1e6);
            let power = meter.add(PowerReading { at, counter, power: None, wraps_at: *wraps_at });
            let add = |sum: &mut Option<f64>, part: Option<f64>| {
                if let Some(part) = part {
                    *sum = Some(sum.unwrap_or(0.0) + part);
                }
            };
            add(&mut vitals.cpu_power, power);
            add(&mut vitals.cpu_energy, meter.joules());
        }
    }

    /// Returns the energy of all packages.
    pub(super) fn energy(&self) -> Option<EnergyUse> {
        let packages = self.packages.iter().filter_map(|package| package.meter.total());
        packages.reduce(|all, package| EnergyUse {
            joules: all.joules + package.joules,
            error: all.error + package.error,
            time: all.time.max(package.time),
            ..all
        })
    }
}
