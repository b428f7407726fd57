//! The thread that samples the GPUs' hardware counters while windows are open.
//!
//! Setting the counters up takes 0.3 s, so the thread does it in the background: when the profiler is built if there is
//! one GPU, or else when a window is prepared, on the GPUs that the program uses. Starting and stopping take 1–2 ms
//! (figures from an H200). The counters are held until the end of the run; CUPTI stays attached that long.

mod device;

use self::device::SampledDevice;
use super::library::Library;
use crate::{
    budget::Budget,
    gpu::Counters,
    thread,
    trace::{DeviceId, GpuCounters, Timestamp},
};
use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

/// The way to the thread that samples counters.
#[derive(Debug)]
pub(super) struct CounterThread(Sender<Command>);

#[derive(Debug)]
enum Command {
    /// A window is about to be prepared or opened.
    Prepare,
    /// A window opens.
    Start,
    /// No window is open.
    Stop,
    /// A window is complete: its samples are wanted.
    Take(Range<Timestamp>, Sender<Vec<GpuCounters>>),
    /// The counters must be released, since CUPTI is about to be detached for good.
    Release(Sender<()>),
}

impl CounterThread {
    /// How long the end of the run waits for the counters to be released. It takes up to 90 ms on an H200.
    const RELEASING: Duration = Duration::from_secs(2);
    /// How long a window waits for its last samples.
    const TAKING: Duration = Duration::from_secs(2);

    pub(super) fn start(library: &'static Library, settings: Counters, budget: Arc<Budget>) -> io::Result<Self> {
        let (commands, inbox) = mpsc::channel();
        thread::spawn("kernspan-counters", move || Sampling::new(library, settings, budget).run(&inbox))?;
        Ok(Self(commands))
    }

    pub(super) fn prepare(&self) {
        let _ = self.0.send(Command::Prepare);
    }

    pub(super) fn open(&self) {
        let _ = self.0.send(Command::Start);
    }

    pub(super) fn idle(&self) {
        let _ = self.0.send(Command::Stop);
    }

    /// Returns the samples of a window.
    pub(super) fn take(&self, window: Range<Timestamp>) -> Vec<GpuCounters> {
        let (reply, answer) = mpsc::channel();
        let _ = self.0.send(Command::Take(window, reply));
        answer.recv_timeout(Self::TAKING).unwrap_or_else(|_| {
            let problem = "the counters were not set up when the window closed".to_owned();
            vec![GpuCounters { problem: Some(problem), ..GpuCounters::default() }]
        })
    }

    /// Releases the counters. Returns whether that is done.
    pub(super) fn release(&self) -> bool {
        let (reply, answer) = mpsc::channel();
        let _ = self.0.send(Command::Release(reply));
        // If the thread has panicked, CUPTI's profiler was not ended, and CUPTI must not be detached.
        answer.recv_timeout(Self::RELEASING).is_ok()
    }
}

/// The state of the thread.
struct Sampling {
    library: &'static Library,
    settings: Counters,
    budget: Arc<Budget>,
    devices: Vec<SampledDevice>,
    running: bool,
}

impl Sampling {
    /// How often samples are decoded while a window is open, in intervals, and the least and the most of that.
    const EVERY: (u32, Duration, Duration) = (100, Duration::from_millis(10), Duration::from_millis(100));

    /// How long a sample may take from its end until it can be decoded.
    const LATE: Duration = Duration::from_millis(20);

    fn new(library: &'static Library, settings: Counters, budget: Arc<Budget>) -> Self {
        Self { library, settings, budget, devices: Vec::new(), running: false }
    }

    fn run(mut self, inbox: &Receiver<Command>) {
        if self.library.devices.len() == 1 {
            self.prepare();
        }
        loop {
            let command = match self.running {
                true => inbox.recv_timeout(self.every()),
                false => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match command {
                Ok(Command::Prepare) => self.prepare(),
                Ok(Command::Start) => {
                    self.prepare();
                    self.devices.iter_mut().for_each(SampledDevice::start);
                    self.running = true;
                }
                Ok(Command::Stop) => {
                    self.devices.iter_mut().for_each(|device| device.stop(&self.budget));
                    self.running = false;
                }
                Ok(Command::Take(window, reply)) => {
                    let _ = reply.send(self.take(&window));
                }
                Ok(Command::Release(reply)) => {
                    self.devices.iter_mut().for_each(SampledDevice::release);
                    // If CUPTI is detached without that, it never records again (seen with 13.0.1 on an H200): all
                    // records of the next profiler were unreadable. An error changes nothing.
                    let _ = self.library.cupti.profiler_deinitialize();
                    let _ = reply.send(());
                    return;
                }
                Err(RecvTimeoutError::Timeout) => self.decode(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Returns how often samples are decoded.
    fn every(&self) -> Duration {
        let (intervals, least, most) = Self::EVERY;
        let longest = self.devices.iter().map(|device| device.interval).max().unwrap_or(self.settings.interval);
        (intervals * longest).clamp(least, most)
    }

    /// Sets up the counters of the GPUs that the program uses, where that has not been done.
    fn prepare(&mut self) {
        let library = self.library;
        let only = library.devices.len() == 1;
        let has_context = |id: DeviceId| {
            let device = library.driver.device(id.as_u32());
            matches!(device.and_then(|device| library.driver.memory_pool(device)), Ok(Some(_)))
        };
        for device in library.devices.iter() {
            if self.devices.iter().all(|known| known.id != device.id) && (only || has_context(device.id)) {
                self.devices.push(SampledDevice::new(library, device.id, &self.settings));
            }
        }
    }

    fn decode(&mut self) {
        self.devices.iter_mut().for_each(|device| device.decode(&self.budget));
    }

    /// Returns the samples of a window that has closed, which later windows do not need.
    fn take(&mut self, window: &Range<Timestamp>) -> Vec<GpuCounters> {
        self.decode();
        // If the next window is open already, samples go on, and the last one of this window may be under way.
        let until = Instant::now() + 4 * self.settings.interval + Self::LATE;
        while self.running && self.devices.iter().any(|device| !device.reaches(window.end)) && Instant::now() < until {
            std::thread::sleep(self.settings.interval.min(Self::LATE));
            self.decode();
        }
        self.devices.iter_mut().map(|device| device.take(window, &self.budget)).collect()
    }
}
