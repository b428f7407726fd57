//! Code goes before the environment, and that before the default: for every setting, beside every other one, in any
//! order.

use super::{PARENT, Settings, environment};
use crate::{
    endpoint::{Endpoint, Protocol},
    ids::Parent,
    options::GpuSpans,
    otlp::Otlp,
};
use std::time::Duration;

/// A setting that code and the environment can make.
struct Setting {
    name: &'static str,
    code: fn(Otlp) -> Otlp,
    variables: &'static [(&'static str, &'static str)],
    /// The resolved value: `code`, `environment` or `default` if that is where it comes from.
    source: fn(&Settings) -> String,
}

const CODE_PARENT: &str = "00-11111111111111111111111111111111-2222222222222222-01";

/// The endpoint of a signal that is sent.
fn endpoint(settings: &Settings) -> &Endpoint {
    settings.traces.as_ref().or(settings.metrics.as_ref()).unwrap()
}

fn source<T: PartialEq + std::fmt::Debug>(value: &T, code: &T, environment: &T, default: &T) -> String {
    match value {
        value if value == code => "code".to_owned(),
        value if value == environment => "environment".to_owned(),
        value if value == default => "default".to_owned(),
        other => format!("{other:?}"),
    }
}

/// The source of a setting that has no variable, so that the environment leaves it at the default.
fn in_code<T: PartialEq + std::fmt::Debug>(value: &T, code: &T, default: &T) -> String {
    source(value, code, default, default).replace("environment", "environment or default")
}

