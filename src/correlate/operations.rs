//! The table of a trace's operations.

use crate::{
    recording::Origin,
    trace::{BatchId, BatchIds, Batches, Operation, OperationId, Trace},
};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The table of a trace's operations, each of which is in it once, and the ids of its batches.
#[derive(Debug, Default)]
pub(super) struct Operations {
    table: Vec<Arc<Operation>>,
    /// Operations by address, which stays the same as long as the table holds them.
    by_address: FxHashMap<usize, OperationId>,
    batches: BatchIds,
}

impl Operations {
    /// Returns the id of an operation, and adds it if it is new.
    pub(super) fn id(&mut self, operation: Arc<Operation>) -> OperationId {
        let address = Arc::as_ptr(&operation).addr();
        *self.by_address.entry(address).or_insert_with(|| {
            self.table.push(operation);
            OperationId::new(self.table.len() - 1)
        })
    }

    /// Returns the batch that a thread works on, by the origin that it has adopted.
    pub(super) fn batch(&mut self, adopted: Option<Origin>) -> Option<BatchId> {
        self.batches.id(adopted?.batch())
    }

    /// Adds the operations and batches to a trace that already has the operation calls.
    pub(super) fn add_to(self, trace: &mut Trace) {
        trace.operations = self.table;
        trace.batches = Batches::new(&self.batches, &trace.operation_calls, trace.spans.len());
    }
}
