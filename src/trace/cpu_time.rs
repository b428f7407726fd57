//! The CPU time of spans.

use super::{Span, SpanId, Trace};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// The CPU time of a span in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpanCpuTime {
    /// With nested spans.
    pub(crate) total: u64,
    /// Without nested spans that have CPU time themselves.
    pub(crate) own: u64,
}

impl Trace {
    /// Whether spans have CPU time: see [`CpuTime::spans`](crate::CpuTime::spans).
    pub fn has_cpu_times(&self) -> bool {
        !self.cpu_times.is_empty()
    }

    /// Sets the CPU times in nanoseconds of the spans that have them, with nested spans.
    pub(crate) fn set_cpu_times(&mut self, totals: FxHashMap<SpanId, u64>) {
        let time = |(&span, &total): (&SpanId, &u64)| (span, SpanCpuTime { total, own: total });
        self.cpu_times = totals.iter().map(time).collect();
        for (span, total) in totals {
            // Spans in between have no CPU time of their own: theirs is part of that of the span around them.
            let mut outer = self.spans[span.index()].parent;
            while let Some(around) = outer {
                if let Some(time) = self.cpu_times.get_mut(&around) {
                    time.own = time.own.saturating_sub(total);
                    break;
                }
                outer = self.spans[around.index()].parent;
            }
        }
    }
}

impl Span<'_> {
    /// The name of the CPU time in nanoseconds in files.
    pub(crate) const CPU_TIME: &'static str = "CPU ns";

    /// How long its thread ran in the span, as opposed to how long the span [took](Self::duration): the rest was spent
    /// waiting, or in the queue for a core. Nested spans are included.
    ///
    /// It is `None` unless [`CpuTime::spans`](crate::CpuTime::spans) is set and includes the span. It is also `None` if
    /// the span was cut by the edge of the window, as only the thread itself can read its clock, and if a reading was
    /// lost. A future that is polled several times has the CPU time of each poll: see [`previous`](Self::previous).
    ///
    /// ```
    /// # use kernspan::trace::Span;
    /// /// The fraction of a span that its thread did not run.
    /// fn waited(span: Span<'_>) -> Option<f64> {
    ///     Some(1.0 - span.cpu_time()?.as_secs_f64() / span.duration().as_secs_f64())
    /// }
    /// ```
    pub fn cpu_time(self) -> Option<Duration> {
        self.cpu().map(|cpu| Duration::from_nanos(cpu.total))
    }

    /// The part of the [`cpu_time`](Self::cpu_time) outside nested spans that have CPU time themselves.
    pub fn self_cpu_time(self) -> Option<Duration> {
        self.cpu().map(|cpu| Duration::from_nanos(cpu.own))
    }
}
