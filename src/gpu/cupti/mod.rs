//! NVIDIA GPUs, through CUPTI.
//!
//! Three things run beside the program: [`calls`] on the threads that call the driver, [`buffers`] wherever CUPTI hands them
//! over, and the [`reader`], a thread of our own. [`Source`] is who attaches CUPTI and lets it go.

#![allow(unsafe_code, reason = "CUPTI is a C library")]

mod buffers;
mod calls;
pub(super) mod decode;
mod device;
mod library;
pub(super) mod names;
mod raw;
mod reader;

pub use self::raw::replay;
pub(crate) use self::raw::{RawRecords, write as write_raw};

use self::{
    buffers::Sink,
    calls::Watch,
    library::Library,
    reader::{Message, Reader},
};
use super::{Activity, GpuSettings, Pool};
use crate::{
    Error,
    collector::Budget,
    correlate::Recording,
    host::{Host, mute_this_thread},
    trace::{Device, Gpu, GpuProblem, Losses},
};
use cupti_sys::{Cupti, Subscriber, domain, kind, thread_id_type};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Sender},
    },
    thread::JoinHandle,
    time::Duration,
};

/// CUPTI takes one client in a process, so there is one source at a time.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// That this is the one, until it is dropped.
#[derive(Debug)]
struct Taken;

impl Taken {
    fn take() -> Option<Self> {
        (!TAKEN.swap(true, Ordering::AcqRel)).then_some(Self)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
    }
}

/// CUPTI, attached while it is needed.
#[derive(Debug)]
pub(crate) struct Source {
    library: &'static Library,
    settings: GpuSettings,
    /// A callback may be under way whenever the profiler ends, so this stays for ever, and the host with it.
    watch: &'static Watch,
    messages: Sender<Message>,
    state: Mutex<State>,
    /// A fork has a copy of us, but may not call CUPTI.
    process: u32,
}

#[derive(Debug)]
struct State {
    gpu: Gpu,
    /// Whether a window is open or about to be.
    wanted: bool,
    /// Windows that were opened and that the reader is not done with.
    windows: u32,
    /// While attached.
    subscriber: Option<Subscriber>,
    /// Whether activity is recorded, and not only could be.
    recording: bool,
    /// How often it was detached.
    detached: u32,
}

/// The source and its thread.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) source: Arc<Source>,
    pub(crate) thread: JoinHandle<Losses>,
    /// To whom the collector hands windows on.
    pub(crate) collected: CollectedSender,
}

/// Hands collected windows to the reader.
#[derive(Debug)]
pub(crate) struct CollectedSender(Sender<Message>);

impl CollectedSender {
    pub(crate) fn send(&self, recording: Recording) {
        // The other end is gone only if its thread panicked, which whoever joins it will report.
        let _ = self.0.send(Message::Collected(Box::new(recording)));
    }
}

impl Drop for CollectedSender {
    fn drop(&mut self) {
        let _ = self.0.send(Message::Finish);
    }
}

impl Source {
    /// How long somebody who waits for the end waits for the GPU.
    const PATIENCE: Duration = Duration::from_secs(2);
    /// How long a launch may take.
    const SETTLING: Duration = Duration::from_millis(2);

