//! How busy the parts of a GPU were while the work of a span, a module or a kernel ran, by its hardware counters.
//!
//! A sample covers a fixed interval, in which several kernels may run. So its value is the mean of theirs, weighted by
//! the time that each takes of it, and many samples with different weights tell the kernels apart: see [`mixture`].

mod mixture;

use self::mixture::Mixture;
use crate::trace::{DeviceId, GpuCounters, GpuMetric, MetricMeaning, NameKey, Timestamp, Trace, Work};
use rustc_hash::FxHashMap;
use std::{collections::BTreeMap, time::Duration};

/// Counters while the GPU worked for one span, module, kernel or step: see
/// [`Analysis::counter_uses`](super::Analysis::counter_uses).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CounterUse {
    /// The span, module, kernel or step.
    pub subject: CounterSubject,
    /// The GPU.
    pub device: DeviceId,
    /// The GPU's time for it that samples cover. Work that ran at the same time shares that time.
    pub gpu: Duration,
    /// The number of samples in which it ran.
    pub samples: u64,
    /// The mean of each metric.
    pub values: Vec<CounterValue>,
}

/// The owner of a [`CounterUse`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CounterSubject {
    /// A step, by its number: all of the time from its first to its last work on the GPU, if samples have measured
    /// [enough of it](CounterUse::LEAST_MEASURED).
    Step(u64),
    /// All spans of a name, with those nested in them.
    Span(String),
    /// A module, by its path in the model (`op.module`), with those nested in it.
    Module(String),
    /// A kernel, copy or fill, by its name.
    Kernel(String),
}

/// The mean of one metric while something ran.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CounterValue {
    /// The metric.
    pub metric: GpuMetric,
    /// The mean, in the metric's own unit.
    pub mean: f64,
    /// The standard error of the mean. It is large if samples do not tell the work from other work that always ran in
    /// the same ones. That of a step is 0, as its values are not estimated.
    pub error: f64,
}

impl CounterValue {
    /// The largest standard error, in percentage points, of a value that tables show and findings rely on.
    pub const MAX_ERROR: f64 = 3.0;
}

impl CounterUse {
    /// The least share of a step's GPU time, from its first to its last work, that samples must have measured: a step
    /// below it has no values.
    ///
    /// A sample that crosses the edge of a step is only partly about that step, so what it covers of the step is
    /// weighted by the share of the sample that does. At one half, samples cover at least half of the step, and at
    /// least half of what they cover is the step itself. If there are no gaps between samples, a step as long as the
    /// interval always has values, and one shorter than half of it never does.
    pub const LEAST_MEASURED: f64 = 0.5;

    /// The value of the metric with this meaning.
    pub fn value(&self, meaning: MetricMeaning) -> Option<&CounterValue> {
        self.values.iter().find(|value| value.metric.meaning() == meaning)
    }
}

/// The part of a GPU that limits some work, by its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum CounterBound {
    /// The memory's bandwidth: it is in use for more than [`CounterBound::BUSY`], and more than the tensor cores.
    Memory,
    /// The tensor cores: they are busy for more than [`CounterBound::BUSY`].
    Tensor,
    /// The SMs have work for most of the time, but neither the memory nor the tensor cores are busy: other arithmetic,
    /// caches, or waiting for results.
    Sm,
    /// Most SMs have no work: kernels are too small or too short for the GPU.
    Idle,
}

impl CounterBound {
    /// From this percentage on, a part of the GPU is called busy. NVIDIA's Nsight Compute calls 60 % of the peak the
    /// point from which a kernel is limited by that part rather than by latency.
    pub const BUSY: f64 = 60.0;

    /// Returns the limit of work during which the SMs and the tensor cores were active, and the memory's bandwidth was
    /// in use, for these parts of the time, in percent.
    pub(crate) fn of(sm: f64, tensor: f64, dram: f64) -> Self {
        match () {
            () if dram >= Self::BUSY && dram >= tensor => Self::Memory,
            () if tensor >= Self::BUSY => Self::Tensor,
            () if sm >= Self::BUSY => Self::Sm,
            () => Self::Idle,
        }
    }

