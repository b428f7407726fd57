use super::{Endpoint, Protocol, Settings, unescape};
use crate::export::otlp::{ids::Parent, sampling::Sampler};
use std::{path::Path, time::Duration};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn read(variables: &[(&str, &str)]) -> Settings {
    let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
    Settings::read(find)
}

/// What makes sense.
fn well(variables: &[(&str, &str)]) -> Settings {
    let settings = read(variables);
    assert!(settings.problems.is_empty(), "{:?}", settings.problems);
    settings
}

/// Where traces and metrics go.
fn endpoints(variables: &[(&str, &str)]) -> [Endpoint; 2] {
    let settings = well(variables);
    [settings.traces.unwrap(), settings.metrics.unwrap()]
}

fn urls(variables: &[(&str, &str)]) -> [String; 2] {
    endpoints(variables).map(|endpoint| endpoint.url)
}

#[test]
fn without_a_word_it_is_http_on_this_machine() {
    let settings = well(&[("OTEL_EXPORTER_OTLP_ENDPOINT", ""), ("OTEL_SERVICE_NAME", " ")]);
    let traces = settings.traces.unwrap();
    assert_eq!(traces.url, "http://localhost:4318/v1/traces");
    assert_eq!((traces.protocol, traces.timeout), (Protocol::HttpProtobuf, Duration::from_secs(10)));
    assert!(!traces.gzip && traces.headers.is_empty() && traces.certificate.is_none());
    assert_eq!(settings.metrics.unwrap().url, "http://localhost:4318/v1/metrics");
    assert_eq!((settings.service, settings.parent, settings.sampler), (None, None, Sampler::default()));
    assert!(settings.resource.is_empty() && !settings.delta && settings.exemplars);
    assert_eq!((settings.metrics_every, settings.text_limit), (Duration::from_secs(60), usize::MAX));
}

