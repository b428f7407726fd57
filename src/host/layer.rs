//! The `tracing` layer, which records spans and events.
//!
//! [`measured`] has what it does where the heap or CPU time is measured, [`named`] what it does for spans that end
//! steps and for requests.

mod measured;
mod named;

use super::{
    Control, Host, callsite_cache, fields,
    lane::{Found, Resolve, Sources},
    none_layer::NoneLayer,
    reached_spans,
    until_finished::UntilFinished,
};
use crate::{
    heap::Uncounted,
    recording::{self, Callsite, RegistryId},
    trace::{FieldData, TraceContext},
};
use std::{
    any::TypeId,
    backtrace::Backtrace,
    fmt,
    sync::{Arc, atomic::Ordering},
};
use tracing::{
    Dispatch, Event, Subscriber,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
    subscriber::Interest,
};
use tracing_subscriber::{
    Layer,
    layer::Context,
    registry::{LookupSpan, SpanRef},
};

/// The `tracing` layer that records spans and events, to be added to a subscriber.
///
/// It enables every span and event it is asked about and changes nothing for the other layers. To record less, give it
/// its own filter: `layer.with_filter(LevelFilter::INFO)`. To print less than is recorded, give the filter to the layer
/// that prints: a global `EnvFilter` decides for all layers.
///
/// It stays in the subscriber after the profiler has finished, but then wants no spans or events: levels that no other
/// layer wants are off from then on, as if the layer were an `Option` that is `None`. With its own filter, it continues
/// to enable the spans that the filter enables, but does nothing in them. If another layer has a filter that enables
/// only a few targets, see [`until_finished`](Self::until_finished).
///
/// Created by [`ProfilerBuilder::build`](crate::ProfilerBuilder::build).
#[derive(Debug)]
pub struct ProfilerLayer {
    host: Arc<Host>,
    /// Whether spans and events are recorded, rather than only steps.
    spans: bool,
    step_on: Option<StepOn>,
    /// Whether a span may end a step or be a request, by its name.
    names_matter: bool,
    backtraces: bool,
    /// The most verbose level of spans that have CPU time.
    timed: LevelFilter,
    /// Whether spans are also ranges for another tool.
    #[cfg(all(feature = "nvtx", unix))]
    ranges: bool,
    /// The answers once the profiler has finished.
    none: NoneLayer,
}

/// The name of the span whose close ends a step, and the callback that ends it.
pub(crate) struct StepOn {
    pub(crate) name: String,
    pub(crate) step: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for StepOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl ProfilerLayer {
    pub(crate) fn new(
        host: Arc<Host>,
        spans: bool,
        step_on: Option<StepOn>,
        backtraces: bool,
        timed: LevelFilter,
    ) -> Self {
        Self {
            #[cfg(all(feature = "nvtx", unix))]
            ranges: host.has_ranges(),
            #[cfg(feature = "serving")]
            names_matter: step_on.is_some() || host.counts_requests(),
            #[cfg(not(feature = "serving"))]
            names_matter: step_on.is_some(),
            host,
            spans,
            step_on,
            backtraces,
            timed,
            none: NoneLayer::default(),
        }
    }

    /// Returns the layer with a filter that disables each callsite individually once the profiler has finished.
    ///
    /// Without it, levels that no other layer wants are turned off. This is enough if other layers have no filters, or
    /// filter by level. But if another layer filters by target, such as `EnvFilter::new("warn,model=trace")`, spans of
    /// other targets stay enabled up to the most verbose level that the filter names. With this, they are disabled and
    /// cost nothing. While the profiler runs, each span also pays for the filter, which uses [`Layer::with_filter`].
    ///
    /// ```
    /// # use kernspan::Profiler;
    /// # use tracing_subscriber::prelude::*;
    /// # use tracing_subscriber::{filter::Targets, fmt};
    /// let (layer, profiler) = Profiler::builder().build()?;
    /// let model = Targets::new().with_target("model", tracing::Level::TRACE);
    /// let print = fmt::layer().with_filter(model);
    /// tracing_subscriber::registry().with(layer.until_finished()).with(print).init();
    /// assert!(tracing::enabled!(target: "data", tracing::Level::TRACE));
    /// profiler.finish()?;
    /// assert!(!tracing::enabled!(target: "data", tracing::Level::TRACE));
    /// assert!(tracing::enabled!(target: "model", tracing::Level::TRACE));
    /// # Ok::<(), kernspan::Error>(())
    /// ```
    pub fn until_finished<S>(self) -> impl Layer<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let host = Arc::clone(&self.host);
        self.with_filter(UntilFinished::new(host))
    }

