//! Compares kernspan's OTLP export with OpenTelemetry's SDK, to the same collector in one run.
//! `cargo run --release -p compare --bin otlp`
//!
//! It measures the cost for the training thread when spans and steps are sent, and the time to send 100,000 kernels.

#[path = "../../../support/mod.rs"]
mod support;
#[path = "../../../support/window.rs"]
mod window;

use kernspan::{Exporter, Profiler, Schedule, analysis::Analysis};
use kernspan_otlp::{GpuSpans, Otlp};
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState, TracerProvider as _,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use prost::Message;
use std::{
    error::Error,
    hint::black_box,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};
use support::Nothing;
use tracing::Dispatch;
use tracing_subscriber::{prelude::*, registry};
use window::Window;

fn main() -> Result<(), Box<dyn Error>> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let collector = Collector::start()?;
    training(&collector, if quick { 3 } else { 40 })?;
    kernels(&collector, if quick { 5_000 } else { 100_000 }, if quick { 2 } else { 7 })
}

/// Makes twenty spans, half of them with fields.
fn spans() {
    let _step = tracing::info_span!("train_step", step = black_box(7)).entered();
    for layer in 0..9_u64 {
        tracing::info_span!("forward", layer, batch = black_box(64)).in_scope(|| black_box(()));
        tracing::info_span!("backward").in_scope(|| black_box(()));
    }
    tracing::info_span!("optimizer").in_scope(|| black_box(()));
}

