//! What is known of a thread while its records are read: its open spans, and who owns the records that come next.

use crate::{
    recording::{Origin, RegistryId},
    trace::{ApiCallData, SpanId, TrackId},
};

/// The state of reading the records of one thread.
pub(super) struct ThreadState {
    /// The first of the thread's tracks.
    pub(super) track: TrackId,
    pub(super) open: Vec<(RegistryId, SpanId)>,
    pub(super) calls: Vec<(ApiCallData, Option<Origin>)>,
    pub(super) adopted: Option<Origin>,
    pub(super) owner: Owner,
    /// The thread's CPU time at the enters of spans that are open.
    pub(super) cpu_starts: Vec<(SpanId, u64)>,
    /// The CPU time of the span that is exited next.
    pub(super) cpu: Option<(SpanId, u64)>,
}

/// The owner of the fields, contexts and backtraces that come next in a thread's records.
pub(super) enum Owner {
    Span(SpanId),
    /// All open instances of a span. Only a context comes next, and no fields.
    Instances(Vec<SpanId>),
    Event,
    Update,
    /// A span or event after the end of the window, which is left out.
    Nobody,
}

impl ThreadState {
    pub(super) fn new(track: TrackId) -> Self {
        let (open, calls, cpu_starts) = Default::default();
        Self { track, open, calls, adopted: None, owner: Owner::Nobody, cpu_starts, cpu: None }
    }

    /// The innermost span that is open.
    pub(super) fn innermost(&self) -> Option<SpanId> {
        self.open.last().map(|&(_, span)| span)
    }

    /// Returns the CPU time of the span with this id that is about to be exited, if it was read at its enter.
    pub(super) fn cpu_time(&mut self, id: RegistryId, nanos: u64) -> Option<(SpanId, u64)> {
        let span = self.instances(id).next_back()?;
        let index = self.cpu_starts.iter().rposition(|(timed, _)| *timed == span)?;
        let (_, start) = self.cpu_starts.remove(index);
        Some((span, nanos.saturating_sub(start)))
    }

    /// The open instances of a span, the one entered last at the end.
    pub(super) fn instances(&self, id: RegistryId) -> impl DoubleEndedIterator<Item = SpanId> {
        self.open.iter().filter(move |(open, _)| *open == id).map(|&(_, span)| span)
    }
}
