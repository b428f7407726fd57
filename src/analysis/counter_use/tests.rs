use super::{CounterSubject, CounterUse};
use crate::{
    analysis::{Analysis, FindingKind},
    trace::{
        MetricMeaning, Trace, Work,
        sample::{GpuTrace, add_gpu_counters, at, measure_work},
    },
};
use proptest::prelude::*;
use std::time::Duration;

/// Adds the samples that a GPU would give whose work has these values, with noise from `noise`.
fn add_samples(trace: &mut Trace, every: u64, value: impl Fn(Work<'_>) -> f64, mut noise: impl FnMut() -> f64) {
    measure_work(trace, every, [MetricMeaning::DramActive], [0.0], |work| [value(work)]);
    trace.gpu_counters[0].values.iter_mut().for_each(|value| *value = (*value + noise()).max(0.0));
}

fn dram(uses: &[CounterUse], subject: &CounterSubject) -> (f64, f64) {
    let of_subject = uses.iter().find(|counters| counters.subject == *subject).expect("counters");
    let value = of_subject.value(MetricMeaning::DramActive).unwrap();
    (value.mean, value.error)
}

/// A training whose spans have kernels of these lengths in microseconds, step after step.
fn training(steps: usize, lengths: &[(&'static str, &str, u64)]) -> Trace {
    let mut trace = GpuTrace::default();
    for _ in 0..steps {
        trace.step(|trace| {
            for &(span, kernel, micros) in lengths {
                trace.span(span, |trace| {
                    trace.launch(kernel, micros);
                });
            }
            trace.synchronize();
        });
    }
    trace.trace()
}

#[test]
fn spans_of_two_milliseconds_are_told_apart_by_samples_of_one() {
    let mut trace = training(20, &[("compute", "gemm", 2000), ("memory", "copy", 2000)]);
    add_samples(&mut trace, 1000, |work| if work.name().to_string() == "gemm" { 20.0 } else { 83.0 }, || 0.0);
    let window = Analysis::of(&trace);
    let uses = window.counter_uses();
    for (subject, expected) in [
        (CounterSubject::Span("compute".to_owned()), 20.0),
        (CounterSubject::Span("memory".to_owned()), 83.0),
        (CounterSubject::Kernel("gemm".to_owned()), 20.0),
        (CounterSubject::Kernel("copy".to_owned()), 83.0),
    ] {
        let (mean, error) = dram(uses, &subject);
        assert!((mean - expected).abs() < 1.0 && error < 1.0, "{subject:?}: {mean} ± {error}, not {expected}");
    }
    let steps = uses.iter().filter(|counters| matches!(counters.subject, CounterSubject::Step(_)));
    let of_step: Vec<_> = steps.map(|step| step.value(MetricMeaning::DramActive).unwrap().mean).collect();
    assert!(of_step.len() == 20 && of_step.iter().all(|mean| (45.0..56.0).contains(mean)), "{of_step:?}");
    let gemm = uses.iter().find(|counters| counters.subject == CounterSubject::Kernel("gemm".to_owned())).unwrap();
    assert!(gemm.gpu.abs_diff(Duration::from_millis(40)) < Duration::from_millis(1), "{:?}", gemm.gpu);
}

#[test]
fn a_span_with_several_kernels_in_a_sample_counts_it_once() {
    let mut trace = GpuTrace::default();
    for _ in 0..20 {
        trace.step(|trace| {
            trace.span("forward", |trace| _ = trace.launch("a", 100).launch("b", 100).launch("c", 100));
        });
    }
    let mut trace = trace.trace();
    add_samples(&mut trace, 1000, |_| 50.0, || 0.0);
    let all = trace.gpu_counters()[0].samples().len() as u64;
    let window = Analysis::of(&trace);
    let of = |subject: CounterSubject| window.counter_uses().iter().find(|it| it.subject == subject).unwrap().samples;
    assert!(all >= 6);
    assert_eq!(of(CounterSubject::Span("forward".to_owned())), all);
    // The last sample may have the end of `c` only.
    assert!((all - 1..=all).contains(&of(CounterSubject::Kernel("b".to_owned()))));
}

#[test]
fn a_step_has_values_only_if_samples_measure_at_least_half_of_it() {
    // The work of the only step runs from 5 to 405 µs.
    let value = |micros: u64, samples: usize| {
        let mut trace = training(1, &[("forward", "gemm", 400)]);
        add_gpu_counters(&mut trace, 0, &[("dram", MetricMeaning::DramActive)], micros, &vec![&[50.0][..]; samples]);
        let window = Analysis::of(&trace);
        window.step_counters(&window.gpu_steps()[0]).map(|step| step.values[0].mean)
    };
    // A sample of 1 ms is about other time, mostly: it measures 40 % of the step, and one of 700 µs 57 %.
    assert_eq!([value(1000, 1), value(700, 1)], [None, Some(50.0)]);
    // Samples of the first 200 µs measure 48 % of it, with those of the next 100 µs it is 73 %.
    assert_eq!([value(100, 2), value(100, 3)], [None, Some(50.0)]);
}

#[test]
fn a_finding_about_kernels_believes_counters_more_than_names() {
    let products = |tensor: Option<f64>| {
        let mut trace = training(20, &[("forward", "sgemm_128x64_nn", 2000), ("loss", "reduce", 300)]);
        if let Some(tensor) = tensor {
            let metrics = [MetricMeaning::TensorActive, MetricMeaning::SmActive, MetricMeaning::DramActive];
            measure_work(&mut trace, 1000, metrics, [0.0; 3], |work| {
                [if work.name().to_string() == "reduce" { 0.0 } else { tensor }, 50.0, 10.0]
            });
        }
        let found = Analysis::of(&trace).findings().to_vec();
        found.into_iter().find(|finding| finding.kind == FindingKind::NoTensorCores)
    };
    assert!(products(None).is_some_and(|finding| finding.evidence.iter().all(|line| !line.contains("counters"))));
    let measured = products(Some(0.0)).expect("a finding");
    assert!(measured.evidence.last().unwrap().starts_with("Hardware counters while"), "{:?}", measured.evidence);
    assert!(products(Some(60.0)).is_none());
}

#[test]
fn a_trace_without_counters_has_no_uses() {
    assert_eq!(Analysis::of(&training(2, &[("forward", "gemm", 50)])).counter_uses(), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Kernels of any lengths and values, and samples with gaps: whatever is claimed with an error of up to 3 points is
    /// within four of these.
    #[test]
    fn claimed_errors_hold(
        lengths in prop::collection::vec((20_u64..3000, 0.0..100.0), 1..12),
        every in prop::sample::select(vec![100_u64, 500, 1000]),
        seed in any::<u64>(),
        is_kept in prop::collection::vec(prop::bool::weighted(0.8), 1..8),
    ) {
        const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        let kernels: Vec<_> =
            lengths.iter().zip(NAMES).map(|(&(micros, _), name)| (name, name, micros)).collect();
        let micros: u64 = lengths.iter().map(|(micros, _)| micros).sum();
        let mut trace = training((200_000 / micros as usize).clamp(3, 400), &kernels);
        let value = |name: &str| lengths[NAMES.iter().position(|other| *other == name).unwrap()].1;
        // Uniform noise of up to one point.
        let mut state = seed | 1;
        let noise = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % 2001) as f64 / 1000.0 - 1.0
        };
        add_samples(&mut trace, every, |work| value(&work.name().to_string()), noise);
        let counters = &mut trace.gpu_counters[0];
        let mut kept = is_kept.iter().cycle();
        counters.times.retain(|_| kept.next() == Some(&true));
        kept = is_kept.iter().cycle();
        counters.values.retain(|_| kept.next() == Some(&true));
        let window = Analysis::of(&trace);
        for counters in window.counter_uses() {
            let CounterSubject::Kernel(name) = &counters.subject else { continue };
            let found = counters.value(MetricMeaning::DramActive).unwrap();
            let (error, wrong) = (found.error, (found.mean - value(name)).abs());
            let holds = error > 3.0 || wrong <= 1.0 + 4.0 * error;
            prop_assert!(holds, "{}: {} ± {}, not {}", name, found.mean, error, value(name));
        }
    }

    /// Samples as only a corrupted file has them: in any order, overlapping, of no or negative length.
    #[test]
    fn any_times_give_numbers(
        samples in prop::collection::vec((0_u64..3000, 0_u64..3000, 0.0..100.0), 0..40),
        lengths in prop::collection::vec(1_u64..400, 1..6),
    ) {
        const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
        let kernels: Vec<_> = lengths.iter().zip(NAMES).map(|(&micros, name)| (name, name, micros)).collect();
        let mut trace = training(3, &kernels);
        add_gpu_counters(&mut trace, 0, &[("dram", MetricMeaning::DramActive)], 1000, &[]);
        let counters = &mut trace.gpu_counters[0];
        counters.times = samples.iter().map(|&(start, end, _)| (at(start), at(end))).collect();
        counters.values = samples.iter().map(|(.., value)| *value).collect();
        let window = Analysis::of(&trace);
        for counters in window.counter_uses() {
            let value = counters.value(MetricMeaning::DramActive).unwrap();
            prop_assert!(value.mean.is_finite() && value.error.is_finite(), "{:?}", counters);
            prop_assert!((0.0..=100.0).contains(&value.mean) && value.error >= 0.0, "{:?}", counters);
        }
    }
}
