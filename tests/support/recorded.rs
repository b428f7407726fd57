//! Files of windows that were recorded on a GPU, to be changed by tests, and checks that hold for every trace. The fuzz
//! target uses them, too.

use kernspan::{
    Chrome, Exporter, Perfetto, Stacks, TensorBoard, Trace,
    analysis::Analysis,
    export::{Flavor, HtmlReport},
    trace::{Allocation, Attribution, OperationCall, Span, SpanId, Wait, Work},
};
use std::{collections::HashSet, io::Read, path::Path};

/// Decompresses the file of a window, and returns its protobuf message.
pub fn message(compressed: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    flate2::read::GzDecoder::new(compressed).read_to_end(&mut message).unwrap();
    message
}

/// A window's file, with CUPTI's records separate from the rest.
pub struct Recorded {
    rest: Vec<u8>,
    pub records: Vec<Vec<u8>>,
}

impl Recorded {
    /// The field of the message that has the records.
    const RECORDS: u64 = 17;

    pub fn new(compressed: &[u8]) -> Self {
        let message = message(compressed);
        let (mut rest, mut records) = (Vec::new(), Vec::new());
        let mut left = &message[..];
        while !left.is_empty() {
            let before = left;
            let tag = varint(&mut left);
            match tag & 7 {
                0 => drop(varint(&mut left)),
                2 => {
                    let length = varint(&mut left) as usize;
                    let (value, after) = left.split_at(length);
                    left = after;
                    if tag >> 3 == Self::RECORDS {
                        records = split(value);
                        continue;
                    }
                }
                other => panic!("no window has a field of type {other}"),
            }
            rest.extend_from_slice(&before[..before.len() - left.len()]);
        }
        Self { rest, records }
    }

    /// Returns the file with these bytes in index of the records.
    pub fn with_bytes(&self, records: &[u8]) -> Vec<u8> {
        let mut message = self.rest.clone();
        put_varint(&mut message, Self::RECORDS << 3 | 2);
        put_varint(&mut message, records.len() as u64);
        message.extend_from_slice(records);
        message
    }

    /// Returns the file with these records.
    pub fn with<R: AsRef<[u8]>>(&self, records: impl IntoIterator<Item = R>) -> Vec<u8> {
        self.with_bytes(&join(records))
    }
}

/// Joins records, each after its length.
pub fn join<R: AsRef<[u8]>>(records: impl IntoIterator<Item = R>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        bytes.extend_from_slice(&(record.as_ref().len() as u32).to_le_bytes());
        bytes.extend_from_slice(record.as_ref());
    }
    bytes
}

fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (record, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        records.push(record.to_vec());
        bytes = rest;
    }
    records
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Checks everything in a trace: ids resolve, work on a row does not overlap, attributions add up.
pub fn check(trace: &Trace) {
    for (index, span) in trace.spans().enumerate() {
        assert_eq!(span.id().index(), index);
        assert!(span.parent().is_none_or(|parent| parent.id() < span.id()));
        let _ = (span.name(), span.track(), span.step(), span.duration(), span.self_time());
    }
    for step in trace.steps() {
        let _ = (trace.tracks()[step.track_id().index()].label(), step.duration());
    }
    for (index, call) in trace.api_calls().enumerate() {
        assert_eq!(call.id().index(), index);
        assert_eq!(call.span().is_none(), call.attribution() == Attribution::Unattributed);
        let _ = (call.name(), call.track(), call.duration());
    }
    for (index, call) in trace.operations().enumerate() {
        assert_eq!(call.id().index(), index);
        assert_eq!(call.span().is_none(), call.attribution() == Attribution::Unattributed);
        let _ = (call.name(), call.fields().op().flops(), call.track(), call.step());
    }
    check_work(trace);
    assert!(trace.waits().is_sorted_by_key(Wait::start));
    for wait in trace.waits() {
        assert!(wait.start() <= wait.end());
        assert!(wait.call().is_none_or(|call| call.correlation() == wait.correlation()));
    }
    assert!(trace.allocations().is_sorted_by_key(Allocation::at));
    for allocation in trace.allocations() {
        let _ = (allocation.span().map(Span::name), allocation.track(), allocation.delta());
    }
    assert!(trace.overheads().iter().all(|overhead| overhead.start() <= overhead.end()));
    let _ = (trace.gpu().to_string(), trace.losses().to_string(), trace.duration());
}

