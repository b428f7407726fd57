//! Floating-point operations and bytes of each kernel.

use crate::trace::{BatchId, SpanId, Trace, Work};
use rustc_hash::FxHashMap;

/// The floating-point operations and bytes of each kernel.
///
/// As in the report, a span has as many as its fields say, and then those nested in it do not count. An operation
/// outside of such spans counts for its batch. It is not known how much each of several kernels did, so they have equal
/// shares.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// The outermost span with such fields around each span, or the span itself.
    counted: Vec<Option<SpanId>>,
    spans: FxHashMap<SpanId, Amount>,
    batches: FxHashMap<BatchId, Amount>,
}

/// The work of several kernels together.
#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    flops: u64,
    bytes: u64,
    kernels: u64,
}

/// The work of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Share {
    pub(super) flops: u64,
    pub(super) bytes: u64,
}

impl Shares {
    pub(super) fn new(trace: &Trace) -> Self {
        let mut shares = Self::default();
        for span in trace.spans() {
            let around = span.parent().and_then(|parent| shares.counted[parent.id().index()]);
            let op = span.fields().op();
            let says = op.flops().filter(|_| around.is_none());
            if let Some(flops) = says {
                let amount = Amount { flops, bytes: op.bytes().unwrap_or(0), kernels: 0 };
                shares.spans.insert(span.id(), amount);
            }
            shares.counted.push(around.or_else(|| says.map(|_| span.id())));
        }
        for told in trace.operations() {
            let around = told.span().and_then(|span| shares.counted[span.id().index()]);
            let Some(batch) = told.batch_id().filter(|_| around.is_none()) else { continue };
            let (op, amount) = (told.fields().op(), shares.batches.entry(batch).or_default());
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
        match work.span().and_then(|span| self.counted[span.id().index()]) {
            Some(span) => self.spans.get_mut(&span),
            None => self.batches.get_mut(&work.batch_id()?),
        }
    }

    /// The share of a kernel; zero for other work.
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
    fn kernels_share_what_their_span_says() {
        let mut trace = gpu_trace();
        set_flops(&mut trace, 1, 600, "f32");
        set_flops(&mut trace, 2, 900, "f32");
        // On stream 7 a copy and two kernels in the first step, on stream 8 a kernel of `backward`, beside a fill.
        assert_eq!(flops(&trace), [0, 600, 450, 0, 0, 0, 0, 450, 0, 0, 0]);
    }

    #[test]
    fn the_outer_span_speaks_for_what_is_in_it() {
        let mut trace = gpu_trace();
        set_flops(&mut trace, 0, 900, "f32");
        set_flops(&mut trace, 2, 5, "f32");
        assert_eq!(flops(&trace)[..3], [0, 300, 300]);
    }

    #[test]
    fn operations_count_where_no_span_says_anything() {
        let mut trace = operations_trace();
        assert_eq!(flops(&trace)[..3], [0, 335_000_000, 670_000_016]);
        set_flops(&mut trace, 0, 6, "f32");
        assert_eq!(flops(&trace)[..3], [0, 2, 2]);
    }

    #[test]
    fn nobody_says_anything() {
        let mut shares = Shares::new(&gpu_trace());
        assert!(gpu_trace().work().all(|work| shares.of(work) == Share::default()));
    }
}
