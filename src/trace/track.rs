//! Tracks: the rows of a thread's spans.

use super::id::define_id;

define_id! {
    /// The operating system's id of a thread, as debuggers, CUPTI and `top -H` show it.
    ///
    /// If the system has no readable id, it is a number that is unique in this process.
    pub struct ThreadId(u64);

    /// The id as a number.
    pub const fn as_u64;
}

define_id! {
    /// Names a [`Track`] of one trace.
    pub struct TrackId;

    /// The index of the track in [`Trace::tracks`](crate::Trace::tracks).
    pub fn index;
}

/// A row of properly nested spans of one thread.
///
/// Most threads have one track. A thread whose spans are exited out of order has more, since spans that overlap without
/// nesting cannot share a track, and no viewer can draw them on one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    pub(crate) thread: ThreadId,
    pub(crate) name: String,
    pub(crate) overlap: u32,
}

impl Track {
    /// The thread.
    pub fn thread(&self) -> ThreadId {
        self.thread
    }

    /// The thread's name.
    pub fn thread_name(&self) -> &str {
        &self.name
    }

    /// The number of the track within its thread: 0 for the main one; 1, 2, … for tracks of spans that overlap without
    /// nesting.
    pub fn overlap(&self) -> u32 {
        self.overlap
    }

    /// A display name: the thread's name, with the number of the track if that is not 0.
    pub fn label(&self) -> String {
        match self.overlap {
            0 => self.name.clone(),
            overlap => format!("{} (overlap {overlap})", self.name),
        }
    }
}
