//! Findings as text: what to change, and what it would save.

use super::{terminal, terminal::terminal_width, units, wrap::wrap};
use crate::analysis::Finding;
use std::fmt;

/// The findings of a run, to be printed with their evidence and with what to change. Made by
/// [`Report::advice`](crate::Report::advice).
#[derive(Clone, Debug)]
#[must_use = "it does nothing unless it is printed"]
pub struct Advice {
    findings: Vec<Finding>,
    /// The text in place of findings, if there are none.
    none: &'static str,
    limit: usize,
    width: usize,
}

impl Advice {
    /// The text if there is nothing to look at, as rules need GPU work in whole steps.
    pub(super) const NO_GPU_WORK: &'static str = "nothing can be said: no GPU work was recorded";
    pub(super) const NO_STEPS: &'static str =
        "nothing can be said: no whole step was recorded; end steps by `Profiler::step` or `step_on`";
    /// The text if rules have found nothing.
    pub(super) const NOTHING: &'static str = "nothing was found that would save more than one percent of a step";

    pub(super) fn new(findings: Vec<Finding>, none: &'static str) -> Self {
        Self { findings, none, limit: usize::MAX, width: terminal::WIDTH }
    }

    /// Sets the most findings that are printed. By default, all are.
    pub fn limit(self, findings: usize) -> Self {
        Self { limit: findings, ..self }
    }

    /// Sets the most columns of text.
    pub fn width(self, columns: usize) -> Self {
        Self { width: columns, ..self }
    }

    /// Sets the width to that of the terminal, if standard output is one.
    pub fn fit_terminal(self) -> Self {
        let width = terminal_width().unwrap_or(self.width);
        Self { width, ..self }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.findings.is_empty() {
            return f.write_str(&wrap(&format!("{}\n", self.none), self.width));
        }
        for (index, finding) in self.findings.iter().take(self.limit).enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}", wrap(&Numbered(index + 1, finding).to_string(), self.width))?;
        }
        match self.findings.len().saturating_sub(self.limit) {
            0 => Ok(()),
            more => writeln!(f, "\nand {more} more that save less"),
        }
    }
}

/// A finding with its number.
struct Numbered<'a>(usize, &'a Finding);

impl fmt::Display for Numbered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, finding) = *self;
        let saving = finding.saving;
        writeln!(f, "{number}. {} [{}]", finding.title, finding.kind)?;
        let (likely, step) = (units::time(saving.likely), units::time(finding.step));
        write!(f, "saves {likely} of {step} a step ({})", units::percent(finding.percent()))?;
        writeln!(f, ", between {} and {}", units::time(saving.least), units::time(saving.most))?;
        if !finding.path.is_empty() {
            write!(f, "where: {}", finding.path.join(" > "))?;
            finding.location.iter().try_for_each(|location| write!(f, ", {location}"))?;
            writeln!(f)?;
        }
        finding.evidence.iter().try_for_each(|evidence| writeln!(f, "- {evidence}"))?;
        if let Some((range, step)) = finding.ranges.first().and_then(|range| Some((range, range.step?))) {
            let (duration, offset) = (units::time(range.duration()), units::time(range.offset));
            writeln!(f, "- The longest takes {duration}, {offset} after the beginning of step {step}.")?;
        }
        writeln!(f, "to do: {}", finding.kind.advice())?;
        writeln!(f, "more: {}", finding.kind.page())
    }
}

#[cfg(test)]
mod tests {
    use super::Advice;
    use crate::{
        Report, Trace,
        trace::sample::{gpu_trace, spans_trace},
    };

    #[test]
    fn without_gpu_or_steps_it_says_why_there_is_nothing() {
        let text = |trace: &Trace| Report::of([trace]).advice().width(200).to_string();
        assert_eq!(text(&spans_trace(&[("train_step", None, 0, 10)])), format!("{}\n", Advice::NO_GPU_WORK));
        let mut trace = gpu_trace();
        trace.steps.clear();
        trace.spans.iter_mut().for_each(|span| span.step = None);
        trace.work.iter_mut().for_each(|work| work.step = None);
        assert_eq!(text(&trace), format!("{}\n", Advice::NO_STEPS));
        assert!(text(&gpu_trace()).starts_with("1. "));
    }
}
