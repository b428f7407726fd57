//! The GPU part of a report.

use super::{gpu_steps::GpuSteps, highest_peaks::HighestPeaks, kernel_times::KernelTimes};
use crate::{
    analysis::Analysis,
    trace::{Attributions, Device, Gpu},
};
use std::fmt;

/// The GPU part of a report, over all windows.
#[derive(Debug, Default)]
pub(super) struct GpuSummary {
    /// Whether GPUs were recorded, in the last window that was to record them.
    pub(super) state: Gpu,
    pub(super) devices: Vec<Device>,
    pub(super) kernels: KernelTimes,
    pub(super) steps: GpuSteps,
    pub(super) attributions: Attributions,
    pub(super) memory: HighestPeaks,
}

impl GpuSummary {
    /// Adds a window.
    pub(super) fn add(&mut self, window: &Analysis<'_>) {
        let trace = window.trace();
        if *trace.gpu() != Gpu::NotAsked {
            self.state = trace.gpu().clone();
        }
        if !trace.devices().is_empty() {
            self.devices = trace.devices().to_vec();
        }
        self.kernels.add(trace);
        self.steps.add(window);
        self.attributions += trace.attributions();
        self.memory.add(trace);
    }
}

impl fmt::Display for GpuSummary {
    /// Writes a line for each fact that is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.fmt(f)?;
        let Attributions { direct, handed_off, before, unattributed } = self.attributions;
        if self.attributions.total() > 0 {
            write!(f, "{} kernels and copies: {direct} direct", self.attributions.total())?;
            write!(f, ", {handed_off} handed off, {unattributed} unattributed")?;
            if before > 0 {
                write!(f, ", {before} asked for before a window opened")?;
            }
            writeln!(f)?;
        }
        self.memory.iter().try_for_each(|peak| writeln!(f, "{peak}"))?;
        match &self.state {
            Gpu::Available(library) if library.warning.is_none() => Ok(()),
            Gpu::NotAsked => Ok(()),
            state => writeln!(f, "{state}"),
        }
    }
}
