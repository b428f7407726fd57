//! The spans of both sides, aligned by path, and how they have changed.

use super::{
    drift::Factors,
    estimate::Noise,
    sample::{Matrix, Sample, add, typical},
    time_change::TimeChange,
};
use crate::{
    baseline::{Baseline, BaselineRun, BaselineSpan, Times},
    counts::{CountChange, CountKind, CountRange},
};
use serde::Serialize;
use std::collections::HashMap;

/// The spans of one path before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SpanChange {
    /// The names from the outside in, as they are after, or before if the path is gone.
    pub path: Vec<String>,
    /// The target.
    pub target: String,
    /// The place in the source, as `file:line`.
    pub location: Option<String>,
    /// The sides that have the path.
    pub presence: Presence,
    /// Self time on the thread of the step.
    pub host: TimeChange,
    /// Time on the thread of the step, including the spans called from it.
    pub total_host: TimeChange,
    /// Self time on other threads.
    pub background: TimeChange,
    /// The time of GPU work that the spans themselves caused.
    pub gpu: TimeChange,
    /// The time of GPU work, including that of the spans called from it.
    pub total_gpu: TimeChange,
    /// The time on the critical path in which the spans themselves were active, on any thread.
    pub exposed_host: TimeChange,
    /// The time on the critical path in which GPU work that the spans themselves caused ran.
    pub exposed_gpu: TimeChange,
    /// The counts of the spans themselves that have changed.
    pub counts: Vec<CountChange>,
}

/// The sides of a comparison that have a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Presence {
    /// Both.
    Both,
    /// Only the one after.
    Added,
    /// Only the one before.
    Gone,
    /// Both, but called from another place.
    Moved {
        /// The path before.
        from: Vec<String>,
    },
}

/// The paths of all runs of both sides, without duplicates, a parent before its children.
#[derive(Debug, Default)]
pub(super) struct Alignment<'a> {
    pub(super) paths: Vec<AlignedPath<'a>>,
    /// The runs of both sides that have steps, by the duration of a typical step.
    pub(super) runs: [Vec<&'a BaselineRun>; 2],
    /// The kept steps of each run, by duration.
    steps: [Vec<Vec<usize>>; 2],
    /// The old path of each path that was moved.
    moved: Vec<Option<usize>>,
    /// Whether a path was moved elsewhere.
    is_source: Vec<bool>,
}

/// A path, and its spans in each run of both sides.
#[derive(Debug)]
pub(super) struct AlignedPath<'a> {
    pub(super) parent: Option<usize>,
    pub(super) name: &'a str,
    /// The spans in each run, `None` if a run has none.
    pub(super) spans: [Vec<Option<&'a BaselineSpan>>; 2],
}

impl<'a> Alignment<'a> {
    pub(super) fn of(before: &'a Baseline, after: &'a Baseline) -> Self {
        let runs = [before, after].map(|side| by_duration(side.runs.iter().filter(|run| run.kept() > 0).collect()));
        let counts = [runs[0].len(), runs[1].len()];
        let steps = runs.each_ref().map(|side| side.iter().map(|run| steps_by_duration(run)).collect());
        let mut alignment = Self { runs, steps, ..Self::default() };
        let mut known: HashMap<(Option<usize>, &str), usize> = HashMap::new();
        for side in 0..2 {
            for index in 0..counts[side] {
                let run = alignment.runs[side][index];
                let mut places = Vec::with_capacity(run.spans.len());
                for span in &run.spans {
                    let parent = span.parent.map(|parent| places[parent]);
                    let place = *known.entry((parent, &span.name)).or_insert_with(|| {
                        let spans = counts.map(|count| vec![None; count]);
                        alignment.paths.push(AlignedPath { parent, name: &span.name, spans });
                        alignment.paths.len() - 1
                    });
                    alignment.paths[place].spans[side][index] = Some(span);
                    places.push(place);
                }
            }
        }
        alignment.moved = moved(&alignment);
        alignment.is_source = vec![false; alignment.paths.len()];
        alignment.moved.iter().flatten().for_each(|&path| alignment.is_source[path] = true);
        alignment
    }

