//! The times of calls, for percentiles.

use super::durations::Durations;
use crate::trace::{Span, Timestamp};
use std::time::Duration;

/// The time of one call: one enter of a span, or several that belong together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallTime {
    /// The number of enters.
    enters: u64,
    /// The time in which the span was entered.
    pub(super) busy: Duration,
    /// From the first enter to the last exit.
    extent: Option<(Timestamp, Timestamp)>,
}

impl CallTime {
    /// Returns the time of a call with one enter.
    pub(super) fn of(span: Span<'_>) -> Self {
        Self { enters: 1, busy: span.duration(), extent: Some((span.start(), span.end())) }
    }

    /// Adds an enter, which adds `busy` to the time in which the span was entered.
    pub(super) fn add(&mut self, span: Span<'_>, busy: Duration) {
        self.enters += 1;
        self.busy += busy;
        let (start, end) = self.extent.unwrap_or((span.start(), span.end()));
        self.extent = Some((start.min(span.start()), end.max(span.end())));
    }

    /// Returns the time from the first enter to the last exit.
    pub(super) fn latency(&self) -> Duration {
        self.extent.map_or(Duration::ZERO, |(start, end)| end.since(start))
    }
}

/// The times of calls.
#[derive(Clone, Debug, Default)]
pub(super) struct CallTimes {
    /// The time in which the span was entered, of each call.
    busy: Durations,
    /// The time from the first enter to the last exit of each call, if that differs from `busy` for one of them.
    latency: Option<Durations>,
}

impl CallTimes {
    /// Adds a call.
    pub(super) fn add(&mut self, call: &CallTime) {
        if call.enters > 1 && self.latency.is_none() {
            self.latency = Some(self.busy.clone());
        }
        if let Some(latency) = &mut self.latency {
            latency.add(call.latency());
        }
        self.busy.add(call.busy);
    }

    /// Adds all calls of other times.
    pub(super) fn merge(&mut self, other: &Self) {
        if other.latency.is_some() && self.latency.is_none() {
            self.latency = Some(self.busy.clone());
        }
        if let Some(latency) = &mut self.latency {
            latency.merge(other.latency.as_ref().unwrap_or(&other.busy));
        }
        self.busy.merge(&other.busy);
    }

    /// Returns the time in which the span was entered, of each call.
    pub(super) fn busy(&self) -> &Durations {
        &self.busy
    }

    /// Returns the time from the first enter to the last exit of each call, if a call was entered more than once.
    pub(super) fn latency(&self) -> Option<&Durations> {
        self.latency.as_ref()
    }
}
