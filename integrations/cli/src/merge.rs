//! The command `merge`: combines several traces of one run into one file for viewers.

use crate::{
    fault::{Fault, say},
    file,
    input::{self, Inputs, cannot_read, name},
};
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use kernspan::{
    Chrome, Trace,
    analysis::{ClockOffset, ClockOffsets, CollectiveCall, collective_calls},
    read::from_bytes,
    trace::Timestamp,
};
use serde::Deserialize;
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    error::Error,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

/// Merge traces of several ranks or windows into one Chrome JSON file, for viewers
///
/// The collectives of several ranks bound the differences between the clocks of their hosts. Each host is shifted by
/// the middle of that interval, which is printed and in the file (`kernspan_clocks`). Ranks of unknown hosts may share
/// a clock, so they are shifted only if they certainly do not. Without collectives, times are as the hosts' clocks have
/// them.
///
/// Processes with the same id, such as the GPUs of different ranks, get different ids. If there are several processes,
/// their names include the rank. The merged file is meant for viewers; give the original files to `kernspan report`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kernspan merge run.json.gz rank0.pt.trace.json rank1.pt.trace.json
  kernspan merge run.json.gz runs/mnist

Exit status: 0 success; 1 a file could not be read or written; 2 usage error")]
pub(crate) struct Args {
    /// Output file, .json or .json.gz
    #[arg(value_name = "NEW")]
    to: PathBuf,
    #[command(flatten)]
    inputs: Inputs,
}

/// A process of the run: host, number and rank.
type Process = (String, u32, u32);

/// An event: its members as they appear in the file.
type Event<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// The relevant members of a document.
#[derive(Deserialize)]
struct Document<'a> {
    #[serde(rename = "baseTimeNanoseconds", default)]
    base: i64,
    #[serde(rename = "traceEvents", borrow)]
    events: Vec<&'a RawValue>,
}

/// A file: its text, and the process it belongs to.
struct Part {
    name: String,
    text: String,
    process: Process,
    calls: Vec<CollectiveCall>,
    /// The middle of its first window.
    middle: Timestamp,
    /// The nanoseconds by which its clock is ahead, as far as known.
    ahead: i64,
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let ending = self.to.display().to_string();
        let gzip = ending.ends_with(".json.gz");
        if !gzip && !ending.ends_with(".json") {
            return Err(Fault::Usage(format!("unsupported extension of {ending}: expected .json or .json.gz")));
        }
        self.inputs.check_output(Some(&self.to))?;
        let (files, mut is_complete) = self.inputs.find()?;
        let mut parts = Vec::new();
        for path in &files {
            match Part::read(path) {
                Ok(part) => parts.push(part),
                Err(error) => {
                    say(&cannot_read(path, &*error));
                    is_complete = false;
                }
            }
        }
        if parts.is_empty() {
            return Err(Fault::Incomplete);
        }
        let clocks = align(&mut parts);
        file::write(&self.to, |mut out| match gzip {
            true => {
                let mut packed = GzEncoder::new(out, Compression::fast());
                write(&parts, &clocks, &mut packed)?;
                packed.finish().map(drop)
            }
            false => write(&parts, &clocks, &mut out),
        })?;
        if is_complete { Ok(()) } else { Err(Fault::Incomplete) }
    }
}

impl Part {
    /// Reads a file. A recorded window is converted to JSON.
    fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        let mut bytes = input::bytes(path)?;
        let traces = from_bytes(&bytes)?;
        let trace = traces.first().ok_or("expected a trace, found none")?;
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut plain = Vec::new();
            MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain)?;
            bytes = plain;
        }
        if !matches!(bytes.iter().find(|byte| !byte.is_ascii_whitespace()), Some(b'{' | b'[')) {
            bytes.clear();
            Chrome::to_dir("unused").write(trace, &mut bytes)?;
        }
        let text = String::from_utf8(bytes)?;
        let calls = traces.iter().flat_map(collective_calls).collect();
        let middle = trace.start() + trace.end().since(trace.start()) / 2;
        Ok(Self { name: name(path), text, process: process(trace), calls, middle, ahead: 0 })
    }

    fn document(&self) -> io::Result<Document<'_>> {
        let is_list = self.text.trim_start().starts_with('[');
        let document = match is_list {
            true => serde_json::from_str(&self.text).map(|events| Document { base: 0, events }),
            false => serde_json::from_str(&self.text),
        };
        document.map_err(|error| io::Error::other(format!("{}: {error}", self.name)))
    }
}

