//! The statistics of one run, and the machine it ran on.

use super::{
    BaselineError,
    span::{BaselineSpan, Times, add_counts, count_of, nanos},
};
use crate::{
    counts::{CountKind, CountRange},
    span_paths::SpanPaths,
    step_samples::{SpanSample, StepCounts, StepSamples},
};
use kernspan::{
    analysis::Analysis,
    report::Average,
    trace::{Device, Trace},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// The statistics of one run, that is, one process.
///
/// Up to [`BaselineRun::STEPS`] steps are kept individually; of more, every second, every fourth and so on. Counts
/// cover all sampled steps, which is up to as many in each window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct BaselineRun {
    /// The name of the program.
    pub program: String,
    /// The machine.
    pub machine: Machine,
    /// The process id.
    pub pid: u32,
    /// The rank of the process in a distributed run.
    pub rank: u32,
    /// When the first window opened, in nanoseconds since the Unix epoch.
    pub start: u64,
    /// When the last window closed.
    pub end: u64,
    /// The number of the last window.
    pub window: u32,
    /// The number of whole steps recorded.
    pub steps: u64,
    /// The number of these that were sampled.
    pub looked_at: u64,
    /// One in this many sampled steps is kept.
    pub stride: u64,
    /// The duration of each kept step, in nanoseconds.
    pub durations: Times,
    /// The counts of a step that are not always 0.
    pub counts: Vec<(CountKind, CountRange)>,
    /// Whether allocations on the heap were counted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub heap: bool,
    /// The paths of spans, each after the path it is called from. Time of a step without an open span is that of
    /// [`Self::OUTSIDE`]; unattributed GPU work is that of [`Average::UNATTRIBUTED`].
    pub spans: Vec<BaselineSpan>,
    /// The kernels, by name, blocks and threads in a block.
    pub kernels: Vec<BaselineKernel>,
    /// The peak number of bytes in use on each GPU, by its number.
    pub peaks: BTreeMap<u32, u64>,
    /// The number of records that were lost, which counts may lack.
    pub lost: u64,
    /// More than 0 if spans or kernels have no path or row of their own because there were too many.
    pub left_out: u64,
}

/// A kernel of a run, launched with one shape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BaselineKernel {
    /// The name.
    pub name: String,
    /// Blocks in each dimension.
    pub grid: [u32; 3],
    /// Threads of a block in each dimension.
    pub block: [u32; 3],
    /// The launches in a step.
    pub launches: CountRange,
}

/// The machine a run was on, as far as traces show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Machine {
    /// The host's name.
    pub host: String,
    /// A name for machines of one kind, such as a pool of CI runners, if the program gives one as the
    /// [metadata](kernspan::ProfilerBuilder::metadata) `machine`.
    pub kind: Option<String>,
    /// The models of the GPUs that did work.
    pub gpus: Vec<String>,
}

impl BaselineRun {
    /// The maximum number of steps of a run that are kept.
    pub const STEPS: usize = StepSamples::STEPS;
    /// The name of the path for the time of a step in which no span was open on its thread.
    pub const OUTSIDE: &'static str = "[outside spans]";
    /// The maximum number of paths and kernels of a run.
    const ROWS: usize = SpanPaths::PATHS;

    /// Returns a run without steps, for the process that a window comes from.
    pub(super) fn new(trace: &Trace) -> Self {
        let metadata = trace.metadata();
        Self {
            program: metadata.process.clone(),
            machine: Machine::of(trace),
            pid: metadata.pid,
            rank: metadata.rank,
            start: trace.start().as_unix_nanos(),
            stride: 1,
            ..Self::default()
        }
    }

    /// Returns whether a window is a later one of this run.
    pub(super) fn goes_on_in(&self, trace: &Trace) -> bool {
        let metadata = trace.metadata();
        self.machine.host == metadata.host
            && (self.pid, self.rank, &*self.program) == (metadata.pid, metadata.rank, &metadata.process)
            && self.window < trace.window()
    }

