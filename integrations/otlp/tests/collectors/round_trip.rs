//! Requests made by hand, in JSON, that Jaeger, Prometheus and a Collector between them give back; and the
//! configurations of `examples/otlp`.

use crate::support::{
    collectors::{Collector, Jaeger, Prometheus},
    eventually,
    server::{Answer, get, post},
    spans::{Link, Span, Value, spans},
};
use serde_json::{Value as Json, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, SystemTime},
};

const TRACE: &str = "5b8efff798038103d269b633813fc60c";

/// Neither a whole number of microseconds, nor one that a double can represent.
const START: u64 = 1_700_000_000_123_456_789;

fn text(key: &str, value: &str) -> Json {
    json!({"key": key, "value": {"stringValue": value}})
}

/// A step, a span in it, and a kernel of 700 ns that the span launches and that ends later.
fn step() -> Json {
    let every_type = json!([
        text("text", "GEMM «128×256»"),
        {"key": "int", "value": {"intValue": i64::MAX.to_string()}},
        {"key": "double", "value": {"doubleValue": 0.1}},
        {"key": "no number", "value": {"doubleValue": "NaN"}},
        {"key": "bool", "value": {"boolValue": true}},
        {"key": "false", "value": {"boolValue": false}},
        {"key": "list", "value": {"arrayValue": {"values": [{"intValue": "1"}, {"stringValue": "two"}]}}},
        {"key": "map", "value": {"kvlistValue": {"values": [text("inner", "value")]}}},
        {"key": "bytes", "value": {"bytesValue": "AAEC"}},
    ]);
    let at = |nanos: u64| (START + nanos).to_string();
    let span = |id: &str, parent: &str, name: &str, start, end| {
        json!({"traceId": TRACE, "spanId": id, "parentSpanId": parent, "name": name, "kind": 1,
            "startTimeUnixNano": at(start), "endTimeUnixNano": at(end)})
    };
    let mut step = span("eee19b7ec3c1b174", "", "step 7", 0, 10_000);
    step["links"] = json!([{"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331",
        "traceState": "vendor=1", "attributes": [text("link", "run")]}]);
    step["events"] = json!([{"timeUnixNano": at(1), "name": "loss is NaN", "attributes": [text("level", "WARN")]}]);
    step["status"] = json!({"code": 2, "message": "diverged"});
    step["droppedAttributesCount"] = json!(3);
    let user = span("eee19b7ec3c1b175", "eee19b7ec3c1b174", "forward", 1_000, 9_001);
    let mut kernel = span("eee19b7ec3c1b176", "eee19b7ec3c1b175", "gemm", 8_999, 9_699);
    kernel["attributes"] = every_type;
    json!({"resourceSpans": [{
        "resource": {"attributes": [text("service.name", "training"), {"key": "dl.rank", "value": {"intValue": "0"}}]},
        "scopeSpans": [{"scope": {"name": "kernspan", "version": "0.1.0"}, "spans": [step, user, kernel]}],
    }]})
}