const SETTINGS: &[Setting] = &[
    Setting {
        name: "endpoint",
        code: |otlp| otlp.endpoint("http://code:1"),
        variables: &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://environment:1")],
        source: |settings| {
            let Endpoint { protocol, url, .. } = endpoint(settings);
            let address = url.as_str().trim_end_matches("/v1/traces").trim_end_matches("/v1/metrics");
            source(&address, &"http://code:1", &"http://environment:1", &protocol.default_address())
        },
    },
    Setting {
        name: "protocol",
        code: |otlp| otlp.protocol(Protocol::Grpc),
        variables: &[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")],
        source: |settings| match endpoint(settings) {
            // The path belongs to the protocol, wherever the address comes from.
            Endpoint { protocol: Protocol::Grpc, url, .. } if !url.as_str().contains("/v1/") => "code".to_owned(),
            Endpoint { protocol: Protocol::HttpProtobuf, url, .. } if url.as_str().contains("/v1/") => {
                "environment or default".to_owned()
            }
            other => format!("{other:?}"),
        },
    },
    Setting {
        name: "protocol",
        code: |otlp| otlp.protocol(Protocol::HttpProtobuf),
        variables: &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
        source: |settings| match endpoint(settings) {
            Endpoint { protocol: Protocol::HttpProtobuf, url, .. } if url.as_str().contains("/v1/") => {
                "code or default".to_owned()
            }
            Endpoint { protocol: Protocol::Grpc, url, .. } if !url.as_str().contains("/v1/") => {
                "environment".to_owned()
            }
            other => format!("{other:?}"),
        },
    },
    Setting {
        name: "header",
        code: |otlp| otlp.header("x-tenant", "code"),
        variables: &[("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=environment")],
        source: |settings| {
            let last = endpoint(settings).headers.0.iter().rev().find(|(name, _)| name == "x-tenant");
            last.map_or_else(|| "default".to_owned(), |(_, value)| value.clone())
        },
    },
    Setting {
        name: "gzip",
        code: |otlp| otlp.gzip(false),
        variables: &[("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")],
        source: |settings| if endpoint(settings).gzip { "environment" } else { "code or default" }.to_owned(),
    },
    Setting {
        name: "gzip",
        code: |otlp| otlp.gzip(true),
        variables: &[("OTEL_EXPORTER_OTLP_COMPRESSION", "none")],
        source: |settings| if endpoint(settings).gzip { "code" } else { "environment or default" }.to_owned(),
    },
    Setting {
        name: "answer_within",
        code: |otlp| otlp.answer_within(Duration::from_secs(1)),
        variables: &[("OTEL_EXPORTER_OTLP_TIMEOUT", "2000")],
        source: |settings| source(&endpoint(settings).timeout.as_secs(), &1, &2, &10),
    },
    Setting {
        name: "certificate",
        code: |otlp| otlp.certificate("code"),
        variables: &[("OTEL_EXPORTER_OTLP_CERTIFICATE", "environment")],
        source: |settings| {
            source(&endpoint(settings).certificate, &Some("code".into()), &Some("environment".into()), &None)
        },
    },
    Setting {
        name: "client_certificate",
        code: |otlp| otlp.client_certificate("code", "code key"),
        variables: &[
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "environment"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "environment key"),
        ],
        source: |settings| {
            let Endpoint { client_certificate, client_key, .. } = endpoint(settings);
            let files = |certificate: &str| (Some(certificate.into()), Some(format!("{certificate} key").into()));
            source(
                &(client_certificate.clone(), client_key.clone()),
                &files("code"),
                &files("environment"),
                &(None, None),
            )
        },
    },
    Setting {
        name: "service",
        code: |otlp| otlp.service("code"),
        variables: &[("OTEL_SERVICE_NAME", "environment")],
        source: |settings| settings.service.clone().unwrap_or_else(|| "default".to_owned()),
    },
    Setting {
        name: "resource",
        code: |otlp| otlp.resource("team", "code"),
        variables: &[("OTEL_RESOURCE_ATTRIBUTES", "team=environment")],
        source: |settings| settings.resource.get("team").map_or("default", String::as_str).to_owned(),
    },
    Setting {
        name: "parent",
        code: |otlp| otlp.parent(CODE_PARENT),
        variables: &[("TRACEPARENT", PARENT)],
        source: |settings| source(&settings.parent, &Parent::parse(CODE_PARENT), &Parent::parse(PARENT), &None),
    },
    Setting {
        name: "traces",
        code: |otlp| otlp.traces(true),
        variables: &[("OTEL_TRACES_EXPORTER", "none")],
        source: |settings| if settings.traces.is_some() { "code or default" } else { "environment" }.to_owned(),
    },
    Setting {
        name: "traces",
        code: |otlp| otlp.traces(false),
        variables: &[("OTEL_TRACES_EXPORTER", "otlp")],
        source: |settings| if settings.traces.is_some() { "environment or default" } else { "code" }.to_owned(),
    },
    Setting {
        name: "metrics",
        code: |otlp| otlp.metrics(true),
        variables: &[("OTEL_METRICS_EXPORTER", "none")],
        source: |settings| if settings.metrics.is_some() { "code or default" } else { "environment" }.to_owned(),
    },
    Setting {
        name: "metrics",
        code: |otlp| otlp.metrics(false),
        variables: &[("OTEL_METRICS_EXPORTER", "otlp")],
        source: |settings| if settings.metrics.is_some() { "environment or default" } else { "code" }.to_owned(),
    },
    Setting {
        name: "metrics_every",
        code: |otlp| otlp.metrics_every(Duration::from_secs(1)),
        variables: &[("OTEL_METRIC_EXPORT_INTERVAL", "2000")],
        source: |settings| source(&settings.metrics_every.as_secs(), &1, &2, &60),
    },
    Setting {
        name: "gpu",
        code: |otlp| otlp.gpu(GpuSpans::Kernels),
        variables: &[],
        source: |settings| in_code(&settings.gpu, &GpuSpans::Kernels, &GpuSpans::Aggregate),
    },
    Setting {
        name: "kernels_per_trace",
        code: |otlp| otlp.kernels_per_trace(1),
        variables: &[],
        source: |settings| in_code(&settings.kernels_per_trace, &1, &Otlp::KERNELS_PER_TRACE),
    },
    Setting {
        name: "samples_per_step",
        code: |otlp| otlp.samples_per_step(1),
        variables: &[],
        source: |settings| in_code(&settings.samples_per_step, &Some(1), &None),
    },
    Setting {
        name: "buffer_bytes",
        code: |otlp| otlp.buffer_bytes(1),
        variables: &[],
        source: |settings| in_code(&settings.buffer_bytes, &1, &Otlp::BUFFER_BYTES),
    },
    Setting {
        name: "finish_within",
        code: |otlp| otlp.finish_within(Duration::ZERO),
        variables: &[],
        source: |settings| in_code(&settings.finish_within, &Duration::ZERO, &Otlp::FINISH_WITHIN),
    },
];

/// The places in which a setting is made.
#[derive(Clone, Copy, Debug)]
struct Made {
    in_code: bool,
    in_environment: bool,
}

impl Made {
    const ALL: [Self; 4] = [
        Self { in_code: false, in_environment: false },
        Self { in_code: false, in_environment: true },
        Self { in_code: true, in_environment: false },
        Self { in_code: true, in_environment: true },
    ];

    fn expected(self) -> &'static str {
        match self {
            Self { in_code: true, .. } => "code",
            Self { in_environment: true, .. } => "environment",
            Self { .. } => "default",
        }
    }
}

/// Resolves two settings, which are made in this order.
fn resolve(pair: [(&Setting, Made); 2]) -> Settings {
    let in_environment = pair.iter().filter(|(_, made)| made.in_environment);
    let variables: Vec<_> = in_environment.flat_map(|(setting, _)| setting.variables).copied().collect();
    let in_code = pair.iter().filter(|(_, made)| made.in_code);
    in_code.fold(Otlp::new(environment(&variables)), |otlp, (setting, _)| (setting.code)(otlp)).settings()
}