    /// The name of the part.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Tensor => "tensor",
            Self::Sm => "SM",
            Self::Idle => "idle SMs",
        }
    }

    /// What that means, for the end of a sentence.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Memory => "it is memory-bound",
            Self::Tensor => "it is compute-bound, by the tensor cores",
            Self::Sm => "neither memory nor tensor cores limit it, but other arithmetic, caches or latency",
            Self::Idle => "most SMs have no work",
        }
    }
}

/// Returns the counters of each step, span, module and kernel.
pub(super) fn counter_uses(trace: &Trace) -> Vec<CounterUse> {
    let counters = trace.gpu_counters().iter().filter(|counters| counters.samples().len() > 0);
    counters.flat_map(|counters| DeviceUse::of(trace, counters).uses()).collect()
}

/// The work of one GPU in groups, and the samples that they ran in.
struct DeviceUse<'a> {
    trace: &'a Trace,
    counters: &'a GpuCounters,
    paths: Vec<Path<'a>>,
    groups: Vec<Group>,
    /// The groups that ran in each sample.
    of_samples: Vec<Vec<usize>>,
    mixture: Mixture,
}

/// Work of one name that was launched in spans of one path. The values of groups are estimated; those of spans, modules
/// and kernels are made of them.
#[derive(Debug)]
struct Group {
    path: Option<usize>,
    name: String,
    /// Its place in the [`Mixture`].
    column: usize,
    /// Its time that samples cover.
    nanos: f64,
}

/// A path of span names.
#[derive(Debug)]
struct Path<'a> {
    parent: Option<usize>,
    name: &'a str,
    module: Option<&'a str>,
}

/// The index of a group, and the start and the end of a piece of its work.
type Piece = (usize, Timestamp, Timestamp);

impl<'a> DeviceUse<'a> {
    /// The place of the time in which the GPU was idle.
    const IDLE: usize = 0;
    /// The place of all groups for which there are no more.
    const OTHERS: usize = 1;
    /// The number of places. Estimating takes time by its cube.
    const COLUMNS: usize = 256;

