//! What slows a run with pipeline and data parallelism down: its operations run again with typical durations.
//!
//! This is the method of "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI '25): a run is
//! compared with an ideal one, in which each operation takes the mean (computation) or the median (transfers) of its
//! kind over all workers and steps.

use super::{quantile::quantile, rank_simulation::RankTasks};
use std::{collections::BTreeMap, fmt, time::Duration};

/// An operation of a worker, which is a rank or a group of ranks that works as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelineOperation {
    /// The worker.
    pub worker: u32,
    /// The stage of the pipeline, from 0.
    pub stage: u32,
    /// The data-parallel replica of the pipeline.
    pub replica: u32,
    /// The number of the step.
    pub step: u64,
    /// The kind of operation.
    pub kind: PipelineKind,
    /// The number among those of the kind, the worker and the step: for computation and transfers, the micro-batch.
    pub number: u32,
    /// The start, since a moment that all workers have in common, such as the start of the step.
    pub start: Duration,
    /// The time it takes, including the time of waiting for other workers.
    pub duration: Duration,
}

/// The kind of a [`PipelineOperation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PipelineKind {
    /// The forward pass of a micro-batch.
    Forward,
    /// The backward pass of a micro-batch.
    Backward,
    /// Activations sent to the next stage.
    ForwardSend,
    /// Activations received from the stage before.
    ForwardReceive,
    /// Gradients sent to the stage before.
    BackwardSend,
    /// Gradients received from the next stage.
    BackwardReceive,
    /// Parameters gathered from all replicas of the stage, before the first forward pass.
    ParameterGather,
    /// Gradients reduced over all replicas of the stage.
    GradientReduce,
    /// Gradients that several stages of a replica share, such as those of embeddings.
    SharedReduce,
    /// Gradients reduced inside the worker.
    LocalReduce,
    /// All workers wait for each other, such as to clip gradients.
    Synchronize,
    /// The optimizer.
    Optimizer,
}

/// What slows a run down.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PipelineCulprit {
    /// Nothing: the run is not much slower than the ideal one.
    Nothing,
    /// Some workers are slow.
    Workers(Vec<u32>),
    /// The last stage has more to do than others.
    LastStage,
    /// Micro-batches differ: the forward and the backward pass of the same ones take long, as with long sequences.
    MicroBatches,
    /// Anything else.
    Unknown,
}

/// A run compared with the ideal one: see [`of`](Self::of).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PipelineWhatIf {
    /// The mean time of a step, simulated with the recorded durations.
    pub step: Duration,
    /// The time of a step of the ideal run.
    pub ideal: Duration,
    /// The slowdown that each worker alone would cause in the ideal run, the largest first: the lesser one of its
    /// stage's and its replica's.
    pub workers: Vec<(u32, f64)>,
    /// The part of the slowdown that goes away if the worst 3 % of workers become ideal (M_W).
    pub workers_share: f64,
    /// The part that goes away if the last stage becomes ideal (M_S).
    pub last_stage_share: f64,
    /// The correlation of a micro-batch's forward and backward pass on a worker.
    pub correlation: f64,
    /// What slows the run down.
    pub culprit: PipelineCulprit,
}

impl PipelineKind {
    fn computes(self) -> bool {
        matches!(self, Self::Forward | Self::Backward | Self::Optimizer)
    }

    /// Returns what the operations that are one exchange have in common. A transfer is known by the lower stage.
    fn join(self, it: &PipelineOperation) -> Option<[u32; 2]> {
        const ALL: u32 = u32::MAX;
        match self {
            Self::ForwardSend | Self::BackwardReceive => Some([it.replica, it.stage]),
            Self::ForwardReceive | Self::BackwardSend => Some([it.replica, it.stage.checked_sub(1)?]),
            Self::ParameterGather | Self::GradientReduce => Some([ALL, it.stage]),
            Self::SharedReduce => Some([it.replica, ALL]),
            Self::Synchronize => Some([ALL, ALL]),
            Self::Forward | Self::Backward | Self::LocalReduce | Self::Optimizer => None,
        }
    }

    /// Returns the kind that both sides of a transfer have in common.
    fn both_sides(self) -> Self {
        match self {
            Self::ForwardReceive => Self::ForwardSend,
            Self::BackwardReceive => Self::BackwardSend,
            kind => kind,
        }
    }
}

