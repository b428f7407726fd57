//! Readings of the machine's GPUs, which the terminal takes itself: the program that is watched does nothing for them.

use std::time::Duration;

/// A GPU at one moment, as far as NVML knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GpuReading {
    pub(super) index: u32,
    pub(super) name: String,
    /// The share of the last second or less in which a kernel ran.
    pub(super) busy_percent: Option<u32>,
    /// The bytes in use by all processes, and all there are.
    pub(super) memory: Option<(u64, u64)>,
    pub(super) watts: Option<f64>,
    pub(super) celsius: Option<u32>,
}

/// The time between two readings: NVML's utilization covers up to a second.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// Returns a function that reads all GPUs, if there is a driver.
#[cfg(target_os = "linux")]
pub(super) fn reader() -> Option<impl FnMut() -> Vec<GpuReading> + Send + 'static> {
    use nvml_wrapper::{Nvml, enum_wrappers::device::TemperatureSensor};
    let nvml = Nvml::init().ok()?;
    let read = move |index| {
        let device = nvml.device_by_index(index).ok()?;
        Some(GpuReading {
            index,
            name: device.name().unwrap_or_default(),
            busy_percent: device.utilization_rates().ok().map(|rates| rates.gpu),
            memory: device.memory_info().ok().map(|memory| (memory.used, memory.total)),
            watts: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1e3),
            celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        })
    };
    let count = Nvml::init().ok()?.device_count().unwrap_or(0);
    Some(move || (0..count).filter_map(&read).collect())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn reader() -> Option<impl FnMut() -> Vec<GpuReading> + Send + 'static> {
    None::<fn() -> Vec<GpuReading>>
}
