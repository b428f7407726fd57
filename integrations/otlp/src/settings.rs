#[cfg(test)]
mod tests;

use crate::{
    endpoint::{Endpoint, Headers, Protocol, Signal, Url},
    environment::{Address, Environment, SERVICE_NAME, SignalVariables},
    ids::Parent,
    options::{GpuSpans, Options},
    run_trace::Sampler,
};
use std::{collections::BTreeMap, time::Duration};

/// The settings of a run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// `None` if traces are not sent.
    pub(crate) traces: Option<Endpoint>,
    /// `None` if metrics are not sent.
    pub(crate) metrics: Option<Endpoint>,
    /// `service.name`; `None` if neither code nor environment sets it.
    pub(crate) service: Option<String>,
    /// The other attributes set in code and environment.
    pub(crate) resource: BTreeMap<String, String>,
    pub(crate) parent: Option<Parent>,
    pub(crate) sampler: Sampler,
    pub(crate) metrics_every: Duration,
    /// Whether counters and histograms start over after each export.
    pub(crate) delta: bool,
    pub(crate) exemplars: bool,
    /// The maximum length of an attribute's text, in bytes.
    pub(crate) text_limit: usize,
    pub(crate) gpu: GpuSpans,
    pub(crate) kernels_per_trace: usize,
    pub(crate) samples_per_step: Option<u64>,
    pub(crate) buffer_bytes: usize,
    pub(crate) finish_within: Duration,
    /// Environment variables that were ignored, and why.
    pub(crate) ignored: Vec<String>,
    /// An invalid setting in the program's code, because of which nothing is sent.
    pub(crate) invalid: Option<String>,
}

impl Settings {
    pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(10);
    pub(crate) const METRICS_EVERY: Duration = Duration::from_secs(60);
    pub(crate) const KERNELS_PER_TRACE: usize = 10_000;
    pub(crate) const BUFFER_BYTES: usize = 64 << 20;
    pub(crate) const FINISH_WITHIN: Duration = Duration::from_secs(5);

    /// Resolves every setting: what the program's code says, or else the environment, or else the default.
    pub(crate) fn resolve(options: &Options, environment: &Environment) -> Self {
        let endpoint = |signal, wanted: Option<bool>, variables: &SignalVariables| {
            let wanted = wanted.unwrap_or(variables.wanted.unwrap_or(true) && !environment.disabled);
            wanted.then(|| resolve_endpoint(signal, options, variables))
        };
        let parent =
            options.parent.as_deref().map(|text| Parent::parse(text).ok_or_else(|| Parent::invalid("parent", text)));
        let (parent, invalid) = match parent {
            Some(Ok(parent)) => (Some(parent), None),
            Some(Err(problem)) => (environment.parent, Some(problem)),
            None => (environment.parent, None),
        };
        let mut resource = environment.resource.clone();
        resource.extend(options.resource.clone());
        // OpenTelemetry has two variables for the name, and the resource is the weaker one; the same order applies in
        // code.
        let service = options.service.clone().or(resource.remove(SERVICE_NAME));
        Self {
            traces: endpoint(Signal::Traces, options.traces, &environment.traces),
            metrics: endpoint(Signal::Metrics, options.metrics, &environment.metrics),
            service: service.or_else(|| environment.service.clone()),
            resource,
            parent,
            sampler: environment.sampler.unwrap_or_default(),
            metrics_every: first_or(options.metrics_every, environment.metrics_every, Self::METRICS_EVERY),
            delta: environment.delta.unwrap_or(false),
            exemplars: environment.exemplars.unwrap_or(true),
            text_limit: environment.text_limit.unwrap_or(usize::MAX),
            gpu: options.gpu.unwrap_or_default(),
            kernels_per_trace: options.kernels_per_trace.unwrap_or(Self::KERNELS_PER_TRACE),
            samples_per_step: options.samples_per_step,
            buffer_bytes: options.buffer_bytes.unwrap_or(Self::BUFFER_BYTES),
            finish_within: options.finish_within.unwrap_or(Self::FINISH_WITHIN),
            ignored: environment.ignored.clone(),
            invalid,
        }
    }
}

/// The time from code, or else from the environment, or else the default, which zero also means.
fn first_or(code: Option<Duration>, environment: Option<Duration>, default: Duration) -> Duration {
    code.or(environment).filter(|time| !time.is_zero()).unwrap_or(default)
}

fn resolve_endpoint(signal: Signal, options: &Options, variables: &SignalVariables) -> Endpoint {
    let protocol = options.protocol.or(variables.protocol).unwrap_or(Protocol::HttpProtobuf);
    let url = match (&options.endpoint, &variables.address) {
        (Some(address), _) => Url::new(protocol.url(address.as_str(), signal)),
        (None, Some(address)) => variable_url(address, protocol, signal, variables.insecure),
        (None, None) => Url::new(protocol.url(protocol.default_address(), signal)),
    };
    let mut headers = variables.headers.0.clone();
    headers.extend(options.headers.0.iter().cloned());
    let (client_certificate, client_key) = match options.client_certificate.clone() {
        Some((certificate, key)) => (Some(certificate), Some(key)),
        None => (variables.client_certificate.clone(), variables.client_key.clone()),
    };
    Endpoint {
        protocol,
        url,
        headers: Headers(headers),
        // Zero means no limit in OpenTelemetry, but the end of a run cannot wait forever.
        timeout: first_or(options.answer_within, variables.timeout, Settings::ANSWER_WITHIN),
        gzip: options.gzip.or(variables.gzip).unwrap_or(false),
        certificate: options.certificate.clone().or_else(|| variables.certificate.clone()),
        client_certificate,
        client_key,
    }
}

/// The URL from an environment variable. With gRPC, OpenTelemetry allows an address without `http://` or `https://`.
fn variable_url(address: &Address, protocol: Protocol, signal: Signal, insecure: Option<bool>) -> Url {
    let url = match address {
        Address::AllSignals(address) => protocol.url(address.as_str(), signal),
        Address::OneSignal(url) => url.as_str().to_owned(),
    };
    if protocol == Protocol::Grpc && !url.contains("://") {
        let scheme = if insecure == Some(true) { "http" } else { "https" };
        return Url::new(format!("{scheme}://{url}"));
    }
    Url::new(url)
}
