//! The parts of a span that only TensorBoard's plugin asks for.

use super::{
    call_stacks::CallStacks,
    collectives::is_collective,
    modules::{Module, Modules},
};
use crate::{
    export::chrome::{flavor::Flavor, json::Quoted},
    trace::{Span, Step, Trace, TrackId},
};
use std::collections::BTreeSet;

/// The name by which the plugin knows that data is loaded.
pub(super) const DATA_LOADING: &str = "enumerate(DataLoader)#kernspan.__next__";

/// Names, modules and call stacks for the plugin. It is asked about each span in turn.
#[derive(Debug)]
pub(in super::super) struct SpanExtras {
    stacks: CallStacks,
    modules: Modules,
    /// The tracks that step.
    stepping: BTreeSet<TrackId>,
}

impl SpanExtras {
    /// The extras of a trace's spans; `None` in other flavors.
    pub(in super::super) fn new(trace: &Trace, flavor: Flavor) -> Option<Self> {
        let stepping = || trace.steps().iter().map(Step::track_id).collect();
        let extras = || Self { stacks: CallStacks::default(), modules: Modules::default(), stepping: stepping() };
        (flavor == Flavor::TorchTensorBoard).then(extras)
    }

    /// The name of a span that must not have its own.
    pub(in super::super) fn name(&self, span: Span<'_>) -> Option<&'static str> {
        // The plugin takes it for a step, and fails if it cannot read the number.
        let is_step = span.name().starts_with("ProfilerStep#");
        if self.waits_for_data(span) { Some(DATA_LOADING) } else { is_step.then_some("ProfilerStep") }
    }

    /// Whether the training waits while the span loads data. Other threads load in advance, and spans inside keep their
    /// names.
    fn waits_for_data(&self, span: Span<'_>) -> bool {
        let is_outermost = || span.stack().skip(1).all(|outer| outer.input_stage().is_none());
        span.input_stage().is_some() && self.stepping.contains(&span.track_id()) && is_outermost()
    }

    /// Whether the plugin accepts the span's inputs: a collective must have a type for each shape.
    pub(in super::super) fn may_have_inputs(&self, span: Span<'_>) -> bool {
        let op = span.fields().op();
        !is_collective(span.name()) || op.shapes().count() == op.dtypes().count()
    }

    /// The module that a span is, if it is one.
    pub(in super::super) fn module<'a>(&mut self, span: Span<'a>) -> Option<Module<'a>> {
        span.fields().op().module().map(|path| self.modules.of(span, path))
    }

    /// The call stack of a span. It must be asked for of every span, in order.
    pub(in super::super) fn call_stack(&mut self, span: Span<'_>) -> &Quoted {
        self.stacks.of(span)
    }
}