    /// Returns the counts that can be compared: those of the heap if all runs have them.
    pub(super) fn kinds(&self) -> impl Iterator<Item = CountKind> {
        let has_heap = self.runs.iter().flatten().all(|run| run.heap);
        CountKind::ALL.into_iter().filter(move |kind| has_heap || !kind.is_of_heap())
    }

    /// Returns the durations of the steps of each run.
    pub(super) fn durations(&self, side: usize) -> Vec<Vec<f64>> {
        let of_run = |(run, steps): (&&BaselineRun, &Vec<usize>)| {
            steps.iter().map(|&step| run.durations.get(step)).collect::<Vec<_>>()
        };
        self.runs[side].iter().zip(&self.steps[side]).map(of_run).collect()
    }

    /// Returns the times of all paths on one side. Those of a path that was moved count where it is after.
    pub(super) fn matrix(&self, side: usize, times: fn(&BaselineSpan) -> &Times) -> Matrix {
        let of_run = |(span, steps): (Option<&BaselineSpan>, &Vec<usize>)| {
            steps.iter().map(|&step| span.map_or(0.0, |span| times(span).get(step))).collect()
        };
        let of_path = |path: usize| {
            let place = self.place(side, path);
            let span = |run: usize| place.and_then(|place| self.paths[place].spans[side][run]);
            self.steps[side].iter().enumerate().map(|(run, steps)| of_run((span(run), steps))).collect()
        };
        (0..self.paths.len()).map(of_path).collect()
    }

    /// Returns the path whose spans on one side are compared with those of `path` on the other: the old one on the side
    /// before, if it was moved.
    fn place(&self, side: usize, path: usize) -> Option<usize> {
        match self.moved[path] {
            Some(from) if side == 0 => Some(from),
            _ => (side == 1 || !self.is_source[path]).then_some(path),
        }
    }

    /// Returns the times of all paths, including those called from them.
    pub(super) fn totals(&self, matrix: &Matrix) -> Matrix {
        let mut totals = matrix.clone();
        for index in (0..self.paths.len()).rev() {
            let Some(parent) = self.paths[index].parent else { continue };
            let (outer, inner) = totals.split_at_mut(index);
            add(&mut outer[parent], &inner[0]);
        }
        totals
    }

    /// Returns the names of a path, from the outside in.
    pub(super) fn path(&self, index: usize) -> Vec<String> {
        let up = std::iter::successors(Some(index), |&index| self.paths[index].parent);
        let mut path: Vec<_> = up.map(|index| self.paths[index].name.to_owned()).collect();
        path.reverse();
        path
    }
}

impl<'a> AlignedPath<'a> {
    /// Returns whether a run of this side has such spans.
    pub(super) fn is_on(&self, side: usize) -> bool {
        self.spans[side].iter().any(Option::is_some)
    }

    /// Returns the spans of all runs of a side.
    pub(super) fn on(&self, side: usize) -> impl Iterator<Item = &'a BaselineSpan> {
        self.spans[side].iter().copied().flatten()
    }
}

/// Returns runs ordered by the duration of a typical step, and so always in the same order.
fn by_duration(mut runs: Vec<&BaselineRun>) -> Vec<&BaselineRun> {
    let step = |run: &BaselineRun| {
        let mut durations: Vec<_> = (0..run.kept()).map(|step| run.durations.get(step)).collect();
        durations.sort_unstable_by(f64::total_cmp);
        typical(&durations)
    };
    let text = |run: &BaselineRun| serde_json::to_string(run).unwrap_or_default();
    runs.sort_by(|a, b| step(a).total_cmp(&step(b)).then_with(|| text(a).cmp(&text(b))));
    runs
}