    /// Finds out whether CUPTI can be used, and starts the thread that reads.
    pub(crate) fn start(
        settings: GpuSettings,
        host: &Arc<Host>,
        budget: &Arc<Budget>,
        hand_on: impl FnMut(Recording) + Send + 'static,
    ) -> Result<Result<Started, GpuProblem>, Error> {
        let library = match Library::of_this_process() {
            Ok(library) => library,
            Err(problem) => return Ok(Err(problem.clone())),
        };
        let Some(taken) = Taken::take() else { return Ok(Err(GpuProblem::AnotherKernspan)) };
        let (messages, inbox) = mpsc::channel();
        let sink = Sink::install(messages.clone());
        let source = Arc::new(Self {
            library,
            settings,
            watch: Box::leak(Box::new(Watch {
                host: Arc::clone(host),
                memory: settings.activities.has(Activity::Memory),
                all: settings.activities.has(Activity::ApiCalls),
            })),
            messages: messages.clone(),
            state: Mutex::new(State {
                gpu: Gpu::Available(library.about.clone()),
                wanted: false,
                windows: 0,
                subscriber: None,
                recording: false,
                detached: 0,
            }),
            process: std::process::id(),
        });
        let reader = Reader::new(Arc::clone(&source), sink, inbox, Box::new(hand_on), Arc::clone(budget), taken);
        let thread = std::thread::Builder::new().name("kernspan-gpu".to_owned()).spawn(move || {
            mute_this_thread();
            reader.run()
        });
        let thread = thread.map_err(Error::Thread)?;
        Ok(Ok(Started { source, thread, collected: CollectedSender(messages) }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cupti(&self) -> &'static Cupti {
        &self.library.cupti
    }

    pub(crate) fn gpu(&self) -> Gpu {
        // In a fork, the lock may be somebody's who is not there.
        if self.is_forked() { Gpu::Available(self.library.about.clone()) } else { self.lock().gpu.clone() }
    }

    fn devices(&self) -> Arc<[Device]> {
        Arc::clone(&self.library.devices)
    }

    fn keeps_raw(&self) -> bool {
        self.settings.keep_raw
    }

    fn detach_after(&self) -> Duration {
        self.settings.detach.after
    }

    /// Attaches CUPTI and has it record, so that the next window finds everything ready. Returns whether it began to just now.
    pub(crate) fn prepare(&self) -> bool {
        if self.is_forked() {
            return false;
        }
        let mut state = self.lock();
        state.wanted = true;
        if state.recording || !state.gpu.is_available() {
            return false;
        }
        state.recording = true;
        if let Err(problem) = self.record(&mut state) {
            // What was begun is ended again.
            self.end_recording(&mut state);
            let _ = state.subscriber.take().map(|subscriber| self.cupti().unsubscribe(subscriber));
            state.gpu = Gpu::Unavailable(problem);
        }
        state.recording
    }

    /// Says that a window is about to open.
    pub(crate) fn open(&self) {
        if self.is_forked() {
            return;
        }
        if self.prepare() {
            // Launches that other threads were in while CUPTI was attached are recorded, but were not seen: let them pass.
            std::thread::sleep(Self::SETTLING);
        }
        self.lock().windows += 1;
        let _ = self.messages.send(Message::Opening(self.pools()));
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

    /// Says that no window is open, nor about to be.
    pub(crate) fn rest(&self) {
        if self.is_forked() {
            return;
        }
        self.lock().wanted = false;
        let _ = self.messages.send(Message::Rest);
    }

    fn record(&self, state: &mut State) -> Result<(), GpuProblem> {
        let cupti = self.cupti();
        let failed = |error: cupti_sys::Error| library::problem(&error);
        let subscriber = match state.subscriber {
            Some(subscriber) => subscriber,
            None => *state.subscriber.insert(self.attach().map_err(failed)?),
        };
        for kind in self.kinds() {
            cupti.activity_enable(kind).map_err(failed)?;
        }
        self.call_back(subscriber, true);
        Ok(())
    }

    fn attach(&self) -> Result<Subscriber, cupti_sys::Error> {
        let cupti = self.cupti();
        let watch = std::ptr::from_ref(self.watch).cast_mut().cast();
        // SAFETY: it stays for ever, and the callback does not unwind.
        let subscriber = unsafe { cupti.subscribe(calls::called, watch) }?;
        let set_up = || {
            cupti.set_thread_id_type(thread_id_type::SYSTEM)?;
            // SAFETY: both are functions for ever, do not unwind, and give buffers as they should be.
            unsafe { cupti.activity_register_callbacks(buffers::requested, buffers::completed) }
        };
        set_up().inspect_err(|_| drop(cupti.unsubscribe(subscriber)))?;
        Ok(subscriber)
    }

    fn kinds(&self) -> impl Iterator<Item = u32> {
        let asked = |activity, kinds: &'static [u32]| if self.settings.activities.has(activity) { kinds } else { &[] };
        let kernels = asked(Activity::Kernels, &[kind::CONCURRENT_KERNEL, kind::OVERHEAD]);
        let copies = asked(Activity::Copies, &[kind::MEMCPY, kind::MEMCPY2, kind::MEMSET]);
        let waits = asked(Activity::Sync, &[kind::SYNCHRONIZATION]);
        kernels.iter().chain(copies).chain(waits).copied()
    }

    /// Begins or ends being called back. A release that does not know a function cannot call it either.
    fn call_back(&self, subscriber: Subscriber, enable: bool) {
        let cupti = self.cupti();
        if self.settings.activities.has(Activity::ApiCalls) {
            for domain in [domain::DRIVER_API, domain::RUNTIME_API] {
                let _ = cupti.enable_domain(subscriber, domain, enable);
            }
        }
        for function in calls::functions(self.settings.activities) {
            let _ = cupti.enable_callback(subscriber, domain::DRIVER_API, function, enable);
        }
    }

    /// The reader is done with a window.
    fn finish_window(&self) {
        let mut state = self.lock();
        state.windows = state.windows.saturating_sub(1);
    }

    /// Has CUPTI record nothing more, unless a window is open or about to be.
    fn pause(&self) {
        let mut state = self.lock();
        if !state.is_needed() {
            self.end_recording(&mut state);
        }
    }

    fn end_recording(&self, state: &mut State) {
        if !std::mem::take(&mut state.recording) {
            return;
        }
        for kind in self.kinds() {
            let _ = self.cupti().activity_disable(kind);
        }
        if let Some(subscriber) = state.subscriber {
            self.call_back(subscriber, false);
        }
    }

    /// Has CUPTI give buffers back. Where it is not ours, it is left alone.
    fn flush(&self, flags: u32) {
        if self.lock().subscriber.is_some() {
            // What does not come back is missed.
            let _ = self.cupti().activity_flush_all(flags);
        }
    }

    /// How many records CUPTI dropped since the last call.
    fn dropped_records(&self) -> u64 {
        let attached = self.lock().subscriber.is_some();
        if attached { self.cupti().activity_dropped_records().unwrap_or(0) as u64 } else { 0 }
    }

    /// Lets CUPTI go for a while, if nothing is about to be recorded: attached, it costs even while it records nothing.
    fn detach_if_it_pays(&self) {
        let mut state = self.lock();
        if state.detached < self.settings.detach.most && !state.is_needed() {
            self.detach(&mut state);
        }
    }

    fn detach(&self, state: &mut State) {
        self.end_recording(state);
        let Some(subscriber) = state.subscriber.take() else { return };
        let _ = self.cupti().unsubscribe(subscriber);
        // SAFETY: every other call of CUPTI is made under this lock or on this thread; all buffers have been flushed and read.
        let _ = unsafe { self.cupti().finalize() };
        state.detached += 1;
    }

    /// Lets CUPTI go when all is done. That waits for whatever runs on the GPU, so nobody waits for it long; and if something is
    /// known to hang, CUPTI stays where it is, and only tells us nothing more. Until it is done there can be no other source.
    fn let_go_for_good(self: &Arc<Self>, stuck: bool, taken: Option<Taken>) {
        if stuck {
            let mut state = self.lock();
            self.end_recording(&mut state);
            let _ = state.subscriber.take().map(|subscriber| self.cupti().unsubscribe(subscriber));
            return;
        }
        let (done, is_done) = mpsc::channel();
        let source = Arc::clone(self);
        let thread = std::thread::Builder::new().name("kernspan-detach".to_owned()).spawn(move || {
            mute_this_thread();
            source.detach(&mut source.lock());
            drop(taken);
            let _ = done.send(());
        });
        if thread.is_ok() {
            let _ = is_done.recv_timeout(Self::PATIENCE);
        }
    }
}

impl State {
    fn is_needed(&self) -> bool {
        self.wanted || self.windows > 0
    }
}
