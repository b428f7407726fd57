//! The thread that samples the GPUs' hardware counters while windows are open.
//!
//! Setting the counters up takes 0.3 s: when the profiler is built, which waits for it, if there is one GPU, or else
//! when a window is prepared, in the background, on the GPUs that the program uses. Starting and stopping take 1–2 ms
//! (figures from an H200). The counters are held until the end of the run; CUPTI stays attached that long.

mod device;

use self::device::SampledDevice;
use super::library::Library;
use crate::{
    budget::Budget,
    failure::panic_message,
    gpu::Counters,
    thread,
    trace::{DeviceId, GpuCounters, Timestamp},
};
use std::{
    convert::Infallible,
    io,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
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
    /// How long the detaching thread waits for counters to be released, while the program ends. It takes up to 90 ms on
    /// an H200, once the thread has done what it is doing.
    const RELEASING: Duration = Duration::from_secs(30);
    /// How long building the profiler waits for counters, if somebody else keeps CUPTI busy.
    const SETTING_UP: Duration = Duration::from_secs(2);
    /// How long a window waits for its last samples.
    const TAKING: Duration = Duration::from_secs(2);

    /// Starts the thread, and waits until it has set the counters up if there is one GPU. No other thread may call
    /// CUPTI meanwhile.
    pub(super) fn start(library: &'static Library, settings: Counters, budget: Arc<Budget>) -> io::Result<Self> {
        let (commands, inbox) = mpsc::channel();
        let (setting_up, is_set_up) = mpsc::channel();
        thread::spawn("kernspan-counters", move || Sampling::new(library, settings, budget).run(&inbox, setting_up))?;
        // The thread that makes a context next would have to wait in any case, as CUPTI holds locks of the driver
        // meanwhile, and this way the first window has samples.
        let _ = is_set_up.recv_timeout(Self::SETTING_UP);
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
        answer.recv_timeout(Self::TAKING).unwrap_or_else(|error| {
            let problem = match error {
                RecvTimeoutError::Timeout => "the counters were not set up when the window closed",
                RecvTimeoutError::Disconnected => Sampling::PANICKED,
            };
            no_counters(problem)
        })
    }

    /// Releases the counters. Returns whether that is done.
    pub(super) fn release(&self) -> bool {
        let (reply, answer) = mpsc::channel();
        let _ = self.0.send(Command::Release(reply));
        // If CUPTI's profiler was not ended, CUPTI must not be detached.
        answer.recv_timeout(Self::RELEASING).is_ok()
    }
}

/// Returns that no GPU has samples, and why.
fn no_counters(problem: &str) -> Vec<GpuCounters> {
    vec![GpuCounters { problem: Some(problem.to_owned()), ..GpuCounters::default() }]
}

/// The state of the thread.
struct Sampling {
    library: &'static Library,
    settings: Counters,
    budget: Arc<Budget>,
    devices: Vec<SampledDevice>,
    /// When to decode samples again, while a window is open.
    decode_at: Option<Instant>,
}

impl Sampling {
    const PANICKED: &str = "the thread that samples counters panicked";

    /// How long a sample may take from its end until it can be decoded, and the longest wait for one. The window waits
    /// for [`CounterThread::TAKING`].
    const LATE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
    /// The time between two attempts to decode a sample that a window waits for, each of which copies CUPTI's image.
    const RETRY: Duration = Duration::from_millis(5);

    fn new(library: &'static Library, settings: Counters, budget: Arc<Budget>) -> Self {
        Self { library, settings, budget, devices: Vec::new(), decode_at: None }
    }

    /// Runs until the counters are released. `setting_up` is dropped when they are set up.
    fn run(mut self, inbox: &Receiver<Command>, setting_up: Sender<Infallible>) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.serve(inbox, setting_up))) else { return };
        // A bug of ours must cost nothing but the counters, and CUPTI must be fit to be detached.
        let problem = format!("{}: {}", Self::PANICKED, panic_message(&*panic));
        self.devices.iter_mut().for_each(|device| device.release(&self.budget));
        for command in inbox {
            match command {
                Command::Take(_, reply) => _ = reply.send(no_counters(&problem)),
                Command::Release(reply) => return self.release(&reply),
                _ => {}
            }
        }
    }

    fn serve(&mut self, inbox: &Receiver<Command>, setting_up: Sender<Infallible>) {
        if self.library.devices.len() == 1 {
            self.prepare();
        }
        drop(setting_up);
        loop {
            let command = match self.decode_at {
                Some(at) => inbox.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match command {
                Ok(Command::Prepare) => self.prepare(),
                Ok(Command::Start) => {
                    self.prepare();
                    self.devices.iter_mut().for_each(SampledDevice::start);
                    self.decode_at = self.decode_at.or(Some(Instant::now() + self.every()));
                }
                Ok(Command::Stop) => {
                    self.devices.iter_mut().for_each(|device| device.stop(&self.budget));
                    self.decode_at = None;
                }
                Ok(Command::Take(window, reply)) => _ = reply.send(self.take(&window)),
                Ok(Command::Release(reply)) => return self.release(&reply),
                Err(RecvTimeoutError::Timeout) => {
                    // Counted from the beginning of decoding, which takes a while with several GPUs.
                    self.decode_at = Some(Instant::now() + self.every());
                    self.decode();
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn release(&mut self, reply: &Sender<()>) {
        self.devices.iter_mut().for_each(|device| device.release(&self.budget));
        // If CUPTI is detached without that, it never records again (seen with 13.0.1 on an H200): all records of the
        // next profiler were unreadable. An error changes nothing.
        let _ = self.library.cupti.profiler_deinitialize();
        let _ = reply.send(());
    }

    /// Returns how often samples are decoded: as often as the GPU with the shortest interval needs.
    fn every(&self) -> Duration {
        self.devices.iter().map(SampledDevice::decoded_every).min().unwrap_or(Counters::MAX_INTERVAL)
    }

    /// Sets up the counters of the GPUs that the program uses, where that has not been done.
    fn prepare(&mut self) {
        let library = self.library;
        let only = library.devices.len() == 1;
        // A GPU that cannot tell may have one.
        let may_have_context = |id: DeviceId| {
            let device = library.driver.device(id.as_u32());
            !matches!(device.and_then(|device| library.driver.memory_pool(device)), Ok(None))
        };
        for device in library.devices.iter() {
            match self.devices.iter_mut().find(|known| known.id == device.id) {
                Some(known) => known.prepare(),
                None if only || may_have_context(device.id) => {
                    self.devices.push(SampledDevice::new(library, device.id, &self.settings));
                }
                None => {}
            }
        }
    }

    fn decode(&mut self) {
        self.devices.iter_mut().for_each(|device| device.decode(&self.budget));
    }

    /// Returns the samples of a window that has closed, which later windows do not need.
    fn take(&mut self, window: &Range<Timestamp>) -> Vec<GpuCounters> {
        if self.devices.is_empty() {
            return no_counters("no GPU had a primary context when the window opened, so no counters were sampled");
        }
        self.decode();
        // If the next window is open already, samples go on, and the last one of this window may be under way.
        let (late, longest) = Self::LATE;
        let interval = self.devices.iter().map(|device| device.interval).max().unwrap_or_default();
        let until = Instant::now() + (2 * interval + late).min(longest);
        while self.devices.iter().any(|device| !device.reaches(window.end)) && Instant::now() < until {
            std::thread::sleep(Self::RETRY);
            self.decode();
        }
        self.devices.iter_mut().map(|device| device.take(window, &self.budget)).collect()
    }
}
