use crate::{
    endpoint::{Headers, Protocol, Signal, Url},
    ids::Parent,
    run_trace::Sampler,
};
use percent_encoding::percent_decode_str;
use std::{borrow::Cow, collections::BTreeMap, path::PathBuf, time::Duration};

/// The attribute of a resource that names the service.
pub(crate) const SERVICE_NAME: &str = "service.name";

/// The settings from OpenTelemetry's environment variables. A variable that is unset, empty or invalid is `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    pub(crate) traces: SignalVariables,
    pub(crate) metrics: SignalVariables,
    pub(crate) disabled: bool,
    pub(crate) service: Option<String>,
    pub(crate) resource: BTreeMap<String, String>,
    pub(crate) parent: Option<Parent>,
    pub(crate) sampler: Option<Sampler>,
    pub(crate) metrics_every: Option<Duration>,
    /// Whether counters and histograms start over after each export.
    pub(crate) delta: Option<bool>,
    pub(crate) exemplars: Option<bool>,
    /// The maximum length of an attribute's text, in bytes.
    pub(crate) text_limit: Option<usize>,
    /// Ignored variables, and why.
    pub(crate) ignored: Vec<String>,
}

/// The variables of one signal: those named after it, or else those for all signals.
#[derive(Clone, Debug, Default)]
pub(crate) struct SignalVariables {
    /// Whether the list in `OTEL_TRACES_EXPORTER` or `OTEL_METRICS_EXPORTER` contains `otlp`.
    pub(crate) wanted: Option<bool>,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) address: Option<Address>,
    /// Whether an address without a scheme means no TLS.
    pub(crate) insecure: Option<bool>,
    pub(crate) headers: Headers,
    pub(crate) timeout: Option<Duration>,
    pub(crate) gzip: Option<bool>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) client_certificate: Option<PathBuf>,
    pub(crate) client_key: Option<PathBuf>,
}

/// The address of a collector.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`. Over HTTP, each signal has a path below it.
    AllSignals(Url),
    /// A variable of one signal, such as `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, which is used unchanged.
    OneSignal(Url),
}

impl Environment {
    /// Reads the environment of this process.
    pub(crate) fn of_this_process() -> Self {
        Self::read(|name| std::env::var(name).ok())
    }

    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut reader = Reader { variable: &variable, ignored: Vec::new() };
        let mut resource: BTreeMap<_, _> = reader.pairs("OTEL_RESOURCE_ATTRIBUTES").into_iter().collect();
        let service_attribute = resource.remove(SERVICE_NAME);
        let limits = ["OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"];
        let text_limit = limits.into_iter().find_map(|name| reader.number(name));
        Self {
            traces: reader.signal(Signal::Traces),
            metrics: reader.signal(Signal::Metrics),
            disabled: reader.choice("OTEL_SDK_DISABLED", &[("true", true), ("false", false)]).unwrap_or(false),
            service: reader.text("OTEL_SERVICE_NAME").or(service_attribute),
            resource,
            parent: reader.parent(),
            sampler: reader.sampler(),
            metrics_every: reader.millis("OTEL_METRIC_EXPORT_INTERVAL"),
            // For counters and histograms, `lowmemory` is delta.
            delta: reader.choice(
                "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
                &[("cumulative", false), ("delta", true), ("lowmemory", true)],
            ),
            exemplars: reader.choice(
                "OTEL_METRICS_EXEMPLAR_FILTER",
                &[("always_on", true), ("always_off", false), ("trace_based", true)],
            ),
            text_limit: text_limit.and_then(|limit| usize::try_from(limit).ok()),
            ignored: reader.ignored,
        }
    }
}

/// Reads variables, and notes those that are invalid.
struct Reader<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    ignored: Vec<String>,
}