impl PipelineWhatIf {
    /// The part of workers that are taken to be slow, and the part of the slowdown that a culprit explains at least:
    /// both as in the paper, as are the least slowdown and the least correlation.
    const WORST: f64 = 0.03;
    const EXPLAINS: f64 = 0.5;
    const SLOW: f64 = 1.1;
    const CORRELATED: f64 = 0.9;

    /// Compares a run with the ideal one. `None` without operations, or if they wait for each other in a circle.
    ///
    /// ```
    /// use kernspan::analysis::{PipelineCulprit, PipelineKind, PipelineOperation, PipelineWhatIf};
    /// use std::time::Duration;
    ///
    /// // Four replicas of one stage, the third of which takes twice as long.
    /// let forward = |worker: u32| PipelineOperation {
    ///     worker,
    ///     stage: 0,
    ///     replica: worker,
    ///     step: 1,
    ///     kind: PipelineKind::Forward,
    ///     number: 0,
    ///     start: Duration::ZERO,
    ///     duration: Duration::from_millis(if worker == 2 { 20 } else { 10 }),
    /// };
    /// let join = |worker: u32| PipelineOperation {
    ///     kind: PipelineKind::GradientReduce,
    ///     start: forward(worker).duration,
    ///     duration: Duration::from_millis(21) - forward(worker).duration,
    ///     ..forward(worker)
    /// };
    /// let operations: Vec<_> = (0..4).flat_map(|worker| [forward(worker), join(worker)]).collect();
    /// let what_if = PipelineWhatIf::of(&operations).unwrap();
    /// assert_eq!(what_if.culprit, PipelineCulprit::Workers(vec![2]));
    /// assert_eq!(what_if.step, Duration::from_millis(21));
    /// ```
    pub fn of(operations: &[PipelineOperation]) -> Option<Self> {
        let tasks = tasks(operations);
        let recorded = own_times(operations, &tasks);
        let ideal_times = ideal(operations, &recorded);
        let step_with = |is_ideal: &dyn Fn(&PipelineOperation) -> bool| {
            let time = |task: usize| if is_ideal(&operations[task]) { ideal_times[task] } else { recorded[task] };
            mean_step(operations, &tasks.run(time)?)
        };
        let (step, ideal) = (step_with(&|_| false)?, step_with(&|_| true)?);
        let alone = |of: fn(&PipelineOperation) -> u32, is: u32| {
            Some(ratio(step_with(&|it| of(it) != is)?, ideal)).filter(|ratio| ratio.is_finite())
        };
        let all = |of: fn(&PipelineOperation) -> u32| -> BTreeMap<u32, f64> {
            let mut all: Vec<_> = operations.iter().map(of).collect();
            all.sort_unstable();
            all.dedup();
            all.into_iter().filter_map(|is| Some((is, alone(of, is)?))).collect()
        };
        let (stages, replicas) = (all(|it| it.stage), all(|it| it.replica));
        let workers: BTreeMap<u32, _> = operations.iter().map(|it| (it.worker, (it.stage, it.replica))).collect();
        let slowdown = |(worker, (stage, replica)): (u32, (u32, u32))| {
            let of = [stages.get(&stage), replicas.get(&replica)];
            (worker, of.into_iter().flatten().copied().fold(f64::INFINITY, f64::min))
        };
        let mut workers: Vec<_> = workers.into_iter().map(slowdown).collect();
        workers.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let count = (workers.len() as f64 * Self::WORST).ceil() as usize;
        let worst: Vec<u32> = workers.iter().take(count).map(|(worker, _)| *worker).collect();
        let lost = step.as_secs_f64() - ideal.as_secs_f64();
        let share = |without: Duration| {
            if lost > 0.0 { (step.as_secs_f64() - without.as_secs_f64()) / lost } else { 0.0 }
        };
        let last = operations.iter().map(|it| it.stage).max()?;
        let workers_share = share(step_with(&|it| worst.contains(&it.worker))?);
        let last_stage_share = share(step_with(&|it| it.stage == last)?);
        let correlation = correlation(operations);
        let culprit = match ratio(step, ideal) {
            slowdown if slowdown < Self::SLOW => PipelineCulprit::Nothing,
            _ if workers_share >= Self::EXPLAINS => PipelineCulprit::Workers(worst),
            _ if correlation >= Self::CORRELATED => PipelineCulprit::MicroBatches,
            _ if last_stage_share >= Self::EXPLAINS && last > 0 => PipelineCulprit::LastStage,
            _ => PipelineCulprit::Unknown,
        };
        Some(Self { step, ideal, workers, workers_share, last_stage_share, correlation, culprit })
    }

