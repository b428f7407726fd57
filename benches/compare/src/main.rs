//! Compares the cost of a span in kernspan and in other layers, in one run. `cargo run --release -p compare`

#[path = "../../support/mod.rs"]
mod support;

use kernspan::{Profiler, Schedule};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use support::{Contender, Nothing, WORKLOADS, race};
use tracing_subscriber::{prelude::*, registry};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (waiting, _wait) = Profiler::builder().schedule(Schedule::manual()).build()?;
    let (recording, record) = Profiler::builder().build()?;

    // Each layer has its default settings, and its output is discarded.
    let (chrome, _chrome) =
        tracing_chrome::ChromeLayerBuilder::new().writer(std::io::sink()).include_args(true).build();
    let otel = SdkTracerProvider::builder().with_batch_exporter(InMemorySpanExporter::default()).build();
    let opentelemetry = tracing_opentelemetry::layer().with_tracer(otel.tracer("compare"));
    let perfetto = tracing_perfetto::PerfettoLayer::new(std::sync::Mutex::new(std::io::sink()));
    let flame = tracing_flame::FlameLayer::new(std::io::sink());

    let contenders = [
        Contender::new("registry alone", registry()),
        Contender::new("empty layer", registry().with(Nothing)),
        Contender::new("kernspan waiting", registry().with(waiting)),
        Contender::new("kernspan", registry().with(recording)),
        Contender::new("tracing-flame", registry().with(flame)),
        Contender::new("tracing-chrome", registry().with(chrome)),
        Contender::new("tracing-opentelemetry", registry().with(opentelemetry)),
        Contender::new("tracing-perfetto", registry().with(perfetto)),
    ];
    let rounds = support::rounds(60);
    println!(
        "ns a span, least of {rounds} interleaved rounds; what it adds to the registry alone / to an empty layer,"
    );
    println!("and how many times what kernspan adds\n");
    for workload in &WORKLOADS {
        println!("{}", workload.name);
        let least = race(&contenders, workload, rounds);
        let (alone, empty) = (least[0], least[1]);
        let (ours_alone, ours_empty) = (least[3] - alone, least[3] - empty);
        for (contender, nanos) in contenders.iter().zip(&least) {
            let (over_alone, over_empty) = (nanos - alone, nanos - empty);
            print!("  {:24}{nanos:9.1}{over_alone:+11.1} /{over_empty:+9.1}", contender.name);
            if *nanos > least[3] {
                print!("   {:6.1}x /{:6.1}x", over_alone / ours_alone, over_empty / ours_empty);
            }
            println!();
        }
    }
    println!("\nkernspan: {}", record.finish()?.losses());
    Ok(())
}