fn process(trace: &Trace) -> Process {
    let metadata = trace.metadata();
    (metadata.host.clone(), metadata.pid, metadata.rank)
}

/// Finds out how far the clocks of parts are apart, and returns those of the first part's time, if there are several.
fn align(parts: &mut [Part]) -> Vec<ClockOffset> {
    let calls = parts.iter().map(|part| (part.process.2, part.process.0.as_str(), part.calls.as_slice()));
    let clocks = ClockOffsets::of(calls);
    let Some(first) = parts.first().map(|part| part.middle) else { return Vec::new() };
    let is_known = |clocks: &[ClockOffset]| clocks.iter().skip(1).any(|clock| clock.interval.is_some());
    if !is_known(&clocks.offsets(first)) {
        return Vec::new();
    }
    for part in parts {
        let of_part = clocks.offsets(part.middle).into_iter().find(|clock| clock.ranks.contains(&part.process.2));
        part.ahead = of_part.as_ref().map_or(0, ahead);
    }
    clocks.warnings(first).iter().for_each(|warning| say(&format!("warning: {warning}")));
    let clocks = clocks.offsets(first);
    clocks.iter().skip(1).for_each(|clock| say(&format!("the clock of {clock}")));
    clocks
}

/// Returns the nanoseconds by which a clock is taken to be ahead.
fn ahead(clock: &ClockOffset) -> i64 {
    let may_be_equal = clock.interval.is_some_and(|(least, most)| least <= 0 && 0 <= most);
    if clock.host.is_empty() && may_be_equal { 0 } else { clock.middle().unwrap_or(0) }
}

/// Writes one document with the events of all parts.
fn write(parts: &[Part], clocks: &[ClockOffset], out: &mut impl Write) -> io::Result<()> {
    let documents: Vec<_> = parts.iter().map(Part::document).collect::<io::Result<_>>()?;
    let base = documents.iter().map(|document| document.base).min().unwrap_or(0);
    let several = parts.iter().any(|part| part.process != parts[0].process);
    let files: Vec<_> = parts.iter().map(|part| part.name.as_str()).collect();
    let files = serde_json::to_string(&files)?;
    write!(out, "{{\"schemaVersion\": 1, \"displayTimeUnit\": \"ms\", \"baseTimeNanoseconds\": {base}, ")?;
    write!(out, "\"kernspan_merged\": {files}, ")?;
    if !clocks.is_empty() {
        let clock = |clock: &ClockOffset| {
            let (least, most) = clock.interval.unzip();
            json!({
                "host": clock.host, "ranks": clock.ranks, "ahead_ns": ahead(clock),
                "least_ns": least, "most_ns": most,
            })
        };
        write!(out, "\"kernspan_clocks\": {}, ", clocks.iter().map(clock).collect::<serde_json::Value>())?;
    }
    write!(out, "\"traceEvents\": [")?;
    let mut ids = ProcessIds::default();
    let mut first_id = 0;
    let mut separator = "\n";
    for (part, document) in parts.iter().zip(&documents) {
        let mut largest_id = 0;
        for event in &document.events {
            let mut event: Event<'_> = serde_json::from_str(event.get())?;
            let mut changed = Vec::new();
            if let Some(pid) = event.get("pid") {
                changed.push(("pid", ids.of(&part.process, pid.get())));
            }
            if let Some(nanos) = event.get("ts").and_then(|time| nanos(time.get())) {
                changed.push(("ts", micros(nanos + i128::from(document.base - base) - i128::from(part.ahead))));
            }
            if let Some(id) = event.get("id").and_then(|id| id.get().parse::<u64>().ok()) {
                largest_id = largest_id.max(id);
                changed.push(("id", u64::wrapping_add(first_id, id).to_string()));
            }
            if let Some(args) = several.then(|| named_by_rank(&event, part.process.2)).flatten() {
                changed.push(("args", args));
            }
            let changed = changed.into_iter().map(|(key, text)| Ok((key, RawValue::from_string(text)?)));
            let changed: Vec<_> = changed.collect::<serde_json::Result<_>>()?;
            event.extend(changed.iter().map(|(key, value)| (Cow::Borrowed(*key), &**value)));
            write!(out, "{separator}{}", serde_json::to_string(&event)?)?;
            separator = ",\n";
        }
        first_id = first_id.wrapping_add(largest_id).wrapping_add(1);
    }
    writeln!(out, "\n]}}")
}