fn steps_by_duration(run: &BaselineRun) -> Vec<usize> {
    let mut steps: Vec<_> = (0..run.kept()).collect();
    steps.sort_by(|&a, &b| run.durations.get(a).total_cmp(&run.durations.get(b)));
    steps
}

/// A time of all paths on both sides: as measured, and adjusted for the drift.
pub(super) struct TimeTable {
    raw: [Matrix; 2],
    adjusted: [Matrix; 2],
    noise: Noise,
}

impl TimeTable {
    /// Returns the table of the times that were measured. Those of self times are compared with the other spans only.
    pub(super) fn new(raw: [Matrix; 2], factors: &Factors, are_self: bool) -> Self {
        let paths = raw[0].iter().zip(&raw[1]).enumerate();
        let adjusted = paths.map(|(path, (before, after))| {
            let [before, after] = factors.adjusted([before, after], are_self.then_some(path));
            (before, after)
        });
        let (before, after): (Matrix, Matrix) = adjusted.unzip();
        let adjusted = [before, after];
        Self { raw, adjusted, noise: factors.noise }
    }

    /// Returns the times with those of the spans called from each, which so add up.
    fn totals(&self, alignment: &Alignment<'_>) -> Self {
        let of = |sides: &[Matrix; 2]| [alignment.totals(&sides[0]), alignment.totals(&sides[1])];
        Self { raw: of(&self.raw), adjusted: of(&self.adjusted), noise: self.noise }
    }

    fn change(&self, path: usize) -> TimeChange {
        let of = |sides: &[Matrix; 2]| [&sides[0][path], &sides[1][path]].map(|runs| Sample::new(runs.iter().cloned()));
        let raw = of(&self.raw);
        match raw.iter().all(Sample::is_nothing) {
            true => TimeChange::default(),
            false => TimeChange::new(raw, of(&self.adjusted), self.noise),
        }
    }

    /// Returns the sum of all paths in each step of each run of both sides, adjusted for the drift.
    pub(super) fn sums(&self) -> [Vec<Vec<f64>>; 2] {
        self.adjusted.each_ref().map(|matrix| {
            let mut paths = matrix.iter();
            let mut sums = paths.next().cloned().unwrap_or_default();
            paths.for_each(|path| add(&mut sums, path));
            sums
        })
    }
}

/// The times of all paths on both sides.
pub(super) struct Tables {
    pub(super) host: TimeTable,
    background: TimeTable,
    gpu: TimeTable,
    exposed_host: TimeTable,
    exposed_gpu: TimeTable,
}

impl Tables {
    pub(super) fn new(alignment: &Alignment<'_>, host: [Matrix; 2], gpu: [Matrix; 2], factors: [&Factors; 2]) -> Self {
        let [of_host, of_gpu] = factors;
        let table = |times: fn(&BaselineSpan) -> &Times, factors: &Factors| {
            TimeTable::new([0, 1].map(|side| alignment.matrix(side, times)), factors, false)
        };
        Self {
            background: table(|span| &span.background, of_host),
            exposed_host: table(|span| &span.exposed_host, of_host),
            exposed_gpu: table(|span| &span.exposed_gpu, of_gpu),
            host: TimeTable::new(host, of_host, true),
            gpu: TimeTable::new(gpu, of_gpu, true),
        }
    }
}

