//! Temperature, frequency and thermal throttling of CPUs, from `/sys`.

use super::{files::SystemFiles, rate::Rate};
use crate::analysis::MachineVitals;
use std::time::Duration;

/// The sensors that were found.
#[derive(Debug)]
pub(super) struct CpuSensors {
    /// Files with thousandths of a degree.
    temperatures: Vec<String>,
    /// Files with kilohertz.
    frequencies: Vec<String>,
    /// Files with numbers of events.
    throttles: Vec<String>,
    throttled: Rate,
}

impl CpuSensors {
    /// The most CPUs whose frequency is read: each takes a call into the kernel, and often an interrupt of that CPU.
    const CPUS: usize = 8;
    /// The drivers of sensors of CPUs: Intel's, AMD's, and those of ARM boards.
    const DRIVERS: [&str; 5] = ["coretemp", "k10temp", "zenpower", "cpu_thermal", "scpi_sensors"];

    /// Looks for sensors, where there are so many CPUs.
    pub(super) fn open(files: &SystemFiles, cpus: usize) -> Self {
        let mut temperatures = Vec::new();
        for sensor in files.list("sys/class/hwmon") {
            let folder = format!("sys/class/hwmon/{sensor}");
            let driver = files.text(&format!("{folder}/name")).unwrap_or_default();
            if Self::DRIVERS.contains(&driver.trim()) {
                let names = files.list(&folder).into_iter();
                let inputs = names.filter(|name| name.starts_with("temp") && name.ends_with("_input"));
                temperatures.extend(inputs.map(|name| format!("{folder}/{name}")));
            }
        }
        // Packages rather than cores, of which there may be many, where a sensor says what it is of.
        let is_package = |input: &String| {
            let label = files.text(&input.replace("_input", "_label")).unwrap_or_default();
            ["Package", "Tctl", "Tdie"].iter().any(|name| label.starts_with(name))
        };
        if temperatures.iter().any(is_package) {
            temperatures.retain(is_package);
        }
        if temperatures.is_empty() {
            let zones = files.list("sys/class/thermal").into_iter().map(|zone| format!("sys/class/thermal/{zone}"));
            let is_cpu = |zone: &String| {
                let kind = files.text(&format!("{zone}/type")).unwrap_or_default();
                kind.trim() == "x86_pkg_temp" || kind.starts_with("cpu")
            };
            temperatures.extend(zones.filter(is_cpu).map(|zone| format!("{zone}/temp")));
        }
        let read = cpus.min(Self::CPUS);
        let spread = (0..read).map(|index| format!("sys/devices/system/cpu/cpu{}", index * cpus / read.max(1)));
        let spread: Vec<_> = spread.collect();
        let of_all = |file: &str| {
            let all = spread.iter().map(|cpu| format!("{cpu}/{file}"));
            all.filter(|path| files.exists(path)).collect::<Vec<_>>()
        };
        let mut throttles = of_all("thermal_throttle/core_throttle_count");
        throttles.extend(of_all("thermal_throttle/package_throttle_count"));
        Self { temperatures, frequencies: of_all("cpufreq/scaling_cur_freq"), throttles, throttled: Rate::default() }
    }

    pub(super) fn read(&mut self, files: &SystemFiles, at: Duration, vitals: &mut MachineVitals) {
        let numbers = |paths: &[String]| -> Vec<f64> { paths.iter().filter_map(|path| files.number(path)).collect() };
        vitals.temperature = numbers(&self.temperatures).into_iter().reduce(f64::max).map(|milli| milli / 1e3);
        let frequencies = numbers(&self.frequencies);
        let count = frequencies.len() as f64;
        vitals.frequency = (count > 0.0).then(|| frequencies.iter().sum::<f64>() / count * 1e3);
        let throttles = numbers(&self.throttles);
        let all = (!throttles.is_empty()).then(|| throttles.iter().sum());
        vitals.throttles = self.throttled.per_second(at, all);
    }
}
