//! A web service that generates text with a small model.
//!
//! ```sh
//! cargo run --release -p serving-example                          # under load from a second process, for ten seconds
//! cargo run --release -p serving-example -- test 600 20           # for ten minutes, twenty requests a second
//! cargo run --release -p serving-example -- serve 127.0.0.1:8080  # until Ctrl-C, under a load of your own:
//! oha -z 60s -q 20 -c 64 -m POST -d prompt http://127.0.0.1:8080/complete/24
//! cargo run --release -p serving-example --features cuda          # on an NVIDIA GPU; needs nvcc to build
//! ```
//!
//! On a GPU, half of a test is recorded, so that the report has the GPU time of requests.
//!
//! `test` prints the percentiles of the load generator next to those of the service, and fails if a request was lost.
//! One request generates far more than the others. The trace of the seconds around it is in `runs/serving/slow`, and
//! `runs/serving/requests.jsonl` has a line for every ten seconds.

mod batcher;
mod load;
mod model;
mod service;

use candle_core::Device;
use kernspan::{
    FlightRecorder, Perfetto, Profiler, Report, Schedule,
    control::RecordRequest,
    serving::{RequestKind, RequestLog, Slo},
    trace::Span,
    units,
};
use load::Load;
use serde_json::Value;
use std::{
    error::Error,
    fs,
    process::{Command, ExitCode},
    time::{Duration, SystemTime},
};
use tokio::{net::TcpListener, runtime::Runtime, sync::oneshot};
use tracing_subscriber::{filter::LevelFilter, prelude::*};

/// Where the log and the traces go.
const RUNS: &str = "runs/serving";
/// A request that takes longer has its trace written.
const SLOW: Duration = Duration::from_millis(500);
/// The time that such a trace goes back: the slow request of a test takes two to three seconds.
const KEPT: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        [] => test(Load { seconds: 10, per_second: 20 }),
        ["test", seconds, per_second] => load(seconds, per_second).and_then(test),
        ["serve", address] => serve(address).map(|_| ()),
        ["load", address, seconds, per_second] => load(seconds, per_second).and_then(|load| send(load, address)),
        _ => Err("expected nothing, `test SECONDS PER_SECOND` or `serve ADDRESS`".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn load(seconds: &str, per_second: &str) -> Result<Load, Box<dyn Error>> {
    let number = |text: &str| text.parse().ok().filter(|number| *number > 0).ok_or(format!("{text} is not a number"));
    Ok(Load { seconds: number(seconds)?, per_second: number(per_second)? })
}

/// Sends a load, and prints the result.
fn send(load: Load, address: &str) -> Result<(), Box<dyn Error>> {
    println!("{}", runtime()?.block_on(load.run(address)));
    Ok(())
}

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// A service with its profiler.
struct Service {
    profiler: Profiler,
    runtime: Runtime,
    listener: TcpListener,
    router: axum::Router,
    device: Device,
}

impl Service {
    fn new(address: &str) -> Result<Self, Box<dyn Error>> {
        let kind = RequestKind::new("request").by("http.route").write_slower_than(SLOW, format!("{RUNS}/slow"));
        let (layer, profiler) = Profiler::builder()
            .schedule(Schedule::manual())
            .request_on(kind)
            .slo(Slo::latency("request", 99.0, Duration::from_millis(200)))
            .request_log(RequestLog::to_file(format!("{RUNS}/requests.jsonl")).every(Duration::from_secs(10)))
            // Each request is a step, of which the last seconds are kept.
            .step_on("request")
            .flight_recorder(FlightRecorder::duration(KEPT))
            .export(Perfetto::to_dir(RUNS))
            .metadata("model", "an LSTM of 512")
            .build()?;
        let print = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(LevelFilter::WARN);
        tracing_subscriber::registry().with(layer).with(print).init();
        let runtime = runtime()?;
        let listener = runtime.block_on(TcpListener::bind(address))?;
        let device = Device::cuda_if_available(0)?;
        let router = service::router(batcher::start(model::Model::new(&device)?)?);
        Ok(Self { profiler, runtime, listener, router, device })
    }

    /// Serves until the future is ready and all requests are answered, and prints the report.
    fn run(self, end: impl Future<Output = ()> + Send + 'static) -> Result<Report, Box<dyn Error>> {
        let Self { profiler, runtime, listener, router, .. } = self;
        runtime.block_on(axum::serve(listener, router).with_graceful_shutdown(end).into_future())?;
        Ok(profiler.finish_and_print()?)
    }
}

fn serve(address: &str) -> Result<Report, Box<dyn Error>> {
    Service::new(address)?.run(async {
        // Without a handler, Ctrl-C ends the process.
        let _ = tokio::signal::ctrl_c().await;
    })
}

/// Serves while a process of its own sends requests. Compares what both have measured.
fn test(load: Load) -> Result<(), Box<dyn Error>> {
    let start = SystemTime::now();
    let service = Service::new("127.0.0.1:0")?;
    if service.device.is_cuda() {
        let half = Duration::from_secs(load.seconds) / 2;
        // Its end is in the report; nobody waits for it.
        let _ = service.profiler.control().record(RecordRequest::duration(half));
    }
    let arguments = [service.listener.local_addr()?.to_string(), load.seconds.to_string(), load.per_second.to_string()];
    let (ended, end) = oneshot::channel::<()>();
    let generator = std::thread::spawn(move || {
        let output = Command::new(std::env::current_exe()?).arg("load").args(arguments).output();
        drop(ended);
        output
    });
    let report = service.run(async {
        // It only ends, by being dropped.
        let _ = end.await;
    })?;
    let output = generator.join().map_err(|_| "the thread of the load generator panicked")??;
    let client: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("the load generator: {error}; {}", String::from_utf8_lossy(&output.stderr)))?;

    let total = &report.requests().kind("request").ok_or("no requests")?.total;
    println!("\n{:<12}{:>12}{:>12}{:>12}{:>12}", "", "generator", "response", "difference", "latency");
    for (name, percent) in [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99.9", 99.9)] {
        let generator = client[name].as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let generator = generator.ok_or("the load generator has no percentiles")?;
        let [response, latency] =
            [&total.response, &total.latency].map(|histogram| histogram.percentile(percent).unwrap_or_default());
        let difference = units::percent(100.0 * (response.as_secs_f64() / generator.as_secs_f64() - 1.0));
        let [generator, response, latency] = [generator, response, latency].map(units::column_time);
        println!("{name:<12}{generator:>12}{response:>12}{difference:>12}{latency:>12}");
    }
    println!("sent {}, answered {}, counted {}", client["sent"], client["answered"], total.count());

    // Times depend on the machine; these do not.
    if client["sent"] != client["answered"] || client["answered"].as_u64() != Some(total.count()) {
        return Err("requests were lost".into());
    }
    if !has_slow_trace(start)? {
        return Err("there is no trace of the slow request".into());
    }
    Ok(())
}

/// Whether a trace of a slow request was written since then, and shows the batch that took the time.
fn has_slow_trace(since: SystemTime) -> Result<bool, Box<dyn Error>> {
    for file in fs::read_dir(format!("{RUNS}/slow"))? {
        let file = file?;
        let is_new = file.metadata()?.modified()? > since;
        if is_new && file.file_name().to_string_lossy().ends_with(".pt.trace.json") {
            let is_slow = |span: Span<'_>| span.name() == "batch" && span.duration() > SLOW;
            if kernspan::read(file.path())?.iter().any(|trace| trace.spans().any(is_slow)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
