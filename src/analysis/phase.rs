//! The phases of a training step, by the names of spans.

use crate::trace::Span;

/// A phase of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The forward pass, and everything that is in neither of the others.
    Forward,
    Backward,
    Optimizer,
}

impl Phase {
    /// Returns the phase that a span and the spans around it are in.
    pub(super) fn of(span: Option<Span<'_>>) -> Self {
        span.into_iter().flat_map(Span::stack).find_map(|span| Self::named(span.name())).unwrap_or(Self::Forward)
    }

    /// Returns the phase that spans of this name mark, if any: those of PyTorch's autograd and optimizers, and those of
    /// the integrations for Candle and Burn.
    pub(super) fn named(name: &str) -> Option<Self> {
        if name.starts_with("autograd::") || name == "backward" {
            Some(Self::Backward)
        } else if name.starts_with("Optimizer.") || name == "optimizer" || name == "step" {
            Some(Self::Optimizer)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Phase;
    use crate::trace::sample::{set_parent, spans_trace};

    #[test]
    fn the_innermost_name_that_marks_a_phase_counts() {
        let names = ["train_step", "Optimizer.step#Adam.step", "backward", "layer", "autograd::engine::evaluate"];
        let mut trace = spans_trace(&names.map(|name| (name, None, 0, 9)));
        [(1, 0), (2, 0), (3, 2), (4, 1)].iter().for_each(|&(span, parent)| set_parent(&mut trace, span, parent));
        let phases: Vec<_> = trace.spans().map(|span| Phase::of(Some(span))).collect();
        let (forward, backward) = (Phase::Forward, Phase::Backward);
        assert_eq!(phases, [forward, Phase::Optimizer, backward, backward, backward]);
        assert_eq!(Phase::of(None), forward);
    }
}