/// Returns the span of a piece of work, and the spans of its operations, each once.
fn spans_of(work: Work<'_>) -> Vec<SpanId> {
    let mut spans = Vec::new();
    for span in work.span().into_iter().chain(work.operations().filter_map(OperationCall::span)) {
        if !spans.contains(&span.id()) {
            spans.push(span.id());
        }
    }
    spans
}

fn check_work(trace: &Trace) {
    let streams: HashSet<_> = trace.streams().iter().collect();
    assert_eq!(streams.len(), trace.streams().len(), "no two rows are the same");
    let mut until = vec![trace.start(); trace.streams().len()];
    let mut empty = vec![true; until.len()];
    assert!(trace.work().is_sorted_by_key(Work::stream_id));
    for (index, work) in trace.work().enumerate() {
        assert_eq!(work.id().index(), index);
        let row = work.stream_id().index();
        assert!(work.start() <= work.end());
        assert!(std::mem::take(&mut empty[row]) || until[row] <= work.start(), "work overlaps on a row");
        until[row] = work.end();
        assert_eq!(work.span().is_none(), work.attribution() == Attribution::Unattributed);
        assert!(work.call().is_none_or(|call| call.correlation() == work.correlation()));
        assert!(work.call().is_none_or(|call| call.span().map(Span::id) == work.span().map(Span::id)));
        assert!(work.spans().map(Span::id).eq(spans_of(work)));
        let _ = (work.name().to_string(), work.step(), work.delay(), work.bytes_per_second(), work.stream().label());
        let _ =
            trace.device(work.stream().device()).zip(work.kernel()).map(|(device, kernel)| device.occupancy(kernel));
    }
    assert!(!empty.contains(&true), "each row has work");
    let counts = trace.attributions();
    assert_eq!(counts.total(), trace.work().len() as u64);
    assert_eq!(counts.direct + counts.handed_off + counts.unattributed, counts.total());
    assert_eq!(counts.unattributed, trace.work().filter(|work| work.span().is_none()).count() as u64);
}

/// Exports a trace with every exporter, into a folder that is empty before and after.
pub fn check_exports(trace: &Trace, folder: &Path) {
    let mut torch = Chrome::to_dir(folder).flavor(Flavor::TorchTensorBoard).runtime_names(true);
    let exporters: [&mut dyn Exporter; 5] = [
        &mut Chrome::to_dir(folder),
        &mut torch,
        &mut Perfetto::to_dir(folder),
        &mut Stacks::to_dir(folder),
        &mut TensorBoard::to_dir(folder),
    ];
    for exporter in exporters {
        for file in exporter.export(&Analysis::of(trace)).unwrap() {
            if file.extension().is_some_and(|ending| ending == "json") {
                let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
                let kernels = json["traceEvents"].as_array().unwrap().iter().filter(|event| event["cat"] == "kernel");
                assert_eq!(kernels.count(), trace.work().filter(|work| work.kernel().is_some()).count());
            }
            std::fs::remove_file(file).unwrap();
        }
    }
    let page = HtmlReport::of([trace]).to_string();
    let (_, document) = page.split_once("id=\"data\">\n").unwrap();
    let (document, _) = document.split_once("\n</script>").unwrap();
    let document: serde_json::Value = serde_json::from_str(document).unwrap();
    assert!(document["sections"].as_array().unwrap().len() >= 3);
    std::fs::remove_dir(folder.join("torch_tb_profiler")).unwrap();
    // It has a folder for each capture.
    std::fs::remove_dir_all(folder.join("plugins")).unwrap();
}
