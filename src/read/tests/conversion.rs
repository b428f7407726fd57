//! Traces of PyTorch keep everything when they are converted.

use super::{check, our_rows, torch_rows, torch_trace, written};
use crate::{
    Perfetto,
    analysis::Analysis,
    read::from_bytes,
    trace::{Losses, Trace},
};
use serde_json::Value as Json;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    path::Path,
};

const TRACES: [&str; 5] = ["transformer", "transformer-shapes", "convolution-shapes", "perceptron-stack", "graph"];

fn original(name: &str) -> Json {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/torch");
    let file = std::fs::File::open(folder.join(format!("{name}.pt.trace.json.gz"))).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn converted(trace: &Trace) -> Json {
    serde_json::from_slice(&written(trace, |chrome| chrome)).unwrap()
}

fn events(document: &Json) -> &[Json] {
    document["traceEvents"].as_array().unwrap()
}

/// The number of events of each phase, category and name, but for arrows to or from no event.
fn counts(document: &Json) -> BTreeMap<[String; 3], usize> {
    let mut ends: BTreeMap<(&str, u64), BTreeSet<&str>> = BTreeMap::new();
    let arrow = |event: &Json| event["id"].as_u64().filter(|_| event["cat"].is_string());
    for event in events(document) {
        if let Some(id) = arrow(event) {
            ends.entry((event["cat"].as_str().unwrap(), id)).or_default().insert(event["ph"].as_str().unwrap());
        }
    }
    let mut counts = BTreeMap::new();
    for event in events(document).iter().filter(|event| event["ph"] != "M") {
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let is_whole = |id| ends[&(event["cat"].as_str().unwrap(), id)].len() == 2;
        if arrow(event).is_none_or(is_whole) {
            *counts.entry(["ph", "cat", "name"].map(text)).or_default() += 1;
        }
    }
    counts
}

/// The names and positions of processes and rows, without those of rows that kernspan has added.
fn names(document: &Json) -> BTreeMap<[String; 3], Json> {
    let named = events(document).iter().filter(|event| event["ph"] == "M");
    let named = named.filter(|event| event["tid"].as_u64().is_some_and(|tid| tid < 10_000_000));
    named.map(|event| (["pid", "tid", "name"].map(|key| event[key].to_string()), event["args"].clone())).collect()
}

/// The arguments of all events that have these names, event by event in order of time.
fn arguments(document: &Json, category: &str, keys: &[&str]) -> Vec<(String, Vec<Json>)> {
    let base = document["baseTimeNanoseconds"].as_u64().unwrap();
    let time = |event: &Json| (event["ts"].as_f64().unwrap() * 1e3) as u64 + base;
    let mut found: Vec<_> = events(document).iter().filter(|event| event["cat"] == category).collect();
    found.sort_by_cached_key(|event| {
        let place = ["name", "tid", "dur", "args"].map(|key| match key {
            // Rows that kernspan has added belong to a thread, too.
            "tid" => (event[key].as_u64().unwrap() % 10_000_000).to_string(),
            "args" => keys.iter().map(|key| event["args"][key].to_string()).collect(),
            _ => event[key].to_string(),
        });
        // The two bases differ, and so do the times when they are rounded to an `f64`.
        (place, time(event))
    });
    let of_event = |event: &&Json| keys.iter().map(|key| event["args"][key].clone()).collect();
    found.iter().map(|event| (event["name"].as_str().unwrap().to_owned(), of_event(event))).collect()
}

#[test]
fn torch_s_own_table_is_the_same_after_a_conversion() {
    for name in TRACES {
        let bytes = written(&torch_trace(name), |chrome| chrome);
        let back = from_bytes(&bytes).unwrap().remove(0);
        let (ours, torchs) = (our_rows(&back), torch_rows(name));
        for (ours, torchs) in ours.iter().zip(&torchs) {
            assert_eq!(ours, torchs, "{name}");
        }
        assert_eq!(ours.len(), torchs.len(), "{name}");
        check(name, &torch_trace(name));
        // Converting a converted file changes nothing.
        let lines = |bytes: &[u8]| {
            let mut lines: Vec<_> = String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(lines(&bytes), lines(&written(&back, |chrome| chrome)), "{name}");
    }
}

#[test]
fn events_and_names_of_torch_are_the_same_after_a_conversion() {
    for name in TRACES {
        let (before, after) = (original(name), converted(&torch_trace(name)));
        assert_eq!(counts(&before), counts(&after), "{name}");
        assert_eq!(names(&before), names(&after), "{name}");
        for (category, keys) in [
            ("cpu_op", &["Input Dims", "Input type", "Input Strides", "Concrete Inputs"][..]),
            ("user_annotation", &[]),
            ("python_function", &["Python module id"]),
            ("cuda_runtime", &["cbid", "correlation"]),
            ("kernel", &["device", "context", "stream", "correlation", "grid", "block", "registers per thread"]),
            ("gpu_memcpy", &["device", "stream", "correlation", "bytes"]),
            ("gpu_user_annotation", &[]),
            ("cpu_instant_event", &["Device Type", "Device Id", "Addr", "Bytes", "Total Allocated", "Total Reserved"]),
        ] {
            let of = |document: &Json| arguments(document, category, keys);
            assert_eq!(of(&before), of(&after), "{category} of {name}");
        }
    }
}

#[test]
fn functions_of_python_keep_their_callers() {
    /// The name of each function's caller.
    fn callers(document: &Json) -> BTreeMap<String, usize> {
        let functions: Vec<_> = events(document).iter().filter(|event| event["cat"] == "python_function").collect();
        let names: BTreeMap<_, _> =
            functions.iter().map(|event| (event["args"]["Python id"].as_u64().unwrap(), &event["name"])).collect();
        let mut callers = BTreeMap::new();
        for event in &functions {
            let caller = event["args"]["Python parent id"].as_u64().map(|id| names[&id]);
            *callers.entry(format!("{} in {caller:?}", event["name"])).or_default() += 1;
        }
        callers
    }
    let (before, after) = (original("perceptron-stack"), converted(&torch_trace("perceptron-stack")));
    assert_eq!(callers(&before), callers(&after));
    assert!(callers(&before).len() > 50);
}

/// A file of PyTorch with these events.
fn read(events: &str) -> Trace {
    from_bytes(format!(r#"{{"traceEvents": [{events}]}}"#).as_bytes()).unwrap().remove(0)
}

const FORWARD: &str = r#"{"ph": "X", "cat": "cpu_op", "name": "mm", "pid": 9, "tid": 9, "ts": 10, "dur": 2}"#;
const BACKWARD: &str = r#"{"ph": "X", "cat": "cpu_op", "name": "MmBackward0", "pid": 9, "tid": 8, "ts": 20, "dur": 2}"#;

#[test]
fn arrows_that_lead_nowhere_are_counted() {
    let start = r#"{"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 9, "tid": 9, "ts": 10}"#;
    let end = r#"{"ph": "f", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 9, "tid": 8, "ts": 20, "bp": "e"}"#;
    let links = |events: &[&str]| {
        let trace = read(&events.join(","));
        let torch = trace.torch().unwrap();
        assert_eq!(trace.losses(), &Losses::default());
        (torch.backward_links().len(), torch.left_out().map(|(_, count)| count).sum::<u64>())
    };
    assert_eq!(links(&[FORWARD, start, BACKWARD, end]), (1, 0));
    assert_eq!(links(&[FORWARD, start, BACKWARD]), (0, 1));
    assert_eq!(links(&[FORWARD, BACKWARD, end]), (0, 1));
    // An arrow that is not where the event before it begins.
    assert_eq!(links(&[FORWARD, BACKWARD, start, end]), (0, 2));
    // Backward before forward.
    let (start, end) = (start.replace(r#""s""#, r#""f""#), end.replace(r#""f""#, r#""s""#));
    assert_eq!(links(&[FORWARD, &start, BACKWARD, &end]), (0, 2));
}

#[test]
fn an_annotation_that_cuts_through_work_keeps_its_stream() {
    let work = |name: &str, start: u32, correlation: u32| {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7, "ts": {start}, "dur": 10,
            "args": {{"device": 0, "context": 1, "stream": 7, "correlation": {correlation}}}}}"#
        )
    };
    let label = |start: &str, stream: u32| {
        format!(
            r#"{{"ph": "X", "cat": "gpu_user_annotation", "name": "loss", "pid": 0, "tid": {stream}, "ts": {start},
            "dur": 10.002, "args": {{"External id": 4}}}}"#
        )
    };
    // The second kernel begins when the first ends.
    let trace = read(&[work("a", 10, 1), work("b", 20, 2), label("19.999", 7), label("19.999", 8)].join(","));
    assert_eq!(trace.losses().unread, 1, "there is no stream 8");
    let back = super::read_back(&trace);
    assert_eq!(trace.torch().unwrap().gpu_annotations, back.torch().unwrap().gpu_annotations);
    let document = converted(&trace);
    let labels: Vec<_> = events(&document).iter().filter(|event| event["cat"] == "gpu_user_annotation").collect();
    assert_eq!(labels.len(), 1);
    assert_eq!(labels[0]["tid"], 10_000_007);
}

#[test]
fn a_process_without_a_name_gets_none() {
    let trace = read(FORWARD);
    let document = converted(&trace);
    assert!(events(&document).iter().all(|event| event["name"] != "process_name"), "{document}");
    let folder = tempfile::tempdir().unwrap();
    let file = crate::Exporter::export(&mut Perfetto::to_dir(folder.path()), &Analysis::of(&trace)).unwrap().remove(0);
    assert!(file.exists());
}