    /// How much longer a step takes than in the ideal run: 1.5 if half as long again.
    pub fn slowdown(&self) -> f64 {
        ratio(self.step, self.ideal)
    }
}

/// Returns the operations as tasks of the same numbers.
fn tasks(operations: &[PipelineOperation]) -> RankTasks {
    let mut tasks = RankTasks::default();
    let mut workers: BTreeMap<(u64, u32), Vec<usize>> = BTreeMap::new();
    let mut joins: BTreeMap<(u64, PipelineKind, [u32; 2], u32), Vec<usize>> = BTreeMap::new();
    for (index, it) in operations.iter().enumerate() {
        tasks.push(Vec::new());
        workers.entry((it.step, it.worker)).or_default().push(index);
        if let Some(join) = it.kind.join(it) {
            joins.entry((it.step, it.kind.both_sides(), join, it.number)).or_default().push(index);
        }
    }
    joins.into_values().for_each(|join| tasks.join(join));
    for mut own in workers.into_values() {
        own.sort_by_key(|&index| (operations[index].start, operations[index].number, operations[index].kind));
        order(&mut tasks, operations, &own);
    }
    tasks
}

/// Puts the operations of a worker in a step in order. They are sorted by their start.
fn order(tasks: &mut RankTasks, operations: &[PipelineOperation], own: &[usize]) {
    use PipelineKind as Kind;
    let of = |kinds: &[Kind]| -> Vec<usize> {
        own.iter().copied().filter(|&index| kinds.contains(&operations[index].kind)).collect()
    };
    let chain = |tasks: &mut RankTasks, chain: &[usize]| {
        chain.windows(2).for_each(|pair| tasks.follow(pair[1], pair[0]));
    };
    let computing = of(&[Kind::Forward, Kind::Backward]);
    chain(tasks, &computing);
    for (pass, send, receive) in [
        (Kind::Forward, Kind::ForwardSend, Kind::ForwardReceive),
        (Kind::Backward, Kind::BackwardSend, Kind::BackwardReceive),
    ] {
        let [passes, sends, receives] = [pass, send, receive].map(|kind| of(&[kind]));
        [&sends, &receives].into_iter().for_each(|stream| chain(tasks, stream));
        sends.iter().zip(&passes).for_each(|(&send, &pass)| tasks.follow(send, pass));
        receives.iter().zip(&passes).for_each(|(&receive, &pass)| tasks.follow(pass, receive));
        // It is asked for after the pass before.
        receives.iter().skip(1).zip(&passes).for_each(|(&receive, &before)| tasks.follow(receive, before));
    }
    // The first gradients are asked for while the last forward pass before them runs.
    let first = computing.iter().position(|&index| operations[index].kind == Kind::Backward);
    if let Some(before) = first.and_then(|first| first.checked_sub(2)) {
        let first = of(&[Kind::BackwardReceive]).into_iter().next();
        first.into_iter().for_each(|receive| tasks.follow(receive, computing[before]));
    }
    let gathers = of(&[Kind::ParameterGather]);
    chain(tasks, &gathers);
    if let (Some(&gather), Some(&forward)) = (gathers.last(), of(&[Kind::Forward]).first()) {
        tasks.follow(forward, gather);
    }
    // After the passes, one after the other; a reduction that begins before they end follows the last that has ended.
    let end = |index: usize| operations[index].start + operations[index].duration;
    let tail = of(&[Kind::LocalReduce, Kind::SharedReduce, Kind::GradientReduce, Kind::Synchronize, Kind::Optimizer]);
    chain(tasks, &tail);
    for &index in &tail {
        let overlaps = operations[index].kind == Kind::GradientReduce;
        let begun = operations[index].start;
        let before = computing.iter().rev().find(|&&pass| !overlaps || end(pass) <= begun);
        before.into_iter().for_each(|&pass| tasks.follow(index, pass));
    }
}

