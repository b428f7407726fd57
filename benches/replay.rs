//! The time and memory to read a million kernels from CUPTI's bytes and to write them in each format.
//! `cargo bench --bench replay`
//!
//! The window is synthetic: see `support/window.rs`.

#[path = "support/memory.rs"]
mod memory;
#[path = "support/window.rs"]
mod window;

use kernspan::{Chrome, Exporter, Perfetto, Stacks, TensorBoard, Trace, analysis::Analysis};
use prost::Message;
use std::{error::Error, time::Instant};
use window::Window;

fn main() -> Result<(), Box<dyn Error>> {
    let argument = |name: &str| std::env::args().any(|argument| argument == name);
    let (kernels, rounds) = if argument("--quick") { (10_000, 2) } else { (1_000_000, 7) };
    let window = Window::of(kernels);
    let unread = window.clone().unread().encode_to_vec();
    let window = window.encode_to_vec();
    println!("{kernels} kernels, {} MiB of records and calls, the best of {rounds}\n", memory::mib(window.len()));

    let folder = tempfile::tempdir()?;
    let mut exporters: Vec<(&str, Box<dyn Exporter>)> = vec![
        ("json", Box::new(Chrome::to_dir(folder.path()))),
        ("json.gz", Box::new(Chrome::to_dir(folder.path()).gzip(true))),
        ("pftrace", Box::new(Perfetto::to_dir(folder.path()))),
        ("folded", Box::new(Stacks::to_dir(folder.path()))),
        ("xplane", Box::new(TensorBoard::to_dir(folder.path()))),
    ];
    // `-- json` selects that format alone, `-- replay` none.
    let named = |name: &str| {
        argument(name) || !["replay", "json", "json.gz", "pftrace", "folded", "xplane"].into_iter().any(argument)
    };
    exporters.retain(|(name, _)| named(name));
    let (mut readings, mut replays) = (Least::default(), Least::default());
    let mut exports: Vec<_> = exporters.iter().map(|_| Least::default()).collect();
    let mut size = 0;
    for _ in 0..rounds {
        readings.time(|| kernspan::replay(&*unread))?;
        let before = memory::now();
        let trace = replays.time(|| kernspan::replay(&*window))?;
        size = memory::now() - before;
        assert_eq!((trace.work().len(), trace.losses().is_empty()), (kernels as usize, true), "{}", trace.losses());
        for ((_, exporter), least) in exporters.iter_mut().zip(&mut exports) {
            least.export(exporter, &trace)?;
        }
    }

    let kernels = f64::from(kernels);
    println!("{:10}{:>15}{:>19}{:>16}{:>13}", "", "M kernels / s", "with the replay", "bytes / kernel", "peak");
    let line = |name: &str, least: &Least, seconds: f64| {
        let (rate, whole) = (kernels / least.seconds / 1e6, kernels / (seconds + least.seconds) / 1e6);
        let (bytes, peak) = (least.bytes as f64 / kernels, least.peak as f64 / f64::from(1 << 20));
        println!("{name:10}{rate:>15.2}{whole:>19.2}{bytes:>16.1}{peak:>9.1} MiB");
    };
    line("reading", &readings, 0.0);
    line("replay", &replays, 0.0);
    exporters.iter().zip(&exports).for_each(|((name, _), least)| line(name, least, replays.seconds));
    println!("\nThe trace takes {} MiB.", memory::mib(size));
    Ok(())
}

/// The least time of many rounds, with the bytes written and the highest peak of memory.
struct Least {
    seconds: f64,
    bytes: u64,
    peak: usize,
}

impl Default for Least {
    fn default() -> Self {
        Self { seconds: f64::INFINITY, bytes: 0, peak: 0 }
    }
}

impl Least {
    fn time<T>(&mut self, run: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let (result, grown) = memory::peak(run);
        self.seconds = self.seconds.min(start.elapsed().as_secs_f64());
        self.peak = self.peak.max(grown);
        result
    }

    fn export(&mut self, exporter: &mut Box<dyn Exporter>, trace: &Trace) -> Result<(), Box<dyn Error>> {
        let files = self.time(|| exporter.export(&Analysis::of(trace))).map_err(|error| error.to_string())?;
        self.bytes = std::fs::metadata(&files[0])?.len();
        Ok(std::fs::remove_file(&files[0])?)
    }
}