#[test]
fn code_goes_before_the_environment_and_that_before_the_default() {
    let mut checked = 0;
    // Each pair comes in both orders.
    let pairs = SETTINGS.iter().flat_map(|one| SETTINGS.iter().map(move |other| (one, other)));
    for (one, other) in pairs.filter(|(one, other)| one.name != other.name) {
        for (first, second) in Made::ALL.into_iter().flat_map(|first| Made::ALL.map(|second| (first, second))) {
            let pair = [(one, first), (other, second)];
            let settings = resolve(pair);
            assert_eq!((&settings.invalid, settings.ignored.len()), (&None, 0));
            for (setting, made) in pair {
                let source = (setting.source)(&settings);
                let is_expected = source.split(" or ").any(|source| source == made.expected());
                let of = [(one.name, first), (other.name, second)];
                assert!(is_expected, "{} is made by {source} in {of:?}", setting.name);
                checked += 1;
            }
        }
    }
    // 22 rows, of which four settings have two.
    assert_eq!(checked, (22 * 21 - 4 * 2) * 16 * 2);
}

#[test]
fn another_protocol_keeps_the_address() {
    let otlp = || Otlp::new(environment(&[]));
    for otlp in
        [otlp().endpoint("http://c:1").protocol(Protocol::Grpc), otlp().protocol(Protocol::Grpc).endpoint("http://c:1")]
    {
        let settings = otlp.settings();
        assert_eq!(settings.traces.unwrap().url.as_str(), "http://c:1");
        assert_eq!(settings.metrics.unwrap().url.as_str(), "http://c:1");
    }
}

#[test]
fn code_turns_on_what_the_environment_turns_off() {
    let sent = |otlp: Otlp| {
        let settings = otlp.settings();
        [settings.traces.is_some(), settings.metrics.is_some()]
    };
    let disabled = || Otlp::new(environment(&[("OTEL_SDK_DISABLED", "true")]));
    assert_eq!(sent(disabled()), [false, false]);
    assert_eq!(sent(disabled().traces(true)), [true, false]);
    assert_eq!(sent(disabled().metrics(true)), [false, true]);
    let unlisted = Otlp::new(environment(&[("OTEL_TRACES_EXPORTER", "console"), ("OTEL_METRICS_EXPORTER", "none")]));
    assert_eq!(sent(unlisted.metrics(true).traces(true)), [true, true]);
}

#[test]
fn the_last_call_counts() {
    let otlp = Otlp::new(environment(&[])).parent("here").parent(PARENT).traces(false).traces(true);
    let settings = otlp.settings();
    assert_eq!((settings.parent, settings.invalid), (Parent::parse(PARENT), None));
    assert!(settings.traces.is_some());
}

/// The name of the service can be set in four places.
#[test]
fn the_setter_of_the_service_goes_before_the_attribute() {
    let variables = [("OTEL_SERVICE_NAME", "variable"), ("OTEL_RESOURCE_ATTRIBUTES", "service.name=attribute")];
    let otlp = |variables| Otlp::new(environment(variables));
    let service = |otlp: Otlp| {
        let settings = otlp.settings();
        assert!(!settings.resource.contains_key("service.name"));
        settings.service.unwrap()
    };
    assert_eq!(service(otlp(&variables[1..])), "attribute");
    assert_eq!(service(otlp(&variables)), "variable");
    assert_eq!(service(otlp(&variables).resource("service.name", "resource")), "resource");
    assert_eq!(service(otlp(&variables).resource("service.name", "resource").service("setter")), "setter");
    assert_eq!(service(otlp(&variables).service("setter").resource("service.name", "resource")), "setter");
}

#[test]
fn zero_means_the_default_in_code_and_in_the_environment() {
    let zero = [("OTEL_EXPORTER_OTLP_TIMEOUT", "0"), ("OTEL_METRIC_EXPORT_INTERVAL", "0")];
    let set = [("OTEL_EXPORTER_OTLP_TIMEOUT", "1"), ("OTEL_METRIC_EXPORT_INTERVAL", "1")];
    let code = |variables| {
        Otlp::new(environment(variables)).answer_within(Duration::ZERO).metrics_every(Duration::ZERO).settings()
    };
    for settings in [Otlp::new(environment(&zero)).settings(), code(&[]), code(&set)] {
        assert_eq!(settings.metrics_every, Otlp::METRICS_EVERY);
        assert_eq!(settings.traces.unwrap().timeout, Otlp::ANSWER_WITHIN);
    }
}
