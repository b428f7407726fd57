//! NVML, NVIDIA's management library, which is loaded at run time.

use super::gpu_reading::{Gpu, Gpus, Reading};
use nvml_wrapper::{Nvml, enum_wrappers::device::TemperatureSensor};
use std::{
    convert::Infallible,
    ffi::OsStr,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

/// How often GPUs are read. NVML's utilization covers the last second or less.
const EVERY: Duration = Duration::from_secs(1);

/// Reads the GPUs that the process may use until `end` is disconnected, and then once more.
pub(super) fn watch(gpus: &Gpus, end: &Receiver<Infallible>) {
    let Some(nvml) = load() else { return };
    let visible = Visible::new(std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref());
    let mut found = Vec::new();
    for index in 0..nvml.device_count().unwrap_or(0) {
        let Ok(device) = nvml.device_by_index(index) else { continue };
        let Some(id) = device.uuid().ok().filter(|id| visible.shows(index, id)) else { continue };
        let gpu = Gpu::new(id, device.name().unwrap_or_default(), read(&nvml, index), Instant::now());
        found.push(index);
        gpus.lock().push(gpu);
    }
    while !found.is_empty() {
        let is_running = matches!(end.recv_timeout(EVERY), Err(RecvTimeoutError::Timeout));
        for (place, &index) in found.iter().enumerate() {
            let reading = read(&nvml, index);
            if let Some(gpu) = gpus.lock().get_mut(place) {
                gpu.add(reading, Instant::now());
            }
        }
        if !is_running {
            return;
        }
    }
}

fn load() -> Option<Nvml> {
    // A machine without development packages has only the first.
    let names = ["libnvidia-ml.so.1", "libnvidia-ml.so"];
    names.into_iter().find_map(|name| Nvml::builder().lib_path(OsStr::new(name)).init().ok())
}

/// Reads a GPU. A value that it does not report is `None`.
fn read(nvml: &Nvml, index: u32) -> Reading {
    let Ok(device) = nvml.device_by_index(index) else { return Reading::default() };
    Reading {
        utilization: device.utilization_rates().ok().map(|rates| f64::from(rates.gpu) / 100.0),
        memory: device.memory_info().ok().map(|memory| (memory.used, memory.total)),
        temperature: device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
        power: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1e3),
        energy: device.total_energy_consumption().ok().map(|millijoules| millijoules as f64 / 1e3),
    }
}

/// The GPUs that `CUDA_VISIBLE_DEVICES` lets the process use.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Visible {
    All,
    Only(Vec<Pick>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pick {
    Index(u32),
    /// A prefix of the GPU's id.
    Id(String),
}

impl Visible {
    fn new(variable: Option<&str>) -> Self {
        let Some(list) = variable else { return Self::All };
        let mut picks = Vec::new();
        for pick in list.split(',').map(str::trim).filter(|pick| !pick.starts_with("MIG-")) {
            match pick.parse() {
                Ok(index) => picks.push(Pick::Index(index)),
                Err(_) if pick.starts_with("GPU-") => picks.push(Pick::Id(pick.to_owned())),
                // CUDA ignores everything after an invalid entry, such as -1.
                Err(_) => break,
            }
        }
        Self::Only(picks)
    }

    fn shows(&self, index: u32, id: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(picks) => picks.iter().any(|pick| match pick {
                Pick::Index(picked) => *picked == index,
                Pick::Id(start) => id.starts_with(start),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Visible;

    #[test]
    fn only_what_the_process_may_use_is_read() {
        const IDS: [&str; 3] = ["GPU-aa11", "GPU-ab22", "GPU-cc33"];
        let cases: [(Option<&str>, &[usize]); 9] = [
            (None, &[0, 1, 2]),
            (Some(""), &[]),
            (Some("1"), &[1]),
            (Some(" 2, 0"), &[0, 2]),
            (Some("0,-1,1"), &[0]),
            (Some("GPU-a"), &[0, 1]),
            (Some("GPU-cc33,0"), &[0, 2]),
            (Some("MIG-1234,2"), &[2]),
            (Some("NoDevFiles"), &[]),
        ];
        for (variable, expected) in cases {
            let visible = Visible::new(variable);
            let shown: Vec<_> = (0..3).filter(|&gpu| visible.shows(gpu as u32, IDS[gpu])).collect();
            assert_eq!(shown, expected, "{variable:?}");
        }
    }
}
