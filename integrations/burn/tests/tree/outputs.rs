//! The tree of spans that each output shows, read from what was written or sent.

use kernspan::Report;
use prost::Message;
use serde_json::Value as Json;
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
};

/// How often each path of spans occurs. A path has the names from the outside in, separated by semicolons.
pub type Tree = BTreeMap<String, u64>;

/// A slice on a row: the name, and when it starts and ends.
struct Slice {
    name: String,
    start: i128,
    end: i128,
}

/// Returns the tree of the slices of one row, which lie inside each other by their times alone.
fn nested(mut slices: Vec<Slice>) -> Tree {
    let mut tree = Tree::new();
    // The sort is stable: of two slices with the same times, the first in the file is the outer one.
    slices.sort_by_key(|slice| (slice.start, -slice.end));
    let mut open: Vec<Slice> = Vec::new();
    for slice in slices {
        open.retain(|outer| slice.end <= outer.end);
        let names = open.iter().map(|outer| outer.name.as_str()).chain([slice.name.as_str()]);
        *tree.entry(names.collect::<Vec<_>>().join(";")).or_default() += 1;
        open.push(slice);
    }
    tree
}

fn sum(trees: impl IntoIterator<Item = Tree>) -> Tree {
    let mut sum = Tree::new();
    trees.into_iter().flatten().for_each(|(path, count)| *sum.entry(path).or_default() += count);
    sum
}

/// Returns the files in a folder, and in those inside it, whose names end like this.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(files(&entry, ending));
        } else if entry.to_str().unwrap().ends_with(ending) {
            found.push(entry);
        }
    }
    found
}

pub fn report(report: &Report) -> Tree {
    let rows = report.averages().group_by_stack(usize::MAX).limit(usize::MAX).rows();
    let path = |stack: &[String], name: &str| {
        stack.iter().rev().map(String::as_str).chain([name]).collect::<Vec<_>>().join(";")
    };
    rows.into_iter().map(|row| (path(&row.stack, &row.name), row.calls)).collect()
}

