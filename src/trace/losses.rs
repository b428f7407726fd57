use std::{fmt, ops::AddAssign};

/// What was seen but could not be kept, by cause.
///
/// Memory is bounded, so something may not fit; then it is counted here, and every export and the report show it. A span
/// that is lost is lost whole: its enter, its exit and its fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Losses {
    /// Spans, events, operations and GPU calls that found their thread's lane full: raise
    /// [`lane_capacity`](crate::ProfilerBuilder::lane_capacity).
    pub lane_full: u64,
    /// Spans, events, operations, GPU calls and steps past the memory limit: raise [`memory_limit`](crate::ProfilerBuilder::memory_limit) or record fewer
    /// steps.
    pub over_memory: u64,
    /// Spans whose fields were not kept, though the spans themselves are there: too many spans with fields were alive at once
    /// (raise [`live_spans`](crate::ProfilerBuilder::live_spans)), or they came too late.
    pub fields: u64,
    /// Spans, events, operations and GPU calls that a thread wrote down only after their window had been collected, two milliseconds after its end.
    pub late: u64,
    /// Spans, events, operations and GPU calls where the thread had no lane: while it was being torn down, or from inside this profiler.
    pub unreachable: u64,
    /// GPU activity past the memory limit: raise [`memory_limit`](crate::ProfilerBuilder::memory_limit) or record fewer steps.
    pub gpu_over_memory: u64,
    /// GPU activity that the driver's own library says it dropped.
    pub gpu_dropped: u64,
    /// GPU activity that made no sense: of no known shape, or over before it began.
    pub gpu_unreadable: u64,
    /// Launches of which nothing came back for a minute, or for five seconds at the end, as of a kernel that hangs; and those to which
    /// CUPTI gave the same number, so that their work cannot be told apart.
    pub gpu_unfinished: u64,
    /// What no [`StepExporter`](crate::export::StepExporter) was told of. It is the sum of two: steps that ended while the exporters were too far behind (tens of thousands of
    /// steps, fewer with counters), each as one, with all of its counters; and values of counters whose names came after 256 others in their step,
    /// each value as one, also if the name is the same. Traces may have both all the same.
    pub steps: u64,
}

impl Losses {
    /// All losses together.
    pub fn total(&self) -> u64 {
        self.causes().map(|(_, count)| count).sum()
    }

    /// Whether nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// Every cause, by name, with its count.
    pub fn causes(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("lane_full", self.lane_full),
            ("over_memory", self.over_memory),
            ("fields", self.fields),
            ("late", self.late),
            ("unreachable", self.unreachable),
            ("gpu_over_memory", self.gpu_over_memory),
            ("gpu_dropped", self.gpu_dropped),
            ("gpu_unreadable", self.gpu_unreadable),
            ("gpu_unfinished", self.gpu_unfinished),
            ("steps", self.steps),
        ]
        .into_iter()
    }
}

impl AddAssign for Losses {
    fn add_assign(&mut self, other: Self) {
        self.lane_full += other.lane_full;
        self.over_memory += other.over_memory;
        self.fields += other.fields;
        self.late += other.late;
        self.unreachable += other.unreachable;
        self.gpu_over_memory += other.gpu_over_memory;
        self.gpu_dropped += other.gpu_dropped;
        self.gpu_unreadable += other.gpu_unreadable;
        self.gpu_unfinished += other.gpu_unfinished;
        self.steps += other.steps;
    }
}

impl fmt::Display for Losses {
    /// `nothing lost`, or `lost 12: 10 lane_full, 2 late`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing lost");
        }
        write!(f, "lost {}:", self.total())?;
        for (i, (cause, count)) in self.causes().filter(|(_, count)| *count > 0).enumerate() {
            write!(f, "{} {count} {cause}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}
