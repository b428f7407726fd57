//! The flight recorder: windows that follow each other while nothing else is recorded, of which the last two are kept.

use super::recent_steps::RecentSteps;
use crate::{
    clock::Clock,
    flight::{FlightLength, FlightRecorder},
    recording::Kept,
};
use std::time::Instant;

#[derive(Debug)]
pub(super) struct Flight {
    settings: FlightRecorder,
    recent: RecentSteps,
    /// When the window opened, and the share of the memory that was in use then.
    opened: (Instant, f64),
    /// The number of its steps.
    steps: u64,
}

impl Flight {
    /// The share of the memory that a window may take: two are kept, and a third is for those of the schedule.
    const SHARE: f64 = 1.0 / 3.0;

    pub(super) fn new(settings: FlightRecorder) -> Self {
        Self { settings, recent: RecentSteps::default(), opened: (Instant::now(), 0.0), steps: 0 }
    }

    /// Whether GPU activity is recorded.
    pub(super) fn has_gpu(&self) -> bool {
        self.settings.gpu
    }

    /// Begins a window, while this share of the memory is in use.
    pub(super) fn open(&mut self, share: f64) {
        (self.opened, self.steps) = ((Instant::now(), share), 0);
    }

    /// Ends a step. Returns what becomes of the window if the step is its last. `open` says whether the window is open,
    /// and `share` how much of the memory is in use.
    pub(super) fn end_step(&mut self, clock: &Clock, open: bool, share: f64) -> Option<Kept> {
        let ended = self.settings.slow.and_then(|condition| Some((condition, self.recent.end_step(clock)?)));
        if !open {
            return None;
        }
        self.steps += 1;
        if ended.is_some_and(|(condition, (step, median))| condition.is_met(step, median)) {
            return Some(Kept::Written);
        }
        let is_full = match self.settings.length {
            FlightLength::Steps(steps) => self.steps >= steps,
            FlightLength::Duration(duration) => self.opened.0.elapsed() >= duration,
        };
        let is_crowded = share - self.opened.1 > Self::SHARE || share > 2.0 * Self::SHARE;
        (is_full || is_crowded).then_some(Kept::InMemory)
    }
}
