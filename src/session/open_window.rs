//! The window that is open, and the steps in it so far.

use crate::{
    budget::Budget,
    clock::{Anchor, Ticks},
    cpu_time::ProcessUsage,
    recording::{Recording, StepMark},
    request::Ticket,
    thread::{ThreadInfo, this_thread},
    trace::Cut,
};
use std::sync::Arc;

/// Who opened a window, and so may close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowKind {
    /// The schedule, or a request.
    Scheduled,
    /// The program, by hand.
    Manual,
    /// The flight recorder.
    Flight { gpu: bool },
}

impl WindowKind {
    pub(super) fn is_flight(self) -> bool {
        matches!(self, Self::Flight { .. })
    }

    /// Whether GPU activity is recorded.
    pub(super) fn has_gpu(self) -> bool {
        self != Self::Flight { gpu: false }
    }
}

#[derive(Debug)]
pub(super) struct OpenWindow {
    pub(super) index: u32,
    pub(super) open: Anchor,
    pub(super) kind: WindowKind,
    /// The request that it answers, if any.
    pub(super) ticket: Option<Ticket>,
    pub(super) step_start: Ticks,
    pub(super) step_cut: bool,
    pub(super) steps: Vec<StepMark>,
    pub(super) lost_steps: u64,
    pub(super) budget: Arc<Budget>,
    /// The bytes that the window and its steps are charged with.
    pub(super) charged: usize,
}

impl OpenWindow {
    /// Opens a window, for which memory has been reserved.
    pub(super) fn new(index: u32, open: Anchor, kind: WindowKind, ticket: Option<Ticket>, budget: Arc<Budget>) -> Self {
        Self {
            index,
            open,
            kind,
            ticket,
            step_start: open.ticks,
            step_cut: kind == WindowKind::Manual,
            steps: Vec::new(),
            lost_steps: 0,
            budget,
            charged: Recording::COST,
        }
    }

    /// Adds a step, if there is memory for it. The first is charged with the window.
    pub(super) fn mark_step(&mut self, number: u64, end: Ticks, cut: bool, usage: Option<ProcessUsage>) {
        let cost = if self.steps.is_empty() { 0 } else { StepMark::COST };
        if cost > 0 && !self.budget.take_for_window(cost) {
            self.lost_steps += 1;
        } else {
            self.charged += cost;
            let thread = self.steps.last().map(|step| &step.thread).filter(|thread| thread.id == this_thread());
            let thread = thread.cloned().unwrap_or_else(|| Arc::new(ThreadInfo::of_this_thread()));
            let cut = Cut { start: self.step_cut, end: cut };
            self.steps.push(StepMark { number, start: self.step_start, end, cut, thread, usage });
        }
        self.step_start = end;
        self.step_cut = false;
    }
}
