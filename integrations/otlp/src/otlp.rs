//! OpenTelemetry: steps as traces, the run's vital signs as metrics, sent to any collector by OTLP.
//!
//! trace → spans → requests → outbox → transport. Everything is encoded as it is made; the buffer before the network is bounded, and every span and
//! point is counted as sent or lost.

mod attributes;
mod gpu;
#[cfg(feature = "otlp-grpc")]
mod grpc;
mod http;
mod ids;
mod metrics;
mod outbox;
mod places;
mod resource;
mod run_trace;
mod sampling;
mod sending;
mod settings;
mod span_writer;
mod spans;
mod tally;
#[cfg(test)]
mod tests;
mod tls;
mod transport;

pub use self::settings::{GpuSpans, Protocol};

use self::{
    ids::Parent,
    metrics::Metrics,
    resource::Resource,
    run_trace::RunTrace,
    sending::{Lane, Problem, Sending, State, Steps},
    settings::{Endpoint, Settings},
    spans::Detailing,
    transport::Signal,
};
use super::{ExportResult, Exporter, Run, StepExporter};
use crate::trace::{Metadata, Timestamp, Trace};
use std::{
    error::Error,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Sends profiled steps as traces, and the run's vital signs as metrics, to a collector of OpenTelemetry's: to Jaeger, Grafana, and whatever else
/// takes OTLP.
///
/// ```no_run
/// use kernspan::{Profiler, Schedule, export::{GpuSpans, Otlp}};
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
/// # Traces
///
/// Every recorded step of every rank is a trace. Its root is `step N`, below it are the program's spans, with their fields as attributes and their events,
/// and with [`GpuSpans::Kernels`] every kernel and copy is a span in the one that was open when it was launched, which it may outlast. The root is linked to the run's own
/// span, which is sent when the run ends.
///
/// The run's span is a child of the environment's `TRACEPARENT`, if there is one, and the ids of steps derive from that, from what the launcher calls the run
/// (`KERNSPAN_RUN_ID`, and what torchrun, Slurm, PBS and LSF say), and from the rank: so ranks agree on them without a message.
///
/// | attribute | of | is |
/// |---|---|---|
/// | the names of fields | spans, events | their values: texts, whole numbers, numbers, booleans |
/// | `target`, `level`, `code.file.path`, `code.line.number`, `thread.id`, `thread.name` | spans | where it is written, and where it ran |
/// | `kernspan.self_ns` | spans | the time in which no nested span was open |
/// | `kernspan.cut` | spans, steps | `start`, `end` or `both`: which end lies outside the window |
/// | `gpu.kernel.count`, `gpu.busy_ns`, `gpu.copy.count`, `gpu.copy.bytes` | spans, steps | what GPUs did for it and what is nested in it; work at the same time counts once |
/// | `gpu.self_busy_ns` | spans | the same time, of what the span itself launched |
/// | `gpu.kernel.top` | spans | the three kernels that took longest: `0.050 ms in 2 × gemm` |
/// | `kernspan.step.number`, `kernspan.step.phase`, `kernspan.window`, `kernspan.schedule`, `dl.rank` | steps | which step it is |
/// | `kernspan.step.samples_per_second`, `kernspan.counter.NAME` | steps | throughput, and the last value of each counter, as the loss |
/// | `gpu.utilization`, `gpu.idle_ns`, `gpu.waiting_ns`, `gpu.copying_ns`, `gpu.memory.peak`, `gpu.mfu`, `gpu.verdict` | steps | how GPU 0 spent it, as in the report; further ones are `gpu1` and so on |
/// | `gpu.unattributed.count`, `kernspan.gpu` | steps | work that belongs to no span; why there is nothing of GPUs |
/// | `kernspan.lost`, `kernspan.lost.CAUSE`, `kernspan.otlp.dropped_spans` | steps | what could not be kept in the window; spans that could not be sent so far |
/// | `gpu.start_ns`, `gpu.duration_ns`, `gpu.attribution`, `gpu.operations` | kernels, copies | its time to the nanosecond; how its span is known; what was fused into it |
/// | `cuda.kernel.name`, `cuda.grid`, `cuda.block`, `cuda.graph.id`, `cuda.memcpy.kind`, `cuda.memcpy.bytes`, `cuda.memset.bytes` | kernels, copies | what it is |
/// | `cuda.device.index`, `cuda.context.id`, `cuda.stream.id`, `cuda.correlation_id`, `hw.id` | kernels, copies | where it ran |
/// | `kernspan.folded` | one span a trace | how many kernels and copies it stands for |
/// | `service.name`, `service.instance.id`, `host.name`, `process.*`, `telemetry.sdk.*`, `dl.rank`, `dl.local_rank`, `dl.world_size`, `hw.id`, `hw.model` | the resource | who sends |
///
/// Where a layer of `tracing-opentelemetry`'s is in the same subscriber, and the feature of that name is on, it is that layer that sends the program's spans: then what GPUs did hangs
/// under those, and the steps are linked to their traces.
///
/// # Metrics
///
/// They are sent all the time, also while the schedule waits; what is of recorded windows, and of a library or a system that is not there, once it is known. Recorded
/// steps are exemplars of their durations, which lead to their traces. The values of 256 counters are kept.
///
/// | metric | kind | unit | attributes | is |
/// |---|---|---|---|---|
/// | `kernspan.step.duration` | histogram | `s` | `kernspan.step.phase` | How long steps took, the first of the run left out. |
/// | `kernspan.step.number` | gauge | `{step}` |  | The number of the last step, counted from 0. |
/// | `kernspan.step.rate` | gauge | `{step}/s` |  | Steps per second since the last time that metrics were collected. |
/// | `kernspan.throughput` | gauge | `{sample}/s` |  | Samples per second since the last time that metrics were collected. |
/// | `kernspan.counter` | gauge |  | `counter.name` | The last value of a counter of the program's. |
/// | `gpu.cuda.kernel.launch.calls` | counter | `{call}` |  | Calls that launched a kernel, in recorded windows. |
/// | `gpu.cuda.graph.launch.calls` | counter | `{call}` |  | Calls that launched a graph, in recorded windows. |
/// | `gpu.cuda.memory.copies` | counter | `{copy}` | `cuda.memcpy.kind` | Copies of memory, in recorded windows. |
/// | `gpu.cuda.memory.copied` | counter | `By` | `cuda.memcpy.kind` | Bytes copied, in recorded windows. |
/// | `gpu.cuda.memory.allocations` | counter | `{allocation}` |  | Allocations of GPU memory, in recorded windows, if they are recorded. |
/// | `gpu.kernel.duration` | histogram | `s` |  | How long kernels took, in recorded windows. |
/// | `kernspan.gpu.busy` | gauge | `1` | `hw.id` | The share of the last recorded step in which the GPU was busy. |
/// | `kernspan.gpu.memory.peak` | gauge | `By` | `hw.id` | The most GPU memory in use in the last recorded step, if allocations are recorded. |
/// | `kernspan.lost` | counter | `{item}` | `cause` | What was seen in recorded windows but could not be kept. |
/// | `kernspan.otlp.sent` | counter | `{item}` | `signal` | Spans and points that the collector took. |
/// | `kernspan.otlp.lost` | counter | `{item}` | `signal`, `cause` | Spans and points that the collector did not get or take. |
/// | `process.cpu.time` | counter | `s` | `cpu.mode` | CPU time of the process. |
/// | `process.memory.usage` | up-down counter | `By` |  | Physical memory that the process has in use. |
/// | `process.thread.count` | up-down counter | `{thread}` |  | Threads of the process. |
/// | `process.uptime` | gauge | `s` |  | How long the process has been running. |
/// | `hw.gpu.utilization` | gauge | `1` | `hw.id`, `hw.name`, `hw.type` | The share of time in which a kernel was running on the GPU, the mean since the last time that metrics were collected. |
/// | `hw.gpu.memory.utilization` | gauge | `1` | `hw.id`, `hw.name`, `hw.type` | The share of the GPU's memory that is in use. |
/// | `hw.gpu.memory.usage` | up-down counter | `By` | `hw.id`, `hw.name`, `hw.type` | GPU memory in use. |
/// | `hw.gpu.memory.limit` | up-down counter | `By` | `hw.id`, `hw.name`, `hw.type` | GPU memory that there is. |
/// | `hw.temperature` | gauge | `Cel` | `hw.id`, `hw.name`, `hw.type` | Temperature of the GPU. |
/// | `hw.power` | gauge | `W` | `hw.id`, `hw.name`, `hw.type` | Power that the GPU draws, the mean since the last time that metrics were collected. |
/// | `hw.energy` | counter | `J` | `hw.id`, `hw.name`, `hw.type` | Energy that the GPU has taken since the run began. |
///
/// # Environment
///
/// The variables of OpenTelemetry have their own meaning: `OTEL_EXPORTER_OTLP_ENDPOINT`, `_PROTOCOL`, `_HEADERS`, `_TIMEOUT`, `_COMPRESSION`, `_CERTIFICATE`,
/// `_CLIENT_CERTIFICATE`, `_CLIENT_KEY` and `_INSECURE`, each also for `TRACES` and `METRICS` alone; `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`,
/// `OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER`, `OTEL_TRACES_SAMPLER` and its argument, `OTEL_METRIC_EXPORT_INTERVAL`,
/// `OTEL_METRICS_EXEMPLAR_FILTER`, `OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE`, `OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT` and `OTEL_SDK_DISABLED`. Those of the
/// batch span processor (`OTEL_BSP_*`) mean nothing here, as there is none. What code says goes before what they say. One that makes no sense is passed
/// over, as OpenTelemetry has it, and [`Report::deliveries`](crate::Report::deliveries) says which.
///
/// # What may go wrong
///
/// The training never waits: requests are made and sent on threads of their own, from a buffer that is bounded. A collector that is away, slow or refuses costs data
/// only. It is asked again for a minute, ever more slowly; what is lost is counted by cause, in [`Report::deliveries`](crate::Report::deliveries), on the next steps
/// that get through, and in the metrics:
///
/// | cause | is |
/// |---|---|
/// | `no_room` | the [buffer](Self::buffer) was full |
/// | `rejected` | the collector took the request, but not all that was in it |
/// | `refused` | the collector refused the request, so that it made no sense to send it again |
/// | `unreachable` | it could not be sent for a minute |
/// | `too_late` | the run was over, and [the time to finish](Self::finish_within) as well |
#[derive(Clone, Debug)]
#[must_use = "an exporter does nothing until it is given to `ProfilerBuilder::export`"]
pub struct Otlp {
    settings: Settings,
    gpu: GpuSpans,
    kernels_per_trace: usize,
    samples_per_step: Option<u64>,
    buffer: usize,
    finish_within: Duration,
    /// What tells this run from others.
    born: Timestamp,
    /// What the user's code says that makes no sense.
    mistakes: Vec<String>,
    /// Once a run has begun.
    sending: Option<Arc<Sending>>,
    /// Or else it could not, which is told already.
    failed: bool,
}

impl Otlp {
    /// Spans of kernels and copies in one trace, at the most.
    pub const KERNELS_PER_TRACE: usize = 10_000;
    /// Bytes that wait to be sent, at the most, of traces and of metrics each: 200,000 kernels or so.
    pub const BUFFER: usize = 64 << 20;
    /// How long the end of a run waits for what has not been sent.
    pub const FINISH_WITHIN: Duration = Duration::from_secs(5);

    /// Sends where OpenTelemetry's environment variables say, by default to `http://localhost:4318`.
    pub fn from_env() -> Self {
        Self::new(Settings::from_env())
    }

    fn new(settings: Settings) -> Self {
        Self {
            settings,
            gpu: GpuSpans::default(),
            kernels_per_trace: Self::KERNELS_PER_TRACE,
            samples_per_step: None,
            buffer: Self::BUFFER,
            finish_within: Self::FINISH_WITHIN,
            born: Timestamp::now(),
            mistakes: Vec::new(),
            sending: None,
            failed: false,
        }
    }

    fn endpoints(&mut self) -> impl Iterator<Item = (Signal, &mut Endpoint)> {
        let traces = self.settings.traces.as_mut().map(|endpoint| (Signal::Traces, endpoint));
        traces.into_iter().chain(self.settings.metrics.as_mut().map(|endpoint| (Signal::Metrics, endpoint)))
    }

    /// The collector's address, as `http://localhost:4318`. By default, `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn endpoint(mut self, address: impl AsRef<str>) -> Self {
        for (signal, endpoint) in self.endpoints() {
            endpoint.url = endpoint.protocol.url(address.as_ref(), signal);
        }
        self
    }

    /// How requests are sent, to [`endpoint`](Self::endpoint), which is to be set after this. By default, `OTEL_EXPORTER_OTLP_PROTOCOL`, or HTTP.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        for (signal, endpoint) in self.endpoints() {
            if endpoint.protocol != protocol {
                endpoint.protocol = protocol;
                endpoint.url = protocol.url(protocol.default_url(), signal);
            }
        }
        self
    }

    /// Adds a header to every request, as for a token. By default, `OTEL_EXPORTER_OTLP_HEADERS`.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.endpoints().for_each(|(_, endpoint)| endpoint.headers.push((name.clone(), value.clone())));
        self
    }

    /// Whether requests are compressed. By default, `OTEL_EXPORTER_OTLP_COMPRESSION`, or no.
    pub fn gzip(mut self, compress: bool) -> Self {
        self.endpoints().for_each(|(_, endpoint)| endpoint.gzip = compress);
        self
    }

    /// How long to wait for a collector's answer, each time that a request is tried. By default, `OTEL_EXPORTER_OTLP_TIMEOUT`, or 10 s, as
    /// zero is.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        let timeout = if timeout.is_zero() { Settings::TIMEOUT } else { timeout };
        self.endpoints().for_each(|(_, endpoint)| endpoint.timeout = timeout);
        self
    }

    /// The file with the certificates that a collector's own is checked against. By default, `OTEL_EXPORTER_OTLP_CERTIFICATE`, or those of
    /// Mozilla's.
    pub fn certificate(mut self, pem: impl Into<PathBuf>) -> Self {
        let pem = pem.into();
        self.endpoints().for_each(|(_, endpoint)| endpoint.certificate = Some(pem.clone()));
        self
    }

    /// The files with the certificate and the key that this process shows to the collector. By default,
    /// `OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE` and `OTEL_EXPORTER_OTLP_CLIENT_KEY`, or none.
    pub fn client_certificate(mut self, pem: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let (pem, key) = (pem.into(), key.into());
        for (_, endpoint) in self.endpoints() {
            (endpoint.client_certificate, endpoint.client_key) = (Some(pem.clone()), Some(key.clone()));
        }
        self
    }

    /// The name of the service. By default, `OTEL_SERVICE_NAME`, or `unknown_service:` and the program's name.
    pub fn service(mut self, name: impl Into<String>) -> Self {
        self.settings.service = Some(name.into());
        self
    }

    /// Adds an attribute to the resource, all that is sent. By default, those of `OTEL_RESOURCE_ATTRIBUTES`.
    pub fn resource(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.resource.insert(name.into(), value.into());
        self
    }

    /// The span that the run belongs to, as a `traceparent` of W3C's Trace Context. By default, the environment's `TRACEPARENT`, or none.
    pub fn parent(mut self, traceparent: impl AsRef<str>) -> Self {
        match Parent::parse(traceparent.as_ref()) {
            Some(parent) => self.settings.parent = Some(parent),
            None => self.mistakes.push(format!("{:?} is no W3C traceparent", traceparent.as_ref())),
        }
        self
    }

    /// What of GPUs is in the traces. By default, [`GpuSpans::Aggregate`].
    pub fn gpu(mut self, gpu: GpuSpans) -> Self {
        self.gpu = gpu;
        self
    }

    /// How many spans of kernels and copies a trace may have, with [`GpuSpans::Kernels`]. The longest are kept, the rest is folded into one span that
    /// counts them. By default, [`Self::KERNELS_PER_TRACE`].
    pub fn kernels_per_trace(mut self, most: usize) -> Self {
        self.kernels_per_trace = most;
        self
    }

    /// How many samples a step has, for the throughput. By default, what the counter `samples` says, if there is one.
    pub fn samples_per_step(mut self, samples: u64) -> Self {
        self.samples_per_step = Some(samples);
        self
    }

    /// Whether traces are sent. By default, yes, unless `OTEL_TRACES_EXPORTER` says otherwise.
    pub fn traces(mut self, send: bool) -> Self {
        self.settings.traces = self.settings.traces.filter(|_| send);
        self
    }

    /// Whether metrics are sent. By default, yes, unless `OTEL_METRICS_EXPORTER` says otherwise.
    pub fn metrics(mut self, send: bool) -> Self {
        self.settings.metrics = self.settings.metrics.filter(|_| send);
        self
    }

    /// How often metrics are sent. By default, `OTEL_METRIC_EXPORT_INTERVAL`, or every minute.
    pub fn metrics_every(mut self, interval: Duration) -> Self {
        self.settings.metrics_every = interval;
        self
    }

    /// How many bytes may wait to be sent. What does not fit is counted and lost. By default, [`Self::BUFFER`].
    pub fn buffer(mut self, bytes: usize) -> Self {
        self.buffer = bytes;
        self
    }

    /// How long the end of the run waits for what has not been sent. By default, [`Self::FINISH_WITHIN`].
    pub fn finish_within(mut self, time: Duration) -> Self {
        self.finish_within = time;
        self
    }

    /// The run's own span, as a `traceparent`: for the `TRACEPARENT` of processes that this one starts, as a launcher starts ranks. It is of the
    /// rank that the environment says.
    pub fn traceparent(&self) -> String {
        self.run_trace(&Metadata::of_this_process()).traceparent()
    }

    fn run_trace(&self, metadata: &Metadata) -> RunTrace {
        RunTrace::new(metadata, self.born, self.settings.parent, self.settings.sampler)
    }

    fn start(&self, run: &Run) -> Result<Sending, Problem> {
        if !self.mistakes.is_empty() {
            return Err(Problem(self.mistakes.join("; ")));
        }
        let lane = |signal, endpoint: &Option<Endpoint>| {
            endpoint
                .as_ref()
                .map(|endpoint| Lane::start(signal, endpoint, self.buffer, &self.settings.problems))
                .transpose()
        };
        let run_trace = self.run_trace(&run.metadata);
        let service = self.settings.service.as_deref();
        Ok(Sending {
            traces: lane(Signal::Traces, &self.settings.traces)?,
            metrics: lane(Signal::Metrics, &self.settings.metrics)?,
            resource: Resource::new(&run.metadata, service, &self.settings.resource),
            start: run.start,
            detailing: Detailing {
                run: run_trace.clone(),
                schedule: run.schedule.clone(),
                gpu: self.gpu,
                most_work: self.kernels_per_trace,
                samples_per_step: self.samples_per_step,
                text_limit: self.settings.text_limit,
            },
            finish_within: self.finish_within,
            state: Mutex::new(State {
                metrics: Metrics::new(run.start, run_trace, self.samples_per_step, &self.settings),
                devices: Vec::new(),
                steps: 0,
            }),
        })
    }

    /// Sends a window of a run that is over.
    fn send_alone(&self, trace: &Trace) -> Result<(), Box<dyn Error + Send + Sync>> {
        let metadata = Arc::new(trace.metadata().clone());
        let run = Run {
            id: crate::export::RunId::from_env(),
            metadata,
            start: trace.start(),
            schedule: String::new(),
            activities: Vec::new(),
        };
        let sending = self.clone().metrics(false).start(&run)?;
        sending.send_window(trace);
        sending.finish();
        let lost = sending.deliveries().into_iter().find(|delivery| delivery.lost() > 0);
        lost.map_or(Ok(()), |lost| Err(lost.to_string().into()))
    }
}

impl Exporter for Otlp {
    /// Has a window sent, in the background. One that no run tells of, as one that is replayed, is waited for: then it is sent when this returns, or
    /// there is an error.
    fn export(&mut self, trace: &Trace) -> ExportResult {
        match &self.sending {
            Some(sending) => sending.send_window(trace),
            None if self.failed => {}
            None => self.send_alone(trace)?,
        }
        Ok(Vec::new())
    }

    fn steps(&mut self, run: &Run) -> Option<Box<dyn StepExporter>> {
        match self.start(run) {
            Ok(sending) => {
                let sending = Arc::new(sending);
                self.sending = Some(Arc::clone(&sending));
                Some(Box::new(Steps { sending, failed: false }))
            }
            Err(problem) => {
                self.failed = true;
                Some(Box::new(problem))
            }
        }
    }
}
