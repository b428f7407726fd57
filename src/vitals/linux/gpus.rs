//! GPUs, by NVML, NVIDIA's management library, which is loaded at run time.

use super::{
    gpu_processes::{GpuProcesses, ProcessSample},
    visible_gpus::VisibleGpus,
};
use crate::{
    analysis::{EnergyUse, GpuVitals, VitalSubject},
    trace::DeviceId,
    vitals::energy::{EnergyMeter, PowerReading},
};
use nvml_wrapper::{
    Device, Nvml,
    bitmasks::device::ThrottleReasons,
    enum_wrappers::device::{Clock, PcieUtilCounter, TemperatureSensor},
    error::NvmlError,
};
use std::{ffi::OsStr, time::Duration};

/// Reads the GPUs that the process may use.
#[derive(Debug)]
pub(super) struct GpuReader {
    nvml: Nvml,
    gpus: Vec<GpuState>,
}

/// What is kept of a GPU between readings.
#[derive(Debug)]
struct GpuState {
    /// NVML's number.
    index: u32,
    device: DeviceId,
    id: String,
    name: String,
    meter: EnergyMeter,
    pcie: Option<(Duration, [Option<f64>; 2])>,
    processes: GpuProcesses,
}

impl GpuReader {
    /// Loads NVML, and looks for GPUs.
    pub(super) fn open() -> Result<Self, String> {
        // A machine without development packages has only the first.
        let names = ["libnvidia-ml.so.1", "libnvidia-ml.so"];
        let mut nvml = Err("it is not installed".to_owned());
        for name in names {
            nvml = nvml.or_else(|_| Nvml::builder().lib_path(OsStr::new(name)).init().map_err(|it| it.to_string()));
        }
        let nvml = nvml.map_err(|error| format!("GPUs are not read: NVML cannot be loaded: {error}"))?;
        let count = nvml.device_count().unwrap_or(0);
        let all = (0..count).filter_map(|index| {
            let device = nvml.device_by_index(index).ok()?;
            Some((index, device.uuid().ok()?, device.name().unwrap_or_default()))
        });
        let all: Vec<_> = all.collect();
        let ids: Vec<_> = all.iter().map(|(_, id, _)| id.as_str()).collect();
        let visible = VisibleGpus::new(std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref()).of(&ids);
        let state = |(number, place): (u32, usize)| {
            let (index, id, name) = &all[place];
            let device = DeviceId::new(number);
            GpuState {
                index: *index,
                device,
                id: id.clone(),
                name: name.clone(),
                meter: EnergyMeter::new(VitalSubject::Gpu(device), EnergyMeter::NVML_UPDATE),
                pcie: None,
                processes: GpuProcesses::default(),
            }
        };
        let gpus: Vec<_> = (0..).zip(visible).map(state).collect();
        match gpus.is_empty() {
            true => Err("GPUs are not read: NVML sees none that the process may use".to_owned()),
            false => Ok(Self { nvml, gpus }),
        }
    }

    pub(super) fn read(&mut self, at: Duration) -> Vec<GpuVitals> {
        let Self { nvml, gpus } = self;
        gpus.iter_mut().map(|gpu| gpu.read(nvml, at)).collect()
    }

    /// Returns the energy of each GPU.
    pub(super) fn energy(&self) -> impl Iterator<Item = EnergyUse> {
        self.gpus.iter().filter_map(|gpu| gpu.meter.total())
    }
}

impl GpuState {
    /// The least time between two readings of PCIe: NVML measures it for 20 ms each, in which it does not return.
    const PCIE_EVERY: Duration = Duration::from_millis(900);

    /// Reads a GPU. A value that it does not report is `None`.
    fn read(&mut self, nvml: &Nvml, at: Duration) -> GpuVitals {
        let mut vitals = GpuVitals::default();
        (vitals.device, vitals.id, vitals.name) = (self.device, self.id.clone(), self.name.clone());
        let Ok(device) = nvml.device_by_index(self.index) else { return vitals };
        let hertz = |megahertz: Result<u32, NvmlError>| megahertz.ok().map(|it| f64::from(it) * 1e6);
        let watts = |milliwatts: Result<u32, NvmlError>| milliwatts.ok().map(|it| f64::from(it) / 1e3);
        vitals.utilization = device.utilization_rates().ok().map(|rates| f64::from(rates.gpu));
        if let Ok(memory) = device.memory_info() {
            vitals.memory_used = Some(memory.used as f64);
            vitals.memory = (memory.total > 0).then(|| 100.0 * memory.used as f64 / memory.total as f64);
        }
        vitals.temperature = device.temperature(TemperatureSensor::Gpu).ok().map(f64::from);
        vitals.clock = hertz(device.clock_info(Clock::SM));
        vitals.clock_max = hertz(device.max_clock_info(Clock::SM));
        vitals.memory_clock = hertz(device.clock_info(Clock::Memory));
        vitals.memory_clock_max = hertz(device.max_clock_info(Clock::Memory));
        if let Ok(reasons) = device.current_throttle_reasons() {
            let any = |of: ThrottleReasons| Some(if reasons.intersects(of) { 100.0 } else { 0.0 });
            vitals.thermal_throttle = any(ThrottleReasons::SW_THERMAL_SLOWDOWN | ThrottleReasons::HW_THERMAL_SLOWDOWN);
            vitals.power_throttle = any(ThrottleReasons::SW_POWER_CAP | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN);
        }
        vitals.power = watts(device.power_usage());
        vitals.power_limit = watts(device.enforced_power_limit());
        let counter = device.total_energy_consumption().ok().map(|millijoules| millijoules as f64 / 1e3);
        self.meter.add(PowerReading { at, counter, power: vitals.power, wraps_at: None });
        vitals.energy = self.meter.joules();
        [vitals.pcie_received, vitals.pcie_sent] = self.pcie(&device, at);
        vitals.other_processes = self.other_processes(&device, at);
        vitals
    }

    fn pcie(&mut self, device: &Device<'_>, at: Duration) -> [Option<f64>; 2] {
        let last = self.pcie.filter(|(read, _)| at.saturating_sub(*read) < Self::PCIE_EVERY);
        let read = |counter| device.pcie_throughput(counter).ok().map(|kilobytes| f64::from(kilobytes) * 1e3);
        let new = || (at, [PcieUtilCounter::Receive, PcieUtilCounter::Send].map(read));
        self.pcie.insert(last.unwrap_or_else(new)).1
    }

    /// Returns the time of the SMs that other processes used in the last second. It is known only if NVML names this
    /// process, too: in a container it may have another number there.
    fn other_processes(&mut self, device: &Device<'_>, at: Duration) -> Option<f64> {
        let own = std::process::id();
        let processes = device.running_compute_processes().ok()?;
        if !processes.iter().any(|process| process.pid == own) {
            return None;
        }
        let samples = match device.process_utilization_stats(self.processes.since(at)) {
            Ok(samples) => samples,
            // No process has used the GPU since then.
            Err(NvmlError::NotFound) => Vec::new(),
            Err(_) => return None,
        };
        let samples = samples.into_iter().map(|sample| ProcessSample {
            process: sample.pid,
            micros: sample.timestamp,
            percent: sample.sm_util,
        });
        self.processes.use_of_others(own, samples.collect(), at)
    }
}
