//! Findings as text: what to change, and what it would save.

use super::{
    units,
    wrap::{WIDTH, terminal_width, wrap},
};
use crate::analysis::{Finding, Remedy, StepTime};
use std::fmt;

/// The findings of a run, to be printed with their evidence and with what to change. Made by
/// [`Report::advice`](crate::Report::advice).
#[derive(Clone, Debug)]
#[must_use = "it does nothing unless it is printed"]
pub struct Advice {
    findings: Vec<Finding>,
    /// What takes a notable part of steps without a finding.
    questions: Vec<String>,
    /// The time of the step that the findings speak of.
    step: Option<StepTime>,
    /// The text in place of findings, if there are none.
    none: &'static str,
    /// Whether no GPU activity was recorded.
    is_host_only: bool,
    limit: usize,
    width: usize,
}

impl Advice {
    /// The text if there is nothing to look at.
    pub(super) const NO_STEPS: &'static str = "no findings: they need whole steps, and none was recorded; end each \
                                               step with `Profiler::step` or `step_on`";
    /// The texts if rules have found nothing.
    pub(super) const NOTHING: &'static str = "no findings: no rule knows a change that would save 1 % of a step";
    pub(super) const NOTHING_ON_HOST: &'static str = "no findings: no rule about host spans knows a change that would \
                                                      save 1 % of a step; GPU rules need GPU activity, and none was \
                                                      recorded";
    /// The text after findings of a run without GPU activity.
    const HOST_ONLY: &'static str = "No GPU activity was recorded, so these findings are about host spans only.";

    /// Makes the text of findings. `none` takes their place if there are none.
    pub(super) fn new(findings: Vec<Finding>, none: &'static str) -> Self {
        Self { findings, questions: Vec::new(), step: None, none, is_host_only: false, limit: usize::MAX, width: WIDTH }
    }

    /// Sets the time of a step, which is printed first.
    pub(super) fn step(self, step: Option<StepTime>) -> Self {
        Self { step, ..self }
    }

    /// Sets what takes a notable part of steps without a finding.
    pub(super) fn questions(self, questions: Vec<String>) -> Self {
        Self { questions, ..self }
    }

    /// Returns the text in place of findings.
    pub(crate) fn none(&self) -> String {
        match self.questions.is_empty() {
            true => self.none.to_owned(),
            false => format!("{}. {}", self.none, self.questions.join(" ")),
        }
    }

    /// Writes what takes a notable part of steps without a finding.
    fn write_questions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.questions.is_empty() {
            return Ok(());
        }
        let lines: String = self.questions.iter().map(|question| format!("- {question}\n")).collect();
        write!(f, "\n{}", wrap(&format!("not explained:\n{lines}"), self.width))
    }

    /// Says that there was no GPU activity.
    pub(super) fn host_only(self, is_host_only: bool) -> Self {
        Self { is_host_only, ..self }
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
        if let Some(step) = self.step {
            writeln!(f, "{}", wrap(&format!("{step}\n"), self.width))?;
        }
        if self.findings.is_empty() {
            f.write_str(&wrap(&format!("{}\n", self.none), self.width))?;
            return self.write_questions(f);
        }
        for (index, finding) in self.findings.iter().take(self.limit).enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}", wrap(&Numbered(index + 1, finding).to_string(), self.width))?;
        }
        if let more @ 1.. = self.findings.len().saturating_sub(self.limit) {
            writeln!(f, "\nand {more} more that save less")?;
        }
        self.write_questions(f)?;
        if self.is_host_only { write!(f, "\n{}", wrap(&format!("{}\n", Self::HOST_ONLY), self.width)) } else { Ok(()) }
    }
}

/// A finding with its number.
struct Numbered<'a>(usize, &'a Finding);

impl fmt::Display for Numbered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, finding) = *self;
        let saving = finding.saving;
        writeln!(f, "{number}. {} [{}]", finding.title, finding.kind)?;
        write!(f, "{}", finding.savings_text())?;
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
        match finding.remedies.as_slice() {
            [] => {}
            [only] => writeln!(f, "to do: {}", only.change)?,
            several => {
                writeln!(f, "to do, one of:")?;
                several.iter().try_for_each(|remedy| writeln!(f, "- {}", Worth(remedy)))?;
            }
        }
        writeln!(f, "more: kernspan explain {}", finding.kind)
    }
}

/// One of several changes, with what it saves.
struct Worth<'a>(&'a Remedy);

impl fmt::Display for Worth<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Remedy { change, saving } = self.0;
        let [least, likely, most] = [saving.least, saving.likely, saving.most].map(units::time);
        write!(f, "{change} Saves {likely}, between {least} and {most}.")
    }
}

#[cfg(test)]
mod tests {
    use super::Advice;
    use crate::{
        Report, Trace,
        analysis::{Analysis, Remedy, Saving},
        trace::sample::{HostTrace, gpu_trace, spans_trace},
    };
    use std::time::Duration;

    #[test]
    fn without_steps_or_findings_it_says_why_there_is_nothing() {
        let text = |trace: &Trace| {
            let text = Report::of([trace]).advice().width(200).to_string();
            // After the line that says how long a step takes.
            text.split_once("\n\n")
                .filter(|_| text.starts_with("a step takes "))
                .map_or(text.clone(), |it| it.1.to_owned())
        };
        assert_eq!(text(&spans_trace(&[("train_step", None, 0, 10)])), format!("{}\n", Advice::NO_STEPS));
        let clean = HostTrace::default().step(100).span(0, "train_step", 0, 10).trace();
        assert_eq!(text(&clean), format!("{}\n", Advice::NOTHING_ON_HOST));
        let slow = HostTrace::default().step(100).span(0, "data", 0, 80).trace();
        assert!(text(&slow).starts_with("1. each step waits 80.0 µs for its data, in `data`"), "{}", text(&slow));
        assert!(text(&slow).ends_with(&format!("\n\n{}\n", Advice::HOST_ONLY)), "{}", text(&slow));
        let mut trace = gpu_trace();
        trace.steps.clear();
        trace.spans.iter_mut().for_each(|span| span.step = None);
        trace.work.iter_mut().for_each(|work| work.step = None);
        assert_eq!(text(&trace), format!("{}\n", Advice::NO_STEPS));
        assert!(text(&gpu_trace()).starts_with("1. ") && !text(&gpu_trace()).contains(Advice::HOST_ONLY));
    }

    #[test]
    fn each_of_several_changes_has_its_saving() {
        let mut finding = Analysis::of(&gpu_trace()).findings()[0].clone();
        let text = |finding| Advice::new(vec![finding], "").width(200).to_string();
        let one = text(finding.clone());
        assert!(one.contains(&format!("\nto do: {}\n", finding.advice())), "{one}");
        assert!(one.ends_with(&format!("\nmore: kernspan explain {}\n", finding.kind)), "{one}");
        let saving = [1, 2, 3].map(Duration::from_millis);
        let saving = Saving::new(saving[0], saving[1], saving[2]);
        finding.remedies = ["Fuse them.", "Use a graph."].map(|it| Remedy { change: it.to_owned(), saving }).to_vec();
        let both = text(finding);
        assert!(both.contains("\nto do, one of:\n- Fuse them. Saves 2.0"), "{both}");
        assert!(both.contains("\n- Use a graph. Saves 2.0"), "{both}");
    }
}
