//! A large file of PyTorch's profiler: the events of a small one again and again, each time later and with other ids.

use std::{
    error::Error,
    fs::File,
    io::{BufWriter, Read, Write},
    path::Path,
};

/// A file that was written.
pub(super) struct TorchFile {
    pub(super) bytes: u64,
    pub(super) repeats: u64,
    pub(super) events: usize,
    /// The number of kernels, copies and fills.
    pub(super) work: usize,
}

/// A part of an event's text.
enum Part<'a> {
    Text(&'a str),
    /// Nanoseconds, which are written as microseconds.
    Time(u64),
    /// A number that is another in each repeat, and its kind.
    Id(u64, usize),
}

/// The numbers that are other ones in each repeat. The first is a time, and the last is part of a name.
const NUMBERS: [&str; 7] =
    ["\"ts\": ", "\"External id\": ", "\"correlation\": ", "\"id\": ", "\"Ev Idx\": ", "\"Addr\": ", "ProfilerStep#"];

/// Writes a file of about this size.
pub(super) fn write(path: &Path, fixture: &str, size: u64) -> Result<TorchFile, Box<dyn Error>> {
    // The fixtures are in the root of the repository, and some benchmarks in a package below it.
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("tests/fixtures/torch"));
    let folder = folders.into_iter().find(|folder| folder.is_dir()).ok_or("no folder tests/fixtures/torch")?;
    let mut text = String::new();
    let packed = File::open(folder.join(format!("{fixture}.pt.trace.json.gz")))?;
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text)?;
    let (head, rest) = text.split_once("\"traceEvents\": [\n").ok_or("no events")?;
    let (events, tail) = rest.rsplit_once("\n  ],").ok_or("no end of the events")?;
    let events: Vec<_> = events.trim().split(",\n  {\n").map(|event| event.trim_start_matches("{\n")).collect();
    // Names of rows, and marks of the window, come once.
    let is_once = |event: &&str| event.contains("\"ph\": \"M\"") || event.contains("PyTorch Profiler");
    let (once, repeated): (Vec<&str>, Vec<&str>) = events.into_iter().partition(is_once);
    let templates: Vec<Vec<Part<'_>>> = repeated.iter().map(|event| parts(event)).collect();
    let mut least = [u64::MAX; NUMBERS.len()];
    let mut most = [0; NUMBERS.len()];
    for part in templates.iter().flatten() {
        let (number, kind) = match *part {
            Part::Text(_) => continue,
            Part::Time(nanos) => (nanos, 0),
            Part::Id(id, kind) => (id, kind),
        };
        (least[kind], most[kind]) = (least[kind].min(number), most[kind].max(number));
    }
    let stride = |kind: usize| most[kind].saturating_sub(least[kind]) + 1;
    let repeats = (size / text.len() as u64).max(1);
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(file, "{head}\"traceEvents\": [")?;
    for repeat in 0..repeats {
        for template in &templates {
            file.write_all(b"  {\n")?;
            for part in template {
                match *part {
                    Part::Text(text) => file.write_all(text.as_bytes())?,
                    Part::Time(nanos) => {
                        let nanos = nanos + repeat * (stride(0) + 1_000_000);
                        write!(file, "{}.{:03}", nanos / 1000, nanos % 1000)?;
                    }
                    Part::Id(id, kind) => write!(file, "{}", id + repeat * stride(kind))?,
                }
            }
            file.write_all(b",\n")?;
        }
    }
    let once: Vec<_> = once.iter().map(|event| format!("  {{\n{event}")).collect();
    write!(file, "{}\n  ],{tail}", once.join(",\n"))?;
    file.flush()?;
    let is_work = |event: &&&str| ["kernel", "gpu_memcpy", "gpu_memset"].iter().any(|kind| has_category(event, kind));
    let per_repeat = repeated.iter().filter(is_work).count();
    Ok(TorchFile {
        bytes: std::fs::metadata(path)?.len(),
        repeats,
        events: repeated.len() * repeats as usize + once.len(),
        work: per_repeat * repeats as usize,
    })
}

fn has_category(event: &str, category: &str) -> bool {
    event.contains(&format!("\"cat\": \"{category}\""))
}

/// Takes an event's text apart.
fn parts(event: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = event;
    loop {
        let found = NUMBERS.iter().enumerate().filter_map(|(kind, key)| Some((rest.find(key)? + key.len(), kind)));
        let Some((start, kind)) = found.min() else { break };
        let (text, after) = rest.split_at(start);
        let length = after.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(after.len());
        let (number, after) = after.split_at(length);
        rest = after;
        parts.push(Part::Text(text));
        parts.push(match (kind, number.split_once('.')) {
            (0, decimal) => Part::Time(nanos(decimal.unwrap_or((number, "")))),
            (kind, _) => number.parse().map_or(Part::Text(number), |id| Part::Id(id, kind)),
        });
    }
    parts.push(Part::Text(rest));
    parts
}

fn nanos((whole, decimals): (&str, &str)) -> u64 {
    format!("{whole}{decimals:0<3}").parse().unwrap_or(0)
}
