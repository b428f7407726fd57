//! Findings of all windows of a run.

use crate::{
    analysis::{self, Finding, FindingKind, Saving},
    trace::Trace,
};
use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

/// The findings of a run: those of its windows, by kind and place.
#[derive(Debug, Default)]
pub(super) struct Findings {
    by_place: BTreeMap<(FindingKind, Vec<String>, Option<String>), Sum>,
    /// The number of whole steps in all windows.
    steps: u64,
}

/// The findings of one kind at one place.
#[derive(Debug)]
struct Sum {
    /// The one that saves the most, whose words are used.
    first: Finding,
    /// Savings and times of all steps of the windows that have it.
    least: Duration,
    likely: Duration,
    most: Duration,
    step: Duration,
    steps: u64,
}

impl Findings {
    /// The most places that are kept.
    const PLACES: usize = 256;

    /// Adds the findings of a window.
    pub(super) fn add(&mut self, trace: &Trace) {
        let steps = trace.steps().iter().filter(|step| !step.cut().any()).count() as u64;
        self.steps += steps;
        let factor = u32::try_from(steps).unwrap_or(u32::MAX);
        for finding in analysis::findings(trace) {
            let key = (finding.kind, finding.path.clone(), finding.location.clone());
            if self.by_place.len() >= Self::PLACES && !self.by_place.contains_key(&key) {
                continue;
            }
            let saving = finding.saving;
            let step = finding.step;
            let sum = self.by_place.entry(key).or_insert_with(|| Sum {
                first: finding.clone(),
                least: Duration::ZERO,
                likely: Duration::ZERO,
                most: Duration::ZERO,
                step: Duration::ZERO,
                steps: 0,
            });
            sum.least += saving.least * factor;
            sum.likely += saving.likely * factor;
            sum.most += saving.most * factor;
            sum.step += step * factor;
            sum.steps += steps;
            if saving.likely > sum.first.saving.likely {
                sum.first = finding;
            }
        }
    }

    /// Returns the findings, for each step of all windows, by the time that they save.
    pub(super) fn merged(&self) -> Vec<Finding> {
        let each = |sum: Duration, steps: u64| sum / u32::try_from(steps.max(1)).unwrap_or(u32::MAX);
        let merge = |sum: &Sum| {
            // A window without the finding has nothing to save.
            let saving = |of: Duration| each(of, self.steps);
            let (least, likely, most) = (saving(sum.least), saving(sum.likely), saving(sum.most));
            let step = each(sum.step, sum.steps);
            Finding { saving: Saving::new(least, likely, most), step, steps: sum.steps, ..sum.first.clone() }
        };
        let mut merged: Vec<_> = self.by_place.values().map(merge).collect();
        merged.sort_by_key(|finding| Reverse(finding.saving.likely));
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::Findings;
    use crate::{analysis::findings, trace::sample::gpu_trace};

    #[test]
    fn windows_that_are_alike_have_the_findings_of_one() {
        let trace = gpu_trace();
        let mut run = Findings::default();
        (0..3).for_each(|_| run.add(&trace));
        let (one, all) = (findings(&trace), run.merged());
        assert!(!one.is_empty());
        assert_eq!(all.len(), one.len());
        for (all, one) in all.iter().zip(&one) {
            assert_eq!((all.kind, &all.title, all.saving, all.step), (one.kind, &one.title, one.saving, one.step));
            assert_eq!(all.steps, 3 * one.steps);
        }
    }

    #[test]
    fn a_window_without_steps_changes_nothing() {
        let mut run = Findings::default();
        run.add(&crate::Trace::default());
        assert_eq!(run.merged(), []);
    }
}
