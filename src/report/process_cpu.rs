//! What the process used in recorded steps: CPU time, context switches, page faults.

use super::Report;
use crate::{
    analysis::percent_of,
    cpu_time::{ProcessUsage, THREAD_COUNTER},
    trace::Trace,
    units,
};
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, fmt, time::Duration};

/// What the process used in recorded steps, on all of its threads, and what each thread used in whole windows: see
/// [`CpuTime`](crate::CpuTime).
///
/// `Display` writes a line such as `CPU: 134 % of a core, 12.3 ms a step; context switches a step: 3 voluntary, 0.1
/// involuntary; page faults a step: 12 minor, 0 major`, and a line with the busiest threads.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ProcessCpu {
    /// The number of steps in which it was read.
    pub steps: u64,
    /// How long these took.
    pub elapsed: Duration,
    /// CPU time, in the program and in the system.
    pub cpu: Duration,
    /// `cpu` in percent of `elapsed`: 200 means that two cores were busy.
    pub percent: f64,
    /// How often a thread waited, and so gave up its core.
    pub voluntary_switches: u64,
    /// How often a thread had to leave its core to another.
    pub involuntary_switches: u64,
    /// Pages that were there already, or had only to be zeroed.
    pub minor_faults: u64,
    /// Pages that had to be read from a disk.
    pub major_faults: u64,
    /// The threads, the busiest first; empty where their times cannot be read. Threads of one name are one entry.
    pub threads: Vec<ThreadCpu>,
}

/// The CPU time of the threads of one name.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ThreadCpu {
    /// The name, of which Linux keeps 15 bytes.
    pub name: String,
    /// CPU time in percent of the time of the windows.
    pub percent: f64,
}

/// The sums over windows.
#[derive(Debug, Default)]
pub(super) struct UsageOfRun {
    steps: u64,
    elapsed: Duration,
    used: ProcessUsage,
    /// How long the windows were in which threads were read.
    windows: Duration,
    /// Seconds of CPU time, by the name of the threads.
    threads: FxHashMap<String, f64>,
}

impl UsageOfRun {
    /// The names of threads that are kept; the others are in windows only.
    const THREADS: usize = 1000;

    /// Adds a window.
    pub(super) fn add(&mut self, trace: &Trace) {
        for step in trace.steps() {
            if let Some(used) = ProcessUsage::of_counters(trace.counters_in(step)) {
                self.steps += 1;
                self.elapsed += step.duration();
                self.used += used;
            }
        }
        let of_thread = |name: &str| name.strip_prefix(THREAD_COUNTER).map(str::to_owned);
        let mut threads =
            trace.counters().iter().filter_map(|it| Some((of_thread(it.name())?, it.samples()))).peekable();
        if threads.peek().is_some() {
            self.windows += trace.duration();
        }
        for (name, samples) in threads {
            let percent: f64 = samples.iter().map(|&(_, percent)| percent).sum();
            if self.threads.len() < Self::THREADS || self.threads.contains_key(&name) {
                *self.threads.entry(name).or_default() += percent / 100.0 * trace.duration().as_secs_f64();
            }
        }
    }

    fn total(&self) -> Option<ProcessCpu> {
        let seconds = self.windows.as_secs_f64();
        let thread = |(name, &cpu): (&String, &f64)| ThreadCpu { name: name.clone(), percent: 100.0 * cpu / seconds };
        let mut threads: Vec<_> = self.threads.iter().map(thread).collect();
        // In micro-percent, as floats have no order.
        threads.sort_by_key(|thread| (Reverse((thread.percent * 1e6) as u64), thread.name.clone()));
        (self.steps > 0 || !threads.is_empty()).then(|| ProcessCpu {
            steps: self.steps,
            elapsed: self.elapsed,
            cpu: self.used.cpu,
            percent: percent_of(self.used.cpu, self.elapsed),
            voluntary_switches: self.used.voluntary_switches,
            involuntary_switches: self.used.involuntary_switches,
            minor_faults: self.used.minor_faults,
            major_faults: self.used.major_faults,
            threads,
        })
    }
}

impl Report {
    /// Returns what the process used in recorded steps; `None` unless [`cpu_time`](crate::ProfilerBuilder::cpu_time) is
    /// set. The report prints it.
    ///
    /// ```
    /// # fn show(report: &kernspan::Report) {
    /// report.process_cpu().iter().for_each(|cpu| println!("{:.0} % of a core", cpu.percent));
    /// # }
    /// ```
    pub fn process_cpu(&self) -> Option<ProcessCpu> {
        self.usage.total()
    }
}

impl fmt::Display for ProcessCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The threads that are shown.
        const SHOWN: usize = 5;
        let steps = self.steps.max(1) as f64;
        let each = |count: u64| units::digits(count as f64 / steps);
        let cpu = units::time(self.cpu.div_f64(steps));
        if self.steps > 0 {
            write!(f, "CPU: {} % of a core, {cpu} a step; ", units::digits(self.percent))?;
            let (voluntary, involuntary) = (each(self.voluntary_switches), each(self.involuntary_switches));
            write!(f, "context switches a step: {voluntary} voluntary, {involuntary} involuntary; ")?;
            write!(f, "page faults a step: {} minor, {} major", each(self.minor_faults), each(self.major_faults))?;
        }
        if !self.threads.is_empty() {
            let thread = |thread: &ThreadCpu| format!("{} {} %", thread.name, units::digits(thread.percent));
            let shown: Vec<_> = self.threads.iter().take(SHOWN).map(thread).collect();
            let more = self.threads.len() - shown.len();
            let before = if self.steps > 0 { "\n" } else { "" };
            write!(f, "{before}busiest threads: {}", shown.join(", "))?;
            if more > 0 {
                write!(f, ", and {more} more names")?;
            }
        }
        Ok(())
    }
}
