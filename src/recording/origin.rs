use crate::{clock::Ticks, trace::ThreadId};
use std::num::NonZeroU32;

/// Where work comes from: a moment on a thread, and so the innermost span that was open there then.
///
/// Made by [`HandOver::origin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub(crate) at: Ticks,
    thread: NonZeroU32,
    /// 0 for none.
    batch: u32,
}

impl Origin {
    pub(crate) fn new(at: Ticks, thread: ThreadId) -> Self {
        let thread = u32::try_from(thread.as_u64()).unwrap_or(u32::MAX);
        Self { at, thread: NonZeroU32::new(thread).unwrap_or(NonZeroU32::MAX), batch: 0 }
    }

    /// The same origin, as part of a batch: what a thread tells of and launches once it has adopted it belongs to the batch, too.
    ///
    /// A framework that fuses operations adopts the origin of each in the batch that it is run in, tells of it (see
    /// [`HandOver::operation`]), and launches in that batch, on whichever thread: then [`Work::operations`](crate::trace::Work::operations)
    /// are those of the batch, and [`Work::spans`](crate::trace::Work::spans) all that asked for them.
    ///
    /// Batches that are told of in one window must have different numbers: a counter will do, also one that begins anew after four
    /// billion. 0 is no batch.
    #[must_use]
    pub fn in_batch(self, batch: u32) -> Self {
        Self { batch, ..self }
    }

    /// The same thread at the moment of another origin, and so the innermost span that was open there then.
    #[must_use]
    pub fn at_moment_of(self, other: Self) -> Self {
        Self { at: other.at, ..self }
    }

    /// Whether it is an earlier moment, on whichever thread.
    pub fn is_before(self, other: Self) -> bool {
        self.at < other.at
    }

    pub(crate) fn thread(self) -> ThreadId {
        ThreadId::new(self.thread.get().into())
    }

    /// The number of the batch, 0 for none.
    pub(crate) fn batch(self) -> u32 {
        self.batch
    }
}
