//! Sampling where it is not supported: the trace says so.

use super::{ResolvedStacks, Samples, WindowStacks};
use crate::{
    budget::Budget,
    clock::{Clock, Ticks},
};
use std::{io, sync::Arc};

#[derive(Debug)]
pub(crate) struct Sampler;

impl Sampler {
    pub(crate) fn start(_: Samples, _: &Clock, _: &Arc<Budget>) -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) fn prepare(&self) {}

    pub(crate) fn release(&self) {}

    pub(crate) fn open(&self, _: Ticks) {}

    pub(crate) fn close(&self, _: Ticks, _: bool) -> WindowStacks {
        WindowStacks::Complete(Box::new(SampledStacks { charged: 0 }))
    }
}

#[derive(Debug)]
pub(crate) struct SampledStacks {
    pub(crate) charged: usize,
}

/// With a field, as it is made like the one that has symbols.
#[derive(Debug, Default)]
pub(crate) struct Symbols(());

impl Symbols {
    pub(crate) fn resolve(&mut self, _: SampledStacks) -> ResolvedStacks {
        let problem = if cfg!(feature = "sampling") {
            "stacks are sampled on Linux only, on x86-64 and AArch64"
        } else {
            "stacks are not sampled: build kernspan with its feature `sampling`"
        };
        ResolvedStacks::without(problem.to_owned())
    }
}