fn accepted(answer: &Answer) {
    assert_eq!(answer.status, 200, "{answer:?}");
    // A partial success would be here.
    assert!(["{}", r#"{"partialSuccess":{}}"#, ""].contains(&answer.body.trim()), "{answer:?}");
}

/// Spans as text, sorted by id: NaN is not equal to itself.
fn sorted(mut spans: Vec<Span>) -> String {
    spans.sort_by(|one, other| one.id.cmp(&other.id));
    format!("{spans:#?}")
}

#[test]
#[ignore = "builds Jaeger: .ci/run consumers"]
fn jaeger_gives_back_every_nanosecond_and_every_type() {
    let jaeger = Jaeger::start();
    assert!(jaeger.services().is_empty() && jaeger.trace(TRACE).is_empty() && jaeger.traces("training").is_empty());
    let request = step();
    accepted(&post(jaeger.http_port, "/v1/traces", &request).unwrap());
    // At once.
    let stored = jaeger.trace(TRACE);
    assert_eq!(sorted(stored.clone()), sorted(spans(&request)));
    let named = |name: &str| stored.iter().find(|span| span.name == name).unwrap();
    let (step, user, kernel) = (named("step 7"), named("forward"), named("gemm"));
    assert_eq!((kernel.start, kernel.end), (START + 8_999, START + 9_699));
    assert_eq!([&step.parent, &user.parent, &kernel.parent], ["", &step.id, &user.id]);
    assert_eq!(kernel.attributes["int"], Value::Int(i64::MAX));
    assert_eq!(kernel.attributes["double"], Value::Double(0.1));
    assert_eq!(kernel.attributes["false"], Value::Bool(false));
    assert_eq!(kernel.attributes["list"], Value::List(vec![Value::Int(1), Value::Text("two".to_owned())]));
    assert_eq!(kernel.attributes.len(), 9);
    let [Link { trace_id, attributes, .. }] = &step.links[..] else { panic!("{:?}", step.links) };
    assert_eq!(
        (&trace_id[..], &attributes["link"]),
        ("0af7651916cd43dd8448eb211c80319c", &Value::Text("run".to_owned()))
    );
    assert_eq!((step.events[0].time, &step.status), (START + 1, &(2, "diverged".to_owned())));
    assert_eq!(kernel.resource["dl.rank"], Value::Int(0));

    assert_eq!(jaeger.services(), BTreeSet::from(["training".to_owned()]));
    assert_eq!(jaeger.operations("training"), BTreeSet::from(["forward", "gemm", "step 7"].map(str::to_owned)));
    let traces = jaeger.traces("training");
    assert_eq!(traces.keys().collect::<Vec<_>>(), [TRACE]);
    assert_eq!(sorted(traces[TRACE].clone()), sorted(stored));
}

#[test]
#[ignore = "builds Jaeger: .ci/run consumers"]
fn jaeger_can_refuse_and_be_slow_and_die() {
    let refusing = Jaeger::refusing();
    let refused = eventually("a full memory", || {
        // It may not listen yet, although it says that it is ready.
        let answer = post(refusing.http_port, "/v1/traces", &step()).ok()?;
        (answer.status != 200).then_some(answer)
    });
    assert_eq!(refused.status, 503, "{refused:?}");

    let mut jaeger = Jaeger::start();
    jaeger.pause();
    let port = jaeger.http_port;
    let sending = thread::spawn(move || post(port, "/v1/traces", &step()));
    // It is not answered, however long one waits.
    thread::sleep(Duration::from_millis(300));
    assert!(!sending.is_finished(), "{:?}", sending.join());
    jaeger.resume();
    accepted(&sending.join().unwrap().unwrap());
    assert_eq!(jaeger.trace(TRACE).len(), 3);

    jaeger.kill();
    assert!(post(port, "/v1/traces", &step()).is_err());
    jaeger.restart();
    assert!(jaeger.trace(TRACE).is_empty());
    accepted(&post(port, "/v1/traces", &step()).unwrap());
    assert_eq!(jaeger.trace(TRACE).len(), 3);
}

/// Metrics of a training and of a service: OTLP's name and unit, the kind, and the name in Prometheus.
const METRICS: [(&str, &str, Kind, &str); 30] = [
    ("kernspan.step.duration", "s", Kind::Histogram, "kernspan_step_duration_seconds"),
    ("kernspan.throughput", "{sample}/s", Kind::Gauge, "kernspan_throughput_per_second"),
    ("kernspan.counter", "", Kind::Gauge, "kernspan_counter"),
    ("kernspan.otlp.lost", "{item}", Kind::Counter, "kernspan_otlp_lost_total"),
    ("hw.gpu.utilization", "1", Kind::Gauge, "hw_gpu_utilization_ratio"),
    ("hw.gpu.memory.usage", "By", Kind::Gauge, "hw_gpu_memory_usage_bytes"),
    ("hw.gpu.memory.limit", "By", Kind::Gauge, "hw_gpu_memory_limit_bytes"),
    ("hw.temperature", "Cel", Kind::Gauge, "hw_temperature_celsius"),
    ("hw.power", "W", Kind::Gauge, "hw_power_watts"),
    ("hw.energy", "J", Kind::Counter, "hw_energy_joules_total"),
    ("kernspan.gpu.counter.utilization", "1", Kind::Gauge, "kernspan_gpu_counter_utilization_ratio"),
    ("gpu.cuda.kernel.launch.calls", "{call}", Kind::Counter, "gpu_cuda_kernel_launch_calls_total"),
    ("gpu.cuda.memory.copies", "{copy}", Kind::Counter, "gpu_cuda_memory_copies_total"),
    ("gpu.cuda.memory.copied", "By", Kind::Counter, "gpu_cuda_memory_copied_bytes_total"),
    ("gpu.cuda.memory.allocations", "{allocation}", Kind::Counter, "gpu_cuda_memory_allocations_total"),
    ("gpu.kernel.duration", "s", Kind::Histogram, "gpu_kernel_duration_seconds"),
    ("kernspan.vitals.utilization", "1", Kind::Gauge, "kernspan_vitals_utilization_ratio"),
    ("kernspan.vitals.throughput", "By/s", Kind::Gauge, "kernspan_vitals_throughput_bytes_per_second"),
    ("kernspan.request.duration", "s", Kind::Histogram, "kernspan_request_duration_seconds"),
    ("kernspan.request.queue_time", "s", Kind::Histogram, "kernspan_request_queue_time_seconds"),
    ("kernspan.request.time_to_first_token", "s", Kind::Histogram, "kernspan_request_time_to_first_token_seconds"),
    ("kernspan.request.time_between_tokens", "s", Kind::Histogram, "kernspan_request_time_between_tokens_seconds"),
    ("kernspan.request.failures", "{request}", Kind::Counter, "kernspan_request_failures_total"),
    ("kernspan.request.tokens", "{token}", Kind::Counter, "kernspan_request_tokens_total"),
    ("kernspan.request.in_flight", "{request}", Kind::Gauge, "kernspan_request_in_flight"),
    ("kernspan.slo.requests", "{request}", Kind::Counter, "kernspan_slo_requests_total"),
    ("kernspan.slo.error_budget.remaining", "1", Kind::Gauge, "kernspan_slo_error_budget_remaining_ratio"),
    ("kernspan.slo.burn_rate", "1", Kind::Gauge, "kernspan_slo_burn_rate_ratio"),
    ("kernspan.slo.alerts", "{alert}", Kind::Counter, "kernspan_slo_alerts_total"),
    ("kernspan.slo.alerts.active", "{alert}", Kind::Gauge, "kernspan_slo_alerts_active"),
];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// All of [`METRICS`] for one rank, as of now or a while before, when counters were at `count`.
fn metrics_of(rank: u32, before: Duration, count: u64) -> Json {
    let nanos = |ago| (SystemTime::now() - ago).duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos().to_string();
    let point = |name: &str, more: Json| {
        let start = nanos(Duration::from_secs(600));
        // The dashboard selects by the outcome, which is an attribute of the objectives' requests only.
        let attributes = match name {
            "kernspan.slo.requests" => vec![text("name", "loss"), text("kernspan.slo.outcome", "good")],
            _ => vec![text("name", "loss")],
        };
        let mut point = json!({"attributes": attributes, "startTimeUnixNano": start, "timeUnixNano": nanos(before)});
        point.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        point
    };
    let metric = |(name, unit, kind, _): &(&str, &str, Kind, &str)| match kind {
        Kind::Counter => json!({"name": name, "unit": unit, "sum": {"aggregationTemporality": 2, "isMonotonic": true,
            "dataPoints": [point(name, json!({"asInt": count.to_string()}))]}}),
        Kind::Gauge => {
            json!({"name": name, "unit": unit, "gauge": {"dataPoints": [point(name, json!({"asDouble": 0.5}))]}})
        }
        Kind::Histogram => {
            let exemplar = json!({"timeUnixNano": nanos(before), "asDouble": 0.2, "traceId": TRACE,
                "spanId": "eee19b7ec3c1b174"});
            let point = point(
                name,
                json!({"count": count.to_string(), "sum": count as f64 * 0.2,
                "explicitBounds": [0.1, 1.0], "bucketCounts": ["0", count.to_string(), "0"],
                "exemplars": [exemplar]}),
            );
            let histogram = json!({"aggregationTemporality": 2, "dataPoints": [point]});
            json!({"name": name, "unit": unit, "histogram": histogram})
        }
    };
    let instance = text("service.instance.id", &format!("host-{rank}"));
    let resource = json!({"attributes": [text("service.name", "training"), instance,
        {"key": "dl.rank", "value": {"intValue": rank.to_string()}}]});
    let metrics: Vec<_> = METRICS.iter().map(metric).collect();
    let scope = json!({"scope": {"name": "kernspan"}, "metrics": metrics});
    json!({"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]})
}

/// Sends the metrics of two ranks, twice, half a minute apart, and returns the last value of counters.
fn send_metrics(port: u16, path: &str) -> u64 {
    for (before, count) in [(30, 100), (0, 400)] {
        for rank in 0..2 {
            accepted(&post(port, path, &metrics_of(rank, Duration::from_secs(before), count)).unwrap());
        }
    }
    400
}

fn dashboard() -> Json {
    serde_json::from_str(include_str!("../../../../examples/otlp/grafana.json")).unwrap()
}

/// A query of the dashboard, with its variables replaced.
fn chosen(query: &str) -> String {
    let chosen = [("$service", "training"), ("$rank", "0|1"), ("$__rate_interval", "10m")];
    let query = chosen.iter().fold(query.to_owned(), |query, (name, value)| query.replace(name, value));
    assert!(!query.contains('$'), "what is chosen in {query}?");
    query
}

/// The dashboard's queries, each with the title of its panel.
fn queries() -> Vec<(String, String)> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| {
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(|target| (panel["title"].as_str().unwrap(), target["expr"].as_str().unwrap()))
    });
    targets.map(|(title, query)| (title.to_owned(), chosen(query))).collect()
}

/// The variables of the dashboard: the series that they are taken from, and the label.
fn choices() -> [(String, String); 2] {
    let dashboard = dashboard();
    let choices = dashboard["templating"]["list"].as_array().unwrap().iter().filter(|choice| choice["type"] == "query");
    let choice = |choice: &Json| {
        let query = choice["query"]["query"].as_str().unwrap();
        let query = query.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
        let (metric, label) = query.rsplit_once(", ").unwrap();
        (chosen(metric), label.to_owned())
    };
    choices.map(choice).collect::<Vec<_>>().try_into().unwrap()
}

/// Checks that Prometheus has the metrics, whichever way they came, and that the dashboard shows them.
fn check_metrics(prometheus: &Prometheus, count: u64) {
    for (_, _, kind, name) in METRICS {
        let name = if kind == Kind::Histogram { format!("{name}_count") } else { name.to_owned() };
        let query = format!(r#"{name}{{service_name="training"}}"#);
        let mut samples = prometheus.query(&query);
        samples.sort_by(|one, other| one.labels.cmp(&other.labels));
        let ranks: Vec<_> = samples.iter().map(|sample| &sample.labels["dl_rank"][..]).collect();
        assert_eq!(ranks, ["0", "1"], "{query}: {samples:?}");
        let expected = if kind == Kind::Gauge { 0.5 } else { count as f64 };
        assert!(samples.iter().all(|sample| sample.value == expected), "{query}: {samples:?}");
        assert!(samples.iter().all(|sample| sample.labels["name"] == "loss"), "{query}: {samples:?}");
    }
    let queries = queries();
    let unused: Vec<_> =
        METRICS.iter().filter(|metric| !queries.iter().any(|(_, query)| query.contains(metric.3))).collect();
    assert!(unused.is_empty(), "{:?}", unused.iter().map(|metric| metric.0).collect::<Vec<_>>());
    for (title, query) in queries {
        let samples = prometheus.query(&query);
        assert!(
            !samples.is_empty() && samples.iter().all(|sample| sample.value > 0.0),
            "{title}: {query}: {samples:?}"
        );
    }
    for (metric, label) in choices() {
        let series = prometheus.series(&metric);
        assert!(!series.is_empty() && series.iter().all(|labels| labels.contains_key(&label)), "{metric}: {series:?}");
    }
    let exemplars = prometheus.exemplars("kernspan_step_duration_seconds_bucket");
    assert!(exemplars.iter().any(|one| one.value == 0.2 && one.labels["trace_id"] == TRACE), "{exemplars:?}");
}

#[test]
#[ignore = "builds Prometheus: .ci/run consumers"]
fn prometheus_takes_metrics_and_the_dashboard_shows_them() {
    let prometheus = Prometheus::start();
    assert!(prometheus.query("kernspan_otlp_lost_total").is_empty());
    let path = format!("{}/v1/metrics", Prometheus::OTLP);
    let count = send_metrics(prometheus.port, &path);
    check_metrics(&prometheus, count);
    let labels = |instance: &str, rank: &str| {
        let labels = [
            ("__name__", "hw_power_watts"),
            ("instance", instance),
            ("job", "training"),
            ("name", "loss"),
            ("service_name", "training"),
            ("dl_rank", rank),
        ];
        BTreeMap::from(labels.map(|(name, value)| (name.to_owned(), value.to_owned())))
    };
    let mut series = prometheus.series("hw_power_watts");
    series.sort();
    let mut expected = [labels("host-0", "0"), labels("host-1", "1")];
    expected.sort();
    assert_eq!(series, expected);
}

#[test]
#[ignore = "builds Jaeger and Prometheus: .ci/run consumers"]
fn the_examples_collector_passes_everything_on() {
    let (jaeger, prometheus) = (Jaeger::start(), Prometheus::start());
    let collector = Collector::start(&jaeger, &prometheus);
    let request = step();
    accepted(&post(collector.http_port, "/v1/traces", &request).unwrap());
    let stored = eventually("the trace", || Some(jaeger.trace(TRACE)).filter(|spans| !spans.is_empty()));
    assert_eq!(sorted(stored), sorted(spans(&request)));
    let count = send_metrics(collector.http_port, "/v1/metrics");
    let arrived = format!("kernspan_otlp_lost_total == {count}");
    eventually("the metrics", || (prometheus.query(&arrived).len() == 2).then_some(()));
    check_metrics(&prometheus, count);
}

#[test]
#[ignore = "builds Jaeger and Prometheus: .ci/run consumers"]
fn the_examples_collector_can_be_asked_for_metrics() {
    let jaeger = Jaeger::start();
    let collector = Collector::scraped(&jaeger);
    let prometheus = Prometheus::scraping(collector.scraped_port);
    // A rate needs two scrapes with different values.
    for count in [100, 400] {
        for rank in 0..2 {
            accepted(&post(collector.http_port, "/v1/metrics", &metrics_of(rank, Duration::ZERO, count)).unwrap());
        }
        let arrived = format!("gpu_kernel_duration_seconds_count == {count}");
        eventually("the metrics", || (prometheus.query(&arrived).len() == 2).then_some(()));
    }
    check_metrics(&prometheus, 400);
    let page = get(collector.scraped_port, "/metrics").unwrap();
    assert!(page.body.contains("# TYPE kernspan_step_duration_seconds histogram"), "{page:?}");
}
