//! The tables of a report.

use super::Report;
use crate::{
    analysis::SamplingTotals,
    report::{
        Averages, CounterTable, GpuSteps, HeapLines, Kernels, MemoryPeaks, Modules, Operations,
        sampled_lines::{Functions, Lines},
    },
};

impl Report {
    /// Returns the table of time by span, like PyTorch's `key_averages()`.
    pub fn averages(&self) -> Averages<'_> {
        Averages::new(&self.tree)
    }

    /// Returns the table of GPU time by kernel.
    pub fn kernels(&self) -> Kernels<'_> {
        Kernels::new(&self.gpus.kernels)
    }

    /// Returns the table of the operations that frameworks were asked for, with their GPU time.
    pub fn operations(&self) -> Operations<'_> {
        Operations::new(&self.operations)
    }

    /// Returns the table of the model's modules: their parameters, FLOPs, times and memory.
    pub fn modules(&self) -> Modules<'_> {
        Modules::new(&self.tree)
    }

    /// Returns the table of the GPUs' hardware counters, if [`counters`](crate::ProfilerBuilder::counters) is set. The
    /// report prints it.
    pub fn counters(&self) -> CounterTable<'_> {
        CounterTable::new(&self.counters)
    }

    /// Returns the usage of each GPU in each recorded step.
    pub fn gpu_steps(&self) -> GpuSteps {
        GpuSteps::of(self.steps(), &self.gpus.no_mfu)
    }

    /// Returns what lines of the program allocated on the heap, if [`heap_lines`](crate::ProfilerBuilder::heap_lines)
    /// is set. The report prints them.
    pub fn heap_lines(&self) -> HeapLines<'_> {
        HeapLines::new(&self.memory)
    }

    /// Returns the memory peak of each GPU, with the spans that had allocated the memory.
    pub fn memory(&self) -> MemoryPeaks<'_> {
        MemoryPeaks::new(&self.gpus.memory)
    }

    /// Returns the lines that the time of each span itself went to, if stacks were sampled: see
    /// [`StackSampling`](crate::trace::StackSampling). The report prints the first.
    pub fn lines(&self) -> Lines<'_> {
        Lines::new(self.stacks.as_ref())
    }

    /// Returns the functions that threads were in, over all spans, if stacks were sampled. The report prints the first.
    pub fn functions(&self) -> Functions<'_> {
        Functions::new(self.stacks.as_ref())
    }

    /// Returns how many stacks were sampled, and what could not be; `None` if they were not requested.
    pub fn sampling(&self) -> Option<&SamplingTotals> {
        self.stacks.as_ref().map(|stacks| &stacks.totals)
    }
}
