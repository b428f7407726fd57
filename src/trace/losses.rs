//! Counts of the records that were lost, with a remedy for each cause.

use std::{fmt, ops::AddAssign};

/// The number of records that were lost, by cause.
///
/// Memory is bounded, so some records may not fit. They are counted here, and every export and the report show the
/// counts. A lost span is lost entirely, with its enter, its exit and its fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Losses {
    /// Spans, events, operations and GPU calls dropped because their thread's lane, a bounded queue, was full: raise
    /// [`lane_capacity`](crate::ProfilerBuilder::lane_capacity).
    pub lane_full: u64,
    /// Spans, events, operations, GPU calls and steps beyond the memory limit: raise
    /// [`memory_limit_bytes`](crate::ProfilerBuilder::memory_limit_bytes) or record fewer steps. Samples of the heap
    /// beyond it, or beyond the 65,536 of a window, count as well.
    ///
    /// If there is no memory for a whole window, it is not opened, and only its steps are counted.
    pub over_memory: u64,
    /// Spans kept without their fields, because too many spans with fields were alive at once (raise
    /// [`live_spans`](crate::ProfilerBuilder::live_spans)), or because the fields came too late.
    pub fields: u64,
    /// Fields whose text was truncated to [`Value::MAX_TEXT`](super::Value::MAX_TEXT) bytes.
    pub truncated: u64,
    /// Spans, events, operations and GPU calls that a thread wrote after their window had been collected, which happens
    /// two milliseconds after its end.
    pub late: u64,
    /// Spans, events, operations and GPU calls on a thread without a lane: it is being torn down, or runs code of this
    /// profiler. Sampled allocations on the heap also count, and their frees, if the list of samples was locked for
    /// milliseconds: a sample whose free is missing looks like memory that is kept.
    pub unreachable: u64,
    /// GPU activity beyond the memory limit: raise [`memory_limit_bytes`](crate::ProfilerBuilder::memory_limit_bytes)
    /// or record fewer steps.
    pub gpu_over_memory: u64,
    /// GPU activity that CUPTI reports as dropped.
    pub gpu_dropped: u64,
    /// Invalid GPU activity: records of an unknown format, or with an end before the start.
    pub gpu_unreadable: u64,
    /// Launches without a record of their work after a minute, or after five seconds at the end of the run, as when a
    /// kernel hangs. Launches that share a correlation id also count, since their work cannot be distinguished.
    pub gpu_unfinished: u64,
    /// Steps and counter values that no [`StepExporter`](crate::export::StepExporter) received. Traces may still have
    /// them.
    ///
    /// A step counts as one, together with its counters, if it ended while the exporters were too far behind: by tens
    /// of thousands of steps, or by fewer if they have counters. A counter value counts as one if its step already had
    /// values of 256 other counters.
    pub steps: u64,
    /// Values of `counter.…` fields that are not samples, because they are not numbers (text, booleans, 128-bit
    /// integers) or are on a span. They remain fields of their event or span, if that is recorded. Write a number of at
    /// most 64 bits on an event: `tracing::info!(counter.loss = 0.3)`.
    pub counters: u64,
    /// Samples of call stacks that did not fit into the kernel's buffer or the memory limit: lower
    /// [`Samples::hertz`](crate::Samples::hertz), or raise
    /// [`memory_limit_bytes`](crate::ProfilerBuilder::memory_limit_bytes). A wait that is kept without its stack does
    /// not count.
    pub stack_samples: u64,
    /// Samples of hardware counters that were lost on all GPUs: see [`GpuCounters::lost`](super::GpuCounters::lost).
    pub gpu_counter_samples: u64,
    /// Events in a file that are of an unknown kind or have no readable time: see [`read`](crate::read()).
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

    /// The number of missing records: spans, events, operations, calls, steps and GPU activity. Spans kept without
    /// their fields, truncated fields, counters that are not numbers and samples do not count.
    pub fn dropped(&self) -> u64 {
        self.host_dropped() + self.gpu_over_memory + self.gpu_dropped + self.gpu_unreadable + self.gpu_unfinished
    }

    /// The number of missing host records, which make times by span incomplete.
    pub(crate) fn host_dropped(&self) -> u64 {
        self.lane_full + self.over_memory + self.late + self.unreachable
    }

    /// Every cause that lost something, with an explanation and a remedy.
    ///
    /// ```
    /// # use kernspan::trace::Losses;
    /// # fn show(losses: &Losses) {
    /// for loss in losses.explained() {
    ///     println!("{loss}"); // thread buffer full: 12 records dropped; raise `lane_capacity`
    /// }
    /// # }
    /// ```
    pub fn explained(&self) -> impl Iterator<Item = Loss> + use<> {
        self.causes().filter(|(_, count)| *count > 0).map(|(cause, count)| Loss { cause, count })
    }

    /// Every cause, by the name of its field, with its count.
    pub fn causes(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("lane_full", self.lane_full),
            ("over_memory", self.over_memory),
            ("fields", self.fields),
            ("truncated", self.truncated),
            ("late", self.late),
            ("unreachable", self.unreachable),
            ("gpu_over_memory", self.gpu_over_memory),
            ("gpu_dropped", self.gpu_dropped),
            ("gpu_unreadable", self.gpu_unreadable),
            ("gpu_unfinished", self.gpu_unfinished),
            ("steps", self.steps),
            ("counters", self.counters),
            ("stack_samples", self.stack_samples),
            ("gpu_counter_samples", self.gpu_counter_samples),
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
            "truncated" => &mut self.truncated,
            "late" => &mut self.late,
            "unreachable" => &mut self.unreachable,
            "gpu_over_memory" => &mut self.gpu_over_memory,
            "gpu_dropped" => &mut self.gpu_dropped,
            "gpu_unreadable" => &mut self.gpu_unreadable,
            "gpu_unfinished" => &mut self.gpu_unfinished,
            "steps" => &mut self.steps,
            "counters" => &mut self.counters,
            "stack_samples" => &mut self.stack_samples,
            "gpu_counter_samples" => &mut self.gpu_counter_samples,
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
        self.truncated += other.truncated;
        self.late += other.late;
        self.unreachable += other.unreachable;
        self.gpu_over_memory += other.gpu_over_memory;
        self.gpu_dropped += other.gpu_dropped;
        self.gpu_unreadable += other.gpu_unreadable;
        self.gpu_unfinished += other.gpu_unfinished;
        self.steps += other.steps;
        self.counters += other.counters;
        self.stack_samples += other.stack_samples;
        self.gpu_counter_samples += other.gpu_counter_samples;
        self.unread += other.unread;
    }
}

