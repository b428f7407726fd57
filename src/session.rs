//! The session: counts steps, follows the schedule, and opens and closes windows.

mod stepping;

use self::stepping::Stepping;
use crate::{
    budget::Budget,
    clock::{Anchor, Ticks},
    collector::Command,
    failure::panic_message,
    gpu::GpuSource,
    hint::{Facts, Hint},
    host::{Control, Host},
    recording::{ClosedWindow, Recording, StepMark},
    schedule::{Phase, Schedule, WaitLength},
    step_sample::StepSample,
    steps::StepSender,
    thread::{ThreadInfo, this_thread},
    trace::{Cut, Gpu},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::Sender},
    time::{Duration, Instant},
};
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};

/// The state of a run, shared by the profiler and, where a span's close is the step, the layer.
#[derive(Debug)]
pub(crate) struct Session {
    host: Arc<Host>,
    /// The state to report where GPUs are not recorded.
    without_gpu: Gpu,
    /// The name of the span whose close ends a step.
    step_on: Option<String>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    schedule: Schedule,
    gpu: Option<Arc<dyn GpuSource>>,
    commands: Sender<Command>,
    budget: Arc<Budget>,
    /// The sender of step summaries, if an exporter takes every step.
    summaries: Option<StepSender>,
    /// The durations of steps that are not recorded.
    unrecorded: StepSample,
    phase: Phase,
    /// The number of the current step.
    step: u64,
    /// The number of steps that a span's close ended.
    closed: u64,
    /// Whether the program or the schedule counts steps.
    stepping: bool,
    window: Option<OpenWindow>,
    windows: u32,
    /// Whether the schedule's window could not be opened for lack of memory. It is tried again at the next step.
    overdue: bool,
    /// The number of steps that were not recorded for lack of memory, since the last window closed.
    lost_steps: u64,
    /// The number of steps of the window that the end of the run closed, and of those that the schedule asks for.
    partial: Option<(u64, u64)>,
    ended: bool,
    /// The message of the panic of the schedule's function, if it panicked.
    schedule_panic: Option<String>,
    /// The id of the process that records, by which a fork is noticed.
    process: u32,
}

#[derive(Debug)]
struct OpenWindow {
    index: u32,
    open: Anchor,
    /// Whether it was opened by hand, so that the schedule does not close it.
    manual: bool,
    step_start: Ticks,
    step_cut: bool,
    steps: Vec<StepMark>,
    lost_steps: u64,
    budget: Arc<Budget>,
    /// The bytes that the window and its steps are charged with.
    charged: usize,
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
}

impl Session {
    /// Starts a session at step 0.
    pub(crate) fn start(parts: SessionParts) -> Self {
        let SessionParts { host, gpu, without_gpu, mut schedule, step_on, commands, summaries, budget } = parts;
        let stepping = schedule.counts_steps();
        let phase = catch_unwind(AssertUnwindSafe(|| schedule.phase(0)));
        let mut state = State {
            schedule,
            gpu,
            commands,
            budget,
            summaries,
            unrecorded: StepSample::new(),
            phase: *phase.as_ref().unwrap_or(&Phase::Wait),
            step: 0,
            closed: 0,
            stepping,
            window: None,
            windows: 0,
            overdue: false,
            lost_steps: 0,
            partial: None,
            ended: false,
            schedule_panic: phase.err().map(|panic| panic_message(&*panic)),
            process: std::process::id(),
        };
        if state.phase.is_recording() && state.charge_window() {
            let edge = state.edge(&host, true);
            state.open(edge, false);
        } else {
            state.warm_up(Phase::Wait);
        }
        Self { host, without_gpu, step_on, state: Mutex::new(state) }
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
        self.lock().window.is_some()
    }

    /// Opens a window by hand. Returns false if one is open already, or if there is no memory for it.
    pub(crate) fn open(&self) -> bool {
        let Some(_stepping) = Stepping::begin() else { return false };
        let mut state = self.lock();
        if state.window.is_some() || state.ended || state.is_forked() || !state.charge_window() {
            return false;
        }
        let _edge = self.host.edge();
        self.host.settle();
        state.overdue = false;
        let edge = state.edge(&self.host, true);
        state.open(edge, true);
        self.host.look_up_contexts();
        self.host.notify_opened();
        true
    }

