//! The processed profile format of the Firefox Profiler.
//!
//! The crate `fxprof-processed-profile` writes it, too, but its frames have no lines.

use super::{
    exporter::{ExportResult, Exporter},
    json::{Array, Json, Object},
};
use crate::{
    analysis::Analysis,
    file,
    trace::{Span, StackSample, StackSampling, Stream, StreamId, ThreadId, Timestamp, Trace, Track, Work},
};
use rustc_hash::FxHashMap;
use std::{
    borrow::Cow,
    error::Error,
    io::{self, Write},
    path::PathBuf,
};

/// An exporter of sampled stacks and spans for the [Firefox Profiler](https://profiler.firefox.com), which runs in any
/// browser: open a file there. Nothing is uploaded.
///
/// ```no_run
/// # use kernspan::{Profiler, export::Firefox};
/// let (layer, profiler) = Profiler::builder().export(Firefox::to_dir("runs/mnist")).build()?;
/// # drop((layer, profiler));
/// # Ok::<(), kernspan::Error>(())
/// ```
///
/// Each window is a file, `{host}_{pid}.{time}.firefox.json`. Each thread has its sampled stacks, with files and lines,
/// and its spans as markers. Time that it waited is inside the function `[waiting]`, of the category *Idle*. Each
/// stream of a GPU is a thread with its work as markers.
#[derive(Clone, Debug)]
#[must_use = "an exporter does nothing until it is given to `ProfilerBuilder::export`"]
pub struct Firefox {
    folder: PathBuf,
}

impl Firefox {
    /// Creates an exporter that writes into this folder. The folder is created if it does not exist.
    pub fn to_dir(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Writes a trace to a writer instead of a file.
    pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
        let mut json = Json::default();
        json.object(|profile| write_profile(trace, profile));
        out.write_all(json.as_bytes())
    }
}

impl Exporter for Firefox {
    fn name(&self) -> &str {
        "Firefox"
    }

    fn check(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(file::check(&self.folder)?)
    }

    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        let write = |mut out: &mut io::BufWriter<std::fs::File>| Self::write(window, &mut out);
        Ok(vec![file::write(&self.folder, window, ".firefox.json", write)?])
    }
}

/// The version of the format.
const VERSION: u32 = 55;
/// The categories of frames and markers, by their places in the header.
const CATEGORIES: [(&str, &str); 4] = [("Other", "grey"), ("Idle", "transparent"), ("Span", "blue"), ("GPU", "green")];
const OTHER: usize = 0;
const IDLE: usize = 1;
const SPAN: usize = 2;
const GPU: usize = 3;

fn write_profile(trace: &Trace, profile: &mut Object<'_>) {
    profile.object("meta", |meta| write_meta(trace, meta));
    for empty in ["libs", "pages", "profilerOverhead", "counters"] {
        profile.array(empty, |_| ());
    }
    profile.array("threads", |threads| {
        let mut ids: Vec<ThreadId> = Vec::new();
        for track in trace.tracks() {
            if !ids.contains(&track.thread()) {
                ids.push(track.thread());
            }
        }
        for id in ids {
            threads.object(|object| Thread::of(trace, id).write(trace, object));
        }
        for (index, stream) in trace.streams().iter().enumerate() {
            threads.object(|object| Thread::of_stream(trace, StreamId::new(index), stream).write(trace, object));
        }
    });
}

