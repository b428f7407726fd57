//! The vital signs of the GPUs that the process may use. A thread of their own reads them, as a GPU that is in trouble may not answer for long.

use super::{
    encode::{Number, Writer},
    name,
    table::{self, Instrument},
};
use crate::trace::Timestamp;
use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    time::{Duration, Instant},
};

/// What the thread and the metrics share.
#[derive(Clone, Debug, Default)]
pub(super) struct Gpus(Arc<Mutex<Vec<Gpu>>>);

/// The GPUs, and the thread that reads them.
#[derive(Debug)]
pub(super) struct Hardware {
    gpus: Gpus,
    /// Dropped to end the thread.
    ending: Option<Sender<Infallible>>,
    /// Hangs up when it has ended.
    ended: Receiver<Infallible>,
}

/// A GPU.
#[derive(Debug)]
pub(super) struct Gpu {
    id: String,
    name: String,
    latest: Reading,
    read: Instant,
    utilization: Mean,
    power: Mean,
    /// Joules at the first reading, and when that was.
    energy: Option<(f64, Timestamp)>,
}

/// What a GPU says, as far as it does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Reading {
    /// From 0 to 1.
    pub(super) utilization: Option<f64>,
    /// Bytes in use, and all.
    pub(super) memory: Option<(u64, u64)>,
    /// Degrees Celsius.
    pub(super) temperature: Option<f64>,
    /// Watts.
    pub(super) power: Option<f64>,
    /// Joules, since some time or other.
    pub(super) energy: Option<f64>,
}

/// The mean of what was read since it was taken.
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
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Gpu>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gpu {
    /// A reading that is older says nothing of now: whoever reads does not get on.
    const OLD: Duration = Duration::from_secs(10);

    pub(super) fn new(id: String, name: String, first: Reading, read: Instant) -> Self {
        let (utilization, power) = (Mean::default(), Mean::default());
        let mut gpu = Self { id, name, latest: first, read, utilization, power, energy: None };
        gpu.add(first, read);
        gpu
    }

    pub(super) fn add(&mut self, reading: Reading, read: Instant) {
        (self.latest, self.read) = (reading, read);
        self.utilization.add(reading.utilization);
        self.power.add(reading.power);
        self.energy = self.energy.or_else(|| reading.energy.map(|joules| (joules, Timestamp::now())));
    }

    /// What there is to say, with the means since this was last asked for.
    fn collect(&mut self, now: Instant) -> Option<Reading> {
        let (utilization, power) = (self.utilization.take(), self.power.take());
        let fresh = now.saturating_duration_since(self.read) < Self::OLD;
        fresh.then(|| Reading {
            utilization: utilization.or(self.latest.utilization),
            power: power.or(self.latest.power),
            ..self.latest
        })
    }
}

impl Hardware {
    /// How long the end of a run waits for the last readings.
    const LAST: Duration = Duration::from_secs(1);

    /// Has a thread look for GPUs, and read them from then on. Where there is nothing to read, or no thread, there is nothing to say.
    pub(super) fn watch() -> Self {
        let gpus = Gpus::default();
        let (ending, end) = mpsc::channel();
        let (done, ended) = mpsc::channel::<Infallible>();
        #[cfg(target_os = "linux")]
        {
            let gpus = gpus.clone();
            let _ = std::thread::Builder::new().name("kernspan-nvml".to_owned()).spawn(move || {
                crate::export::mute_this_thread();
                let _done = done;
                super::nvml::watch(&gpus, &end);
            });
        }
        #[cfg(not(target_os = "linux"))]
        drop((end, done));
        Self { gpus, ending: Some(ending), ended }
    }

    /// GPUs that nobody reads.
    #[cfg(test)]
    pub(super) fn of(gpus: impl IntoIterator<Item = Gpu>) -> Self {
        Self { gpus: Gpus(Arc::new(Mutex::new(gpus.into_iter().collect()))), ending: None, ended: mpsc::channel().1 }
    }

    /// Reads for the last time.
    pub(super) fn end(&mut self) {
        self.ending = None;
        // Nothing is ever sent: it hangs up, or does not get on.
        let _ = self.ended.recv_timeout(Self::LAST);
    }

    pub(super) fn write(&self, now: Instant, writer: &mut Writer<'_>) {
        let mut gpus = self.gpus.lock();
        let read: Vec<_> = gpus.iter_mut().filter_map(|gpu| gpu.collect(now).map(|reading| (&*gpu, reading))).collect();
        for (instrument, value) in SIGNS {
            writer.metric(&instrument, |points| {
                for (gpu, value) in read.iter().filter_map(|(gpu, reading)| Some((gpu, value(reading)?))) {
                    points.number(&gpu.labels(), value);
                }
            });
        }
        writer.metric(&table::HW_ENERGY, |points| {
            for (gpu, reading) in &read {
                if let (Some((first, since)), Some(joules)) = (gpu.energy, reading.energy) {
                    points.number_since(since, &gpu.labels(), (joules - first).max(0.0));
                }
            }
        });
    }
}

/// What is said as it is read.
const SIGNS: [(Instrument, Sign); 6] = [
    (table::HW_UTILIZATION, |reading| reading.utilization.map(Number::Float)),
    (table::HW_MEMORY_UTILIZATION, |reading| reading.memory_utilization().map(Number::Float)),
    (table::HW_MEMORY_USAGE, |reading| reading.memory.map(|(used, _)| used.into())),
    (table::HW_MEMORY_LIMIT, |reading| reading.memory.map(|(_, all)| all.into())),
    (table::HW_TEMPERATURE, |reading| reading.temperature.map(Number::Float)),
    (table::HW_POWER, |reading| reading.power.map(Number::Float)),
];

type Sign = fn(&Reading) -> Option<Number>;

impl Gpu {
    fn labels(&self) -> [(&str, &str); 3] {
        [(name::HARDWARE, &self.id), (table::HARDWARE_NAME, &self.name), (table::HARDWARE_TYPE, "gpu")]
    }
}

impl Reading {
    fn memory_utilization(&self) -> Option<f64> {
        self.memory.filter(|&(_, all)| all > 0).map(|(used, all)| used as f64 / all as f64)
    }
}
