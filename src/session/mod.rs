//! The session: counts steps, follows the schedule, and opens and closes windows.

mod demands;
mod flight;
mod open_window;
mod panics;
mod recent_steps;
mod state;
mod step_end;

pub(crate) use self::panics::write_on_panic;

use self::{
    open_window::WindowKind,
    state::{State, levels},
};
use crate::{
    budget::Budget,
    collector::Command,
    cpu_time::{self, UsageMeter},
    flight::FlightRecorder,
    gpu::GpuSource,
    heap::{Counting, Uncounted},
    hint::{Facts, Hint},
    host::Host,
    recording::Kept,
    request::{RecordRequest, Requested, Ticket},
    sampling::Sampler,
    schedule::{Phase, Schedule},
    steps::StepSender,
    trace::Gpu,
};
use std::{
    cell::Cell,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
        mpsc::Sender,
    },
    time::Duration,
};
use tracing::level_filters::LevelFilter;

/// The state of a run, shared by the profiler and, where a span's close is the step, the layer.
#[derive(Debug)]
pub(crate) struct Session {
    host: Arc<Host>,
    /// The state to report where GPUs are not recorded.
    without_gpu: Gpu,
    /// The name of the span whose close ends a step.
    step_on: Option<String>,
    /// Whether no window is needed, or others ask for windows.
    on_demand: bool,
    state: Mutex<State>,
}

/// The parts that a session is made of.
pub(crate) struct SessionParts {
    pub(crate) host: Arc<Host>,
    pub(crate) gpu: Option<Arc<dyn GpuSource>>,
    /// The state to report where GPUs are not recorded.
    pub(crate) without_gpu: Gpu,
    pub(crate) schedule: Schedule,
    /// The name of the span that ends a step when it closes.
    pub(crate) step_on: Option<String>,
    /// The way to the collector.
    pub(crate) commands: Sender<Command>,
    /// The way to exporters that take every step.
    pub(crate) summaries: Option<StepSender>,
    pub(crate) budget: Arc<Budget>,
    /// The number of windows that have been exported.
    pub(crate) exported: Arc<AtomicU32>,
    /// The count of the heap, if it is recorded.
    pub(crate) heap: Option<Counting>,
    /// The thread that samples stacks, if they are requested.
    pub(crate) sampler: Option<Sampler>,
    /// The reader of what the process uses in each step, if that is wanted.
    pub(crate) usage: Option<UsageMeter>,
    pub(crate) flight: Option<FlightRecorder>,
    /// Whether no window is needed, as all requests are counted, or others ask for windows.
    pub(crate) on_demand: bool,
}

/// The state of a run at one moment: see [`Control::status`](crate::control::Control::status).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The number of the current step, counted from 0.
    pub step: u64,
    /// Its phase.
    pub phase: Phase,
    /// Whether the run is divided into steps: by the schedule, or since a step has ended.
    pub has_steps: bool,
    /// Whether a window is open.
    pub recording: bool,
    /// The number of windows that have closed.
    pub windows: u32,
    /// The number of those that are not exported yet.
    pub pending: u32,
    /// The number of requests whose windows have not begun.
    pub requests: usize,
    /// The time of a typical step while nothing is recorded, if there were enough.
    pub step_time: Option<Duration>,
    /// The schedule, in words.
    pub schedule: String,
    /// Whether the run has ended.
    pub ended: bool,
}

