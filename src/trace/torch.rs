//! The parts specific to PyTorch traces.

use super::{SpanId, StreamId, Timestamp, TrackId};
use std::{collections::BTreeMap, sync::Arc};

/// The parts specific to PyTorch traces: links from forward to backward operators, changes in host memory, annotations
/// on GPUs, and the names of processes.
///
/// ```
/// use kernspan::trace::{Torch, Trace};
///
/// /// Prints the operators of the backward pass, each with the one whose gradient it computes.
/// fn print_links(trace: &Trace) {
///     let names: Vec<_> = trace.spans().map(|span| span.name()).collect();
///     for (forward, backward) in trace.torch().into_iter().flat_map(Torch::backward_links) {
///         println!("{} computes the gradient of {}", names[backward.index()], names[forward.index()]);
///     }
/// }
/// # print_links(&Trace::default());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Torch {
    /// Operators of the forward pass, and those that compute their gradients; sorted, without duplicates.
    pub(crate) links: Vec<(SpanId, SpanId)>,
    pub(crate) host_allocations: Vec<HostAllocation>,
    pub(crate) gpu_annotations: Vec<GpuAnnotation>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) processes: BTreeMap<RowId, ProcessNames>,
    /// The names and positions of rows, by process and thread, or by device and stream.
    pub(crate) rows: BTreeMap<(i64, i64), RowName>,
    /// Parts of the file that the trace does not contain, and how often each occurred.
    pub(crate) left_out: BTreeMap<&'static str, u64>,
}

impl Torch {
    /// The operators of the forward pass, each with one that computes its gradient.
    pub fn backward_links(&self) -> impl ExactSizeIterator<Item = (SpanId, SpanId)> {
        self.links.iter().copied()
    }

    /// The number of allocations and frees of host memory.
    pub fn host_memory_changes(&self) -> usize {
        self.host_allocations.len()
    }

    /// The number of annotations on GPUs.
    pub fn gpu_annotations(&self) -> usize {
        self.gpu_annotations.len()
    }

    /// The parts of the file that the trace does not contain, and how often each occurred: arguments of events, by
    /// name, and `ends of arrows` that lead nowhere.
    pub fn left_out(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.left_out.iter().map(|(&part, &count)| (part, count))
    }
}

/// A change in host memory, as PyTorch's allocator reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostAllocation {
    pub(crate) at: Timestamp,
    pub(crate) address: u64,
    /// The change in bytes in use, negative for a free.
    pub(crate) delta: i64,
    /// Bytes in use after the change.
    pub(crate) in_use: u64,
    pub(crate) track: TrackId,
}

/// The time that an annotation took on a stream, as PyTorch's profiler computed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GpuAnnotation {
    pub(crate) name: Arc<str>,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    /// The stream's first row.
    pub(crate) stream: StreamId,
    /// The annotation on the host.
    pub(crate) span: Option<SpanId>,
}

/// A marker of the profiler's own window, such as `PyTorch Profiler (0)` or `Record Window End`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) name: String,
    pub(crate) process: RowId,
    pub(crate) thread: RowId,
    pub(crate) start: Timestamp,
    /// The end, unless it is an instant.
    pub(crate) end: Option<Timestamp>,
}

/// The id of a process or thread, which PyTorch writes as a number or as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowId {
    Number(i64),
    #[cfg_attr(not(feature = "read"), expect(dead_code, reason = "only the reader makes it"))]
    Text(String),
}

/// The name, the label and the position of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessNames {
    pub(crate) name: Option<String>,
    pub(crate) label: Option<String>,
    pub(crate) sort_index: Option<i64>,
}

/// The name and the position of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowName {
    pub(crate) name: Option<String>,
    pub(crate) sort_index: Option<i64>,
}
