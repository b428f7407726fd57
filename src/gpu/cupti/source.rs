use super::{
    calls::Watch,
    claim::Claim,
    library::{self, Library},
    message::Message,
    switch::Switch,
};
use crate::{
    activity::Activity,
    gpu::{DetachPolicy, GpuSettings, GpuSource},
    host::Host,
    recording::Pool,
    schedule::WaitLength,
    thread,
    trace::{Device, Gpu},
};
use cupti_sys::Cupti;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc::{self, Sender},
    },
    time::Duration,
};

/// CUPTI as the session sees it: decides when it is attached, on, off and detached.
#[derive(Debug)]
pub(super) struct Source {
    library: &'static Library,
    settings: GpuSettings,
    watch: &'static Watch,
    messages: Sender<Message>,
    /// Whether CUPTI is to be switched off or detached between steps, and in how many steps from now.
    due: AtomicBool,
    due_in: AtomicU32,
    /// Has a lock of its own, as CUPTI may be waited for under the other.
    gpu: Mutex<Gpu>,
    state: Mutex<State>,
    /// The id of the process: a fork has a copy of this, but may not call CUPTI.
    process: u32,
}

#[derive(Debug)]
struct State {
    /// Whether a window is open or about to be.
    wanted: bool,
    /// Windows that were opened and are not complete.
    windows: u32,
    /// Whether to detach CUPTI at the next step.
    wants_detach: bool,
    /// How often it could not be switched off.
    tries: u32,
    /// Whether only the thread that steps launched anything in the last window.
    alone: bool,
    switch: Switch,
    /// How often CUPTI was detached.
    detached: u32,
}

impl Source {
    /// How long the end of the run waits for the GPU.
    const PATIENCE: Duration = Duration::from_secs(2);
    /// Pauses between tries to switch off double up to this many times: to 62 steps.
    const TRIES: u32 = 6;
    /// How long a launch may take.
    const SETTLING: Duration = Duration::from_millis(2);

    pub(super) fn new(
        library: &'static Library,
        settings: GpuSettings,
        host: &Arc<Host>,
        messages: Sender<Message>,
    ) -> Self {
        let watch: &'static Watch = Box::leak(Box::new(Watch::new(Arc::clone(host), settings.activities)));
        Self {
            library,
            settings,
            watch,
            messages,
            due: AtomicBool::new(false),
            due_in: AtomicU32::new(0),
            gpu: Mutex::new(Gpu::Available(library.about.clone())),
            state: Mutex::new(State {
                wanted: false,
                windows: 0,
                wants_detach: false,
                tries: 0,
                alone: false,
                switch: Switch::new(&library.cupti, watch, settings.activities),
                detached: 0,
            }),
            process: std::process::id(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Attaches CUPTI and switches it on, unless that has been done. Returns whether it was attached just now.
    fn attach(&self) -> bool {
        if self.is_forked() {
            return false;
        }
        let mut state = self.lock();
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

    /// Switches CUPTI off and, if it is time, detaches it; unless a window is open or about to be.
    fn catch_up(&self) {
        let mut state = self.lock();
        self.due.store(false, Ordering::Relaxed);
        if state.wanted {
            return;
        }
        let is_time = state.wants_detach && state.windows == 0 && !state.switch.is_detached();
        let detaches = is_time && state.detached < self.settings.detach.most;
        if !state.switch.turn_off() || detaches && !state.switch.detach() {
            // Later: a thread that waits inside for the GPU is likely to do so at the next step, too.
            state.tries = (state.tries + 1).min(Self::TRIES);
            self.due_in.store((1 << state.tries) - 2, Ordering::Relaxed);
            return self.due.store(true, Ordering::Relaxed);
        }
        state.tries = 0;
        self.due_in.store(0, Ordering::Relaxed);
        self.watch.graphs.store(false, Ordering::Relaxed);
        state.wants_detach = false;
        state.detached += u32::from(detaches);
    }

    /// Says whether only the thread that steps launched anything in the last window.
    pub(super) fn set_alone(&self, alone: bool) {
        self.lock().alone = alone;
    }

    /// Says that a window is complete.
    pub(super) fn finish_window(&self) {
        let mut state = self.lock();
        state.windows = state.windows.saturating_sub(1);
    }

    /// Says that nothing more is to be recorded for windows that have closed: CUPTI is switched off at the next step,
    /// or at once if none is expected.
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
        if state.wanted || state.windows > 0 || state.switch.is_detached() {
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

    pub(super) fn flush(&self, flags: u32) {
        self.lock().switch.flush(flags);
    }

    pub(super) fn dropped_records(&self) -> u64 {
        self.lock().switch.dropped_records()
    }

    /// Detaches CUPTI at the end of the run. That waits for all work on the GPU, so it has a thread of its own, which
    /// is not waited for long. If a kernel is known to hang, CUPTI stays attached, without callbacks. Until this is
    /// done there can be no other source.
    pub(super) fn detach_for_good(self: &Arc<Self>, stuck: bool, claim: Option<Claim>) {
        let (done, is_done) = mpsc::channel();
        let source = Arc::clone(self);
        let thread = thread::spawn("kernspan-detach", move || {
            let end = if stuck { Switch::unsubscribe } else { Switch::detach };
            // A thread may stay inside a call for as long as a kernel takes. Others are kept out of theirs while this
            // is tried.
            let mut pause = Self::SETTLING;
            while !end(&mut source.lock().switch) {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Self::PATIENCE);
            }
            drop(claim);
            let _ = done.send(());
        });
        if thread.is_ok() {
            let _ = is_done.recv_timeout(Self::PATIENCE);
        }
    }
}

impl GpuSource for Source {
    fn gpu(&self) -> Gpu {
        // In a fork, the lock may be held by a thread that does not exist there.
        if self.is_forked() { Gpu::Available(self.library.about.clone()) } else { self.lock_gpu().clone() }
    }

    fn prepare(&self) {
        self.attach();
    }

    fn open(&self) {
        if self.is_forked() {
            return;
        }
        if self.attach() {
            // Launches that other threads were in while CUPTI was attached are recorded, but were not seen: let them
            // pass.
            std::thread::sleep(Self::SETTLING);
        }
        self.lock().windows += 1;
        let _ = self.messages.send(Message::Opening(self.pools()));
    }

    fn opened(&self) {
        if !self.is_forked() {
            let _ = self.messages.send(Message::Opened { last_before: self.watch.last_before() });
        }
    }

    fn rest(&self, wait: WaitLength) {
        if self.is_forked() {
            return;
        }
        self.lock().wanted = false;
        // A graph that is launched while CUPTI records nothing spoils the times of its last launch, if those have not
        // been read. So CUPTI is then switched off when they have been. Nor is it worth it if the next window is about
        // to be made ready.
        if !self.watch.graphs.load(Ordering::Relaxed) && wait != WaitLength::Steps(0) {
            self.catch_up();
        }
        let _ = self.messages.send(Message::Rest(wait));
    }

    fn tick(&self) {
        if self.due.load(Ordering::Relaxed) && !self.is_forked() {
            match self.due_in.load(Ordering::Relaxed).checked_sub(1) {
                Some(steps) => self.due_in.store(steps, Ordering::Relaxed),
                None => self.catch_up(),
            }
        }
    }
}
