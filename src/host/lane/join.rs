//! A thread joins a window: it writes which spans were open already, and then goes on.

use super::{Lane, Resolve, Sources};
use crate::{
    host::{Control, stack::Open},
    recording::Record,
};
use std::sync::atomic::Ordering;

impl Lane {
    /// Notices a window's edge. Returns whether the thread has joined the window that is open.
    #[inline]
    pub(super) fn follow(&mut self, control: Control, sources: &Sources<'_, impl Resolve>) -> bool {
        self.seen == control || self.notice(control, sources)
    }

    #[cold]
    fn notice(&mut self, control: Control, sources: &Sources<'_, impl Resolve>) -> bool {
        // The spans that are open now were open through all windows in which this thread did nothing. Once the thread
        // goes on, the collector cannot see that any more: so it is written for each window that the collector has not
        // come to yet.
        let missed = self.window.map_or(0, |window| window + 1).max(self.shared.first_window);
        let mut told = false;
        for window in missed.max(sources.collected.load(Ordering::Relaxed))..control.window() {
            let joined = self.join(window, sources);
            told |= joined;
            if !joined {
                self.stack.to_vec().iter().for_each(|_| self.count_drop());
            }
        }
        let joined = !control.is_recording() || self.join(control.window(), sources);
        told |= joined && control.is_recording();
        if told {
            self.write(Record::Told);
            self.owed -= 1;
        }
        if joined {
            self.seen = control;
        }
        joined
    }

    /// Joins a window: writes the spans that were open already, and the origin that the thread has adopted. Returns
    /// false if there is no room.
    fn join(&mut self, window: u32, sources: &Sources<'_, impl Resolve>) -> bool {
        if !self.ring_has_room(3) {
            return false;
        }
        self.write(Record::Join { window });
        self.window = Some(window);
        // `Told` is owed, too.
        self.owed = 1;
        self.owes_adopt = false;
        if self.adopted.is_some() {
            self.write(Record::Adopt(self.adopted));
        }
        self.forget_contexts();
        let mut open = self.stack.to_vec();
        for Open { id, recorded } in &mut open {
            let id = *id;
            let context = self.found_context(window, id);
            let open = |callsite| Some(Record::Open { id, callsite });
            *recorded = self.write_enter(id, sources, &mut None, context.flatten(), open);
            if *recorded {
                self.settle_context(id, context);
            } else {
                self.count_drop();
            }
        }
        self.stack.replace(&open);
        true
    }
}
