//! Batches: operations that a framework ran together.

use super::{OperationCallData, OperationCallId, SpanId, id::define_id};
use rustc_hash::FxHashMap;

define_id! {
    /// Names a batch of one trace: operations that a framework ran together, and the calls it made for them.
    pub(crate) struct BatchId;

    /// The index of the batch in [`Batches`].
    pub(crate) fn index;
}

/// Assigns an id to each batch. A framework numbers its batches across the whole run; the ids of a trace count those of
/// its window from 0.
#[derive(Debug, Default)]
pub(crate) struct BatchIds {
    by_number: FxHashMap<u32, BatchId>,
    /// The number last requested, since the operations of a batch come one after another.
    latest: Option<(u32, BatchId)>,
}

impl BatchIds {
    /// Returns the id of the batch with this number; `None` for 0, which means no batch.
    pub(crate) fn id(&mut self, number: u32) -> Option<BatchId> {
        if let Some((latest, id)) = self.latest
            && latest == number
        {
            return Some(id);
        }
        if number == 0 {
            return None;
        }
        let next = BatchId::new(self.by_number.len());
        let id = *self.by_number.entry(number).or_insert(next);
        self.latest = Some((number, id));
        Some(id)
    }
}

/// The operations of each batch, and the spans that requested them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batches {
    operations: Lists<OperationCallId>,
    spans: Lists<SpanId>,
}

impl Batches {
    /// Sorts the calls of a trace into batches. `span_count` is the number of spans in the trace.
    pub(crate) fn new(ids: &BatchIds, calls: &[OperationCallData], span_count: usize) -> Self {
        let batches = ids.by_number.len();
        if calls.is_empty() || batches == 0 {
            return Self::default();
        }
        let batched = calls.iter().enumerate();
        let batched = batched.filter_map(|(index, call)| Some((call.batch?.index(), OperationCallId::new(index))));
        let operations = Lists::sorted(batches, batched);
        // The batch in which each span was last seen, so that a batch lists it once.
        let mut seen = vec![usize::MAX; span_count];
        let mut spans = Lists::default();
        for batch in 0..batches {
            let asking = operations.get(batch).iter().filter_map(|call| calls[call.index()].span);
            let new = asking.filter(|span| std::mem::replace(&mut seen[span.index()], batch) != batch);
            spans.push(new);
        }
        Self { operations, spans }
    }

    /// The operations of a batch, thread by thread, in chronological order.
    pub(crate) fn operations(&self, batch: BatchId) -> &[OperationCallId] {
        self.operations.get(batch.index())
    }

    /// The spans that requested the operations of a batch, without duplicates.
    pub(crate) fn spans(&self, batch: BatchId) -> &[SpanId] {
        self.spans.get(batch.index())
    }

    /// The operations of each batch.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[OperationCallId]> {
        (0..self.len()).map(|batch| self.operations.get(batch))
    }

    /// The number of batches, including those that have only API calls; 0 if no operation was reported.
    pub(crate) fn len(&self) -> usize {
        self.operations.ends.len()
    }
}

/// Several lists, stored back to back in one vector.
#[derive(Clone, Debug)]
struct Lists<T> {
    /// The index at which each list ends and the next begins.
    ends: Vec<u32>,
    items: Vec<T>,
}

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Self { ends: Vec::new(), items: Vec::new() }
    }
}

impl<T: Copy> Lists<T> {
    /// Creates `lists` lists from items in any order, each with the index of its list.
    fn sorted(lists: usize, items: impl Iterator<Item = (usize, T)> + Clone) -> Self {
        // A counting sort: at first this holds where each list begins, and once all items are placed, where it ends.
        let mut ends = vec![0_u32; lists + 1];
        items.clone().for_each(|(list, _)| ends[list + 1] += 1);
        (0..lists).for_each(|list| ends[list + 1] += ends[list]);
        let mut sorted: Vec<T> = Vec::new();
        if let Some((_, first)) = items.clone().next() {
            sorted.resize(ends[lists] as usize, first);
        }
        for (list, item) in items {
            sorted[ends[list] as usize] = item;
            ends[list] += 1;
        }
        ends.truncate(lists);
        Self { ends, items: sorted }
    }

    /// Adds a list.
    fn push(&mut self, list: impl Iterator<Item = T>) {
        self.items.extend(list);
        self.ends.push(u32::try_from(self.items.len()).unwrap_or(u32::MAX));
    }

    /// Returns the list with this index; empty if there is none.
    fn get(&self, list: usize) -> &[T] {
        let Some(&end) = self.ends.get(list) else { return &[] };
        let start = list.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.items[start as usize..end as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::{BatchIds, Batches};
    use crate::trace::{Attribution, OperationCallData, OperationId, SpanId, Timestamp, TrackId};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_batch_has_the_operations_reported_in_it(
            reported in prop::collection::vec((0_u32..6, prop::option::of(0_usize..4)), 0..60),
        ) {
            let mut ids = BatchIds::default();
            let calls: Vec<_> = reported.iter().map(|&(number, span)| OperationCallData {
                operation: OperationId::new(0),
                track: TrackId::new(0),
                at: Timestamp::default(),
                attribution: Attribution::Unattributed,
                span: span.map(SpanId::new),
                step: None,
                // A framework may start counting at any number.
                batch: ids.id(if number == 0 { 0 } else { u32::MAX - number }),
            }).collect();
            let batches = Batches::new(&ids, &calls, 4);
            for number in 1..6 {
                let in_batch = reported.iter().enumerate().filter(|(_, (batch, _))| *batch == number);
                let expected: Vec<_> = in_batch.clone().map(|(index, _)| index).collect();
                let id = ids.id(u32::MAX - number).unwrap();
                let seen: Vec<_> = batches.operations(id).iter().map(|call| call.index()).collect();
                prop_assert_eq!(seen, expected);
                let mut spans = Vec::new();
                for span in in_batch.filter_map(|(_, (_, span))| *span) {
                    if !spans.contains(&span) {
                        spans.push(span);
                    }
                }
                prop_assert_eq!(batches.spans(id).iter().map(|span| span.index()).collect::<Vec<_>>(), spans);
            }
            prop_assert!(ids.id(0).is_none());
        }
    }
}
