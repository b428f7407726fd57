//! The GPU source for CUPTI: decides when CUPTI is attached, on, off and detached.

use super::{
    calls::CallbackState,
    claim::Claim,
    counters::CounterThread,
    followed::Followed,
    library::{self, Library},
    message::Message,
    switch::Switch,
};
use crate::{
    activity::Activity,
    gpu::{DetachPolicy, GpuMemory, GpuSettings, GpuShares, GpuSource},
    host::Host,
    recording::Pool,
    schedule::WaitLength,
    thread,
    trace::{Device, DeviceId, Gpu, GpuCounters, GpuProblem, Timestamp},
};
use cupti_sys::{Cupti, NvmlDevice};
use std::{
    collections::HashMap,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc::{self, Sender},
    },
    time::{Duration, Instant},
};

/// The GPU source for CUPTI, which decides when CUPTI is attached, on, off and detached.
#[derive(Debug)]
pub(super) struct Source {
    library: &'static Library,
    settings: GpuSettings,
    callbacks: &'static CallbackState,
    /// Samples hardware counters, if requested.
    counters: Option<CounterThread>,
    messages: Sender<Message>,
    /// Whether CUPTI is to be switched off or detached between steps.
    due: AtomicBool,
    /// The number of steps until the next attempt.
    due_in: AtomicU32,
    /// Whether GPUs are recorded. It has its own lock, since the other may be held while waiting for CUPTI.
    gpu: Mutex<Gpu>,
    state: Mutex<State>,
    /// The process id: a fork has a copy of this, but may not call CUPTI.
    process: u32,
    /// NVML's handles of the devices, from when they are first needed.
    managed: OnceLock<Vec<(DeviceId, NvmlDevice)>>,
}

#[derive(Debug)]
struct State {
    /// Whether a window is open or about to open.
    wanted: bool,
    /// The number of windows that were opened and are incomplete.
    windows: u32,
    /// Whether to detach CUPTI at the next step.
    wants_detach: bool,
    /// The number of consecutive failures to switch CUPTI off.
    tries: u32,
    /// Whether only the stepping thread launched anything in the last window.
    alone: bool,
    switch: Switch,
    /// The number of times that CUPTI was detached.
    detached: u32,
}

impl Source {
    /// How long the end of the run waits for the GPU.
    const TIMEOUT: Duration = Duration::from_secs(2);
    /// The number of times that the pause between attempts to switch off doubles: up to 62 steps.
    const TRIES: u32 = 6;
    /// How long a launch may take.
    const SETTLING: Duration = Duration::from_millis(2);

