//! Changes in kernels: how often they are launched, and how long they take.

use crate::{
    baseline::{BaselineKernel, BaselineRun},
    counts::CountRange,
};
use kernspan::{Trace, trace::Detail};
use serde::Serialize;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

/// A kernel whose launches in a step, or whose blocks, have changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KernelChange {
    /// The name.
    pub name: String,
    /// The block and thread counts whose launches have changed, with the launches in a step before and after.
    pub shapes: Vec<KernelShapeChange>,
}

/// The launches of a kernel with one number of blocks and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KernelShapeChange {
    /// Blocks in each dimension.
    pub grid: [u32; 3],
    /// Threads of a block in each dimension.
    pub block: [u32; 3],
    /// Launches in a step before.
    pub before: CountRange,
    /// Launches in a step after.
    pub after: CountRange,
}

impl KernelChange {
    /// Returns the kernels that have changed, by name.
    pub(super) fn all(before: &[&BaselineRun], after: &[&BaselineRun]) -> Vec<Self> {
        let mut shapes: BTreeMap<_, [Vec<CountRange>; 2]> = BTreeMap::new();
        for (side, runs) in [before, after].into_iter().enumerate() {
            for BaselineKernel { name, grid, block, launches } in runs.iter().flat_map(|run| &run.kernels) {
                shapes.entry((name.as_str(), *grid, *block)).or_default()[side].push(*launches);
            }
        }
        let runs = [before.len(), after.len()];
        let mut changes: Vec<Self> = Vec::new();
        for ((name, grid, block), sides) in shapes {
            let [before, after] = [0, 1].map(|side| {
                let mut range = CountRange::joined(sides[side].iter().copied());
                // A run without the kernel still had steps.
                if sides[side].len() < runs[side] {
                    range.add_nothing(1);
                }
                range
            });
            if !before.is_apart_from(&after) {
                continue;
            }
            let shape = KernelShapeChange { grid, block, before, after };
            match changes.last_mut().filter(|last| last.name == name) {
                Some(last) => last.shapes.push(shape),
                None => changes.push(Self { name: name.to_owned(), shapes: vec![shape] }),
            }
        }
        changes
    }

    /// Returns how many more launches a step has.
    pub fn difference(&self) -> f64 {
        self.shapes.iter().map(|shape| shape.after.mean() - shape.before.mean()).sum()
    }

    /// Returns whether the kernel is launched as often as before, but with different blocks or threads.
    pub fn is_other_shape(&self) -> bool {
        self.shapes.len() > 1 && self.difference().abs() < 1e-9
    }
}

/// The kernels and copies in the whole steps of traces, by name. A [`Baseline`](crate::Baseline) contains only their
/// launches, since their times would make up most of its file.
#[derive(Clone, Debug, Default)]
pub struct KernelTimes {
    by_name: BTreeMap<String, KernelSum>,
    steps: u64,
}

/// The number and time of all launches of a kernel, or copies of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct KernelSum {
    launches: u64,
    time: Duration,
}

/// A kernel, or one kind of copies, in an average step of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KernelUse {
    /// The launches in a step.
    pub launches: f64,
    /// The time of all launches in a step.
    pub time: Duration,
    /// The time of a launch.
    pub average: Duration,
}

/// The time of a kernel, or of one kind of copies, on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KernelTimeChange {
    /// The name.
    pub name: String,
    /// Its use before; `None` if it is new.
    pub before: Option<KernelUse>,
    /// Its use after; `None` if it is gone.
    pub after: Option<KernelUse>,
    /// The additional time in a step, in nanoseconds.
    pub change: f64,
}

impl KernelTimes {
    /// Adds up the kernels of whole steps.
    pub fn of<'a>(traces: impl IntoIterator<Item = &'a Trace>) -> Self {
        let mut kernels = Self::default();
        for trace in traces {
            let is_whole: Vec<_> = trace.steps().iter().map(|step| !step.cut().any()).collect();
            kernels.steps += is_whole.iter().filter(|is_whole| **is_whole).count() as u64;
            // Most names occur repeatedly, so each is copied once.
            let mut by_kernel: HashMap<&str, KernelSum> = HashMap::new();
            for work in trace.work().filter(|work| work.step_id().is_some_and(|step| is_whole[step.index()])) {
                let sum = match work.detail() {
                    Detail::Kernel(kernel) => by_kernel.entry(&*kernel.name).or_default(),
                    _ => kernels.by_name.entry(work.name().to_string()).or_default(),
                };
                sum.add(KernelSum { launches: 1, time: work.duration() });
            }
            for (name, sum) in by_kernel {
                kernels.by_name.entry(name.to_owned()).or_default().add(sum);
            }
        }
        kernels
    }

    fn get(&self, name: &str) -> Option<KernelUse> {
        let sum = self.by_name.get(name)?;
        Some(KernelUse {
            launches: sum.launches as f64 / self.steps.max(1) as f64,
            time: sum.time.div_f64(self.steps.max(1) as f64),
            average: sum.time.div_f64(sum.launches.max(1) as f64),
        })
    }

    /// Returns the kernels of both sides, those that change the time of a step the most first. There are none if a side
    /// has no whole steps.
    pub fn compare(before: &Self, after: &Self) -> Vec<KernelTimeChange> {
        if before.steps == 0 || after.steps == 0 {
            return Vec::new();
        }
        let names: BTreeSet<_> = before.by_name.keys().chain(after.by_name.keys()).collect();
        let time = |kernel: Option<KernelUse>| kernel.map_or(0.0, |kernel| kernel.time.as_nanos() as f64);
        let change = |name: &String| {
            let (before, after) = (before.get(name), after.get(name));
            KernelTimeChange { name: name.clone(), before, after, change: time(after) - time(before) }
        };
        let mut changes: Vec<_> = names.into_iter().map(change).collect();
        changes.sort_by_key(|kernel| Reverse(kernel.change.abs() as u64));
        changes
    }
}

impl KernelSum {
    fn add(&mut self, other: Self) {
        self.launches = self.launches.saturating_add(other.launches);
        self.time = self.time.saturating_add(other.time);
    }
}