    fn of(trace: &'a Trace, counters: &'a GpuCounters) -> Self {
        let (paths, path_of) = paths(trace);
        let mut grouping = Grouping::default();
        let of_device = trace.work().filter(|work| work.stream().device() == counters.device());
        let piece = |work: Work<'_>| {
            let path = work.span().map(|span| path_of[span.id().index()]);
            (grouping.group(path, work), work.start(), work.end())
        };
        let pieces: Vec<Piece> = of_device.map(piece).collect();
        let mut groups = grouping.groups;
        let shares = shares(counters, &pieces);
        for (shares, (time, _)) in shares.iter().zip(counters.samples()) {
            // Not all are as long as the interval, if that was widened.
            let nanos = time.end.since(time.start).as_nanos() as f64;
            shares.iter().for_each(|(group, share)| groups[*group].nanos += share * nanos);
        }
        // The longest have places of their own.
        let mut longest: Vec<_> = (0..groups.len()).collect();
        longest.sort_by(|&a, &b| groups[b].nanos.total_cmp(&groups[a].nanos));
        for (rank, &group) in longest.iter().enumerate() {
            let own = Self::OTHERS + 1 + rank;
            groups[group].column = if own < Self::COLUMNS { own } else { Self::OTHERS };
        }
        let row = |shares: Vec<(usize, f64)>| {
            let idle = (1.0 - shares.iter().map(|(_, share)| share).sum::<f64>()).max(0.0);
            let busy = shares.into_iter().map(|(group, share)| (groups[group].column, share));
            busy.chain([(Self::IDLE, idle)]).collect()
        };
        let of_samples = shares.iter().map(|shares| shares.iter().map(|(group, _)| *group).collect()).collect();
        let rows = shares.into_iter().map(row).collect();
        let mixture = Mixture::new(rows, (Self::OTHERS + 1 + groups.len()).min(Self::COLUMNS));
        Self { trace, counters, paths, groups, of_samples, mixture }
    }

    fn uses(&self) -> Vec<CounterUse> {
        let metrics = self.counters.metrics();
        let samples_of = |metric: usize| self.counters.samples().map(|(_, values)| values[metric]).collect::<Vec<_>>();
        let estimates: Vec<_> = (0..metrics.len()).map(|metric| self.mixture.estimate(&samples_of(metric))).collect();
        let members: Vec<_> = self.members().into_iter().collect();
        let samples = self.sample_counts(&members);
        let row = |((subject, members), samples): ((CounterSubject, Vec<usize>), u64)| {
            let groups = || members.iter().map(|&group| &self.groups[group]);
            let weights: Vec<_> = groups().map(|group| (group.column, group.nanos)).collect();
            let values = metrics.iter().zip(&estimates).map(|(metric, estimate)| {
                let (mean, error) = estimate.mean(&weights);
                let mean = if metric.unit() == "%" { mean.min(100.0) } else { mean };
                CounterValue { metric: metric.clone(), mean, error }
            });
            CounterUse {
                subject,
                device: self.counters.device(),
                gpu: Duration::from_nanos(groups().map(|group| group.nanos).sum::<f64>() as u64),
                samples,
                values: values.collect(),
            }
        };
        let mut uses = self.steps();
        uses.extend(members.into_iter().zip(samples).map(row));
        uses
    }

    /// Returns the number of samples in which each subject ran, in one of its groups or in several.
    fn sample_counts(&self, members: &[(CounterSubject, Vec<usize>)]) -> Vec<u64> {
        let mut subjects = vec![Vec::new(); self.groups.len()];
        for (subject, (_, groups)) in members.iter().enumerate() {
            groups.iter().for_each(|&group| subjects[group].push(subject));
        }
        let (mut counts, mut last) = (vec![0; members.len()], vec![None; members.len()]);
        for (sample, groups) in self.of_samples.iter().enumerate() {
            for &subject in groups.iter().flat_map(|&group| &subjects[group]) {
                counts[subject] += u64::from(last[subject].replace(sample) != Some(sample));
            }
        }
        counts
    }

    /// Returns the groups that each span, module and kernel consists of.
    fn members(&self) -> BTreeMap<CounterSubject, Vec<usize>> {
        let mut members = BTreeMap::<_, Vec<usize>>::new();
        for (index, group) in self.groups.iter().enumerate().filter(|(_, group)| group.nanos > 0.0) {
            members.entry(CounterSubject::Kernel(group.name.clone())).or_default().push(index);
            let path = |&path: &usize| self.paths[path].parent;
            for path in std::iter::successors(group.path, path).map(|path| &self.paths[path]) {
                let span = CounterSubject::Span(path.name.to_owned());
                for subject in [Some(span), path.module.map(|module| CounterSubject::Module(module.to_owned()))] {
                    let Some(of_subject) = subject.map(|subject| members.entry(subject).or_default()) else { continue };
                    // A span may be nested in one of the same name.
                    if of_subject.last() != Some(&index) {
                        of_subject.push(index);
                    }
                }
            }
        }
        members
    }

    /// Returns the means over the time from the first to the last work of each step that was
    /// [measured](CounterUse::LEAST_MEASURED).
    fn steps(&self) -> Vec<CounterUse> {
        let mut ranges = BTreeMap::<usize, (Timestamp, Timestamp)>::new();
        for work in self.trace.work().filter(|work| work.stream().device() == self.counters.device()) {
            let Some(step) = work.step_id() else { continue };
            let range = ranges.entry(step.index()).or_insert((work.start(), work.end()));
            *range = (range.0.min(work.start()), range.1.max(work.end()));
        }
        let metrics = self.counters.metrics();
        let row = |(step, (start, end)): (usize, (Timestamp, Timestamp))| {
            let (mut sums, mut nanos, mut samples) = (vec![0.0; metrics.len()], 0.0, 0);
            let mut measured = 0.0;
            let overlapping = self.counters.samples().filter(|(time, _)| time.start < end && time.end > start);
            for (time, values) in overlapping {
                let overlap = time.end.min(end).since(time.start.max(start)).as_nanos() as f64;
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += overlap * value);
                nanos += overlap;
                measured += overlap * overlap / time.end.since(time.start).as_nanos().max(1) as f64;
                samples += 1;
            }
            let value = |(metric, sum): (&GpuMetric, f64)| CounterValue {
                metric: metric.clone(),
                mean: sum / nanos,
                error: 0.0,
            };
            let least = CounterUse::LEAST_MEASURED * end.since(start).as_nanos() as f64;
            (nanos > 0.0 && measured >= least).then(|| CounterUse {
                subject: CounterSubject::Step(self.trace.steps()[step].number()),
                device: self.counters.device(),
                gpu: Duration::from_nanos(nanos as u64),
                samples,
                values: metrics.iter().zip(sums).map(value).collect(),
            })
        };
        ranges.into_iter().filter_map(row).collect()
    }
}