impl fmt::Display for Losses {
    /// Writes `nothing lost while recording`, or for example `lost 12: 10 lane_full, 2 late`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing lost while recording");
        }
        write!(f, "lost {}:", self.total())?;
        for (i, (cause, count)) in self.causes().filter(|(_, count)| *count > 0).enumerate() {
            write!(f, "{} {count} {cause}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// A cause of losses, with its count. `Display` explains it and gives a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The name of the field of [`Losses`].
    pub cause: &'static str,
    /// How often it happened.
    pub count: u64,
}

impl Loss {
    /// Returns why it happened, what is counted, what became of it, and a remedy, if there is one.
    fn text(&self) -> (&'static str, &'static str, &'static str, Option<&'static str>) {
        const MEMORY: Option<&str> = Some("raise `memory_limit_bytes`, or record fewer steps");
        const RATE: Option<&str> = Some("sample less often, or raise `memory_limit_bytes`");
        const NUMBERS: &str = "write numbers of at most 64 bits on events, as in `info!(counter.loss = 0.3)`";
        match self.cause {
            "lane_full" => ("thread buffer full", "record", "dropped", Some("raise `lane_capacity`")),
            "over_memory" => ("memory limit reached", "record", "dropped", MEMORY),
            "fields" => ("too many spans alive", "span", "kept without fields", Some("raise `live_spans`")),
            "truncated" => ("long text", "field", "cut to 1024 bytes", Some("record shorter text")),
            "late" => ("written after their window was collected", "record", "dropped", None),
            "unreachable" => ("thread was ending", "record", "dropped", None),
            "gpu_over_memory" => ("memory limit reached", "GPU record", "dropped", MEMORY),
            "gpu_dropped" => ("out of room in CUPTI", "GPU record", "dropped", None),
            "gpu_unreadable" => ("unknown format", "GPU record", "dropped", None),
            "gpu_unfinished" => ("work never reported", "kernel launch", "without work", None),
            "steps" => ("step exporters too far behind", "step or counter value", "not exported", None),
            "counters" => ("counter value not a number", "value", "dropped", Some(NUMBERS)),
            "stack_samples" => ("sampling fell behind", "stack sample", "lost", RATE),
            "gpu_counter_samples" => ("sampling fell behind", "GPU counter sample", "lost", RATE),
            _ => ("unknown kind", "event", "of the file not read", None),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reason, what, outcome, remedy) = self.text();
        let ending = match self.count {
            1 => "",
            _ if what.ends_with("ch") => "es",
            _ => "s",
        };
        write!(f, "{reason}: {} {what}{ending} {outcome}", self.count)?;
        remedy.map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Losses;

    #[test]
    fn each_cause_says_what_happened_and_what_to_do() {
        let losses = Losses { lane_full: 1, over_memory: 12, gpu_unfinished: 2, ..Losses::default() };
        let lines: Vec<_> = losses.explained().map(|loss| loss.to_string()).collect();
        assert_eq!(
            lines,
            [
                "thread buffer full: 1 record dropped; raise `lane_capacity`",
                "memory limit reached: 12 records dropped; raise `memory_limit_bytes`, or record fewer steps",
                "work never reported: 2 kernel launches without work",
            ]
        );
        assert_eq!((losses.dropped(), losses.host_dropped()), (15, 13));
        let sampled = Losses { stack_samples: 1, gpu_counter_samples: 2, ..Losses::default() };
        let lines: Vec<_> = sampled.explained().map(|loss| loss.to_string()).collect();
        assert_eq!(
            lines,
            [
                "sampling fell behind: 1 stack sample lost; sample less often, or raise `memory_limit_bytes`",
                "sampling fell behind: 2 GPU counter samples lost; sample less often, or raise `memory_limit_bytes`",
            ]
        );
        assert_eq!((sampled.total(), sampled.dropped()), (3, 0));
    }
}
