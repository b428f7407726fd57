//! The kinds of counts that are compared between runs.

use std::fmt;

/// A count of a step that does not depend on how fast the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(any(feature = "read", feature = "serde"), derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "read", derive(serde::Deserialize))]
#[non_exhaustive]
pub enum CountKind {
    /// Calls of spans.
    Calls,
    /// Kernels that were launched.
    Kernels,
    /// Copies of memory to, from or on GPUs.
    Copies,
    /// Bytes of these copies.
    CopiedBytes,
    /// Fills of GPU memory.
    Fills,
    /// Allocations of GPU memory.
    Allocations,
    /// Bytes of these allocations.
    AllocatedBytes,
    /// Floating-point operations, with nested spans.
    Flops,
}

impl CountKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Calls,
        Self::Kernels,
        Self::Copies,
        Self::CopiedBytes,
        Self::Fills,
        Self::Allocations,
        Self::AllocatedBytes,
        Self::Flops,
    ];

    /// The name, as in files and options, such as `copied_bytes`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Kernels => "kernels",
            Self::Copies => "copies",
            Self::CopiedBytes => "copied_bytes",
            Self::Fills => "fills",
            Self::Allocations => "allocations",
            Self::AllocatedBytes => "allocated_bytes",
            Self::Flops => "flops",
        }
    }

    /// The noun for a sentence, such as `kernel launch` or, of several, `kernel launches`.
    pub fn noun(self, several: bool) -> &'static str {
        match (self, several) {
            (Self::Calls, false) => "call",
            (Self::Calls, true) => "calls",
            (Self::Kernels, false) => "kernel launch",
            (Self::Kernels, true) => "kernel launches",
            (Self::Copies, false) => "copy",
            (Self::Copies, true) => "copies",
            (Self::CopiedBytes, false) => "copied byte",
            (Self::CopiedBytes, true) => "copied bytes",
            (Self::Fills, false) => "fill",
            (Self::Fills, true) => "fills",
            (Self::Allocations, false) => "allocation",
            (Self::Allocations, true) => "allocations",
            (Self::AllocatedBytes, false) => "allocated byte",
            (Self::AllocatedBytes, true) => "allocated bytes",
            (Self::Flops, false) => "floating-point operation",
            (Self::Flops, true) => "floating-point operations",
        }
    }
}

impl fmt::Display for CountKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
