//! Memory accounting for records.

use super::{Origin, Record, Recording, StepMark, ThreadRecords};
use crate::cpu_time::ThreadUsage;
use crate::trace::{
    AllocationData, ApiCallData, Collective, EventData, FieldData, OperationCallData, SpanData, SpanId, Step,
    TraceContext, Track,
};
use std::sync::Arc;

/// The allocator's overhead per allocation, and the reference counts of an [`Arc`] in it.
const ALLOCATION: usize = 32;
/// A hash map entry with a small value, while the map is half empty.
const MAP_ENTRY: usize = 64;
/// A captured backtrace, and the same again for the names of its functions.
const BACKTRACE: usize = 2 * 4096;

impl Record {
    /// Estimates how many bytes the record takes in addition to its own size until it has been exported: the memory it
    /// owns, its part of the trace, and what is needed to build that.
    pub(crate) fn cost(&self) -> usize {
        match self {
            // Its track among several, its node in the report, its path in the samples of steps, its place among the
            // enters of its call (the moment, two ids and the first enter), and a share of what looks it up and draws
            // it.
            Self::Enter { .. } | Self::EnterKept { .. } | Self::Open { .. } => {
                size_of::<SpanData>() + size_of::<[usize; 10]>()
            }
            // A sample of a counter takes less than the event.
            Self::Event { .. } => size_of::<EventData>() + 2 * size_of::<u64>(),
            // Its span has an entry in a map, and all fields of the span may be copied.
            Self::Update { .. } => 3 * MAP_ENTRY + 3 * ALLOCATION + 4 * size_of::<FieldData>(),
            // It is kept in a list, then in a map from its span to a list.
            Self::Follows { .. } => size_of::<[u64; 3]>() + 2 * MAP_ENTRY + ALLOCATION,
            Self::Field(field) => {
                // An eighth more, since texts of varying length fragment the heaps of the threads that free them:
                // without it, a window full of texts of 500 bytes took 3 % more than allowed (`tests/memory`).
                let text = field.value.as_str().map_or(0, |text| text.len() + text.len() / 8 + ALLOCATION);
                // A trace's list of fields grows by doubling, and is copied as it grows.
                2 * size_of::<FieldData>() + text
            }
            // The span keeps fields that it shares with its instances. The first instance accounts for them.
            Self::Fields(fields) if Arc::strong_count(fields) <= 2 => {
                3 * size_of_val::<[FieldData]>(fields) + ALLOCATION + 2 * MAP_ENTRY
            }
            Self::Context { .. } | Self::Unsampled { .. } | Self::ContextOf { .. } => {
                size_of::<(SpanId, Option<TraceContext>)>()
            }
            // Its span has an entry in a map and in a list.
            Self::Parent { .. } => 2 * size_of::<(SpanId, Option<SpanId>)>() + 2 * size_of::<(SpanId, u64)>(),
            Self::Heap(_) | Self::CpuStart { .. } | Self::CpuEnd { .. } => MAP_ENTRY,
            Self::Backtrace(_) => BACKTRACE,
            // A thread's calls are sorted before they are added to the trace.
            Self::Call(_) => 5 * size_of::<(ApiCallData, Option<Origin>)>() / 2,
            Self::Memory(_) => 2 * size_of::<(AllocationData, Option<Origin>)>(),
            Self::Operation { operation, .. } => {
                // The framework keeps an operation that it reports repeatedly.
                let is_owned = Arc::strong_count(operation) == 1;
                let owned = if is_owned { operation.bytes() + 8 * ALLOCATION + 2 * MAP_ENTRY } else { 0 };
                size_of::<(OperationCallData, Option<Origin>)>() + 4 * size_of::<u64>() + owned
            }
            Self::Pool { .. } => MAP_ENTRY,
            // The names in it are shared.
            Self::Collective { .. } => size_of::<Collective>() + ALLOCATION + 2 * MAP_ENTRY,
            Self::Fields(_) | Self::Join { .. } | Self::Joined | Self::Exit { .. } | Self::Adopt(_) => 0,
        }
    }
}

impl ThreadRecords {
    /// Estimates how many bytes a thread with a name of this length takes in a window in addition to its records: its
    /// lists of records, and its track with its name.
    pub(crate) fn cost(name: &str) -> usize {
        size_of::<Self>() + size_of::<Track>() + 2 * (name.len() + ALLOCATION) + 4 * ALLOCATION
    }
}

impl ThreadUsage {
    /// Roughly how many bytes the CPU time of threads of one name takes, with its counter and its sample.
    pub(crate) const COST: usize = 2 * size_of::<Self>() + 3 * ALLOCATION;
}

impl StepMark {
    /// Roughly how many bytes a step takes until it has been exported. Lists of steps grow by doubling, and reports
    /// build lists with a number for each.
    pub(crate) const COST: usize = 3 * size_of::<Self>() / 2 + size_of::<Step>() + size_of::<u64>();
}

impl Recording {
    /// Roughly how many bytes a window takes in addition to its records, on its way from the session to the export,
    /// with its first step. Queues of windows are made of blocks, and memory freed while they wait is not reused at
    /// once: on a busy machine they take twice their size.
    pub(crate) const COST: usize = 2 * size_of::<Self>() + 4 * size_of::<StepMark>() + 34 * ALLOCATION;
}

#[cfg(test)]
mod tests {
    use super::{Record, SpanData};

    /// The figure given in the documentation of the memory limit.
    #[test]
    fn a_span_without_fields_takes_200_bytes() {
        assert_eq!(2 * size_of::<Record>() + size_of::<SpanData>() + size_of::<[usize; 10]>(), 200);
    }
}
