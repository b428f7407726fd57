//! An order of spans in which callers come first.

use super::{SpanId, Trace};

impl Trace {
    /// Returns the ids of all spans, each after its parent and its caller; `None` if there is a cycle, which only a
    /// file that was tampered with has.
    pub(crate) fn caller_order(&self) -> Option<Vec<SpanId>> {
        let all = (0..self.spans.len()).map(SpanId::new);
        if self.callers.is_empty() {
            return Some(all.collect());
        }
        let (mut order, mut states) = (Vec::with_capacity(self.spans.len()), vec![State::New; self.spans.len()]);
        let mut waiting = Vec::new();
        for first in all {
            waiting.push(first);
            while let Some(&span) = waiting.last() {
                let before = [self.spans[span.index()].parent, self.callers.get(&span).copied().flatten()];
                let missing = before.into_iter().flatten().find(|span| states[span.index()] != State::Done);
                match missing.map(|span| (span, states[span.index()])) {
                    _ if states[span.index()] == State::Done => drop(waiting.pop()),
                    None => {
                        states[span.index()] = State::Done;
                        order.push(span);
                        waiting.pop();
                    }
                    Some((_, State::Waiting)) => return None,
                    Some((missing, _)) => {
                        states[span.index()] = State::Waiting;
                        waiting.push(missing);
                    }
                }
            }
        }
        Some(order)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    /// It comes after a span that is being visited.
    Waiting,
    Done,
}

#[cfg(test)]
mod tests {
    use crate::trace::{
        SpanId,
        sample::{gpu_trace, set_caller, set_parent},
    };

    #[test]
    fn a_span_comes_after_its_parent_and_its_caller() {
        let mut trace = gpu_trace();
        let ids =
            |order: Option<Vec<SpanId>>| -> Option<Vec<_>> { Some(order?.into_iter().map(SpanId::index).collect()) };
        let all: Vec<_> = (0..trace.spans.len()).collect();
        assert_eq!(ids(trace.caller_order()), Some(all.clone()));
        set_caller(&mut trace, 0, Some(3));
        trace.spans[3].parent = None;
        let order = ids(trace.caller_order()).unwrap();
        let place = |span| order.iter().position(|other| *other == span);
        assert!(place(3) < place(0) && order.len() == all.len(), "{order:?}");
        set_parent(&mut trace, 3, 0);
        assert_eq!(ids(trace.caller_order()), None);
        set_caller(&mut trace, 0, None);
        assert_eq!(ids(trace.caller_order()), Some(all));
    }
}
