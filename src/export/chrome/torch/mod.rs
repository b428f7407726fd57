//! The parts of a document that only TensorBoard's plugin for PyTorch, torch-tb-profiler, reads: modules, call stacks,
//! collectives, and steps of non-zero length.

mod call_stacks;
mod collectives;
mod modules;
mod span_extras;
mod steps;
#[cfg(test)]
mod tests;

pub(super) use self::{
    collectives::{Collectives, is_op_on_gpu},
    modules::Module,
    span_extras::SpanExtras,
    steps::steps_shown,
};
