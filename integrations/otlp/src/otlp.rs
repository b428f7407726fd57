use crate::{
    endpoint::{Protocol, Url},
    environment::Environment,
    options::{GpuSpans, Options},
    run_trace::RunTrace,
    sending::{NotStarted, Sending, StepSender},
    settings::Settings,
};
use kernspan::{
    Exporter,
    analysis::Analysis,
    export::{ExportResult, Run, RunId, StepExporter},
    trace::{Metadata, Timestamp},
};
use std::{path::PathBuf, sync::Arc, time::Duration};

/// Sends recorded steps as traces, and metrics of all steps, to an OpenTelemetry collector.
///
/// ```no_run
/// use kernspan::{Profiler, Schedule};
/// use kernspan_otlp::{GpuSpans, Otlp};
///
/// let (layer, profiler) = Profiler::builder()
///     .schedule(Schedule::new().wait(500).warmup(1).active(2))
///     .export(Otlp::from_env().service("mnist").gpu(GpuSpans::Kernels).samples_per_step(64))
///     .build()?;
/// # drop(layer);
/// # profiler.finish()?;
/// # Ok::<(), kernspan::Error>(())
/// ```
///
/// Settings take effect when the run begins: what the code says, or else the environment, or else the default. The
/// order of the calls does not matter.
///
#[doc = include_str!("../docs/traces.md")]
#[doc = include_str!("../docs/metrics.md")]
///
/// # Environment
///
/// Each setter names the variable it overrides. The `OTEL_EXPORTER_OTLP_…` variables also exist per signal, with
/// `TRACES_` or `METRICS_` after `OTLP_`. These have no setter:
///
/// | variable | is |
/// |---|---|
/// | `OTEL_EXPORTER_OTLP_INSECURE` | whether a variable's address without a scheme means `http`; only with gRPC |
/// | `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG` | which traces are sent |
/// | `OTEL_METRICS_EXEMPLAR_FILTER` | `always_off`: metrics without links to traces |
/// | `OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE` | `delta` or `cumulative` |
/// | `OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT` | the longest text of an attribute, in bytes |
///
/// The variables of the batch span processor (`OTEL_BSP_*`) are not used. An invalid variable is ignored, as
/// OpenTelemetry's specification requires, and [`Report::deliveries`](kernspan::Report::deliveries) names it. If it
/// belongs to one signal, the one for all signals is used.
///
/// # Losses
///
/// The training never waits for the collector. Requests are built and sent on background threads, from a bounded
/// buffer. A request that fails is retried for a minute, with growing pauses. Lost spans and points are counted by
/// cause: in [`Report::deliveries`](kernspan::Report::deliveries), in the metrics, and on the next steps that are sent.
///
/// | cause | is |
/// |---|---|
/// | `no_room` | the [buffer](Self::buffer_bytes) was full |
/// | `rejected` | the collector took the request, but rejected a part of it |
/// | `refused` | the collector refused the request, and would refuse it again |
/// | `unreachable` | the request could not be sent for a minute, or nothing was listening when the run ended |
/// | `too_late` | the [time to finish](Self::finish_within) was over |
#[derive(Clone, Debug)]
#[must_use = "an exporter does nothing until it is given to `ProfilerBuilder::export`"]
pub struct Otlp {
    options: Options,
    environment: Environment,
    /// Distinguishes this run from others, if no launcher named it.
    created: Timestamp,
    progress: Progress,
}

#[derive(Clone, Debug)]
enum Progress {
    NotStarted,
    Sending(Arc<Sending>),
    /// The run could not be started, which has been reported.
    Failed,
}

impl Otlp {
    /// How many spans of kernels and copies a trace may have.
    pub const KERNELS_PER_TRACE: usize = Settings::KERNELS_PER_TRACE;
    /// How many bytes of traces, and of metrics, may be queued: 64 MiB each, enough for about 200,000 kernels.
    pub const BUFFER_BYTES: usize = Settings::BUFFER_BYTES;
    /// How long the end of a run waits for unsent requests: 5 s.
    pub const FINISH_WITHIN: Duration = Settings::FINISH_WITHIN;
    /// How long to wait for the answer to a request: 10 s.
    pub const ANSWER_WITHIN: Duration = Settings::ANSWER_WITHIN;
    /// How often metrics are sent: every minute.
    pub const METRICS_EVERY: Duration = Settings::METRICS_EVERY;

