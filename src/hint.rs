//! Hints: reasons why a run recorded less than its program may expect, and what to change.

use crate::trace::Level;
use std::fmt;

/// A reason why a run recorded less than its program may expect. `Display` also says what to change.
///
/// A hint is given only when its cause is certain. [`Report::hints`](crate::Report::hints) returns the hints of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Hint {
    /// Nothing was recorded: the profiler is [off](crate::ProfilerBuilder::enabled).
    Off {
        /// The reason: a setting, or that there is none.
        because: String,
    },
    /// Nothing of this process was recorded: it was forked from the one that records, and has none of the profiler's
    /// threads.
    Forked,
    /// No spans were recorded: the layer was never in a subscriber that the program uses.
    NotInstalled,
    /// No spans were recorded: the schedule is [manual](crate::Schedule::manual), and
    /// [`start`](crate::Profiler::start) was never called. It is not given if the program counts requests, listens to
    /// others who ask for windows, or has asked for one itself.
    NeverStarted,
    /// No spans were recorded: the schedule needs steps, and `step` was never called.
    NoSteps {
        /// The first step that the schedule records, counted from 0.
        first: u64,
    },
    /// No spans were recorded: the run ended before the first step that the schedule records.
    NotReached {
        /// The first step that the schedule records, counted from 0.
        first: u64,
        /// The number of steps taken.
        taken: u64,
    },
    /// No spans were recorded: the schedule's function never asked to record a step.
    NothingScheduled {
        /// The number of steps taken.
        taken: u64,
    },
    /// No spans were recorded: filters, or a feature of `tracing`, disable spans of all levels.
    AllLevelsOff,
    /// No spans were recorded, although a window was open and no filter is known to disable a callsite.
    NoSpans,
    /// No span with the name given to [`step_on`](crate::ProfilerBuilder::step_on) was closed, so no step ended.
    StepSpanNeverClosed {
        /// The name given to `step_on`.
        span: String,
    },
    /// Steps were ended both by a span that closed, as set with [`step_on`](crate::ProfilerBuilder::step_on), and by
    /// calls to [`step`](crate::Profiler::step).
    StepsCountedTwice {
        /// The name given to `step_on`.
        span: String,
        /// The number of steps ended by the span.
        closed: u64,
        /// The number of steps ended by `step`.
        called: u64,
    },
    /// The run ended before the last window had all the steps that the schedule asks for.
    PartialWindow {
        /// The number of steps recorded in it.
        recorded: u64,
        /// The number of active steps of the schedule.
        active: u64,
    },
    /// Filters disabled spans that the program reached.
    Disabled(DisabledSpans),
    /// [CPU time](crate::ProfilerBuilder::cpu_time) was not read.
    NoCpuTime {
        /// The reason.
        because: String,
    },
    /// A tool asks for NVTX ranges (feature `nvtx`), but does not receive them.
    NoNvtx {
        /// The reason.
        because: String,
    },
}

/// The spans that filters disabled, by callsite.
///
/// The program reached them, but a filter hides them from the profiler. Spans of a level that is off for the whole
/// process are not known by name: see [`Report::filtered`](crate::Report::filtered).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DisabledSpans {
    /// The first few callsites, by target and name.
    pub first: Vec<DisabledSpan>,
    /// The number of further callsites.
    pub more: usize,
    /// Whether the program reached no other spans.
    pub all: bool,
}

/// The callsite of a span that a filter disabled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DisabledSpan {
    /// The target, which is the module path by default.
    pub target: String,
    /// The name of the span.
    pub name: String,
    /// Its verbosity level.
    pub level: Level,
}

impl DisabledSpans {
    /// The number of callsites listed by name.
    const NAMED: usize = 5;

    /// Sorts the callsites by target and name, and keeps the first few by name. `others` says whether there are spans
    /// that were not disabled.
    pub(crate) fn new(mut callsites: Vec<DisabledSpan>, others: bool) -> Self {
        callsites.sort();
        callsites.dedup();
        let more = callsites.len().saturating_sub(Self::NAMED);
        callsites.truncate(Self::NAMED);
        Self { first: callsites, more, all: !others }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off { because } => write!(f, "the profiler is off, and recorded nothing ({because})"),
            Self::Forked => f.write_str(
                "recording does not continue in this process, which was forked from the one that records: what was \
                 recorded before is in the report of that process",
            ),
            Self::NotInstalled => f.write_str(
                "the profiler's layer was never in use: add it to the program's subscriber, as in \
                 tracing_subscriber::registry().with(layer).init()",
            ),
            Self::NeverStarted => f.write_str("the schedule is manual, but start() was never called: call it"),
            Self::NoSteps { first } => {
                write!(f, "the schedule records from step {first} on, but no step was taken: ")?;
                f.write_str("call step() in each iteration of the loop, or name a span with step_on()")
            }
            Self::NotReached { first, taken } => {
                let steps = if *taken == 1 { "step was" } else { "steps were" };
                write!(f, "the schedule records from step {first} on, counted from 0, but only {taken} ")?;
                write!(f, "{steps} taken: run longer, or shorten the schedule's wait")
            }
            Self::NothingScheduled { taken } => {
                write!(f, "the schedule's function did not ask to record any of {taken} steps")
            }
            Self::AllLevelsOff => f.write_str(
                "filters, or a feature of tracing, disable all spans: attach filters to the layers that print",
            ),
            Self::NoSpans => f.write_str(
                "no span was entered in a window: put #[tracing::instrument] on functions that recorded steps call, \
                 and see whether a filter hides them",
            ),
            Self::StepSpanNeverClosed { span } => {
                write!(f, "step_on() names the span {span}, but no span of that name was closed: ")?;
                f.write_str("check the name in the source, and that no filter disables the span")
            }
            Self::StepsCountedTwice { span, closed, called } => {
                write!(f, "steps are counted twice: step_on()'s span {span} ended {closed}, step() ended {called}: ")?;
                f.write_str("remove one of them")
            }
            Self::PartialWindow { recorded, active } => {
                write!(f, "the last window is partial: {recorded} of {active} active steps were recorded ")?;
                f.write_str("before the run ended")
            }
            Self::Disabled(disabled) => disabled.fmt(f),
            Self::NoCpuTime { because } => write!(f, "CPU time was not read: {because}"),
            Self::NoNvtx { because } => write!(f, "spans are not NVTX ranges: {because}"),
        }
    }
}

