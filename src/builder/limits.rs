//! The limits of a profiler: records, memory, files, live spans.

use super::ProfilerBuilder;

impl ProfilerBuilder {
    /// The default of [`lane_capacity`](Self::lane_capacity). A span takes two records, a field or an event one.
    pub const LANE_CAPACITY: usize = 1 << 16;
    /// The default of [`memory_limit_bytes`](Self::memory_limit_bytes): enough for 1.4 million spans without fields.
    pub const MEMORY_LIMIT_BYTES: usize = 256 << 20;
    /// The default of [`live_spans`](Self::live_spans).
    pub const LIVE_SPANS: usize = 1 << 14;
    /// The minimum of [`lane_capacity`](Self::lane_capacity).
    pub(super) const LEAST_LANE_CAPACITY: usize = 64;
    /// The maximum of [`lane_capacity`](Self::lane_capacity): 2 GiB a thread.
    pub const MAX_LANE_CAPACITY: usize = 1 << 26;
    /// The maximum of [`live_spans`](Self::live_spans), which takes about 2 GiB.
    pub const MAX_LIVE_SPANS: usize = 1 << 24;

    /// Sets how many records of 32 bytes a thread can be ahead of the collector, which runs every 2 ms. By default,
    /// [`Self::LANE_CAPACITY`]. It must be 64 at least, and [`Self::MAX_LANE_CAPACITY`] at most.
    ///
    /// Records that do not fit are counted in [`Losses::lane_full`](crate::trace::Losses::lane_full). In the
    /// last sixteenth, outer spans have precedence over inner ones.
    pub fn lane_capacity(mut self, records: usize) -> Self {
        self.lane_capacity = records;
        self
    }

    /// Sets how many bytes all windows may take until they have been exported: the records of all threads, with their
    /// texts and backtraces, the samples of the heap, the steps, and the trace that is made of them. By default,
    /// [`Self::MEMORY_LIMIT_BYTES`].
    ///
    /// What does not fit is counted in [`Losses::over_memory`](crate::trace::Losses::over_memory). A span without
    /// fields takes 200 bytes, of which 120 are its part of the trace. A thread takes some hundred bytes in a window,
    /// and a window itself about two kilobytes. A window that does not fit is not opened, and its steps are counted. In
    /// the last eighth, outer spans have precedence over inner ones, so that a flood of inner spans, events and
    /// operations leaves the times of steps and of their parts.
    ///
    /// The process takes at most a quarter more than this limit, by the peak of its resident memory, and besides:
    ///
    /// - a lane for each living thread, of 32 bytes for each record of its [`lane_capacity`](Self::lane_capacity); the
    ///   lanes of threads that have ended are used again;
    /// - what exporters hold. [`Chrome`](crate::Chrome), [`Perfetto`](crate::Perfetto) and [`Stacks`](crate::Stacks)
    ///   write as they go. [`TensorBoard`](crate::TensorBoard) holds the profile of a window and [`Html`](crate::Html)
    ///   the figures of a run, for which the quarter is enough. [`Collected`](crate::Collected) keeps all traces;
    /// - with [`Activity::Memory`] or [`Activity::Heap`], the readings of memory: half a megabyte in all;
    /// - with [`Activity::Heap`], the samples of an open window, up to 5 MB: they are reserved when it closes.
    ///
    /// [`Activity::Heap`]: crate::Activity::Heap
    /// [`Activity::Memory`]: crate::Activity::Memory
    pub fn memory_limit_bytes(mut self, bytes: usize) -> Self {
        self.memory_limit_bytes = bytes;
        self
    }

    /// Sets how many bytes the files of all windows may take on disk. By default, there is no limit.
    ///
    /// When a window has been exported and its files exceed the limit, those of the oldest windows are removed, with a
    /// warning of `tracing`; the [`Report`](crate::Report) says how many. The last window always stays. Only files that
    /// this profiler wrote for one window are counted and removed: never the page of [`Html`](crate::Html), the events
    /// file of [`TensorBoard`](crate::TensorBoard), or files of your own exporters.
    pub fn disk_limit_bytes(mut self, bytes: u64) -> Self {
        self.disk_limit_bytes = Some(bytes);
        self
    }

    /// Sets about how many spans with fields can be alive at once, over all threads. By default, [`Self::LIVE_SPANS`].
    /// It must be [`Self::MAX_LIVE_SPANS`] at most.
    ///
    /// Spans that do not fit are counted in [`Losses::fields`](crate::trace::Losses::fields).
    pub fn live_spans(mut self, spans: usize) -> Self {
        self.live_spans = spans;
        self
    }
}
