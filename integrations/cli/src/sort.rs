//! The columns that tables are sorted by.

use kernspan::report::{SortBy, SortOperationsBy};

/// A column to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sort {
    /// Time with nested spans
    Total,
    /// Time without nested spans
    #[value(name = "self")]
    Own,
    /// Mean time of a call
    Average,
    /// Number of calls
    Calls,
    /// Floating-point operations
    Flops,
    /// GPU time with nested spans
    TotalGpu,
    /// GPU time without nested spans
    SelfGpu,
    /// GPU memory, allocated less freed
    GpuMemory,
    /// The name, from A to Z
    Name,
}

impl Sort {
    pub(crate) fn spans(self) -> SortBy {
        match self {
            Self::Total => SortBy::TotalCpu,
            Self::Own => SortBy::SelfCpu,
            Self::Average => SortBy::AverageCpu,
            Self::Calls => SortBy::Calls,
            Self::Flops => SortBy::Flops,
            Self::TotalGpu => SortBy::TotalGpu,
            Self::SelfGpu => SortBy::SelfGpu,
            Self::GpuMemory => SortBy::GpuMemory,
            Self::Name => SortBy::Name,
        }
    }

    pub(crate) fn operations(self) -> SortOperationsBy {
        match self {
            Self::Own | Self::SelfGpu => SortOperationsBy::Alone,
            Self::Calls => SortOperationsBy::Calls,
            Self::Flops => SortOperationsBy::Flops,
            Self::Name => SortOperationsBy::Name,
            Self::Total | Self::Average | Self::TotalGpu | Self::GpuMemory => SortOperationsBy::Gpu,
        }
    }
}
