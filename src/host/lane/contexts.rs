//! Which spans of OpenTelemetry's those are that were open on a thread before it joined a window.

use super::{Control, Lane, Record, RegistryId, Resolve, Sources};
use crate::trace::TraceContext;

/// What a thread knows of that.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    /// What was open, of which it is still to be told.
    owed: Vec<RegistryId>,
    /// What was asked when a window opened, before the thread joined it.
    asked: Vec<(RegistryId, Option<TraceContext>)>,
    asked_for: Option<u32>,
}

impl Lane {
    /// What is open on the thread.
    pub(in super::super) fn open_ids(&self) -> Vec<RegistryId> {
        self.stack.to_vec().iter().map(|open| open.id).collect()
    }

    /// Keeps what was asked until the thread joins the window. It does not join here: a call that has begun is in the window before.
    pub(in super::super) fn keep_contexts(&mut self, control: Control, asked: Vec<(RegistryId, Option<TraceContext>)>) {
        if self.window == Some(control.window()) {
            asked.into_iter().for_each(|(id, context)| self.write_context(control, id, context));
        } else {
            self.contexts = Contexts { owed: Vec::new(), asked, asked_for: Some(control.window()) };
        }
    }

    /// Whether the thread has joined the window and told all.
    #[inline]
    pub(in super::super) fn owes_no_contexts(&self, control: Control) -> bool {
        self.seen == control && self.contexts.owed.is_empty()
    }

    /// Whether it is still to be told which span of OpenTelemetry's this is.
    pub(in super::super) fn owes_context(
        &mut self,
        control: Control,
        id: RegistryId,
        sources: &Sources<'_, impl Resolve>,
    ) -> bool {
        self.follow(control, sources) && self.contexts.owed.contains(&id)
    }

    /// Tells it, or that it is none.
    pub(in super::super) fn write_context(&mut self, control: Control, id: RegistryId, context: Option<TraceContext>) {
        let owed = self.contexts.owed.len();
        self.contexts.owed.retain(|owed| *owed != id);
        // Unless the window has closed meanwhile.
        if self.contexts.owed.len() < owed && self.seen == control && self.has_room(2) {
            self.write(Record::Of { id });
            context.into_iter().for_each(|context| self.write(Record::of_context(context)));
        }
    }

    /// The thread joins a window. Says which span of OpenTelemetry's one is that is open, and none if that is not known.
    pub(super) fn asked_context(&self, window: u32, id: RegistryId) -> Option<Option<TraceContext>> {
        let mut asked = self.contexts.asked.iter().filter(|_| self.contexts.asked_for == Some(window));
        asked.find(|(known, _)| *known == id).map(|&(_, context)| context)
    }

    /// What was open has been written, with its context.
    pub(super) fn settle_context(&mut self, id: RegistryId, asked: Option<Option<TraceContext>>) {
        match asked {
            Some(Some(_)) => {}
            Some(None) => {
                if self.has_room(1) {
                    self.write(Record::Of { id });
                }
            }
            None => self.contexts.owed.push(id),
        }
    }

    /// What another window was owed is owed no more.
    pub(super) fn forget_contexts(&mut self) {
        self.contexts.owed.clear();
    }
}
