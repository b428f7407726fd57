//! What a session counts and decides: the step, its phase, the open window.

use super::{
    SessionParts,
    demands::Demands,
    flight::Flight,
    open_window::{OpenWindow, WindowKind},
};
use crate::{
    budget::Budget,
    clock::Anchor,
    collector::Command,
    cpu_time::UsageMeter,
    failure::panic_message,
    gpu::GpuSource,
    heap::{Counting, HeapSamples},
    host::{Control, Host},
    recording::{ClosedWindow, Kept, Recording},
    request::Ticket,
    sampling::Sampler,
    schedule::{Phase, Schedule, WaitLength},
    step_sample::StepSample,
    steps::StepSender,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::AtomicU32, mpsc::Sender},
    time::Instant,
};
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};

#[derive(Debug)]
pub(super) struct State {
    pub(super) schedule: Schedule,
    /// Windows that were requested.
    pub(super) demands: Demands,
    pub(super) flight: Option<Flight>,
    pub(super) gpu: Option<Arc<dyn GpuSource>>,
    pub(super) commands: Sender<Command>,
    pub(super) budget: Arc<Budget>,
    /// The number of windows that have been exported.
    pub(super) exported: Arc<AtomicU32>,
    /// The count of the heap, if it is recorded.
    pub(super) heap: Option<Counting>,
    /// The thread that samples stacks, if they are requested.
    pub(super) sampler: Option<Sampler>,
    /// The reader of what the process uses in each step, if that is wanted.
    pub(super) usage: Option<UsageMeter>,
    /// The sender of step summaries, if an exporter takes every step.
    pub(super) summaries: Option<StepSender>,
    /// The durations of steps that are not recorded.
    pub(super) unrecorded: StepSample,
    pub(super) phase: Phase,
    /// The number of the current step.
    pub(super) step: u64,
    /// The number of steps that a span's close ended.
    pub(super) closed: u64,
    /// Whether the program or the schedule counts steps.
    stepping: bool,
    pub(super) window: Option<OpenWindow>,
    pub(super) windows: u32,
    /// The number of windows that have closed, without those that the flight recorder keeps in memory.
    pub(super) recorded: u32,
    /// Whether the schedule's window could not be opened for lack of memory. It is tried again at the next step.
    pub(super) overdue: bool,
    /// The number of steps that were not recorded for lack of memory, since the last window closed.
    pub(super) lost_steps: u64,
    /// The number of steps of the window that the end of the run closed, and of those that the schedule asks for.
    pub(super) partial: Option<(u64, u64)>,
    pub(super) ended: bool,
    /// The message of the panic of the schedule's function, if it panicked.
    pub(super) schedule_panic: Option<String>,
    /// The id of the process that records, by which a fork is noticed.
    process: u32,
}

impl State {
    /// Begins at step 0, and opens a window if the schedule begins with one.
    pub(super) fn start(parts: SessionParts) -> Self {
        let SessionParts {
            host,
            gpu,
            mut schedule,
            commands,
            summaries,
            budget,
            exported,
            heap,
            sampler,
            usage,
            flight,
            ..
        } = parts;
        let stepping = schedule.counts_steps();
        let phase = catch_unwind(AssertUnwindSafe(|| schedule.phase(0)));
        let mut state = Self {
            schedule,
            demands: Demands::default(),
            flight: flight.map(Flight::new),
            gpu,
            commands,
            budget,
            exported,
            heap,
            sampler,
            usage,
            summaries,
            unrecorded: StepSample::new(),
            phase: *phase.as_ref().unwrap_or(&Phase::Wait),
            step: 0,
            closed: 0,
            stepping,
            window: None,
            windows: 0,
            recorded: 0,
            overdue: false,
            lost_steps: 0,
            partial: None,
            ended: false,
            schedule_panic: phase.err().map(|panic| panic_message(&*panic)),
            process: std::process::id(),
        };
        let kind = state.next_kind();
        if let Some(kind) = kind.filter(|_| state.charge_window()) {
            let edge = state.edge(&host, Some(kind));
            state.open(edge, kind);
        }
        // The first step begins.
        state.read_usage(false);
        state.warm_up(Phase::Wait);
        state
    }

