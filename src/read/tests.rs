//! Files that kernspan has written give the same report when they are read.

mod conversion;

use super::from_bytes;
use crate::{
    Chrome, Exporter, Report,
    trace::{Trace, sample},
};
use proptest::prelude::*;
use std::{io::Read, path::Path};

/// Writes a trace as Kineto's JSON, and returns the file.
fn written(trace: &Trace, chrome: impl FnOnce(Chrome) -> Chrome) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let files = chrome(Chrome::to_dir(folder.path())).export(trace).unwrap();
    std::fs::read(&files[0]).unwrap()
}

fn read_back(trace: &Trace) -> Trace {
    let mut traces = from_bytes(&written(trace, |chrome| chrome)).unwrap();
    assert_eq!(traces.len(), 1);
    traces.remove(0)
}

/// Everything that a report says.
fn report(trace: &Trace) -> String {
    let report = Report::of([trace]);
    let json = serde_json::to_string_pretty(&report).unwrap();
    let (by_shape, by_stack) = (report.averages().group_by_shape(true), report.averages().group_by_stack(5));
    format!("{}\n{}\n{by_shape}\n{by_stack}\n{json}", report.width(200), report.kernels())
}

fn check(name: &str, trace: &Trace) {
    let (before, back) = (report(trace), read_back(trace));
    let after = report(&back);
    for (before, after) in before.lines().zip(after.lines()) {
        assert_eq!(before, after, "{name}");
    }
    assert_eq!(before.len(), after.len(), "{name}");
    assert_eq!(back.losses().unread, 0, "{name}");
    // And once more, since a file may be converted.
    assert_eq!(report(&read_back(&back)), after, "{name}");
}

#[test]
fn sample_traces_give_the_same_report() {
    check("gpu", &sample::gpu_trace());
    check("awkward", &sample::awkward_trace());
    sample::ranks().iter().for_each(|trace| check("rank", trace));
    check("operations", &sample::operations_trace());
    let mut trace = sample::gpu_trace();
    sample::set_caller(&mut trace, 4, Some(0));
    sample::set_caller(&mut trace, 5, None);
    sample::set_previous(&mut trace, 4, 1);
    sample::add_counter(&mut trace, "loss", &[(sample::at(20), 0.5), (sample::at(120), f64::NAN)]);
    sample::cut_both_ends(&mut trace, 0);
    sample::set_fields(&mut trace, 2, &[("Sequence number", 7_u64), ("src", 8)]);
    check("callers", &trace);
    let fields = |trace: &Trace| trace.spans().nth(2).unwrap().fields().iter().count();
    assert_eq!((fields(&trace), fields(&read_back(&trace))), (2, 2));
    assert_eq!(read_back(&trace).counters().len(), 1);
    check("nothing", &Trace::default());
}

#[test]
fn recorded_windows_give_the_same_report() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gpu");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "kernspan") {
            let traces = super::read(&path).unwrap();
            traces.iter().for_each(|trace| check(&path.display().to_string(), trace));
            count += 1;
        }
    }
    assert!(count >= 5, "{count} recorded windows");
}

/// A row of torch's own table.
#[derive(Debug, PartialEq, Eq, serde::Deserialize)]
struct TorchRow {
    key: String,
    on_device: bool,
    is_annotation: bool,
    count: u64,
    cpu_time: u64,
    self_cpu_time: u64,
    device_time: u64,
    self_device_time: u64,
    cpu_memory: i64,
    self_cpu_memory: i64,
    device_memory: i64,
    self_device_memory: i64,
    flops: u64,
}

/// The rows of torch's table for a trace in the fixtures.
fn torch_rows(name: &str) -> Vec<TorchRow> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/torch");
    serde_json::from_slice(&std::fs::read(folder.join(format!("{name}.rows.json"))).unwrap()).unwrap()
}

fn torch_trace(name: &str) -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/torch");
    super::read(folder.join(format!("{name}.pt.trace.json.gz"))).unwrap().remove(0)
}