    /// Adds a window.
    pub(super) fn add(&mut self, window: &Analysis<'_>) {
        let trace = window.trace();
        self.window = trace.window();
        self.end = trace.end().as_unix_nanos();
        self.lost = self.lost.saturating_add(trace.losses().total());
        self.heap |= trace.is_heap_counted();
        if self.machine.gpus.is_empty() {
            self.machine.gpus = Machine::of(trace).gpus;
        }
        for allocation in trace.allocations() {
            let peak = self.peaks.entry(allocation.device().as_u32()).or_default();
            *peak = allocation.in_use().max(*peak);
        }
        let samples = StepSamples::of(window);
        if !samples.durations.is_empty() {
            self.add_samples(&samples);
        }
    }

    fn add_samples(&mut self, samples: &StepSamples) {
        let (before, new) = (self.looked_at, samples.durations.len() as u64);
        while self.durations.len() + samples.durations.len().div_ceil(self.stride as usize) > Self::STEPS {
            self.thin();
        }
        let keep: Vec<bool> = (before..before + new).map(|step| step % self.stride == 0).collect();
        let kept = self.durations.len();
        let durations = samples.durations.iter().zip(&keep).filter(|(_, keep)| **keep);
        durations.for_each(|(duration, _)| self.durations.push(nanos(*duration)));
        add_counts(&mut self.counts, samples.totals.iter(), before);
        let mut seen = vec![false; self.spans.len()];
        let mut places: Vec<Option<usize>> = Vec::with_capacity(samples.paths.len());
        for (index, path) in samples.paths.iter().enumerate() {
            let parent = path.parent.map(|parent| places[parent]);
            // There was no room for the path it is called from, so there is none for this one either.
            let has_room = parent != Some(None);
            let place = || self.place(parent.flatten(), &path.name, &path.target, path.location.as_deref());
            let place = has_room.then(place).flatten();
            if let Some(place) = place {
                self.spans[place].add(samples.of_path(index), before, kept, &keep);
                seen.resize(self.spans.len(), false);
                seen[place] = true;
            } else {
                self.left_out = self.left_out.saturating_add(1);
            }
            places.push(place);
        }
        let outside = samples.outside.iter().zip(&samples.exposed_outside);
        let outside: Vec<_> =
            outside.map(|(&host, &exposed_host)| SpanSample { host, exposed_host, ..SpanSample::default() }).collect();
        for (name, samples) in [(Self::OUTSIDE, &outside), (Average::UNATTRIBUTED, &samples.unattributed)] {
            let is_nothing =
                |it: &SpanSample| it.host.is_zero() && it.gpu.is_zero() && it.counts == StepCounts::default();
            if samples.iter().all(is_nothing) {
                continue;
            }
            if let Some(place) = self.place(None, name, "", None) {
                self.spans[place].add(samples, before, kept, &keep);
                seen.resize(self.spans.len(), false);
                seen[place] = true;
            }
        }
        for (span, _) in self.spans.iter_mut().zip(&seen).filter(|(_, seen)| !**seen) {
            span.counts.iter_mut().for_each(|(_, range)| range.add_nothing(new));
        }
        self.add_kernels(samples, before);
        self.looked_at += new;
        self.steps = self.steps.saturating_add(samples.whole_steps);
        self.left_out = self.left_out.saturating_add(samples.left_out);
    }

    fn add_kernels(&mut self, samples: &StepSamples, before: u64) {
        let new = samples.durations.len() as u64;
        let mut seen = vec![false; self.kernels.len()];
        for (shape, launches) in &samples.kernels {
            let same = |it: &BaselineKernel| (&*it.name, it.grid, it.block) == (&*shape.name, shape.grid, shape.block);
            let index = match self.kernels.iter().position(same) {
                Some(index) => index,
                None if self.kernels.len() >= Self::ROWS => {
                    self.left_out = self.left_out.saturating_add(1);
                    continue;
                }
                None => {
                    let mut launches = CountRange::default();
                    launches.add_nothing(before);
                    let (name, grid, block) = (shape.name.to_string(), shape.grid, shape.block);
                    self.kernels.push(BaselineKernel { name, grid, block, launches });
                    self.kernels.len() - 1
                }
            };
            launches.iter().for_each(|&count| self.kernels[index].launches.add(count.into()));
            seen.resize(self.kernels.len(), false);
            seen[index] = true;
        }
        let others = self.kernels.iter_mut().zip(&seen).filter(|(_, seen)| !**seen);
        others.for_each(|(kernel, _)| kernel.launches.add_nothing(new));
    }

