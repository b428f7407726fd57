//! Metrics, decoded as a collector does.

use super::{
    super::{
        Metrics,
        instruments::{FIELDS, INSTRUMENTS, Kind},
    },
    measured,
};
use crate::tally::Tally;
use kernspan::trace::sample::at;
use opentelemetry_proto::tonic::{
    common::v1::{KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ScopeMetrics, Sum,
        metric::Data, number_data_point::Value,
    },
};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};

/// Collects metrics so many seconds after the start of the run, by name.
pub(super) fn collected(
    metrics: &mut Metrics,
    seconds: u64,
    tallies: &[(&str, Option<&Tally>)],
) -> BTreeMap<String, Metric> {
    let wall = at(seconds * 1_000_000);
    // The monotonic clock stands still, however long the test takes.
    let now = measured(metrics).last.0;
    let (bytes, count) = measured(metrics).collect(now, wall, tallies);
    let found = ScopeMetrics::decode(&bytes[..]).unwrap().metrics;
    let points: usize = found.iter().map(|metric| numbers(metric).len() + histograms(metric).len()).sum();
    assert_eq!(points as u64, count);
    let names = found.len();
    let found: BTreeMap<_, _> = found.into_iter().map(|metric| (metric.name.clone(), metric)).collect();
    assert_eq!(found.len(), names, "a metric is there twice");
    found.values().for_each(check);
    found
}

/// Checks a metric against the table.
pub(super) fn check(metric: &Metric) {
    let instrument = INSTRUMENTS.iter().find(|instrument| instrument.name == metric.name).unwrap();
    assert_eq!((&*metric.unit, &*metric.description), (instrument.unit, instrument.description));
    let kind = match metric.data.as_ref().unwrap() {
        Data::Gauge(_) => Kind::Gauge,
        Data::Sum(Sum { is_monotonic: true, .. }) => Kind::Counter,
        Data::Sum(_) => Kind::UpDownCounter,
        Data::Histogram(_) => Kind::Histogram,
        other => panic!("{other:?}"),
    };
    assert_eq!(kind, instrument.kind, "{}", metric.name);
    let numbers =
        numbers(metric).iter().map(|point| (&point.attributes, point.start_time_unix_nano, point.time_unix_nano));
    let histograms =
        histograms(metric).iter().map(|point| (&point.attributes, point.start_time_unix_nano, point.time_unix_nano));
    let mut told = BTreeSet::new();
    for (attributes, start, time) in numbers.chain(histograms) {
        let names: Vec<_> = attributes.iter().map(|attribute| &*attribute.key).collect();
        match instrument.attributes {
            // After the metric's own are the program's.
            [own @ .., FIELDS] => assert!(names.starts_with(own), "{}: {names:?}", metric.name),
            own => assert_eq!(names, own, "{}", metric.name),
        }
        assert!(told.insert(texts(attributes)), "two points of {} are the same", metric.name);
        assert!(start <= time && (start == 0) == (kind == Kind::Gauge), "{} {start} {time}", metric.name);
    }
}

pub(super) fn numbers(metric: &Metric) -> &[NumberDataPoint] {
    match metric.data.as_ref().unwrap() {
        Data::Gauge(gauge) => &gauge.data_points,
        Data::Sum(sum) => &sum.data_points,
        _ => &[],
    }
}

pub(super) fn histograms(metric: &Metric) -> &[HistogramDataPoint] {
    match metric.data.as_ref().unwrap() {
        Data::Histogram(histogram) => &histogram.data_points,
        _ => &[],
    }
}

pub(super) fn temporality(metric: &Metric) -> AggregationTemporality {
    match metric.data.as_ref().unwrap() {
        Data::Sum(Sum { aggregation_temporality, .. }) | Data::Histogram(Histogram { aggregation_temporality, .. }) => {
            AggregationTemporality::try_from(*aggregation_temporality).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

pub(super) fn texts(attributes: &[KeyValue]) -> String {
    let texts = attributes.iter().map(|attribute| match attribute.value.as_ref().unwrap().value.as_ref().unwrap() {
        any_value::Value::StringValue(text) => text.clone(),
        other => panic!("{other:?}"),
    });
    texts.collect::<Vec<_>>().join(" ")
}

/// The points of a metric, with the values of their attributes.
pub(super) fn points(found: &BTreeMap<String, Metric>, name: &str) -> Vec<(String, f64)> {
    let number = |point: &NumberDataPoint| match point.value.unwrap() {
        Value::AsInt(value) => value as f64,
        Value::AsDouble(value) => value,
    };
    let points = found.get(name).map(numbers).unwrap_or_default();
    points.iter().map(|point| (texts(&point.attributes), number(point))).collect()
}

pub(super) fn point(found: &BTreeMap<String, Metric>, name: &str) -> Option<f64> {
    let points = points(found, name);
    assert!(points.len() < 2, "{points:?}");
    points.first().map(|(_, value)| *value)
}

pub(super) fn of(points: &[(&str, f64)]) -> Vec<(String, f64)> {
    points.iter().map(|(text, value)| ((*text).to_owned(), *value)).collect()
}

/// The buckets that are not empty: upper bound and count.
pub(super) fn buckets(point: &HistogramDataPoint, bounds: &[f64]) -> Vec<(f64, u64)> {
    assert_eq!(point.explicit_bounds, bounds);
    assert_eq!(point.bucket_counts.len(), bounds.len() + 1);
    assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
    let ends = bounds.iter().copied().chain([f64::INFINITY]);
    ends.zip(point.bucket_counts.iter().copied()).filter(|(_, count)| *count > 0).collect()
}
