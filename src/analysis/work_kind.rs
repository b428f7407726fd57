//! The kinds of GPU work: compute, communication, memory.

use crate::trace::{Detail, Work};

/// The kind of a piece of GPU work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkKind {
    /// A kernel that computes.
    Compute,
    /// A kernel that communicates with other GPUs.
    Communication,
    /// A copy or fill of memory.
    Memory,
}

impl WorkKind {
    /// Returns the kind of a piece of work.
    pub(crate) fn of(work: Work<'_>) -> Self {
        match work.detail() {
            Detail::Kernel(kernel) if is_communication(&kernel.name) => Self::Communication,
            Detail::Kernel(_) => Self::Compute,
            Detail::Copy(_) | Detail::Fill(_) => Self::Memory,
        }
    }
}

/// Returns whether a kernel of this name communicates with other GPUs: NCCL's do.
pub(super) fn is_communication(kernel: &str) -> bool {
    kernel.starts_with("nccl")
}
