//! Properties that hold of all baselines, also of absurd ones.

use super::super::{Comparison, Outcome, TimeChange};
use crate::{
    baseline::{Baseline, BaselineRun, BaselineSpan, Times},
    counts::{CountKind, CountRange},
    sample::Window,
};
use proptest::prelude::*;

fn time() -> impl Strategy<Value = f32> {
    prop_oneof![4 => (0_u32..1_000_000).prop_map(|nanos| nanos as f32), 1 => Just(0.0_f32), 1 => Just(1e19_f32)]
}

fn count() -> impl Strategy<Value = CountRange> {
    let number = prop_oneof![4 => 0_u64..5, 1 => Just(u64::MAX)];
    prop::collection::vec(number, 0..4).prop_map(|counts| {
        let mut range = CountRange::default();
        counts.into_iter().for_each(|count| range.add(count));
        range
    })
}

fn times(list: &[f32]) -> Times {
    let mut times = Times::default();
    list.iter().for_each(|&nanos| times.push(nanos));
    times
}

prop_compose! {
    fn span()(
        parent in prop::option::of(any::<prop::sample::Index>()),
        name in "[ab]",
        host in prop::collection::vec(time(), 0..12),
        gpu in prop::collection::vec(time(), 0..12),
        kernels in count(),
    ) -> (Option<prop::sample::Index>, BaselineSpan) {
        let counts = vec![(CountKind::Kernels, kernels)];
        (parent, BaselineSpan { name, host: times(&host), gpu: times(&gpu), counts, ..BaselineSpan::default() })
    }
}

prop_compose! {
    fn run()(
        durations in prop::collection::vec(time(), 0..12),
        spans in prop::collection::vec(span(), 0..6),
        start in 0_u64..5,
        kernels in count(),
        peak in any::<u64>(),
    ) -> BaselineRun {
        let spans = spans.into_iter().enumerate().map(|(at, (parent, mut span))| {
            span.parent = parent.filter(|_| at > 0).map(|parent| parent.index(at));
            // A run has each path once.
            span.name += &at.to_string();
            span
        });
        let counts = vec![(CountKind::Kernels, kernels)];
        let (durations, peaks) = (times(&durations), [(0, peak)].into());
        BaselineRun { durations, spans: spans.collect(), start, stride: 1, counts, peaks, ..BaselineRun::default() }
    }
}

fn baseline() -> impl Strategy<Value = Baseline> {
    let of = |runs| Baseline { format: Baseline::FORMAT, runs, ..Baseline::default() };
    prop::collection::vec(run(), 0..4).prop_map(of)
}

/// Whether two changes differ by no more than sums of floating-point numbers in another order do.
fn are_alike(one: &TimeChange, other: &TimeChange) -> bool {
    let numbers = |change: &TimeChange| {
        [change.before, change.after, change.change].map(|it| [it.value, it.low, it.high]).concat()
    };
    let (one, other) = (numbers(one), numbers(other));
    let largest = one.iter().fold(1.0_f64, |largest, number| largest.max(number.abs()));
    one.iter().zip(&other).all(|(one, other)| one == other || (one - other).abs() <= 1e-9 * largest)
}

/// Checks that the times of each span are its own and those of the spans in it.
fn add_up(comparison: &Comparison) -> Result<(), TestCaseError> {
    for span in &comparison.spans {
        let nested = || comparison.spans.iter().filter(|it| it.path.starts_with(&span.path));
        for (total, parts) in [
            (&span.total_host, nested().map(|it| &it.host).collect::<Vec<_>>()),
            (&span.total_gpu, nested().map(|it| &it.gpu).collect()),
        ] {
            let of: [fn(&TimeChange) -> f64; 3] = [|it| it.before.value, |it| it.after.value, |it| it.change.value];
            for of in of {
                let sum: f64 = parts.iter().map(|part| of(part)).sum();
                let largest = parts.iter().map(|part| of(part).abs()).fold(1.0, f64::max);
                prop_assert!((of(total) - sum).abs() <= 1e-9 * largest, "{}: {sum}, {total:?}", span.path_text());
            }
        }
    }
    Ok(())
}

/// Returns runs of three windows each. In each run, all takes a factor longer; in each window, spans take longer.
fn side() -> impl Strategy<Value = Baseline> {
    let slower = prop::collection::vec((prop::sample::select(vec!["train_step", "forward", "backward"]), 0_u32..60), 3);
    prop::collection::vec((0.5_f64..2.0, slower), 1..4).prop_map(|runs| {
        let mut windows = Vec::new();
        for (pid, (factor, slower)) in (100..).zip(&runs) {
            for (number, (name, micros)) in (0..).zip(slower) {
                let mut window = Window { pid, ..Window::numbered(number) };
                window.slow_down(name, f64::from(*micros));
                window.scale(*factor);
                windows.push(window.trace());
            }
        }
        Baseline::of(&windows)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_side_is_no_worse_than_itself(side in baseline()) {
        let comparison = Comparison::of(&side, &side);
        prop_assert_eq!(comparison.step.change.value, 0.0);
        prop_assert!(comparison.counts.is_empty() && comparison.kernels.is_empty());
        for span in &comparison.spans {
            let outcomes = [&span.host, &span.gpu, &span.total_host].map(|time| time.outcome(0.0));
            prop_assert!(outcomes.iter().all(|outcome| !matches!(outcome, Outcome::Worse | Outcome::Better)));
        }
    }

    #[test]
    fn the_order_of_runs_does_not_matter(before in baseline(), after in baseline()) {
        let mut reversed = [before.clone(), after.clone()];
        reversed.iter_mut().for_each(|side| side.runs.reverse());
        let [one, other] = [Comparison::of(&before, &after), Comparison::of(&reversed[0], &reversed[1])];
        prop_assert!(are_alike(&one.step, &other.step), "{:?}\n{:?}", one.step, other.step);
        prop_assert_eq!(one.to_string().is_empty(), other.to_string().is_empty());
        for span in &one.spans {
            let Some(same) = other.spans.iter().find(|it| it.path == span.path) else { panic!("{span:?} is missing") };
            prop_assert_eq!(&same.counts, &span.counts);
            for (one, other) in [(&span.host, &same.host), (&span.gpu, &same.gpu)] {
                prop_assert!(are_alike(one, other), "{one:?}\n{other:?}");
            }
        }
    }

    #[test]
    fn the_changes_of_a_tree_add_up(before in baseline(), after in baseline()) {
        add_up(&Comparison::of(&before, &after))?;
    }

    #[test]
    fn the_changes_of_traces_add_up_to_that_of_the_step(before in side(), after in side()) {
        let comparison = Comparison::of(&before, &after);
        add_up(&comparison)?;
        let sum: f64 = comparison.spans.iter().map(|span| span.host.change.value).sum();
        // Times are stored with 24 bits.
        prop_assert!((sum - comparison.step.change.value).abs() < 1.0, "{sum} {:?}", comparison.step);
    }

    #[test]
    fn a_baseline_is_read_as_it_was_written(side in baseline()) {
        let read = Baseline::from_json(side.to_json().as_bytes());
        prop_assert_eq!(read.ok(), Some(side));
    }
}