    /// The sources that a lane needs to write about spans.
    #[inline]
    fn sources<'a, S>(&'a self, control: Control, ctx: &'a Context<'_, S>) -> Sources<'a, impl Resolve + 'a>
    where
        S: Subscriber + for<'l> LookupSpan<'l>,
    {
        self.host.sources_with(move |id| match self.cached(control, id) {
            Some(cached) => Some(cached),
            None => Self::look_up(id, ctx),
        })
    }

    #[inline]
    fn cached(&self, control: Control, id: RegistryId) -> Option<Found> {
        callsite_cache::get(self.host.lanes.profiler(), control, id)
    }

    // The following are not inlined, so that spans do not pay for them while nothing is recorded.

    #[inline(never)]
    fn look_up<S>(id: RegistryId, ctx: &Context<'_, S>) -> Option<Found>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        Some(found(&ctx.span(&Id::from_u64(id))?))
    }

    /// Enters a span. Returns whether it is recorded.
    #[inline(never)]
    fn enter<S>(&self, control: Control, id: RegistryId, ctx: &Context<'_, S>) -> bool
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        // Not `bool::then`, whose frame would come first in the backtrace.
        let mut backtrace = None;
        if self.backtraces && control.is_recording() {
            backtrace = Some(Box::new(Backtrace::force_capture()));
        }
        // Done even if nothing is recorded: this is the first span on the thread, or the first after a window.
        self.find_dispatch::<S>();
        let Host { lanes, lookup, contexts, watchers, clock, .. } = &*self.host;
        let context = if control.is_recording() {
            contexts.at_enter(control, id, || self.cached(control, id).map(|found| found.callsite), lanes, lookup)
        } else {
            None
        };
        let mut recorded = false;
        lanes.with_or_count(control, |lane| {
            recorded = lane.enter(control, id, &self.sources(control, ctx), backtrace, context);
        });
        if watchers.any() {
            watchers.notify_changed(control.is_recording(), lanes, clock);
        }
        recorded
    }

    #[inline(never)]
    fn exit<S>(&self, control: Control, id: RegistryId, ctx: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let Host { lanes, lookup, contexts, watchers, clock, .. } = &*self.host;
        if control.is_recording() {
            contexts.at_exit(control, id, &self.sources(control, ctx), lanes, lookup);
        }
        lanes.with(|lane| lane.exit(control, id, &self.sources(control, ctx)));
        if watchers.any() && control.is_recording() {
            watchers.notify_changed(true, lanes, clock);
        }
    }

    /// Finds the subscriber if `on_register_dispatch` was not called, as for layers inside `Option` and `Vec`. It is
    /// the thread's default subscriber, if this layer is in it.
    #[inline]
    fn find_dispatch<S>(&self)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        if TraceContext::IS_RECORDED && !self.host.lookup.is_installed() {
            tracing::dispatcher::get_default(|dispatch| {
                let layer = dispatch.downcast_ref::<Self>();
                if layer.is_some_and(|layer| Arc::ptr_eq(&layer.host, &self.host)) {
                    Layer::<S>::on_register_dispatch(self, dispatch);
                }
            });
        }
    }

    /// Writes an event or an update. Its timestamp was taken before its fields were formatted, since formatting is user
    /// code and may take long.
    fn write_moment<S>(
        &self,
        control: Control,
        record: recording::Record,
        fields: &mut Vec<FieldData>,
        ctx: &Context<'_, S>,
    ) where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        if self.host.control() == control {
            let sources = self.sources(control, ctx);
            self.host.lanes.with_or_count(control, |lane| lane.write_moment(control, record, fields, &sources));
        } else {
            // The window is over.
            self.host.late.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns the facts about a span that the registry has found.
fn found<'a, S: LookupSpan<'a>>(span: &SpanRef<'a, S>) -> Found {
    Found { callsite: span.metadata(), made_in: span.parent().map(|parent| parent.id().into_non_zero_u64()) }
}

impl<S> Layer<S> for ProfilerLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn register_callsite(&self, _: Callsite) -> Interest {
        self.host.installed.store(true, Ordering::Relaxed);
        reached_spans::note_asked(self.host.lanes.profiler());
        Interest::always()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.host.installed.store(true, Ordering::Relaxed);
        if self.host.control().is_off() { self.none.max_level_hint() } else { None }
    }

    #[allow(
        unsafe_code,
        reason = "the trait declares it so; the address is that of the layer, or comes from a safe call"
    )]
    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Self>() {
            return Some(std::ptr::from_ref(self).cast());
        }
        self.none.downcast::<S>(id, self.host.control().is_off())
    }

    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        self.host.installed.store(true, Ordering::Relaxed);
        self.host.lookup.install(dispatch, |dispatch, id| Some(found(&dispatch.downcast_ref::<S>()?.span(id)?)));
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        let control = self.host.control();
        let callsite = attributes.metadata();
        let kept = !callsite.fields().is_empty() || self.names_matter || !attributes.is_contextual();
        if kept && !control.is_off() {
            self.keep_fields(attributes, id.into_u64());
        }
        // The registry knows where a span is whose parent is given.
        if control.is_recording()
            && attributes.is_contextual()
            && self.host.lookup.caches_callsites()
            && let Some(made_in) = self.host.lanes.innermost()
        {
            let found = Found { callsite, made_in };
            callsite_cache::insert(self.host.lanes.profiler(), control, id.into_u64(), found);
        }
    }

    fn on_enter(&self, id: &Id, ctx: Context<'_, S>) {
        let (control, id) = (self.host.control(), id.into_u64());
        #[cfg(all(feature = "nvtx", unix))]
        if self.ranges && !control.is_off() {
            self.host.enter_range(id, ctx.span(&Id::from_u64(id)));
        }
        let done = !self.spans
            || control.is_off()
            || !control.is_recording() && self.host.lanes.with_first(|lane| lane.enter_unrecorded(control, id));
        if !done && !control.measures() {
            self.enter(control, id, &ctx);
        } else if !done {
            self.enter_measured(control, id, &ctx);
        }
    }

    fn on_exit(&self, id: &Id, ctx: Context<'_, S>) {
        let (control, id) = (self.host.control(), id.into_u64());
        #[cfg(all(feature = "nvtx", unix))]
        if self.ranges {
            self.host.exit_range(id);
        }
        let done = !self.spans
            || control.is_off()
            || !control.is_recording() && self.host.lanes.with_first(|lane| lane.exit_unrecorded(control, id));
        if !done && !control.measures() {
            self.exit(control, id, &ctx);
        } else if !done {
            self.exit_measured(control, id, &ctx);
        }
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        let control = self.host.control();
        if control.is_off() {
            return;
        }
        if self.names_matter {
            self.close_named(control, &id, &ctx);
        } else {
            let _uncounted = Uncounted::begin_if(control.counts_heap());
            self.host.live.remove(id.into_u64(), false);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        let control = self.host.control();
        if control.is_off() {
            return;
        }
        let _uncounted = Uncounted::begin();
        let id = id.into_u64();
        let at = control.is_recording().then(|| self.host.clock.now());
        let update = |fields: &mut Vec<FieldData>| {
            #[cfg(feature = "serving")]
            self.host.update_request(id, fields);
            let entered = self.host.live.with(id, |entry| {
                fields.iter().for_each(|field| entry.update(field));
                entry.entered
            });
            if let Some(at) = at
                && entered.flatten() == Some(control.window())
            {
                self.write_moment(control, recording::Record::Update { at, id }, fields, &ctx);
            }
        };
        fields::collect(|visit| values.record(visit), update);
    }

    fn on_follows_from(&self, id: &Id, cause: &Id, ctx: Context<'_, S>) {
        let control = self.host.control();
        if control.is_recording() && self.spans {
            let _uncounted = Uncounted::begin();
            let (id, cause) = (id.into_u64(), cause.into_u64());
            let record = recording::Record::Follows { at: self.host.clock.now(), id, cause };
            self.write_moment(control, record, &mut Vec::new(), &ctx);
        }
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let control = self.host.control();
        if let Some(counters) = self.host.counters.as_ref().filter(|_| !control.is_off()) {
            counters.note(event, control.is_recording() && self.spans);
        }
        #[cfg(feature = "serving")]
        if !control.is_off() && self.host.wants_event(event) {
            let scope = || ctx.event_scope(event).into_iter().flatten().map(|span| span.id().into_u64());
            fields::collect(|visit| event.record(visit), |fields| self.host.take_event(event, fields, scope()));
        }
        if !control.is_recording() || !self.spans {
            return;
        }
        let _uncounted = Uncounted::begin();
        let record = recording::Record::Event { at: self.host.clock.now(), callsite: event.metadata() };
        fields::collect(|visit| event.record(visit), |fields| self.write_moment(control, record, fields, &ctx));
    }
}
