//! The row on which an event is drawn.

use crate::{
    export::json::{Members, Object},
    trace::Track,
};

/// A row, by the two numbers that Kineto gives it: process and thread, or device and stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Row {
    pub(super) pid: i64,
    pub(super) tid: i64,
}

impl Row {
    /// The difference between the `tid`s of the rows of one thread or stream: more than any thread id or stream number.
    pub(super) const TID_STRIDE: i64 = 10_000_000;

    /// Returns the row of a track in this process. Its `tid` is the thread's own id, or one that no thread has.
    pub(super) fn of_track(pid: i64, track: &Track) -> Self {
        let tid = track.thread().as_u64().cast_signed();
        Self { pid, tid: tid.wrapping_add(i64::from(track.overlap()) * Self::TID_STRIDE) }
    }

    /// Adds the row to an event.
    pub(super) fn write(self, event: &mut Object<'_>) {
        event.number("pid", self.pid);
        event.number("tid", self.tid);
    }
}

/// A row as text, kept because many events are on the same row.
#[derive(Clone, Debug)]
pub(super) struct RowText(Members);

impl RowText {
    /// Takes the members that name a row.
    pub(super) fn of(members: Members) -> Self {
        Self(members)
    }

    /// Adds the row to an event.
    #[inline]
    pub(super) fn write(&self, event: &mut Object<'_>) {
        event.members(&self.0);
    }
}

impl From<Row> for RowText {
    fn from(row: Row) -> Self {
        Self(Members::new(|event| row.write(event)))
    }
}
