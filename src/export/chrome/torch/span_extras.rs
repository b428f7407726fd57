//! The parts of a span that only TensorBoard's plugin reads.

use super::{
    call_stacks::CallStacks,
    collectives::is_collective,
    modules::{Module, Modules},
};
use crate::{
    export::{chrome::flavor::Flavor, json::Quoted},
    trace::{Span, Step, Trace, TrackId},
};
use std::collections::BTreeSet;

/// The name by which the plugin recognizes the loading of data.
pub(super) const DATA_LOADING: &str = "enumerate(DataLoader)#kernspan.__next__";

/// Names, modules and call stacks of spans. Spans must be looked up in order.
#[derive(Debug)]
pub(in super::super) struct SpanExtras {
    stacks: CallStacks,
    modules: Modules,
    /// The tracks on which `step()` is called.
    stepping: BTreeSet<TrackId>,
}

impl SpanExtras {
    /// Returns the extras of a trace's spans, or `None` in other flavors.
    pub(in super::super) fn new(trace: &Trace, flavor: Flavor) -> Option<Self> {
        let stepping = || trace.steps().iter().map(Step::track_id).collect();
        let extras = || Self { stacks: CallStacks::default(), modules: Modules::default(), stepping: stepping() };
        (flavor == Flavor::TorchTensorBoard).then(extras)
    }

    /// Returns the name to write for a span, if its own would mislead the plugin.
    pub(in super::super) fn name(&self, span: Span<'_>) -> Option<&'static str> {
        // The plugin takes such a span for a step, and fails if it cannot parse the number.
        let is_step = span.name().starts_with("ProfilerStep#");
        // A span read from a PyTorch file already has such a name.
        let is_named = span.name().starts_with("enumerate(DataLoader)#");
        let is_loading = !is_named && self.waits_for_data(span);
        if is_loading { Some(DATA_LOADING) } else { is_step.then_some("ProfilerStep") }
    }

    /// Returns whether the training waits while the span loads data. Other threads load ahead. Spans inside another
    /// span that loads data keep their names.
    fn waits_for_data(&self, span: Span<'_>) -> bool {
        let is_outermost = || span.stack().skip(1).all(|outer| outer.input_stage().is_none());
        span.input_stage().is_some() && self.stepping.contains(&span.track_id()) && is_outermost()
    }

    /// Returns whether the plugin accepts the span's inputs: a collective must have a type for each shape.
    pub(in super::super) fn may_have_inputs(&self, span: Span<'_>) -> bool {
        let op = span.fields().op();
        !is_collective(span.name()) || op.shapes().count() == op.dtypes().count()
    }

    /// Returns the module that a span calls, if it is a call of a module.
    pub(in super::super) fn module<'a>(&mut self, span: Span<'a>) -> Option<Module<'a>> {
        span.fields().op().module().map(|path| self.modules.of(span, path))
    }

    /// Returns the call stack of a span. This must be called for every span, in order.
    pub(in super::super) fn call_stack(&mut self, span: Span<'_>) -> &Quoted {
        self.stacks.of(span)
    }
}