impl Session {
    /// Starts a session at step 0.
    pub(crate) fn start(parts: SessionParts) -> Self {
        let (host, without_gpu, step_on) = (Arc::clone(&parts.host), parts.without_gpu.clone(), parts.step_on.clone());
        let on_demand = parts.on_demand;
        let state = State::start(parts);
        Self { host, without_gpu, step_on, on_demand, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a step and begins the next.
    pub(crate) fn step(&self) {
        self.end_step(false);
    }

    /// Ends a step and begins the next, as the span of [`step_on`](crate::ProfilerBuilder::step_on) has closed.
    pub(crate) fn step_by_close(&self) {
        self.end_step(true);
    }

    fn end_step(&self, by_close: bool) {
        if let Some(_stepping) = Stepping::begin() {
            let _uncounted = Uncounted::begin();
            let mut state = self.lock();
            let before = state.step;
            state.step(&self.host);
            state.closed += if by_close { state.step - before } else { 0 };
        }
    }

    /// The number of the current step, and its phase.
    pub(crate) fn now(&self) -> (u64, Phase) {
        let state = self.lock();
        (state.step, state.phase)
    }

    /// Whether GPUs are recorded.
    pub(crate) fn gpu(&self) -> Gpu {
        self.lock().gpu.as_ref().map_or_else(|| self.without_gpu.clone(), |gpu| gpu.gpu())
    }

    /// Returns the durations of steps that were not recorded, or of a sample of them.
    pub(crate) fn unrecorded_steps(&self) -> Vec<Duration> {
        let clock = self.host.clock();
        self.lock().unrecorded.durations().iter().map(|&ticks| clock.duration(ticks)).collect()
    }

    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Whether this process is a fork of the one that records, without its background threads. The session must not be
    /// dropped here: locks of its queues may be held by threads that do not exist.
    pub(crate) fn is_forked(&self) -> bool {
        self.lock().is_forked()
    }

    /// Whether a window is open, by the schedule or by hand.
    pub(crate) fn is_recording(&self) -> bool {
        self.lock().is_recording()
    }

    /// Opens a window by hand, for a request if there is a ticket. Returns the reason if it cannot.
    pub(crate) fn open(&self, ticket: Option<Ticket>) -> Result<(), &'static str> {
        let Some(_stepping) = Stepping::begin() else { return Err("a window is being opened or closed") };
        let _uncounted = Uncounted::begin();
        let mut state = self.lock();
        if state.ended || state.is_forked() {
            return Err("the run has ended");
        }
        if state.is_recording() {
            return Err("a window is open already");
        }
        if !state.charge_window() {
            return Err("there is no memory for another window until others are exported");
        }
        let _edge = self.host.edge();
        self.host.settle();
        state.overdue = false;
        let kind = WindowKind::Manual;
        let edge = state.edge(&self.host, Some(kind));
        // The flight recorder's.
        state.close(edge, Some(kind), None, false);
        state.open_with(edge, kind, ticket);
        self.host.look_up_contexts();
        self.host.notify_opened();
        Ok(())
    }

    /// Takes a request for a window, which begins with a later step.
    pub(crate) fn request(&self, request: RecordRequest) -> Requested {
        let mut state = self.lock();
        if state.ended {
            return Requested::refused("the run has ended");
        }
        let step = state.step;
        state.demands.add(request, step)
    }

    /// Follows another schedule from the next step on.
    pub(crate) fn set_schedule(&self, schedule: Schedule) {
        self.lock().set_schedule(schedule);
    }

    /// Returns the state of the run.
    pub(crate) fn status(&self) -> Status {
        let state = self.lock();
        let open = u32::from(state.window.is_some());
        let exported = state.exported.load(Ordering::Acquire);
        Status {
            step: state.step,
            phase: state.phase,
            has_steps: state.has_steps(),
            recording: state.is_recording(),
            windows: state.recorded,
            pending: (state.windows - open).saturating_sub(exported),
            requests: state.demands.waiting(),
            step_time: state.unrecorded.typical().map(|ticks| self.host.clock().duration(ticks)),
            schedule: state.schedule.to_string(),
            ended: state.ended,
        }
    }

    /// Closes the window. Returns false if none is open but the flight recorder's.
    pub(crate) fn close(&self) -> bool {
        let Some(_stepping) = Stepping::begin() else { return false };
        let _uncounted = Uncounted::begin();
        let mut state = self.lock();
        !state.is_forked() && state.is_recording() && self.finish_window(&mut state, Kept::InMemory, false)
    }

    /// Writes what the flight recorder has kept; it resumes with the next step. Fails if there is none, if another
    /// window is open, or if no step has begun since it last wrote.
    pub(crate) fn write_recent(&self, ticket: Ticket) {
        let Some(_stepping) = Stepping::begin() else { return ticket.fail("a window is being opened or closed") };
        let _uncounted = Uncounted::begin();
        let mut state = self.lock();
        if state.flight.is_none() {
            return ticket.fail("there is no flight recorder: add `flight_recorder` to the profiler's builder");
        }
        match &mut state.window {
            Some(window) if window.kind.is_flight() => window.ticket = Some(ticket),
            Some(_) => return ticket.fail(Ticket::OTHER_WINDOW),
            None => return ticket.fail("the flight recorder is not running: it resumes with the next step"),
        }
        if !state.is_forked() {
            self.finish_window(&mut state, Kept::Written, false);
        }
    }

    fn finish_window(&self, state: &mut State, kept: Kept, at_end: bool) -> bool {
        let open = state.window.is_some();
        let _edge = self.host.edge();
        if open {
            self.host.settle();
        }
        let edge = state.edge(&self.host, None);
        state.close(edge, None, Some(kept), at_end);
        if open {
            self.host.notify_closed();
        }
        open
    }

    /// Closes the window and has the collector finish. `kept` is what becomes of the flight recorder's. Returns the
    /// message of the schedule's panic, if it panicked.
    pub(crate) fn end(&self, kept: Kept) -> Option<String> {
        let _stepping = Stepping::begin();
        let _uncounted = Uncounted::begin();
        let mut state = self.lock();
        state.partial = state.partial_window();
        self.finish_window(&mut state, kept, true);
        let (step, phase) = (state.step, state.phase);
        state.send_step(&self.host, step, phase, None, false, None);
        state.ended = true;
        state.demands.end();
        state.heap = None;
        state.sampler = None;
        // The collector is gone only if it panicked, which whoever joins it will report.
        let lost_steps = state.lost_steps;
        let _ = state.commands.send(Command::Finish { lost_steps });
        state.schedule_panic.take()
    }

    /// Turns the layer off for good. It must be called after the collector is done: until then, a thread may still have
    /// to write the spans that it had open in the last window.
    pub(crate) fn turn_off(&self) {
        self.host.turn_off();
    }

    /// Returns the reasons why less was recorded than the program may expect. `spans` is the number of recorded spans,
    /// if spans were to be recorded. It must be called before the layer is turned off.
    pub(crate) fn hints(&self, spans: Option<u64>) -> Vec<Hint> {
        let state = self.lock();
        let facts = Facts {
            spans,
            windows: state.windows,
            installed: self.host.is_installed(),
            manual: state.schedule.is_manual(),
            on_demand: self.on_demand || state.demands.were_any(),
            first_step: state.schedule.first_recorded(),
            step_on: self.step_on.clone(),
            closed: state.closed,
            called: state.step - state.closed,
            partial: state.partial,
            all_levels_off: self.host.is_in_use() && levels() == LevelFilter::OFF,
            disabled: None,
        };
        let no_cpu_time = state.usage.as_ref().and_then(|_| cpu_time::problem());
        // Layers of others are asked which spans are disabled, and they may do anything.
        drop(state);
        let hints = Facts { disabled: self.host.disabled_spans(), ..facts }.hints().into_iter();
        let hints = hints.chain(no_cpu_time.map(|because| Hint::NoCpuTime { because: because.to_owned() }));
        #[cfg(all(feature = "nvtx", unix))]
        let hints = hints.chain(self.host.nvtx_problem().map(|because| Hint::NoNvtx { because }));
        hints.collect()
    }
}

/// A guard that marks this thread as ending a step or a window. A watcher may close a span meanwhile, which is no step,
/// even if [`step_on`](crate::ProfilerBuilder::step_on) names it.
struct Stepping;

thread_local!(static STEPPING: Cell<bool> = const { Cell::new(false) });

impl Stepping {
    /// Returns the guard, or `None` if this thread is ending a step or a window already.
    fn begin() -> Option<Self> {
        (!STEPPING.replace(true)).then_some(Self)
    }

    /// Whether this thread is ending a step or a window.
    fn is_on() -> bool {
        STEPPING.get()
    }
}

impl Drop for Stepping {
    fn drop(&mut self) {
        STEPPING.set(false);
    }
}
