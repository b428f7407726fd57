use super::{super::trial::Trial, Choice, Measured};
use std::{collections::BTreeMap, time::Duration};

/// A run with steps of so many milliseconds, all of them on the GPU.
fn trial(value: &str, millis: u64) -> Trial {
    let median = Duration::from_millis(millis);
    let parts = BTreeMap::from([("compute", median), ("host", Duration::ZERO)]);
    let quartiles = (median - Duration::from_micros(100), median + Duration::from_micros(100));
    let measured = Measured {
        steps: 10,
        median,
        mean: median,
        lower_quartile: quartiles.0,
        upper_quartile: quartiles.1,
        parts,
        ..Measured::default()
    };
    let mut trial = Trial::new(value.to_owned(), Ok(measured));
    trial.items = value.parse().ok();
    trial
}

fn with_gpu(mut trial: Trial, busy: f64, memory: u64) -> Trial {
    if let Ok(measured) = &mut trial.result {
        measured.gpu_busy = Some(busy);
        measured.bottleneck = Some(if busy < 90.0 { "host-bound" } else { "GPU-bound" });
        measured.peak_memory = Some(memory);
    }
    trial
}

#[test]
fn the_best_is_the_first_that_is_nearly_as_good_as_any() {
    let trials = [
        with_gpu(trial("16", 10), 50.0, 100),
        with_gpu(trial("32", 11), 97.0, 200),
        with_gpu(trial("64", 21), 99.0, 390),
    ];
    let choice = Choice::of(&trials, 5.0);
    assert_eq!(choice.best, Some(1));
    assert_eq!(
        choice.why,
        [
            "16 → 32: 82 % more items/s",
            "32 → 64: 5 % more items/s for 1.9 times the memory; the step takes 1.91 times as long for 2.00 times the \
             items; of 10.0 ms more on average, 10.0 ms are computing on the GPU; the GPU is busy 97 % of the step \
             at 32 already (GPU-bound)"
        ]
    );
    assert_eq!(Choice::of(&trials, 4.0).best, Some(2), "5 % are worth it");
    assert_eq!(
        Choice::of(&trials, 4.0).why[1],
        "no value above 64 was tried; the GPU is busy 99 % of the step there (GPU-bound)"
    );
}

#[test]
fn a_value_that_failed_is_not_the_best() {
    let trials = [trial("16", 10), Trial::new("32".to_owned(), Err("the program failed: exit status: 1".to_owned()))];
    let choice = Choice::of(&trials, 5.0);
    assert_eq!((choice.best, choice.why.len()), (Some(0), 1));
    assert_eq!(choice.why[0], "32 has no result: the program failed: exit status: 1");
    assert_eq!(Choice::of(&trials[1..], 5.0).best, None);
    assert_eq!(Choice::of(&[], 5.0).best, None);
}

#[test]
fn values_without_an_order_are_compared_with_the_second() {
    let choice = Choice::of(&[trial("bf16", 12), trial("f16", 10), trial("f32", 30)], 50.0);
    assert_eq!(choice.best, Some(1));
    assert_eq!(
        choice.why,
        ["f16 → bf16: 17 % fewer steps/s; the step takes 1.20 times as long; of 2.00 ms more on average, 2.00 ms are \
          computing on the GPU"]
    );
}

#[test]
fn a_gain_within_the_spread_is_called_so() {
    let mut trials = [trial("1", 10), trial("2", 20)];
    trials.iter_mut().for_each(|trial| trial.items = Some(1.0));
    trials[1].result = trials[0].result.clone();
    let why = Choice::of(&trials, 5.0).why.join("");
    assert!(
        why.starts_with("1 → 2: the same items/s (the quartiles of the steps overlap); the step takes 1.00 "),
        "{why}"
    );
}
