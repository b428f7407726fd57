//! Snapshots of GPU memory that are taken automatically: above a limit, and when an allocation fails.

use crate::{
    analysis::{MemorySnapshot, SnapshotReason},
    export::write_torch_snapshot,
    file::{self, FileError},
    gpu::{GpuMemory, Ledger},
    trace::{DeviceId, Metadata},
};
use std::{error::Error, path::PathBuf, sync::Arc};

/// Settings for [`ProfilerBuilder::memory_snapshots`](crate::ProfilerBuilder::memory_snapshots): when snapshots are
/// taken automatically, and where they are written.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// use kernspan::{MemorySnapshots, Profiler};
///
/// let snapshots = MemorySnapshots::to_dir(folder.path()).above(0.95);
/// let (layer, profiler) = Profiler::builder().memory_snapshots(snapshots).build()?;
/// # drop(layer);
/// match profiler.memory_snapshot() {
///     Ok(snapshot) => println!("{snapshot}"),
///     Err(error) => println!("{error}"), // on a machine without a GPU
/// }
/// # profiler.finish()?;
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "give it to `ProfilerBuilder::memory_snapshots`"]
pub struct MemorySnapshots {
    folder: Option<PathBuf>,
    above: f64,
}

impl MemorySnapshots {
    /// The default of [`above`](Self::above).
    pub const ABOVE: f64 = 0.9;

    /// Snapshots that are taken automatically are in the report only.
    pub fn in_report() -> Self {
        Self { folder: None, above: Self::ABOVE }
    }

    /// Snapshots that are taken automatically are in the report, and also written to this folder as snapshots of
    /// PyTorch: `{host}_{pid}.step_{step}.memory.pickle`.
    pub fn to_dir(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()), ..Self::in_report() }
    }

    /// Sets the fraction of a GPU's memory above which a snapshot is taken, once each time that it is exceeded. By
    /// default, [`Self::ABOVE`]; 1 for never.
    ///
    /// Memory that the driver's pool keeps for reuse does not count. That of other processes does, as of the last time
    /// that it was looked at, a fifth of a second ago at most.
    pub fn above(mut self, fraction: f64) -> Self {
        self.above = fraction;
        self
    }

    /// Checks that the settings make sense, and that the folder can be written.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !(self.above > 0.0 && self.above <= 1.0) {
            return Err(format!("{} is not a fraction between 0 and 1", self.above));
        }
        let folder = self.folder.as_deref().map_or(Ok(()), file::check);
        folder.map_err(|error| error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}")))
    }
}

/// Takes snapshots, and keeps those that were taken automatically.
#[derive(Debug)]
pub(super) struct SnapshotKeeper {
    settings: MemorySnapshots,
    ledger: Arc<Ledger>,
    metadata: Arc<Metadata>,
    /// The GPUs of which more than the limit is in use.
    above: Vec<DeviceId>,
    pub(super) taken: TakenSnapshots,
}

/// The snapshots of a run that were taken automatically.
#[derive(Debug, Default)]
pub(crate) struct TakenSnapshots {
    pub(crate) snapshots: Vec<MemorySnapshot>,
    /// The files that they were written to.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) failures: Vec<FileError>,
}

impl SnapshotKeeper {
    /// The most snapshots of a run: the first ones say most, and each may have many thousands of allocations.
    const MOST: usize = 8;
    /// The part of a GPU's memory by which its use has to fall below the limit before the next snapshot is taken, so
    /// that a use that goes up and down around the limit causes one snapshot.
    const HYSTERESIS: f64 = 0.05;

    pub(super) fn new(settings: MemorySnapshots, ledger: Arc<Ledger>, metadata: Arc<Metadata>) -> Self {
        Self { settings, ledger, metadata, above: Vec::new(), taken: TakenSnapshots::default() }
    }

    /// Takes a snapshot of each GPU of which more than the limit has come into use.
    pub(super) fn look(&mut self, gpus: &[GpuMemory]) {
        for gpu in gpus {
            let fraction = gpu.in_use(&self.ledger) as f64 / gpu.size.max(1) as f64;
            let was_above = self.above.contains(&gpu.device);
            if !was_above && fraction > self.settings.above {
                self.above.push(gpu.device);
                let reason = SnapshotReason::Above { device: gpu.device, fraction: self.settings.above };
                self.keep(self.ledger.snapshot(reason), gpus);
            } else if was_above && fraction < self.settings.above - Self::HYSTERESIS {
                self.above.retain(|device| *device != gpu.device);
            }
            let limit = (gpu.size as f64 * self.settings.above) as u64;
            self.ledger.set_alarm(gpu.device, if self.above.contains(&gpu.device) { 0 } else { limit });
        }
    }

    /// Keeps a snapshot, and writes it.
    pub(super) fn keep(&mut self, mut snapshot: MemorySnapshot, gpus: &[GpuMemory]) {
        if self.taken.snapshots.len() == Self::MOST {
            return;
        }
        complete(&mut snapshot, gpus);
        tracing::warn!("kernspan: {}", snapshot.to_string().trim_end());
        if let Some(folder) = &self.settings.folder {
            let worker = format!("{}_{}", file::safe(&self.metadata.host), self.metadata.pid);
            let name = |attempt| {
                let number = if attempt == 0 { String::new() } else { format!(".{attempt}") };
                folder.join(format!("{worker}.step_{}{number}.memory.pickle", snapshot.step()))
            };
            match file::write_first_free(name, |out| write_torch_snapshot(&snapshot, out)) {
                Ok(path) => self.taken.files.push(path),
                Err(error) => self.taken.failures.push(error),
            }
        }
        self.taken.snapshots.push(snapshot);
    }
}

/// Adds the memory of each GPU as a whole to a snapshot.
pub(super) fn complete(snapshot: &mut MemorySnapshot, gpus: &[GpuMemory]) {
    for gpu in gpus {
        snapshot.add_device(gpu.device, gpu.shares.map(|shares| shares.all), Some(gpu.size));
    }
}
