//! Looks up OpenTelemetry contexts: the ids that a `tracing-opentelemetry` layer gives to spans.
//!
//! That layer keeps the context with the span, behind locks. A span is looked up only where the calling thread has it
//! open and holds none of these locks:
//!
//! - when it is entered, and when it is exited if it was open before the window: there, that layer takes the same
//!   locks;
//! - when the program opens a window, for all spans that are open on the thread.
//!
//! A span is not looked up when a thread joins a window, which may happen while a layer formats fields with the lock of
//! an open span held. Nor is it looked up from another thread, since in builds with assertions that layer panics if the
//! span closes meanwhile.
//!
//! Without the feature `tracing-opentelemetry` nothing is ever found, and all of this is compiled away.

use super::{
    Control,
    lane::{Resolve, Sources},
    lanes::Lanes,
    span_lookup::SpanLookup,
};
use crate::{
    recording::{Callsite, RegistryId},
    trace::TraceContext,
};
use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering},
};
use tracing::{Dispatch, span::Id};

/// Looks up contexts, and remembers whether that is worthwhile.
#[derive(Debug, Default)]
pub(super) struct OtelContexts {
    /// Whether any span has had a context.
    found: AtomicBool,
    /// Whether the layer has panicked, as it does if its lock is poisoned. Then nothing more is looked up.
    disabled: AtomicBool,
}

/// How often spans of a callsite were looked up in a window without finding a context.
#[derive(Clone, Copy)]
struct Misses {
    profiler: u64,
    control: Control,
    callsite: Option<Callsite>,
    count: u32,
}

/// The number of callsites whose misses a thread counts.
const CACHE_SIZE: usize = 64;
/// The number of misses after which the spans of a callsite are no longer looked up in this window.
const MAX_MISSES: u32 = 16;

thread_local! {
    static MISSES: [Cell<Misses>; CACHE_SIZE] = const {
        [const { Cell::new(Misses { profiler: 0, control: Control::OFF, callsite: None, count: 0 }) }; CACHE_SIZE]
    };
}

impl OtelContexts {
    /// Returns the context of a span that is being entered, whose callsite may be cached.
    ///
    /// Most programs have no such layer, and there is no way to ask. So until a first context has been found, a thread
    /// gives up on a callsite for the window after a few misses: a filter that hides spans from that layer usually
    /// hides them by callsite.
    #[inline]
    pub(super) fn at_enter(
        &self,
        control: Control,
        id: RegistryId,
        callsite: impl FnOnce() -> Option<Callsite>,
        lanes: &Lanes,
        lookup: &SpanLookup,
    ) -> Option<TraceContext> {
        if !TraceContext::IS_RECORDED {
            return None;
        }
        let found = self.found.load(Ordering::Relaxed);
        let Some(callsite) = (!found).then(callsite).flatten() else {
            return self.look_up(id, lookup);
        };
        MISSES.with(|misses| {
            // Callsites lie a few hundred bytes apart in memory.
            let slot = std::ptr::from_ref(callsite) as usize / 16 % CACHE_SIZE;
            let last = misses[slot].get();
            let profiler = lanes.profiler();
            let same = last.callsite.is_some_and(|last| std::ptr::eq(last, callsite))
                && last.control == control
                && last.profiler == profiler;
            let count = if same { last.count } else { 0 };
            if count >= MAX_MISSES {
                return None;
            }
            let context = self.look_up(id, lookup);
            misses[slot].set(Misses { profiler, control, callsite: Some(callsite), count: count + 1 });
            if context.is_some() {
                self.found.store(true, Ordering::Relaxed);
            }
            context
        })
    }

    /// Writes the context of a span that is about to be exited, if it still has to be written.
    pub(super) fn at_exit(
        &self,
        control: Control,
        id: RegistryId,
        sources: &Sources<'_, impl Resolve>,
        lanes: &Lanes,
        lookup: &SpanLookup,
    ) {
        // Usually, nothing has to be written.
        if !TraceContext::IS_RECORDED || lanes.with_first(|lane| lane.has_no_pending_contexts(control)) {
            return;
        }
        let mut pending = false;
        lanes.with(|lane| pending = lane.has_pending_context(control, id, sources));
        if pending {
            let context = self.look_up(id, lookup);
            lanes.with(|lane| lane.write_context(control, id, context));
        }
    }

    /// Looks up the contexts of all spans that are open on this thread, now that the program has opened a window.
    pub(super) fn look_up_open(&self, control: Control, lanes: &Lanes, lookup: &SpanLookup) {
        if !TraceContext::IS_RECORDED || !lookup.is_installed() {
            return;
        }
        let mut open = Vec::new();
        // Without a lane nothing is open. If another profiler has a lane on this thread, contexts are looked up at
        // exits.
        lanes.with_first(|lane| {
            open = lane.open_ids();
            true
        });
        if !open.is_empty() {
            let found = open.into_iter().map(|id| (id, self.look_up(id, lookup))).collect();
            lanes.with(|lane| lane.keep_contexts(control, found));
        }
    }

    /// Looks up the context of a span that is open on this thread. No lane may be held, since this may run user code:
    /// if the layer has not started its span, it starts it now, with the user's sampler.
    fn look_up(&self, id: RegistryId, lookup: &SpanLookup) -> Option<TraceContext> {
        let dispatch = lookup.dispatch()?;
        if self.disabled.load(Ordering::Relaxed) {
            return None;
        }
        catch_unwind(AssertUnwindSafe(|| otel_context(&dispatch, &Id::from_u64(id)))).unwrap_or_else(|_| {
            self.disabled.store(true, Ordering::Relaxed);
            None
        })
    }
}

#[cfg(feature = "tracing-opentelemetry")]
fn otel_context(dispatch: &Dispatch, id: &Id) -> Option<TraceContext> {
    use opentelemetry::trace::TraceContextExt;
    let context = tracing_opentelemetry::get_otel_context(id, dispatch)?;
    let span = context.span();
    let span = span.span_context();
    let (trace_id, span_id) = (span.trace_id().to_bytes(), span.span_id().to_bytes());
    TraceContext::new(u128::from_be_bytes(trace_id), u64::from_be_bytes(span_id), span.is_sampled())
}

#[cfg(not(feature = "tracing-opentelemetry"))]
fn otel_context(_: &Dispatch, _: &Id) -> Option<TraceContext> {
    None
}
