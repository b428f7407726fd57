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
    #[cfg(all(feature = "cuda", target_os = "linux"))]
    share(if quick { 2 } else { 40 })?;
    Ok(())
}

/// Exports a window of a training on a GPU to all formats, in turns with one analysis for all of them, as a profiler
/// does, and with one for each.
#[cfg(all(feature = "cuda", target_os = "linux"))]
fn share(rounds: u32) -> Result<(), Box<dyn std::error::Error>> {
    use kernspan::{Html, TensorBoard};

    const WINDOW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/gpu/candle.kernspan");
    let trace = kernspan::replay(std::fs::File::open(WINDOW)?)?;
    let mut least = [f64::INFINITY; 2];
    for round in 0..2 * rounds {
        let folder = tempfile::tempdir()?;
        let mut exporters: [Box<dyn Exporter>; 5] = [
            Box::new(Chrome::to_dir(folder.path())),
            Box::new(Perfetto::to_dir(folder.path())),
            Box::new(TensorBoard::to_dir(folder.path())),
            Box::new(Html::to_dir(folder.path())),
            Box::new(Stacks::to_dir(folder.path())),
        ];
        let is_shared = round % 2 == 0;
        let start = Instant::now();
        let shared = Analysis::of(&trace);
        for exporter in &mut exporters {
            let apart = Analysis::of(&trace);
            exporter.export(if is_shared { &shared } else { &apart }).map_err(|error| error.to_string())?;
        }
        let least = &mut least[usize::from(is_shared)];
        *least = least.min(start.elapsed().as_secs_f64());
    }
    let [apart, shared] = least.map(|seconds| seconds * 1e3);
    println!("\n{} kernels and copies to five formats: {shared:.1} ms with one analysis,", trace.work().len());
    println!("{apart:.1} ms with one each, {:.2} times as long", apart / shared);
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
