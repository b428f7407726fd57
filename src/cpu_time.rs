//! CPU time: how long threads and the process ran, as opposed to how long they took.
//!
//! A thread's CPU clock is read by a system call, which no vDSO serves, and which takes far longer than to read the
//! cycle counter: see [`CpuTime`]. So nothing is read unless the program asks for it.

mod threads;

pub(crate) use self::threads::{THREAD_COUNTER, ThreadMeter, ThreadUsage};

use std::{
    fmt,
    ops::{AddAssign, Sub},
    str::FromStr,
    time::Duration,
};
use tracing::{Level, level_filters::LevelFilter};

/// Where CPU time is read: see [`ProfilerBuilder::cpu_time`](crate::ProfilerBuilder::cpu_time).
///
/// It needs the feature `cpu-time` and Unix. Elsewhere nothing is read, and the report says so
/// ([`Hint::NoCpuTime`](crate::report::Hint::NoCpuTime)).
///
/// ```
/// # use kernspan::{CpuTime, Profiler};
/// # use tracing::Level;
/// let coarse = CpuTime::spans().max_level(Level::INFO); // not the spans of each layer, which are `TRACE`
/// let (layer, profiler) = Profiler::builder().cpu_time(coarse).build()?;
/// # drop((layer, profiler));
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTime {
    /// The most verbose level of spans that are timed.
    spans: LevelFilter,
}

impl CpuTime {
    /// Reads CPU time, context switches and page faults of the process at the end of each step, as counters. This is
    /// the default.
    ///
    /// The counters are `cpu.percent` (of one core: 200 means that two cores were busy), `cpu.seconds`,
    /// `context_switches.voluntary`, `context_switches.involuntary`, `page_faults.minor` and `page_faults.major`. They
    /// are in the traces of recorded steps, and in the [summaries](crate::export::StepSummary) of all steps if an
    /// exporter takes those. On Linux, each window also has the CPU time of every thread, with spans or without, as
    /// `cpu.thread.NAME` in percent of a core.
    pub fn steps() -> Self {
        Self { spans: LevelFilter::OFF }
    }

    /// Also reads the thread's CPU time at each enter and exit of a recorded span: see
    /// [`Span::cpu_time`](crate::trace::Span::cpu_time).
    ///
    /// Only while a window is open. Each reading is a system call.
    pub fn spans() -> Self {
        Self { spans: LevelFilter::TRACE }
    }

    /// Leaves out spans that are more verbose than this level: their CPU time counts as that of the span around them.
    /// It has no effect on [`steps`](Self::steps).
    ///
    /// Spans are chosen by level, since that is how `tracing` tells coarse spans from fine ones, and since the same
    /// span is then always timed, or never: libraries use `TRACE` for the spans of layers and operations.
    pub fn max_level(mut self, level: Level) -> Self {
        self.spans = self.spans.min(LevelFilter::from_level(level));
        self
    }

    /// The most verbose level of spans that are timed.
    pub(crate) fn span_level(self) -> LevelFilter {
        self.spans
    }
}

impl FromStr for CpuTime {
    type Err = String;

    /// Reads `steps`, `spans`, or `spans up to info`.
    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<_> = text.split_whitespace().collect();
        let level = |text: &str| text.parse::<Level>().ok();
        let parsed = match words[..] {
            ["steps"] => Some(Self::steps()),
            ["spans"] => Some(Self::spans()),
            ["spans", "up", "to", text] => level(text).map(|level| Self::spans().max_level(level)),
            _ => None,
        };
        parsed.ok_or_else(|| format!("expected \"steps\", \"spans\" or \"spans up to info\", found {text:?}"))
    }
}

impl fmt::Display for CpuTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.spans {
            LevelFilter::OFF => f.write_str("steps"),
            LevelFilter::TRACE => f.write_str("spans"),
            level => write!(f, "spans up to {level}"),
        }
    }
}

impl Default for CpuTime {
    fn default() -> Self {
        Self::steps()
    }
}

/// What the process had used at one moment, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessUsage {
    /// CPU time of all threads, in the program and in the system.
    pub(crate) cpu: Duration,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
}

impl Sub for ProcessUsage {
    type Output = Self;

    /// What was used since an earlier moment.
    fn sub(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(earlier.involuntary_switches),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
        }
    }
}

impl AddAssign for ProcessUsage {
    fn add_assign(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
    }
}

impl ProcessUsage {
    /// The number of counters that a step has of it.
    const COUNTERS: usize = 6;

