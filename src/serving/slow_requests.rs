//! The slowest requests, and the windows that recorded them.

use super::{
    request_labels::{GroupIndex, RequestLabels},
    request_shards::{EndedRequest, clock_nanos},
};
use crate::{
    clock::{Clock, Ticks},
    span_table::RegistryId,
    trace::{SpanId, Timestamp, TraceContext},
};
use serde::{Serialize, Serializer};
use std::{collections::BTreeSet, ops::RangeInclusive, path::PathBuf, time::Duration};

/// One of the slowest requests of its kind, to be looked up in traces and logs.
///
/// ```
/// use kernspan::serving::SlowRequest;
///
/// /// Where to look for what made the request slow.
/// fn trace_of(request: &SlowRequest) -> Option<String> {
///     let recorded = request.recorded.as_ref()?;
///     match (recorded.files.first(), recorded.context) {
///         (Some(file), _) => Some(file.display().to_string()),
///         (None, Some(context)) => Some(format!("{:032x}", context.trace_id)),
///         (None, None) => None,
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SlowRequest {
    /// The creation of its span, on the wall clock, in nanoseconds since 1970 when serialized.
    #[serde(serialize_with = "unix_nanos")]
    pub start: Timestamp,
    /// The time from the intended start, or else from the creation of the span, to its close.
    pub time: Duration,
    /// The time from the creation of the span to its close.
    pub latency: Duration,
    /// Whether it failed.
    pub is_error: bool,
    /// The fields that requests are broken down by, and their values.
    pub labels: Vec<(String, String)>,
    /// Where it was recorded: in the first window that has an enter of its span and was exported after it had ended.
    pub recorded: Option<RecordedSpan>,
}

/// The span of a request in the trace of a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecordedSpan {
    /// The number of the window.
    pub window: u32,
    /// The first enter of the request's span in it.
    #[serde(serialize_with = "index")]
    pub span: SpanId,
    /// The number of the step that the enter is in, if any.
    pub step: Option<u64>,
    /// The OpenTelemetry span of a `tracing-opentelemetry` layer, with its feature, if there is one. When serialized,
    /// `trace_id` and `span_id` in hexadecimal.
    #[serde(serialize_with = "hex")]
    pub context: Option<TraceContext>,
    /// The files that were written for the window, such as by
    /// [`RequestKind::write_slower_than`](super::RequestKind::write_slower_than), less those that a
    /// [limit](crate::ProfilerBuilder::disk_limit_bytes) has deleted.
    pub files: Vec<PathBuf>,
}

fn unix_nanos<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(at.as_unix_nanos())
}

fn index<S: Serializer>(span: &SpanId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(span.index() as u64)
}

fn hex<S: Serializer>(context: &Option<TraceContext>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Ids {
        trace_id: String,
        span_id: String,
        sampled: bool,
    }
    let ids = context.map(|TraceContext { trace_id, span_id, sampled }| Ids {
        trace_id: format!("{trace_id:032x}"),
        span_id: format!("{span_id:016x}"),
        sampled,
    });
    ids.serialize(serializer)
}

/// The slowest requests of a kind, slowest first.
#[derive(Debug)]
pub(super) struct SlowestRequests(Vec<KeptRequest>);

/// A request that is kept, and what its span is found by.
#[derive(Debug)]
struct KeptRequest {
    request: SlowRequest,
    group: GroupIndex,
    id: RegistryId,
    lasted: RangeInclusive<Ticks>,
}

impl SlowestRequests {
    /// The number of requests that are kept.
    const KEPT: usize = 8;

    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(Self::KEPT + 1))
    }

    /// Adds a request if it is one of the slowest. It does not allocate, since a thread may add up its own requests.
    pub(super) fn add(&mut self, ended: &EndedRequest, clock: &Clock) {
        let time = Duration::from_nanos(ended.experienced(clock));
        if self.0.len() == Self::KEPT && self.0.last().is_some_and(|last| last.request.time >= time) {
            return;
        }
        let anchor = clock.anchor();
        let ago = clock_nanos(anchor.ticks.0.saturating_sub(ended.start.0), clock);
        let request = SlowRequest {
            start: Timestamp::from_unix_nanos(anchor.unix.as_unix_nanos().saturating_sub(ago)),
            time,
            latency: Duration::from_nanos(ended.latency(clock)),
            is_error: ended.facts.is_error,
            labels: Vec::new(),
            recorded: None,
        };
        let index = self.0.partition_point(|kept| kept.request.time >= time);
        let (group, id, lasted) = (ended.group, ended.id, ended.start..=ended.end);
        self.0.insert(index, KeptRequest { request, group, id, lasted });
        self.0.truncate(Self::KEPT);
    }

    /// Returns the requests with their labels.
    pub(super) fn to_vec(&self, labels: &RequestLabels) -> Vec<SlowRequest> {
        let with_labels = |KeptRequest { request, group, .. }: &KeptRequest| SlowRequest {
            labels: labels.describe(*group),
            ..request.clone()
        };
        self.0.iter().map(with_labels).collect()
    }

    /// Returns the requests of which it is not known where they were recorded.
    pub(super) fn unknown(&self) -> impl Iterator<Item = SlowSpan> {
        let unknown = self.0.iter().filter(|kept| kept.request.recorded.is_none());
        unknown.map(|kept| SlowSpan { id: kept.id, lasted: kept.lasted.clone(), entered: None })
    }

    /// Returns the requests without their labels.
    pub(super) fn requests(&self) -> impl Iterator<Item = &SlowRequest> {
        self.0.iter().map(|kept| &kept.request)
    }

    /// Sets where a request was recorded.
    pub(super) fn set_recorded(&mut self, span: &SlowSpan, recorded: RecordedSpan) {
        let is_same = |kept: &&mut KeptRequest| kept.id == span.id && kept.lasted == span.lasted;
        if let Some(kept) = self.0.iter_mut().find(is_same) {
            kept.request.recorded = Some(recorded);
        }
    }

    /// Forgets files that have been deleted.
    pub(super) fn remove_files(&mut self, files: &BTreeSet<PathBuf>) {
        let recorded = self.0.iter_mut().filter_map(|kept| kept.request.recorded.as_mut());
        recorded.for_each(|span| span.files.retain(|file| !files.contains(file)));
    }
}

/// The span of a slow request, as records of a window know it.
#[derive(Debug)]
pub(super) struct SlowSpan {
    id: RegistryId,
    lasted: RangeInclusive<Ticks>,
    /// The first enter among the records.
    entered: Option<Ticks>,
}

impl SlowSpan {
    pub(super) fn id(&self) -> RegistryId {
        self.id
    }

    pub(super) fn entered(&self) -> Option<Ticks> {
        self.entered
    }

    /// Notes an enter. Its id may be that of another request: the registry reuses them.
    pub(super) fn note_enter(&mut self, id: RegistryId, at: Ticks) {
        if id == self.id && self.lasted.contains(&at) {
            self.entered = Some(self.entered.map_or(at, |first| first.min(at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{SlowSpan, Ticks};

    #[test]
    fn enters_of_another_request_with_the_same_id_are_not_taken() {
        let mut span = SlowSpan { id: 7, lasted: Ticks(100)..=Ticks(200), entered: None };
        [(7, 99), (8, 150), (7, 201)].into_iter().for_each(|(id, at)| span.note_enter(id, Ticks(at)));
        assert_eq!(span.entered(), None);
        [180, 120, 150].into_iter().for_each(|at| span.note_enter(7, Ticks(at)));
        assert_eq!(span.entered(), Some(Ticks(120)));
    }
}
