//! The session: counts steps, follows the schedule, opens and closes windows.

use crate::{
    clock::{Anchor, Ticks},
    collector::Command,
    correlate::{ClosedWindow, StepMark},
    host::{Control, Host, ThreadInfo},
    schedule::{Phase, Schedule},
    trace::Cut,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::Sender},
};

/// Shared by the profiler and, where a span's close is the step, the layer.
#[derive(Debug)]
pub(crate) struct Session {
    host: Arc<Host>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    schedule: Schedule,
    commands: Sender<Command>,
    phase: Phase,
    /// The number of the current step.
    step: u64,
    /// Whether the run is in steps at all.
    stepping: bool,
    window: Option<OpenWindow>,
    windows: u32,
    ended: bool,
    schedule_panicked: bool,
}

#[derive(Debug)]
struct OpenWindow {
    index: u32,
    open: Anchor,
    /// Opened by hand: the schedule does not close it.
    manual: bool,
    step_start: Ticks,
    step_cut: bool,
    steps: Vec<StepMark>,
}

impl Session {
    /// Starts with step 0.
    pub(crate) fn start(host: Arc<Host>, mut schedule: Schedule, commands: Sender<Command>) -> Self {
        let stepping = schedule.counts_steps();
        let phase = catch_unwind(AssertUnwindSafe(|| schedule.phase(0)));
        let mut state = State {
            schedule,
            commands,
            phase: *phase.as_ref().unwrap_or(&Phase::Wait),
            step: 0,
            stepping,
            window: None,
            windows: 0,
            ended: false,
            schedule_panicked: phase.is_err(),
        };
        if state.phase.is_recording() {
            state.open(&host, host.clock().anchor(), false);
        }
        Self { host, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a step and begins the next.
    pub(crate) fn step(&self) {
        self.lock().step(&self.host);
    }

    /// The number of the current step and what is done in it.
    pub(crate) fn now(&self) -> (u64, Phase) {
        let state = self.lock();
        (state.step, state.phase)
    }

    /// Whether a window is open, by the schedule or by hand.
    pub(crate) fn is_recording(&self) -> bool {
        self.lock().window.is_some()
    }

    /// Opens a window by hand; false if one is open already.
    pub(crate) fn open(&self) -> bool {
        let mut state = self.lock();
        if state.window.is_some() || state.ended {
            return false;
        }
        let now = self.host.clock().anchor();
        state.open(&self.host, now, true);
        true
    }

    /// Closes the window; false if none is open.
    pub(crate) fn close(&self) -> bool {
        let mut state = self.lock();
        let now = self.host.clock().anchor();
        state.close(&self.host, now, false)
    }

    /// Closes the window and turns the layer off for good. Returns whether the schedule's function panicked.
    pub(crate) fn end(&self) -> bool {
        let mut state = self.lock();
        let now = self.host.clock().anchor();
        state.close(&self.host, now, true);
        state.ended = true;
        self.host.set_control(Control::OFF);
        // The collector is gone only if it panicked, which whoever joins it will report.
        let _ = state.commands.send(Command::Finish);
        state.schedule_panicked
    }
}

impl State {
    fn step(&mut self, host: &Host) {
        if self.ended {
            return;
        }
        self.stepping = true;
        let (number, before) = (self.step, self.phase);
        self.step += 1;
        self.phase = self.next_phase();

        // PyTorch's table of transitions, where what is recorded is always saved.
        let ends = before == Phase::RecordAndSave || !self.phase.is_recording();
        let begins = self.phase.is_recording() && (before == Phase::RecordAndSave || !before.is_recording());
        let closes = ends && self.window.as_ref().is_some_and(|window| !window.manual);
        let opens = begins && (closes || self.window.is_none());

        // A step that ends a window ends with it, to the tick.
        let edge = (closes || opens).then(|| host.clock().anchor());
        if let Some(window) = &mut self.window {
            window.mark_step(number, edge.map_or_else(|| host.clock().now(), |edge| edge.ticks), false);
        }
        if let Some(edge) = edge {
            if closes {
                self.close(host, edge, false);
            }
            if opens {
                self.open(host, edge, false);
            }
        }
    }

    fn next_phase(&mut self) -> Phase {
        if self.schedule_panicked {
            return Phase::Wait;
        }
        let step = self.step;
        catch_unwind(AssertUnwindSafe(|| self.schedule.phase(step))).unwrap_or_else(|_| {
            self.schedule_panicked = true;
            Phase::Wait
        })
    }

    fn open(&mut self, host: &Host, now: Anchor, manual: bool) {
        let index = self.windows;
        self.windows += 1;
        self.window =
            Some(OpenWindow { index, open: now, manual, step_start: now.ticks, step_cut: manual, steps: Vec::new() });
        let _ = self.commands.send(Command::Opened);
        host.set_control(Control::recording(index));
    }

    fn close(&mut self, host: &Host, now: Anchor, at_end: bool) -> bool {
        let Some(mut window) = self.window.take() else { return false };
        host.set_control(Control::waiting(self.windows));
        let leftover = at_end && window.index > 0 && window.steps.is_empty();
        if self.stepping && window.step_start < now.ticks {
            window.mark_step(self.step, now.ticks, true);
        }
        let OpenWindow { index, open, steps, .. } = window;
        let _ = self.commands.send(Command::Closed(ClosedWindow { index, open, close: now, steps, leftover }));
        true
    }
}

impl OpenWindow {
    fn mark_step(&mut self, number: u64, end: Ticks, cut: bool) {
        self.steps.push(StepMark {
            number,
            start: self.step_start,
            end,
            cut: Cut { start: self.step_cut, end: cut },
            thread: ThreadInfo::of_this_thread(),
        });
        self.step_start = end;
        self.step_cut = false;
    }
}