    /// Creates an exporter with the settings of OpenTelemetry's environment variables. By default, it sends to
    /// `http://localhost:4318`.
    pub fn from_env() -> Self {
        Self::new(Environment::of_this_process())
    }

    pub(crate) fn new(environment: Environment) -> Self {
        let (options, created) = (Options::default(), Timestamp::now());
        Self { options, environment, created, progress: Progress::NotStarted }
    }

    /// Sets the address of the collector, such as `http://localhost:4318`. Over HTTP, traces go to `/v1/traces` below
    /// it, and metrics to `/v1/metrics`.
    ///
    /// By default, `OTEL_EXPORTER_OTLP_ENDPOINT`, or this machine at the port of the protocol.
    pub fn endpoint(mut self, address: impl AsRef<str>) -> Self {
        self.options.endpoint = Some(Url::new(address.as_ref()));
        self
    }

    /// Sets the protocol.
    ///
    /// By default, `OTEL_EXPORTER_OTLP_PROTOCOL`, or [`Protocol::HttpProtobuf`].
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.options.protocol = Some(protocol);
        self
    }

    /// Adds a header to every request, such as a token. It replaces one of the same name from the environment.
    ///
    /// By default, the headers are those of `OTEL_EXPORTER_OTLP_HEADERS`.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.headers.0.push((name.into(), value.into()));
        self
    }

    /// Sets whether requests are compressed.
    ///
    /// By default, `OTEL_EXPORTER_OTLP_COMPRESSION`, or no.
    pub fn gzip(mut self, compress: bool) -> Self {
        self.options.gzip = Some(compress);
        self
    }

    /// Sets how long to wait for the answer to a request, on each attempt. Zero means the default.
    ///
    /// By default, `OTEL_EXPORTER_OTLP_TIMEOUT`, or [`Self::ANSWER_WITHIN`].
    #[doc(alias = "timeout")]
    pub fn answer_within(mut self, time: Duration) -> Self {
        self.options.answer_within = Some(time);
        self
    }

    /// Sets the PEM file of the certificates that the collector's certificate is checked against.
    ///
    /// By default, `OTEL_EXPORTER_OTLP_CERTIFICATE`, or Mozilla's.
    pub fn certificate(mut self, pem: impl Into<PathBuf>) -> Self {
        self.options.certificate = Some(pem.into());
        self
    }

    /// Sets the PEM files of the certificate and the key that this process presents to the collector.
    ///
    /// By default, `OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE` and `OTEL_EXPORTER_OTLP_CLIENT_KEY`, or none.
    pub fn client_certificate(mut self, pem: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.options.client_certificate = Some((pem.into(), key.into()));
        self
    }

    /// Sets the name of the service.
    ///
    /// By default, the attribute `service.name` of the [resource](Self::resource), `OTEL_SERVICE_NAME`, the one of
    /// [`ProfilerBuilder::metadata`](kernspan::ProfilerBuilder::metadata), or `unknown_service:` and the program's
    /// name.
    pub fn service(mut self, name: impl Into<String>) -> Self {
        self.options.service = Some(name.into());
        self
    }

    /// Adds an attribute to the resource. It replaces one of the same name from the environment.
    ///
    /// By default, the user's attributes are those of `OTEL_RESOURCE_ATTRIBUTES`, and those of
    /// [`ProfilerBuilder::metadata`](kernspan::ProfilerBuilder::metadata) with other names.
    pub fn resource(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.resource.insert(name.into(), value.into());
        self
    }

    /// Sets the parent span of the run, as a W3C Trace Context `traceparent`. If it is invalid, nothing is sent, and
    /// [`finish`](kernspan::Profiler::finish) says why.
    ///
    /// By default, the environment's `TRACEPARENT`, or none.
    pub fn parent(mut self, traceparent: impl AsRef<str>) -> Self {
        self.options.parent = Some(traceparent.as_ref().to_owned());
        self
    }

    /// Sets how much of the GPUs' work appears in the traces.
    ///
    /// By default, [`GpuSpans::Aggregate`].
    pub fn gpu(mut self, gpu: GpuSpans) -> Self {
        self.options.gpu = Some(gpu);
        self
    }

    /// Sets how many spans of kernels and copies a trace may have, with [`GpuSpans::Kernels`]. Those that took the
    /// longest are sent; one more span counts the rest.
    ///
    /// By default, [`Self::KERNELS_PER_TRACE`].
    pub fn kernels_per_trace(mut self, most: usize) -> Self {
        self.options.kernels_per_trace = Some(most);
        self
    }

    /// Sets how many samples a step has, from which the throughput is computed. In a step with a counter
    /// [`samples`](kernspan::trace::convention::SAMPLES), the counter is used instead.
    ///
    /// By default, none.
    pub fn samples_per_step(mut self, samples: u64) -> Self {
        self.options.samples_per_step = Some(samples);
        self
    }

    /// Sets whether traces are sent, whatever the environment says.
    ///
    /// By default, yes, unless `OTEL_TRACES_EXPORTER` does not contain `otlp`, or `OTEL_SDK_DISABLED` is `true`.
    pub fn traces(mut self, send: bool) -> Self {
        self.options.traces = Some(send);
        self
    }

    /// Sets whether metrics are sent, whatever the environment says.
    ///
    /// By default, yes, unless `OTEL_METRICS_EXPORTER` does not contain `otlp`, or `OTEL_SDK_DISABLED` is `true`.
    pub fn metrics(mut self, send: bool) -> Self {
        self.options.metrics = Some(send);
        self
    }

    /// Sets how often metrics are sent. Zero means the default.
    ///
    /// By default, `OTEL_METRIC_EXPORT_INTERVAL`, or [`Self::METRICS_EVERY`].
    pub fn metrics_every(mut self, interval: Duration) -> Self {
        self.options.metrics_every = Some(interval);
        self
    }

    /// Sets how many bytes of traces, and of metrics, may be queued. A request that does not fit is counted as lost.
    ///
    /// By default, [`Self::BUFFER_BYTES`].
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.options.buffer_bytes = Some(bytes);
        self
    }

    /// Sets how long the end of the run waits for unsent requests.
    ///
    /// By default, [`Self::FINISH_WITHIN`].
    pub fn finish_within(mut self, time: Duration) -> Self {
        self.options.finish_within = Some(time);
        self
    }

    /// Returns the `traceparent` of the run's own span, for the `TRACEPARENT` of processes that this one starts: a
    /// launcher passes it to its ranks. The rank of this process comes from the environment.
    pub fn traceparent(&self) -> String {
        let (settings, metadata) = (self.settings(), Metadata::of_this_process());
        self.run_trace(&settings, &metadata, RunId::from_env().as_ref()).traceparent()
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings::resolve(&self.options, &self.environment)
    }

    fn run_trace(&self, settings: &Settings, metadata: &Metadata, id: Option<&RunId>) -> RunTrace {
        RunTrace::new(metadata, self.created, id, settings.parent, settings.sampler)
    }

    fn start(&self, run: &Run) -> Result<Sending, String> {
        let settings = self.settings();
        let run_trace = self.run_trace(&settings, &run.metadata, run.id.as_ref());
        let sending = Sending::start(&settings, run_trace, &run.metadata, run.start, &run.schedule)?;
        sending.follow(run.clone());
        Ok(sending)
    }

    /// Sends a window without a run, and waits until it has been sent.
    fn send_alone(&self, window: &Analysis<'_>) -> Result<(), String> {
        let settings = self.clone().metrics(false).settings();
        let run_trace = self.run_trace(&settings, window.metadata(), RunId::from_env().as_ref());
        let sending = Sending::start(&settings, run_trace, window.metadata(), window.start(), "")?;
        sending.send_window(window);
        sending.finish();
        let lost = sending.deliveries().into_iter().find(|delivery| delivery.lost() > 0);
        lost.map_or(Ok(()), |lost| Err(lost.to_string()))
    }
}

impl Exporter for Otlp {
    /// Sends a window in the background. A window that does not belong to a run, such as a replayed one, is sent before
    /// this returns.
    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        match &self.progress {
            Progress::NotStarted => self.send_alone(window)?,
            Progress::Sending(sending) => sending.send_window(window),
            Progress::Failed => {}
        }
        Ok(Vec::new())
    }

    fn steps(&mut self, run: &Run) -> Option<Box<dyn StepExporter>> {
        match self.start(run) {
            Ok(sending) => {
                let sending = Arc::new(sending);
                self.progress = Progress::Sending(Arc::clone(&sending));
                Some(Box::new(StepSender::new(sending)))
            }
            Err(problem) => {
                self.progress = Progress::Failed;
                Some(Box::new(NotStarted(problem)))
            }
        }
    }
}