    pub(super) fn new(
        library: &'static Library,
        settings: GpuSettings,
        counters: Option<CounterThread>,
        host: &Arc<Host>,
        messages: Sender<Message>,
    ) -> Self {
        let cupti = (library.driver.device_count() > 1).then_some(&library.cupti);
        let followed = settings.ledger.clone().map(|ledger| Followed { ledger, cupti });
        let callbacks: &'static CallbackState =
            Box::leak(Box::new(CallbackState::new(Arc::clone(host), settings.activities, followed)));
        let switch = Switch::new(&library.cupti, callbacks, settings.activities);
        Self {
            library,
            settings,
            callbacks,
            counters,
            messages,
            due: AtomicBool::new(false),
            due_in: AtomicU32::new(0),
            gpu: Mutex::new(Gpu::Available(library.info.clone())),
            state: Mutex::new(State {
                wanted: false,
                windows: 0,
                wants_detach: false,
                tries: 0,
                alone: false,
                switch,
                detached: 0,
            }),
            process: std::process::id(),
            managed: OnceLock::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state, on a thread of the program. Returns `None` if a thread of ours that has it locked does not come
    /// back from CUPTI: from then on, nothing of GPUs is recorded.
    fn lock_or_give_up(&self) -> Option<MutexGuard<'_, State>> {
        /// The time between two attempts. What other threads do under the lock takes about as long.
        const PAUSE: Duration = Duration::from_micros(50);
        let start = Instant::now();
        while *self.lock_gpu() != Gpu::Unavailable(GpuProblem::Stuck) {
            match self.state.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(state)) => return Some(state.into_inner()),
                Err(TryLockError::WouldBlock) if start.elapsed() < thread::STUCK_AFTER => std::thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => *self.lock_gpu() = Gpu::Unavailable(GpuProblem::Stuck),
            }
        }
        None
    }

    fn lock_gpu(&self) -> MutexGuard<'_, Gpu> {
        self.gpu.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn cupti(&self) -> &'static Cupti {
        &self.library.cupti
    }

    pub(super) fn devices(&self) -> Arc<[Device]> {
        Arc::clone(&self.library.devices)
    }

    pub(super) fn keeps_raw(&self) -> bool {
        self.settings.keep_raw
    }

    pub(super) fn detach_policy(&self) -> DetachPolicy {
        self.settings.detach
    }

    /// Attaches CUPTI for the whole run, if allocations are followed.
    pub(super) fn follow(&self) {
        // The run begins, so other threads rarely launch already.
        if self.settings.ledger.is_some()
            && let Some(mut state) = self.lock_or_give_up()
            && let Err(error) = state.switch.attach(true)
        {
            *self.lock_gpu() = Gpu::Unavailable(library::problem(&error));
        }
    }

    /// Attaches CUPTI and switches it on, unless already done. Returns whether it was attached just now.
    fn attach(&self) -> bool {
        if self.is_forked() {
            return false;
        }
        let Some(mut state) = self.lock_or_give_up() else { return false };
        (state.wanted, state.wants_detach) = (true, false);
        if state.switch.is_on() || !self.lock_gpu().is_available() {
            return false;
        }
        let (alone, was_detached) = (state.alone, state.switch.is_detached());
        let turned_on = state.switch.attach(alone).and_then(|()| state.switch.turn_on());
        if let Err(error) = turned_on {
            *self.lock_gpu() = Gpu::Unavailable(library::problem(&error));
        }
        was_detached && state.switch.is_on()
    }

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    fn pools(&self) -> HashMap<u32, Pool> {
        let driver = self.library.driver;
        let memory = self.settings.activities.has(Activity::Memory);
        let devices = (0..driver.device_count()).filter(|_| memory);
        let pool = |ordinal| {
            let (reserved, used) = driver.memory_pool(driver.device(ordinal).ok()?).ok()??;
            Some((ordinal, Pool { reserved, used }))
        };
        devices.filter_map(pool).collect()
    }

    /// Returns the shares of processes in a device's memory, if NVML knows them.
    fn shares(&self, device: DeviceId) -> Option<GpuShares> {
        let nvml = self.library.nvml?;
        let known = |device: &Device| Some((device.id, nvml.device(&device.uuid).ok()?));
        let devices = self.managed.get_or_init(|| self.library.devices.iter().filter_map(known).collect());
        let &(_, handle) = devices.iter().find(|(id, _)| *id == device)?;
        let process = nvml.process_memory(handle, self.process).ok().flatten();
        Some(GpuShares { all: nvml.memory_in_use(handle).ok()?, process })
    }

    /// Switches CUPTI off and, if it is time, detaches it, unless a window is open or about to open.
    fn catch_up(&self) {
        let Some(mut state) = self.lock_or_give_up() else { return };
        self.due.store(false, Ordering::Relaxed);
        if state.wanted {
            return;
        }
        let is_time = state.wants_detach && state.windows == 0 && !state.switch.is_detached();
        let detaches = is_time && state.detached < self.settings.detach.most;
        if !state.switch.turn_off() || detaches && !state.switch.detach() {
            // Retried later, since a thread that waits inside a call is likely to do so at the next step, too.
            state.tries = (state.tries + 1).min(Self::TRIES);
            self.due_in.store((1 << state.tries) - 2, Ordering::Relaxed);
            return self.due.store(true, Ordering::Relaxed);
        }
        state.tries = 0;
        self.due_in.store(0, Ordering::Relaxed);
        self.callbacks.graphs.store(false, Ordering::Relaxed);
        state.wants_detach = false;
        state.detached += u32::from(detaches);
    }

    /// Sets whether only the stepping thread launched anything in the last window.
    pub(super) fn set_alone(&self, alone: bool) {
        self.lock().alone = alone;
    }

    /// Marks a window as complete.
    pub(super) fn finish_window(&self) {
        let mut state = self.lock();
        state.windows = state.windows.saturating_sub(1);
    }

    /// Ends recording for closed windows: CUPTI is switched off at the next step, or at once if none is expected.
    pub(super) fn finish_recording(&self, expects_step: bool) {
        let state = self.lock();
        if !state.wanted && state.switch.is_on() {
            drop(state);
            self.due.store(true, Ordering::Relaxed);
            if !expects_step {
                self.catch_up();
            }
        }
    }

    /// Detaches CUPTI at the next step, or at once if none is expected. Returns whether that is done.
    pub(super) fn detach(&self, expects_step: bool) -> bool {
        let mut state = self.lock();
        let stays = self.settings.ledger.is_some() || self.counters.is_some();
        if state.wanted || state.windows > 0 || stays || state.switch.is_detached() {
            return true;
        }
        state.wants_detach = true;
        drop(state);
        self.due.store(true, Ordering::Relaxed);
        if !expects_step {
            self.catch_up();
        }
        !self.due.load(Ordering::Relaxed)
    }

    /// Returns the samples of hardware counters in a window.
    pub(super) fn take_counters(&self, window: Range<Timestamp>) -> Vec<GpuCounters> {
        self.counters.as_ref().map(|counters| counters.take(window)).unwrap_or_default()
    }

    pub(super) fn flush(&self, flags: u32) {
        self.lock().switch.flush(flags);
    }

    pub(super) fn dropped_records(&self) -> u64 {
        self.lock().switch.dropped_records()
    }

    /// Detaches CUPTI at the end of the run. That waits for all work on the GPU, so it runs on its own thread, which is
    /// given only a short time. If a kernel is known to hang, CUPTI stays attached, without callbacks. Until this is
    /// done there can be no other source.
    pub(super) fn detach_for_good(self: &Arc<Self>, stuck: bool, claim: Option<Claim>) {
        let (done, is_done) = mpsc::channel();
        let source = Arc::clone(self);
        let thread = thread::spawn("kernspan-detach", move || {
            // CUPTI cannot be detached from counters that are in use.
            let released = source.counters.as_ref().is_none_or(CounterThread::release);
            let end = if stuck || !released { Switch::unsubscribe } else { Switch::detach };
            // A thread may stay inside a call for as long as a kernel takes. Meanwhile, others are kept out of theirs.
            let mut pause = Self::SETTLING;
            while !end(&mut source.lock().switch) {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Self::TIMEOUT);
            }
            drop(claim);
            let _ = done.send(());
        });
        if thread.is_ok() {
            let _ = is_done.recv_timeout(Self::TIMEOUT);
        }
    }
}