fn training(collector: &Collector, rounds: u32) -> Result<(), Box<dyn Error>> {
    const STEPS: u32 = 100;
    let alone = Dispatch::new(registry());
    let empty = Dispatch::new(registry().with(Nothing));
    let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
    let exporter = exporter.with_endpoint(format!("{}/v1/traces", collector.address)).build()?;
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("compare"));
    let theirs = Dispatch::new(registry().with(layer));
    let otlp = |schedule| {
        let otlp = Otlp::from_env().endpoint(&collector.address);
        Profiler::builder().schedule(schedule).export(otlp).build()
    };
    let (layer, waiting) = otlp(Schedule::manual())?;
    let waiting_layer = Dispatch::new(registry().with(layer));
    // Each round is a window.
    let (layer, recording) = otlp(Schedule::manual())?;
    let recording_layer = Dispatch::new(registry().with(layer));

    let mut least = [f64::INFINITY; 5];
    for _ in 0..rounds {
        for (index, dispatch) in [&alone, &empty, &waiting_layer, &recording_layer, &theirs].into_iter().enumerate() {
            let elapsed = tracing::dispatcher::with_default(dispatch, || {
                if index == 3 {
                    recording.start();
                }
                let start = Instant::now();
                (0..STEPS).for_each(|_| spans());
                let elapsed = start.elapsed();
                if index == 3 {
                    recording.stop();
                }
                elapsed
            });
            least[index] = least[index].min(elapsed.as_nanos() as f64 / f64::from(STEPS));
            // Waits until all spans are sent: the SDK's queue holds 2048, and dropping a span is cheaper than queueing
            // it.
            provider.force_flush()?;
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    println!("20 spans, ns on the thread that trains, least of {rounds} interleaved rounds of {STEPS}; what it");
    println!("adds to the registry alone / to an empty layer, and how many times what kernspan adds\n");
    let names = ["registry alone", "empty layer", "kernspan waiting", "kernspan", "tracing-opentelemetry"];
    let [over_alone, over_empty] = [0, 1].map(|base| move |took: f64| took - least[base]);
    for (name, took) in names.into_iter().zip(least) {
        print!("  {name:24}{took:9.0}{:+11.0} /{:+9.0}", over_alone(took), over_empty(took));
        if took > least[3] {
            let times = |over: &dyn Fn(f64) -> f64| over(took) / over(least[3]);
            print!("   {:6.1}x /{:6.1}x", times(&over_alone), times(&over_empty));
        }
        println!();
    }
    for (name, profiler, dispatch) in
        [("waiting", &waiting, &waiting_layer), ("recording", &recording, &recording_layer)]
    {
        let mut least = f64::INFINITY;
        for _ in 0..rounds {
            tracing::dispatcher::with_default(dispatch, || {
                if name == "recording" {
                    profiler.start();
                }
                let start = Instant::now();
                for _ in 0..STEPS {
                    tracing::info!(counter.loss = black_box(0.5));
                    profiler.step();
                }
                least = least.min(start.elapsed().as_nanos() as f64 / f64::from(STEPS));
                profiler.stop();
            });
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("  a step with a counter, {name}: {least:.0} ns");
    }
    for profiler in [waiting, recording] {
        let report = profiler.finish()?;
        report.deliveries().iter().for_each(|delivery| println!("kernspan: {delivery}, {}", report.losses()));
    }
    Ok(())
}

fn kernels(collector: &Collector, kernels: u32, rounds: u32) -> Result<(), Box<dyn Error>> {
    let trace = kernspan::replay(&*Window::of(kernels).encode_to_vec())?;
    println!("\n{kernels} kernels, ms until the collector has them all, least of {rounds} interleaved rounds\n");
    let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
    let exporter = exporter.with_endpoint(format!("{}/v1/traces", collector.address)).build()?;
    let (mut ours, mut theirs) = (f64::INFINITY, f64::INFINITY);
    let mut otlp = Otlp::from_env().endpoint(&collector.address).gpu(GpuSpans::Kernels);
    otlp = otlp.kernels_per_trace(usize::MAX).finish_within(Duration::from_secs(60));
    let expected = u64::from(kernels) + trace.spans().len() as u64 + trace.steps().len() as u64;
    for _ in 0..rounds {
        collector.take();
        let start = Instant::now();
        otlp.export(&Analysis::of(&trace)).map_err(|error| error.to_string())?;
        ours = ours.min(start.elapsed().as_secs_f64());
        assert_eq!(collector.take(), expected, "all have arrived, once");

        // The SDK's spans are made before the measurement, with the attributes of our kernels, so only sending is
        // timed.
        let batches: Vec<Vec<SpanData>> = (0..kernels)
            .map(|kernel| span(&trace, kernel as usize))
            .collect::<Vec<_>>()
            .chunks(16_384)
            .map(<[SpanData]>::to_vec)
            .collect();
        let start = Instant::now();
        for batch in batches {
            futures_executor::block_on(exporter.export(batch))?;
        }
        theirs = theirs.min(start.elapsed().as_secs_f64());
        assert_eq!(collector.take(), u64::from(kernels));
    }
    println!("{:40}{:>10.0}   with {expected} spans, made from the trace", "kernspan", 1e3 * ours);
    println!("{:40}{:>10.0}   the kernels alone, ready made", "SpanExporter::export, 16,384 at a time", 1e3 * theirs);
    Ok(())
}

fn span(trace: &kernspan::Trace, kernel: usize) -> SpanData {
    let work = trace.work().nth(kernel % 1000);
    let details = work.and_then(kernspan::trace::Work::kernel);
    let name = details.map_or_else(String::new, |kernel| kernel.name.to_string());
    let now = SystemTime::now();
    let number = |name: &'static str| KeyValue::new(name, kernel as i64);
    SpanData {
        span_context: SpanContext::new(
            TraceId::from(1 + kernel as u128 / 1000),
            SpanId::from(1 + kernel as u64),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        ),
        parent_span_id: SpanId::from(1),
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: "kernel".into(),
        start_time: now,
        end_time: now + Duration::from_micros(5),
        attributes: vec![
            number("gpu.start_ns"),
            number("gpu.duration_ns"),
            KeyValue::new("cuda.kernel.name", name),
            KeyValue::new("cuda.grid", opentelemetry::Array::I64(vec![1, 2, 3]).into_value()),
            KeyValue::new("cuda.block", opentelemetry::Array::I64(vec![1, 2, 3]).into_value()),
            number("cuda.device.index"),
            number("cuda.stream.id"),
            number("cuda.context.id"),
            number("cuda.correlation_id"),
            KeyValue::new("hw.id", "GPU-00000000-0000-0000-0000-000000000000"),
            KeyValue::new("gpu.attribution", "direct"),
        ],
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::builder("compare").build(),
    }
}

trait IntoValue {
    fn into_value(self) -> opentelemetry::Value;
}

impl IntoValue for opentelemetry::Array {
    fn into_value(self) -> opentelemetry::Value {
        opentelemetry::Value::Array(self)
    }
}

/// A collector that receives requests over HTTP, decodes them, and counts their spans.
struct Collector {
    address: String,
    spans: Arc<AtomicU64>,
}

impl Collector {
    fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = format!("http://{}", listener.local_addr()?);
        let spans = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&spans);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || serve(stream, &counted));
            }
        });
        Ok(Self { address, spans })
    }

    /// Returns the number of spans since the last call.
    fn take(&self) -> u64 {
        self.spans.swap(0, Ordering::SeqCst)
    }
}

fn serve(stream: TcpStream, spans: &AtomicU64) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let (mut line, mut length, mut traces) = (String::new(), 0, false);
        while reader.read_line(&mut line).ok()? > 0 && line != "\r\n" {
            traces |= line.starts_with("POST /v1/traces");
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            line.clear();
        }
        if line.is_empty() {
            return None;
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        if traces {
            let request =
                opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest::decode(&*body).ok()?;
            let count = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
            spans.fetch_add(count.map(|scope| scope.spans.len() as u64).sum(), Ordering::SeqCst);
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
            .ok()?;
    }
}
