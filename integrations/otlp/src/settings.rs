#[cfg(test)]
mod tests;

use crate::{
    endpoint::Endpoint,
    environment::{Address, Environment, SignalVariables},
    gpu_spans::GpuSpans,
    ids::Parent,
    options::Options,
    protocol::Protocol,
    sampler::Sampler,
    secret::{Headers, Url},
    signal::Signal,
};
use std::{collections::BTreeMap, time::Duration};

/// The settings that a run is sent with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// `None` if traces are not sent.
    pub(crate) traces: Option<Endpoint>,
    /// `None` if metrics are not sent.
    pub(crate) metrics: Option<Endpoint>,
    pub(crate) service: Option<String>,
    pub(crate) resource: BTreeMap<String, String>,
    pub(crate) parent: Option<Parent>,
    pub(crate) sampler: Sampler,
    pub(crate) metrics_every: Duration,
    /// Whether counters and histograms begin again after each export.
    pub(crate) delta: bool,
    pub(crate) exemplars: bool,
    /// The longest text of an attribute, in bytes.
    pub(crate) text_limit: usize,
    pub(crate) gpu: GpuSpans,
    pub(crate) kernels_per_trace: usize,
    pub(crate) samples_per_step: Option<u64>,
    pub(crate) buffer: usize,
    pub(crate) finish_within: Duration,
    /// Environment variables that were ignored, and why.
    pub(crate) ignored: Vec<String>,
    /// An invalid setting in the program's code, with which nothing is sent.
    pub(crate) invalid: Option<String>,
}

impl Settings {
    pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
    pub(crate) const METRICS_EVERY: Duration = Duration::from_secs(60);
    pub(crate) const KERNELS_PER_TRACE: usize = 10_000;
    pub(crate) const BUFFER: usize = 64 << 20;
    pub(crate) const FINISH_WITHIN: Duration = Duration::from_secs(5);

    /// Decides every setting: what the program's code says, or else the environment, or else the default.
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
        Self {
            traces: endpoint(Signal::Traces, options.traces, &environment.traces),
            metrics: endpoint(Signal::Metrics, options.metrics, &environment.metrics),
            service: options.service.clone().or_else(|| environment.service.clone()),
            resource,
            parent,
            sampler: environment.sampler.unwrap_or_default(),
            metrics_every: options.metrics_every.or(environment.metrics_every).unwrap_or(Self::METRICS_EVERY),
            delta: environment.delta.unwrap_or(false),
            exemplars: environment.exemplars.unwrap_or(true),
            text_limit: environment.text_limit.unwrap_or(usize::MAX),
            gpu: options.gpu.unwrap_or_default(),
            kernels_per_trace: options.kernels_per_trace.unwrap_or(Self::KERNELS_PER_TRACE),
            samples_per_step: options.samples_per_step,
            buffer: options.buffer.unwrap_or(Self::BUFFER),
            finish_within: options.finish_within.unwrap_or(Self::FINISH_WITHIN),
            ignored: environment.ignored.clone(),
            invalid,
        }
    }
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
    let timeout = options.timeout.or(variables.timeout);
    Endpoint {
        protocol,
        url,
        headers: Headers(headers),
        // Zero means no limit in OpenTelemetry, but the end of a run cannot wait for ever.
        timeout: timeout.filter(|timeout| !timeout.is_zero()).unwrap_or(Settings::TIMEOUT),
        gzip: options.gzip.or(variables.gzip).unwrap_or(false),
        certificate: options.certificate.clone().or_else(|| variables.certificate.clone()),
        client_certificate,
        client_key,
    }
}

/// The URL that an environment variable says. With gRPC, OpenTelemetry allows an address without `http://` or
/// `https://`.
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