/// Returns the time of each operation without waiting: of an exchange, from the last begin to its end.
fn own_times(operations: &[PipelineOperation], tasks: &RankTasks) -> Vec<Duration> {
    let own = |(index, it): (usize, &PipelineOperation)| {
        let begin = tasks.joined(index).iter().map(|&joined| operations[joined].start).max();
        (it.start + it.duration).saturating_sub(begin.unwrap_or(it.start))
    };
    operations.iter().enumerate().map(own).collect()
}

/// Returns the ideal time of each operation: that of its kind.
fn ideal(operations: &[PipelineOperation], recorded: &[Duration]) -> Vec<Duration> {
    let mut kinds: BTreeMap<PipelineKind, Vec<Duration>> = BTreeMap::new();
    for (it, time) in operations.iter().zip(recorded) {
        kinds.entry(it.kind).or_default().push(*time);
    }
    let typical = |(kind, mut times): (PipelineKind, Vec<Duration>)| {
        times.sort_unstable();
        let mean = || times.iter().sum::<Duration>().div_f64(times.len().max(1) as f64);
        (kind, if kind.computes() { mean() } else { quantile(&times, 0.5).unwrap_or_default() })
    };
    let kinds: BTreeMap<_, _> = kinds.into_iter().map(typical).collect();
    operations.iter().map(|it| kinds.get(&it.kind).copied().unwrap_or_default()).collect()
}

/// Returns the mean time of a step.
fn mean_step(operations: &[PipelineOperation], times: &[(Duration, Duration)]) -> Option<Duration> {
    let mut steps: BTreeMap<u64, Duration> = BTreeMap::new();
    for (it, (_, end)) in operations.iter().zip(times) {
        let step = steps.entry(it.step).or_default();
        *step = (*step).max(*end);
    }
    let sum: Duration = steps.values().sum();
    (!steps.is_empty()).then(|| sum.div_f64(steps.len() as f64))
}

fn ratio(time: Duration, of: Duration) -> f64 {
    if of.is_zero() { 1.0 } else { time.as_secs_f64() / of.as_secs_f64() }
}

/// Returns the correlation of the forward and the backward pass of micro-batches, against the mean of their worker.
fn correlation(operations: &[PipelineOperation]) -> f64 {
    let mut passes: BTreeMap<(u32, u64, u32), [Option<f64>; 2]> = BTreeMap::new();
    for it in operations.iter().filter(|it| matches!(it.kind, PipelineKind::Forward | PipelineKind::Backward)) {
        let pass = usize::from(it.kind == PipelineKind::Backward);
        passes.entry((it.worker, it.step, it.number)).or_default()[pass] = Some(it.duration.as_secs_f64());
    }
    let mut workers: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    for ((worker, ..), pass) in passes {
        if let [Some(forward), Some(backward)] = pass {
            workers.entry(worker).or_default().push((forward, backward));
        }
    }
    let (mut both, mut forward, mut backward) = (0.0, 0.0, 0.0);
    for pairs in workers.into_values() {
        let count = pairs.len() as f64;
        let mean = pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0 / count, sum.1 + pair.1 / count));
        for (x, y) in pairs.iter().map(|pair| (pair.0 - mean.0, pair.1 - mean.1)) {
            (both, forward, backward) = (both + x * y, forward + x * x, backward + y * y);
        }
    }
    let norm = (forward * backward).sqrt();
    if norm > 0.0 { both / norm } else { 0.0 }
}

/// Writes a sentence.
impl fmt::Display for PipelineWhatIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "steps take {:.2} times as long as without stragglers", self.slowdown())?;
        match &self.culprit {
            PipelineCulprit::Nothing | PipelineCulprit::Unknown => Ok(()),
            PipelineCulprit::Workers(workers) => {
                let names: Vec<_> = workers.iter().map(ToString::to_string).collect();
                let (s, share) = (if names.len() == 1 { "" } else { "s" }, 100.0 * self.workers_share.min(1.0));
                write!(f, "; {share:.0} % of that is due to worker{s} {}", names.join(", "))
            }
            PipelineCulprit::LastStage => f.write_str("; the last stage has more to do than others"),
            PipelineCulprit::MicroBatches => {
                f.write_str("; micro-batches differ, as sequences of different lengths do")
            }
        }
    }
}
