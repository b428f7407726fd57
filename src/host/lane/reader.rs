//! The reading end of a lane.

use super::{Found, Live, Record, Resolve, Ring, Shared, SharedStack, ThreadInfo};
use rtrb::Consumer;
use std::sync::{Arc, Weak, atomic::Ordering};

/// The reading end of a lane, owned by the collector.
#[derive(Debug)]
pub(crate) struct LaneReader {
    ring: Consumer<Record>,
    shared: Arc<Shared>,
}

impl LaneReader {
    pub(super) fn new(ring: Consumer<Record>, shared: Arc<Shared>) -> Self {
        Self { ring, shared }
    }

    pub(crate) fn thread(&self) -> &ThreadInfo {
        &self.shared.thread
    }

    /// The open spans of the thread.
    pub(in crate::host) fn stack(&self) -> Weak<SharedStack> {
        Arc::downgrade(&self.shared.stack)
    }

    /// Whether the thread may have been in this window.
    pub(crate) fn was_in(&self, window: u32) -> bool {
        self.shared.first_window <= window
    }

    /// Whether the thread is in a call that it made in this window and whose record it has not written.
    pub(crate) fn is_in_call(&self, window: u32) -> bool {
        self.shared.in_call.load(Ordering::Acquire) == window + 1
    }

    /// Reads the next record, if there is one.
    #[inline]
    pub(crate) fn read(&mut self) -> Option<Record> {
        self.ring.pop().ok()
    }

    /// Whether the thread has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.lock_returned().is_some()
    }

    /// Whether the thread has ended, and left neither records nor losses.
    pub(in crate::host) fn is_done(&self) -> bool {
        self.has_ended() && self.ring.is_empty() && self.shared.dropped.load(Ordering::Relaxed) == 0
    }

    /// Returns the ring, if the thread has ended and all its records have been read.
    pub(in crate::host) fn into_ring(self) -> Option<Ring> {
        let producer = self.shared.lock_returned().take().filter(|_| self.ring.is_empty())?;
        Some((producer, self.ring))
    }

    /// Spans and events dropped since the last call.
    pub(crate) fn take_dropped(&self) -> u64 {
        self.shared.dropped.swap(0, Ordering::Relaxed)
    }

    /// Returns the spans open on the thread now, as records. The stack is read twice: spans that both readings show
    /// were open in between, and so alive, and their ids were not reused.
    pub(in crate::host) fn open_spans(&self, find: impl Resolve, live: &Live) -> Vec<Record> {
        let (ids, adopted) = (self.shared.stack.ids(), self.shared.stack.adopted());
        let mut records = Vec::new();
        records.extend(adopted.map(|origin| Record::Adopt(Some(origin))));
        for (depth, &id) in ids.iter().enumerate() {
            let Some(Found { callsite, made_in }) = find(id) else { continue };
            records.push(Record::Open { id, callsite });
            records.extend(live.parent(id).or(made_in.filter(|_| depth == 0)).map(|id| Record::Parent { id }));
            live.with(id, |entry| records.extend(entry.fields.iter().cloned().map(Record::Field)));
        }
        let same = (ids, adopted) == (self.shared.stack.ids(), self.shared.stack.adopted());
        if same { records } else { Vec::new() }
    }
}
