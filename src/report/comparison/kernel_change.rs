//! Changes of kernels.

use super::count_change::joined;
use crate::report::baseline::{BaselineKernel, BaselineRun, CountRange};
use std::collections::BTreeMap;

/// A kernel whose launches in a step, or whose blocks, have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KernelChange {
    /// The name.
    pub name: String,
    /// The number of blocks and threads, with the launches in a step before and after, where these have changed.
    pub shapes: Vec<KernelShapeChange>,
}

/// The launches of a kernel with one number of blocks and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
                let mut range = joined(sides[side].iter().copied());
                // A run without the kernel had steps, too.
                if sides[side].len() < runs[side] {
                    range.add_nothing(1);
                }
                range
            });
            if before.max >= after.min && after.max >= before.min {
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

    /// Returns whether the kernel is launched as often as before, but with other blocks or threads.
    pub fn is_other_shape(&self) -> bool {
        self.shapes.len() > 1 && self.difference().abs() < 1e-9
    }
}
