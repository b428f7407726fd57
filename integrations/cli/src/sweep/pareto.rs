//! The values of a sweep that no other value beats in everything.

use super::trial::{Measured, Trial};
use crate::achieved::Goal;

/// A figure by which values are compared.
pub(super) struct Objective {
    pub(super) name: String,
    /// Its unit on the page.
    pub(super) unit: &'static str,
    is_higher_better: bool,
    /// The figure of each trial, if it was measured.
    pub(super) of_trials: Vec<Option<f64>>,
}

/// Which values are not dominated: no other one is as good by all objectives and better by one.
#[derive(Default)]
pub(super) struct Pareto {
    pub(super) objectives: Vec<Objective>,
    /// Whether each value is one of them; empty if there is nothing to compare.
    pub(super) is_in_front: Vec<bool>,
}

impl Pareto {
    /// Compares trials by throughput, GPU memory, energy and the goal, as far as all of them have these. With fewer
    /// than two figures or values, there is nothing to compare.
    pub(super) fn of(trials: &[Trial], throughput: &str, goal: Option<&Goal>) -> Self {
        let measured = |of: fn(&Measured) -> Option<f64>| {
            trials.iter().map(|trial| of(trial.result.as_ref().ok()?).filter(|it| it.is_finite())).collect()
        };
        let goal = goal.map(|goal| Objective {
            name: goal.counter.clone(),
            unit: "rate",
            is_higher_better: goal.is_higher_better,
            of_trials: trials.iter().map(|it| Some(it.achieved.as_ref()?.last).filter(|it| it.is_finite())).collect(),
        });
        let objectives = [
            Some(Objective {
                name: throughput.to_owned(),
                unit: "rate",
                is_higher_better: true,
                of_trials: trials.iter().map(Trial::throughput).collect(),
            }),
            Some(Objective {
                name: "GPU memory".to_owned(),
                unit: "memory",
                is_higher_better: false,
                of_trials: measured(|it| Some(it.peak_memory? as f64)),
            }),
            Some(Objective {
                name: format!("J/{}", throughput.trim_end_matches("s/s")),
                unit: "rate",
                is_higher_better: false,
                of_trials: trials.iter().map(Trial::joules).collect(),
            }),
            goal,
        ];
        let is_known = |objective: &Objective| {
            let mut known = trials.iter().zip(&objective.of_trials).filter(|(trial, _)| trial.is_measured());
            known.all(|(_, figure)| figure.is_some())
        };
        let objectives: Vec<_> = objectives.into_iter().flatten().filter(is_known).collect();
        let compared = trials.iter().filter(|trial| trial.is_measured()).count();
        if objectives.len() < 2 || compared < 2 {
            return Self::default();
        }
        let figures: Vec<Option<Vec<f64>>> = (0..trials.len())
            .map(|trial| objectives.iter().map(|objective| objective.score(trial)).collect())
            .collect();
        let is_in_front = |figure: &Option<Vec<f64>>| {
            figure.as_ref().is_some_and(|figure| !figures.iter().flatten().any(|other| dominates(other, figure)))
        };
        let is_in_front = figures.iter().map(is_in_front).collect();
        Self { objectives, is_in_front }
    }

    /// Returns whether a trial is not dominated; `None` if there is nothing to compare.
    pub(super) fn of_trial(&self, index: usize) -> Option<bool> {
        self.is_in_front.get(index).copied()
    }

    /// Returns the names of the objectives: `items/s, GPU memory and loss`.
    pub(super) fn names(&self) -> String {
        let names: Vec<_> = self.objectives.iter().map(|objective| objective.name.as_str()).collect();
        match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => names.concat(),
        }
    }
}

impl Objective {
    /// Returns the figure of a trial with the sign by which more is better.
    fn score(&self, trial: usize) -> Option<f64> {
        self.of_trials[trial].map(|figure| if self.is_higher_better { figure } else { -figure })
    }
}

/// Returns whether one is at least as good as the other by all scores, and better by one.
fn dominates(one: &[f64], other: &[f64]) -> bool {
    one.iter().zip(other).all(|(one, other)| one >= other) && one.iter().zip(other).any(|(one, other)| one > other)
}

#[cfg(test)]
mod tests {
    use super::{super::trial::Trial, Measured, Pareto};
    use std::time::Duration;

    /// A run with steps of so many milliseconds, and this much memory.
    fn trial(millis: u64, memory: Option<u64>) -> Trial {
        let measured = Measured { median: Duration::from_millis(millis), peak_memory: memory, ..Measured::default() };
        Trial::new(millis.to_string(), Ok(measured))
    }

    #[test]
    fn values_that_others_beat_in_everything_are_dominated() {
        // Fast and large, slow and small, slow and large; as fast as the first, but larger.
        let trials = [(1, 100), (5, 10), (6, 90), (1, 101)].map(|(time, memory)| trial(time, Some(memory)));
        let mut trials = Vec::from(trials);
        trials.push(Trial::new("x".to_owned(), Err("it failed".to_owned())));
        let pareto = Pareto::of(&trials, "steps/s", None);
        assert_eq!(pareto.is_in_front, [true, true, false, false, false]);
        assert_eq!(pareto.names(), "steps/s and GPU memory");
        // The same twice: neither is better.
        let same = [trial(1, Some(5)), trial(1, Some(5))];
        assert_eq!(Pareto::of(&same, "steps/s", None).is_in_front, [true, true]);
    }

    #[test]
    fn figures_that_one_value_lacks_compare_nothing() {
        let trials = [trial(1, None), trial(5, Some(10))];
        let pareto = Pareto::of(&trials, "steps/s", None);
        assert_eq!((pareto.objectives.len(), pareto.of_trial(0)), (0, None));
        assert!(Pareto::of(&[trial(1, Some(1))], "steps/s", None).is_in_front.is_empty(), "one value");
    }
}
