//! The spans of a trace, by the ids that the document gives them.

use crate::trace::SpanId;
use rustc_hash::FxHashMap;

/// The spans of a trace, by their `External id`s.
#[derive(Debug)]
pub(super) enum SpanIds {
    /// The id of each span is its index, counted from 1. This is the number of spans.
    InOrder(usize),
    /// The spans with ids from the first on.
    Dense { first: u64, spans: Vec<Option<SpanId>> },
    /// There are few spans for the range of the ids.
    Sparse(FxHashMap<u64, SpanId>),
}

impl SpanIds {
    /// Takes the id of each span, if the ids are the indices, counted from 1.
    pub(super) fn in_order(ids: &[u64]) -> Option<Self> {
        ids.iter().zip(1..).all(|(&id, index)| id == index).then_some(Self::InOrder(ids.len()))
    }

    /// Takes ids, 0 for none, and the span of each. Of spans with the same id, the last counts: torch's annotations may
    /// share one, and the last is the innermost.
    pub(super) fn of(ids: &[u64], spans: &[SpanId]) -> Self {
        let known = || ids.iter().copied().zip(spans.iter().copied()).filter(|&(id, _)| id > 0);
        let first = known().map(|(id, _)| id).min().unwrap_or(0);
        let last = known().map(|(id, _)| id).max().unwrap_or(0);
        match usize::try_from(last - first) {
            Ok(range) if range / 4 <= ids.len() => {
                let mut dense: Vec<Option<SpanId>> = vec![None; range + 1];
                for (id, span) in known() {
                    let place = &mut dense[(id - first) as usize];
                    *place = (*place).max(Some(span));
                }
                Self::Dense { first, spans: dense }
            }
            _ => {
                let mut sparse = FxHashMap::default();
                known().for_each(|(id, span)| {
                    sparse.entry(id).and_modify(|last: &mut SpanId| *last = span.max(*last)).or_insert(span);
                });
                Self::Sparse(sparse)
            }
        }
    }

    /// Whether the ids are the indices of the spans.
    pub(super) fn is_in_order(&self) -> bool {
        matches!(self, Self::InOrder(_))
    }

    /// Returns the span with this id.
    pub(super) fn get(&self, id: u64) -> Option<SpanId> {
        match self {
            Self::InOrder(count) => {
                usize::try_from(id).ok()?.checked_sub(1).filter(|index| index < count).map(SpanId::new)
            }
            Self::Dense { first, spans } => {
                let index = usize::try_from(id.checked_sub(*first)?).ok()?;
                spans.get(index).copied().flatten()
            }
            Self::Sparse(spans) => spans.get(&id).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SpanIds;
    use crate::trace::SpanId;

    fn found(spans: &SpanIds) -> [Option<usize>; 6] {
        [0, 1, 2, 3, 7, 1 << 40].map(|id| spans.get(id).map(SpanId::index))
    }

    #[test]
    fn the_last_span_with_an_id_is_found() {
        assert!(SpanIds::in_order(&[1, 3, 2]).is_none());
        let in_order = SpanIds::in_order(&[1, 2, 3]).unwrap();
        assert_eq!(found(&in_order), [None, Some(0), Some(1), Some(2), None, None]);
        let spans = [4, 3, 2, 1, 0].map(SpanId::new);
        let dense = SpanIds::of(&[2, 0, 7, 2, 3], &spans);
        assert_eq!(found(&dense), [None, None, Some(4), Some(0), Some(2), None]);
        let sparse = SpanIds::of(&[2, 1 << 40, 2, 0], &spans[..4]);
        assert_eq!(found(&sparse), [None, None, Some(4), None, None, Some(3)]);
        assert_eq!(found(&SpanIds::of(&[], &[])), [None; 6]);
    }
}
