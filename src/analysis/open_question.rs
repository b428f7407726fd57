//! What takes a notable part of a step without a finding, and what to record to learn more.

use super::gpu_usage::percent_of;
use crate::units;
use std::time::Duration;

/// A part of a step of which it is not known whether it could be shorter. It has no saving, unlike a
/// [`Finding`](super::Finding).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OpenQuestion {
    /// The names of the spans around the place, from the outside in; empty if it is about the machine.
    pub(crate) path: Vec<String>,
    /// The innermost of these spans, in words.
    pub(crate) place: String,
    pub(crate) kind: QuestionKind,
    /// The time of a step that it is about.
    pub(crate) each: Duration,
}

/// What is not known, by what was recorded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum QuestionKind {
    /// Whether the thread computes in the span or waits.
    ComputesOrWaits,
    /// What it computes.
    Computes {
        /// Whether stacks were sampled.
        is_sampled: bool,
        /// The percentage of its time for which its thread runs.
        runs: f64,
    },
    /// What it waits for, while other threads may work for it.
    Waits {
        /// The function in which it waits, in a sentence, if stacks were sampled.
        stack: Option<String>,
    },
    /// Whether calls that look the same do the same.
    SameCalls {
        /// The number of calls in a step.
        calls: usize,
    },
    /// What it costs that the CPUs are busy.
    BusyMachine {
        /// The vital sign, and its mean in percent.
        sign: String,
        percent: f64,
        /// The CPUs that are busy for this process, if they were read.
        own_cpus: Option<f64>,
    },
}

impl QuestionKind {
    /// A name that is the same for all questions of a kind.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::ComputesOrWaits => "computes-or-waits",
            Self::Computes { .. } => "computes",
            Self::Waits { .. } => "waits",
            Self::SameCalls { .. } => "same-calls",
            Self::BusyMachine { .. } => "busy-machine",
        }
    }
}

impl OpenQuestion {
    /// The least part of a step that a span takes to be named.
    const LEAST_OWN: f64 = 0.2;
    /// The same of calls that look the same.
    const LEAST_CALLS: f64 = 0.1;
    /// The same of waits: that of findings about them.
    const LEAST_WAIT: f64 = 0.05;

    /// Whether it is about a notable part of a step.
    pub(crate) fn is_notable(&self, step: Duration) -> bool {
        let least = match self.kind {
            QuestionKind::ComputesOrWaits | QuestionKind::Computes { .. } => Self::LEAST_OWN,
            QuestionKind::SameCalls { .. } => Self::LEAST_CALLS,
            QuestionKind::Waits { .. } => Self::LEAST_WAIT,
            QuestionKind::BusyMachine { .. } => 0.0,
        };
        self.each.as_secs_f64() >= least * step.as_secs_f64()
    }

    /// Returns it as a sentence or two, for a step that takes this long.
    pub(crate) fn text(&self, step: Duration) -> String {
        let Self { place, each, .. } = self;
        let of_step = || {
            let percent = units::percent(percent_of(*each, step));
            format!("{} of each {} step ({percent})", units::time(*each), units::time(step))
        };
        match &self.kind {
            QuestionKind::ComputesOrWaits => format!(
                "{place} takes {}, outside of spans in it. Whether it computes or waits was not recorded: \
                 `.cpu_time(CpuTime::spans())` tells, and `.samples(Samples::default())` names its functions and \
                 lines.",
                of_step()
            ),
            QuestionKind::Computes { is_sampled, runs } => {
                let lines = match is_sampled {
                    false => "`.samples(Samples::default())` names its functions and lines.",
                    true => "The table of sampled lines has its lines.",
                };
                let (of_step, runs) = (of_step(), units::percent(*runs));
                format!("{place} takes {of_step}, outside of spans in it. Its thread runs for {runs} of that. {lines}")
            }
            QuestionKind::Waits { stack: None } => format!(
                "{place} is off the CPU for {}, while other threads may work for it. With \
                 `.samples(Samples::default())`, its stack would be known.",
                of_step()
            ),
            QuestionKind::Waits { stack: Some(stack) } => {
                format!("{place} waits for {}, while other threads work. {stack}", of_step())
            }
            QuestionKind::SameCalls { calls } => {
                let one = units::time(*each / u32::try_from(*calls).unwrap_or(u32::MAX).max(1));
                format!(
                    "{place} is called {calls} times a step, {one} each: {}. Its calls look the same. If they are, \
                     make one and keep the result. A field such as `hash` or `text` that identifies their data \
                     would tell.",
                    of_step()
                )
            }
            QuestionKind::BusyMachine { sign, percent, own_cpus } => {
                let own = own_cpus.map_or_else(String::new, |cpus| {
                    format!(", while this process keeps {} CPUs busy", units::digits(cpus))
                });
                format!(
                    "`{sign}` is {} on average{own}. As that holds for all steps, what it costs is not known: \
                     `.samples(Samples::default())` records how long the steps' thread is ready to run but has no CPU.",
                    units::percent(*percent)
                )
            }
        }
    }
}