fn write_meta(trace: &Trace, meta: &mut Object<'_>) {
    let metadata = trace.metadata();
    let hertz = trace.stack_sampling().map_or(0, StackSampling::hertz).max(1);
    meta.number("version", 24);
    meta.number("preprocessedProfileVersion", VERSION);
    meta.float("startTime", trace.start().as_unix_nanos() as f64 / 1e6);
    meta.float("interval", 1e3 / f64::from(hertz));
    meta.number("processType", 0);
    meta.number("stackwalk", 1);
    meta.string("product", &metadata.process);
    meta.string("importedFrom", concat!("kernspan ", env!("CARGO_PKG_VERSION")));
    meta.bool("symbolicated", true);
    meta.bool("debug", false);
    meta.bool("usesOnlyOneStackType", true);
    meta.bool("sourceCodeIsNotOnSearchfox", true);
    meta.array("pausedRanges", |_| ());
    meta.object("extensions", |object| {
        object.number("length", 0);
        ["baseURL", "id", "name"].into_iter().for_each(|key| object.array(key, |_| ()));
    });
    meta.object("sampleUnits", |units| {
        units.word("time", "ms");
        units.word("eventDelay", "ms");
        units.string("threadCPUDelta", "µs");
    });
    meta.array("categories", |list| {
        for (name, color) in CATEGORIES {
            list.object(|object| {
                object.string("name", name);
                object.string("color", color);
                object.array("subcategories", |list| list.string("Other"));
            });
        }
    });
    meta.array("markerSchema", |list| {
        for (name, fields) in [("span", ["path", "location"]), ("gpu", ["span", "attribution"])] {
            list.object(|schema| {
                schema.string("name", name);
                schema.array("display", |places| {
                    ["marker-chart", "marker-table", "timeline-overview"].iter().for_each(|place| places.string(place));
                });
                schema.string("chartLabel", "{marker.name}");
                schema.string("tooltipLabel", "{marker.name}");
                schema.string("tableLabel", &format!("{{marker.data.{}}}", fields[0]));
                schema.array("fields", |list| {
                    for key in fields {
                        list.object(|field| {
                            field.string("key", key);
                            field.string("label", key);
                            field.word("format", "string");
                            field.bool("searchable", true);
                        });
                    }
                });
            });
        }
    });
    // Losses and problems, in the place where the profiler describes a profile.
    let problem = trace.stack_sampling().and_then(StackSampling::problem).map(str::to_owned);
    let losses = (!trace.losses().is_empty()).then(|| trace.losses().to_string());
    let facts: Vec<_> = problem.into_iter().chain(losses).collect();
    if !facts.is_empty() {
        meta.string("arguments", &facts.join("; "));
    }
}

/// A thread of the profile: a thread of the program, or a stream of a GPU.
struct Thread<'a> {
    name: Cow<'a, str>,
    tid: String,
    is_main: bool,
    samples: Vec<StackSample<'a>>,
    markers: Vec<Marker<'a>>,
}

