//! A filter that disables everything once the profiler has finished.

use super::Host;
use std::sync::Arc;
use tracing::{Metadata, level_filters::LevelFilter, subscriber::Interest};
use tracing_subscriber::layer::{Context, Filter};

/// A filter that enables everything until the profiler has finished, and nothing afterwards.
///
/// Only a filter can do this. A layer that returns false from `enabled`, or `OFF` as its level, also disables spans for
/// the other layers.
#[derive(Debug)]
pub(super) struct UntilFinished(Arc<Host>);

impl UntilFinished {
    pub(super) fn new(host: Arc<Host>) -> Self {
        Self(host)
    }

    fn is_finished(&self) -> bool {
        self.0.control().is_off()
    }
}

impl<S> Filter<S> for UntilFinished {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        !self.is_finished()
    }

    fn callsite_enabled(&self, _: &'static Metadata<'static>) -> Interest {
        if self.is_finished() { Interest::never() } else { Interest::always() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.is_finished().then_some(LevelFilter::OFF)
    }
}