    pub(super) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    pub(super) fn step(&mut self, host: &Host) {
        if self.ended {
            return;
        }
        self.stepping = true;
        let (number, before) = (self.step, self.phase);
        self.step += 1;
        host.set_steps(self.step);
        let scheduled = self.next_phase();
        let before = if self.demands.is_empty() {
            self.phase = scheduled;
            before
        } else {
            self.follow_demands(host, before, scheduled)
        };

        // PyTorch's table of transitions, except that recorded steps are always saved.
        let ends = before == Phase::RecordAndSave || !self.phase.is_recording();
        let begins = self.phase.is_recording() && (before == Phase::RecordAndSave || !before.is_recording());
        let kept = self.end_flight_step(host).max(self.keep_slow_step());
        let closes = match self.window.as_ref().map(|window| window.kind) {
            None | Some(WindowKind::Manual) => false,
            Some(WindowKind::Scheduled) => ends,
            Some(WindowKind::Flight { .. }) => begins || kept.is_some(),
        };
        let is_free = closes || self.window.is_none();
        let is_due = (begins || self.overdue) && is_free;
        let wanted = self.next_kind().filter(|kind| is_free && (is_due || kind.is_flight()));

        if (closes || wanted.is_some()) && self.is_forked() {
            return;
        }
        let sampled = if before == Phase::Wait && self.window.is_none() {
            self.unrecorded.end_step(|| host.clock().now())
        } else {
            self.unrecorded.leave_out();
            None
        };
        self.lost_steps += u64::from(self.overdue);
        let opens = wanted.filter(|_| self.charge_window());
        self.overdue = wanted.is_some_and(|kind| !kind.is_flight()) && opens.is_none();
        // A step that ends a window ends with it, to the tick.
        let changes = closes || opens.is_some();
        let _edge = changes.then(|| host.edge());
        if changes {
            host.settle();
        }
        let edge = changes.then(|| self.edge(host, opens));
        let end = edge.map(|edge| edge.ticks).or_else(|| self.window.is_some().then(|| host.clock().now()));
        let [usage, recorded] = self.read_usage(opens.is_some());
        if let Some((window, end)) = self.window.as_mut().zip(end) {
            window.mark_step(number, end, false, recorded);
        }
        self.send_step(host, number, before, end.or(sampled), true, usage);
        if let Some(edge) = edge {
            if closes {
                self.close(edge, opens, kept, false);
            }
            if let Some(kind) = opens {
                self.open(edge, kind);
                host.look_up_contexts();
                host.notify_opened();
            } else {
                host.notify_closed();
            }
        }
        self.warm_up(before);
        if closes && opens.is_none() {
            self.unrecorded.begin_step(host.clock().now());
        }
    }

    /// Sets the phase of the step that begins as requests want it. Returns the phase of the one that has ended.
    #[cold]
    fn follow_demands(&mut self, host: &Host, before: Phase, scheduled: Phase) -> Phase {
        let busy = self.window.as_ref().is_some_and(|window| window.kind == WindowKind::Manual);
        let flight = self.window.as_ref().is_some_and(|window| window.kind.is_flight());
        let (before, phase) = self.demands.next(host.clock(), self.step, before, scheduled, busy, flight);
        self.phase = phase;
        before
    }

