//! The use of the heap: what spans allocate and free, and sampled allocations.

use super::{Span, SpanId, Timestamp, Trace};
use std::ops::{AddAssign, Sub};

/// What was allocated and freed on the heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HeapUse {
    /// The number of allocations. Growing or shrinking memory in place counts as one.
    pub allocations: u64,
    /// The bytes allocated.
    pub allocated: u64,
    /// The bytes freed, wherever they were allocated.
    pub freed: u64,
}

impl HeapUse {
    /// Whether nothing was allocated or freed.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// The bytes allocated minus those freed: PyTorch's `CPU Mem`.
    pub fn net(self) -> i64 {
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        signed(self.allocated) - signed(self.freed)
    }
}

impl AddAssign for HeapUse {
    fn add_assign(&mut self, other: Self) {
        self.allocations = self.allocations.saturating_add(other.allocations);
        self.allocated = self.allocated.saturating_add(other.allocated);
        self.freed = self.freed.saturating_add(other.freed);
    }
}

impl Sub for HeapUse {
    type Output = Self;

    /// What was added since an earlier count.
    fn sub(self, earlier: Self) -> Self {
        Self {
            allocations: self.allocations.wrapping_sub(earlier.allocations),
            allocated: self.allocated.wrapping_sub(earlier.allocated),
            freed: self.freed.wrapping_sub(earlier.freed),
        }
    }
}

/// The stored data of a [`HeapSample`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeapSampleData {
    pub(crate) at: Timestamp,
    pub(crate) freed: Option<Timestamp>,
    pub(crate) bytes: u64,
    pub(crate) size: u64,
    /// An index of the trace's lines.
    pub(crate) line: Option<usize>,
    pub(crate) span: Option<SpanId>,
}

impl Trace {
    /// Whether allocations on the heap were counted: see [`Allocator`](crate::Allocator).
    pub fn is_heap_counted(&self) -> bool {
        self.heap.is_some()
    }

    /// A sample of the allocations on the heap, in chronological order.
    ///
    /// ```
    /// # use kernspan::Trace;
    /// /// The bytes that were allocated in the window and not freed, about.
    /// fn kept(trace: &Trace) -> u64 {
    ///     trace.heap_samples().filter(|sample| sample.freed().is_none()).map(|sample| sample.bytes()).sum()
    /// }
    /// ```
    pub fn heap_samples(&self) -> impl ExactSizeIterator<Item = HeapSample<'_>> {
        self.heap_samples.iter().map(|data| HeapSample::new(self, data))
    }
}

/// An allocation on the heap that stands for others, which were not sampled.
#[derive(Clone, Copy, Debug)]
pub struct HeapSample<'a> {
    trace: &'a Trace,
    data: &'a HeapSampleData,
}

impl<'a> HeapSample<'a> {
    fn new(trace: &'a Trace, data: &'a HeapSampleData) -> Self {
        Self { trace, data }
    }

    /// When it was allocated.
    pub fn at(self) -> Timestamp {
        self.data.at
    }

    /// When it was freed; `None` if it was in use when the window closed.
    pub fn freed(self) -> Option<Timestamp> {
        self.data.freed
    }

    /// The number of bytes that it stands for.
    pub fn bytes(self) -> u64 {
        self.data.bytes
    }

    /// Its own size in bytes, which is no more than [`bytes`](Self::bytes).
    pub fn size(self) -> u64 {
        self.data.size
    }

    /// The number of allocations that it stands for.
    pub fn allocations(self) -> f64 {
        self.data.bytes.max(1) as f64 / self.data.size.max(1) as f64
    }

    /// The line of the program that made it, such as `src/model.rs:42`, or the function if the program has no debug
    /// information; `None` unless [`heap_lines`](crate::ProfilerBuilder::heap_lines) is set.
    pub fn line(self) -> Option<&'a str> {
        self.data.line.and_then(|line| self.trace.heap_lines.get(line)).map(String::as_str)
    }

    /// The innermost span that was open on its thread.
    pub fn span(self) -> Option<Span<'a>> {
        self.data.span.map(|id| self.trace.span(id))
    }
}