impl SpanChange {
    /// Returns the changes of all paths, in tree order, larger ones first.
    pub(super) fn all(alignment: &Alignment<'_>, tables: &Tables) -> Vec<Self> {
        let totals = [&tables.host, &tables.gpu].map(|table| table.totals(alignment));
        let change = |path: usize| (!alignment.is_source[path]).then(|| Self::of(alignment, tables, &totals, path));
        let mut changes: Vec<Option<Self>> = (0..alignment.paths.len()).map(change).collect();
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); alignment.paths.len() + 1];
        for (index, path) in alignment.paths.iter().enumerate() {
            children[path.parent.map_or(0, |parent| parent + 1)].push(index);
        }
        let size = |path: usize| {
            let time = |change: &TimeChange| change.before.value.max(change.after.value);
            changes[path].as_ref().map_or(0.0, |change| time(&change.total_host) + time(&change.total_gpu))
        };
        for list in &mut children {
            let name = |path: usize| alignment.paths[path].name;
            list.sort_by(|&a, &b| size(b).total_cmp(&size(a)).then_with(|| name(a).cmp(name(b))));
        }
        let (mut sorted, mut open) = (Vec::new(), children[0].iter().rev().copied().collect::<Vec<_>>());
        while let Some(path) = open.pop() {
            sorted.extend(changes[path].take());
            open.extend(children[path + 1].iter().rev());
        }
        sorted
    }

    fn of(alignment: &Alignment<'_>, tables: &Tables, [total_host, total_gpu]: &[TimeTable; 2], path: usize) -> Self {
        let from = alignment.moved[path];
        let aligned = [from.unwrap_or(path), path].map(|place| &alignment.paths[place]);
        let count = |side: usize, kind: CountKind| {
            let spans = aligned[side].spans[side].iter();
            spans.map(move |span| span.map_or_else(no_steps, |span| span.count(kind)))
        };
        let kinds = alignment.kinds().filter_map(|kind| CountChange::of(kind, count(0, kind), count(1, kind)));
        let counts: Vec<_> = kinds.collect();
        let work = CountChange::work(&counts);
        let first = aligned[1].on(1).next().or_else(|| aligned[0].on(0).next());
        Self {
            path: alignment.path(path),
            target: first.map(|span| span.target.clone()).unwrap_or_default(),
            location: first.and_then(|span| span.location.clone()),
            presence: match (from, aligned[0].is_on(0), aligned[1].is_on(1)) {
                (Some(from), ..) => Presence::Moved { from: alignment.path(from) },
                (None, true, true) => Presence::Both,
                (None, false, _) => Presence::Added,
                (None, true, false) => Presence::Gone,
            },
            host: tables.host.change(path).with_work(work),
            total_host: total_host.change(path),
            background: tables.background.change(path).with_work(work),
            gpu: tables.gpu.change(path).with_work(work),
            total_gpu: total_gpu.change(path),
            exposed_host: tables.exposed_host.change(path),
            exposed_gpu: tables.exposed_gpu.change(path),
            counts,
        }
    }

    /// Returns the path as text: `train_step > forward`.
    pub fn path_text(&self) -> String {
        self.path.join(" > ")
    }

    /// Returns the name: the last one of the path.
    pub fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }
}

/// Returns the count of a run without the spans: that of one step without any.
fn no_steps() -> CountRange {
    let mut range = CountRange::default();
    range.add_nothing(1);
    range
}

/// Maps each new path to the old path it was moved from, which has the same name, target and number of calls.
fn moved(alignment: &Alignment<'_>) -> Vec<Option<usize>> {
    let key = |path: usize, side: usize| {
        let spans = || alignment.paths[path].on(side);
        let calls = spans().map(|span| span.count(CountKind::Calls).max).max();
        (alignment.paths[path].name, spans().map(|span| span.target.as_str()).min(), calls)
    };
    let only = |side: usize| {
        let is_only = |path: &usize| alignment.paths[*path].is_on(side) && !alignment.paths[*path].is_on(1 - side);
        let mut paths: Vec<usize> = (0..alignment.paths.len()).filter(is_only).collect();
        paths.sort_by_cached_key(|&path| alignment.path(path));
        paths
    };
    let mut gone = only(0);
    let mut moved = vec![None; alignment.paths.len()];
    for added in only(1) {
        if let Some(found) = gone.iter().position(|&path| key(path, 0) == key(added, 1)) {
            moved[added] = Some(gone.remove(found));
        }
    }
    moved
}
