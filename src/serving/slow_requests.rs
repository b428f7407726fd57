//! The slowest requests, as exemplars, and objectives' counts of good and bad ones.

use super::{
    RequestKind, Slo,
    error_budget::RequestCounts,
    open_request::KindIndex,
    request_labels::{GroupIndex, RequestLabels},
    request_shards::{EndedRequest, clock_nanos},
};
use crate::{clock::Clock, trace::Timestamp};
use serde::{Serialize, Serializer};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

/// One of the slowest requests of its kind, to be looked up in traces and logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SlowRequest {
    /// The creation of its span, on the wall clock, in nanoseconds since 1970 when serialized.
    #[serde(serialize_with = "unix_nanos")]
    pub start: Timestamp,
    /// The time from the intended start, or else from the creation of the span, to its close.
    pub time: Duration,
    /// Whether it failed.
    pub is_error: bool,
    /// The fields that requests are broken down by, and their values.
    pub labels: Vec<(String, String)>,
}

fn unix_nanos<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(at.as_unix_nanos())
}

/// The slowest requests of a kind, slowest first.
#[derive(Debug)]
pub(super) struct SlowestRequests(Vec<(SlowRequest, GroupIndex)>);

impl SlowestRequests {
    /// The number of requests that are kept.
    const KEPT: usize = 8;

    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(Self::KEPT + 1))
    }

    /// Adds a request if it is one of the slowest. It does not allocate, since a thread may add up its own requests.
    pub(super) fn add(&mut self, ended: &EndedRequest, clock: &Clock) {
        let time = Duration::from_nanos(ended.experienced(clock));
        if self.0.len() == Self::KEPT && self.0.last().is_some_and(|(last, _)| last.time >= time) {
            return;
        }
        let anchor = clock.anchor();
        let ago = clock_nanos(anchor.ticks.0.saturating_sub(ended.start.0), clock);
        let start = Timestamp::from_unix_nanos(anchor.unix.as_unix_nanos().saturating_sub(ago));
        let slow = SlowRequest { start, time, is_error: ended.facts.is_error, labels: Vec::new() };
        let index = self.0.partition_point(|(kept, _)| kept.time >= time);
        self.0.insert(index, (slow, ended.group));
        self.0.truncate(Self::KEPT);
    }

    /// Returns the requests with their labels.
    pub(super) fn to_vec(&self, labels: &RequestLabels) -> Vec<SlowRequest> {
        let with_labels =
            |(slow, group): &(SlowRequest, GroupIndex)| SlowRequest { labels: labels.describe(*group), ..slow.clone() };
        self.0.iter().map(with_labels).collect()
    }
}

/// Requests whose traces are to be written, as they are slower than a limit.
#[derive(Debug)]
pub(super) struct SlowTraces {
    limit: u64,
    folder: PathBuf,
    is_due: bool,
    /// When a trace was last written.
    last: Option<Instant>,
}

impl SlowTraces {
    pub(super) fn new((limit, folder): &(Duration, PathBuf)) -> Self {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Self { limit, folder: folder.clone(), is_due: false, last: None }
    }

    pub(super) fn add(&mut self, ended: &EndedRequest, clock: &Clock) {
        self.is_due |= ended.experienced(clock) > self.limit;
    }

    /// Returns the folder if a trace is to be written now.
    pub(super) fn take(&mut self) -> Option<PathBuf> {
        let is_due = std::mem::take(&mut self.is_due);
        if !is_due || self.last.is_some_and(|last| last.elapsed() < RequestKind::SLOW_EVERY) {
            return None;
        }
        Some(self.folder.clone())
    }

    /// Notes that a trace is being written.
    pub(super) fn wrote(&mut self) {
        self.last = Some(Instant::now());
    }
}

/// The good and bad requests of an objective, exactly.
#[derive(Debug)]
pub(super) struct SloCount {
    kind: KindIndex,
    /// The longest time of a good request, in nanoseconds.
    limit: u64,
    pub(super) counts: RequestCounts,
}

impl SloCount {
    pub(super) fn new(slo: &Slo, kind: KindIndex) -> Self {
        let limit = slo.limit.map_or(u64::MAX, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        Self { kind, limit, counts: RequestCounts::default() }
    }

    pub(super) fn add(&mut self, ended: &EndedRequest, clock: &Clock) {
        if ended.kind == self.kind {
            self.counts.total += 1;
            self.counts.bad += u64::from(ended.facts.is_error || ended.experienced(clock) > self.limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SlowTraces;
    use std::time::Duration;

    #[test]
    fn only_a_trace_that_is_written_begins_a_pause() {
        let mut slow = SlowTraces::new(&(Duration::from_secs(1), "slow".into()));
        assert_eq!(slow.take(), None);
        // One that was refused: the next slow request asks again.
        for _ in 0..2 {
            slow.is_due = true;
            assert_eq!(slow.take(), Some("slow".into()));
            assert_eq!(slow.take(), None);
        }
        slow.wrote();
        slow.is_due = true;
        assert_eq!(slow.take(), None);
    }
}
