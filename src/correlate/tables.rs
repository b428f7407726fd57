//! The tables of a trace's callsites and operations.

use crate::{
    recording::{Callsite, Origin, level_of},
    trace::{
        BatchId, BatchIds, Batches, CallsiteData, CallsiteId, LoadsData, Operation, OperationId, Trace, convention,
    },
};
use rustc_hash::FxHashMap;
use std::{borrow::Cow, collections::HashMap, sync::Arc};

/// The table of a trace's callsites, each of which is in it once.
#[derive(Debug, Default)]
pub(super) struct Callsites {
    by_address: HashMap<usize, CallsiteId>,
    /// The callsite that was last asked for, since loops come back to the same few.
    latest: Option<(usize, CallsiteId)>,
    table: Vec<CallsiteData>,
    /// The copies of each callsite under other names, by name.
    renamed: HashMap<CallsiteId, HashMap<Arc<str>, CallsiteId>>,
}

impl Callsites {
    /// The size of the table up to which spans get names of their own. Past that they have the name in the source: a
    /// program with so many names puts a counter into them.
    const MAX_RENAMED: usize = 10_000;

    /// Returns the id of a callsite, and adds it if it is new.
    pub(super) fn id(&mut self, callsite: Callsite) -> CallsiteId {
        let address = std::ptr::from_ref(callsite).addr();
        if let Some((latest, id)) = self.latest
            && latest == address
        {
            return id;
        }
        let id = *self.by_address.entry(address).or_insert_with(|| {
            self.table.push(describe(callsite));
            CallsiteId::new(self.table.len() - 1)
        });
        self.latest = Some((address, id));
        id
    }

    /// Returns the index of the field that names the callsite's spans: see [`convention::NAME`].
    pub(super) fn name_field(&self, id: CallsiteId) -> Option<u32> {
        let index = self.table[id.index()].fields.iter().position(|field| field == convention::NAME)?;
        u32::try_from(index).ok()
    }

    /// Returns the id of the callsite under another name, and adds that if it is new.
    pub(super) fn renamed(&mut self, id: CallsiteId, name: &Arc<str>) -> CallsiteId {
        let names = self.renamed.entry(id).or_default();
        if let Some(&renamed) = names.get(name) {
            return renamed;
        }
        if self.table.len() >= Self::MAX_RENAMED {
            return id;
        }
        self.table.push(CallsiteData { name: Cow::Owned(name.to_string()), ..self.table[id.index()].clone() });
        let renamed = CallsiteId::new(self.table.len() - 1);
        names.insert(Arc::clone(name), renamed);
        renamed
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn into_table(self) -> Vec<CallsiteData> {
        self.table
    }
}

fn describe(callsite: Callsite) -> CallsiteData {
    CallsiteData {
        name: Cow::Borrowed(callsite.name()),
        target: Cow::Borrowed(callsite.target()),
        level: level_of(*callsite.level()),
        file: callsite.file().map(Cow::Borrowed),
        line: callsite.line(),
        fields: callsite.fields().iter().map(|field| Cow::Borrowed(field.name())).collect(),
        loads: LoadsData::default(),
    }
}

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
