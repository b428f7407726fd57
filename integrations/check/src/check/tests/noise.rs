//! Checks of made-up runs, whose noise is known.

use super::super::{Check, CheckVerdict, Metric, Thresholds};
use crate::{
    baseline::{Baseline, BaselineRun, BaselineSpan, Times},
    comparison::{Comparison, Outcome, Random},
};

/// The spans of a step, with their times in microseconds.
const SPANS: [(&str, f64); 5] =
    [("data", 50.0), ("forward", 300.0), ("loss", 20.0), ("backward", 400.0), ("optimizer", 100.0)];

/// How runs are made up: their number, that of the steps of each, and the noise, as the standard deviation of the
/// logarithm of the times.
#[derive(Clone, Copy, Debug)]
struct Setup {
    runs: usize,
    steps: usize,
    /// The noise that all spans of a run have in common.
    machine: f64,
    /// That of each span in each run.
    between_runs: f64,
    /// That of each span in each step.
    between_steps: f64,
}

const QUIET: Setup = Setup { runs: 5, steps: 20, machine: 0.02, between_runs: 0.01, between_steps: 0.03 };

impl Setup {
    /// Returns runs of which each span takes `factors` times as long.
    fn make(self, random: &mut Random, factors: [f64; 5]) -> Baseline {
        let runs = (0..self.runs).map(|_| self.run(random, factors)).collect();
        Baseline { format: Baseline::FORMAT, runs, ..Baseline::default() }
    }

    fn run(self, random: &mut Random, factors: [f64; 5]) -> BaselineRun {
        let mut factor = |deviation: f64| (deviation * random.normal()).exp();
        let machine = factor(self.machine);
        let mut run = BaselineRun { stride: 1, steps: self.steps as u64, ..BaselineRun::default() };
        let mut durations = vec![0.0; self.steps];
        for ((name, micros), change) in SPANS.iter().zip(factors) {
            let of_run = 1000.0 * micros * change * machine * factor(self.between_runs);
            let times: Vec<f64> = (0..self.steps).map(|_| of_run * factor(self.between_steps)).collect();
            durations.iter_mut().zip(&times).for_each(|(sum, time)| *sum += time);
            run.spans.push(BaselineSpan { name: (*name).to_owned(), host: kept(&times), ..BaselineSpan::default() });
        }
        run.durations = kept(&durations);
        run
    }

    fn check(self, random: &mut Random, factors: [f64; 5]) -> Check {
        let (before, after) = (self.make(random, [1.0; 5]), self.make(random, factors));
        Check::of(&after, &before, &Thresholds::default())
    }
}

fn kept(times: &[f64]) -> Times {
    let mut kept = Times::default();
    times.iter().for_each(|&time| kept.push(time as f32));
    kept
}

/// Runs under a load that makes times differ by half from run to run.
const BUSY: Setup = Setup { runs: 5, steps: 20, machine: 0.4, between_runs: 0.15, between_steps: 0.2 };

const FEW: [Setup; 5] = [
    Setup { runs: 2, steps: 10, ..BUSY },
    Setup { runs: 1, steps: 20, ..QUIET },
    Setup { runs: 1, steps: 4, ..QUIET },
    Setup { runs: 1, steps: 2, ..QUIET },
    Setup { runs: 1, steps: 1, ..QUIET },
];

#[test]
fn a_ninefold_step_is_worse_at_any_noise() {
    let (random, mut tried) = (&mut Random::new(7), 0);
    for setup in [QUIET, BUSY].into_iter().chain(FEW) {
        for factors in [[9.0; 5], [1.0, 1.0, 1.0, 20.0, 1.0]] {
            for _ in 0..2 {
                let check = setup.check(random, factors);
                let Comparison { step, .. } = &check.comparison;
                // The noise of the machine may make it less than ninefold.
                let is_large = step.after.value > 5.0 * step.before.value;
                tried += usize::from(is_large);
                assert!(!is_large || check.verdict() == CheckVerdict::Worse, "{setup:?} {factors:?}\n{check}");
            }
        }
    }
    assert!(tried > 20, "{tried} of 28");
    let check = Setup { runs: 1, steps: 1, ..QUIET }.check(random, [9.0; 5]);
    assert!(check.to_string().contains("times as long, which noise cannot explain"), "{check}");
}

/// Three runs a side on a busy machine, whose load is another one in each run.
const THREE: Setup = Setup { runs: 3, ..BUSY };

#[test]
fn twice_the_work_is_found_in_three_runs_on_a_busy_machine() {
    const PAIRS: usize = 60;
    let random = &mut Random::new(13);
    for (index, (name, _)) in SPANS.iter().enumerate().filter(|(_, (_, micros))| *micros >= 100.0) {
        let mut factors = [1.0; 5];
        factors[index] = 2.0;
        let checks: Vec<_> = (0..PAIRS).map(|_| THREE.check(random, factors)).collect();
        let found = checks.iter().filter(|check| check.worst_span() == Some(name)).count();
        let missed: Vec<_> = checks.iter().filter(|check| check.verdict() != CheckVerdict::Worse).collect();
        assert!(10 * found >= 8 * PAIRS, "{name}: {found} of {PAIRS}\n{}", missed[0]);
        for check in missed {
            assert_eq!(check.verdict(), CheckVerdict::Inconclusive, "{check}");
            assert!(check.to_string().contains("more runs on each side"), "{check}");
        }
    }
}

