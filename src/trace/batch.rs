use super::{OperationCallData, OperationCallId, SpanId};
use rustc_hash::FxHashMap;

/// Names a batch of one trace: operations that a framework ran together, and the calls that it made for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BatchId(u32);

impl BatchId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Gives each batch an id. A framework counts its batches through the whole run; a trace has those of a window, from 0.
#[derive(Debug, Default)]
pub(crate) struct BatchIds {
    by_number: FxHashMap<u32, BatchId>,
    /// What is told of a batch comes together.
    latest: Option<(u32, BatchId)>,
}

impl BatchIds {
    /// The id of the batch with this number, where 0 is none.
    pub(crate) fn id(&mut self, number: u32) -> Option<BatchId> {
        if let Some((latest, id)) = self.latest
            && latest == number
        {
            return Some(id);
        }
        if number == 0 {
            return None;
        }
        let next = BatchId(u32::try_from(self.by_number.len()).unwrap_or(u32::MAX));
        let id = *self.by_number.entry(number).or_insert(next);
        self.latest = Some((number, id));
        Some(id)
    }
}

/// The operations of each batch, and the spans that asked for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batches {
    operations: Parts<OperationCallId>,
    spans: Parts<SpanId>,
}

impl Batches {
    /// Those of these calls, which have `spans` spans.
    pub(crate) fn new(ids: &BatchIds, calls: &[OperationCallData], spans: usize) -> Self {
        let batches = ids.by_number.len();
        if calls.is_empty() || batches == 0 {
            return Self::default();
        }
        let batched = calls.iter().enumerate();
        let batched = batched.filter_map(|(place, call)| Some((call.batch?.index(), OperationCallId::new(place))));
        let operations = Parts::sorted(batches, batched);
        // For which batch a span was last seen, so that it is there once.
        let mut seen = vec![usize::MAX; spans];
        let mut of_spans = Parts::default();
        for batch in 0..batches {
            let asked = operations.of(batch).iter().filter_map(|call| calls[call.index()].span);
            let new = asked.filter(|span| std::mem::replace(&mut seen[span.index()], batch) != batch);
            of_spans.push(new);
        }
        Self { operations, spans: of_spans }
    }

    /// What was to be done in a batch, thread by thread, in order of time.
    pub(crate) fn operations(&self, batch: BatchId) -> &[OperationCallId] {
        self.operations.of(batch.index())
    }

    /// The spans that asked for it, each once.
    pub(crate) fn spans(&self, batch: BatchId) -> &[SpanId] {
        self.spans.of(batch.index())
    }

    /// What was to be done in each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[OperationCallId]> {
        (0..self.len()).map(|batch| self.operations.of(batch))
    }

    /// How many have operations, or come before one that has. There may be calls of others.
    pub(crate) fn len(&self) -> usize {
        self.operations.ends.len()
    }
}

/// Lists of things, one after the other.
#[derive(Clone, Debug)]
struct Parts<T> {
    /// Where each list ends, and the next begins.
    ends: Vec<u32>,
    things: Vec<T>,
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self { ends: Vec::new(), things: Vec::new() }
    }
}

impl<T: Copy> Parts<T> {
    /// So many lists of things that come in any order, each with the list it is for.
    fn sorted(lists: usize, things: impl Iterator<Item = (usize, T)> + Clone) -> Self {
        // First where each begins; when all is in its place, that is where it ends.
        let mut ends = vec![0_u32; lists + 1];
        things.clone().for_each(|(list, _)| ends[list + 1] += 1);
        (0..lists).for_each(|list| ends[list + 1] += ends[list]);
        let mut sorted: Vec<T> = Vec::new();
        if let Some((_, first)) = things.clone().next() {
            sorted.resize(ends[lists] as usize, first);
        }
        for (list, thing) in things {
            sorted[ends[list] as usize] = thing;
            ends[list] += 1;
        }
        ends.truncate(lists);
        Self { ends, things: sorted }
    }

    /// Adds a list.
    fn push(&mut self, list: impl Iterator<Item = T>) {
        self.things.extend(list);
        self.ends.push(u32::try_from(self.things.len()).unwrap_or(u32::MAX));
    }

    /// The list in this place; empty if there is none.
    fn of(&self, list: usize) -> &[T] {
        let Some(&end) = self.ends.get(list) else { return &[] };
        let start = list.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.things[start as usize..end as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::{BatchIds, Batches};
    use crate::trace::{Attribution, OperationCallData, OperationId, SpanId, Timestamp, TrackId};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_batch_has_what_was_told_in_it(told in prop::collection::vec((0_u32..6, prop::option::of(0_usize..4)), 0..60)) {
            let mut ids = BatchIds::default();
            let calls: Vec<_> = told.iter().map(|&(number, span)| OperationCallData {
                operation: OperationId::new(0),
                track: TrackId::new(0),
                at: Timestamp::default(),
                attribution: Attribution::Unattributed,
                span: span.map(SpanId::new),
                step: None,
                // As a framework counts, which is from anywhere.
                batch: ids.id(if number == 0 { 0 } else { u32::MAX - number }),
            }).collect();
            let batches = Batches::new(&ids, &calls, 4);
            for number in 1..6 {
                let of_batch = told.iter().enumerate().filter(|(_, (of, _))| *of == number);
                let expected: Vec<_> = of_batch.clone().map(|(place, _)| place).collect();
                let id = ids.id(u32::MAX - number).unwrap();
                let seen: Vec<_> = batches.operations(id).iter().map(|call| call.index()).collect();
                prop_assert_eq!(seen, expected);
                let mut spans = Vec::new();
                for span in of_batch.filter_map(|(_, (_, span))| *span) {
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
