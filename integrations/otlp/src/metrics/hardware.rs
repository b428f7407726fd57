use super::{
    encode::{Number, Writer},
    gpu_reading::{Gpu, Gpus, Reading},
    instruments::{self, Instrument},
};
use crate::attributes::name;
use std::{
    convert::Infallible,
    sync::mpsc::{self, Receiver, Sender},
    time::{Duration, Instant},
};

/// The hardware metrics of the GPUs that the process may use. A thread reads them, since a failing GPU may block its
/// readers.
#[derive(Debug)]
pub(super) struct Hardware {
    gpus: Gpus,
    /// Dropped to end the thread.
    ending: Option<Sender<Infallible>>,
    /// Disconnected when the thread has ended.
    ended: Receiver<Infallible>,
}

impl Hardware {
    /// How long the end of a run waits for the last readings.
    const LAST: Duration = Duration::from_secs(1);

    /// Starts the thread that reads GPUs. Without NVML or the thread, there are no GPU metrics.
    pub(super) fn watch() -> Self {
        let gpus = Gpus::default();
        let (ending, end) = mpsc::channel();
        let (done, ended) = mpsc::channel::<Infallible>();
        #[cfg(target_os = "linux")]
        {
            let gpus = gpus.clone();
            let _ = std::thread::Builder::new().name("kernspan-nvml".to_owned()).spawn(move || {
                kernspan::export::mute_this_thread();
                let _done = done;
                super::nvml::watch(&gpus, &end);
            });
        }
        #[cfg(not(target_os = "linux"))]
        drop((end, done));
        Self { gpus, ending: Some(ending), ended }
    }

    /// GPUs that no thread reads.
    #[cfg(test)]
    pub(super) fn of(gpus: impl IntoIterator<Item = Gpu>) -> Self {
        Self { gpus: Gpus::new(gpus), ending: None, ended: mpsc::channel().1 }
    }

    /// Makes the thread read the GPUs for the last time.
    pub(super) fn end(&mut self) {
        self.ending = None;
        // Nothing is ever sent. This returns when the thread has ended, or after the timeout.
        let _ = self.ended.recv_timeout(Self::LAST);
    }

    pub(super) fn write(&self, now: Instant, writer: &mut Writer<'_>) {
        let mut gpus = self.gpus.lock();
        let read: Vec<_> = gpus.iter_mut().filter_map(|gpu| gpu.collect(now).map(|reading| (&*gpu, reading))).collect();
        for (instrument, value) in VALUES {
            writer.metric(&instrument, |points| {
                for (gpu, value) in read.iter().filter_map(|(gpu, reading)| Some((gpu, value(reading)?))) {
                    points.number(&labels(gpu), value);
                }
            });
        }
        writer.metric(&instruments::HW_ENERGY, |points| {
            for (gpu, reading) in &read {
                if let (Some((first, since)), Some(joules)) = (gpu.first_energy, reading.energy) {
                    points.number_since(since, &labels(gpu), (joules - first).max(0.0));
                }
            }
        });
    }
}

/// The metrics that are values of a reading.
const VALUES: [(Instrument, Value); 6] = [
    (instruments::HW_UTILIZATION, |reading| reading.utilization.map(Number::Float)),
    (instruments::HW_MEMORY_UTILIZATION, |reading| reading.memory_utilization().map(Number::Float)),
    (instruments::HW_MEMORY_USAGE, |reading| reading.memory.map(|(used, _)| used.into())),
    (instruments::HW_MEMORY_LIMIT, |reading| reading.memory.map(|(_, all)| all.into())),
    (instruments::HW_TEMPERATURE, |reading| reading.temperature.map(Number::Float)),
    (instruments::HW_POWER, |reading| reading.power.map(Number::Float)),
];

type Value = fn(&Reading) -> Option<Number>;

fn labels(gpu: &Gpu) -> [(&str, &str); 3] {
    [(name::HARDWARE, &gpu.id), (instruments::HARDWARE_NAME, &gpu.name), (instruments::HARDWARE_TYPE, "gpu")]
}
