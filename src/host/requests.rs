//! What the layer does for spans that are requests.

use super::Host;
use crate::{
    clock::Ticks,
    recording::{Callsite, RegistryId},
    serving::RequestRecorder,
    thread,
    trace::FieldData,
};
use std::sync::Arc;
use tracing::Event;

/// A request whose span was just created.
pub(super) struct NewRequest<'a> {
    recorder: &'a RequestRecorder,
    kind: u8,
    callsite: Callsite,
    /// Read before the fields of the span are formatted, since that is user code and may take long.
    start: Ticks,
}

impl NewRequest<'_> {
    pub(super) fn begin(&self, id: RegistryId, fields: &[FieldData]) {
        self.recorder.begin(id, self.kind, self.callsite, self.start, fields);
    }
}

impl Host {
    /// Has the layer report spans that are requests.
    pub(crate) fn count_requests(&mut self, requests: Arc<RequestRecorder>) {
        self.requests = Some(requests);
    }

    /// Returns the recorder of requests, if they are counted.
    pub(crate) fn requests(&self) -> Option<Arc<RequestRecorder>> {
        self.requests.clone()
    }

    /// Whether requests are counted.
    pub(super) fn counts_requests(&self) -> bool {
        self.requests.is_some()
    }

    /// Returns the request that a new span is, if it is one.
    pub(super) fn new_request(&self, callsite: Callsite) -> Option<NewRequest<'_>> {
        let recorder = self.requests.as_deref()?;
        let kind = recorder.kind_of(callsite.name()).filter(|_| !thread::is_muted())?;
        Some(NewRequest { recorder, kind, callsite, start: self.clock.now() })
    }

    /// Takes fields that were recorded after a span was created.
    pub(super) fn update_request(&self, id: RegistryId, fields: &[FieldData]) {
        if let Some(recorder) = &self.requests {
            recorder.update(id, fields);
        }
    }

    /// Whether an event may say something about a request.
    #[inline]
    pub(super) fn wants_event(&self, event: &Event<'_>) -> bool {
        self.requests.as_ref().is_some_and(|recorder| recorder.wants_event(event.metadata().fields()))
    }

    /// Takes an event, in these spans, innermost first.
    pub(super) fn take_event(&self, event: &Event<'_>, fields: &[FieldData], spans: impl Iterator<Item = RegistryId>) {
        if let Some(recorder) = &self.requests {
            recorder.take_event(event.metadata().fields(), fields, spans);
        }
    }

    /// Ends the request of a span that has closed, if it is one.
    pub(super) fn end_request(&self, id: RegistryId) {
        if let Some(recorder) = &self.requests {
            recorder.end(id, || self.clock.now());
        }
    }
}
