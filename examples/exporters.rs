//! Exports traces to files for viewers, to a function, and with an exporter of its own. `cargo run --example exporters`

use kernspan::{
    Chrome, Exporter, Html, Perfetto, Profiler, Stacks, TensorBoard, analysis::Analysis, export::ExportResult,
    report::SortBy,
};
use std::{fmt::Write, fs, path::PathBuf};
use tracing::instrument;
use tracing_subscriber::{filter::LevelFilter, prelude::*};

/// An exporter that writes a line for each span.
struct Csv(PathBuf);

impl Exporter for Csv {
    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        let mut csv = String::from("name,thread,start_ns,self_ns\n");
        for span in window.spans() {
            let start = span.start().since(window.start()).as_nanos();
            writeln!(csv, "{},{},{start},{}", span.name(), span.track().thread_name(), span.self_time().as_nanos())?;
        }
        fs::create_dir_all(&self.0)?;
        let path = self.0.join(format!("window-{}.csv", window.window()));
        fs::write(&path, csv)?;
        Ok(vec![path])
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (layer, profiler) = Profiler::builder()
        .export(Chrome::to_dir("runs/exporters").gzip(true))
        .export(Perfetto::to_dir("runs/exporters"))
        .export(Stacks::to_dir("runs/exporters"))
        .export(Html::to_dir("runs/exporters"))
        .export(TensorBoard::to_dir("runs/exporters"))
        .export(Csv("runs/exporters".into()))
        .on_trace(|trace| println!("{} spans, {}\n", trace.spans().len(), trace.losses()))
        .metadata("model", "fibonacci")
        .build()?;
    // The filter applies only to the layer that prints, so all spans are recorded.
    let print = tracing_subscriber::fmt::layer().with_filter(LevelFilter::WARN);
    tracing_subscriber::registry().with(layer).with(print).init();

    for n in 1..=8 {
        fibonacci(n);
        profiler.step();
    }
    let report = profiler.finish_and_print()?;
    println!("{}", report.averages().group_by_stack(2).sort_by(SortBy::SelfCpu).limit(5).fit_terminal());
    Ok(())
}

#[instrument]
fn fibonacci(n: u64) -> u64 {
    if n < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
}
