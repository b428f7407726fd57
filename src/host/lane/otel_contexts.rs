//! OpenTelemetry contexts of the spans that were open on a thread before it joined a window.

use super::{Control, Lane, Record, RegistryId, Resolve, Sources};
use crate::trace::TraceContext;

/// Contexts that a lane still has to write.
#[derive(Debug, Default)]
pub(super) struct LaneContexts {
    /// Spans that were open, and whose contexts have not been looked up.
    pending: Vec<RegistryId>,
    /// Contexts looked up when a window opened, before the thread joined it.
    found: Vec<(RegistryId, Option<TraceContext>)>,
    /// The window they were looked up for.
    found_for: Option<u32>,
}

impl Lane {
    /// The spans open on the thread, outermost first.
    pub(in super::super) fn open_ids(&self) -> Vec<RegistryId> {
        self.stack.to_vec().iter().map(|open| open.id).collect()
    }

    /// Keeps contexts until the thread joins the window. It does not join here, since a call that has begun may still
    /// belong to the previous window.
    pub(in super::super) fn keep_contexts(&mut self, control: Control, found: Vec<(RegistryId, Option<TraceContext>)>) {
        if self.window == Some(control.window()) {
            found.into_iter().for_each(|(id, context)| self.write_context(control, id, context));
        } else {
            self.contexts = LaneContexts { pending: Vec::new(), found, found_for: Some(control.window()) };
        }
    }

    /// Whether the thread has joined the window and written all contexts.
    #[inline]
    pub(in super::super) fn has_no_pending_contexts(&self, control: Control) -> bool {
        self.seen == control && self.contexts.pending.is_empty()
    }

    /// Whether the context of this span still has to be written.
    pub(in super::super) fn has_pending_context(
        &mut self,
        control: Control,
        id: RegistryId,
        sources: &Sources<'_, impl Resolve>,
    ) -> bool {
        self.follow(control, sources) && self.contexts.pending.contains(&id)
    }

    /// Writes the context of a span, or that it has none.
    pub(in super::super) fn write_context(&mut self, control: Control, id: RegistryId, context: Option<TraceContext>) {
        let before = self.contexts.pending.len();
        self.contexts.pending.retain(|span| *span != id);
        // Nothing is written if the window has closed meanwhile.
        if self.contexts.pending.len() < before && self.seen == control && self.has_room(2) {
            self.write(Record::ContextOf { id });
            context.into_iter().for_each(|context| self.write(Record::of_context(context)));
        }
    }

    /// The context of a span that is open when the thread joins a window; `None` if it has not been looked up.
    pub(super) fn found_context(&self, window: u32, id: RegistryId) -> Option<Option<TraceContext>> {
        let mut found = self.contexts.found.iter().filter(|_| self.contexts.found_for == Some(window));
        found.find(|(span, _)| *span == id).map(|&(_, context)| context)
    }

    /// Notes that an open span has been written, with its context if found.
    pub(super) fn settle_context(&mut self, id: RegistryId, found: Option<Option<TraceContext>>) {
        match found {
            _ if !TraceContext::IS_RECORDED => {}
            Some(Some(_)) => {}
            Some(None) => {
                if self.has_room(1) {
                    self.write(Record::ContextOf { id });
                }
            }
            None => self.contexts.pending.push(id),
        }
    }

    /// Clears the contexts that another window still needed.
    pub(super) fn forget_contexts(&mut self) {
        self.contexts.pending.clear();
    }
}
