//! Variables of one signal go before those of all signals, and code before both.

use super::{environment, read};
use crate::{
    endpoint::{Endpoint, Protocol},
    otlp::Otlp,
};
use std::{path::PathBuf, time::Duration};

/// A setting that has a variable for all signals, and one for each.
struct SignalSetting {
    /// The end of the variables' names.
    name: &'static str,
    code: fn(Otlp) -> Otlp,
    /// The texts of the variables: that of one signal, and that of all.
    texts: [&'static str; 2],
    /// The values, as `value` returns them, that come from code, from either variable, and without any of these.
    values: [&'static str; 4],
    value: Value,
}

/// The value of a setting, as text.
type Value = fn(&Endpoint) -> String;

const GRPC: &str = "grpc";
const HTTP: &str = "http/protobuf";

fn address(endpoint: &Endpoint) -> String {
    endpoint.url.as_str().trim_end_matches("/v1/traces").trim_end_matches("/v1/metrics").to_owned()
}

fn protocol(endpoint: &Endpoint) -> String {
    match endpoint.protocol {
        Protocol::Grpc => GRPC.to_owned(),
        Protocol::HttpProtobuf => HTTP.to_owned(),
    }
}

fn header(endpoint: &Endpoint) -> String {
    endpoint.headers.0.iter().rfind(|(name, _)| name == "x-tenant").map_or_else(String::new, |(_, value)| value.clone())
}

fn compression(endpoint: &Endpoint) -> String {
    if endpoint.gzip { "gzip" } else { "none" }.to_owned()
}

fn file(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(String::new, |path| path.display().to_string())
}

const SETTINGS: &[SignalSetting] = &[
    SignalSetting {
        name: "ENDPOINT",
        code: |otlp| otlp.endpoint("http://code:1"),
        texts: ["http://signal:1/in", "http://all:1"],
        values: ["http://code:1", "http://signal:1/in", "http://all:1", "http://localhost:4318"],
        value: address,
    },
    SignalSetting {
        name: "PROTOCOL",
        code: |otlp| otlp.protocol(Protocol::Grpc),
        texts: [HTTP, GRPC],
        values: [GRPC, HTTP, GRPC, HTTP],
        value: protocol,
    },
    SignalSetting {
        name: "PROTOCOL",
        code: |otlp| otlp.protocol(Protocol::HttpProtobuf),
        texts: [GRPC, HTTP],
        values: [HTTP, GRPC, HTTP, HTTP],
        value: protocol,
    },
    SignalSetting {
        name: "HEADERS",
        code: |otlp| otlp.header("x-tenant", "code"),
        texts: ["x-tenant=signal", "x-tenant=all"],
        values: ["code", "signal", "all", ""],
        value: header,
    },
    SignalSetting {
        name: "COMPRESSION",
        code: |otlp| otlp.gzip(false),
        texts: ["gzip", "none"],
        values: ["none", "gzip", "none", "none"],
        value: compression,
    },
    SignalSetting {
        name: "COMPRESSION",
        code: |otlp| otlp.gzip(true),
        texts: ["none", "gzip"],
        values: ["gzip", "none", "gzip", "none"],
        value: compression,
    },
    SignalSetting {
        name: "TIMEOUT",
        code: |otlp| otlp.answer_within(Duration::from_secs(1)),
        texts: ["2000", "3000"],
        values: ["1s", "2s", "3s", "10s"],
        value: |endpoint| format!("{:?}", endpoint.timeout),
    },
    SignalSetting {
        name: "CERTIFICATE",
        code: |otlp| otlp.certificate("code"),
        texts: ["signal", "all"],
        values: ["code", "signal", "all", ""],
        value: |endpoint| file(&endpoint.certificate),
    },
    SignalSetting {
        name: "CLIENT_CERTIFICATE",
        code: |otlp| otlp.client_certificate("code", "key"),
        texts: ["signal", "all"],
        values: ["code", "signal", "all", ""],
        value: |endpoint| file(&endpoint.client_certificate),
    },
    SignalSetting {
        name: "CLIENT_KEY",
        code: |otlp| otlp.client_certificate("certificate", "code"),
        texts: ["signal", "all"],
        values: ["code", "signal", "all", ""],
        value: |endpoint| file(&endpoint.client_key),
    },
];

/// The values of traces and of metrics. `signal` is the signal whose variable is set, if it is.
fn values(setting: &SignalSetting, in_code: bool, signal: Option<&str>, for_all: bool) -> [String; 2] {
    let own = signal.map(|signal| (format!("OTEL_EXPORTER_OTLP_{signal}_{}", setting.name), setting.texts[0]));
    let all = for_all.then(|| (format!("OTEL_EXPORTER_OTLP_{}", setting.name), setting.texts[1]));
    let variables: Vec<(&str, &str)> = own.iter().chain(&all).map(|(name, text)| (name.as_str(), *text)).collect();
    let otlp = Otlp::new(environment(&variables));
    let settings = if in_code { (setting.code)(otlp) } else { otlp }.settings();
    assert!(settings.ignored.is_empty(), "{:?}", settings.ignored);
    [settings.traces.unwrap(), settings.metrics.unwrap()].map(|endpoint| (setting.value)(&endpoint))
}

#[test]
fn a_variable_of_one_signal_goes_before_that_of_all() {
    for setting in SETTINGS {
        let [code, own, all, default] = setting.values;
        for (in_code, for_all) in [(false, false), (false, true), (true, false), (true, true)] {
            let other = match (in_code, for_all) {
                (true, _) => code,
                (false, true) => all,
                (false, false) => default,
            };
            let own = if in_code { code } else { own };
            let name = setting.name;
            let values = |signal| values(setting, in_code, signal, for_all);
            assert_eq!(values(None), [other, other], "{name}, {in_code}, {for_all}");
            assert_eq!(values(Some("TRACES")), [own, other], "{name}, {in_code}, {for_all}");
            assert_eq!(values(Some("METRICS")), [other, own], "{name}, {in_code}, {for_all}");
        }
    }
}

/// The protocol may come from another place than the address. Its path belongs to the protocol.
#[test]
fn code_goes_before_variables_of_one_signal() {
    let variables = [
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:1/in"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip"),
    ];
    let otlp = Otlp::new(environment(&variables)).endpoint("http://code:1").gzip(false);
    let settings = otlp.settings();
    let (traces, metrics) = (settings.traces.unwrap(), settings.metrics.unwrap());
    assert_eq!([traces.url.as_str(), metrics.url.as_str()], ["http://code:1/v1/traces", "http://code:1"]);
    assert_eq!([traces.gzip, metrics.gzip], [false, false]);
}

#[test]
fn headers_of_code_are_added_to_those_of_the_environment() {
    let variables = [("OTEL_EXPORTER_OTLP_HEADERS", "x-a=all"), ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x-b=metrics")];
    let settings = Otlp::new(environment(&variables)).header("x-c", "code").settings();
    let names = |endpoint: Option<Endpoint>| endpoint.unwrap().headers.0.into_iter().map(|(name, _)| name);
    assert_eq!(names(settings.traces).collect::<Vec<_>>(), ["x-a", "x-c"]);
    assert_eq!(names(settings.metrics).collect::<Vec<_>>(), ["x-b", "x-c"]);
}

#[test]
fn an_invalid_variable_of_one_signal_is_as_if_it_were_not_set() {
    let timeout: Value = |endpoint| format!("{:?}", endpoint.timeout);
    let cases: [(&str, [&str; 2], Value, &str); 4] = [
        ("PROTOCOL", ["smoke", GRPC], protocol, GRPC),
        ("COMPRESSION", ["zstd", "gzip"], compression, "gzip"),
        ("TIMEOUT", ["2s", "3000"], timeout, "3s"),
        ("HEADERS", ["x-tenant", "x-tenant=all"], header, "all"),
    ];
    for (name, [own, all], value, expected) in cases {
        let (own_name, all_name) = (format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}"));
        let settings = read(&[(&own_name, own), (&all_name, all)]);
        assert_eq!(value(&settings.traces.unwrap()), expected);
        let problem = format!("invalid {own_name}");
        assert!(matches!(&*settings.ignored, [only] if only.starts_with(&problem)), "{:?}", settings.ignored);
    }
}