impl GpuSource for Source {
    fn gpu(&self) -> Gpu {
        // In a fork, the lock may be held by a thread that does not exist there.
        if self.is_forked() { Gpu::Available(self.library.info.clone()) } else { self.lock_gpu().clone() }
    }

    fn prepare(&self) {
        if !self.is_forked() {
            self.counters.iter().for_each(CounterThread::prepare);
        }
        self.attach();
    }

    fn open(&self) {
        if self.is_forked() {
            return;
        }
        if self.attach() {
            // Launches that other threads were in while CUPTI was attached are recorded, but had no callback. Wait
            // until they are over.
            std::thread::sleep(Self::SETTLING);
        }
        self.counters.iter().for_each(CounterThread::open);
        if let Some(mut state) = self.lock_or_give_up() {
            state.windows += 1;
        }
        let _ = self.messages.send(Message::Opening(self.pools()));
    }

    fn opened(&self) {
        if !self.is_forked() {
            let _ = self.messages.send(Message::Opened { last_before: self.callbacks.last_before() });
        }
    }

    fn idle(&self, wait: WaitLength) {
        if self.is_forked() {
            return;
        }
        self.counters.iter().for_each(CounterThread::idle);
        if let Some(mut state) = self.lock_or_give_up() {
            state.wanted = false;
        }
        // If a graph is launched while CUPTI is off, the times of its last launch become wrong, unless they have been
        // read. So CUPTI is switched off only after they have been read, and not if the next window is prepared in this
        // step.
        if !self.callbacks.graphs.load(Ordering::Relaxed) && wait != WaitLength::Steps(0) {
            self.catch_up();
        }
        let _ = self.messages.send(Message::Idle(wait));
    }

    fn tick(&self) {
        if self.due.load(Ordering::Relaxed) && !self.is_forked() {
            match self.due_in.load(Ordering::Relaxed).checked_sub(1) {
                Some(steps) => self.due_in.store(steps, Ordering::Relaxed),
                None => self.catch_up(),
            }
        }
    }

    fn memory(&self, with_shares: bool) -> Vec<GpuMemory> {
        let driver = self.library.driver;
        let memory = |device: &Device| {
            let id = device.id;
            let pool = driver.device(id.as_u32()).and_then(|device| driver.memory_pool(device)).ok().flatten();
            let pool = pool.map(|(reserved, used)| Pool { reserved, used });
            let shares = if with_shares { self.shares(id) } else { None };
            GpuMemory { device: id, pool, shares, size: device.memory }
        };
        self.library.devices.iter().map(memory).collect()
    }

    fn pool_peak(&self, device: DeviceId) -> Option<u64> {
        let driver = self.library.driver;
        driver.memory_pool_peak(driver.device(device.as_u32()).ok()?).ok()?
    }

    fn reset_pool_peaks(&self) {
        let driver = self.library.driver;
        for device in (0..driver.device_count()).filter_map(|ordinal| driver.device(ordinal).ok()) {
            // An error is ignored: a device without pools has no peak either.
            let _ = driver.reset_memory_pool_peak(device);
        }
    }
}