#[test]
fn signals_go_below_the_address_of_all() {
    let below = ["http://c:1/base/v1/traces", "http://c:1/base/v1/metrics"];
    assert_eq!(urls(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1/base")]), below);
    assert_eq!(urls(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1/base/")]), below);
}

#[test]
fn the_address_of_a_signal_is_taken_as_it_is() {
    let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t/in");
    let metrics = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "https://m:9");
    let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1");
    assert_eq!(urls(&[all, traces]), ["https://t/in", "http://c:1/v1/metrics"]);
    assert_eq!(urls(&[metrics, all]), ["http://c:1/v1/traces", "https://m:9"]);
}

#[test]
fn grpc_has_addresses_without_paths() {
    let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    assert_eq!(urls(&[grpc]), ["http://localhost:4317"; 2]);
    assert_eq!(urls(&[grpc, ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1")]), ["http://c:1"; 2]);
    let bare = ("OTEL_EXPORTER_OTLP_ENDPOINT", "c:1");
    assert_eq!(urls(&[grpc, bare]), ["https://c:1"; 2]);
    assert_eq!(urls(&[grpc, bare, ("OTEL_EXPORTER_OTLP_INSECURE", "TRUE")]), ["http://c:1"; 2]);
    assert_eq!(urls(&[grpc, bare, ("OTEL_EXPORTER_OTLP_INSECURE", "false")]), ["https://c:1"; 2]);
    let traces = ("OTEL_EXPORTER_OTLP_TRACES_INSECURE", "true");
    assert_eq!(urls(&[grpc, bare, traces]), ["http://c:1", "https://c:1"]);
}

#[test]
fn each_signal_has_its_way() {
    let [traces, metrics] = endpoints(&[
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "gRPC"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
        ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "0"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "GZIP"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/all.pem"),
        ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/traces.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/client.pem"),
        ("OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY", "/key.pem"),
    ]);
    assert_eq!([traces.protocol, metrics.protocol], [Protocol::Grpc, Protocol::HttpProtobuf]);
    assert_eq!([traces.timeout, metrics.timeout].map(|time| time.as_millis()), [2500, 10_000]);
    assert_eq!([traces.gzip, metrics.gzip], [false, true]);
    let certificates = [&traces.certificate, &metrics.certificate].map(Option::as_deref);
    assert_eq!(certificates, ["/traces.pem", "/all.pem"].map(|path| Some(Path::new(path))));
    assert_eq!(traces.client_certificate.as_deref(), Some(Path::new("/client.pem")));
    assert_eq!([traces.client_key.is_some(), metrics.client_key.is_some()], [false, true]);
}

#[test]
fn headers_are_pairs_with_escapes() {
    let all = ("OTEL_EXPORTER_OTLP_HEADERS", " Authorization = Basic%20YTpi , x-empty=, x-sum=1+1=2,");
    let [traces, metrics] = endpoints(&[all, ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x-only=m%C3%A9")]);
    let pairs = [("Authorization", "Basic YTpi"), ("x-empty", ""), ("x-sum", "1+1=2")];
    assert_eq!(traces.headers, pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(metrics.headers, [("x-only".to_owned(), "mé".to_owned())]);
    assert_eq!(unescape("100%, %zz, %2").as_deref(), Some("100%, %zz, %2"));
    assert_eq!(unescape("%ff"), None);
}

#[test]
fn secrets_are_not_shown() {
    let [traces, _] = endpoints(&[
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-token=hunter2"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://me:hunter2@c:1/v1?key=hunter2"),
    ]);
    let shown = format!("{traces:?}");
    assert!(shown.contains("x-token") && shown.contains("\"https://c:1/v1\""), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
    for wrong in ["hunter2", "x-token=hunter2,hunter2", "x-token=hunter2%ff", "=hunter2"] {
        let problems = read(&[("OTEL_EXPORTER_OTLP_HEADERS", wrong)]).problems;
        assert_eq!(problems, ["OTEL_EXPORTER_OTLP_HEADERS is not a list of key=value"], "{wrong}");
    }
}

#[test]
fn what_is_not_wanted_is_not_sent() {
    let sent = |variables: &[(&str, &str)]| {
        let settings = well(variables);
        [settings.traces.is_some(), settings.metrics.is_some()]
    };
    assert_eq!(sent(&[("OTEL_TRACES_EXPORTER", "none")]), [false, true]);
    assert_eq!(sent(&[("OTEL_METRICS_EXPORTER", "prometheus")]), [true, false]);
    assert_eq!(sent(&[("OTEL_TRACES_EXPORTER", "console, otlp"), ("OTEL_METRICS_EXPORTER", "OTLP")]), [true, true]);
    assert_eq!(sent(&[("OTEL_SDK_DISABLED", "True")]), [false, false]);
    assert_eq!(sent(&[("OTEL_SDK_DISABLED", "false")]), [true, true]);
}

#[test]
fn samplers_have_names() {
    let sampler = |name: &str, share: &str| {
        let settings = well(&[("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", share)]);
        settings.sampler
    };
    for name in ["always_on", "always_off", "traceidratio"] {
        assert_eq!(Some(sampler(name, "0.25")), Sampler::named(name, 0.25), "{name}");
        let below = format!("parentbased_{name}");
        assert_eq!(Some(sampler(&below, "0.25")), Sampler::named(&below, 0.25), "{below}");
    }
    assert_eq!(Some(sampler("TraceIdRatio", "")), Sampler::named("traceidratio", 1.0));
    assert_eq!(sampler("parentbased_always_on", "what"), Sampler::default());
}

#[test]
fn a_resource_has_attributes_and_a_service_a_name() {
    let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,team=x%2Cy,empty=");
    let settings = well(&[attributes]);
    assert_eq!(settings.service.as_deref(), Some("a"));
    assert_eq!(
        settings.resource.into_iter().collect::<Vec<_>>(),
        [("empty".to_owned(), String::new()), ("team".to_owned(), "x,y".to_owned())]
    );
    assert_eq!(well(&[attributes, ("OTEL_SERVICE_NAME", "b")]).service.as_deref(), Some("b"));
}

#[test]
fn the_rest_is_read() {
    let settings = well(&[
        ("TRACEPARENT", PARENT),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1500"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "Delta"),
        ("OTEL_METRICS_EXEMPLAR_FILTER", "always_off"),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "100"),
    ]);
    assert_eq!(settings.parent, Parent::parse(PARENT));
    assert!(settings.parent.is_some() && settings.delta && !settings.exemplars);
    assert_eq!((settings.metrics_every, settings.text_limit), (Duration::from_millis(1500), 100));
    let low = ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "lowmemory");
    let span = ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "7");
    let settings = well(&[low, span, ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "100")]);
    assert_eq!((settings.delta, settings.text_limit), (true, 7));
    for filter in ["trace_based", "ALWAYS_ON"] {
        assert!(well(&[("OTEL_METRICS_EXEMPLAR_FILTER", filter)]).exemplars);
    }
}

#[test]
fn what_makes_no_sense_is_said_once_with_its_name() {
    let wrong = [
        ("OTEL_SDK_DISABLED", "1"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "smoke"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "-1"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x"),
        ("OTEL_RESOURCE_ATTRIBUTES", "x"),
        ("TRACEPARENT", "here"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "often"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "both"),
        ("OTEL_METRICS_EXEMPLAR_FILTER", "some"),
        ("OTEL_TRACES_SAMPLER", "mine"),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "long"),
    ];
    for (name, text) in wrong {
        let problems = read(&[(name, text)]).problems;
        assert!(matches!(&*problems, [problem] if problem.starts_with(name)), "{name}: {problems:?}");
    }
    for share in ["2", "-0.1", "NaN", "half"] {
        let sampler = ("OTEL_TRACES_SAMPLER", "traceidratio");
        let problems = read(&[sampler, ("OTEL_TRACES_SAMPLER_ARG", share)]).problems;
        assert!(matches!(&*problems, [problem] if problem.starts_with("OTEL_TRACES_SAMPLER_ARG")), "{problems:?}");
    }
    assert_eq!(read(&wrong).problems.len(), wrong.len());
}
