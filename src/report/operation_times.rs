//! GPU time by operation and shape, over all windows.

use super::{
    interner::{Interner, TextId},
    limits,
    shapes::{Shapes, ShapesId, argument_shapes},
};
use crate::trace::{Operation, OperationId, Trace};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// The GPU time of the operations of all windows, by their name and by their name and shapes.
///
/// A window may have a million calls of operations. The fields of an operation are read once for all its calls, and the
/// GPU time of a batch is added up once for all its operations.
#[derive(Debug)]
pub(super) struct OperationTimes {
    names: Interner,
    shapes: Interner,
    by_name: Tallies,
    /// These cannot be summed up to `by_name`: the time of a kernel that did one operation in two shapes is alone by
    /// name and shared by shape.
    by_shape: Tallies,
}

/// The identity of a tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TallyKey {
    /// `None` if there were too many names.
    name: Option<TextId>,
    /// `None` if they are not known or not used, or if there were too many.
    shapes: Option<ShapesId>,
}

/// Times and counts, added up over calls of operations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OperationTally {
    pub(super) calls: u64,
    pub(super) flops: u64,
    pub(super) alone: Duration,
    pub(super) shared: Duration,
    pub(super) kernels: u64,
}

/// A tally for each key.
#[derive(Debug, Default)]
struct Tallies {
    indices: FxHashMap<TallyKey, usize>,
    tallies: Vec<(TallyKey, OperationTally)>,
}

/// The indices of the tallies of an operation.
#[derive(Clone, Copy, Debug)]
struct TallyIndices {
    by_name: usize,
    by_shape: usize,
}

/// The GPU work of a batch.
#[derive(Clone, Copy, Debug, Default)]
struct BatchWork {
    time: Duration,
    kernels: u64,
}

impl Default for OperationTimes {
    fn default() -> Self {
        let (names, shapes) = (Interner::new(limits::NAMES), Interner::new(limits::NAMES));
        Self { names, shapes, by_name: Tallies::default(), by_shape: Tallies::default() }
    }
}

impl OperationTimes {
    /// Adds the operations of a window.
    pub(super) fn add(&mut self, trace: &Trace) {
        if trace.operations().len() == 0 {
            return;
        }
        let mut calls = vec![0_u64; trace.operations.len()];
        trace.operations().for_each(|call| calls[call.operation_id().index()] += 1);
        let indices: Vec<_> = trace.operations.iter().map(|operation| self.indices(operation)).collect();
        for ((operation, indices), calls) in trace.operations.iter().zip(&indices).zip(calls) {
            let flops = operation.fields().op().flops().unwrap_or(0).saturating_mul(calls);
            let (_, by_name) = &mut self.by_name.tallies[indices.by_name];
            let (_, by_shape) = &mut self.by_shape.tallies[indices.by_shape];
            for tally in [by_name, by_shape] {
                tally.calls += calls;
                tally.flops = tally.flops.saturating_add(flops);
            }
        }
        let mut batches = vec![BatchWork::default(); trace.batches.len()];
        for work in trace.work() {
            if let Some(batch) = work.batch_id().and_then(|batch| batches.get_mut(batch.index())) {
                batch.time += work.duration();
                batch.kernels += u64::from(work.kernel().is_some());
            }
        }
        self.by_name.add_batches(trace, &batches, |operation| indices[operation.index()].by_name);
        self.by_shape.add_batches(trace, &batches, |operation| indices[operation.index()].by_shape);
    }

    /// Returns the tallies of an operation, which are added if they are new.
    fn indices(&mut self, operation: &Operation) -> TallyIndices {
        let name = self.names.intern(operation.name());
        // Operations past the limit of names are one row, whatever their shapes.
        let arguments = name.and_then(|_| argument_shapes(operation.fields()));
        let gemm = operation.fields().op().gemm();
        let shapes = arguments.and_then(|arguments| ShapesId::intern(&arguments, gemm, &mut self.shapes));
        let mut key = TallyKey { name, shapes };
        if self.by_shape.tallies.len() >= limits::NAMES && !self.by_shape.indices.contains_key(&key) {
            key.shapes = None;
        }
        let by_name = self.by_name.index(TallyKey { name, shapes: None });
        TallyIndices { by_name, by_shape: self.by_shape.index(key) }
    }

    /// Returns whether there were no operations.
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.tallies.is_empty()
    }

    /// Returns the name, the shapes if asked for, and the tally of all operations. The name is `None` past the limit of
    /// names.
    pub(super) fn iter(
        &self,
        by_shape: bool,
    ) -> impl Iterator<Item = (Option<&str>, Option<Shapes<'_>>, &OperationTally)> {
        let tallies = if by_shape { &self.by_shape.tallies } else { &self.by_name.tallies };
        tallies.iter().map(|(key, tally)| {
            let name = key.name.map(|name| self.names.get(name));
            (name, key.shapes.map(|shapes| shapes.resolve(&self.shapes)), tally)
        })
    }
}

impl Tallies {
    /// Returns the index of the tally with this key, which is added if it is new.
    fn index(&mut self, key: TallyKey) -> usize {
        *self.indices.entry(key).or_insert_with(|| {
            self.tallies.push((key, OperationTally::default()));
            self.tallies.len() - 1
        })
    }

    /// Adds the GPU work of each batch to each tally that has operations in the batch. `index` returns the tally of an
    /// operation.
    fn add_batches(&mut self, trace: &Trace, batches: &[BatchWork], index: impl Fn(OperationId) -> usize) {
        // The batch that each tally was last seen in, so that a batch has it once.
        let mut seen = vec![usize::MAX; self.tallies.len()];
        let mut in_batch = Vec::new();
        for (batch, (calls, work)) in trace.batches.iter().zip(batches).enumerate() {
            in_batch.clear();
            let tallies = calls.iter().map(|call| index(trace.operation_calls[call.index()].operation));
            in_batch.extend(tallies.filter(|&tally| std::mem::replace(&mut seen[tally], batch) != batch));
            for &tally in &in_batch {
                let (_, tally) = &mut self.tallies[tally];
                let time = if in_batch.len() == 1 { &mut tally.alone } else { &mut tally.shared };
                *time += work.time;
                tally.kernels += work.kernels;
            }
        }
    }
}
