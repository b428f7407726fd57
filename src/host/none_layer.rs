//! The answers of a layer that wants nothing more: those of `None` in its place.

use std::{
    any::TypeId,
    sync::atomic::{AtomicBool, Ordering},
};
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::Layer;

/// The answers of a layer that wants nothing more.
///
/// A layer that returns `OFF` as its level also disables spans for other layers, unless it is an `Option` that is
/// `None`. `tracing-subscriber` recognizes that case by asking layers for a private type, through the hidden
/// `downcast_raw`. So a layer that has finished returns `OFF`, and passes such queries on to a `None`.
///
/// A third-party layer may wrap this one, and pass on the query for the level but not those for types. Then `OFF` is
/// not returned, and spans stay enabled. Whether type queries arrive is seen when the subscriber is assembled, since
/// each layer is then asked for another private type. `reload::Layer` does not pass that one on, so inside it, spans
/// stay enabled if there is no other layer that would ask whether this one is `None`.
#[derive(Debug, Default)]
pub(super) struct NoneLayer {
    /// Whether the layer has been asked for a type that is not its own.
    asked: AtomicBool,
}

impl NoneLayer {
    /// Returns the level of a layer that wants nothing more; `None` if it would disable spans of other layers.
    pub(super) fn max_level_hint(&self) -> Option<LevelFilter> {
        self.asked.load(Ordering::Relaxed).then_some(LevelFilter::OFF)
    }

    /// Returns the address of a value of this type, which is not the layer's own, if the layer has `finished` and the
    /// type is the one that identifies a `None`.
    pub(super) fn downcast<S: Subscriber>(&self, id: TypeId, finished: bool) -> Option<*const ()> {
        self.asked.store(true, Ordering::Relaxed);
        if !finished {
            return None;
        }
        // SAFETY: `Option` returns the address of a value of the type that `id` names, as the trait demands. It is that
        // of the static itself, or of one in `tracing-subscriber`: either is valid as long as the process lives.
        #[allow(unsafe_code, reason = "the only way to be recognized as a layer that is `None`")]
        unsafe {
            Layer::<S>::downcast_raw(&NONE, id)
        }
    }
}

/// A layer that does not exist. Nothing else can ask for its type.
enum Nothing {}

impl<S: Subscriber> Layer<S> for Nothing {}

static NONE: Option<Nothing> = None;