/// A range of time with a name and two texts.
struct Marker<'a> {
    name: Cow<'a, str>,
    category: usize,
    start: Timestamp,
    end: Timestamp,
    fields: [(&'static str, String); 2],
}

impl<'a> Thread<'a> {
    fn of(trace: &'a Trace, id: ThreadId) -> Self {
        let name = trace.tracks().iter().find(|track| track.thread() == id).map_or("", Track::thread_name);
        let spans = trace.spans().filter(|span| span.track().thread() == id);
        Self {
            name: name.into(),
            tid: id.as_u64().to_string(),
            is_main: id.as_u64() == u64::from(trace.metadata().pid),
            samples: trace.stack_samples().filter(|sample| sample.track().thread() == id).collect(),
            markers: spans.map(span_marker).collect(),
        }
    }

    fn of_stream(trace: &'a Trace, id: StreamId, stream: &Stream) -> Self {
        let work = trace.work().filter(|work| work.stream_id() == id);
        Self {
            name: format!("GPU {} {}", stream.device(), stream.label()).into(),
            tid: format!("gpu-{}-{}-{}-{}", stream.device(), stream.context(), stream.number(), stream.overlap()),
            is_main: false,
            samples: Vec::new(),
            markers: work.map(work_marker).collect(),
        }
    }

    fn write(&self, trace: &Trace, thread: &mut Object<'_>) {
        let metadata = trace.metadata();
        let millis = |at: Timestamp| at.since(trace.start()).as_nanos() as f64 / 1e6;
        let mut tables = Tables::default();
        let stacks: Vec<_> = self.samples.iter().map(|sample| tables.stack(*sample)).collect();
        thread.word("processType", "default");
        thread.string("processName", &metadata.process);
        thread.float("processStartupTime", 0.0);
        thread.null("processShutdownTime");
        thread.float("registerTime", 0.0);
        thread.null("unregisterTime");
        thread.array("pausedRanges", |_| ());
        thread.string("name", &self.name);
        thread.bool("isMainThread", self.is_main);
        thread.bool("showMarkersInTimeline", true);
        thread.string("pid", &metadata.pid.to_string());
        thread.string("tid", &self.tid);
        thread.object("samples", |samples| {
            samples.number("length", self.samples.len());
            samples.word("weightType", "tracing-ms");
            column(samples, "stack", &stacks, |list, stack| optional(list, *stack));
            column(samples, "time", &self.samples, |list, sample| list.float(millis(sample.at())));
            column(samples, "weight", &self.samples, |list, sample| {
                list.float(sample.duration().as_nanos() as f64 / 1e6);
            });
            column(samples, "threadCPUDelta", &self.samples, |list, sample| {
                list.number(if sample.is_waiting() { 0 } else { sample.duration().as_micros() });
            });
        });
        let names: Vec<_> = self.markers.iter().map(|marker| tables.text(marker.name.clone())).collect();
        thread.object("markers", |markers| {
            markers.number("length", self.markers.len());
            column(markers, "name", &names, |list, name| list.number(*name));
            column(markers, "category", &self.markers, |list, marker| list.number(marker.category));
            column(markers, "startTime", &self.markers, |list, marker| list.float(millis(marker.start)));
            column(markers, "endTime", &self.markers, |list, marker| list.float(millis(marker.end)));
            // An interval with both its ends.
            column(markers, "phase", &self.markers, |list, _| list.number(1));
            column(markers, "data", &self.markers, |list, marker| {
                list.object(|data| {
                    data.word("type", if marker.category == GPU { "gpu" } else { "span" });
                    marker.fields.iter().for_each(|(key, text)| data.string(key, text));
                });
            });
        });
        tables.write(thread);
    }
}

fn span_marker(span: Span<'_>) -> Marker<'_> {
    let mut path: Vec<_> = span.stack().map(Span::name).collect();
    path.reverse();
    let location = span.callsite().location().unwrap_or_default();
    let fields = [("path", path.join(" > ")), ("location", location)];
    Marker { name: span.name().into(), category: SPAN, start: span.start(), end: span.end(), fields }
}

fn work_marker(work: Work<'_>) -> Marker<'_> {
    let span = work.span().map_or("", Span::name).to_owned();
    let fields = [("span", span), ("attribution", work.attribution().as_str().to_owned())];
    Marker { name: work.name().to_string().into(), category: GPU, start: work.start(), end: work.end(), fields }
}

fn column<R>(table: &mut Object<'_>, key: &'static str, rows: &[R], cell: impl Fn(&mut Array<'_>, &R)) {
    table.array(key, |list| rows.iter().for_each(|row| cell(list, row)));
}

fn optional(list: &mut Array<'_>, number: Option<usize>) {
    match number {
        Some(number) => list.number(number),
        None => list.null(),
    }
}

/// The tables that the samples of a thread refer to.
#[derive(Default)]
struct Tables<'a> {
    texts: Vec<String>,
    text_of: FxHashMap<Cow<'a, str>, usize>,
    /// The caller and the frame of each stack.
    stacks: Vec<(Option<usize>, usize)>,
    stack_of: FxHashMap<(Option<usize>, usize), usize>,
    /// The function, the line, the category and whether it is inlined.
    frames: Vec<(usize, Option<u32>, usize, bool)>,
    frame_of: FxHashMap<(usize, Option<u32>, usize, bool), usize>,
    /// The name, the library and the file.
    functions: Vec<(usize, usize, Option<usize>)>,
    function_of: FxHashMap<(usize, usize, Option<usize>), usize>,
    /// The names of libraries.
    libraries: Vec<usize>,
}

/// Returns the index of a row, which is added if there is none yet.
fn index<R: Copy + Eq + std::hash::Hash>(rows: &mut Vec<R>, known: &mut FxHashMap<R, usize>, row: R) -> usize {
    *known.entry(row).or_insert_with(|| {
        rows.push(row);
        rows.len() - 1
    })
}

impl<'a> Tables<'a> {
    fn text(&mut self, text: Cow<'a, str>) -> usize {
        let texts = &mut self.texts;
        *self.text_of.entry(text).or_insert_with_key(|text| {
            texts.push(text.to_string());
            texts.len() - 1
        })
    }

    fn stack(&mut self, sample: StackSample<'a>) -> Option<usize> {
        let frames: Vec<_> = sample.stack().collect();
        let mut stack = None;
        for frame in frames.into_iter().rev() {
            let file = frame.file().map(|file| self.text(file.into()));
            let function = self.function(frame.function(), frame.library(), file);
            stack = Some(self.push((function, frame.line(), OTHER, frame.is_inlined()), stack));
        }
        if sample.is_waiting() {
            let function = self.function("[waiting]", "", None);
            stack = Some(self.push((function, None, IDLE, false), stack));
        }
        stack
    }

    fn function(&mut self, name: &'a str, library: &'a str, file: Option<usize>) -> usize {
        let (name, library) = (self.text(name.into()), self.text(library.into()));
        let place = self.libraries.iter().position(|known| *known == library).unwrap_or(self.libraries.len());
        if place == self.libraries.len() {
            self.libraries.push(library);
        }
        index(&mut self.functions, &mut self.function_of, (name, place, file))
    }

    fn push(&mut self, frame: (usize, Option<u32>, usize, bool), caller: Option<usize>) -> usize {
        let frame = index(&mut self.frames, &mut self.frame_of, frame);
        index(&mut self.stacks, &mut self.stack_of, (caller, frame))
    }

    fn write(&self, thread: &mut Object<'_>) {
        thread.object("stackTable", |table| {
            table.number("length", self.stacks.len());
            column(table, "prefix", &self.stacks, |list, (caller, _)| optional(list, *caller));
            column(table, "frame", &self.stacks, |list, (_, frame)| list.number(*frame));
        });
        thread.object("frameTable", |table| {
            table.number("length", self.frames.len());
            column(table, "func", &self.frames, |list, frame| list.number(frame.0));
            column(table, "line", &self.frames, |list, frame| optional(list, frame.1.map(|line| line as usize)));
            column(table, "category", &self.frames, |list, frame| list.number(frame.2));
            column(table, "inlineDepth", &self.frames, |list, frame| list.number(u8::from(frame.3)));
            for (key, number) in [("address", -1), ("subcategory", 0), ("innerWindowID", 0)] {
                column(table, key, &self.frames, |list, _| list.number(number));
            }
            ["nativeSymbol", "column"]
                .into_iter()
                .for_each(|key| column(table, key, &self.frames, |list, _| list.null()));
        });
        thread.object("funcTable", |table| {
            table.number("length", self.functions.len());
            column(table, "name", &self.functions, |list, function| list.number(function.0));
            column(table, "resource", &self.functions, |list, function| list.number(function.1));
            column(table, "fileName", &self.functions, |list, function| optional(list, function.2));
            ["isJS", "relevantForJS"]
                .into_iter()
                .for_each(|key| column(table, key, &self.functions, |list, _| list.raw("false")));
            ["lineNumber", "columnNumber"]
                .into_iter()
                .for_each(|key| column(table, key, &self.functions, |list, _| list.null()));
        });
        thread.object("resourceTable", |table| {
            table.number("length", self.libraries.len());
            column(table, "name", &self.libraries, |list, name| list.number(*name));
            ["lib", "host"].into_iter().for_each(|key| column(table, key, &self.libraries, |list, _| list.null()));
            // A library.
            column(table, "type", &self.libraries, |list, _| list.number(1));
        });
        thread.object("nativeSymbols", |table| {
            table.number("length", 0);
            ["address", "functionSize", "libIndex", "name"].into_iter().for_each(|key| table.array(key, |_| ()));
        });
        thread.array("stringArray", |list| self.texts.iter().for_each(|text| list.string(text)));
    }
}

#[cfg(test)]
mod tests;
