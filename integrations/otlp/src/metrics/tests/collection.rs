//! The table of metrics, and when and how metrics are collected.

use super::{
    super::{
        histogram::{KERNEL_BOUNDS, STEP_BOUNDS},
        instruments::{GPU, INSTRUMENTS, Instrument, Kind},
    },
    DELTA, measured, metrics,
    received::{buckets, check, collected, histograms, numbers, of, point, points, temporality},
    step,
};
use crate::{
    request::Request,
    tally::{Cause, Tally},
};
use kernspan::{
    Phase,
    analysis::Analysis,
    trace::{
        Timestamp,
        sample::{at, gpu_trace},
    },
};
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, MetricsData, ScopeMetrics};
use prost::Message;
use std::{collections::BTreeSet, time::Instant};

#[test]
fn names_are_all_different_and_bounds_go_up() {
    let names: BTreeSet<_> = INSTRUMENTS.iter().map(|instrument| instrument.name).collect();
    assert_eq!(names.len(), INSTRUMENTS.len());
    for bounds in [STEP_BOUNDS, KERNEL_BOUNDS] {
        assert!(bounds.is_sorted_by(|one, next| one < next), "{bounds:?}");
    }
}

/// The table in the documentation has the same rows.
#[test]
fn metrics_are_documented() {
    let rows: Vec<_> = include_str!("../../../docs/metrics.md").lines().filter(|row| row.starts_with("| `")).collect();
    let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
    let expected = INSTRUMENTS.iter().map(|Instrument { name, kind, unit, attributes, description }| {
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::UpDownCounter => "up-down counter",
            Kind::Histogram => "histogram",
        };
        let attributes = match *attributes {
            GPU => code("hw.*"),
            others => others.iter().map(|name| code(name)).collect::<Vec<_>>().join(", "),
        };
        format!("| {} | {kind} | {} | {attributes} | {description} |", code(name), code(unit))
    });
    assert_eq!(rows, expected.collect::<Vec<_>>());
}

#[test]
fn deltas_begin_again_each_time() {
    let tally = Tally::default();
    let tallies = [("traces", Some(&tally))];
    let mut metrics = metrics(None, &[DELTA]);
    metrics.add_step(&step(1, Phase::Record, 300, &[]));
    metrics.add_window(&Analysis::of(&gpu_trace()));
    tally.send(10);
    let first = collected(&mut metrics, 1, &tallies);
    assert_eq!(point(&first, "gpu.cuda.kernel.launch.calls"), Some(4.0));
    assert_eq!(point(&first, "kernspan.otlp.sent"), Some(10.0));

    metrics.add_step(&step(2, Phase::Record, 5000, &[]));
    metrics.add_window(&Analysis::of(&gpu_trace()));
    tally.send(5);
    let second = collected(&mut metrics, 3, &tallies);
    let [steps] = histograms(&second["kernspan.step.duration"]) else { panic!("{second:?}") };
    assert_eq!(buckets(steps, STEP_BOUNDS), [(0.005, 1)]);
    assert_eq!((steps.sum, steps.min, steps.max), (Some(0.005), Some(0.005), Some(0.005)));
    assert_eq!(steps.exemplars.len(), 1);
    assert_eq!(point(&second, "gpu.cuda.kernel.launch.calls"), Some(4.0));
    assert_eq!(points(&second, "gpu.cuda.memory.copied"), of(&[("HtoD", 8000.0)]));
    assert_eq!(point(&second, "kernspan.otlp.sent"), Some(5.0));
    let times = (at(1_000_000).as_unix_nanos(), at(3_000_000).as_unix_nanos());
    assert_eq!((steps.start_time_unix_nano, steps.time_unix_nano), times);
    let sent = &numbers(&second["kernspan.otlp.sent"])[0];
    assert_eq!((sent.start_time_unix_nano, sent.time_unix_nano), times);
    for name in ["kernspan.step.duration", "gpu.kernel.duration", "kernspan.otlp.sent"] {
        assert_eq!(temporality(&second[name]), AggregationTemporality::Delta, "{name}");
    }
    #[cfg(target_os = "linux")]
    assert_eq!(temporality(&second["process.memory.usage"]), AggregationTemporality::Cumulative);

    let third = collected(&mut metrics, 4, &tallies);
    assert!(!third.contains_key("kernspan.step.duration") && !third.contains_key("gpu.kernel.duration"));
    assert_eq!(point(&third, "gpu.cuda.kernel.launch.calls"), Some(0.0));
    // Gauges stay.
    assert_eq!(point(&third, "kernspan.step.number"), Some(2.0));
}

