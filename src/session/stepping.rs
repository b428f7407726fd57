//! A guard against steps that end inside the end of a step.

use std::cell::Cell;

/// A guard that marks this thread as ending a step or a window. A watcher may close a span meanwhile, which is no step,
/// even if [`step_on`](crate::ProfilerBuilder::step_on) names it.
pub(super) struct Stepping;

thread_local!(static STEPPING: Cell<bool> = const { Cell::new(false) });

impl Stepping {
    /// Returns the guard, or `None` if this thread is ending a step or a window already.
    pub(super) fn begin() -> Option<Self> {
        (!STEPPING.replace(true)).then_some(Self)
    }
}

impl Drop for Stepping {
    fn drop(&mut self) {
        STEPPING.set(false);
    }
}
