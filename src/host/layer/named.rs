//! Spans that mean something by their names: those that end steps, and requests.

use super::ProfilerLayer;
use crate::{
    heap::Uncounted,
    host::{Control, fields},
    recording::{Callsite, RegistryId},
    thread,
    trace::FieldData,
};
use tracing::{
    Subscriber,
    span::{Attributes, Id},
};
use tracing_subscriber::{layer::Context, registry::LookupSpan};

impl ProfilerLayer {
    fn is_step(&self, callsite: Callsite) -> bool {
        self.step_on.as_ref().is_some_and(|step_on| step_on.name == callsite.name())
    }

    /// Keeps the fields and the parent of a new span, and notes whether it ends a step or is a request.
    #[inline(never)]
    pub(super) fn keep_fields(&self, attributes: &Attributes<'_>, id: RegistryId) {
        let _uncounted = Uncounted::begin();
        let callsite = attributes.metadata();
        #[cfg(feature = "serving")]
        let request = self.host.new_request(callsite);
        let step = self.is_step(callsite) && !thread::is_muted();
        // `parent: None` says nothing about where the span will be entered: libraries create the spans of a model with
        // it, so that they keep no other span open, and enter them inside the spans of each step.
        let parent = attributes.parent();
        if step || parent.is_some() || !callsite.fields().is_empty() {
            let keep = |fields: &mut Vec<FieldData>| {
                #[cfg(feature = "serving")]
                request.iter().for_each(|request| request.begin(id, fields));
                self.host.live.insert(id, fields, step);
            };
            fields::collect(|visit| attributes.record(visit), keep);
        } else {
            #[cfg(feature = "serving")]
            request.iter().for_each(|request| request.begin(id, &[]));
        }
        if let Some(parent) = parent {
            self.host.live.set_parent(id, parent.into_non_zero_u64());
        }
    }

    /// Closes a span that may end a step or be a request.
    #[inline(never)]
    pub(super) fn close_named<S>(&self, control: Control, id: &Id, ctx: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let uncounted = Uncounted::begin_if(control.counts_heap());
        #[cfg(feature = "serving")]
        self.host.end_request(id.into_u64());
        let steps = self.step_on.is_some();
        let ends_step = match self.host.live.remove(id.into_u64(), steps) {
            // If the table was too full for the span, its name has to be looked up.
            None if steps && self.host.live.has_lost() => {
                ctx.span(id).is_some_and(|span| self.is_step(span.metadata()))
            }
            ends_step => ends_step.unwrap_or(false),
        };
        drop(uncounted);
        if ends_step {
            self.step_on.iter().for_each(|step_on| (step_on.step)());
        }
    }
}
