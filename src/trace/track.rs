/// The operating system's id of a thread, as debuggers, CUPTI and `top -H` show it.
///
/// Where the system has none that can be read, a number unique in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(u64);

impl ThreadId {
    pub(crate) const fn new(id: u64) -> Self {
        Self(id)
    }

    /// The id as a number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// Names a [`Track`] of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrackId(u32);

impl TrackId {
    pub(crate) fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The place of the track in [`Trace::tracks`](crate::Trace::tracks).
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A row of spans that nest: a thread, or what of a thread would not nest.
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

    /// 0 for the thread's own track. Spans exited out of order cannot all nest on one track, and no viewer draws spans that
    /// cross; those that do are on the tracks 1, 2, … of their thread.
    pub fn overlap(&self) -> u32 {
        self.overlap
    }

    /// A name for people: the thread's, with the overlap if there is one.
    pub fn label(&self) -> String {
        match self.overlap {
            0 => self.name.clone(),
            overlap => format!("{} (overlap {overlap})", self.name),
        }
    }
}
