//! The share of each kernel in the floating-point operations and bytes of its span.

use crate::trace::{BatchId, SpanId, Trace, Work};
use rustc_hash::FxHashMap;

/// The floating-point operations and bytes of each kernel.
///
/// As in the report, if the fields of a span state them, those of nested spans do not count. A framework operation
/// outside such spans counts for its batch. It is unknown how much each kernel of a span or batch did, so they have
/// equal shares.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// For each span, the outermost span that states them: one around it, or the span itself.
    stating: Vec<Option<SpanId>>,
    spans: FxHashMap<SpanId, Amount>,
    batches: FxHashMap<BatchId, Amount>,
}

/// The sum over all kernels of a span or batch.
#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    flops: u64,
    bytes: u64,
    kernels: u64,
}

/// The operations and bytes of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Share {
    pub(super) flops: u64,
    pub(super) bytes: u64,
}

impl Shares {
    pub(super) fn new(trace: &Trace) -> Self {
        let mut shares = Self::default();
        for span in trace.spans() {
            let around = span.parent().and_then(|parent| shares.stating[parent.id().index()]);
            let op = span.fields().op();
            let stated = op.flops().filter(|_| around.is_none());
            if let Some(flops) = stated {
                let amount = Amount { flops, bytes: op.bytes().unwrap_or(0), kernels: 0 };
                shares.spans.insert(span.id(), amount);
            }
            shares.stating.push(around.or_else(|| stated.map(|_| span.id())));
        }
        for call in trace.operations() {
            let around = call.span().and_then(|span| shares.stating[span.id().index()]);
            let Some(batch) = call.batch_id().filter(|_| around.is_none()) else { continue };
            let (op, amount) = (call.fields().op(), shares.batches.entry(batch).or_default());
            amount.flops = amount.flops.saturating_add(op.flops().unwrap_or(0));
            amount.bytes = amount.bytes.saturating_add(op.bytes().unwrap_or(0));
        }
        if !(shares.spans.is_empty() && shares.batches.is_empty()) {
            for work in trace.work().filter(|work| work.kernel().is_some()) {
                if let Some(amount) = shares.amount(work) {
                    amount.kernels += 1;
                }
            }
        }
        shares
    }

    fn amount(&mut self, work: Work<'_>) -> Option<&mut Amount> {
        match work.span().and_then(|span| self.stating[span.id().index()]) {
            Some(span) => self.spans.get_mut(&span),
            None => self.batches.get_mut(&work.batch_id()?),
        }
    }

    /// Returns the share of a kernel, or zero for other work.
    pub(super) fn of(&mut self, work: Work<'_>) -> Share {
        let amount = work.kernel().and_then(|_| self.amount(work)).copied().unwrap_or_default();
        let part = |all: u64| all.checked_div(amount.kernels).unwrap_or(0);
        Share { flops: part(amount.flops), bytes: part(amount.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Share, Shares};
    use crate::trace::{
        Trace,
        sample::{gpu_trace, operations_trace, set_flops},
    };

    fn flops(trace: &Trace) -> Vec<u64> {
        let mut shares = Shares::new(trace);
        trace.work().map(|work| shares.of(work).flops).collect()
    }

    #[test]
    fn kernels_share_what_their_span_states() {
        let mut trace = gpu_trace();
        set_flops(&mut trace, 1, 600, "f32");
        set_flops(&mut trace, 2, 900, "f32");
        // On stream 7 a copy and two kernels in the first step, on stream 8 a kernel of `backward`, alongside a fill.
        assert_eq!(flops(&trace), [0, 600, 450, 0, 0, 0, 0, 450, 0, 0, 0]);
    }

    #[test]
    fn the_outer_span_counts_for_nested_ones() {
        let mut trace = gpu_trace();
        set_flops(&mut trace, 0, 900, "f32");
        set_flops(&mut trace, 2, 5, "f32");
        assert_eq!(flops(&trace)[..3], [0, 300, 300]);
    }

    #[test]
    fn operations_count_where_no_span_states_anything() {
        let mut trace = operations_trace();
        assert_eq!(flops(&trace)[..3], [0, 335_000_000, 670_000_016]);
        set_flops(&mut trace, 0, 6, "f32");
        assert_eq!(flops(&trace)[..3], [0, 2, 2]);
    }

    #[test]
    fn nothing_is_stated() {
        let mut shares = Shares::new(&gpu_trace());
        assert!(gpu_trace().work().all(|work| shares.of(work) == Share::default()));
    }
}
