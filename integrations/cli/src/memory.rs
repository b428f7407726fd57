//! The command `memory`: what the memory of GPUs is used for, and whether other batch sizes fit.

mod table;

use crate::{
    fault::Fault,
    file,
    input::{Inputs, Read},
    output::{self, Format, Section, Style},
};
use kernspan::{
    Trace,
    analysis::{KeptMemory, MemoryLifetimes, MemorySource, MemoryTimeline, kept_memory},
    export::write_torch_snapshot_of_windows,
    report::{MemoryPeak, MemoryPeaks},
    trace::DeviceId,
};
use std::{collections::BTreeMap, num::NonZeroU64, path::PathBuf};

/// Print what the memory of each GPU is used for at its peak, how long it is in use, and what outlives its step
///
/// The categories are inferred from spans and lifetimes. Memory that the input pipeline allocates, or that a copy from
/// the host fills, is an input. Memory of the forward pass that is freed later is an activation; of the backward pass,
/// freed after the optimizer, a gradient; of the optimizer, freed after the step, optimizer state. Memory that is freed
/// in the phase that allocated it is temporary. What was in use when the window opened cannot be told apart. The
/// backward pass and the optimizer are known by the names of spans: those of PyTorch, Candle and Burn, or `backward`
/// and `optimizer`.
///
/// Of several windows, categories are those of the highest peak of each GPU.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kernspan memory runs/mnist
  kernspan memory --batch 64,128 --recorded-batch 32 runs/mnist
  kernspan memory --snapshot mnist.pickle runs/mnist     for pytorch.org/memory_viz

Exit status: 0 success; 1 a file could not be read or written, or no memory was recorded; 2 usage error")]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    /// Estimate the peak at these batch sizes
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = batch_size, requires = "recorded_batch")]
    batch: Vec<NonZeroU64>,
    /// The batch size of the recorded run
    #[arg(long, value_name = "SIZE", value_parser = batch_size, requires = "batch")]
    recorded_batch: Option<NonZeroU64>,
    /// Write a memory snapshot of PyTorch instead, for pytorch.org/memory_viz and `torch.cuda._memory_viz`; `-` for
    /// standard output
    #[arg(long, value_name = "PICKLE", conflicts_with_all = ["batch", "limit", "format", "json"])]
    snapshot: Option<PathBuf>,
    /// Maximum number of spans that own memory [default: 10; all in JSON]
    #[arg(long, short = 'n', value_name = "ROWS", value_parser = output::limit)]
    limit: Option<usize>,
    #[command(flatten)]
    style: Style,
}

/// The memory of one GPU over all windows.
struct GpuMemory<'a> {
    /// The window with the highest peak.
    timeline: MemoryTimeline<'a>,
    peak: &'a MemoryPeak,
    lifetimes: Vec<MemoryLifetimes>,
    kept: Vec<KeptMemory>,
    /// The number of steps whose memory was watched until the end of the next step.
    watched: u64,
}

const NOTHING: &str = "no GPU memory was recorded: add Activity::Memory to ProfilerBuilder::activities, or in PyTorch \
                       profile_memory=True to the profiler";

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        self.inputs.check_output(self.snapshot.as_deref())?;
        if self.style.format() == Format::Csv {
            let message = "CSV holds a single table, and this command prints several: use --json".to_owned();
            return Err(Fault::Usage(message));
        }
        let read = self.inputs.read()?;
        let report = read.report();
        let gpus = GpuMemory::all(&read, report.memory());
        if gpus.is_empty() {
            return Err(Fault::Failed(NOTHING.to_owned()));
        }
        match &self.snapshot {
            Some(path) => {
                let timelines: Vec<_> = gpus.iter().map(|gpu| &gpu.timeline).collect();
                let is_one = read.traces().count() == 1;
                let note = if is_one { "" } else { ", the window with the highest peak of each GPU" };
                file::write_with_note(path, note, |out| write_torch_snapshot_of_windows(&timelines, out))?;
            }
            None => self.style.print(&self.sections(&gpus))?,
        }
        read.end()
    }

    fn sections(&self, gpus: &[GpuMemory<'_>]) -> Vec<Section> {
        let limit = self.style.rows(self.limit, MemoryPeaks::LIMIT);
        let mut sections = Vec::new();
        for gpu in gpus {
            sections.extend([table::categories(gpu), table::owners(gpu, limit)]);
            sections.extend([table::lifetimes(gpu), table::kept(gpu, limit)]);
            if let Some(recorded) = self.recorded_batch {
                sections.push(table::estimates(gpu, recorded, &self.batch));
            }
            if self.style.format() == Format::Json {
                sections.push(table::timeline(gpu));
            }
        }
        sections
    }
}

impl<'a> GpuMemory<'a> {
    /// Returns the memory of each GPU, in the order of their numbers.
    fn all(read: &'a Read, peaks: MemoryPeaks<'a>) -> Vec<Self> {
        let mut gpus: BTreeMap<DeviceId, Self> = BTreeMap::new();
        for trace in read.traces() {
            for timeline in MemoryTimeline::of_all(trace) {
                let device = timeline.device();
                let Some(peak) = peaks.peaks().find(|peak| peak.device == device) else { continue };
                match gpus.entry(device) {
                    std::collections::btree_map::Entry::Vacant(entry) => {
                        let lifetimes = timeline.lifetimes();
                        entry.insert(Self { timeline, peak, lifetimes, kept: Vec::new(), watched: 0 });
                    }
                    std::collections::btree_map::Entry::Occupied(mut entry) => entry.get_mut().add(timeline),
                }
            }
            gpus.values_mut().for_each(|gpu| gpu.add_kept(trace));
        }
        for gpu in gpus.values_mut() {
            gpu.kept.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
        }
        gpus.into_values().collect()
    }

    /// Adds another window.
    fn add(&mut self, timeline: MemoryTimeline<'a>) {
        for (sum, more) in self.lifetimes.iter_mut().zip(timeline.lifetimes()) {
            sum.allocations += more.allocations;
            sum.bytes = sum.bytes.saturating_add(more.bytes);
        }
        if timeline.peak().in_use() > self.timeline.peak().in_use() {
            self.timeline = timeline;
        }
    }

    /// Adds what outlives its step in another window.
    fn add_kept(&mut self, trace: &Trace) {
        let (kept, watched) = kept_memory(trace);
        self.watched += watched;
        for more in kept.into_iter().filter(|it| it.source == MemorySource::Gpu(self.timeline.device())) {
            match self.kept.iter_mut().find(|known| known.path == more.path) {
                Some(known) => {
                    known.bytes = known.bytes.saturating_add(more.bytes);
                    known.allocations += more.allocations;
                    known.steps += more.steps;
                }
                None => self.kept.push(more),
            }
        }
    }
}

fn batch_size(text: &str) -> Result<NonZeroU64, String> {
    text.parse().map_err(|_| "expected a whole number of at least 1".to_owned())
}
