use kernspan::Profiler;

/// A training that runs on the thread that made it.
pub trait Training {
    /// Runs one step, always with the same number of kernels, copies and fills.
    fn step(&mut self);

    /// Waits until the GPU is done.
    fn synchronize(&mut self);

    /// Attaches the framework to the profiler, until the result is dropped.
    fn attach(&self, profiler: &Profiler) -> Box<dyn std::any::Any> {
        let _ = profiler;
        Box::new(())
    }

    /// Returns the free bytes of the GPU's memory, if known.
    fn free_memory(&self) -> Option<usize> {
        None
    }

    /// Returns whether all launches of a step are made before the step returns. If not, only the totals of windows are
    /// checked.
    fn is_eager(&self) -> bool {
        true
    }
}
