//! The row that an event is drawn on.

use super::json::Json;
use crate::trace::Track;

/// A row, by the two numbers that Kineto gives it: process and thread, or device and stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Row {
    pub(super) pid: i64,
    pub(super) tid: i64,
}

impl Row {
    /// The distance between the rows of one thread or stream, larger than any thread id or stream number.
    pub(super) const DISTANCE: i64 = 10_000_000;

    /// The row of a track in this process: the thread's own id, or one that no thread has.
    pub(super) fn of_track(pid: i64, track: &Track) -> Self {
        let tid = track.thread().as_u64().cast_signed();
        Self { pid, tid: tid.wrapping_add(i64::from(track.overlap()) * Self::DISTANCE) }
    }

    /// Appends the row to an event.
    pub(super) fn write(self, event: &mut Json) {
        event.raw(",\"pid\":").number(self.pid).raw(",\"tid\":").number(self.tid);
    }

    /// Appends the row to an event, and the key of the event's time.
    pub(super) fn write_before_time(self, event: &mut Json) {
        self.write(event);
        event.raw(",\"ts\":");
    }
}

/// A row as an event has it before its time, kept as text because many events are on the same row.
#[derive(Clone, Debug)]
pub(super) struct RowText(Json);

impl RowText {
    /// Appends the row to an event, and the key of the event's time.
    #[inline]
    pub(super) fn write_before_time(&self, event: &mut Json) {
        event.raw(self.0.as_bytes());
    }
}

impl From<Row> for RowText {
    fn from(row: Row) -> Self {
        let mut text = Json::default();
        row.write_before_time(&mut text);
        Self(text)
    }
}
