//! Files that kernspan has written give the same report when they are read.

mod conversion;
mod counters;
mod memory_books;
mod samples;

use super::{
    ReadError, from_bytes, from_json, from_reader,
    text::{BLOCK, ReaderBlocks, ThreadBlocks},
};
use crate::{
    Chrome, Exporter, Report,
    analysis::Analysis,
    trace::{Collective, Trace, Work, sample},
};
use proptest::prelude::*;
use std::{io::Read, path::Path, sync::Arc};

/// Writes a trace as Kineto's JSON, and returns the file.
fn written(trace: &Trace, chrome: impl FnOnce(Chrome) -> Chrome) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let files = chrome(Chrome::to_dir(folder.path())).export(&Analysis::of(trace)).unwrap();
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
fn all_that_is_known_of_a_collective_is_read_back() {
    let [mut trace, _] = sample::ranks();
    let described = Collective {
        operation: "allreduce".to_owned(),
        group: "00c0ffee".into(),
        description: "data parallel".to_owned(),
        ranks: vec![0, 1],
        group_size: 2,
        elements_in: 1 << 40,
        elements_out: 1 << 40,
        dtype: "ncclFloat32".to_owned(),
        sequence: Some(0),
        algorithm: "RING".into(),
        protocol: "LL128".into(),
        channels: 24,
        communicator: Some(u64::MAX - 1),
        group_rank: Some(0),
        merged: 2,
    };
    let nccl: Vec<_> = trace.work().filter(|work| work.name().to_string().starts_with("nccl")).map(Work::id).collect();
    assert_eq!(nccl.len(), 4);
    trace.collectives.insert(nccl[0], Arc::new(described.clone()));
    let unknown = Collective { operation: "allgather".to_owned(), ..Collective::default() };
    trace.collectives.insert(nccl[1], Arc::new(unknown.clone()));
    let back = read_back(&trace);
    let found: Vec<_> = back.work().filter_map(Work::collective).collect();
    assert_eq!(found, [&described, &unknown]);
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
    sample::set_follows(&mut trace, 2, &[0, 5]);
    sample::add_counter(&mut trace, "loss", &[(sample::at(20), 0.5), (sample::at(120), f64::NAN)]);
    sample::cut_both_ends(&mut trace, 0);
    sample::set_fields(&mut trace, 2, &[("Sequence number", 7_u64), ("src", 8)]);
    check("callers", &trace);
    let causes = |trace: &Trace| -> Vec<Vec<String>> {
        trace.spans().map(|span| span.follows_from().map(|cause| cause.name().to_owned()).collect()).collect()
    };
    assert_eq!(causes(&read_back(&trace)), causes(&trace));
    assert_eq!(causes(&trace)[2].len(), 2);
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

/// A document whose text can be cut at many awkward places.
const AWKWARD: &str = r#" {"kernspan_version": "1", "user.grüße": "\u00e9\ud83d\ude00 \"",
    "traceEvents" :[ {"ph":"X","cat":"cpu_op","name":"q\\\"\u0041é漢😀","pid":1,"tid":1,"ts":1.5e3,"dur":2.000,
    "args":{"External id": 1, "field\n": [1, {"a": [true, false, null, -0.5E-3]}], "src": "a.rs:1"}}, {}, {"ph": "M"},
    {"ph":"i","cat":"cpu_instant_event","name":"é","pid":"1","tid":1,"ts":12.001,"s":"t","args":{"x": "\t"}}  ]
    , "kernspan_start": 18446744073709551615,"kernspan_end" : 1 , "later": {"𝄞": []} }
    "#;

/// Reads a document in blocks of this many bytes: the trace with everything in it, or the error.
fn read_in_blocks(bytes: &[u8], size: usize) -> Result<String, ReadError> {
    from_json(&mut ReaderBlocks::new(bytes, size, u64::MAX)).map(|traces| format!("{traces:?}"))
}

