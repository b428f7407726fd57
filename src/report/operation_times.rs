use super::{
    op::{self, Op, OpKey},
    operations::Operations,
    texts::{TextId, Texts},
};
use crate::trace::{Operation, OperationId, Trace};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// Every operation that frameworks told of, over all windows.
///
/// There may be a million in a window, so what they say is looked at once for all that say the same, and their batches' time once for
/// each batch.
#[derive(Debug)]
pub(super) struct OperationTimes {
    names: Texts,
    /// Shapes, and sizes of matrix products.
    shapes: Texts,
    by_name: Tallies,
    /// Apart from those by name: a kernel that did one operation in two shapes did it alone by name and not by shape.
    by_shape: Tallies,
}

/// What makes operations the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// None if there were too many names.
    name: Option<TextId>,
    /// None if it is not known or not asked for, or if there were too many shapes.
    op: Option<OpKey>,
}

/// What is added up of the operations that are the same.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) calls: u64,
    pub(super) flops: u64,
    pub(super) alone: Duration,
    pub(super) shared: Duration,
    pub(super) kernels: u64,
}

/// A tally for each key.
#[derive(Debug, Default)]
struct Tallies {
    places: FxHashMap<Key, usize>,
    tallies: Vec<(Key, Tally)>,
}

/// What was done for a batch.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    time: Duration,
    kernels: u64,
}

impl Default for OperationTimes {
    fn default() -> Self {
        let (names, shapes) = (Texts::new(Operations::NAMES), Texts::new(Operations::NAMES));
        Self { names, shapes, by_name: Tallies::default(), by_shape: Tallies::default() }
    }
}

impl OperationTimes {
    pub(super) fn add(&mut self, trace: &Trace) {
        if trace.operations().len() == 0 {
            return;
        }
        let mut calls = vec![0_u64; trace.operations.len()];
        trace.operations().for_each(|told| calls[told.operation_id().index()] += 1);
        let keys: Vec<_> = trace.operations.iter().map(|operation| self.keys(operation)).collect();
        for ((operation, &(name, shape)), calls) in trace.operations.iter().zip(&keys).zip(calls) {
            let flops = operation.fields().op().flops().unwrap_or(0).saturating_mul(calls);
            for tally in [&mut self.by_name.tallies[name].1, &mut self.by_shape.tallies[shape].1] {
                tally.calls += calls;
                tally.flops = tally.flops.saturating_add(flops);
            }
        }
        let mut done = vec![Done::default(); trace.batches.len()];
        for work in trace.work() {
            if let Some(done) = work.batch_id().and_then(|batch| done.get_mut(batch.index())) {
                done.time += work.duration();
                done.kernels += u64::from(work.kernel().is_some());
            }
        }
        self.by_name.share(trace, &done, |operation| keys[operation.index()].0);
        self.by_shape.share(trace, &done, |operation| keys[operation.index()].1);
    }

    /// The places of an operation's tallies, by name and by shape.
    fn keys(&mut self, operation: &Operation) -> (usize, usize) {
        let (name, facts) = (self.names.id(operation.name()), operation.fields().op());
        // The shapes of what has no name say nothing.
        let own = name.and_then(|_| op::shapes(operation.fields()));
        let op = own.and_then(|own| OpKey::new(&own, facts.gemm(), &mut self.shapes));
        let mut key = Key { name, op };
        if self.by_shape.tallies.len() >= Operations::NAMES && !self.by_shape.places.contains_key(&key) {
            key.op = None;
        }
        (self.by_name.place(Key { name, op: None }), self.by_shape.place(key))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.tallies.is_empty()
    }

    /// Names, if they are told apart, with the shapes if those are asked for.
    pub(super) fn iter(&self, by_shape: bool) -> impl Iterator<Item = (Option<&str>, Option<Op<'_>>, &Tally)> {
        let tallies = if by_shape { &self.by_shape.tallies } else { &self.by_name.tallies };
        tallies.iter().map(|(key, tally)| {
            (key.name.map(|name| self.names.get(name)), key.op.map(|op| op.op(&self.shapes)), tally)
        })
    }
}

impl Tallies {
    fn place(&mut self, key: Key) -> usize {
        *self.places.entry(key).or_insert_with(|| {
            self.tallies.push((key, Tally::default()));
            self.tallies.len() - 1
        })
    }

    /// Gives what was done for each batch to each kind of operation in it.
    fn share(&mut self, trace: &Trace, done: &[Done], kind: impl Fn(OperationId) -> usize) {
        // In which batch each was last seen, so that it is there once.
        let mut seen = vec![usize::MAX; self.tallies.len()];
        let mut kinds = Vec::new();
        for (batch, (operations, done)) in trace.batches.iter().zip(done).enumerate() {
            kinds.clear();
            let told = operations.iter().map(|told| kind(trace.operation_calls[told.index()].operation));
            kinds.extend(told.filter(|&kind| std::mem::replace(&mut seen[kind], batch) != batch));
            for &kind in &kinds {
                let tally = &mut self.tallies[kind].1;
                *(if kinds.len() == 1 { &mut tally.alone } else { &mut tally.shared }) += done.time;
                tally.kernels += done.kernels;
            }
        }
    }
}
