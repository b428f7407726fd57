//! The phases of a training step, by the names of spans.

use crate::trace::{Span, SpanId, Trace};
use rustc_hash::FxHashSet;

/// A phase of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The forward pass, and everything that is in neither of the others.
    Forward,
    Backward,
    Optimizer,
}

/// Tells the phases of a trace.
#[derive(Debug)]
pub(super) struct PhaseMarks {
    /// The spans named [`STEP`] that are the optimizer's.
    optimizer_steps: FxHashSet<SpanId>,
}

/// A name that optimizers use for their work, and training loops for a whole step.
const STEP: &str = "step";

impl Phase {
    /// Returns the phase that spans of this name mark, if any: those of PyTorch's autograd and optimizers, and those of
    /// the integrations for Candle and Burn.
    fn named(name: &str) -> Option<Self> {
        match name {
            "backward" => Some(Self::Backward),
            "optimizer" | "optimizer.step" | "optimizer_step" => Some(Self::Optimizer),
            _ if name.starts_with("autograd::") => Some(Self::Backward),
            _ if name.starts_with("Optimizer.") => Some(Self::Optimizer),
            _ => None,
        }
    }
}

impl PhaseMarks {
    pub(super) fn of(trace: &Trace) -> Self {
        let mut optimizer_steps = FxHashSet::default();
        if trace.spans().all(|span| span.name() != STEP) {
            return Self { optimizer_steps };
        }
        let mut spans: Vec<_> = trace.spans().collect();
        spans.sort_by_key(|span| span.start());
        // The spans in which a backward pass has begun. A span named `step` around one is a training step, and says
        // nothing about what is next to it.
        let mut with_backward = FxHashSet::default();
        for span in spans {
            if Phase::named(span.name()) == Some(Phase::Backward) {
                for around in span.stack().skip(1) {
                    if !with_backward.insert(around.id()) || around.name() == STEP {
                        break;
                    }
                }
            } else if span.name() == STEP && span.parent().is_some_and(|parent| with_backward.contains(&parent.id())) {
                optimizer_steps.insert(span.id());
            }
        }
        Self { optimizer_steps }
    }

    /// Returns the phase that a span and the spans around it are in.
    pub(super) fn phase(&self, span: Option<Span<'_>>) -> Phase {
        span.into_iter().flat_map(Span::stack).find_map(|span| self.marked_by(span)).unwrap_or(Phase::Forward)
    }

    /// Returns the phase that a span marks, if any. One named `step` is the optimizer's if it comes after a backward
    /// pass in the span around both.
    pub(super) fn marked_by(&self, span: Span<'_>) -> Option<Phase> {
        let is_optimizer = span.name() == STEP && self.optimizer_steps.contains(&span.id());
        Phase::named(span.name()).or(is_optimizer.then_some(Phase::Optimizer))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Phase::{self, *},
        PhaseMarks,
    };
    use crate::trace::{
        Trace,
        sample::{set_parent, spans_trace},
    };

    fn phases(trace: &Trace) -> Vec<Phase> {
        let marks = PhaseMarks::of(trace);
        trace.spans().map(|span| marks.phase(Some(span))).collect()
    }

    #[test]
    fn the_innermost_name_that_marks_a_phase_counts() {
        let names = ["train_step", "Optimizer.step#Adam.step", "backward", "layer", "autograd::engine::evaluate"];
        let mut trace = spans_trace(&names.map(|name| (name, None, 0, 9)));
        [(1, 0), (2, 0), (3, 2), (4, 1)].iter().for_each(|&(span, parent)| set_parent(&mut trace, span, parent));
        assert_eq!(phases(&trace), [Forward, Optimizer, Backward, Backward, Backward]);
        assert_eq!(PhaseMarks::of(&trace).phase(None), Forward);
        let names = ["optimizer", "optimizer.step", "optimizer_step", "step", "steps"];
        let trace = spans_trace(&names.map(|name| (name, None, 0, 9)));
        assert_eq!(phases(&trace), [Optimizer, Optimizer, Optimizer, Forward, Forward]);
    }

    #[test]
    fn a_step_is_the_optimizers_only_after_a_backward_pass_next_to_it() {
        let spans = [
            ("epoch", None, 0, 100),
            ("step", Some(0), 0, 40),
            ("forward", Some(1), 1, 10),
            // Before the backward pass: a step of a recurrent network, say.
            ("step", Some(2), 2, 4),
            ("loss", Some(1), 10, 20),
            ("backward", Some(4), 11, 19),
            ("step", Some(1), 30, 39),
            ("kernel", Some(6), 31, 32),
            // The next training step, after one that had a backward pass.
            ("step", Some(0), 50, 90),
            ("forward", Some(8), 51, 60),
        ];
        let mut trace = spans_trace(&spans);
        for (span, (_, parent, ..)) in spans.iter().enumerate() {
            parent.iter().for_each(|&parent| set_parent(&mut trace, span, parent));
        }
        let forward = [Forward; 5];
        assert_eq!(phases(&trace)[..5], forward);
        assert_eq!(phases(&trace)[5..], [Backward, Optimizer, Optimizer, Forward, Forward]);
    }
}
