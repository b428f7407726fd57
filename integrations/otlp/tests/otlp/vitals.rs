//! Vital signs of a program, as a collector gets them.

use crate::{
    collector::Collector,
    support::{PATIENCE, eventually},
};
use kernspan::{Profiler, Schedule, Vitals};
use kernspan_otlp::Otlp;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use std::{collections::BTreeSet, time::Duration};
use tracing_subscriber::prelude::*;

/// The names of the signs of a metric.
fn signs(collector: &Collector, name: &str) -> BTreeSet<String> {
    let found = collector.metrics().into_iter().filter(|metric| metric.name == name);
    let points = found.flat_map(|metric| match metric.data.unwrap() {
        Data::Gauge(gauge) => gauge.data_points,
        other => panic!("{other:?}"),
    });
    let sign = |attribute: opentelemetry_proto::tonic::common::v1::KeyValue| {
        format!("{:?}", attribute.value.unwrap().value.unwrap()).split('"').nth(1).unwrap().to_owned()
    };
    points.flat_map(|point| point.attributes).map(sign).collect()
}

#[test]
fn vital_signs_are_sent_without_a_step() {
    let collector = Collector::http();
    let exporter = Otlp::from_env()
        .endpoint(collector.address())
        .metrics_every(Duration::from_millis(50))
        .answer_within(PATIENCE)
        .finish_within(PATIENCE);
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::manual())
        .vitals(Vitals::default().every(Duration::from_millis(50)))
        .export(exporter)
        .build()
        .unwrap();
    let _layer = tracing_subscriber::registry().with(layer);
    eventually("a reading", || {
        let shares = signs(&collector, "kernspan.vitals.utilization");
        ["process.cpu", "machine.cpu", "machine.memory"].iter().all(|sign| shares.contains(*sign)).then_some(())
    });
    assert!(signs(&collector, "kernspan.vitals.value").contains("process.cpus"));
    profiler.finish().unwrap();
    // Physical memory and threads are metrics of the process already.
    let names: BTreeSet<_> = collector.metrics().into_iter().map(|metric| metric.name).collect();
    assert!(names.contains("process.memory.usage") && !names.contains("kernspan.counter"), "{names:?}");
    assert!(!signs(&collector, "kernspan.vitals.memory").contains("process.resident"));
}
