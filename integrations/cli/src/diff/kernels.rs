//! The kernels of two sides, by name.

use super::{Diff, side::Side, text};
use crate::{json::json, output::Section};
use kernspan::{
    Trace,
    analysis::CountKind,
    report::{Table, units},
    trace::Detail,
};
use serde::Serialize;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

/// The time and number of all launches of a kernel, or copies of a kind, in whole steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    launches: u64,
    time: Duration,
}

/// The kernels and copies of the whole steps of one side.
#[derive(Debug, Default)]
pub(super) struct Kernels {
    by_name: BTreeMap<String, Sum>,
    steps: u64,
}

/// A kernel in a step of one side, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct KernelUse {
    /// Launches in a step.
    pub(super) launches: f64,
    /// The time of all launches in a step.
    pub(super) time: Duration,
    /// The time of a launch.
    pub(super) average: Duration,
}

/// A kernel, or a kind of copies, of both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct KernelChange {
    pub(super) name: String,
    /// `None` if it is new.
    pub(super) before: Option<KernelUse>,
    /// `None` if it is gone.
    pub(super) after: Option<KernelUse>,
    /// The time of a step that it takes more, in nanoseconds.
    pub(super) change: f64,
}

impl Kernels {
    /// Adds up the kernels of whole steps.
    pub(super) fn of<'a>(traces: impl Iterator<Item = &'a Trace>) -> Self {
        let mut kernels = Self::default();
        for trace in traces {
            let is_whole: Vec<_> = trace.steps().iter().map(|step| !step.cut().any()).collect();
            kernels.steps += is_whole.iter().filter(|is_whole| **is_whole).count() as u64;
            // Most names come again and again, so that each is copied once.
            let mut by_kernel: HashMap<&str, Sum> = HashMap::new();
            for work in trace.work().filter(|work| work.step_id().is_some_and(|step| is_whole[step.index()])) {
                let sum = match work.detail() {
                    Detail::Kernel(kernel) => by_kernel.entry(&*kernel.name).or_default(),
                    _ => kernels.by_name.entry(work.name().to_string()).or_default(),
                };
                sum.add(Sum { launches: 1, time: work.duration() });
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

    /// Returns the kernels of both sides, those first that change the time of a step the most. There are none if a side
    /// has no traces, but statistics only.
    pub(super) fn compare([before, after]: &[Side; 2]) -> Vec<KernelChange> {
        let (before, after) = (&before.kernels, &after.kernels);
        if before.steps == 0 || after.steps == 0 {
            return Vec::new();
        }
        let names: BTreeSet<_> = before.by_name.keys().chain(after.by_name.keys()).collect();
        let time = |kernel: Option<KernelUse>| kernel.map_or(0.0, |kernel| kernel.time.as_nanos() as f64);
        let change = |name: &String| {
            let (before, after) = (before.get(name), after.get(name));
            KernelChange { name: name.clone(), before, after, change: time(after) - time(before) }
        };
        let mut changes: Vec<_> = names.into_iter().map(change).collect();
        changes.sort_by_key(|kernel| Reverse(kernel.change.abs() as u64));
        changes
    }
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.launches = self.launches.saturating_add(other.launches);
        self.time = self.time.saturating_add(other.time);
    }
}

impl KernelChange {
    fn is_change(&self, least: f64) -> bool {
        self.change.abs() > least || self.before.map(|it| it.launches) != self.after.map(|it| it.launches)
    }

    /// Returns the launches in a step before and after, as text.
    fn launches(&self) -> [String; 2] {
        let sides = [self.before, self.after].map(|side| side.map_or(0.0, |it| it.launches));
        units::amounts(CountKind::Kernels, sides)
    }

    /// Returns `new`, `gone`, or nothing.
    pub(super) fn state(&self) -> Option<&'static str> {
        match (self.before, self.after) {
            (None, Some(_)) => Some("new"),
            (Some(_), None) => Some("gone"),
            _ => None,
        }
    }
}

/// Returns the table of kernels and copies that take more or less time, by a thousandth of the step, or that are
/// launched more or less often.
pub(super) fn section(diff: &Diff, limit: usize) -> Section {
    let mut rows = Kernels::compare(&diff.sides);
    rows.retain(|row| row.is_change(diff.comparison.step.before.value / 1000.0));
    let left_out = rows.len().saturating_sub(limit);
    rows.truncate(limit);
    Section {
        title: "Kernels and copies".to_owned(),
        key: "kernels",
        table: (!rows.is_empty()).then(|| table(&rows).left_out(left_out)),
        empty: "no kernel or copy has changed",
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    }
}

fn table(rows: &[KernelChange]) -> Table {
    let mut table = Table::default();
    table.heading("Kernels and copies in a step, on average:".to_owned());
    table.text("Kernel", rows, |row| row.name.clone());
    table.text("", rows, |row| row.state().map(str::to_owned));
    table.number("Launches", rows, |row| row.before.map(|_| row.launches()[0].clone())).droppable(3);
    table.number("After", rows, |row| row.after.map(|_| row.launches()[1].clone())).droppable(4);
    table.number("CUDA time", rows, |row| row.before.map(|it| units::time(it.time))).droppable(5);
    table.number("After", rows, |row| row.after.map(|it| units::time(it.time))).droppable(6);
    table.number("Change", rows, |row| text::signed(row.change));
    table.number("A launch", rows, |row| row.before.map(|it| units::time(it.average))).droppable(1);
    table.number("After", rows, |row| row.after.map(|it| units::time(it.average))).droppable(2);
    table
}
