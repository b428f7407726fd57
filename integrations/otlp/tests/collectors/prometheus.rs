//! The metrics of a training in Prometheus, and its traces in Jaeger, through the Collector of `examples/otlp`: what
//! `examples/otlp` sends in two processes, and what a training on an H200 has sent, by which the dashboard is drawn.

use crate::support::{
    PATIENCE,
    collectors::{Collector, Jaeger, Prometheus, Sample},
    dashboard::{chosen, dashboard, queries},
    eventually,
    server::post_bytes,
    spans::{Span, Value},
};
use kernspan::{Profiler, Schedule, Vitals};
use kernspan_otlp::Otlp;
use opentelemetry_proto::tonic::{collector::metrics::v1::ExportMetricsServiceRequest, metrics::v1::metric::Data};
use prost::Message;
use serde_json::Value as Json;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::Command,
    time::Duration,
};
use tracing_subscriber::prelude::*;

/// The program of `examples/otlp`.
fn example() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "otlp-example", "--message-format=json"]);
    // Cargo says to a test which package it is of. Build scripts that look at that would be run again, here and by
    // whoever builds next.
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let said = String::from_utf8(built.stdout).unwrap();
    let mut programs = said.lines().filter_map(|line| {
        let line: Json = serde_json::from_str(line).unwrap();
        line["executable"].as_str().filter(|path| path.contains("otlp-example")).map(PathBuf::from)
    });
    programs.next_back().expect("a program")
}

