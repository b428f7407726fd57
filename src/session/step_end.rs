//! What is read, kept and passed on when a step ends, whether or not it is recorded.

use super::state::State;
use crate::{clock::Ticks, cpu_time::ProcessUsage, host::Host, recording::Kept, schedule::Phase};

impl State {
    /// Ends a step of the flight recorder. Returns what becomes of its window if the step is its last.
    pub(super) fn end_flight_step(&mut self, host: &Host) -> Option<Kept> {
        let flight = self.flight.as_mut()?;
        let open = self.window.as_ref().is_some_and(|window| window.kind.is_flight());
        flight.end_step(host.clock(), open, self.budget.share())
    }

    /// Has the flight recorder's window written for a request that waited for the slow step which has just ended, if
    /// there is one.
    pub(super) fn keep_slow_step(&mut self) -> Option<Kept> {
        let ticket = self.demands.take_slow()?;
        let window = self.window.as_mut()?;
        window.ticket = Some(ticket);
        Some(Kept::Written)
    }

    /// Returns what the process used in the step that has ended, and in the part of it in the window, if that is read
    /// and somebody takes it. `opens` says whether a window opens with the next step.
    pub(super) fn read_usage(&mut self, opens: bool) -> [Option<ProcessUsage>; 2] {
        let Some(meter) = self.usage.as_mut() else { return [None; 2] };
        if self.window.is_some() || opens || self.summaries.is_some() {
            meter.end_step()
        } else {
            meter.skip_step();
            [None; 2]
        }
    }

    /// Passes a step on to the exporters that take every step. `end` is the moment, if it has been read already.
    pub(super) fn send_step(
        &mut self,
        host: &Host,
        number: u64,
        phase: Phase,
        end: Option<Ticks>,
        by_step: bool,
        usage: Option<ProcessUsage>,
    ) {
        if let Some(summaries) = self.summaries.as_mut().filter(|_| !self.ended) {
            summaries.send(host, number, phase, end.unwrap_or_else(|| host.clock().now()), by_step, usage);
        }
    }
}
