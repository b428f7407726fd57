//! Which spans of OpenTelemetry's another layer of the subscriber makes of the program's.
//!
//! That layer keeps what it knows with the span, behind locks. A span is asked about only where the thread that asks has it open and holds
//! none of them:
//!
//! - when it is entered, and when it is exited if it was open before the window: there, that layer takes the same locks itself;
//! - when the program opens a window, about all that is open on the thread.
//!
//! Not when a thread joins a window, which it may do while a layer formats fields with the lock of an open span held. And not from another thread:
//! a span that closes while it is asked about makes that layer panic, in builds with assertions.

use super::{
    Control, Host,
    lane::{Resolve, Sources},
};
use crate::{
    recording::{Callsite, RegistryId},
    trace::TraceContext,
};

#[cfg(feature = "tracing-opentelemetry")]
mod asked {
    use super::{Callsite, Control, Host, RegistryId, Resolve, Sources, TraceContext};
    use opentelemetry::trace::TraceContextExt;
    use std::{
        cell::Cell,
        panic::{AssertUnwindSafe, catch_unwind},
        sync::atomic::Ordering,
    };
    use tracing::span::Id;

    /// A callsite whose spans were asked about in a window, and how often in vain.
    #[derive(Clone, Copy)]
    struct Vain {
        profiler: u64,
        control: Control,
        callsite: Option<Callsite>,
        times: u32,
    }

    /// How many callsites a thread remembers.
    const KEPT: usize = 64;
    /// How often a thread asks in vain.
    const ENOUGH: u32 = 16;

    thread_local! {
        static VAIN: [Cell<Vain>; KEPT] = const {
            [const { Cell::new(Vain { profiler: 0, control: Control::OFF, callsite: None, times: 0 }) }; KEPT]
        };
    }

    impl Host {
        /// As [`context_of`](Self::context_of), of a span that is being entered, of this callsite if that is at hand.
        ///
        /// Most programs have no such layer, which nobody can be asked. So as long as no span at all has been one of OpenTelemetry's, a thread gives a
        /// callsite up for a window after a few in vain: what a filter hides from that layer, it mostly hides by callsite.
        #[inline]
        pub(in super::super) fn context_at_enter(
            &self,
            control: Control,
            id: RegistryId,
            callsite: impl FnOnce() -> Option<Callsite>,
        ) -> Option<TraceContext> {
            let found = self.has_contexts.load(Ordering::Relaxed);
            let Some(callsite) = (!found).then(callsite).flatten() else {
                return self.context_of(id);
            };
            VAIN.with(|vain| {
                // Callsites lie in memory some hundred bytes apart.
                let place = std::ptr::from_ref(callsite) as usize / 16 % KEPT;
                let known = vain[place].get();
                let same = known.callsite.is_some_and(|known| std::ptr::eq(known, callsite))
                    && known.control == control
                    && known.profiler == self.id;
                let times = if same { known.times } else { 0 };
                if times >= ENOUGH {
                    return None;
                }
                let context = self.context_of(id);
                vain[place].set(Vain { profiler: self.id, control, callsite: Some(callsite), times: times + 1 });
                if context.is_some() {
                    self.has_contexts.store(true, Ordering::Relaxed);
                }
                context
            })
        }

        /// Which span of OpenTelemetry's a span is, that is open on this thread. No lane may be held: if the layer has not begun its span, it does
        /// now, with the user's sampler.
        pub(in super::super) fn context_of(&self, id: RegistryId) -> Option<TraceContext> {
            let dispatch = self.resolver.get()?.dispatch.upgrade()?;
            if self.no_contexts.load(Ordering::Relaxed) {
                return None;
            }
            let ask = || {
                let context = tracing_opentelemetry::get_otel_context(&Id::from_u64(id), &dispatch)?;
                let span = context.span();
                let span = span.span_context();
                let (trace_id, span_id) = (span.trace_id().to_bytes(), span.span_id().to_bytes());
                TraceContext::new(u128::from_be_bytes(trace_id), u64::from_be_bytes(span_id), span.is_sampled())
            };
            // It panics where its lock is poisoned: once is enough.
            catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|_| {
                self.no_contexts.store(true, Ordering::Relaxed);
                None
            })
        }

        /// Tells the same of a span that is about to be exited, if that is owed.
        pub(in super::super) fn context_at_exit(
            &self,
            control: Control,
            id: RegistryId,
            sources: &Sources<'_, impl Resolve>,
        ) {
            // Mostly nothing is owed.
            if self.with_lane_at_hand(|lane| lane.owes_no_contexts(control)) {
                return;
            }
            let mut owes = false;
            self.with_lane(|lane| owes = lane.owes_context(control, id, sources));
            if owes {
                let context = self.context_of(id);
                self.with_lane(|lane| lane.write_context(control, id, context));
            }
        }

        /// Asks about what is open on this thread, now that the program has opened a window.
        pub(crate) fn ask_for_contexts(&self) {
            let control = self.control();
            let mut open = Vec::new();
            // Where the lane is not at hand, either nothing is open or another profiler has this thread, too: then exits tell.
            self.with_lane_at_hand(|lane| {
                open = lane.open_ids();
                true
            });
            if control.is_recording() && !open.is_empty() && self.resolver.get().is_some() {
                let asked = open.into_iter().map(|id| (id, self.context_of(id))).collect();
                self.with_lane(|lane| lane.keep_contexts(control, asked));
            }
        }
    }
}

#[cfg(not(feature = "tracing-opentelemetry"))]
impl Host {
    #[inline]
    pub(super) fn context_at_enter(
        &self,
        _: Control,
        _: RegistryId,
        _: impl FnOnce() -> Option<Callsite>,
    ) -> Option<TraceContext> {
        None
    }

    #[inline]
    pub(super) fn context_at_exit(&self, _: Control, _: RegistryId, _: &Sources<'_, impl Resolve>) {}

    #[inline]
    pub(crate) fn ask_for_contexts(&self) {}
}