fn rank(span: &Span) -> i64 {
    match span.resource["dl.rank"] {
        Value::Int(rank) => rank,
        ref other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "builds Jaeger and Prometheus: .ci/run consumers"]
fn two_ranks_are_under_one_trace_and_in_all_metrics() {
    let (jaeger, prometheus) = (Jaeger::start(), Prometheus::start());
    let collector = Collector::start(&jaeger, &prometheus);
    let mut training = Command::new(example());
    training.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{}", collector.http_port));
    for variable in ["TRACEPARENT", "RANK", "WORLD_SIZE", "KERNSPAN_RUN_ID"] {
        training.env_remove(variable);
    }
    let output = training.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains("lost:"), "{said}");

    // The span of the launcher's run, and below it those of the ranks.
    let parent = said.lines().find_map(|line| line.strip_prefix("TRACEPARENT=00-")).unwrap();
    let (run, launcher) = (&parent[..32], &parent[33..49]);
    let runs = eventually("the run", || Some(jaeger.trace(run)).filter(|spans| spans.len() == 3));
    let below: BTreeMap<i64, &Span> =
        runs.iter().filter(|span| span.parent == launcher).map(|span| (rank(span), span)).collect();
    assert_eq!(below.keys().collect::<Vec<_>>(), [&0, &1]);
    assert!(runs.iter().any(|span| span.id == launcher && span.parent.is_empty()));

    // Each step of each rank is linked to the run of its rank.
    let mut traces = jaeger.traces("spirals");
    traces.remove(run);
    let mut steps = BTreeSet::new();
    for spans in traces.values() {
        let root = spans.iter().find(|span| span.parent.is_empty()).unwrap();
        let rank = rank(root);
        assert_eq!(root.links[0].span_id, below[&rank].id);
        assert!(matches!(root.attributes["kernspan.counter.loss"], Value::Double(loss) if loss > 0.0));
        let names: BTreeSet<_> = spans.iter().map(|span| span.name.as_str()).collect();
        assert!(
            ["train_step", "data", "forward", "backward", "all_reduce", "update"]
                .iter()
                .all(|name| names.contains(name))
        );
        steps.insert((rank, root.name.clone()));
    }
    let expected = ["step 21", "step 22", "step 23", "step 45", "step 46", "step 47"];
    let expected: BTreeSet<_> = (0..2).flat_map(|rank| expected.map(|step| (rank, step.to_owned()))).collect();
    assert_eq!(steps, expected);

    // The metrics have all steps but the first.
    let by_rank = |query: &str| -> BTreeMap<String, f64> {
        prometheus.query(query).into_iter().map(|sample| (sample.labels["dl_rank"].clone(), sample.value)).collect()
    };
    let both = |value: f64| BTreeMap::from([("0".to_owned(), value), ("1".to_owned(), value)]);
    let counted = r#"sum by (dl_rank) (kernspan_step_duration_seconds_count{service_name="spirals"})"#;
    eventually("the last steps", || (by_rank(counted) == both(199.0)).then_some(()));
    assert_eq!(by_rank("kernspan_step_number"), both(199.0));
    assert!(by_rank(r#"kernspan_counter{counter_name="loss"}"#).values().all(|loss| (0.0..1.0).contains(loss)));
    assert!(by_rank("kernspan_throughput_per_second").len() == 2);
    assert!(by_rank("process_memory_usage_bytes").values().all(|bytes| *bytes > 1e6));
    // Exemplars have the ids of traces.
    let exemplars = prometheus.exemplars("kernspan_step_duration_seconds_bucket");
    assert!(!exemplars.is_empty());
    assert!(exemplars.iter().all(|exemplar| traces.contains_key(&exemplar.labels["trace_id"])), "{exemplars:?}");
}

/// The service that is chosen in the dashboard.
const SERVICE: &str = "candle-mnist";

/// Requests of metrics that it sent from a machine with an H200, in order.
const RECORDED: [&[u8]; 2] = [include_bytes!("../fixtures/first.binpb"), include_bytes!("../fixtures/last.binpb")];

/// When a request was sent, in seconds since 1970, rounded up.
fn sent_at(request: &[u8]) -> u64 {
    let request = ExportMetricsServiceRequest::decode(request).unwrap();
    let metrics =
        request.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics).flat_map(|scope| &scope.metrics);
    let times = metrics.filter_map(|metric| match metric.data.as_ref()? {
        Data::Gauge(gauge) => Some(gauge.data_points[0].time_unix_nano),
        _ => None,
    });
    times.max().unwrap().div_ceil(1_000_000_000)
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "builds Prometheus: .ci/run consumers"]
fn the_dashboard_shows_vital_signs() {
    const EVERY: Duration = Duration::from_millis(100);
    let prometheus = Prometheus::start();
    let exporter = Otlp::from_env()
        .endpoint(prometheus.http())
        .service(SERVICE)
        .traces(false)
        .metrics_every(EVERY)
        .answer_within(PATIENCE)
        .finish_within(PATIENCE);
    let (layer, profiler) = Profiler::builder()
        .rank(0, 1)
        .schedule(Schedule::manual())
        .vitals(Vitals::default().every(EVERY))
        .export(exporter)
        .build()
        .unwrap();
    let _layer = tracing_subscriber::registry().with(layer);
    let mut queries = queries(SERVICE);
    queries.retain(|(_, query)| query.contains("kernspan_vitals_"));
    assert_eq!(queries.len(), 2, "{queries:#?}");
    let signs = |query: &str| -> BTreeMap<String, f64> {
        let sign = |sample: Sample| (sample.labels["kernspan_vitals_sign"].clone(), sample.value);
        prometheus.query(query).into_iter().map(sign).collect()
    };
    let shown = |(_, query): &(String, String), wanted: &[&str]| {
        eventually(query, || Some(signs(query)).filter(|signs| wanted.iter().all(|sign| signs.contains_key(*sign))))
    };
    let shares = shown(&queries[0], &["machine.cpu", "machine.memory", "process.cpu"]);
    assert!(shares.values().all(|share| (0.0..1.5).contains(share)), "{shares:?}");
    let rates = shown(&queries[1], &["machine.network_received", "machine.network_sent"]);
    assert!(rates.values().all(|&rate| rate >= 0.0), "{rates:?}");
    let latest = profiler.vitals().unwrap().machine.memory.unwrap() / 100.0;
    assert!((shares["machine.memory"] - latest).abs() < 0.3, "{shares:?} and {latest}");
    profiler.finish().unwrap();
}

#[test]
#[ignore = "builds Prometheus: .ci/run consumers"]
fn the_dashboard_shows_what_a_training_on_a_gpu_sent() {
    let prometheus = Prometheus::start();
    for request in RECORDED {
        let answer =
            post_bytes(prometheus.port, &format!("{}/v1/metrics", Prometheus::OTLP), "application/x-protobuf", request);
        assert_eq!(answer.unwrap().status, 200);
    }
    let last = sent_at(RECORDED[1]);
    let mut looked = 0;
    for (title, query) in queries(SERVICE) {
        // The training was recorded without hardware counters, which need a GPU. Vital signs and requests have tests of
        // their own.
        let others = ["kernspan_gpu_counter", "kernspan_vitals_", "kernspan_request_", "kernspan_slo_"];
        if others.iter().any(|part| query.contains(part)) {
            continue;
        }
        let samples = prometheus.query_at(&query, last);
        assert!(!samples.is_empty(), "{title}: {query}");
        looked += 1;
    }
    assert!(looked > 15, "{looked}");
    // The variables of the dashboard.
    let dashboard = dashboard();
    let choices = dashboard["templating"]["list"].as_array().unwrap().iter();
    for choice in choices.filter(|choice| choice["type"] == "query") {
        let query = choice["query"]["query"].as_str().unwrap();
        let query = query.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
        let (metric, label) = query.rsplit_once(", ").unwrap();
        let series = prometheus.series_at(&chosen(metric, SERVICE), last);
        assert!(!series.is_empty() && series.iter().all(|labels| labels.contains_key(label)), "{metric}: {series:?}");
    }
    let at = |query: &str| prometheus.query_at(query, last)[0].value;
    assert!((10.0..100.0).contains(&at("hw_temperature_celsius")));
    assert!((50.0..1000.0).contains(&at("hw_power_watts")));
    assert!(at("hw_gpu_memory_usage_bytes") < at("hw_gpu_memory_limit_bytes"));
}
