//! The printed report: the tables, the lines after them, and the files. With `serde`, the serialized one.

use super::Report;
#[cfg(feature = "serde")]
use crate::report::CountersBy;
#[cfg(feature = "serving")]
use crate::report::requests::RequestTable;
use crate::{
    hint::Hint,
    report::{Leaks, units, wrap::wrap, written_files::WrittenFiles},
};
use std::fmt;

impl Report {
    /// Writes how long a step takes, what recording cost, and which steps were slow.
    fn write_steps(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.step_time().iter().try_for_each(|step| writeln!(f, "{step}"))?;
        self.recording_cost().iter().try_for_each(|cost| writeln!(f, "{cost}"))?;
        let slow = self.steps().slow();
        slow.iter().take(Self::SLOW_STEPS).try_for_each(|step| writeln!(f, "{step}"))?;
        match slow.len().saturating_sub(Self::SLOW_STEPS) {
            0 => Ok(()),
            more => writeln!(f, "and {more} more outliers"),
        }
    }

    /// Writes the lines after the tables, without those of files.
    fn write_summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |count, what| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        write!(f, "{}", count(self.spans, "span"))?;
        if let calls @ 1.. = self.calls()
            && calls < self.spans
        {
            write!(f, " of {}", count(calls, "call"))?;
        }
        write!(f, " in {} ({} total)", count(self.windows.into(), "window"), units::time(self.recorded))?;
        match self.steps().count() {
            0 => writeln!(f)?,
            steps => writeln!(f, "; {}", count(steps, "step"))?,
        }
        self.write_steps(f)?;
        write!(f, "{}{}", self.gpu_steps(), self.gpus)?;
        self.sampling().iter().try_for_each(|sampling| writeln!(f, "{sampling}"))?;
        let completeness = self.completeness();
        writeln!(f, "{completeness}")?;
        completeness.causes().try_for_each(|loss| writeln!(f, "{loss}"))?;
        for (window, launches) in &self.incomplete {
            writeln!(f, "{}", incomplete(*window, *launches))?;
        }
        if let more @ 1.. = self.more_incomplete {
            writeln!(f, "and so {} {more} more", if more == 1 { "is" } else { "are" })?;
        }
        if let Some(level) = self.filtered {
            write!(f, "spans below {level} were off: a filter for all layers, or a feature of tracing, hides them")?;
            writeln!(f, ", or filters of each layer do")?;
        }
        self.hints.iter().try_for_each(|hint| writeln!(f, "{hint}"))?;
        self.process_cpu().iter().try_for_each(|cpu| writeln!(f, "{cpu}"))?;
        self.counters().write_clock(f)?;
        self.counters().problems().iter().try_for_each(|problem| writeln!(f, "hardware counters: {problem}"))?;
        #[cfg(feature = "serving")]
        self.requests.service_levels.iter().try_for_each(|level| writeln!(f, "{level}"))?;
        self.deliveries.iter().try_for_each(|delivery| writeln!(f, "{delivery}"))?;
        self.memory_snapshots().iter().try_for_each(|snapshot| write!(f, "{snapshot}"))?;
        match self.leaks() {
            leaks @ (Leaks::Found(_) | Leaks::TooShort(_)) => writeln!(f, "{leaks}")?,
            Leaks::None | Leaks::NotRecorded => {}
        }
        self.idle_pools().iter().try_for_each(|pool| writeln!(f, "idle memory: {pool}"))?;
        self.write_vitals(f)?;
        self.write_findings(f)
    }

    /// Writes the findings that save the most.
    fn write_findings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let findings = self.findings();
        if !findings.is_empty() {
            writeln!(f, "what to change first:")?;
        }
        for (number, finding) in findings.iter().take(Self::FINDINGS).enumerate() {
            let (number, kind, saves) = (number + 1, finding.kind, finding.savings_text());
            writeln!(f, "{number}. {saves}: {} [{kind}]", finding.title)?;
        }
        if let more @ 1.. = findings.len().saturating_sub(Self::FINDINGS) {
            writeln!(f, "and {more} more that save less")?;
        }
        let mut questions = self.open_questions(&findings).into_iter();
        questions.try_for_each(|question| writeln!(f, "not explained: {question}"))
    }
}

/// A [`Report`] to be printed in a certain width. Made by [`Report::width`] and [`Report::fit_terminal`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a report does nothing unless it is printed"]
pub struct ReportView<'a> {
    pub(super) report: &'a Report,
    pub(super) width: usize,
}

impl ReportView<'_> {
    /// Returns the lines that are printed after the tables: the number of spans, the steps, the GPUs and what is
    /// missing.
    #[must_use]
    pub fn summary(&self) -> String {
        wrap(&Summary(self.report).to_string(), self.width)
    }
}

/// The lines after the tables.
struct Summary<'a>(&'a Report);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write_summary(f)
    }
}