impl fmt::Display for DisabledSpans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "filters disabled {}", if self.all { "all spans: " } else { "" })?;
        for (index, DisabledSpan { target, name, level }) in self.first.iter().enumerate() {
            write!(f, "{}{name} ({level}, target {target})", if index == 0 { "" } else { ", " })?;
        }
        if self.more > 0 {
            write!(f, " and {} more", self.more)?;
        }
        Ok(())
    }
}

/// The facts of a run from which hints are derived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The number of recorded spans, if spans are recorded at all.
    pub(crate) spans: Option<u64>,
    /// The number of windows opened.
    pub(crate) windows: u32,
    /// Whether the layer is part of a subscriber.
    pub(crate) installed: bool,
    /// Whether the program itself opens windows.
    pub(crate) manual: bool,
    /// Whether no window is needed, or was asked for.
    pub(crate) on_demand: bool,
    /// The first step that the schedule records, if known.
    pub(crate) first_step: Option<u64>,
    /// The name of the span that ends a step.
    pub(crate) step_on: Option<String>,
    /// The number of steps ended by this span.
    pub(crate) closed: u64,
    /// The number of steps ended by a call.
    pub(crate) called: u64,
    /// For a window closed by the end of the run: the number of steps recorded in it, and the number that the schedule
    /// asks for.
    pub(crate) partial: Option<(u64, u64)>,
    /// Whether spans of all levels are off.
    pub(crate) all_levels_off: bool,
    /// The spans that filters disable, if any.
    pub(crate) disabled: Option<DisabledSpans>,
}

impl Facts {
    pub(crate) fn hints(self) -> Vec<Hint> {
        let mut hints = Vec::new();
        let (closed, called) = (self.closed, self.called);
        let by_span = self.step_on.is_some();
        if (self.spans.is_some() || by_span) && !self.installed {
            hints.push(Hint::NotInstalled);
        }
        if let Some(span) = self.step_on.filter(|_| self.installed) {
            match (closed, called) {
                (0, _) => hints.push(Hint::StepSpanNeverClosed { span }),
                (_, 0) => {}
                _ => hints.push(Hint::StepsCountedTwice { span, closed, called }),
            }
        }
        if self.windows == 0 {
            // Serves, or waits for somebody who asks: a run without windows may be what was intended.
            hints.extend(match (self.first_step, closed + called) {
                // Another hint already says why the span ended no step.
                (Some(_), 0) if by_span => None,
                (Some(first), 0) => Some(Hint::NoSteps { first }),
                (Some(first), taken) => Some(Hint::NotReached { first, taken }),
                (None, _) if self.manual => (!self.on_demand).then_some(Hint::NeverStarted),
                (None, taken) => Some(Hint::NothingScheduled { taken }),
            });
        } else if self.spans == Some(0) && self.installed {
            match &self.disabled {
                _ if self.all_levels_off => hints.push(Hint::AllLevelsOff),
                None => hints.push(Hint::NoSpans),
                Some(_) => {}
            }
        }
        hints.extend(self.partial.map(|(recorded, active)| Hint::PartialWindow { recorded, active }));
        hints.extend(self.disabled.filter(|_| self.spans.is_some()).map(Hint::Disabled));
        hints
    }
}

#[cfg(test)]
mod tests {
    use super::{DisabledSpan, DisabledSpans, Facts, Hint};
    use crate::trace::Level;

    fn disabled(count: usize, others: bool) -> DisabledSpans {
        let callsite = |index| DisabledSpan { target: "model".into(), name: format!("s{index}"), level: Level::Info };
        DisabledSpans::new((0..count).rev().map(callsite).collect(), others)
    }

    #[test]
    fn a_run_that_recorded_spans_has_no_hints() {
        let facts = Facts { spans: Some(1), windows: 1, installed: true, first_step: Some(0), ..Facts::default() };
        assert_eq!(facts.hints(), []);
    }

    #[test]
    fn a_run_that_was_to_record_no_spans_needs_no_layer() {
        let facts = Facts { windows: 1, first_step: Some(0), ..Facts::default() };
        assert_eq!(facts.hints(), []);
    }

    #[test]
    fn the_first_callsites_are_named() {
        let text = disabled(7, true).to_string();
        assert!(text.starts_with("filters disabled s0 (INFO, target model), s1 "), "{text}");
        assert!(text.ends_with("s4 (INFO, target model) and 2 more"), "{text}");
        assert_eq!(disabled(1, false).to_string(), "filters disabled all spans: s0 (INFO, target model)");
    }

    #[test]
    fn filters_explain_that_there_are_no_spans() {
        let facts = Facts { spans: Some(0), windows: 1, installed: true, ..Facts::default() };
        assert_eq!(facts.clone().hints(), [Hint::NoSpans]);
        assert_eq!(Facts { all_levels_off: true, ..facts.clone() }.hints(), [Hint::AllLevelsOff]);
        let disabled = disabled(1, false);
        assert_eq!(Facts { disabled: Some(disabled.clone()), ..facts }.hints(), [Hint::Disabled(disabled)]);
    }
}