    /// Returns the index of a path, which is created if there is room.
    fn place(&mut self, parent: Option<usize>, name: &str, target: &str, location: Option<&str>) -> Option<usize> {
        let known = self.spans.iter().position(|span| span.parent == parent && span.name == name);
        if known.is_some() || self.spans.len() >= Self::ROWS + 2 {
            return known;
        }
        let (name, target, location) = (name.to_owned(), target.to_owned(), location.map(str::to_owned));
        self.spans.push(BaselineSpan { parent, name, target, location, ..BaselineSpan::default() });
        Some(self.spans.len() - 1)
    }

    /// Keeps every second step.
    fn thin(&mut self) {
        self.stride = self.stride.saturating_mul(2);
        self.durations.thin();
        self.spans.iter_mut().for_each(BaselineSpan::thin);
    }

    /// Replaces invalid values read from a file.
    pub(super) fn validate(&mut self) -> Result<(), BaselineError> {
        if self.spans.iter().enumerate().any(|(index, span)| span.parent.is_some_and(|parent| parent >= index)) {
            return Err(BaselineError::Invalid("a span is called from a later one"));
        }
        let times = self.spans.iter_mut().flat_map(BaselineSpan::times_mut);
        times.chain([&mut self.durations]).for_each(Times::validate);
        self.stride = self.stride.max(1);
        Ok(())
    }

    /// Returns the number of steps kept.
    pub fn kept(&self) -> usize {
        self.durations.len()
    }

    /// Returns a count of the whole step.
    pub fn count(&self, kind: CountKind) -> CountRange {
        count_of(&self.counts, kind)
    }

    /// Returns the names of a path, from the outside in.
    pub fn path(&self, span: usize) -> Vec<&str> {
        let up = std::iter::successors(Some(span), |&span| self.spans[span].parent);
        let mut path: Vec<_> = up.map(|span| &*self.spans[span].name).collect();
        path.reverse();
        path
    }
}

impl Machine {
    /// The metadata key for [`kind`](Self::kind).
    pub const KEY: &'static str = "machine";

    fn of(trace: &Trace) -> Self {
        let metadata = trace.metadata();
        Self { host: metadata.host.clone(), kind: metadata.user.get(Self::KEY).cloned(), gpus: gpus(trace) }
    }

    /// Returns whether times can be compared: the GPU models are the same, and so are the kinds of machine or, if one
    /// of these is unknown, the hosts.
    pub fn is_like(&self, other: &Self) -> bool {
        let same = match (&self.kind, &other.kind) {
            (Some(kind), Some(other)) => kind == other,
            _ => self.host == other.host,
        };
        same && self.gpus == other.gpus
    }
}

/// Returns the models of the GPUs that did work, in the order of their numbers.
fn gpus(trace: &Trace) -> Vec<String> {
    let worked = |device: &&Device| trace.streams().iter().any(|stream| stream.device() == device.id);
    trace.devices().iter().filter(worked).map(|device| device.name.clone()).collect()
}

impl fmt::Display for Machine {
    /// Writes `host (2 x NVIDIA H200)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.kind.as_deref().unwrap_or(&self.host);
        f.write_str(if name.is_empty() { "unknown machine" } else { name })?;
        let mut models: Vec<(&str, usize)> = Vec::new();
        for gpu in &self.gpus {
            match models.iter_mut().find(|(model, _)| model == gpu) {
                Some((_, count)) => *count += 1,
                None => models.push((gpu, 1)),
            }
        }
        let text = |&(model, count): &(&str, usize)| match count {
            1 => model.to_owned(),
            _ => format!("{count} x {model}"),
        };
        match models.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", models.iter().map(text).collect::<Vec<_>>().join(", ")),
        }
    }
}