    /// Closes the window. Returns false if none is open.
    pub(crate) fn close(&self) -> bool {
        let Some(_stepping) = Stepping::begin() else { return false };
        let mut state = self.lock();
        !state.is_forked() && self.finish_window(&mut state, false)
    }

    fn finish_window(&self, state: &mut State, at_end: bool) -> bool {
        let open = state.window.is_some();
        let _edge = self.host.edge();
        if open {
            self.host.settle();
        }
        let edge = state.edge(&self.host, false);
        state.close(edge, false, at_end);
        if open {
            self.host.notify_closed();
        }
        open
    }

    /// Closes the window and has the collector finish. Returns the message of the schedule's panic, if it panicked.
    pub(crate) fn end(&self) -> Option<String> {
        let _stepping = Stepping::begin();
        let mut state = self.lock();
        state.partial = state.partial_window();
        self.finish_window(&mut state, true);
        let (step, phase) = (state.step, state.phase);
        state.send_step(&self.host, step, phase, None, false);
        state.ended = true;
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
            first_step: state.schedule.first_recorded(),
            step_on: self.step_on.clone(),
            closed: state.closed,
            called: state.step - state.closed,
            partial: state.partial,
            all_levels_off: self.host.is_in_use() && levels() == LevelFilter::OFF,
            disabled: None,
        };
        // Layers of others are asked which spans are disabled, and they may do anything.
        drop(state);
        Facts { disabled: self.host.disabled_spans(), ..facts }.hints()
    }
}

/// Returns the most verbose level of spans that is not off for the whole process.
fn levels() -> LevelFilter {
    LevelFilter::current().min(STATIC_MAX_LEVEL)
}

impl State {
    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    fn step(&mut self, host: &Host) {
        if self.ended {
            return;
        }
        self.stepping = true;
        let (number, before) = (self.step, self.phase);
        self.step += 1;
        self.phase = self.next_phase();

        // PyTorch's table of transitions, except that recorded steps are always saved.
        let ends = before == Phase::RecordAndSave || !self.phase.is_recording();
        let begins = self.phase.is_recording() && (before == Phase::RecordAndSave || !before.is_recording());
        let closes = ends && self.window.as_ref().is_some_and(|window| !window.manual);
        let is_due = (begins || self.overdue) && (closes || self.window.is_none());

        if (closes || is_due) && self.is_forked() {
            return;
        }
        let sampled = if before == Phase::Wait && self.window.is_none() {
            self.unrecorded.end_step(|| host.clock().now())
        } else {
            self.unrecorded.leave_out();
            None
        };
        self.lost_steps += u64::from(self.overdue);
        let opens = is_due && self.phase.is_recording() && self.charge_window();
        self.overdue = is_due && self.phase.is_recording() && !opens;
        // A step that ends a window ends with it, to the tick.
        let _edge = (closes || opens).then(|| host.edge());
        if closes || opens {
            host.settle();
        }
        let edge = (closes || opens).then(|| self.edge(host, opens));
        let end = edge.map(|edge| edge.ticks).or_else(|| self.window.is_some().then(|| host.clock().now()));
        if let Some((window, end)) = self.window.as_mut().zip(end) {
            window.mark_step(number, end, false);
        }
        self.send_step(host, number, before, end.or(sampled), true);
        if let Some(edge) = edge {
            if closes {
                self.close(edge, opens, false);
            }
            if opens {
                self.open(edge, false);
                host.look_up_contexts();
                host.notify_opened();
            } else {
                host.notify_closed();
            }
        }
        self.warm_up(before);
        if closes && !opens {
            self.unrecorded.begin_step(host.clock().now());
        }
    }

    /// Passes a step on to the exporters that take every step. `end` is the moment, if it has been read already.
    fn send_step(&mut self, host: &Host, number: u64, phase: Phase, end: Option<Ticks>, by_step: bool) {
        if let Some(summaries) = self.summaries.as_mut().filter(|_| !self.ended) {
            summaries.send(host, number, phase, end.unwrap_or_else(|| host.clock().now()), by_step);
        }
    }

    /// Prepares the GPU's library before a window opens, as that may take some milliseconds.
    fn warm_up(&self, before: Phase) {
        let Some(gpu) = self.gpu.as_ref().filter(|_| self.window.is_none()) else { return };
        match self.phase {
            Phase::Warmup => gpu.prepare(),
            Phase::Wait if before == Phase::Warmup => gpu.idle(self.wait_length()),
            Phase::Wait => gpu.tick(),
            _ => {}
        }
    }