impl fmt::Display for ReportView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { report, width } = *self;
        // Tables of a profiler that was off would only be in the way.
        if let Some(off) = report.hints.iter().find(|hint| matches!(hint, Hint::Off { .. })) {
            return write!(f, "{}", wrap(&format!("{off}\n"), width));
        }
        if let Some(warning) = report.completeness().warning() {
            writeln!(f, "{}", wrap(&format!("WARNING: {warning}\n"), width))?;
        }
        report.averages().width(width).fmt(f)?;
        if !report.gpus.kernels.is_empty() {
            write!(f, "\n{}\n", report.kernels().limit(Report::TABLE_ROWS).width(width))?;
        }
        if !report.operations.is_empty() {
            write!(f, "\n{}\n", report.operations().limit(Report::TABLE_ROWS).width(width))?;
        }
        if !report.counters().is_empty() {
            write!(f, "\n{}\n", report.counters().limit(Report::TABLE_ROWS).width(width))?;
        }
        if report.has_modes() {
            write!(f, "\n{}\n", report.modes_table().width(width))?;
        }
        if !report.heap_lines().is_empty() {
            write!(f, "\n{}\n", report.heap_lines().width(width))?;
        }
        if !report.lines().is_empty() {
            write!(f, "\n{}", report.lines().own(true).limit(Report::TABLE_ROWS).width(width))?;
            write!(f, "\n{}\n", report.functions().limit(Report::TABLE_ROWS).width(width))?;
        }
        if !report.vitals().signs.is_empty() {
            write!(f, "\n{}\n", report.vitals_table().width(width))?;
        }
        #[cfg(feature = "serving")]
        for kind in report.requests.kinds.iter().filter(|kind| kind.is_used()) {
            write!(f, "\n{}\n", RequestTable::of(kind, Report::TABLE_ROWS, width))?;
        }
        write!(f, "{}{}", self.summary(), WrittenFiles(&report.files))?;
        match report.more_files {
            0 => {}
            more => writeln!(f, "wrote {more} more")?,
        }
        report.removed.map_or(Ok(()), |removed| write!(f, "{}", wrap(&format!("{removed}\n"), width)))
    }
}

impl fmt::Display for Report {
    /// Writes tables of at most [`Self::WIDTH`] columns of text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.width(Self::WIDTH).fmt(f)
    }
}

/// Returns the message that some launches of a window never came back.
pub(crate) fn incomplete(window: u32, launches: u64) -> String {
    let kernels = if launches == 1 { "kernel" } else { "kernels" };
    format!("window {window} is incomplete: {launches} {kernels} never came back")
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut report = f.debug_struct("Report");
        report.field("windows", &self.windows).field("spans", &self.spans).field("losses", &self.losses);
        report.finish_non_exhaustive()
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Report {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let (counters, stacks) = (self.counters(), self.stacks.is_some());
        let (process_cpu, vitals) = (self.process_cpu(), !self.vitals().is_empty());
        #[cfg(feature = "serving")]
        let requests = Some(&self.requests).filter(|requests| !requests.is_empty());
        #[cfg(not(feature = "serving"))]
        let requests = None::<()>;
        let more = usize::from(self.removed.is_some()) + if counters.is_empty() { 0 } else { 3 };
        let more = more + if stacks { 3 } else { 0 } + if vitals { 2 } else { 0 };
        let more = more + usize::from(self.has_modes());
        let more = more + usize::from(process_cpu.is_some()) + usize::from(requests.is_some());
        let mut report = serializer.serialize_struct("Report", 27 + more)?;
        report.serialize_field("windows", &self.windows)?;
        report.serialize_field("recorded", &self.recorded)?;
        report.serialize_field("spans", &self.spans)?;
        report.serialize_field("calls", &self.calls())?;
        report.serialize_field("step_time", &self.step_time())?;
        report.serialize_field("step_parts", &self.step_parts())?;
        report.serialize_field("steps", self.steps())?;
        report.serialize_field("recording_cost", &self.recording_cost())?;
        report.serialize_field("averages", &self.averages().limit(usize::MAX).rows())?;
        report.serialize_field("gpu", &self.gpus.state.to_string())?;
        report.serialize_field("devices", &self.gpus.devices)?;
        report.serialize_field("kernels", &self.kernels().limit(usize::MAX).rows())?;
        report.serialize_field("operations", &self.operations().limit(usize::MAX).rows())?;
        if let Some(process_cpu) = &process_cpu {
            report.serialize_field("process_cpu", process_cpu)?;
        }
        if self.has_modes() {
            report.serialize_field("modes", self.modes())?;
        }
        if !counters.is_empty() {
            let rows = |by| counters.by(by).limit(usize::MAX).rows();
            report.serialize_field("counters", &rows(CountersBy::Span))?;
            report.serialize_field("module_counters", &rows(CountersBy::Module))?;
            report.serialize_field("kernel_counters", &rows(CountersBy::Kernel))?;
        }
        report.serialize_field("gpu_steps", &self.gpu_steps())?;
        report.serialize_field("attributions", &self.gpus.attributions)?;
        report.serialize_field("memory", &self.memory().peaks().collect::<Vec<_>>())?;
        report.serialize_field("memory_series", self.memory_series())?;
        report.serialize_field("memory_snapshots", self.memory_snapshots())?;
        report.serialize_field("leaks", &self.leaks())?;
        report.serialize_field("idle_pools", &self.idle_pools())?;
        report.serialize_field("heap_lines", &self.heap_lines().limit(usize::MAX).rows())?;
        report.serialize_field("findings", &self.findings())?;
        report.serialize_field("losses", &self.losses)?;
        report.serialize_field("filtered", &self.filtered.map(|level| level.to_string()))?;
        report.serialize_field("hints", &self.hints)?;
        report.serialize_field("files", &self.files)?;
        report.serialize_field("deliveries", &self.deliveries)?;
        if let Some(stacks) = &self.stacks {
            report.serialize_field("sampling", &stacks.totals)?;
            report.serialize_field("lines", &stacks.lines)?;
            report.serialize_field("functions", &stacks.functions)?;
        }
        if vitals {
            report.serialize_field("vitals", self.vitals())?;
            report.serialize_field("energy_rates", &self.energy_rates())?;
        }
        if let Some(requests) = &requests {
            report.serialize_field("requests", requests)?;
        }
        if let Some(removed) = &self.removed {
            report.serialize_field("removed_files", removed)?;
        }
        report.end()
    }
}