#[test]
fn nothing_is_worse_if_nothing_has_changed() {
    const PAIRS: usize = 100;
    let random = &mut Random::new(1);
    let still = Setup { runs: 3, ..QUIET };
    for setup in [QUIET, BUSY, THREE, still, Setup { runs: 10, ..BUSY }].into_iter().chain(FEW) {
        let checks: Vec<_> = (0..PAIRS).map(|_| setup.check(random, [1.0; 5])).collect();
        let worse: Vec<_> = checks.iter().filter(|check| check.verdict() == CheckVerdict::Worse).collect();
        // An interval of 99 % is wrong once in a while, and there are six of them in each check.
        assert!(worse.len() <= 2, "{} of {setup:?}\n{}", worse.len(), worse[0]);
    }
}

#[test]
fn one_definition_of_worse_decides_about_spans_and_steps() {
    let random = &mut Random::new(17);
    for factors in [[1.0; 5], [1.0, 2.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.3, 1.0], [1.0, 1.0, 0.1, 1.0, 1.0]] {
        for setup in [QUIET, THREE, Setup { runs: 3, ..QUIET }] {
            let check = setup.check(random, factors);
            let comparison = &check.comparison;
            let is_worse = |time, part| comparison.outcome(time, part) == Outcome::Worse;
            let step = check.problems.iter().any(|problem| problem.metric == Metric::Step);
            assert_eq!(step, is_worse(&comparison.step, 0.05), "{check}");
            for span in &comparison.spans {
                // Unless others are shorter instead.
                let is_worse = is_worse(&span.host, 0.01);
                let is_found = check.problems.iter().any(|it| it.metric == Metric::Span && it.path == span.path);
                let is_less = comparison.spans.iter().any(|it| it.host.change.high < 0.0);
                assert!(is_found == is_worse || (is_worse && is_less), "{check}");
            }
            // What is surely longer is worse at any threshold below the change.
            let (change, before) = (comparison.step.change.value, comparison.step.before.value);
            if step {
                assert!(is_worse(&comparison.step, 0.0) && is_worse(&comparison.step, 0.99 * change / before));
            }
        }
    }
}

#[test]
fn a_check_that_cannot_tell_is_inconclusive() {
    let random = &mut Random::new(3);
    let check = Setup { runs: 1, steps: 20, ..QUIET }.check(random, [1.0, 1.1, 1.0, 1.0, 1.0]);
    assert_eq!(check.verdict(), CheckVerdict::Inconclusive, "{check}");
    assert!(check.is_ok() && !check.unclear.is_empty());
    let text = check.to_string();
    assert!(text.starts_with("inconclusive against the baseline: 1 run of 20 steps"), "{text}");
    assert!(text.contains("where +5.0 % is allowed; needs"), "{text}");
    let still = Setup { machine: 0.0, between_runs: 0.001, between_steps: 0.001, ..QUIET };
    let same = still.check(random, [1.0; 5]);
    assert_eq!(same.verdict(), CheckVerdict::NotWorse, "{same}");
    let faster = still.check(random, [1.0, 0.5, 1.0, 1.0, 1.0]);
    assert_eq!(faster.verdict(), CheckVerdict::NotWorse, "{faster}");
}

#[test]
fn an_interval_beyond_the_threshold_is_worse_and_no_bound_is_impossible() {
    let random = &mut Random::new(5);
    for setup in [QUIET, BUSY].into_iter().chain(FEW) {
        for factor in [0.01, 1.0, 1.3] {
            let comparison = setup.check(random, [1.0, 1.0, 1.0, factor, 1.0]).comparison;
            for (time, part) in [(&comparison.step, 0.05), (&comparison.whole_step, 0.05)]
                .into_iter()
                .chain(comparison.spans.iter().map(|span| (&span.host, 0.01)))
            {
                assert!(time.change.low > -time.before.value, "{time:?}");
                assert!(time.change.low <= time.change.value && time.change.value <= time.change.high, "{time:?}");
                let is_worse = time.change.low > part * comparison.step.before.value;
                let outcome = comparison.outcome(time, part);
                assert!(!is_worse || outcome == Outcome::Worse, "{outcome} {time:?}");
            }
        }
    }
}

#[test]
fn percentages_are_of_the_times_that_are_shown() {
    let random = &mut Random::new(11);
    let still = Setup { machine: 0.0, between_runs: 0.001, between_steps: 0.001, ..QUIET };
    // All takes a fifth less, but for one span that takes a tenth more than that.
    let before = still.make(random, [1.0; 5]);
    let after = still.make(random, [0.8, 0.8, 0.8, 0.88, 0.8]);
    let check = Check::of(&after, &before, &Thresholds::default().with("step=1%").unwrap());
    let Comparison { step, .. } = &check.comparison;
    assert!(step.after.value < step.before.value && step.change.value > 0.0, "{step:?}");
    let ratio = step.adjusted_after() / step.before.value - 1.0;
    assert!((ratio - step.change.value / step.before.value).abs() < 1e-9 && (ratio - 0.046).abs() < 0.005, "{step:?}");
    let text = check.to_string();
    assert!(text.contains("worse: the step: 909 µs instead of 870 µs, +4.6 % ("), "{text}");
    assert_eq!(
        text.matches("adjusted for drift: everything takes 0.80 times as long on the host").count(),
        1,
        "{text}"
    );
}
