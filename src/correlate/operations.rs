use crate::{
    recording::Origin,
    trace::{BatchId, BatchIds, Batches, Operation, OperationId, Trace},
};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The operations of a trace, each once however often it was told of, and the batches.
#[derive(Debug, Default)]
pub(super) struct Operations {
    table: Vec<Arc<Operation>>,
    /// By where they are in memory: there they stay while they are in the table.
    by_address: FxHashMap<usize, OperationId>,
    batches: BatchIds,
}

impl Operations {
    pub(super) fn id(&mut self, operation: Arc<Operation>) -> OperationId {
        let address = Arc::as_ptr(&operation).addr();
        *self.by_address.entry(address).or_insert_with(|| {
            self.table.push(operation);
            OperationId::new(self.table.len() - 1)
        })
    }

    /// The batch that a thread works on, given what it has adopted.
    pub(super) fn batch(&mut self, adopted: Option<Origin>) -> Option<BatchId> {
        self.batches.id(adopted?.batch())
    }

    /// Gives them to a trace that has the calls.
    pub(super) fn settle(self, trace: &mut Trace) {
        trace.operations = self.table;
        trace.batches = Batches::new(&self.batches, &trace.operation_calls, trace.spans.len());
    }
}