impl Reader<'_> {
    /// The value of a variable. In OpenTelemetry, an empty variable counts as unset.
    fn text(&self, name: &str) -> Option<String> {
        (self.variable)(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Notes a problem once: a variable may be read for both signals.
    fn ignore(&mut self, problem: String) {
        if !self.ignored.contains(&problem) {
            self.ignored.push(problem);
        }
    }

    fn invalid<T>(&mut self, name: &str, text: &str, expected: &str) -> Option<T> {
        self.ignore(format!("invalid {name} {text:?}: expected {expected}"));
        None
    }

    /// One of a few values, in upper or lower case.
    fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text(name)?.to_ascii_lowercase();
        let chosen = choices.iter().find(|(choice, _)| *choice == text).map(|(_, value)| *value);
        let names = || choices.iter().map(|(choice, _)| *choice).collect::<Vec<_>>().join(" or ");
        chosen.or_else(|| self.invalid(name, &text, &names()))
    }

    fn number(&mut self, name: &str) -> Option<u64> {
        let text = self.text(name)?;
        text.parse().ok().or_else(|| self.invalid(name, &text, "a whole number"))
    }

    fn millis(&mut self, name: &str) -> Option<Duration> {
        self.number(name).map(Duration::from_millis)
    }

    /// `key=value,key=value`, in which values are percent-encoded.
    fn pairs(&mut self, name: &str) -> Vec<(String, String)> {
        let Some(text) = self.text(name) else { return Vec::new() };
        let mut pairs = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let decode = |value: &str| percent_decode_str(value.trim()).decode_utf8().ok().map(Cow::into_owned);
            match pair.split_once('=').map(|(key, value)| (key.trim(), decode(value))) {
                Some((key, Some(value))) if !key.is_empty() => pairs.push((key.to_owned(), value)),
                // The text is left out: headers may be secrets.
                _ => self.ignore(format!("invalid {name}: expected key=value,key=value")),
            }
        }
        pairs
    }

    fn parent(&mut self) -> Option<Parent> {
        let name = "TRACEPARENT";
        let text = self.text(name)?;
        Parent::parse(&text).or_else(|| {
            self.ignore(Parent::invalid(name, &text));
            None
        })
    }

    fn sampler(&mut self) -> Option<Sampler> {
        let (name, argument) = ("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG");
        let sampler = self.text(name)?.to_ascii_lowercase();
        let share = match self.text(argument) {
            Some(text) if sampler.contains("ratio") => {
                let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                share.or_else(|| self.invalid(argument, &text, "a number from 0 to 1")).unwrap_or(1.0)
            }
            _ => 1.0,
        };
        Sampler::named(&sampler, share).or_else(|| {
            self.invalid(name, &sampler, "always_on, always_off or traceidratio, or one of these after parentbased_")
        })
    }

    fn signal(&mut self, signal: Signal) -> SignalVariables {
        let exporter = match signal {
            Signal::Traces => "OTEL_TRACES_EXPORTER",
            Signal::Metrics => "OTEL_METRICS_EXPORTER",
        };
        // Other names in the list are for other exporters.
        let has_otlp = |list: String| list.split(',').any(|name| name.trim().eq_ignore_ascii_case("otlp"));
        let protocols = [("http/protobuf", Protocol::HttpProtobuf), ("grpc", Protocol::Grpc)];
        let mut file = |name| self.either(signal, name, |reader, name| reader.text(name).map(PathBuf::from));
        let (certificate, client_certificate) = (file("CERTIFICATE"), file("CLIENT_CERTIFICATE"));
        let client_key = file("CLIENT_KEY");
        let compressions = [("gzip", true), ("none", false)];
        let own_address = self.text(&own_name(signal, "ENDPOINT")).map(|url| Address::OneSignal(Url::new(url)));
        let address = self.text(&common_name("ENDPOINT")).map(|url| Address::AllSignals(Url::new(url)));
        let pairs = |reader: &mut Self, name: &str| Some(reader.pairs(name)).filter(|pairs| !pairs.is_empty());
        SignalVariables {
            wanted: self.text(exporter).map(has_otlp),
            protocol: self.either(signal, "PROTOCOL", |reader, name| reader.choice(name, &protocols)),
            address: own_address.or(address),
            insecure: self.either(signal, "INSECURE", |reader, name| {
                reader.text(name).map(|text| text.eq_ignore_ascii_case("true"))
            }),
            headers: Headers(self.either(signal, "HEADERS", pairs).unwrap_or_default()),
            timeout: self.either(signal, "TIMEOUT", Self::millis),
            gzip: self.either(signal, "COMPRESSION", |reader, name| reader.choice(name, &compressions)),
            certificate,
            client_certificate,
            client_key,
        }
    }

    /// Reads the variable of the signal. If it is unset or invalid, reads the one for all signals.
    fn either<T>(&mut self, signal: Signal, name: &str, read: impl Fn(&mut Self, &str) -> Option<T>) -> Option<T> {
        read(self, &own_name(signal, name)).or_else(|| read(self, &common_name(name)))
    }
}

/// The name of a variable of one signal.
fn own_name(signal: Signal, name: &str) -> String {
    let signal = match signal {
        Signal::Traces => "TRACES",
        Signal::Metrics => "METRICS",
    };
    format!("OTEL_EXPORTER_OTLP_{signal}_{name}")
}

/// The name of a variable for all signals.
fn common_name(name: &str) -> String {
    format!("OTEL_EXPORTER_OTLP_{name}")
}