/// Groups of work, by path and name.
#[derive(Default)]
struct Grouping {
    groups: Vec<Group>,
    by_name: FxHashMap<(Option<usize>, String), usize>,
    /// Names of kernels are long, and most are stored once.
    by_key: FxHashMap<(Option<usize>, NameKey), usize>,
}

impl Grouping {
    fn group(&mut self, path: Option<usize>, work: Work<'_>) -> usize {
        let key = work.kernel().map(|kernel| (path, NameKey::of(&kernel.name)));
        if let Some(&group) = key.and_then(|key| self.by_key.get(&key)) {
            return group;
        }
        let name = work.name().to_string();
        let group = *self.by_name.entry((path, name)).or_insert_with_key(|(path, name)| {
            self.groups.push(Group { path: *path, name: name.clone(), column: 0, nanos: 0.0 });
            self.groups.len() - 1
        });
        self.by_key.extend(key.map(|key| (key, group)));
        group
    }
}

/// Returns the paths of spans, and the path of each span.
fn paths(trace: &Trace) -> (Vec<Path<'_>>, Vec<usize>) {
    let (mut paths, mut known, mut path_of) = (Vec::new(), FxHashMap::default(), Vec::new());
    for span in trace.spans() {
        let parent = span.parent().map(|parent| path_of[parent.id().index()]);
        let module = span.fields().op().module();
        let path = *known.entry((parent, span.name(), module)).or_insert_with(|| {
            paths.push(Path { parent, name: span.name(), module });
            paths.len() - 1
        });
        path_of.push(path);
    }
    (paths, path_of)
}

/// Returns the groups that ran in each sample, with the parts of its time. Work that ran at the same time shares it.
fn shares(counters: &GpuCounters, pieces: &[Piece]) -> Vec<Vec<(usize, f64)>> {
    let mut edges: Vec<(Timestamp, bool, usize)> = Vec::with_capacity(2 * pieces.len());
    for &(group, start, end) in pieces.iter().filter(|(_, start, end)| start < end) {
        edges.extend([(start, true, group), (end, false, group)]);
    }
    edges.sort_unstable();
    let times: Vec<_> = counters.samples().map(|(time, _)| time).collect();
    let mut shares = vec![Vec::<(usize, f64)>::new(); times.len()];
    let (mut running, mut first) = (Vec::<usize>::new(), 0);
    for pair in edges.windows(2) {
        let ((from, starts, group), (to, ..)) = (pair[0], pair[1]);
        match running.iter().position(|&other| other == group) {
            Some(place) if !starts => drop(running.swap_remove(place)),
            _ if starts => running.push(group),
            _ => {}
        }
        if running.is_empty() || from >= to {
            continue;
        }
        while times.get(first).is_some_and(|time| time.end <= from) {
            first += 1;
        }
        for (index, time) in times.iter().enumerate().skip(first).take_while(|(_, time)| time.start < to) {
            let overlap = time.end.min(to).since(time.start.max(from)).as_nanos() as f64;
            let share = overlap / time.end.since(time.start).as_nanos().max(1) as f64 / running.len() as f64;
            for &group in &running {
                match shares[index].iter_mut().find(|(other, _)| *other == group) {
                    Some((_, sum)) => *sum += share,
                    None => shares[index].push((group, share)),
                }
            }
        }
    }
    shares
}

#[cfg(test)]
mod tests;
