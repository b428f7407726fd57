//! Metrics of steps.

use super::{
    super::histogram::STEP_BOUNDS,
    metrics,
    received::{buckets, collected, histograms, of, point, points, temporality, texts},
    run, settings, step, unended,
};
use kernspan::{Phase, trace::sample::at};
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, exemplar};

#[test]
fn steps_are_told_by_phase_and_time() {
    let mut metrics = metrics(None, &[]);
    metrics.add_step(&step(0, Phase::Wait, 7_000_000, &[]));
    for (number, micros) in [(1, 250), (2, 500), (3, 501)] {
        metrics.add_step(&step(number, Phase::Wait, micros, &[]));
    }
    metrics.add_step(&step(4, Phase::Warmup, 0, &[]));
    metrics.add_step(&step(5, Phase::Record, 200_000_000, &[]));
    metrics.add_step(&step(6, Phase::RecordAndSave, 1_000_000, &[]));
    metrics.add_step(&unended(7, &[("loss", 1.0)]));
    let found = collected(&mut metrics, 300, &[]);
    let [wait, warmup, record] = histograms(&found["kernspan.step.duration"]) else { panic!("{found:?}") };
    let phases: Vec<_> = [wait, warmup, record].iter().map(|point| texts(&point.attributes)).collect();
    assert_eq!(phases, ["wait", "warmup", "record"]);
    // Bounds are inclusive.
    assert_eq!(buckets(wait, STEP_BOUNDS), [(0.0005, 2), (0.001, 1)]);
    assert_eq!(buckets(warmup, STEP_BOUNDS), [(0.0001, 1)]);
    assert_eq!(buckets(record, STEP_BOUNDS), [(1.0, 1), (f64::INFINITY, 1)]);
    assert!((wait.sum.unwrap() - 0.001_251).abs() < 1e-12, "{:?}", wait.sum);
    assert_eq!((wait.min, wait.max), (Some(0.000_25), Some(0.000_501)));
    assert_eq!((record.sum, record.min, record.max), (Some(201.0), Some(1.0), Some(200.0)));
    assert_eq!(temporality(&found["kernspan.step.duration"]), AggregationTemporality::Cumulative);
    let times = (wait.start_time_unix_nano, wait.time_unix_nano);
    assert_eq!(times, (at(0).as_unix_nanos(), at(300_000_000).as_unix_nanos()));
    assert_eq!(point(&found, "kernspan.step.number"), Some(6.0));
}

#[test]
fn recorded_steps_are_examples() {
    let mut metrics = metrics(None, &[]);
    metrics.add_step(&step(1, Phase::Wait, 300, &[]));
    // A bucket has the latest of its steps.
    for (number, micros) in [(2, 300), (3, 400), (4, 9000)] {
        metrics.add_step(&step(number, Phase::Record, micros, &[]));
    }
    let found = collected(&mut metrics, 1, &[]);
    let [wait, record] = histograms(&found["kernspan.step.duration"]) else { panic!("{found:?}") };
    assert_eq!(wait.exemplars, []);
    let run = run(&settings(&[]));
    assert_eq!(record.exemplars.len(), 2);
    for (exemplar, (number, micros)) in record.exemplars.iter().zip([(3, 400), (4, 9000)]) {
        let trace = run.step(number).unwrap();
        assert_eq!(exemplar.trace_id, trace.trace.to_bytes());
        assert_eq!(exemplar.span_id, trace.root.to_bytes());
        assert_eq!(exemplar.time_unix_nano, at(1000 * number + micros).as_unix_nanos());
        let value = exemplar::Value::AsDouble(micros as f64 / 1e6);
        assert_eq!(exemplar.value, Some(value));
    }
    // Each exemplar is sent once.
    let found = collected(&mut metrics, 2, &[]);
    assert!(histograms(&found["kernspan.step.duration"]).iter().all(|point| point.exemplars.is_empty()));
}

#[test]
fn a_trace_that_is_not_sent_is_no_example() {
    let reasons = [
        ("OTEL_METRICS_EXEMPLAR_FILTER", "always_off"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
    ];
    for reason in reasons {
        let mut metrics = metrics(None, &[reason]);
        metrics.add_step(&step(1, Phase::Record, 300, &[]));
        let found = collected(&mut metrics, 1, &[]);
        assert_eq!(histograms(&found["kernspan.step.duration"])[0].exemplars, [], "{reason:?}");
    }
}

#[test]
fn rates_need_steps_and_samples() {
    let mut plain = metrics(None, &[]);
    plain.add_step(&step(0, Phase::Wait, 100, &[]));
    let found = collected(&mut plain, 1, &[]);
    assert_eq!(point(&found, "kernspan.step.number"), Some(0.0));
    assert_eq!(point(&found, "kernspan.step.rate"), None);
    plain.add_step(&step(1, Phase::Wait, 250_000, &[]));
    plain.add_step(&step(2, Phase::Wait, 750_000, &[]));
    let found = collected(&mut plain, 2, &[]);
    assert_eq!(point(&found, "kernspan.step.rate"), Some(2.0));
    assert_eq!(point(&found, "kernspan.throughput"), None);

    let mut sampled = metrics(Some(32), &[]);
    sampled.add_step(&step(1, Phase::Wait, 500_000, &[]));
    sampled.add_step(&step(2, Phase::Wait, 500_000, &[("samples", 8.0)]));
    assert_eq!(point(&collected(&mut sampled, 2, &[]), "kernspan.throughput"), Some(40.0));
}

#[test]
fn counters_keep_their_last_value() {
    let mut metrics = metrics(None, &[]);
    metrics.add_step(&step(0, Phase::Wait, 1, &[("loss", 2.0), ("lr", 0.1)]));
    metrics.add_step(&step(1, Phase::Wait, 1, &[("loss", f64::INFINITY)]));
    let found = collected(&mut metrics, 1, &[]);
    assert_eq!(points(&found, "kernspan.counter"), of(&[("loss", f64::INFINITY), ("lr", 0.1)]));
    // Counters after the last step are sent, too.
    metrics.add_step(&unended(2, &[("loss", f64::NAN)]));
    let found = collected(&mut metrics, 2, &[]);
    assert!(points(&found, "kernspan.counter")[0].1.is_nan());
}

#[test]
fn there_are_only_so_many_counters() {
    let names: Vec<&'static str> = (0..300).map(|name| &*format!("counter {name}").leak()).collect();
    let mut metrics = metrics(None, &[]);
    for number in 0..2 {
        let counters: Vec<_> = names.iter().map(|&name| (name, number as f64)).collect();
        metrics.add_step(&step(number, Phase::Wait, 1, &counters));
    }
    let found = collected(&mut metrics, 1, &[]);
    let counters = points(&found, "kernspan.counter");
    assert_eq!(counters.len(), 256);
    assert!(counters.iter().all(|(_, value)| *value == 1.0));
    assert_eq!(points(&found, "kernspan.lost"), of(&[("counter_names", 88.0)]));
}
