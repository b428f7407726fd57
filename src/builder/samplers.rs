//! The settings of what looks inside spans: sampled stacks, hardware counters, ranges for other tools.

use super::ProfilerBuilder;
use crate::{activity::Activity, cpu_time::CpuTime, gpu::Counters, sampling::Samples, vitals::Vitals};

impl ProfilerBuilder {
    /// Samples hardware counters of NVIDIA GPUs while windows are open: how busy the SMs, the tensor cores and the
    /// memory were. It adds [`Activity::Counters`]. By default, no counters are sampled.
    ///
    /// The GPU itself does not slow down. A background thread decodes the samples, which takes 5 to 10 % of a core at
    /// the default interval; with one GPU, [`build`](Self::build) takes 0.4 s longer. CUPTI 12.6 and a GPU of compute
    /// capability 7.5 or higher are needed. A GPU's counters can be sampled by one process at a time, and this one
    /// keeps them until the end of the run, as it keeps CUPTI attached. Where they cannot be sampled,
    /// [`GpuCounters::problem`](crate::trace::GpuCounters::problem) says why, and everything else is recorded.
    pub fn counters(mut self, counters: Counters) -> Self {
        self.counters = counters;
        self.activities = self.activities.iter().chain([Activity::Counters]).collect();
        self
    }

    /// Samples the call stacks of all threads while a window is open, so that the trace has the functions and lines
    /// inside each span: see [`Trace::stack_samples`](crate::Trace::stack_samples). By default, none are.
    ///
    /// It needs the feature `sampling` and Linux, on x86-64 or AArch64. Where the system refuses,
    /// [`StackSampling::problem`](crate::trace::StackSampling::problem) says what to change, and everything else is
    /// recorded. [`Activity::Samples`] alone has the default settings. `docs/sampling.md` has the costs, the limits and
    /// the permissions.
    ///
    /// ```
    /// # use kernspan::{Collected, Profiler, Samples};
    /// let collected = Collected::new();
    /// let samples = Samples::default().hertz(99);
    /// let (layer, profiler) = Profiler::builder().samples(samples).export(collected.clone()).build()?;
    /// # drop(layer);
    /// // … train …
    /// profiler.finish()?;
    /// for sample in collected.only().stack_samples() {
    ///     println!("{:?} {:?}", sample.span().map(|span| span.name()), sample.stack().next());
    /// }
    /// # Ok::<(), kernspan::Error>(())
    /// ```
    pub fn samples(mut self, samples: Samples) -> Self {
        self.samples = Some(samples);
        self
    }

    /// Reads CPU time next to wall-clock time, so that a span that waits can be told from one that computes. By
    /// default, none is read.
    ///
    /// [`CpuTime::steps`] reads that of the process at the end of each step, with context switches and page faults;
    /// [`CpuTime::spans`] also that of the thread at each enter and exit of a recorded span, which costs two system
    /// calls a span: `docs/cpu_time.md` has the figures. It needs the feature `cpu-time`.
    ///
    /// ```
    /// # use kernspan::{Collected, CpuTime, Profiler};
    /// let collected = Collected::new();
    /// let (layer, profiler) =
    ///     Profiler::builder().cpu_time(CpuTime::spans()).export(collected.clone()).build()?;
    /// # drop(layer);
    /// // … train …
    /// profiler.finish()?;
    /// for span in collected.only().spans() {
    ///     println!("{} took {:?} and ran {:?}", span.name(), span.duration(), span.cpu_time());
    /// }
    /// # Ok::<(), kernspan::Error>(())
    /// ```
    pub fn cpu_time(mut self, cpu_time: CpuTime) -> Self {
        self.cpu_time = Some(cpu_time);
        self
    }

    /// Reads the vital signs of the process, its container, the machine and its GPUs in the course of the whole run,
    /// recorded or not: CPU, memory, disks, networks, temperatures, clocks, power and energy. It adds
    /// [`Activity::Vitals`], which alone has the default settings. By default, none are read.
    ///
    /// [`Report::vitals`](crate::Report::vitals) has averages and peaks of the run, traces have their window as
    /// counters, and exporters of steps each reading. A thread reads them; the program's threads do nothing. It needs
    /// the feature `vitals` and Linux. What cannot be read, as on a machine without a GPU, is left out and named in the
    /// report. `docs/vitals.md` says what is read, from where, and what it costs.
    pub fn vitals(mut self, vitals: Vitals) -> Self {
        self.vitals = Some(vitals);
        self
    }

    /// Sets whether spans are also NVTX ranges, for Nsight Systems, Nsight Compute and other tools that run the
    /// program. By default, they are not.
    ///
    /// Without such a tool nothing is loaded, and spans cost as much as before. With one, every enter and exit of every
    /// span that the layer sees is a range of the domain `kernspan`, whatever the schedule says, until the profiler has
    /// finished. Such tools often keep CUPTI for themselves; then kernspan records no GPU, and the ranges are there all
    /// the same.
    ///
    /// ```
    /// # use kernspan::Profiler;
    /// let (layer, profiler) = Profiler::builder().nvtx(true).build()?;
    /// # drop((layer, profiler));
    /// # Ok::<(), kernspan::Error>(())
    /// ```
    ///
    /// The kernels of the span `attention` in Nsight Compute:
    /// `ncu --nvtx --nvtx-include "kernspan@attention/" ./train`.
    #[cfg(all(feature = "nvtx", unix))]
    pub fn nvtx(mut self, ranges: bool) -> Self {
        self.nvtx = ranges;
        self
    }
}