    /// Returns the counters of a step that took this long.
    pub(crate) fn counters(&self, step: Duration) -> [(&'static str, f64); Self::COUNTERS] {
        let seconds = self.cpu.as_secs_f64();
        let percent = if step.is_zero() { 0.0 } else { 100.0 * seconds / step.as_secs_f64() };
        [
            ("context_switches.involuntary", self.involuntary_switches as f64),
            ("context_switches.voluntary", self.voluntary_switches as f64),
            ("cpu.percent", percent),
            ("cpu.seconds", seconds),
            ("page_faults.major", self.major_faults as f64),
            ("page_faults.minor", self.minor_faults as f64),
        ]
    }

    /// Returns what these counters of a step say; `None` if the CPU time is not among them.
    pub(crate) fn of_counters<'a>(counters: impl Iterator<Item = (&'a str, f64)>) -> Option<Self> {
        let (mut usage, mut cpu) = (Self::default(), None);
        for (name, value) in counters {
            match name {
                "context_switches.involuntary" => usage.involuntary_switches = value as u64,
                "context_switches.voluntary" => usage.voluntary_switches = value as u64,
                "cpu.seconds" => cpu = Duration::try_from_secs_f64(value).ok(),
                "page_faults.major" => usage.major_faults = value as u64,
                "page_faults.minor" => usage.minor_faults = value as u64,
                _ => {}
            }
        }
        Some(Self { cpu: cpu?, ..usage })
    }
}

/// Reads what the process uses in each step.
#[derive(Debug, Default)]
pub(crate) struct UsageMeter {
    /// The reading at the end of the previous step.
    last: Option<ProcessUsage>,
    /// The reading when a window opened in the middle of the step.
    opened: Option<ProcessUsage>,
}

impl UsageMeter {
    /// Ends a step and begins another. Returns what the process used in the step, and in the part of it that is in a
    /// window; `None` if nothing was read when it began.
    pub(crate) fn end_step(&mut self) -> [Option<ProcessUsage>; 2] {
        let now = of_process();
        let last = std::mem::replace(&mut self.last, now);
        let since = |begin: Option<ProcessUsage>| Some(now? - begin?);
        [since(last), since(self.opened.take().or(last))]
    }

    /// Begins the part of a step that is in a window.
    pub(crate) fn open_window(&mut self) {
        self.opened = of_process();
    }

    /// Ends the part of a step that is in a window. Returns what the process used in it.
    pub(crate) fn close_window(&mut self) -> Option<ProcessUsage> {
        let begin = self.opened.take().or(self.last)?;
        Some(of_process()? - begin)
    }

    /// Forgets the last reading, as nothing is read at the end of this step.
    pub(crate) fn skip_step(&mut self) {
        self.last = None;
        self.opened = None;
    }
}

/// Returns the CPU time of this thread in nanoseconds; `None` where it cannot be read.
pub(crate) fn of_this_thread() -> Option<u64> {
    sys::of_this_thread()
}

/// Returns what the process has used so far; `None` where it cannot be read.
pub(crate) fn of_process() -> Option<ProcessUsage> {
    sys::of_process()
}

/// Returns why CPU time cannot be read, if it cannot.
pub(crate) fn problem() -> Option<&'static str> {
    sys::PROBLEM
}

#[cfg(all(feature = "cpu-time", unix))]
mod sys {
    use super::ProcessUsage;
    use nix::{
        sys::{
            resource::{UsageWho, getrusage},
            time::TimeVal,
        },
        time::{ClockId, clock_gettime},
    };
    use std::time::Duration;

    pub(super) const PROBLEM: Option<&str> = None;

    pub(super) fn of_this_thread() -> Option<u64> {
        // Not rustix's, which reads the auxiliary vector first and so crashes under valgrind (3.19 with rustix 1.1).
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
        u64::try_from(Duration::from(time).as_nanos()).ok()
    }

    pub(super) fn of_process() -> Option<ProcessUsage> {
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
        let time = |time: TimeVal| {
            let micros = u64::try_from(time.tv_usec()).unwrap_or(0);
            Duration::from_secs(u64::try_from(time.tv_sec()).unwrap_or(0)) + Duration::from_micros(micros)
        };
        let count = |count: std::ffi::c_long| u64::try_from(count).unwrap_or(0);
        Some(ProcessUsage {
            cpu: time(usage.user_time()) + time(usage.system_time()),
            voluntary_switches: count(usage.voluntary_context_switches()),
            involuntary_switches: count(usage.involuntary_context_switches()),
            minor_faults: count(usage.minor_page_faults()),
            major_faults: count(usage.major_page_faults()),
        })
    }
}

#[cfg(not(all(feature = "cpu-time", unix)))]
mod sys {
    use super::ProcessUsage;

    pub(super) const PROBLEM: Option<&str> = Some(match cfg!(feature = "cpu-time") {
        true => "it is read on Unix only",
        false => "it takes the feature `cpu-time` of kernspan",
    });

    pub(super) fn of_this_thread() -> Option<u64> {
        None
    }

    pub(super) fn of_process() -> Option<ProcessUsage> {
        None
    }
}
