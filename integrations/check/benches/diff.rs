//! The time to compare two traces, from their files to the comparison, on one thread.
//! `cargo bench -p kernspan-check --bench diff -- [KERNELS] [FOLDER]`
//!
//! The first pair is of PyTorch's profiler, the events of a file that it has written repeated: see
//! `benches/support/torch_file.rs`. The second is Chrome's JSON of a synthetic window with as many kernels: see
//! `benches/support/window.rs`. The command `kernspan diff` does the same, and reads the two sides at the same time;
//! the files stay in the folder, if one is given, so that it can be measured, too.

#[path = "../../../benches/support/torch_file.rs"]
mod torch_file;
#[path = "../../../benches/support/window.rs"]
mod window;

use kernspan::{Chrome, Exporter, Trace, analysis::Analysis};
use kernspan_check::{Baseline, Comparison};
use prost::Message;
use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

/// The fixture that is repeated, and its bytes for each kernel, copy and fill.
const FIXTURE: (&str, u64) = ("transformer", 2_394);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let is_quick = arguments.iter().any(|argument| argument == "--quick" || argument == "--test");
    let kernels = arguments.iter().find_map(|argument| argument.parse().ok());
    let kernels: u32 = kernels.unwrap_or(if is_quick { 2_000 } else { 100_000 });
    let rounds = if is_quick { 1 } else { 3 };

    let is_folder = |argument: &&String| Path::new(argument).is_dir();
    let (temporary, kept) = (tempfile::tempdir()?, arguments.iter().find(is_folder));
    let folder = kept.map_or(temporary.path(), Path::new);
    let torch = folder.join("torch.pt.trace.json");
    let file = torch_file::write(&torch, FIXTURE.0, FIXTURE.1 * u64::from(kernels))?;
    let torch_file::TorchFile { bytes, repeats, events, work } = file;
    println!("PyTorch's: {} {repeats} times, {bytes} bytes, {events} events, {work} kernels and copies", FIXTURE.0);
    let synthetic = synthetic(folder, kernels)?;
    println!("two traces each, the best of {rounds}, in seconds\n");
    println!(
        "{:12}{:>10}{:>8}{:>10}{:>8}{:>12}{:>12}{:>8}",
        "", "kernels", "MB", "spans", "read", "Baseline", "Comparison", "all"
    );
    for (name, path) in [("PyTorch", &torch), ("kernspan", &synthetic)] {
        let mut best = [f64::INFINITY; 3];
        let (mut work, mut spans) = (0, 0);
        for _ in 0..rounds {
            let (read, traces) = timed(|| Ok([kernspan::read(path)?, kernspan::read(path)?]))?;
            let (add, baselines) = timed(|| Ok(traces.each_ref().map(Baseline::of)))?;
            let (compare, comparison) = timed(|| Ok(Comparison::of(&baselines[0], &baselines[1])))?;
            assert!(comparison.explanations().is_empty(), "both sides are the same");
            work = traces[0].iter().map(|trace: &Trace| trace.work().len()).sum();
            spans = comparison.spans.len();
            [read, add, compare].iter().zip(&mut best).for_each(|(seconds, best)| *best = best.min(*seconds));
        }
        let megabytes = fs::metadata(path)?.len() / 1_000_000;
        let [read, add, compare] = best;
        let all = read + add + compare;
        println!("{name:12}{work:>10}{megabytes:>8}{spans:>10}{read:>8.2}{add:>12.2}{compare:>12.2}{all:>8.2}");
    }
    println!("\n\"spans\" are the paths of spans that are compared.");
    Ok(())
}

/// Writes a synthetic window as Chrome's JSON.
fn synthetic(folder: &Path, kernels: u32) -> Result<PathBuf, Box<dyn Error>> {
    let trace = kernspan::replay(&*window::Window::of(kernels).encode_to_vec())?;
    let files =
        Chrome::to_dir(folder.join("synthetic")).export(&Analysis::of(&trace)).map_err(|error| error.to_string())?;
    Ok(files.first().ok_or("no file was written")?.clone())
}

fn timed<T>(run: impl FnOnce() -> Result<T, Box<dyn Error>>) -> Result<(f64, T), Box<dyn Error>> {
    let start = Instant::now();
    let result = run()?;
    Ok((start.elapsed().as_secs_f64(), result))
}