#[test]
fn sums_go_on_otherwise() {
    let mut metrics = metrics(None, &[]);
    for number in 1..=3 {
        metrics.add_step(&step(number, Phase::Wait, 300, &[]));
        metrics.add_window(&Analysis::of(&gpu_trace()));
        let found = collected(&mut metrics, number, &[]);
        let steps = &histograms(&found["kernspan.step.duration"])[0];
        assert_eq!((steps.count, steps.start_time_unix_nano), (number, at(0).as_unix_nanos()));
        assert_eq!(point(&found, "gpu.cuda.kernel.launch.calls"), Some(4.0 * number as f64));
    }
}

#[test]
fn what_became_of_what_was_sent_is_told() {
    let (traces, sent) = (Tally::default(), Tally::default());
    traces.send(100);
    traces.lose(Cause::NoRoom, 7);
    sent.lose(Cause::TooLate, 2);
    let mut metrics = metrics(None, &[]);
    let found = collected(&mut metrics, 1, &[("traces", Some(&traces)), ("metrics", Some(&sent))]);
    assert_eq!(points(&found, "kernspan.otlp.sent"), of(&[("traces", 100.0), ("metrics", 0.0)]));
    let lost = points(&found, "kernspan.otlp.lost");
    let lost: Vec<_> = lost.into_iter().filter(|(_, count)| *count > 0.0).collect();
    assert_eq!(lost, of(&[("traces no_room", 7.0), ("metrics too_late", 2.0)]));
    // A signal that is off has no counts.
    let found = collected(&mut metrics, 2, &[("traces", None), ("metrics", Some(&sent))]);
    assert_eq!(points(&found, "kernspan.otlp.sent"), of(&[("metrics", 0.0)]));
}

#[test]
fn a_request_is_what_collectors_take() {
    let mut metrics = metrics(None, &[]);
    metrics.add_step(&step(1, Phase::Record, 300, &[("loss", 0.5)]));
    metrics.add_window(&Analysis::of(&gpu_trace()));
    let (bytes, _) = metrics.collect(true, &[]).unwrap();
    let request = Request::new(&[], &bytes, 0).body;
    let [of_resource] = &MetricsData::decode(&request[..]).unwrap().resource_metrics[..] else { panic!("{request:?}") };
    let [scope] = &of_resource.scope_metrics[..] else { panic!("{of_resource:?}") };
    assert_eq!(scope.scope.as_ref().unwrap().name, "kernspan");
    assert_eq!(scope.metrics, ScopeMetrics::decode(&bytes[..]).unwrap().metrics);
    // It has no fields that a collector would not know.
    assert_eq!(MetricsData::decode(&request[..]).unwrap().encoded_len(), request.len());
}

#[test]
fn metrics_are_collected_in_time() {
    let mut slow = metrics(None, &[("OTEL_METRIC_EXPORT_INTERVAL", "86400000")]);
    assert_eq!(slow.collect(false, &[]), None);
    assert!(slow.collect(true, &[]).is_some());
    let mut off = metrics(None, &[("OTEL_METRICS_EXPORTER", "none")]);
    off.add_step(&step(1, Phase::Wait, 1, &[]));
    off.add_window(&Analysis::of(&gpu_trace()));
    assert_eq!(off.collect(true, &[]), None);
    assert!(off.measured.is_none(), "nobody looks for GPUs");
}

#[test]
fn a_clock_that_is_set_back_does_no_harm() {
    for variables in [&[][..], &[DELTA]] {
        let mut metrics = metrics(None, variables);
        let wall = |seconds: u64| Timestamp::from_unix_nanos(seconds * 1_000_000_000);
        for now in [wall(2_000_000_000), wall(1_000_000_000)] {
            metrics.add_step(&step(1, Phase::Wait, 1, &[]));
            let (bytes, _) = measured(&mut metrics).collect(Instant::now(), now, &[]);
            ScopeMetrics::decode(&bytes[..]).unwrap().metrics.iter().for_each(check);
        }
    }
}