/// The table of spans in the page, which is a tree.
pub fn page(folder: &Path) -> Tree {
    let pages = files(folder, ".html");
    assert_eq!(pages.len(), 1);
    let page = fs::read_to_string(&pages[0]).unwrap();
    let (_, document) = page.split_once(r#"<script type="application/json""#).unwrap();
    let (document, _) = document.split_once('>').unwrap().1.split_once("</script>").unwrap();
    let document: Json = serde_json::from_str(document).unwrap();
    let section = |id: &str| document["sections"].as_array().unwrap().iter().find(|section| section["id"] == id);
    let spans = section("spans").unwrap();
    let column = |title: &str| {
        let columns = spans["columns"].as_array().unwrap();
        columns.iter().position(|column| column[0] == title).unwrap()
    };
    let (name, calls) = (column("Name"), column("# of Calls"));
    let mut paths: Vec<String> = Vec::new();
    let mut tree = Tree::new();
    for (row, parent) in spans["rows"].as_array().unwrap().iter().zip(spans["parents"].as_array().unwrap()) {
        let name = document["names"][row[name].as_u64().unwrap() as usize].as_str().unwrap();
        let outer = usize::try_from(parent.as_i64().unwrap()).ok().map(|parent| format!("{};", paths[parent]));
        paths.push(outer.unwrap_or_default() + name);
        tree.insert(paths.last().unwrap().clone(), row[calls].as_u64().unwrap());
    }
    tree
}

/// The stacks of all windows, without the thread's name. They have no counts.
pub fn folded_stacks(folder: &Path) -> Vec<String> {
    let texts = files(folder, ".folded").into_iter().map(|file| fs::read_to_string(file).unwrap());
    let stack = |line: &str| line.rsplit_once(' ').unwrap().0.split_once(';').map(|(_, stack)| stack.to_owned());
    let mut stacks: Vec<_> = texts.flat_map(|text| text.lines().filter_map(stack).collect::<Vec<_>>()).collect();
    stacks.retain(|stack| !stack.starts_with("GPU not recorded"));
    stacks.sort_unstable();
    stacks.dedup();
    stacks
}

pub fn chrome(folder: &Path) -> Tree {
    let mut trees = Vec::new();
    for file in files(folder, ".pt.trace.json") {
        let document: Json = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        let mut rows: HashMap<String, Vec<Slice>> = HashMap::new();
        for event in document["traceEvents"].as_array().unwrap().iter().filter(|event| event["cat"] == "cpu_op") {
            // Microseconds with three decimals.
            let nanos = |key: &str| (event[key].as_f64().unwrap() * 1e3).round() as i128;
            let (name, start) = (event["name"].as_str().unwrap().to_owned(), nanos("ts"));
            let slice = Slice { name, start, end: start + nanos("dur") };
            rows.entry(format!("{} {}", event["pid"], event["tid"])).or_default().push(slice);
        }
        trees.extend(rows.into_values().map(nested));
    }
    sum(trees)
}

/// The slices of threads. Those of steps are on a track of their own.
pub fn perfetto(folder: &Path) -> Tree {
    let mut tree = Tree::new();
    for file in files(folder, ".pftrace") {
        let trace = proto::Trace::decode(&*fs::read(file).unwrap()).unwrap();
        // Of each sequence: the names, and the track of events that name none.
        let mut names: HashMap<(u32, u64), String> = HashMap::new();
        let mut tracks: HashMap<u32, u64> = HashMap::new();
        let mut threads: Vec<u64> = Vec::new();
        let mut open: HashMap<u64, Vec<String>> = HashMap::new();
        for packet in trace.packet {
            let sequence = packet.sequence;
            for name in packet.interned.map(|interned| interned.names).unwrap_or_default() {
                names.insert((sequence, name.id), name.name);
            }
            if let Some(track) = packet.defaults.and_then(|defaults| defaults.event).map(|event| event.track) {
                tracks.insert(sequence, track);
            }
            threads.extend(packet.descriptor.filter(|track| track.thread.is_some()).map(|track| track.uuid));
            let Some(event) = packet.event else { continue };
            let track = event.track.or(tracks.get(&sequence).copied()).unwrap();
            if !threads.contains(&track) {
                continue;
            }
            let open = open.entry(track).or_default();
            match event.kind {
                1 => {
                    let name = event.name_id.map(|id| names[&(sequence, id)].clone());
                    open.push(name.or(event.name).unwrap());
                    *tree.entry(open.join(";")).or_default() += 1;
                }
                2 => drop(open.pop().unwrap()),
                _ => {}
            }
        }
    }
    tree
}

/// The lines of threads in the host's plane. Each step is a slice around its spans, since XProf looks for it there.
pub fn xprof(folder: &Path) -> Tree {
    let mut trees = Vec::new();
    for file in files(folder, ".xplane.pb") {
        let space = proto::Space::decode(&*fs::read(file).unwrap()).unwrap();
        let host = space.planes.into_iter().find(|plane| plane.name == "/host:CPU").unwrap();
        for line in host.lines {
            let slice = |event: &proto::XEvent| Slice {
                name: host.names[&event.name].name.clone(),
                start: event.offset.into(),
                end: i128::from(event.offset) + i128::from(event.duration),
            };
            let in_step = |(path, count): (String, u64)| Some((path.strip_prefix("train;")?.to_owned(), count));
            trees.push(nested(line.events.iter().map(slice).collect()).into_iter().filter_map(in_step).collect());
        }
    }
    sum(trees)
}

/// The spans of all requests, without the outermost ones: each step has a span, and so has the run.
pub fn otlp(requests: &[Vec<u8>]) -> Tree {
    let mut spans: HashMap<Vec<u8>, proto::OtlpSpan> = HashMap::new();
    for request in requests {
        let request = proto::Request::decode(&**request).unwrap();
        let all = request.resources.into_iter().flat_map(|resource| resource.scopes).flat_map(|scope| scope.spans);
        spans.extend(all.map(|span| (span.id.clone(), span)));
    }
    let path = |span: &proto::OtlpSpan| {
        let outer = std::iter::successors(Some(span), |span| spans.get(&span.parent));
        let mut names: Vec<_> = outer.map(|span| span.name.as_str()).collect();
        let outermost = names.pop().unwrap();
        assert!(outermost.starts_with("step ") || outermost == "run" && names.is_empty(), "{outermost}: {names:?}");
        names.reverse();
        names.join(";")
    };
    let mut tree = Tree::new();
    spans.values().map(path).filter(|path| !path.is_empty()).for_each(|path| *tree.entry(path).or_default() += 1);
    tree
}

/// The few fields that are needed of the messages of Perfetto, XProf and OpenTelemetry.
mod proto {
    use prost::Message;
    use std::collections::HashMap;

    #[derive(Message)]
    pub struct Trace {
        #[prost(message, repeated, tag = "1")]
        pub packet: Vec<Packet>,
    }

    #[derive(Message)]
    pub struct Packet {
        #[prost(uint32, tag = "10")]
        pub sequence: u32,
        #[prost(message, optional, tag = "11")]
        pub event: Option<TrackEvent>,
        #[prost(message, optional, tag = "12")]
        pub interned: Option<Interned>,
        #[prost(message, optional, tag = "59")]
        pub defaults: Option<Defaults>,
        #[prost(message, optional, tag = "60")]
        pub descriptor: Option<Descriptor>,
    }

    #[derive(Message)]
    pub struct TrackEvent {
        #[prost(int32, tag = "9")]
        pub kind: i32,
        #[prost(uint64, optional, tag = "10")]
        pub name_id: Option<u64>,
        #[prost(uint64, optional, tag = "11")]
        pub track: Option<u64>,
        #[prost(string, optional, tag = "23")]
        pub name: Option<String>,
    }

    #[derive(Message)]
    pub struct Interned {
        #[prost(message, repeated, tag = "2")]
        pub names: Vec<Name>,
    }

    #[derive(Message)]
    pub struct Name {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(string, tag = "2")]
        pub name: String,
    }

    #[derive(Message)]
    pub struct Defaults {
        #[prost(message, optional, tag = "11")]
        pub event: Option<EventDefaults>,
    }

    #[derive(Message)]
    pub struct EventDefaults {
        #[prost(uint64, tag = "11")]
        pub track: u64,
    }

    #[derive(Message)]
    pub struct Descriptor {
        #[prost(uint64, tag = "1")]
        pub uuid: u64,
        #[prost(message, optional, tag = "4")]
        pub thread: Option<Thread>,
    }

    #[derive(Message)]
    pub struct Thread {}

    #[derive(Message)]
    pub struct Space {
        #[prost(message, repeated, tag = "1")]
        pub planes: Vec<Plane>,
    }

    #[derive(Message)]
    pub struct Plane {
        #[prost(string, tag = "2")]
        pub name: String,
        #[prost(message, repeated, tag = "3")]
        pub lines: Vec<Line>,
        #[prost(map = "int64, message", tag = "4")]
        pub names: HashMap<i64, XName>,
    }

    #[derive(Message)]
    pub struct Line {
        #[prost(string, tag = "2")]
        pub name: String,
        #[prost(message, repeated, tag = "4")]
        pub events: Vec<XEvent>,
    }

    #[derive(Message)]
    pub struct XEvent {
        #[prost(int64, tag = "1")]
        pub name: i64,
        #[prost(int64, tag = "2")]
        pub offset: i64,
        #[prost(int64, tag = "3")]
        pub duration: i64,
    }

    #[derive(PartialEq, Message)]
    pub struct XName {
        #[prost(string, tag = "2")]
        pub name: String,
    }

    #[derive(Message)]
    pub struct Request {
        #[prost(message, repeated, tag = "1")]
        pub resources: Vec<Resource>,
    }

    #[derive(Message)]
    pub struct Resource {
        #[prost(message, repeated, tag = "2")]
        pub scopes: Vec<Scope>,
    }

    #[derive(Message)]
    pub struct Scope {
        #[prost(message, repeated, tag = "2")]
        pub spans: Vec<OtlpSpan>,
    }

    #[derive(Message)]
    pub struct OtlpSpan {
        #[prost(bytes = "vec", tag = "2")]
        pub id: Vec<u8>,
        #[prost(bytes = "vec", tag = "4")]
        pub parent: Vec<u8>,
        #[prost(string, tag = "5")]
        pub name: String,
    }
}
