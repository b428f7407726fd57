//! The origin of work that one thread does on behalf of another.

use crate::{clock::Ticks, trace::ThreadId};
use std::num::NonZeroU32;

/// The origin of work: a moment on a thread, which stands for the innermost span open on the thread at that moment.
///
/// Created by [`HandOver::origin`](crate::framework::HandOver::origin).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub(crate) at: Ticks,
    thread: NonZeroU32,
    /// The number of the batch, 0 for none.
    batch: u32,
}

impl Origin {
    pub(crate) fn new(at: Ticks, thread: ThreadId) -> Self {
        let thread = u32::try_from(thread.as_u64()).unwrap_or(u32::MAX);
        Self { at, thread: NonZeroU32::new(thread).unwrap_or(NonZeroU32::MAX), batch: 0 }
    }

    /// Returns the same origin as part of a batch. Operations that a thread reports and work that it launches after
    /// adopting this origin belong to the batch.
    ///
    /// A framework that fuses operations puts those it runs together into one batch. For each operation, it adopts the
    /// operation's origin in that batch and reports it with
    /// [`HandOver::operation`](crate::framework::HandOver::operation). Then it launches kernels in that batch, on any
    /// thread. The [`operations`](crate::trace::Work::operations) of these kernels are those of the batch, and their
    /// [`spans`](crate::trace::Work::spans) are all spans that requested one of the operations.
    ///
    /// Different batches of one window must have different numbers. A counter will do, even one that wraps around after
    /// four billion; 0 means no batch.
    #[must_use]
    pub fn in_batch(self, batch: u32) -> Self {
        Self { batch, ..self }
    }

    /// Returns the origin with the thread of this one and the moment of `other`: the innermost span open on this
    /// origin's thread at that moment.
    #[must_use]
    pub fn at_moment_of(self, other: Self) -> Self {
        Self { at: other.at, ..self }
    }

    /// Whether the moment of this origin is earlier than that of `other`, on any thread.
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
