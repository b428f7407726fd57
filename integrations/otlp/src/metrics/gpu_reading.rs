//! Readings of GPUs, and their means.

use kernspan::trace::Timestamp;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The GPUs that are read, shared by the thread that reads them and by the metrics.
#[derive(Clone, Debug, Default)]
pub(super) struct Gpus(Arc<Mutex<Vec<Gpu>>>);

/// A GPU, with its last reading and the means since the last collection.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) id: String,
    pub(super) name: String,
    latest: Reading,
    read_at: Instant,
    utilization: Mean,
    power: Mean,
    /// Joules at the first reading, and when that was.
    pub(super) first_energy: Option<(f64, Timestamp)>,
}

/// The values that a GPU reports. Not every GPU reports all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Reading {
    /// From 0 to 1.
    pub(super) utilization: Option<f64>,
    /// Bytes in use, and in total.
    pub(super) memory: Option<(u64, u64)>,
    /// Degrees Celsius.
    pub(super) temperature: Option<f64>,
    /// Watts.
    pub(super) power: Option<f64>,
    /// Joules since the driver was loaded.
    pub(super) energy: Option<f64>,
}

/// The mean of the values since it was last taken.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        self.sum += value.unwrap_or(0.0);
        self.count += u32::from(value.is_some());
    }

    fn take(&mut self) -> Option<f64> {
        let Self { sum, count } = std::mem::take(self);
        (count > 0).then(|| sum / f64::from(count))
    }
}

impl Gpus {
    #[cfg(test)]
    pub(super) fn new(gpus: impl IntoIterator<Item = Gpu>) -> Self {
        Self(Arc::new(Mutex::new(gpus.into_iter().collect())))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Gpu>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gpu {
    /// The age at which a reading is no longer sent: the reading thread is blocked.
    const OLD: Duration = Duration::from_secs(10);

    pub(super) fn new(id: String, name: String, first: Reading, read_at: Instant) -> Self {
        let (utilization, power) = (Mean::default(), Mean::default());
        let mut gpu = Self { id, name, latest: first, read_at, utilization, power, first_energy: None };
        gpu.add(first, read_at);
        gpu
    }

    pub(super) fn add(&mut self, reading: Reading, read_at: Instant) {
        (self.latest, self.read_at) = (reading, read_at);
        self.utilization.add(reading.utilization);
        self.power.add(reading.power);
        self.first_energy = self.first_energy.or_else(|| reading.energy.map(|joules| (joules, Timestamp::now())));
    }

    /// The last reading, with the means of utilization and power since the last call. `None` if it is too old.
    pub(super) fn collect(&mut self, now: Instant) -> Option<Reading> {
        let (utilization, power) = (self.utilization.take(), self.power.take());
        let is_fresh = now.saturating_duration_since(self.read_at) < Self::OLD;
        is_fresh.then(|| Reading {
            utilization: utilization.or(self.latest.utilization),
            power: power.or(self.latest.power),
            ..self.latest
        })
    }
}

impl Reading {
    pub(super) fn memory_utilization(&self) -> Option<f64> {
        self.memory.filter(|&(_, all)| all > 0).map(|(used, all)| used as f64 / all as f64)
    }
}
