//! OpenTelemetry contexts: which span of OpenTelemetry's a layer of `tracing-opentelemetry` makes of a span.
//!
//! The layer keeps it with the span, behind locks. A span is looked up only where the calling thread has it open and
//! holds none of these locks:
//!
//! - when it is entered, and when it is exited if it was open before the window: there, that layer takes the same
//!   locks;
//! - when the program opens a window, for all spans that are open on the thread.
//!
//! Not when a thread joins a window, which it may do while a layer formats fields with the lock of an open span held.
//! And not from another thread: a span that closes meanwhile makes that layer panic, in builds with assertions.
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

/// Whether there may be such a layer.
pub(super) const ENABLED: bool = cfg!(feature = "tracing-opentelemetry");

/// Looks contexts up, and remembers whether that is worth it.
#[derive(Debug, Default)]
pub(super) struct OtelContexts {
    /// Whether any span has had one.
    found: AtomicBool,
    /// Whether that layer has panicked, which it does when its lock is poisoned: it is not asked again.
    given_up: AtomicBool,
}

/// How often spans of a callsite were looked up in a window and had no context.
#[derive(Clone, Copy)]
struct Misses {
    profiler: u64,
    control: Control,
    callsite: Option<Callsite>,
    count: u32,
}

/// How many callsites a thread remembers.
const KEPT: usize = 64;
/// After so many misses, spans of a callsite are not looked up in this window any more.
const ENOUGH: u32 = 16;

thread_local! {
    static MISSES: [Cell<Misses>; KEPT] = const {
        [const { Cell::new(Misses { profiler: 0, control: Control::OFF, callsite: None, count: 0 }) }; KEPT]
    };
}

impl OtelContexts {
    /// The context of a span that is being entered, whose callsite may be at hand.
    ///
    /// Most programs have no such layer, and there is no way to ask whether they have. So until a first context has
    /// been found, a thread gives a callsite up for the window after a few misses: a filter that hides spans from that
    /// layer mostly hides them by callsite.
    #[inline]
    pub(super) fn at_enter(
        &self,
        control: Control,
        id: RegistryId,
        callsite: impl FnOnce() -> Option<Callsite>,
        lanes: &Lanes,
        lookup: &SpanLookup,
    ) -> Option<TraceContext> {
        if !ENABLED {
            return None;
        }
        let found = self.found.load(Ordering::Relaxed);
        let Some(callsite) = (!found).then(callsite).flatten() else {
            return self.look_up(id, lookup);
        };
        MISSES.with(|misses| {
            // Callsites lie in memory some hundred bytes apart.
            let place = std::ptr::from_ref(callsite) as usize / 16 % KEPT;
            let known = misses[place].get();
            let profiler = lanes.profiler();
            let same = known.callsite.is_some_and(|known| std::ptr::eq(known, callsite))
                && known.control == control
                && known.profiler == profiler;
            let count = if same { known.count } else { 0 };
            if count >= ENOUGH {
                return None;
            }
            let context = self.look_up(id, lookup);
            misses[place].set(Misses { profiler, control, callsite: Some(callsite), count: count + 1 });
            if context.is_some() {
                self.found.store(true, Ordering::Relaxed);
            }
            context
        })
    }

    /// Writes the context of a span that is about to be exited, if the lane still owes it.
    pub(super) fn at_exit(
        &self,
        control: Control,
        id: RegistryId,
        sources: &Sources<'_, impl Resolve>,
        lanes: &Lanes,
        lookup: &SpanLookup,
    ) {
        // Mostly nothing is owed.
        if !ENABLED || lanes.with_if_at_hand(|lane| lane.owes_no_contexts(control)) {
            return;
        }
        let mut owes = false;
        lanes.with(|lane| owes = lane.owes_context(control, id, sources));
        if owes {
            let context = self.look_up(id, lookup);
            lanes.with(|lane| lane.write_context(control, id, context));
        }
    }

    /// Looks up the contexts of all spans that are open on this thread, now that the program has opened a window.
    pub(super) fn look_up_open(&self, control: Control, lanes: &Lanes, lookup: &SpanLookup) {
        if !ENABLED || !lookup.is_installed() {
            return;
        }
        let mut open = Vec::new();
        // Where the lane is not at hand, either nothing is open or another profiler has this thread, too: then they are
        // looked up at exits.
        lanes.with_if_at_hand(|lane| {
            open = lane.open_ids();
            true
        });
        if !open.is_empty() {
            let found = open.into_iter().map(|id| (id, self.look_up(id, lookup))).collect();
            lanes.with(|lane| lane.keep_contexts(control, found));
        }
    }

    /// The context of a span that is open on this thread. No lane may be held: if that layer has not begun its span, it
    /// does now, with the user's sampler.
    fn look_up(&self, id: RegistryId, lookup: &SpanLookup) -> Option<TraceContext> {
        let dispatch = lookup.dispatch()?;
        if self.given_up.load(Ordering::Relaxed) {
            return None;
        }
        catch_unwind(AssertUnwindSafe(|| ask(&dispatch, &Id::from_u64(id)))).unwrap_or_else(|_| {
            self.given_up.store(true, Ordering::Relaxed);
            None
        })
    }
}

#[cfg(feature = "tracing-opentelemetry")]
fn ask(dispatch: &Dispatch, id: &Id) -> Option<TraceContext> {
    use opentelemetry::trace::TraceContextExt;
    let context = tracing_opentelemetry::get_otel_context(id, dispatch)?;
    let span = context.span();
    let span = span.span_context();
    let (trace_id, span_id) = (span.trace_id().to_bytes(), span.span_id().to_bytes());
    TraceContext::new(u128::from_be_bytes(trace_id), u64::from_be_bytes(span_id), span.is_sampled())
}

#[cfg(not(feature = "tracing-opentelemetry"))]
fn ask(_: &Dispatch, _: &Id) -> Option<TraceContext> {
    None
}
