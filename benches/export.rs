//! The time and memory to write a million spans in each format. `cargo bench --bench export`

#[path = "support/memory.rs"]
mod memory;

use kernspan::{Chrome, Collected, Exporter, Perfetto, Profiler, Stacks, Trace, analysis::Analysis};
use memory::mib;
use std::time::Instant;
use tracing_subscriber::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let spans = if quick { 10_000 } else { 1_000_000 };
    for (name, program) in [("no fields", plain as fn(u32)), ("two fields", two_fields)] {
        let before = memory::now();
        let trace = record(program, spans)?;
        println!("\n{} spans, {name}; the trace takes {} MiB", trace.spans().len(), mib(memory::now() - before));
        println!("{:16}{:>14}{:>16}{:>18}", "", "M spans / s", "bytes / span", "writer's peak");
        let folder = tempfile::tempdir()?;
        measure("json", Chrome::to_dir(folder.path()), &trace)?;
        measure("json.gz", Chrome::to_dir(folder.path()).gzip(true), &trace)?;
        measure("pftrace", Perfetto::to_dir(folder.path()), &trace)?;
        measure("folded", Stacks::to_dir(folder.path()), &trace)?;
    }
    Ok(())
}

/// A loop of steps with ten spans each, nested in two.
fn plain(spans: u32) {
    for _ in 0..spans / 10 {
        let _step = tracing::info_span!("train_step").entered();
        for _ in 0..3 {
            let _block = tracing::info_span!("block").entered();
            tracing::info_span!("attention").in_scope(|| ());
            tracing::info_span!("mlp").in_scope(|| ());
        }
    }
}

fn two_fields(spans: u32) {
    for step in 0..spans / 10 {
        let _step = tracing::info_span!("train_step", step, loss = 0.25).entered();
        for layer in 0..3 {
            let _block = tracing::info_span!("block", step, layer).entered();
            tracing::info_span!("attention", layer, kind = "causal").in_scope(|| ());
            tracing::info_span!("mlp", layer, scale = 0.5).in_scope(|| ());
        }
    }
}

fn record(program: fn(u32), spans: u32) -> Result<std::sync::Arc<Trace>, kernspan::Error> {
    let collected = Collected::new();
    let builder = Profiler::builder().lane_capacity(1 << 20).memory_limit_bytes(1 << 30);
    let (layer, profiler) = builder.export(collected.clone()).build()?;
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || program(spans));
    let report = profiler.finish()?;
    assert!(report.losses().is_empty(), "{}", report.losses());
    Ok(collected.only())
}

fn measure(name: &str, mut exporter: impl Exporter, trace: &Trace) -> Result<(), Box<dyn std::error::Error>> {
    let (mut least, mut bytes, mut peak) = (f64::INFINITY, 0, 0);
    for _ in 0..5 {
        let start = Instant::now();
        let (files, grown) = memory::peak(|| exporter.export(&Analysis::of(trace)));
        least = least.min(start.elapsed().as_secs_f64());
        let files = files.map_err(|error| error.to_string())?;
        peak = peak.max(grown);
        bytes = std::fs::metadata(&files[0])?.len();
        std::fs::remove_file(&files[0])?;
    }
    let spans = trace.spans().len() as f64;
    println!("{name:16}{:>14.2}{:>16.1}{:>14} KiB", spans / least / 1e6, bytes as f64 / spans, peak / 1024);
    Ok(())
}
