//! Records of device API calls and framework operations, and of the origin that a thread has adopted.

use super::{Lane, Resolve, Sources};
use crate::{
    clock::Ticks,
    host::{
        Control,
        call_attributor::{CallAttributor, DeviceWork},
    },
    recording::{Origin, Record},
};
use std::sync::atomic::Ordering;

impl Lane {
    /// Writes what a framework reports on this thread: an operation, or memory of its tensors.
    #[inline]
    pub(in super::super) fn write_reported(
        &mut self,
        mut control: Control,
        record: impl FnOnce(Ticks) -> Record,
        sources: &Sources<'_, impl Resolve>,
    ) {
        while control.is_recording() {
            // Two records, as in `write_or_count`; the clock is read only if there is room.
            let at = (self.follow(control, sources) && self.has_room_inside(2)).then(|| sources.clock.now());
            let before = std::mem::replace(&mut control, sources.control());
            // If the next window has opened meanwhile, the record belongs there. If this one has closed, `at` says
            // whether that was before the report.
            if control == before || !control.is_recording() {
                return match at {
                    Some(at) => self.write_or_count(record(at)),
                    None => self.count_drop(),
                };
            }
        }
    }

    /// Sets the origin on whose behalf the thread works from now on.
    #[inline]
    pub(in super::super) fn adopt(
        &mut self,
        control: Control,
        origin: Option<Origin>,
        sources: &Sources<'_, impl Resolve>,
    ) {
        let follows = self.follow(control, sources);
        // It has been written, since a thread writes its origin when it joins a window.
        if self.adopted == origin {
            return;
        }
        self.adopted = origin;
        self.shared.stack.set_adopted(origin);
        if control.is_recording() {
            // If there is no room, it is written before the next call.
            self.adopt_pending = !(follows && self.has_room(1));
            if !self.adopt_pending {
                self.write(Record::Adopt(origin));
            }
        }
    }

    /// Sets the callback that decides the origin of each call from now on.
    pub(in super::super) fn attribute_calls(&mut self, attributor: Option<CallAttributor>) {
        self.attributor = attributor;
    }

    /// Writes a call for the window that the lane last joined, even if it has closed meanwhile.
    #[inline]
    pub(in super::super) fn write_call(&mut self, work: DeviceWork, record: Record) {
        if let Some(CallAttributor(attribute)) = &self.attributor {
            let origin = attribute(work);
            if self.adopted != origin {
                self.adopted = origin;
                self.shared.stack.set_adopted(origin);
                self.adopt_pending = true;
            }
        }
        self.write_or_count(record);
    }

    /// Begins a call in the open window, joining the window if necessary. Returns false if there is no room to join.
    #[inline]
    pub(in super::super) fn enter_call(&mut self, control: Control, sources: &Sources<'_, impl Resolve>) -> bool {
        let joined = self.follow(control, sources);
        if joined {
            let window = control.window() + 1;
            if self.shared.in_call.load(Ordering::Relaxed) != window {
                self.shared.in_call.store(window, Ordering::Relaxed);
                self.calls = 0;
            }
            self.calls += 1;
        } else {
            self.count_drop();
        }
        joined
    }

    /// Ends a call that [`enter_call`](Self::enter_call) began, after it has been written.
    #[inline]
    pub(in super::super) fn leave_call(&mut self) {
        self.calls = self.calls.saturating_sub(1);
        if self.calls == 0 {
            // Release: whoever sees the 0 also sees the records of the call.
            self.shared.in_call.store(0, Ordering::Release);
        }
    }

    #[inline]
    fn write_or_count(&mut self, record: Record) {
        if !self.has_room_inside(2) {
            return self.count_drop();
        }
        if std::mem::take(&mut self.adopt_pending) {
            self.write(Record::Adopt(self.adopted));
        }
        self.write(record);
    }
}
