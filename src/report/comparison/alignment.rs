//! The span trees of all runs, aligned by path.

use crate::report::baseline::{Baseline, BaselineRun, BaselineSpan, Times};
use std::collections::HashMap;

/// The paths of all runs of both sides, each once, a parent before its children.
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

/// Times of each path in each step of each run: by path, run and step.
pub(super) type Matrix = Vec<Vec<Vec<f64>>>;

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

    /// Returns the times of all paths with those that are called from them.
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
