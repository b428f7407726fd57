//! The GPUs that worked for each span.

use crate::trace::{DeviceId, OperationCall, SpanId, Trace};

/// The GPUs that worked for each span of a trace and those nested in it, and for each batch of operations.
pub(super) struct SpanDevices {
    all: Devices,
    spans: Vec<Devices>,
    batches: Vec<Devices>,
}

/// No GPU, one, or several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Devices {
    #[default]
    None,
    One(DeviceId),
    Several,
}

impl Devices {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, one) | (one, Self::None) => one,
            (one, other) if one == other => one,
            _ => Self::Several,
        }
    }
}

impl SpanDevices {
    /// Finds the GPUs of a trace's work.
    pub(super) fn of(trace: &Trace) -> Self {
        let (spans, batches) = (vec![Devices::None; trace.spans().len()], vec![Devices::None; trace.batches.len()]);
        let mut devices = Self { all: Devices::None, spans, batches };
        for work in trace.work() {
            let device = Devices::One(work.stream().device());
            let span = work.span().map(|span| &mut devices.spans[span.id().index()]);
            let batch = work.batch_id().and_then(|batch| devices.batches.get_mut(batch.index()));
            for seen in [Some(&mut devices.all), span, batch].into_iter().flatten() {
                *seen = seen.and(device);
            }
        }
        for span in (0..devices.spans.len()).rev() {
            if let Some(parent) = trace.span(SpanId::new(span)).parent() {
                let parent = parent.id().index();
                devices.spans[parent] = devices.spans[parent].and(devices.spans[span]);
            }
        }
        devices
    }

    /// Returns the only GPU that worked for a span, or that worked at all if none worked for the span.
    pub(super) fn of_span(&self, span: SpanId) -> Option<DeviceId> {
        self.only(self.spans[span.index()])
    }

    /// Returns the only GPU that worked for the batch of a call, or for its span if none worked for the batch.
    pub(super) fn of_call(&self, call: OperationCall<'_>) -> Option<DeviceId> {
        let of_batch = call.batch_id().map_or(Devices::None, |batch| self.batches[batch.index()]);
        match (of_batch, call.span()) {
            (Devices::None, Some(span)) => self.of_span(span.id()),
            (of_batch, _) => self.only(of_batch),
        }
    }

    fn only(&self, devices: Devices) -> Option<DeviceId> {
        match (devices, self.all) {
            (Devices::One(device), _) | (Devices::None, Devices::One(device)) => Some(device),
            _ => None,
        }
    }
}
