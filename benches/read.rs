//! The time and memory to read a large file of PyTorch's profiler and to analyse it.
//! `cargo bench --features read --bench read -- [MEGABYTES] [FIXTURE] [FILE.json]`
//!
//! The file is made of one that PyTorch has written, its events repeated: see `support/torch_file.rs`. It is kept if it
//! is given a name, for `kernspan report FILE.json`. A peer reads the same file in the same run: `serde_json`, into
//! structs that borrow from the file, with the durations added up by name. It keeps no more than a name and a number of
//! each event, so that it is a lower bound of what a reader based on it takes, and no reader by itself.

#[path = "support/memory.rs"]
mod memory;
#[path = "support/torch_file.rs"]
mod torch_file;

use flate2::{Compression, write::GzEncoder};
use kernspan::{
    Report, Trace,
    analysis::{Analysis, queue_lengths, stream_idle},
    report::key_averages,
};
use rustc_hash::FxHashMap;
use std::{
    borrow::Cow,
    error::Error,
    fs::File,
    hint::black_box,
    io,
    path::{Path, PathBuf},
    time::Instant,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let is_quick = arguments.iter().any(|argument| argument == "--quick" || argument == "--test");
    let size = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(if is_quick { 4 } else { 150 });
    let is_file = |argument: &&String| argument.ends_with(".json");
    let is_name =
        |argument: &&String| !argument.starts_with('-') && argument.parse::<u64>().is_err() && !is_file(argument);
    let fixture = arguments.iter().find(is_name).map_or("transformer-shapes", String::as_str);
    let rounds = if is_quick { 1 } else { 3 };

    let folder = tempfile::tempdir()?;
    let kept = arguments.iter().find(is_file).map(PathBuf::from);
    let path = kept.unwrap_or_else(|| folder.path().join("torch.pt.trace.json"));
    let file = torch_file::write(&path, fixture, size * 1_000_000)?;
    let packed = folder.path().join("torch.pt.trace.json.gz");
    let mut encoder = GzEncoder::new(File::create(&packed)?, Compression::fast());
    io::copy(&mut File::open(&path)?, &mut encoder)?;
    encoder.finish()?;
    let megabytes = file.bytes as f64 / 1e6;
    println!(
        "{fixture} {} times: {megabytes:.0} MB, {} events, {} kernels and copies; the best of {rounds}\n",
        file.repeats, file.events, file.work
    );

    let mut stages = Stages::default();
    let mut trace_size = 0;
    for _ in 0..rounds {
        stages.time("serde_json alone", || sum_by_name(&path))?;
        let before = memory::now();
        let trace = stages.time("read", || kernspan::read(&path))?.remove(0);
        trace_size = memory::now() - before;
        assert_eq!((trace.work().len(), trace.losses().unread), (file.work, 0));
        analyse(&trace, &mut stages);
        drop(trace);
        let traces = stages.time("read .gz", || kernspan::read(&packed))?;
        assert_eq!(traces[0].work().len(), file.work);
    }
    println!("{:18}{:>10}{:>10}{:>16}{:>12}", "", "seconds", "MB / s", "M kernels / s", "peak");
    for Stage { name, seconds, peak } in &stages.0 {
        let (rate, kernels) = (megabytes / seconds, file.work as f64 / seconds / 1e6);
        println!("{name:18}{seconds:>10.3}{rate:>10.0}{kernels:>16.2}{:>8} MiB", memory::mib(*peak));
    }
    let all = |skipped: &[&str]| -> f64 {
        stages.0.iter().filter(|stage| !skipped.contains(&stage.name)).map(|stage| stage.seconds).sum()
    };
    println!(
        "\nReading and all analyses take {:.2} s, the analyses {:.2} s.",
        all(&["serde_json alone", "read .gz"]),
        { all(&["serde_json alone", "read", "read .gz"]) }
    );
    println!("The trace takes {} MiB. Only `serde_json` maps the file, which no peak has.", memory::mib(trace_size));
    Ok(())
}

fn analyse(trace: &Trace, stages: &mut Stages) {
    stages.time("Report::of", || black_box(Report::of([trace])));
    stages.time("key_averages", || black_box(key_averages(trace)));
    stages.time("step_breakdown", || black_box(Analysis::of(trace).step_breakdown().len()));
    stages.time("stream_idle", || black_box(stream_idle(trace)));
    stages.time("queue_lengths", || black_box(queue_lengths(trace)));
    stages.time("gpu_steps", || black_box(Analysis::of(trace).gpu_steps().len()));
}

/// The least time of each stage, and the most memory that it took beyond what there was before.
#[derive(Default)]
struct Stages(Vec<Stage>);

struct Stage {
    name: &'static str,
    seconds: f64,
    peak: usize,
}

impl Stages {
    fn time<T>(&mut self, name: &'static str, run: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let (result, peak) = memory::peak(run);
        let seconds = start.elapsed().as_secs_f64();
        match self.0.iter_mut().find(|stage| stage.name == name) {
            Some(stage) => (stage.seconds, stage.peak) = (stage.seconds.min(seconds), stage.peak.max(peak)),
            None => self.0.push(Stage { name, seconds, peak }),
        }
        result
    }
}

/// A document of which only the events are read.
#[derive(serde::Deserialize)]
struct Document<'a> {
    #[serde(borrow, rename = "traceEvents")]
    events: Vec<Event<'a>>,
}

/// An event, of which only the name and the duration are kept.
#[derive(serde::Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    dur: f64,
}

/// Adds up the durations of events with the same name, by `serde_json` alone.
#[allow(unsafe_code, reason = "mapping a file is unsafe")]
fn sum_by_name(path: &Path) -> Result<usize, Box<dyn Error>> {
    // SAFETY: nobody else knows of the file, which is in a temporary folder.
    let bytes = unsafe { memmap2::Mmap::map(&File::open(path)?)? };
    let document: Document<'_> = serde_json::from_str(std::str::from_utf8(&bytes)?)?;
    let mut sums: FxHashMap<Cow<'_, str>, f64> = FxHashMap::default();
    document.events.into_iter().for_each(|event| *sums.entry(event.name).or_default() += event.dur);
    Ok(black_box(sums).len())
}
