//! The spans of both sides, aligned by path, and how they have changed.

use super::{
    drift::Factors,
    sample::{Matrix, Sample},
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
    /// The runs of both sides that have steps.
    pub(super) runs: [Vec<&'a BaselineRun>; 2],
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
        let runs = [before, after].map(|side| side.runs.iter().filter(|run| run.kept() > 0).collect::<Vec<_>>());
        let counts = [runs[0].len(), runs[1].len()];
        let mut alignment = Self { paths: Vec::new(), runs };
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
        alignment
    }

    /// Returns the times of all paths on one side.
    pub(super) fn matrix(&self, side: usize, times: fn(&BaselineSpan) -> &Times) -> Matrix {
        let of_run = |(span, run): (&Option<&BaselineSpan>, &&BaselineRun)| {
            (0..run.kept()).map(|step| span.map_or(0.0, |span| times(span).get(step))).collect()
        };
        let of_path = |path: &AlignedPath<'_>| path.spans[side].iter().zip(&self.runs[side]).map(of_run).collect();
        self.paths.iter().map(of_path).collect()
    }

    /// Returns the times of all paths, including those called from them.
    pub(super) fn totals(&self, matrix: &Matrix) -> Matrix {
        let mut totals = matrix.clone();
        for index in (0..self.paths.len()).rev() {
            let Some(parent) = self.paths[index].parent else { continue };
            let (outer, inner) = totals.split_at_mut(index);
            for (outer, inner) in outer[parent].iter_mut().zip(&inner[0]) {
                outer.iter_mut().zip(inner).for_each(|(outer, inner)| *outer += inner);
            }
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

/// The times of both sides.
pub(super) struct Tables {
    pub(super) host: [Matrix; 2],
    pub(super) total_host: [Matrix; 2],
    pub(super) background: [Matrix; 2],
    pub(super) gpu: [Matrix; 2],
    pub(super) total_gpu: [Matrix; 2],
    pub(super) exposed_host: [Matrix; 2],
    pub(super) exposed_gpu: [Matrix; 2],
}

impl Tables {
    pub(super) fn of(alignment: &Alignment<'_>) -> Self {
        let host = [0, 1].map(|side| alignment.matrix(side, |span| &span.host));
        let gpu = [0, 1].map(|side| alignment.matrix(side, |span| &span.gpu));
        Self {
            total_host: [alignment.totals(&host[0]), alignment.totals(&host[1])],
            total_gpu: [alignment.totals(&gpu[0]), alignment.totals(&gpu[1])],
            background: [0, 1].map(|side| alignment.matrix(side, |span| &span.background)),
            exposed_host: [0, 1].map(|side| alignment.matrix(side, |span| &span.exposed_host)),
            exposed_gpu: [0, 1].map(|side| alignment.matrix(side, |span| &span.exposed_gpu)),
            host,
            gpu,
        }
    }
}

impl SpanChange {
    /// Returns the changes of all paths, in tree order, larger ones first.
    pub(super) fn all(alignment: &Alignment<'_>, tables: &Tables, host: &Factors, gpu: &Factors) -> Vec<Self> {
        let moved = moved(alignment);
        let is_source = |path: usize| moved.contains(&Some(path));
        let change = |(path, &from): (usize, &Option<usize>)| {
            (!is_source(path)).then(|| Self::of(alignment, tables, [host, gpu], path, from))
        };
        let mut changes: Vec<Option<Self>> = moved.iter().enumerate().map(change).collect();
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

    fn of(
        alignment: &Alignment<'_>,
        tables: &Tables,
        [host, gpu]: [&Factors; 2],
        path: usize,
        from: Option<usize>,
    ) -> Self {
        let places = [from.unwrap_or(path), path];
        let change = |table: &[Matrix; 2], factors: &Factors, is_self: bool| {
            let runs = [0, 1].map(|side| &table[side][places[side]]);
            if runs.iter().all(|side| side.iter().flatten().all(|&time| time == 0.0)) {
                return TimeChange::default();
            }
            let raw = runs.map(|side| Sample::new(side.iter().cloned()));
            let own = (is_self && from.is_none()).then_some(path);
            let scaled = [0, 1].map(|side| factors.scaled(side, own, runs[side]));
            TimeChange::new([&raw[0], &raw[1]], [&scaled[0], &scaled[1]], factors)
        };
        let aligned = [0, 1].map(|side| &alignment.paths[places[side]]);
        let count = |side: usize, kind: CountKind| {
            let spans = aligned[side].spans[side].iter();
            spans.map(move |span| span.map_or_else(no_steps, |span| span.count(kind)))
        };
        let counts = CountKind::ALL.iter().filter_map(|&kind| CountChange::of(kind, count(0, kind), count(1, kind)));
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
            host: change(&tables.host, host, true),
            total_host: change(&tables.total_host, host, false),
            background: change(&tables.background, host, false),
            gpu: change(&tables.gpu, gpu, true),
            total_gpu: change(&tables.total_gpu, gpu, false),
            exposed_host: change(&tables.exposed_host, host, false),
            exposed_gpu: change(&tables.exposed_gpu, gpu, false),
            counts: counts.collect(),
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
