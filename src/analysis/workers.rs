use crate::trace::{DeviceId, OperationCall, SpanId, Trace};

/// Which GPUs worked for something.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Worker {
    #[default]
    None,
    One(DeviceId),
    Several,
}

impl Worker {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, one) | (one, Self::None) => one,
            (one, other) if one == other => one,
            _ => Self::Several,
        }
    }
}

/// Which GPUs worked for the spans of a trace and those nested in them, and for batches of operations.
pub(super) struct Workers {
    all: Worker,
    of_spans: Vec<Worker>,
    of_batches: Vec<Worker>,
}

impl Workers {
    pub(super) fn of(trace: &Trace) -> Self {
        let (of_spans, of_batches) = (vec![Worker::None; trace.spans().len()], vec![Worker::None; trace.batches.len()]);
        let mut workers = Self { all: Worker::None, of_spans, of_batches };
        for work in trace.work() {
            let device = Worker::One(work.stream().device());
            let span = work.span().map(|span| &mut workers.of_spans[span.id().index()]);
            let batch = work.batch_id().and_then(|batch| workers.of_batches.get_mut(batch.index()));
            for worker in [Some(&mut workers.all), span, batch].into_iter().flatten() {
                *worker = worker.and(device);
            }
        }
        for span in (0..workers.of_spans.len()).rev() {
            if let Some(parent) = trace.span(SpanId::new(span)).parent() {
                let parent = parent.id().index();
                workers.of_spans[parent] = workers.of_spans[parent].and(workers.of_spans[span]);
            }
        }
        workers
    }

    /// The GPU that did a span's operations: the one that worked for it, or the only one that worked at all.
    pub(super) fn of_span(&self, span: SpanId) -> Option<DeviceId> {
        self.only(self.of_spans[span.index()])
    }

    /// The GPU that did an operation: the one that worked for its batch, or else for its span.
    pub(super) fn of_operation(&self, told: OperationCall<'_>) -> Option<DeviceId> {
        let of_batch = told.batch_id().map_or(Worker::None, |batch| self.of_batches[batch.index()]);
        match (of_batch, told.span()) {
            (Worker::None, Some(span)) => self.of_span(span.id()),
            (of_batch, _) => self.only(of_batch),
        }
    }

    fn only(&self, worker: Worker) -> Option<DeviceId> {
        match (worker, self.all) {
            (Worker::One(device), _) | (Worker::None, Worker::One(device)) => Some(device),
            _ => None,
        }
    }
}
