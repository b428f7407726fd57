//! Joining a window: a thread writes which spans it already had open, and then continues.

use super::{Lane, Resolve, Sources};
use crate::{
    heap,
    host::{Control, stack::Open},
    recording::Record,
};
use std::sync::atomic::Ordering;

impl Lane {
    /// Joins the open window, if the thread has not done so. Returns false if there is no room.
    #[inline]
    pub(super) fn follow(&mut self, control: Control, sources: &Sources<'_, impl Resolve>) -> bool {
        self.seen == control || self.join_new(control, sources)
    }

    #[cold]
    fn join_new(&mut self, control: Control, sources: &Sources<'_, impl Resolve>) -> bool {
        // The spans open now were open through all windows in which this thread wrote nothing. Once the thread
        // continues, its stack no longer shows that. So the spans are written for each window that the collector has
        // not passed on.
        let missed = self.window.map_or(0, |window| window + 1).max(self.shared.first_window);
        let mut joined_any = false;
        for window in missed.max(sources.collected.load(Ordering::Relaxed))..control.window() {
            let joined = self.join(window, sources);
            joined_any |= joined;
            if !joined {
                self.stack.to_vec().iter().for_each(|_| self.count_drop());
            }
        }
        let joined = !control.is_recording() || self.join(control.window(), sources);
        joined_any |= joined && control.is_recording();
        if joined_any {
            self.write(Record::Joined);
            self.reserved -= 1;
        }
        if joined {
            self.seen = control;
        }
        joined
    }

    /// Joins a window: writes the spans that were already open, and the origin that the thread has adopted. Returns
    /// false if there is no room.
    fn join(&mut self, window: u32, sources: &Sources<'_, impl Resolve>) -> bool {
        if !self.ring_has_room(3) {
            return false;
        }
        self.write(Record::Join { window });
        self.window = Some(window);
        self.heap = heap::of_this_thread();
        // A slot for `Joined`.
        self.reserved = 1;
        self.adopt_pending = false;
        if self.adopted.is_some() {
            self.write(Record::Adopt(self.adopted));
        }
        self.forget_contexts();
        let mut open = self.stack.to_vec();
        for (depth, Open { id, recorded }) in open.iter_mut().enumerate() {
            let id = *id;
            let context = self.found_context(window, id);
            let open = |callsite, _| Some(Record::Open { id, callsite });
            *recorded = self.write_enter(id, depth, sources, &mut None, context.flatten(), open);
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
