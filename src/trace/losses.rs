//! Counts of the records that could not be kept.

use std::{fmt, ops::AddAssign};

/// The number of records that could not be kept, by cause.
///
/// Memory is bounded, so some records may not fit. They are counted here, and every export and the report show the
/// counts. A span that is lost is lost whole, with its enter, its exit and its fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Losses {
    /// Spans, events, operations and GPU calls that found their thread's lane, a bounded queue, full: raise
    /// [`lane_capacity`](crate::ProfilerBuilder::lane_capacity).
    pub lane_full: u64,
    /// Spans, events, operations, GPU calls and steps past the memory limit: raise
    /// [`memory_limit_bytes`](crate::ProfilerBuilder::memory_limit_bytes) or record fewer steps.
    ///
    /// If there is no memory for a whole window, it is not opened, and only its steps are counted.
    pub over_memory: u64,
    /// Spans that were kept without their fields, since too many spans with fields were alive at once (raise
    /// [`live_spans`](crate::ProfilerBuilder::live_spans)), or since the fields came too late.
    pub fields: u64,
    /// Spans, events, operations and GPU calls that a thread wrote only after their window had been collected, which
    /// happens two milliseconds after its end.
    pub late: u64,
    /// Spans, events, operations and GPU calls of a thread that has no lane: it is being torn down, or runs code of
    /// this profiler.
    pub unreachable: u64,
    /// GPU activity past the memory limit: raise
    /// [`memory_limit_bytes`](crate::ProfilerBuilder::memory_limit_bytes) or record fewer steps.
    pub gpu_over_memory: u64,
    /// GPU activity that CUPTI says it dropped.
    pub gpu_dropped: u64,
    /// GPU activity that makes no sense: records of an unknown format, or with an end before the start.
    pub gpu_unreadable: u64,
    /// Launches that had no record of their work after a minute, or after five seconds at the end of the run, which
    /// happens if a kernel hangs. Launches that share a correlation id are counted here, too, since their work cannot
    /// be distinguished.
    pub gpu_unfinished: u64,
    /// Steps and counter values that no [`StepExporter`](crate::export::StepExporter) received. Traces may have them
    /// all the same.
    ///
    /// A step counts as one, together with its counters, if it ended while the exporters were too far behind: by tens
    /// of thousands of steps, by fewer if they have counters. A value of a counter counts as one if its step had values
    /// of 256 other counters already.
    pub steps: u64,
    /// Values of `counter.…` fields that are no samples, since they are no numbers (text, booleans, integers of 128
    /// bits) or are on a span. They stay fields of their event or span, if that is recorded. Write a number of at most
    /// 64 bits on an event: `tracing::info!(counter.loss = 0.3)`.
    pub counters: u64,
    /// Events of a file that are of no known kind, or have no time that can be read: see [`read`](crate::read()).
    pub unread: u64,
}

impl Losses {
    /// The sum over all causes.
    pub fn total(&self) -> u64 {
        self.causes().map(|(_, count)| count).sum()
    }

    /// Whether nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// Every cause, by the name of its field, with its count.
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
            ("counters", self.counters),
            ("unread", self.unread),
        ]
        .into_iter()
    }
}

#[cfg(feature = "read")]
impl Losses {
    /// The count of the cause with this name.
    pub(crate) fn cause_mut(&mut self, cause: &str) -> Option<&mut u64> {
        Some(match cause {
            "lane_full" => &mut self.lane_full,
            "over_memory" => &mut self.over_memory,
            "fields" => &mut self.fields,
            "late" => &mut self.late,
            "unreachable" => &mut self.unreachable,
            "gpu_over_memory" => &mut self.gpu_over_memory,
            "gpu_dropped" => &mut self.gpu_dropped,
            "gpu_unreadable" => &mut self.gpu_unreadable,
            "gpu_unfinished" => &mut self.gpu_unfinished,
            "steps" => &mut self.steps,
            "counters" => &mut self.counters,
            "unread" => &mut self.unread,
            _ => return None,
        })
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
        self.counters += other.counters;
        self.unread += other.unread;
    }
}

impl fmt::Display for Losses {
    /// Writes `nothing lost`, or for example `lost 12: 10 lane_full, 2 late`.
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
