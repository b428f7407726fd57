//! Settings of the environment alone.

mod precedence;
mod signals;

use super::{Endpoint, Environment, Headers, Options, Protocol, Settings};
use crate::{ids::Parent, run_trace::Sampler};
use std::{path::Path, time::Duration};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn environment(variables: &[(&str, &str)]) -> Environment {
    Environment::read(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned()))
}

fn read(variables: &[(&str, &str)]) -> Settings {
    Settings::resolve(&Options::default(), &environment(variables))
}

/// The settings of valid variables.
fn valid(variables: &[(&str, &str)]) -> Settings {
    let settings = read(variables);
    assert!(settings.ignored.is_empty(), "{:?}", settings.ignored);
    settings
}

/// The endpoints of traces and metrics.
fn endpoints(variables: &[(&str, &str)]) -> [Endpoint; 2] {
    let settings = valid(variables);
    [settings.traces.unwrap(), settings.metrics.unwrap()]
}

fn urls(variables: &[(&str, &str)]) -> [String; 2] {
    endpoints(variables).map(|endpoint| endpoint.url.as_str().to_owned())
}

#[test]
fn without_variables_it_is_http_on_this_machine() {
    let settings = valid(&[("OTEL_EXPORTER_OTLP_ENDPOINT", ""), ("OTEL_SERVICE_NAME", " ")]);
    let traces = settings.traces.unwrap();
    assert_eq!(traces.url.as_str(), "http://localhost:4318/v1/traces");
    assert_eq!((traces.protocol, traces.timeout), (Protocol::HttpProtobuf, Duration::from_secs(10)));
    assert!(!traces.gzip && traces.headers.0.is_empty() && traces.certificate.is_none());
    assert_eq!(settings.metrics.unwrap().url.as_str(), "http://localhost:4318/v1/metrics");
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
fn each_signal_has_variables_of_its_own() {
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
    let all =
        ("OTEL_EXPORTER_OTLP_HEADERS", " Authorization = Basic%20YTpi , x-empty=, x-sum=1+1=2, x-odd=100%; %zz; %2,");
    let [traces, metrics] = endpoints(&[all, ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x-only=m%C3%A9")]);
    let headers = |pairs: &[(&str, &str)]| {
        Headers(pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect())
    };
    let pairs = [("Authorization", "Basic YTpi"), ("x-empty", ""), ("x-sum", "1+1=2"), ("x-odd", "100%; %zz; %2")];
    assert_eq!(traces.headers, headers(&pairs));
    assert_eq!(metrics.headers, headers(&[("x-only", "mé")]));
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
        let ignored = read(&[("OTEL_EXPORTER_OTLP_HEADERS", wrong)]).ignored;
        assert_eq!(ignored, ["invalid OTEL_EXPORTER_OTLP_HEADERS: expected key=value,key=value"], "{wrong}");
    }
}

#[test]
fn an_exporter_that_is_not_listed_sends_nothing() {
    let sent = |variables: &[(&str, &str)]| {
        let settings = valid(variables);
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
        let settings = valid(&[("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", share)]);
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
    let settings = valid(&[attributes]);
    assert_eq!(settings.service.as_deref(), Some("a"));
    assert_eq!(
        settings.resource.into_iter().collect::<Vec<_>>(),
        [("empty".to_owned(), String::new()), ("team".to_owned(), "x,y".to_owned())]
    );
    assert_eq!(valid(&[attributes, ("OTEL_SERVICE_NAME", "b")]).service.as_deref(), Some("b"));
}

#[test]
fn the_rest_is_read() {
    let settings = valid(&[
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
    let settings = valid(&[low, span, ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "100")]);
    assert_eq!((settings.delta, settings.text_limit), (true, 7));
    for filter in ["trace_based", "ALWAYS_ON"] {
        assert!(valid(&[("OTEL_METRICS_EXEMPLAR_FILTER", filter)]).exemplars);
    }
}

#[test]
fn an_invalid_variable_is_named_once() {
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
        let ignored = read(&[(name, text)]).ignored;
        let start = format!("invalid {name}");
        assert!(matches!(&*ignored, [problem] if problem.starts_with(&start)), "{name}: {ignored:?}");
    }
    for share in ["2", "-0.1", "NaN", "half"] {
        let sampler = ("OTEL_TRACES_SAMPLER", "traceidratio");
        let ignored = read(&[sampler, ("OTEL_TRACES_SAMPLER_ARG", share)]).ignored;
        let start = format!("invalid OTEL_TRACES_SAMPLER_ARG {share:?}: expected ");
        assert!(matches!(&*ignored, [problem] if problem.starts_with(&start)), "{ignored:?}");
    }
    assert_eq!(read(&wrong).ignored.len(), wrong.len());
}

#[test]
fn messages_name_the_variable_and_what_is_expected() {
    let cases = [
        ("TRACEPARENT", "here", r#"invalid TRACEPARENT "here": expected 00-<trace id>-<span id>-<flags>"#),
        (
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "http/json",
            r#"invalid OTEL_EXPORTER_OTLP_PROTOCOL "http/json": expected http/protobuf or grpc"#,
        ),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", r#"invalid OTEL_EXPORTER_OTLP_TIMEOUT "10s": expected a whole number"#),
    ];
    for (name, text, expected) in cases {
        assert_eq!(read(&[(name, text)]).ignored, [expected]);
    }
    let settings =
        Settings::resolve(&Options { parent: Some("here".to_owned()), ..Options::default() }, &Environment::default());
    assert_eq!(settings.invalid.as_deref(), Some(r#"invalid parent "here": expected 00-<trace id>-<span id>-<flags>"#));
}
