//! Where to send and how, as OpenTelemetry's own environment variables say it, and the user's code over them.

#[cfg(test)]
mod tests;

use super::{ids::Parent, sampling::Sampler, transport::Signal};
use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

/// How requests are sent to a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// `http/protobuf`: a POST for each request, by default to port 4318.
    HttpProtobuf,
    /// `grpc`, by default to port 4317. It needs the feature `otlp-grpc`.
    Grpc,
}

/// What of GPUs is sent in traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GpuSpans {
    /// For each span, how many kernels and copies it caused, how long the GPU was busy with them, and which took longest.
    #[default]
    Aggregate,
    /// That, and a span for each kernel, copy and fill, in the span that was open when it was launched.
    Kernels,
    /// Nothing but what is said of a step.
    Off,
}

/// Where one signal goes.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) protocol: Protocol,
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) timeout: Duration,
    pub(super) gzip: bool,
    pub(super) certificate: Option<PathBuf>,
    pub(super) client_certificate: Option<PathBuf>,
    pub(super) client_key: Option<PathBuf>,
}

/// What the environment says.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Not where it is turned off.
    pub(super) traces: Option<Endpoint>,
    pub(super) metrics: Option<Endpoint>,
    pub(super) service: Option<String>,
    pub(super) resource: BTreeMap<String, String>,
    pub(super) parent: Option<Parent>,
    pub(super) sampler: Sampler,
    pub(super) metrics_every: Duration,
    pub(super) delta: bool,
    pub(super) exemplars: bool,
    /// The longest text of an attribute, in bytes.
    pub(super) text_limit: usize,
    /// What it says that makes no sense, and is passed over.
    pub(super) problems: Vec<String>,
}

impl Settings {
    const METRICS_EVERY: Duration = Duration::from_secs(60);
    pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

    pub(super) fn from_env() -> Self {
        Self::read(|name| std::env::var(name).ok())
    }

    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut reader = Reader { variable: &variable, problems: Vec::new() };
        let disabled = reader.boolean("OTEL_SDK_DISABLED");
        let traces = reader.endpoint(Signal::Traces).filter(|_| !disabled);
        let metrics = reader.endpoint(Signal::Metrics).filter(|_| !disabled);
        let mut resource: BTreeMap<_, _> = reader.pairs("OTEL_RESOURCE_ATTRIBUTES").into_iter().collect();
        let in_resource = resource.remove("service.name");
        let parent = reader.said("TRACEPARENT").and_then(|text| {
            Parent::parse(&text).or_else(|| reader.complain("TRACEPARENT", &text, "no W3C traceparent"))
        });
        let metrics_every = reader.millis("OTEL_METRIC_EXPORT_INTERVAL").filter(|every| !every.is_zero());
        let preference = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";
        let delta = match reader.lower(preference).as_deref() {
            // Where counters are concerned, low memory is delta.
            Some("delta" | "lowmemory") => true,
            None | Some("cumulative") => false,
            Some(other) => reader.complain(preference, other, "cumulative, delta or lowmemory").unwrap_or(false),
        };
        let filter = "OTEL_METRICS_EXEMPLAR_FILTER";
        let exemplars = match reader.lower(filter).as_deref() {
            Some("always_off") => false,
            None | Some("trace_based" | "always_on") => true,
            Some(other) => reader.complain(filter, other, "always_on, always_off or trace_based").unwrap_or(true),
        };
        let limits = ["OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"];
        let text_limit = limits.into_iter().find_map(|name| reader.number(name));
        Self {
            traces,
            metrics,
            service: reader.said("OTEL_SERVICE_NAME").or(in_resource),
            resource,
            parent,
            sampler: reader.sampler(),
            metrics_every: metrics_every.unwrap_or(Self::METRICS_EVERY),
            delta,
            exemplars,
            text_limit: text_limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX),
            problems: reader.problems,
        }
    }
}

impl Endpoint {
    /// The address for people to read, without what may be a secret in it: a password, a query.
    pub(super) fn shown(&self) -> String {
        let address = self.url.split(['?', '#']).next().unwrap_or_default();
        let (scheme, rest) = address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let host = host.rsplit('@').next().unwrap_or_default();
        format!("{scheme}{}{host}{path}", if scheme.is_empty() { "" } else { "://" })
    }
}

/// Without the values of headers, which may be secrets.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, timeout, gzip, certificate, client_certificate, client_key, .. } = self;
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Endpoint")
            .field("protocol", protocol)
            .field("url", &self.shown())
            .field("headers", &headers)
            .field("timeout", timeout)
            .field("gzip", gzip)
            .field("certificate", certificate)
            .field("client_certificate", client_certificate)
            .field("client_key", client_key)
            .finish()
    }
}

impl Protocol {
    pub(super) fn default_url(self) -> &'static str {
        match self {
            Self::HttpProtobuf => "http://localhost:4318",
            Self::Grpc => "http://localhost:4317",
        }
    }

    /// Where a signal goes, below a collector's address.
    pub(super) fn url(self, base: &str, signal: Signal) -> String {
        let path = match (self, signal) {
            // The service is in the request.
            (Self::Grpc, _) => return base.to_owned(),
            (Self::HttpProtobuf, Signal::Traces) => "v1/traces",
            (Self::HttpProtobuf, Signal::Metrics) => "v1/metrics",
        };
        format!("{}/{path}", base.trim_end_matches('/'))
    }
}

/// Reads variables, and notes what makes no sense.
struct Reader<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    problems: Vec<String>,
}

