//! Enters and exits of spans where more than their times is measured: the heap, or CPU time.
//!
//! They are apart from the usual ones, so that spans of which only times are recorded pay nothing.

use super::ProfilerLayer;
use crate::{cpu_time, heap::Uncounted, host::Control, recording::RegistryId};
use tracing::{Subscriber, level_filters::LevelFilter, span::Id};
use tracing_subscriber::{layer::Context, registry::LookupSpan};

impl ProfilerLayer {
    /// Enters a span where the heap or CPU time is measured.
    #[cold]
    #[inline(never)]
    pub(super) fn enter_measured<S>(&self, control: Control, id: RegistryId, ctx: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let _uncounted = Uncounted::begin_if(control.counts_heap());
        if control.counts_heap() {
            self.note_heap(control, ctx);
        }
        // The CPU clock is read last, so that what the profiler does before counts for the span around this one.
        if self.enter(control, id, ctx) && control.times_cpu() && self.is_timed(control, id, ctx) {
            self.host.lanes.with(|lane| lane.note_cpu_start(cpu_time::of_this_thread()));
        }
    }

    /// Exits a span where the heap or CPU time is measured.
    #[cold]
    #[inline(never)]
    pub(super) fn exit_measured<S>(&self, control: Control, id: RegistryId, ctx: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        // The CPU clock is read early, so that most of what the profiler does counts for the span around this one.
        let is_timed = control.times_cpu() && control.is_recording() && self.is_timed(control, id, ctx);
        let cpu = if is_timed { cpu_time::of_this_thread() } else { None };
        let _uncounted = Uncounted::begin_if(control.counts_heap());
        if control.counts_heap() {
            self.note_heap(control, ctx);
        }
        if cpu.is_some() {
            self.host.lanes.with(|lane| lane.note_cpu_end(control, id, cpu, &self.sources(control, ctx)));
        }
        self.exit(control, id, ctx);
    }

    /// Whether a span has CPU time, by its level.
    fn is_timed<S>(&self, control: Control, id: RegistryId, ctx: &Context<'_, S>) -> bool
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let callsite = || {
            let cached = self.cached(control, id).map(|found| found.callsite);
            cached.or_else(|| Some(ctx.span(&Id::from_u64(id))?.metadata()))
        };
        self.timed == LevelFilter::TRACE || callsite().is_some_and(|callsite| *callsite.level() <= self.timed)
    }

    /// Writes what the thread has allocated so far: it belongs to the spans that are open now.
    #[cold]
    fn note_heap<S>(&self, control: Control, ctx: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        if control.is_recording() {
            self.host.lanes.with_or_count(control, |lane| lane.note_heap(control, &self.sources(control, ctx)));
        }
    }
}
