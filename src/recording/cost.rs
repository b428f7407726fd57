//! The memory that records are charged with.

use super::{Origin, Record, Recording, StepMark, ThreadRecords};
use crate::trace::{
    AllocationData, ApiCallData, EventData, FieldData, OperationCallData, SpanData, SpanId, Step, TraceContext, Track,
};
use std::sync::Arc;

/// The allocator's own memory for an allocation, and the counts of an [`Arc`] in it.
const ALLOCATION: usize = 32;
/// An entry of a hash map with a small value, while the map is half empty.
const MAP_ENTRY: usize = 64;
/// A backtrace as it is captured, and the same again as the names of its functions.
const BACKTRACE: usize = 2 * 4096;

impl Record {
    /// Returns about how many bytes the record takes beside itself until it has been exported: the memory that it owns,
    /// its part of the trace, and what is needed to make that.
    pub(crate) fn cost(&self) -> usize {
        match self {
            // Its track among several, its node in the report, its path in the samples of steps, its place among the
            // enters of its call (the moment, two ids and the first enter), and a part of what finds and draws it.
            Self::Enter { .. } | Self::Open { .. } => size_of::<SpanData>() + size_of::<[usize; 10]>(),
            // A sample of a counter takes less than the event.
            Self::Event { .. } => size_of::<EventData>() + 2 * size_of::<u64>(),
            // Its span has an entry in a map, and all fields of the span may be copied.
            Self::Update { .. } => 3 * MAP_ENTRY + 3 * ALLOCATION + 4 * size_of::<FieldData>(),
            Self::Field(field) => {
                // An eighth more, since texts of many lengths leave gaps in the memory of the threads that free them: a
                // window full of texts of 500 bytes took 3 % more than is allowed without it (`tests/memory`).
                let text = field.value.as_str().map_or(0, |text| text.len() + text.len() / 8 + ALLOCATION);
                // The list of a trace's fields grows by doubling, and is copied meanwhile.
                2 * size_of::<FieldData>() + text
            }
            // The span holds on to fields that it shares with its instances. The first instance pays for them.
            Self::Fields(fields) if Arc::strong_count(fields) <= 2 => {
                3 * size_of_val::<[FieldData]>(fields) + ALLOCATION + 2 * MAP_ENTRY
            }
            Self::Context { .. } | Self::Unsampled { .. } | Self::ContextOf { .. } => {
                size_of::<(SpanId, Option<TraceContext>)>()
            }
            // Its span has an entry in a map and in a list.
            Self::Parent { .. } => 2 * size_of::<(SpanId, Option<SpanId>)>() + 2 * size_of::<(SpanId, u64)>(),
            Self::Backtrace(_) => BACKTRACE,
            // The calls of a thread are sorted before they are added to the trace.
            Self::Call(_) => 5 * size_of::<(ApiCallData, Option<Origin>)>() / 2,
            Self::Memory(_) => 2 * size_of::<(AllocationData, Option<Origin>)>(),
            Self::Operation { operation, .. } => {
                // The framework holds on to an operation that it reports again and again.
                let is_owned = Arc::strong_count(operation) == 1;
                let owned = if is_owned { operation.bytes() + 8 * ALLOCATION + 2 * MAP_ENTRY } else { 0 };
                size_of::<(OperationCallData, Option<Origin>)>() + 4 * size_of::<u64>() + owned
            }
            Self::Fields(_) | Self::Join { .. } | Self::Joined | Self::Exit { .. } | Self::Adopt(_) => 0,
        }
    }
}

impl ThreadRecords {
    /// Returns about how many bytes a thread with a name of this length takes in a window, beside its records: its
    /// lists of records, and its track with its name.
    pub(crate) fn cost(name: &str) -> usize {
        size_of::<Self>() + size_of::<Track>() + 2 * (name.len() + ALLOCATION) + 4 * ALLOCATION
    }
}

impl StepMark {
    /// About how many bytes a step takes until it has been exported. Lists of them grow by doubling, and reports make
    /// lists of a number for each.
    pub(crate) const COST: usize = 3 * size_of::<Self>() / 2 + size_of::<Step>() + size_of::<u64>();
}

impl Recording {
    /// About how many bytes a window takes beside its records, on its way from the session to the export, with its
    /// first step. Queues of them are made of blocks, and of those that wait, what is freed is not used again at once:
    /// on a busy machine they take twice their size.
    pub(crate) const COST: usize = 2 * size_of::<Self>() + 4 * size_of::<StepMark>() + 34 * ALLOCATION;
}

#[cfg(test)]
mod tests {
    use super::{Record, SpanData};

    /// The figure that the documentation of the memory limit has.
    #[test]
    fn a_span_without_fields_takes_200_bytes() {
        assert_eq!(2 * size_of::<Record>() + size_of::<SpanData>() + size_of::<[usize; 10]>(), 200);
    }
}