    /// Returns how long nothing will be recorded, if no window is open now.
    fn wait_length(&self) -> WaitLength {
        match self.phase {
            _ if self.schedule_panic.is_some() => WaitLength::Forever,
            Phase::Wait => self.schedule.wait_from(self.step),
            Phase::Warmup => WaitLength::Steps(0),
            Phase::Record | Phase::RecordAndSave => WaitLength::Unknown,
        }
    }

    fn next_phase(&mut self) -> Phase {
        if self.schedule_panic.is_some() {
            return Phase::Wait;
        }
        let step = self.step;
        catch_unwind(AssertUnwindSafe(|| self.schedule.phase(step))).unwrap_or_else(|panic| {
            self.schedule_panic = Some(panic_message(&*panic));
            Phase::Wait
        })
    }

    /// Reads the moment at which a window closes, or opens, or one follows another.
    ///
    /// Meanwhile, threads still write for the window that closes or already for the one that opens, so that nothing
    /// falls between two windows: a span is cut off where its window ended, and begins where its window began.
    fn edge(&self, host: &Host, opens: bool) -> Anchor {
        let next = self.windows;
        if opens {
            self.gpu.iter().for_each(|gpu| gpu.open());
            host.set_control(Control::recording(next));
            self.gpu.iter().for_each(|gpu| gpu.opened());
        }
        let edge = host.clock().anchor();
        if !opens {
            host.set_control(Control::waiting(next));
            self.gpu.iter().for_each(|gpu| gpu.idle(self.wait_length()));
        }
        edge
    }

    /// Returns the number of steps in the schedule's open window, and of those that it is to have, if steps are
    /// missing.
    fn partial_window(&self) -> Option<(u64, u64)> {
        let window = self.window.as_ref().filter(|window| !window.manual && !window.steps.is_empty())?;
        let recorded = window.steps.len() as u64 + window.lost_steps;
        Some((recorded, self.schedule.active_steps()?)).filter(|(recorded, active)| recorded < active)
    }

    /// Charges the memory of a window that is about to open. Returns false if there is not enough.
    fn charge_window(&self) -> bool {
        self.budget.take_for_window(Recording::COST)
    }

    /// Opens a window that has been charged.
    fn open(&mut self, edge: Anchor, manual: bool) {
        let index = self.windows;
        self.windows += 1;
        self.unrecorded.leave_out();
        self.window = Some(OpenWindow {
            index,
            open: edge,
            manual,
            step_start: edge.ticks,
            step_cut: manual,
            steps: Vec::new(),
            lost_steps: 0,
            budget: Arc::clone(&self.budget),
            charged: Recording::COST,
        });
        let _ = self.commands.send(Command::Opened);
    }

    fn close(&mut self, edge: Anchor, followed: bool, at_end: bool) {
        let Some(mut window) = self.window.take() else { return };
        let leftover = at_end && window.index > 0 && window.steps.is_empty();
        if self.stepping && window.step_start < edge.ticks {
            window.mark_step(self.step, edge.ticks, true);
        }
        let OpenWindow { index, open, steps, charged, .. } = window;
        let lost_steps = window.lost_steps + std::mem::take(&mut self.lost_steps);
        let closed = Instant::now();
        let (levels, close, steps_by_close) = (levels(), edge, self.closed > 0);
        let _ = self.commands.send(Command::Closed(ClosedWindow {
            index,
            open,
            close,
            levels,
            closed,
            steps,
            steps_by_close,
            lost_steps,
            unrecorded_step: self.unrecorded.typical(),
            charged,
            followed,
            leftover,
        }));
    }
}

impl OpenWindow {
    /// Adds a step, if there is memory for it. The first is charged with the window.
    fn mark_step(&mut self, number: u64, end: Ticks, cut: bool) {
        let cost = if self.steps.is_empty() { 0 } else { StepMark::COST };
        if cost > 0 && !self.budget.take_for_window(cost) {
            self.lost_steps += 1;
        } else {
            self.charged += cost;
            let thread = self.steps.last().map(|step| &step.thread).filter(|thread| thread.id == this_thread());
            let thread = thread.cloned().unwrap_or_else(|| Arc::new(ThreadInfo::of_this_thread()));
            let cut = Cut { start: self.step_cut, end: cut };
            self.steps.push(StepMark { number, start: self.step_start, end, cut, thread });
        }
        self.step_start = end;
        self.step_cut = false;
    }
}