impl Reader<'_> {
    /// An empty variable is as good as none.
    fn said(&self, name: &str) -> Option<String> {
        (self.variable)(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    fn lower(&self, name: &str) -> Option<String> {
        self.said(name).map(|text| text.to_ascii_lowercase())
    }

    /// The variable of the signal, or else the one for all.
    fn of_signal(&self, signal: Signal, name: &str) -> Option<(String, String)> {
        let signal = match signal {
            Signal::Traces => "TRACES",
            Signal::Metrics => "METRICS",
        };
        let names = [format!("OTEL_EXPORTER_OTLP_{signal}_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
        names.into_iter().find_map(|name| self.said(&name).map(|text| (name, text)))
    }

    /// The same, of something that is one of a few, in whatever case it is written.
    fn choice(&self, signal: Signal, name: &str) -> Option<(String, String)> {
        self.of_signal(signal, name).map(|(name, text)| (name, text.to_ascii_lowercase()))
    }

    /// Once, though a variable may be read for both signals.
    fn note(&mut self, problem: String) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn complain<T>(&mut self, name: &str, text: &str, wanted: &str) -> Option<T> {
        self.note(format!("{name} is {text:?}, not {wanted}"));
        None
    }

    fn boolean(&mut self, name: &str) -> bool {
        match self.lower(name).as_deref() {
            Some("true") => true,
            None | Some("false") => false,
            Some(other) => self.complain(name, other, "true or false").unwrap_or(false),
        }
    }

    fn number(&mut self, name: &str) -> Option<u64> {
        let text = self.said(name)?;
        text.parse().ok().or_else(|| self.complain(name, &text, "a number"))
    }

    fn millis(&mut self, name: &str) -> Option<Duration> {
        self.number(name).map(Duration::from_millis)
    }

    /// `key=value,key=value`, with `%20` and its like in the values.
    fn pairs(&mut self, name: &str) -> Vec<(String, String)> {
        let Some(text) = self.said(name) else { return Vec::new() };
        let mut pairs = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').map(|(key, value)| (key.trim(), unescape(value.trim()))) {
                Some((key, Some(value))) if !key.is_empty() => pairs.push((key.to_owned(), value)),
                // Not what it is: headers may be secrets.
                _ => self.note(format!("{name} is not a list of key=value")),
            }
        }
        pairs
    }

    fn endpoint(&mut self, signal: Signal) -> Option<Endpoint> {
        let exporter = match signal {
            Signal::Traces => "OTEL_TRACES_EXPORTER",
            Signal::Metrics => "OTEL_METRICS_EXPORTER",
        };
        // Other exporters are for others: only that this one is not wanted is of interest.
        let exporters = self.lower(exporter);
        if exporters.is_some_and(|list| !list.split(',').any(|name| name.trim() == "otlp")) {
            return None;
        }
        let protocol = match self.choice(signal, "PROTOCOL").as_ref().map(|(name, text)| (name, text.as_str())) {
            None | Some((_, "http/protobuf")) => Protocol::HttpProtobuf,
            Some((_, "grpc")) => Protocol::Grpc,
            Some((name, other)) => {
                self.complain(name, other, "http/protobuf or grpc").unwrap_or(Protocol::HttpProtobuf)
            }
        };
        let url = match self.of_signal(signal, "ENDPOINT") {
            None => protocol.url(protocol.default_url(), signal),
            Some((name, base)) if name == "OTEL_EXPORTER_OTLP_ENDPOINT" => protocol.url(&base, signal),
            // An address of one signal is taken as it is.
            Some((_, url)) => url,
        };
        let headers = self.of_signal(signal, "HEADERS").map(|(name, _)| self.pairs(&name)).unwrap_or_default();
        let timeout = self.of_signal(signal, "TIMEOUT").and_then(|(name, _)| self.millis(&name));
        let gzip = match self.choice(signal, "COMPRESSION").as_ref().map(|(name, text)| (name, text.as_str())) {
            None | Some((_, "none")) => false,
            Some((_, "gzip")) => true,
            Some((name, other)) => self.complain(name, other, "gzip or none").unwrap_or(false),
        };
        let file = |name| self.of_signal(signal, name).map(|(_, path)| PathBuf::from(path));
        Some(Endpoint {
            protocol,
            headers,
            // Zero is without limit, which a run that ends cannot wait for.
            timeout: timeout.filter(|timeout| !timeout.is_zero()).unwrap_or(Settings::TIMEOUT),
            gzip,
            certificate: file("CERTIFICATE"),
            client_certificate: file("CLIENT_CERTIFICATE"),
            client_key: file("CLIENT_KEY"),
            url: match self.of_signal(signal, "INSECURE").map(|(_, text)| text.eq_ignore_ascii_case("true")) {
                // Of gRPC alone, and of addresses that do not say it themselves.
                Some(insecure) if protocol == Protocol::Grpc && !url.contains("://") => {
                    format!("{}://{url}", if insecure { "http" } else { "https" })
                }
                None if protocol == Protocol::Grpc && !url.contains("://") => format!("https://{url}"),
                _ => url,
            },
        })
    }

    fn sampler(&mut self) -> Sampler {
        let (name, argument) = ("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG");
        let Some(sampler) = self.lower(name) else { return Sampler::default() };
        let share = match self.said(argument) {
            Some(text) if sampler.contains("ratio") => {
                let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                share.or_else(|| self.complain(argument, &text, "a number from 0 to 1")).unwrap_or(1.0)
            }
            _ => 1.0,
        };
        Sampler::named(&sampler, share)
            .or_else(|| self.complain(name, &sampler, "a sampler of OpenTelemetry's"))
            .unwrap_or_default()
    }
}

/// Text with `%20` and its like put right; none if it is no text.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = (*first == b'%').then(|| after.get(..2)).flatten().and_then(|hex| std::str::from_utf8(hex).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}
