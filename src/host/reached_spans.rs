//! The spans that the program has reached, and which of them filters disable.
//!
//! `tracing` registers a callsite when the program reaches it, and then asks every subscriber about it. A subscriber
//! asks its layers from the outermost to the innermost, and stops at a filter that disables the callsite. So a layer
//! cannot know by itself what is hidden from it. But a new subscriber is told about all callsites reached earlier. Each
//! of them is then shown to the program's own subscriber: if this layer is not asked, or the answer is "never", filters
//! disable it. Spans of a level that is off for the whole process are not registered at all.

use crate::{
    hint::{DisabledSpan, DisabledSpans},
    recording::{Callsite, level_of},
};
use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
};
use tracing::{
    Dispatch, Event, Metadata, Subscriber,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
    subscriber::Interest,
};

thread_local! {
    /// The profiler whose layer is expected to be asked about a callsite, and whether it was.
    static ASKED: Cell<(u64, bool)> = const { Cell::new((0, false)) };
}

/// Notes that the layer of this profiler was asked about a callsite.
pub(super) fn note_asked(profiler: u64) {
    // Thread-local storage is gone while the thread is being torn down.
    let _ = ASKED.try_with(|asked| {
        if asked.get().0 == profiler {
            asked.set((profiler, true));
        }
    });
}

/// Returns the spans that the program has reached and that filters disable for the layer of this profiler.
pub(super) fn disabled(profiler: u64, dispatch: &Dispatch) -> Option<DisabledSpans> {
    // Third-party layers are called, and a lock in `tracing` is poisoned if one of them has panicked.
    let disabled = catch_unwind(AssertUnwindSafe(|| {
        let reached = reached();
        let disabled = reached.iter().filter(|callsite| is_disabled(profiler, dispatch, callsite));
        let disabled: Vec<_> = disabled.map(|callsite| describe(callsite)).collect();
        let others = disabled.len() < reached.len();
        (!disabled.is_empty()).then(|| DisabledSpans::new(disabled, others))
    }));
    disabled.ok().flatten()
}

/// Makes `tracing` ask all layers and filters again about each callsite, since the answer of a filter has changed.
pub(super) fn rebuild_interest() {
    let _ = catch_unwind(reached);
}

/// Returns the callsites of all spans that the program has reached.
fn reached() -> Vec<Callsite> {
    let dispatch = Dispatch::new(Reached::default());
    let reached = dispatch.downcast_ref::<Reached>().map(Reached::take).unwrap_or_default();
    drop(dispatch);
    // `tracing` has also asked the subscriber that is gone. And if there had never been more than one subscriber, it
    // would now ask only that of the calling thread.
    tracing::callsite::rebuild_interest_cache();
    reached
}

fn is_disabled(profiler: u64, dispatch: &Dispatch, callsite: Callsite) -> bool {
    ASKED.set((profiler, false));
    let interest = dispatch.register_callsite(callsite);
    let (_, asked) = ASKED.replace((0, false));
    !asked || interest.is_never()
}

fn describe(callsite: Callsite) -> DisabledSpan {
    let (target, name) = (callsite.target().to_owned(), callsite.name().to_owned());
    DisabledSpan { target, name, level: level_of(*callsite.level()) }
}

/// A subscriber that only collects the callsites of spans.
#[derive(Debug, Default)]
struct Reached(Mutex<Vec<Callsite>>);

impl Reached {
    fn take(&self) -> Vec<Callsite> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Subscriber for Reached {
    fn register_callsite(&self, callsite: Callsite) -> Interest {
        // Callsites of the macro `span_enabled` have this name.
        if callsite.is_span() && !callsite.name().starts_with("enabled ") {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(callsite);
        }
        Interest::never()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::OFF)
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