/// The process ids in the new file.
#[derive(Default)]
struct ProcessIds<'a> {
    /// The process that an id, as text, belongs to.
    owners: HashMap<String, &'a Process>,
    renamed: HashMap<(&'a Process, String), String>,
}

impl<'a> ProcessIds<'a> {
    /// The first id given to a process whose own is taken: Linux has no process ids this large.
    const FIRST: usize = 10_000_000;

    /// Returns the new id for this id in a file of the process.
    fn of(&mut self, process: &'a Process, pid: &str) -> String {
        if *self.owners.entry(pid.to_owned()).or_insert(process) == process {
            return pid.to_owned();
        }
        let next = self.renamed.len() + Self::FIRST;
        self.renamed.entry((process, pid.to_owned())).or_insert_with(|| next.to_string()).clone()
    }
}

/// Returns the arguments of an event that names a process, with the rank before the name.
fn named_by_rank(event: &Event<'_>, rank: u32) -> Option<String> {
    if event.get("ph")?.get() != "\"M\"" || event.get("name")?.get() != "\"process_name\"" {
        return None;
    }
    #[derive(Deserialize)]
    struct Args {
        name: String,
    }
    let args: Args = serde_json::from_str(event.get("args")?.get()).ok()?;
    let name = to_raw_value(&format!("rank {rank}: {}", args.name)).ok()?;
    Some(format!("{{\"name\": {name}}}"))
}

/// Converts microseconds to nanoseconds without rounding the digits given.
fn nanos(micros: &str) -> Option<i128> {
    let digits = micros.trim_matches('"');
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_plain = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    match whole.parse::<i128>().ok().filter(|_| is_plain) {
        Some(number) => {
            let fraction: i128 = format!("{fraction:0<3}").parse().ok()?;
            Some(1000 * number + if whole.starts_with('-') { -fraction } else { fraction })
        }
        None => digits.parse::<f64>().ok().map(|micros| (1000.0 * micros).round() as i128),
    }
}

fn micros(nanos: i128) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    format!("{sign}{}.{:03}", nanos.abs() / 1000, nanos.abs() % 1000)
}

#[cfg(test)]
mod tests {
    use super::{ProcessIds, micros, nanos};

    #[test]
    fn times_keep_their_nanoseconds() {
        let texts = ["1731700000000123.457", "12", "-0.5", "12.25", "1.5e3", "\"7.001\"", "x"];
        let times = texts.map(nanos);
        let large = Some(1_731_700_000_000_123_457);
        assert_eq!(times, [large, Some(12_000), Some(-500), Some(12_250), Some(1_500_000), Some(7_001), None]);
        assert_eq!([1_731_700_000_000_123_457, -500, 7].map(micros), ["1731700000000123.457", "-0.500", "0.007"]);
    }

    #[test]
    fn each_process_has_numbers_of_its_own() {
        let [first, second] = [0, 1].map(|rank| ("host".to_owned(), 7, rank));
        let mut ids = ProcessIds::default();
        let seen = [(&first, "0"), (&second, "0"), (&second, "1"), (&first, "1"), (&second, "0"), (&first, "0")];
        let seen = seen.map(|(process, pid)| ids.of(process, pid));
        assert_eq!(seen, ["0", "10000000", "1", "10000001", "10000000", "0"]);
    }
}
