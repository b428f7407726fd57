//! Windows that were requested while the program runs, and when each begins and ends.

use super::recent_steps::RecentSteps;
use crate::{
    clock::Clock,
    request::{RecordRequest, RequestLength, RequestStart, Requested, Ticket},
    schedule::Phase,
};
use std::time::Instant;

/// The requests that wait, and the one whose steps are being recorded.
#[derive(Debug, Default)]
pub(super) struct Demands {
    waiting: Vec<Demand>,
    current: Option<Current>,
    /// The request that gets what the flight recorder has kept, with the slow step that has just ended.
    slow: Option<Ticket>,
    /// Whether there was any request.
    were_any: bool,
    /// The recent steps, while a request waits for a slow one.
    recent: Option<RecentSteps>,
}

#[derive(Debug)]
struct Demand {
    request: RecordRequest,
    ticket: Ticket,
}

/// The request whose steps are being recorded.
#[derive(Debug)]
struct Current {
    left: Left,
    /// Until its window opens, for which there may be no memory yet.
    ticket: Option<Ticket>,
}

/// The rest of a requested window.
#[derive(Clone, Copy, Debug)]
enum Left {
    Steps(u64),
    Until(Instant),
}

impl Demands {
    /// The most requests that may wait. Each is a window, one after another, so that more would be answered late.
    const MOST: usize = 256;

    /// Takes a request, in a run that is in step `step`.
    pub(super) fn add(&mut self, request: RecordRequest, step: u64) -> Requested {
        self.were_any = true;
        if let Err(problem) = request.check() {
            return Requested::refused(problem);
        }
        self.waiting.retain(|demand| !demand.ticket.is_cancelled());
        if self.waiting.len() >= Self::MOST {
            return Requested::refused(format!("{} requests are waiting already", Self::MOST));
        }
        match request.start {
            RequestStart::AtStep(first) if first <= step => {
                return Requested::refused(format!("step {first} has begun: the run is in step {step}"));
            }
            RequestStart::When(_) => drop(self.recent.get_or_insert_default()),
            _ => {}
        }
        let (ticket, requested) = Ticket::new(request.folder.clone());
        self.waiting.push(Demand { request, ticket });
        requested
    }

    /// Whether there was any request.
    pub(super) fn were_any(&self) -> bool {
        self.were_any
    }

    /// The number of requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing is requested, so that the schedule alone decides.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.current.is_none()
    }

    /// Ends a step of phase `before`, and begins step `step`, for which the schedule says `scheduled`. Returns both
    /// phases as requests want them: the step that ended is the last of its window if a requested one ends or begins.
    /// `busy` says whether a window is open that only the program may close, and `flight` whether the flight recorder's
    /// is: it has a slow step that has ended, of which other windows would begin after it.
    pub(super) fn next(
        &mut self,
        clock: &Clock,
        step: u64,
        before: Phase,
        scheduled: Phase,
        busy: bool,
        flight: bool,
    ) -> (Phase, Phase) {
        let mut before = before;
        if self.current.as_mut().is_some_and(Current::end_step) {
            // A ticket that is still here found no memory, and says so when it is dropped.
            self.current = None;
            before = Phase::RecordAndSave;
        }
        let ended = self.recent.as_mut().and_then(|recent| recent.end_step(clock));
        if self.current.is_none() && !busy {
            self.waiting.retain(|demand| !demand.ticket.is_cancelled());
            let is_due = |demand: &Demand| match demand.request.start {
                RequestStart::NextStep => true,
                RequestStart::AtStep(first) => first <= step,
                RequestStart::When(condition) => ended.is_some_and(|(step, median)| condition.is_met(step, median)),
            };
            if let Some(due) = self.waiting.iter().position(is_due) {
                if flight && matches!(self.waiting[due].request.start, RequestStart::When(_)) {
                    self.slow = Some(self.waiting.remove(due).ticket);
                } else {
                    self.begin(due);
                    before = if before.is_recording() { Phase::RecordAndSave } else { before };
                }
            }
            if !self.waiting.iter().any(|demand| matches!(demand.request.start, RequestStart::When(_))) {
                self.recent = None;
            }
        }
        let phase = match self.current.as_ref().map(|current| current.left) {
            Some(Left::Steps(1)) => Phase::RecordAndSave,
            Some(_) => Phase::Record,
            None => scheduled,
        };
        (before, phase)
    }

    fn begin(&mut self, index: usize) {
        let Demand { request, ticket } = self.waiting.remove(index);
        let left = match request.length {
            RequestLength::Steps(steps) => Left::Steps(steps),
            RequestLength::Duration(duration) => Left::Until(Instant::now() + duration),
            // It is not a demand on steps to come: see `Control::record`.
            RequestLength::Recent => Left::Steps(1),
        };
        self.current = Some(Current { left, ticket: Some(ticket) });
    }

    /// Takes the ticket of the request that gets what the flight recorder has kept.
    pub(super) fn take_slow(&mut self) -> Option<Ticket> {
        self.slow.take()
    }

    /// Takes the ticket of the window that opens now, if it was requested.
    pub(super) fn take_ticket(&mut self) -> Option<Ticket> {
        self.current.as_mut()?.ticket.take()
    }

    /// Refuses everything, as the run ends.
    pub(super) fn end(&mut self) {
        self.current = None;
        self.waiting.drain(..).for_each(|demand| demand.ticket.fail("the run ended before the window could begin"));
    }
}

impl Current {
    /// Ends a step. Returns whether it was the last.
    fn end_step(&mut self) -> bool {
        match &mut self.left {
            Left::Steps(steps) => {
                *steps -= 1;
                *steps == 0
            }
            Left::Until(end) => Instant::now() >= *end,
        }
    }
}