fn our_rows(trace: &Trace) -> Vec<TorchRow> {
    let nanos = |time: std::time::Duration| time.as_nanos() as u64;
    let row = |row: crate::report::KeyAverage| TorchRow {
        key: row.key,
        on_device: row.on_device,
        is_annotation: row.is_annotation,
        count: row.count,
        cpu_time: nanos(row.cpu_time),
        self_cpu_time: nanos(row.self_cpu_time),
        device_time: nanos(row.device_time),
        self_device_time: nanos(row.self_device_time),
        cpu_memory: row.cpu_memory,
        self_cpu_memory: row.self_cpu_memory,
        device_memory: row.device_memory,
        self_device_memory: row.self_device_memory,
        flops: row.flops,
    };
    crate::report::key_averages(trace).into_iter().map(row).collect()
}

#[test]
fn torch_s_own_table_can_be_had_from_its_file() {
    for name in ["transformer", "transformer-shapes", "convolution-shapes", "perceptron-stack", "graph"] {
        let trace = torch_trace(name);
        let (ours, torchs) = (our_rows(&trace), torch_rows(name));
        assert_eq!(trace.losses().unread, 0, "{name}");
        for (ours, torchs) in ours.iter().zip(&torchs) {
            assert_eq!(ours, torchs, "{name}");
        }
        assert_eq!(ours.len(), torchs.len(), "{name}");
    }
}

/// The JSON of a small trace of torch, and of one of kernspan with everything in it.
fn documents() -> [Vec<u8>; 2] {
    let packed: &[u8] = include_bytes!("../../tests/fixtures/torch/graph.pt.trace.json.gz");
    let mut torch = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut torch).unwrap();
    [torch, written(&sample::awkward_trace(), |chrome| chrome)]
}

/// The bytes that matter to a reader of JSON.
const BYTES: &[u8] = b"0123456789-.e,:{}[]\"n";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn spoilt_files_give_an_error_or_a_report(
        ours: bool,
        spoilt in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(BYTES)), 0..40),
        kept in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let mut bytes = documents()[usize::from(ours)].clone();
        for (index, byte) in spoilt {
            let index = index.index(bytes.len());
            // Digits stay numbers, so that many files can still be read.
            let is_number = bytes[index].is_ascii_digit() == byte.is_ascii_digit();
            if is_number || byte == b'-' {
                bytes[index] = byte;
            }
        }
        if let Some(kept) = kept {
            bytes.truncate(kept.index(bytes.len()));
        }
        for trace in from_bytes(&bytes).unwrap_or_default() {
            report(&trace);
            crate::report::key_averages(&trace);
            let _ = (crate::analysis::queue_lengths(&trace), crate::analysis::stream_idle(&trace));
            let _ = (crate::analysis::breakdown(&trace), crate::analysis::launch_stats(&trace));
            for step in crate::analysis::step_breakdown(&trace) {
                assert_eq!(step.parts().iter().map(|(_, time)| *time).sum::<std::time::Duration>(), step.duration);
            }
            written(&trace, |chrome| chrome);
        }
    }
}

#[test]
fn what_is_no_trace_is_refused_with_the_place() {
    let error = |bytes: &[u8]| from_bytes(bytes).unwrap_err().to_string();
    assert_eq!(error(b""), "unsupported format: expected Chrome JSON or .kernspan, found an empty file");
    assert!(error(b"{\"traceEvents\": [{\"ph\": \"X\"").contains("line 1 column 27"), "{}", error(b"{"));
    assert!(error(b"{\"a\": 1}").contains("missing field `traceEvents`"));
    assert!(error(b"{\"traceEvents\": [\n1]}").contains("line 2"));
    assert!(error(b"{\"a\": \"\xff\"}").contains("invalid UTF-8 at byte 7"));
    assert!(error(b"\x0a\x01").starts_with("unsupported format: "), "{}", error(b"\x0a\x01"));
    assert!(matches!(from_bytes(&[0x1f, 0x8b, 8, 0]), Err(super::ReadError::Io(_))));
}
