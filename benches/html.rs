//! The time to make the HTML page of a large window, and its size.
//! `cargo bench --features read --bench html -- [KERNELS] [FOLDER]`
//!
//! Two windows: a synthetic one, see `support/window.rs`; and a file of PyTorch's profiler, its events repeated, see
//! `support/torch_file.rs`. With a folder, the pages stay there, to be opened.

#[path = "support/memory.rs"]
mod memory;
#[path = "support/torch_file.rs"]
mod torch_file;
#[path = "support/window.rs"]
mod window;

use kernspan::{Report, Trace, export::HtmlReport};
use prost::Message;
use std::{error::Error, hint::black_box, path::PathBuf, time::Instant};
use window::Window;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let is_quick = arguments.iter().any(|argument| argument == "--quick" || argument == "--test");
    let kernels = arguments.iter().find_map(|argument| argument.parse().ok());
    let kernels: u32 = kernels.unwrap_or(if is_quick { 4_000 } else { 400_000 });
    let is_folder = |argument: &&String| !argument.starts_with('-') && argument.parse::<u64>().is_err();
    let kept = arguments.iter().find(is_folder).map(PathBuf::from);
    let rounds = if is_quick { 1 } else { 3 };

    println!("{:12}{:>10}{:>10}{:>10}{:>12}{:>10}{:>12}", "", "kernels", "spans", "page", "Report::of", "size", "peak");
    let synthetic = kernspan::replay(&*Window::of(kernels).encode_to_vec())?;
    measure("synthetic", &synthetic, rounds, kept.as_ref())?;
    drop(synthetic);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("torch.pt.trace.json");
    // A kernel of this file takes some 2,400 bytes, with the spans around it.
    let file = torch_file::write(&path, "transformer", u64::from(kernels) * 2_400)?;
    let torch = kernspan::read(&path)?.remove(0);
    assert_eq!(torch.work().len(), file.work);
    measure("torch", &torch, rounds, kept.as_ref())?;
    let megabytes = file.bytes as f64 / 1e6;
    println!(
        "\ntorch: {megabytes:.0} MB, {} events, transformer {} times; the best of {rounds}",
        file.events, file.repeats
    );
    Ok(())
}

fn measure(name: &str, trace: &Trace, rounds: u32, kept: Option<&PathBuf>) -> Result<(), Box<dyn Error>> {
    let (mut page_time, mut report_time, mut most) = (f64::INFINITY, f64::INFINITY, 0);
    let mut page = String::new();
    for _ in 0..rounds {
        let start = Instant::now();
        black_box(Report::of([trace]));
        report_time = report_time.min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        let (made, peak) = memory::peak(|| HtmlReport::of([trace]).to_string());
        page_time = page_time.min(start.elapsed().as_secs_f64());
        (page, most) = (made, most.max(peak));
    }
    let (kernels, spans, size) = (trace.work().len(), trace.spans().len(), page.len() as f64 / 1e6);
    let peak = memory::mib(most);
    println!("{name:12}{kernels:>10}{spans:>10}{page_time:>8.2} s{report_time:>10.2} s{size:>7.2} MB{peak:>8} MiB");
    if let Some(folder) = kept {
        std::fs::write(folder.join(format!("{name}.html")), page)?;
    }
    Ok(())
}
