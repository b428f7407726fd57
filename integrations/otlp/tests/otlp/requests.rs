//! Requests and service levels of a program, as a collector gets them: while it runs, and at its end.

use crate::{
    collector::{Collector, Protocol},
    layers::{Stacked, ids_of},
    support::{PATIENCE, eventually},
    training::{BOTH, otlp},
};
use kernspan::{
    Profiler, Schedule,
    serving::{RequestKind, Slo},
};
use opentelemetry::trace::TracerProvider;
use opentelemetry_proto::tonic::{
    common::v1::any_value,
    metrics::v1::{Metric, metric::Data, number_data_point::Value},
};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use std::{collections::BTreeMap, time::Duration};
use tracing::info_span;
use tracing_subscriber::prelude::*;

/// The last values of a metric, by the values of its attributes: of a histogram, the count.
fn latest(collector: &Collector, name: &str) -> BTreeMap<String, f64> {
    let found = collector.metrics().into_iter().filter(|metric| metric.name == name);
    found.flat_map(|metric: Metric| values(&metric)).collect()
}

fn values(metric: &Metric) -> Vec<(String, f64)> {
    let numbers = match metric.data.as_ref().unwrap() {
        Data::Gauge(gauge) => &gauge.data_points,
        Data::Sum(sum) => &sum.data_points,
        Data::Histogram(histogram) => {
            let points = histogram.data_points.iter();
            return points.map(|point| (texts(&point.attributes), point.count as f64)).collect();
        }
        other => panic!("{other:?}"),
    };
    let value = |value: &Option<Value>| match value.unwrap() {
        Value::AsInt(value) => value as f64,
        Value::AsDouble(value) => value,
    };
    numbers.iter().map(|point| (texts(&point.attributes), value(&point.value))).collect()
}

fn texts(attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue]) -> String {
    let text = |value: &any_value::Value| match value {
        any_value::Value::StringValue(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    let texts = attributes.iter().map(|attribute| text(attribute.value.as_ref().unwrap().value.as_ref().unwrap()));
    texts.collect::<Vec<_>>().join(" ")
}

#[test]
fn requests_are_sent_without_a_step_or_a_window() {
    for protocol in BOTH {
        let collector = Collector::new(protocol, None);
        let exporter = otlp(protocol, &collector.address()).metrics(true).metrics_every(Duration::from_millis(50));
        let (layer, profiler) = Profiler::builder()
            .rank(0, 1)
            .schedule(Schedule::manual())
            .request_on(RequestKind::new("request").by("route"))
            .slo(Slo::success("request", 90.0))
            .export(exporter)
            .build()
            .unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let serve = |route: &str, error: bool| info_span!("request", route, error).in_scope(|| ());
            let waiting = info_span!("request", route = "/chat");
            (0..12).for_each(|_| serve("/embed", false));
            // While the program runs, and nothing else happens in it.
            eventually("the first requests", || {
                let counts = latest(&collector, "kernspan.request.duration");
                (counts == BTreeMap::from([("request /embed".to_owned(), 12.0)])).then_some(())
            });
            eventually("the open one", || {
                let open = latest(&collector, "kernspan.request.in_flight");
                (open == BTreeMap::from([("request".to_owned(), 1.0)])).then_some(())
            });
            drop(waiting);
            (0..7).for_each(|_| serve("/chat", true));
        });
        let report = profiler.finish().unwrap();
        assert!(report.deliveries().iter().all(|delivery| delivery.lost() == 0), "{:?}", report.deliveries());
        // The end of the run, exactly.
        let [chat, embed] = ["request /chat".to_owned(), "request /embed".to_owned()];
        let counts = latest(&collector, "kernspan.request.duration");
        assert_eq!(counts, BTreeMap::from([(chat.clone(), 8.0), (embed.clone(), 12.0)]));
        let failures = latest(&collector, "kernspan.request.failures");
        assert_eq!(failures, BTreeMap::from([(chat, 7.0), (embed, 0.0)]));
        assert_eq!(latest(&collector, "kernspan.request.in_flight")["request"], 0.0);
        let objective = "request 90 % of `request` without an error 30d";
        let outcomes = latest(&collector, "kernspan.slo.requests");
        let expected = [("bad", 7.0), ("good", 13.0)].map(|(outcome, count)| (format!("{objective} {outcome}"), count));
        assert_eq!(outcomes, BTreeMap::from(expected));
        let level = &report.requests().service_levels[0];
        assert_eq!(latest(&collector, "kernspan.slo.alerts")[objective], level.alerts as f64);
        // It grows with the time since the run began.
        let (rate, last) =
            (latest(&collector, "kernspan.slo.burn_rate")[&format!("{objective} 1h")], level.burn_rates[0]);
        assert!(0.0 < rate && rate <= last.long.1, "{rate} and {last:?}");
    }
}

#[test]
fn exemplars_of_requests_have_the_ids_that_the_other_layer_sends() {
    for stacked in Stacked::ALL {
        let (collector, sent) = (Collector::http(), InMemorySpanExporter::default());
        let provider = SdkTracerProvider::builder().with_simple_exporter(sent.clone()).build();
        let exporter = otlp(Protocol::Http, &collector.address()).metrics(true);
        let (layer, profiler) =
            Profiler::builder().schedule(Schedule::manual()).request_on("request").export(exporter).build().unwrap();
        tracing::dispatcher::with_default(&stacked.dispatch(layer, provider.tracer("tests")), || {
            profiler.start();
            info_span!("request").in_scope(|| info_span!("inside").in_scope(|| ()));
            profiler.stop();
        });
        let report = profiler.finish().unwrap();
        let (trace, span) = ids_of(&sent.get_finished_spans().unwrap(), "request").unwrap();
        let slowest = &report.requests().kind("request").unwrap().slowest[0];
        let context = slowest.recorded.as_ref().unwrap().context.unwrap();
        assert_eq!((context.trace_id, context.span_id), (trace, span), "{stacked:?}");
        let durations = collector.metrics().into_iter().filter(|metric| metric.name == "kernspan.request.duration");
        let exemplars: Vec<_> = durations
            .flat_map(|metric| match metric.data.unwrap() {
                Data::Histogram(histogram) => histogram.data_points,
                other => panic!("{other:?}"),
            })
            .flat_map(|point| point.exemplars)
            .map(|exemplar| (exemplar.trace_id, exemplar.span_id))
            .collect();
        assert_eq!(exemplars, [(trace.to_be_bytes().to_vec(), span.to_be_bytes().to_vec())], "{stacked:?}");
    }
}

#[test]
fn a_program_without_requests_sends_no_metrics_of_them() {
    let collector = Collector::http();
    let exporter = kernspan_otlp::Otlp::from_env().endpoint(collector.address()).finish_within(PATIENCE);
    let (layer, profiler) = Profiler::builder().schedule(Schedule::manual()).export(exporter).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        info_span!("request").in_scope(|| ());
    });
    profiler.finish().unwrap();
    let names: Vec<_> = collector.metrics().into_iter().map(|metric| metric.name).collect();
    assert!(names.iter().any(|name| name == "kernspan.otlp.sent"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("request") || name.contains("slo")), "{names:?}");
}