#[test]
fn blocks_of_any_size_give_the_same_trace() {
    let [torch, ours] = documents();
    for bytes in [AWKWARD.as_bytes(), &torch, &ours] {
        let whole = read_in_blocks(bytes, bytes.len()).unwrap();
        for size in (1..40).chain([64, 100, 1000, 4096, 10_007, bytes.len() - 1, bytes.len() + 1]) {
            assert!(read_in_blocks(bytes, size).unwrap() == whole, "blocks of {size} bytes");
        }
        let threaded = std::thread::scope(|scope| {
            let blocks = ReaderBlocks::new(bytes, 100, u64::MAX);
            from_json(&mut ThreadBlocks::start(scope, blocks).unwrap()).map(|traces| format!("{traces:?}"))
        });
        assert!(threaded.unwrap() == whole, "blocks of another thread");
    }
}

#[test]
fn the_same_trace_comes_from_plain_and_compressed_files() {
    // Of many blocks, so that another thread reads them.
    let event = r#"{"ph": "X", "cat": "cpu_op", "name": "mm é", "pid": 9, "tid": 9, "ts": 10, "dur": 2}"#;
    let text = format!("{{\"traceEvents\": [{}]}}", [event; 20_000].join(",\n"));
    assert!(text.len() > 4 * BLOCK);
    let mut packed = flate2::read::GzEncoder::new(text.as_bytes(), flate2::Compression::fast());
    let mut bytes = Vec::new();
    packed.read_to_end(&mut bytes).unwrap();
    let read = |bytes: &[u8]| from_reader(bytes).map(|traces| format!("{traces:?}"));
    let plain = read(text.as_bytes()).unwrap();
    assert!(plain == read(&bytes).unwrap());
    assert_eq!(from_reader(&*bytes).unwrap()[0].spans().len(), 20_000);
    // The place of an error counts from the start of the file, not of a block.
    let error = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    let at = text.rfind("\"ts\": 10").unwrap();
    let broken = [&text.as_bytes()[..at], b"\"ts\"; 10}]}"].concat();
    let column = at - text.rfind('\n').unwrap();
    let place = format!("expected `:` at line 20000 column {}", column + 4);
    assert!(error(&broken).ends_with(&place), "{}", error(&broken));
    let place = format!("the file ends too early at line 20000 column {}", column - 1);
    assert!(error(&text.as_bytes()[..at]).ends_with(&place), "{place}");
    let mut foreign = text.clone().into_bytes();
    foreign[at] = 0xff;
    assert!(error(&foreign).ends_with(&format!("invalid UTF-8 at byte {at}")), "{}", error(&foreign));
    assert!(matches!(read(&bytes[..bytes.len() / 2]), Err(ReadError::Io(_))));
}

#[test]
fn a_compressed_file_that_becomes_too_large_is_refused() {
    let text = br#"{"traceEvents": [], "a": "bc"}"#;
    let read = |most| from_json(&mut ReaderBlocks::new(&text[..], 7, most)).map(|traces| traces.len());
    assert_eq!(read(text.len() as u64).unwrap(), 1);
    assert!(matches!(read(text.len() as u64 - 1), Err(ReadError::TooLarge)));
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
        size in 1_usize..3000,
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
        match (read_in_blocks(&bytes, bytes.len()), read_in_blocks(&bytes, size)) {
            (Ok(whole), Ok(blocks)) => prop_assert!(whole == blocks),
            // All of a block is checked before it is scanned, and there may be another error before that.
            (Err(ReadError::NotUtf8 { .. }), Err(_)) => {}
            (whole, blocks) => prop_assert_eq!(blocks.unwrap_err().to_string(), whole.unwrap_err().to_string()),
        }
        for trace in from_bytes(&bytes).unwrap_or_default() {
            report(&trace);
            crate::report::key_averages(&trace);
            let _ = (crate::analysis::queue_lengths(&trace), crate::analysis::stream_idle(&trace));
            let _ = crate::analysis::launches(&trace);
            for step in Analysis::of(&trace).step_breakdown() {
                assert_eq!(step.parts.total(), step.duration);
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