    /// Prepares samples and the GPU's library before a window opens, as that may take some milliseconds.
    fn warm_up(&self, before: Phase) {
        match (&self.sampler, self.phase) {
            (Some(sampler), Phase::Warmup) if self.window.is_none() && before != Phase::Warmup => sampler.prepare(),
            (Some(sampler), Phase::Wait) if self.window.is_none() && before == Phase::Warmup => sampler.release(),
            _ => {}
        }
        let recorded = self.window.as_ref().is_some_and(|window| window.kind.has_gpu());
        let Some(gpu) = self.gpu.as_ref().filter(|_| !recorded) else { return };
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
    pub(super) fn edge(&self, host: &Host, opens: Option<WindowKind>) -> Anchor {
        let next = self.windows;
        let opens_gpu = opens.is_some_and(WindowKind::has_gpu);
        if opens_gpu {
            self.gpu.iter().for_each(|gpu| gpu.open());
        }
        if opens.is_some() {
            host.set_control(Control::recording(next));
        }
        if opens_gpu {
            self.gpu.iter().for_each(|gpu| gpu.opened());
        }
        let edge = host.clock().anchor();
        if opens.is_none() {
            host.set_control(Control::waiting(next));
        }
        let closes_gpu = self.window.as_ref().is_some_and(|window| window.kind.has_gpu());
        if !opens_gpu && (closes_gpu || opens.is_none()) {
            self.gpu.iter().for_each(|gpu| gpu.idle(self.wait_length()));
        }
        edge
    }

    /// Returns the kind of window that the step is recorded in, unless the program keeps one open by hand.
    fn next_kind(&self) -> Option<WindowKind> {
        if self.phase.is_recording() {
            return Some(WindowKind::Scheduled);
        }
        self.flight.as_ref().map(|flight| WindowKind::Flight { gpu: flight.has_gpu() })
    }

    /// Returns the number of steps in the schedule's open window, and of those that it is to have, if steps are
    /// missing.
    pub(super) fn partial_window(&self) -> Option<(u64, u64)> {
        let of_schedule = |window: &&OpenWindow| {
            window.kind == WindowKind::Scheduled && window.ticket.is_none() && !window.steps.is_empty()
        };
        let window = self.window.as_ref().filter(of_schedule)?;
        let recorded = window.steps.len() as u64 + window.lost_steps;
        Some((recorded, self.schedule.active_steps()?)).filter(|(recorded, active)| recorded < active)
    }

    /// Follows another schedule from the next step on.
    pub(super) fn set_schedule(&mut self, schedule: Schedule) {
        self.schedule = schedule.starting_at(self.step + 1);
        self.schedule_panic = None;
    }

    /// Whether a window is open that is not the flight recorder's.
    pub(super) fn is_recording(&self) -> bool {
        self.window.as_ref().is_some_and(|window| !window.kind.is_flight())
    }

    /// Whether the run is divided into steps.
    pub(super) fn has_steps(&self) -> bool {
        self.stepping
    }

    /// Charges the memory of a window that is about to open. Returns false if there is not enough.
    pub(super) fn charge_window(&self) -> bool {
        self.budget.take_for_window(Recording::COST)
    }

    /// Opens a window that has been charged, at the edge of a step.
    fn open(&mut self, edge: Anchor, kind: WindowKind) {
        let ticket = if kind == WindowKind::Scheduled { self.demands.take_ticket() } else { None };
        self.open_with(edge, kind, ticket);
    }

    /// Opens a window that has been charged.
    pub(super) fn open_with(&mut self, edge: Anchor, kind: WindowKind, ticket: Option<Ticket>) {
        if let Some(flight) = self.flight.as_mut().filter(|_| kind.is_flight()) {
            flight.open(self.budget.share());
        }
        if kind == WindowKind::Manual {
            self.usage.iter_mut().for_each(UsageMeter::open_window);
        }
        let index = self.windows;
        self.windows += 1;
        self.unrecorded.leave_out();
        ticket.iter().for_each(Ticket::opened);
        self.window = Some(OpenWindow::new(index, edge, kind, ticket, Arc::clone(&self.budget)));
        self.heap.iter().for_each(Counting::open);
        self.sampler.iter().for_each(|sampler| sampler.open(edge.ticks));
        let _ = self.commands.send(Command::Opened);
    }

    /// Closes the window, if one is open. `opens` is the kind of the one that follows at the same moment, and `kept`
    /// what becomes of it if it is of the flight recorder.
    pub(super) fn close(&mut self, edge: Anchor, opens: Option<WindowKind>, kept: Option<Kept>, at_end: bool) {
        let Some(mut window) = self.window.take() else { return };
        let leftover = at_end && window.index > 0 && window.steps.is_empty();
        if self.stepping && window.step_start < edge.ticks {
            let usage = self.usage.as_mut().and_then(UsageMeter::close_window);
            window.mark_step(self.step, edge.ticks, true, usage);
        }
        let mut heap = self.heap.as_ref().map(Counting::close);
        if let Some(heap) = heap.as_mut().filter(|_| self.budget.is_spent_at(usize::MAX)) {
            heap.give_up();
        }
        let stacks = self.sampler.as_ref().map(|sampler| sampler.close(edge.ticks, opens.is_some()));
        let samples = heap.as_ref().map_or(0, HeapSamples::cost);
        self.budget.take(samples);
        let OpenWindow { index, open, steps, charged, ticket, kind, .. } = window;
        ticket.iter().for_each(Ticket::closed);
        let kept = kind.is_flight().then_some(kept.unwrap_or(Kept::InMemory));
        self.recorded += u32::from(kept != Some(Kept::InMemory));
        let charged = charged + samples;
        let lost_steps = window.lost_steps + std::mem::take(&mut self.lost_steps);
        let closed = Instant::now();
        let (levels, close, steps_by_close) = (levels(), edge, self.closed > 0);
        let _ = self.commands.send(Command::Closed(Box::new(ClosedWindow {
            index,
            open,
            close,
            levels,
            closed,
            steps,
            steps_by_close,
            lost_steps,
            unrecorded_step: self.unrecorded.typical(),
            heap,
            stacks,
            charged,
            followed: opens.is_some_and(WindowKind::has_gpu),
            leftover,
            ticket,
            kept,
            with_gpu: kind.has_gpu(),
        })));
    }
}

/// Returns the most verbose level of spans that is not off for the whole process.
pub(super) fn levels() -> LevelFilter {
    LevelFilter::current().min(STATIC_MAX_LEVEL)
}
