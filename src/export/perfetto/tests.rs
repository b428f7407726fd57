//! Tests of the Perfetto exporter, which read its files back.

use super::{
    Perfetto, document,
    proto::{self, DebugAnnotation, TrackDescriptor, TrackEvent, Type},
};
use crate::{
    export::samples::{awkward_trace, exported},
    trace::{
        Allocation, Stream, Timestamp, Trace,
        sample::{at, cut_both_ends, gpu_trace, operations_trace, set_previous, spans_trace},
    },
};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A slice, with names instead of numbers.
#[derive(Debug, Default)]
struct Slice {
    track: u64,
    name: String,
    category: String,
    start: u64,
    end: u64,
    depth: usize,
    arguments: BTreeMap<String, String>,
    flows: Vec<u64>,
    ended_flows: Vec<u64>,
}

#[derive(Default)]
struct Read {
    tracks: BTreeMap<u64, TrackDescriptor>,
    slices: Vec<Slice>,
    /// The instants that have a category, each with its category.
    instants: Vec<(Slice, String)>,
    counts: Vec<(u64, f64)>,
}

/// The state of a sequence while it is read.
#[derive(Default)]
struct Reading {
    now: u64,
    track: u64,
    /// The slices that are open, by their tracks.
    open: HashMap<u64, Vec<usize>>,
    events: HashMap<u64, String>,
    names: HashMap<u64, String>,
    texts: HashMap<u64, String>,
    categories: HashMap<u64, String>,
}

fn read(bytes: &[u8]) -> Read {
    let mut read = Read::default();
    let mut sequences: HashMap<u32, Reading> = HashMap::new();
    for packet in proto::Trace::decode(bytes).unwrap().packet {
        if let Some(track) = packet.track_descriptor {
            read.tracks.insert(track.uuid.unwrap(), track);
            continue;
        }
        let sequence = sequences.entry(packet.trusted_packet_sequence_id.unwrap()).or_default();
        if let Some(defaults) = packet.trace_packet_defaults {
            sequence.track = defaults.track_event_defaults.unwrap().track_uuid.unwrap();
            sequence.now = packet.timestamp.unwrap();
        }
        if let Some(new) = packet.interned_data {
            let insert = |to: &mut HashMap<u64, String>, names: Vec<proto::InternedName>| {
                to.extend(names.into_iter().map(|name| (name.iid.unwrap(), name.name.unwrap())));
            };
            insert(&mut sequence.events, new.event_names);
            insert(&mut sequence.names, new.debug_annotation_names);
            insert(&mut sequence.categories, new.event_categories);
            insert(&mut sequence.texts, new.debug_annotation_string_values);
        }
        if let Some(event) = packet.track_event {
            sequence.now += packet.timestamp.unwrap();
            sequence.event(event, &mut read);
        }
    }
    assert!(sequences.values().all(|sequence| sequence.open.values().all(Vec::is_empty)), "a slice that does not end");
    read
}

impl Reading {
    fn event(&mut self, event: TrackEvent, read: &mut Read) {
        let track = event.track_uuid.unwrap_or(self.track);
        match event.r#type() {
            Type::SliceBegin => {
                let name = event.name.unwrap_or_else(|| self.events[&event.name_iid.unwrap()].clone());
                let arguments = event.debug_annotations.iter().map(|annotation| self.argument(annotation)).collect();
                let open = self.open.entry(track).or_default();
                open.push(read.slices.len());
                read.slices.push(Slice {
                    track,
                    name,
                    category: self.categories[&event.category_iids[0]].clone(),
                    start: self.now,
                    depth: open.len() - 1,
                    arguments,
                    flows: event.flow_ids,
                    ended_flows: event.terminating_flow_ids,
                    ..Slice::default()
                });
            }
            Type::SliceEnd => read.slices[self.open.get_mut(&track).unwrap().pop().unwrap()].end = self.now,
            Type::Counter => read.counts.push((self.track, event.double_counter_value.unwrap())),
            Type::Instant => {
                let Some(category) = event.category_iids.first() else { return };
                let arguments = event.debug_annotations.iter().map(|annotation| self.argument(annotation)).collect();
                let (name, start) = (self.events[&event.name_iid.unwrap()].clone(), self.now);
                let instant = Slice { track: self.track, name, start, arguments, ..Slice::default() };
                read.instants.push((instant, self.categories[category].clone()));
            }
            Type::Unspecified => {}
        }
    }

    fn argument(&self, annotation: &DebugAnnotation) -> (String, String) {
        let name = self.names[&annotation.name_iid.unwrap()].clone();
        let text = annotation.string_value_iid.map(|iid| self.texts[&iid].clone());
        let number = annotation.uint_value.map(|value| value.to_string());
        let float = annotation.double_value.map(|value| value.to_string());
        (name, text.or(number).or(float).or(annotation.string_value.clone()).unwrap_or_default())
    }
}

impl Read {
    fn name(&self, track: u64) -> &str {
        let track = &self.tracks[&track];
        let thread = track.thread.as_ref().and_then(|thread| thread.thread_name.as_deref());
        track.name.as_deref().or(thread).unwrap_or("")
    }

    fn on(&self, track: &str) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(move |slice| self.name(slice.track) == track)
    }
}

fn written(trace: &Trace) -> Vec<u8> {
    let mut out = Vec::new();
    document::write(trace, &mut out).unwrap();
    out
}

fn samples() -> [(Trace, Read); 2] {
    [gpu_trace(), awkward_trace()].map(|trace| {
        let read = read(&written(&trace));
        (trace, read)
    })
}

fn nanos(at: Timestamp) -> u64 {
    at.as_unix_nanos()
}

#[test]
fn the_work_of_each_stream_is_on_its_track() {
    for (trace, read) in samples() {
        let contexts: BTreeSet<_> = trace.streams().iter().map(|stream| (stream.device(), stream.context())).collect();
        let name = |stream: &Stream| match contexts.iter().filter(|(device, _)| *device == stream.device()).count() {
            1 => stream.label(),
            _ => format!("{} · context {}", stream.label(), stream.context()),
        };
        let mut expected: Vec<_> = trace
            .work()
            .map(|work| (name(work.stream()), work.name().to_string(), nanos(work.start()), nanos(work.end())))
            .collect();
        let names: Vec<_> = trace.streams().iter().map(name).collect();
        let mut seen: Vec<_> = read
            .slices
            .iter()
            .map(|slice| (read.name(slice.track).to_owned(), slice.name.clone(), slice.start, slice.end))
            .filter(|(track, ..)| names.contains(track))
            .collect();
        expected.sort();
        seen.sort();
        assert_eq!(seen, expected);
    }
}

#[test]
fn kernels_and_copies_say_what_they_are() {
    let [(_, read), _] = samples();
    let argument = |slice: &Slice, name: &str| slice.arguments.get(name).cloned();
    let gemm = read.on("stream 7").find(|slice| slice.name == "gemm").unwrap();
    for (name, value) in [
        ("grid", "[8, 1, 6]"),
        ("block", "[128, 1, 1]"),
        ("registers per thread", "74"),
        ("shared memory", "20480"),
        ("estimated occupancy %", "2"),
        ("correlation", "2"),
        ("span", "forward"),
        ("attribution", "direct"),
    ] {
        assert_eq!(argument(gemm, name).as_deref(), Some(value), "{name}");
    }
    let copy = read.on("stream 7").find(|slice| slice.name.starts_with("Memcpy")).unwrap();
    assert_eq!(argument(copy, "bytes").as_deref(), Some("4000"));
    assert_eq!(argument(copy, "bandwidth (GB/s)").as_deref(), Some("1"));
    let node = read.on("stream 8").find(|slice| slice.name == "node").unwrap();
    assert_eq!(argument(node, "graph").as_deref(), Some("3"));
    assert_eq!(argument(node, "attribution").as_deref(), Some("handed off"));
}

#[test]
fn operations_are_on_the_track_of_the_thread_that_reported_them() {
    let trace = operations_trace();
    let read = read(&written(&trace));
    assert_eq!(read.instants.len(), trace.operations().len());
    for ((instant, category), call) in read.instants.iter().zip(trace.operations()) {
        assert_eq!((read.name(instant.track), category.as_str()), ("device", "operation"));
        assert_eq!((instant.name.as_str(), instant.start), (call.name(), nanos(call.at())));
        let mut expected: BTreeMap<_, _> =
            call.fields().iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect();
        expected.insert("attribution".to_owned(), call.attribution().as_str().to_owned());
        expected.extend(call.span().map(|span| ("span".to_owned(), span.name().to_owned())));
        assert_eq!(instant.arguments, expected);
    }
}

#[test]
fn kernels_say_which_operations_they_did() {
    let read = read(&written(&operations_trace()));
    let values = |key: &str| {
        let kernels = read.on("stream 7").filter(|slice| slice.name == "gemm");
        kernels.map(|slice| slice.arguments.get(key).cloned().unwrap_or_default()).collect::<Vec<_>>()
    };
    assert_eq!(values("ops"), ["matmul", "matmul, add, add", "matmul", "matmul, add, add"]);
    assert_eq!(values("spans"), ["", "backward, train_step", "", "backward, train_step"]);
    assert!(read.on("stream 8").all(|slice| !slice.arguments.contains_key("ops")));
}

#[test]
fn calls_are_inside_their_spans() {
    let [(_, read), _] = samples();
    let main: Vec<_> = read.on("main").filter(|slice| slice.start < nanos(at(100))).collect();
    let seen: Vec<_> = main.iter().map(|slice| (slice.name.as_str(), slice.depth)).collect();
    let expected = [
        ("train_step", 0),
        ("cuMemcpyHtoDAsync", 1),
        ("forward", 1),
        ("cuLaunchKernel", 2),
        ("backward", 1),
        ("cuLaunchKernel", 2),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn an_arrow_leads_from_each_call_to_each_piece_of_its_work() {
    for (trace, read) in samples() {
        let calls: HashMap<u64, &Slice> =
            read.slices.iter().flat_map(|slice| slice.flows.iter().map(move |flow| (*flow, slice))).collect();
        let ended: Vec<_> =
            read.slices.iter().flat_map(|slice| slice.ended_flows.iter().map(move |flow| (*flow, slice))).collect();
        assert_eq!(ended.len(), trace.work().filter(|work| work.call().is_some()).count());
        assert_eq!(ended.len(), calls.len());
        for (flow, work) in ended {
            assert_eq!(calls[&flow].arguments["correlation"], work.arguments["correlation"]);
        }
    }
}

#[test]
fn an_arrow_leads_from_each_enter_of_a_call_to_the_next() {
    let mut trace = gpu_trace();
    // The second `forward` continues the first.
    set_previous(&mut trace, 4, 1);
    let read = read(&written(&trace));
    let forward: Vec<_> = read.on("main").filter(|slice| slice.name == "forward").collect();
    assert_eq!((forward[0].flows.len(), forward[1].ended_flows.len()), (1, 1));
    assert_eq!((&forward[0].flows, &forward[0].ended_flows), (&forward[1].ended_flows, &forward[1].flows));
    let same = read.slices.iter().filter(|slice| slice.flows.contains(&forward[0].flows[0])).count();
    assert_eq!(same, 1, "no arrow to work has the same id");
}

#[test]
fn calls_with_several_enters_are_slices_as_a_whole() {
    let spans = [
        ("fetch", None, 0, 10),
        ("fetch", None, 20, 30),
        ("once", None, 30, 35),
        ("parse", None, 35, 40),
        ("fetch", None, 40, 50),
        ("parse", None, 50, 60),
        ("fetch", None, 60, 70),
        ("fetch", None, 80, 90),
        ("fetch", None, 95, 100),
    ];
    let mut trace = spans_trace(&spans);
    assert!(read(&written(&trace)).slices.iter().all(|slice| slice.category != "call"));
    // Two calls of `fetch` overlap, and a third comes after them.
    [(4, 0), (6, 1), (8, 7), (5, 3)].into_iter().for_each(|(span, previous)| set_previous(&mut trace, span, previous));
    cut_both_ends(&mut trace, 8);
    let read = read(&written(&trace));
    let name = |track: u64| read.tracks[&track].name.as_deref().unwrap();
    let calls: Vec<_> = read.slices.iter().filter(|slice| slice.category == "call").collect();
    let seen: Vec<_> = calls.iter().map(|call| (call.name.as_str(), call.start, call.end, call.depth)).collect();
    let time = |micros| nanos(at(micros));
    let expected = [
        ("fetch", time(0), time(50), 0),
        ("fetch", time(20), time(70), 0),
        ("parse", time(35), time(60), 0),
        ("fetch", time(80), time(100), 0),
    ];
    assert_eq!(seen, expected);
    assert!(calls.iter().all(|call| name(call.track) == call.name && call.arguments["enters"] == "2"));
    let group = read.tracks.values().find(|track| track.name.as_deref() == Some("calls")).unwrap();
    assert!(calls.iter().all(|call| read.tracks[&call.track].parent_uuid == group.uuid));
    let tracks: BTreeSet<_> = calls.iter().map(|call| call.track).collect();
    assert_eq!((tracks.len(), calls[0].track == calls[1].track), (3, false));
    let cut = |call: &Slice| call.arguments.contains_key("started") && call.arguments.contains_key("finished");
    assert_eq!(calls.iter().map(|call| cut(call)).collect::<Vec<_>>(), [false, false, false, true]);
}

#[test]
fn slices_have_the_categories_of_kineto() {
    for (trace, read) in samples() {
        let count = |category: &str| read.slices.iter().filter(|slice| slice.category == category).count();
        assert_eq!((count("cpu_op"), count("user_annotation")), (trace.spans().len(), trace.steps().len()));
        assert_eq!(count("cuda_driver") + count("cuda_runtime"), trace.api_calls().len());
        assert_eq!(count("kernel"), trace.work().filter(|work| work.kernel().is_some()).count());
        assert_eq!(count("kernel") + count("gpu_memcpy") + count("gpu_memset"), trace.work().len());
        assert_eq!((count("cuda_sync"), count("overhead")), (trace.waits().len(), trace.overheads().len()));
        assert!(count("gpu_user_annotation") > 0);
        assert!(read.slices.iter().all(|slice| !slice.category.is_empty()));
    }
}

#[test]
fn a_gpu_is_a_group_of_its_own() {
    let [(_, read), (_, awkward)] = samples();
    let group = read.tracks.values().find(|track| track.name.as_deref() == Some("GPU 0 · NVIDIA H200")).unwrap();
    assert_eq!(group.parent_uuid, None);
    let of_group = read.tracks.values().filter(|track| track.parent_uuid == group.uuid);
    let mut children: Vec<_> =
        of_group.map(|track| (track.sibling_order_rank, track.name.as_deref().unwrap())).collect();
    children.sort_unstable();
    let children: Vec<_> = children.into_iter().map(|(_, name)| name).collect();
    let expected = [
        "memory in use",
        "waits",
        "stream 7 · steps and spans",
        "stream 7",
        "stream 8 · steps and spans",
        "stream 8",
        "stream 8 (overlap 1)",
    ];
    assert_eq!(children, expected);
    let mut names: Vec<_> = awkward.tracks.values().filter_map(|track| track.name.as_deref()).collect();
    names.retain(|name| name.starts_with("GPU "));
    names.sort_unstable();
    let overhead = "GPU profiling overhead";
    let of_rank = ["GPU 0 · NVIDIA H200 · rank 3", "GPU 1 · NVIDIA H200 · rank 3"];
    assert_eq!(names, [of_rank[0], of_rank[1], overhead, overhead, "GPU waits"]);
}

#[test]
fn slices_of_a_track_nest() {
    for (_, read) in samples() {
        for (index, outer) in read.slices.iter().enumerate() {
            assert!(outer.start <= outer.end);
            for inner in read.slices[index + 1..].iter().filter(|inner| inner.track == outer.track) {
                let nests = outer.end <= inner.start || (outer.start <= inner.start && inner.end <= outer.end);
                assert!(nests, "{inner:?} crosses {outer:?}");
            }
        }
    }
}

#[test]
fn waits_steps_and_memory_are_there() {
    for (trace, read) in samples() {
        let waits = read.on("waits").chain(read.on("GPU waits")).count();
        assert_eq!(waits, trace.waits().len());
        assert_eq!(read.on("GPU profiling overhead").count(), trace.overheads().len());
        let in_use: Vec<_> = read.counts.iter().map(|(_, value)| *value as u64).collect();
        assert_eq!(in_use, trace.allocations().map(Allocation::in_use).collect::<Vec<_>>());
        let own = "stream 7 · steps and spans";
        let among_contexts = "stream 7 · context 1 · steps and spans";
        let ranges = read.on(own).chain(read.on(among_contexts));
        let ranges: Vec<_> = ranges.map(|slice| (&slice.name[..], slice.depth)).collect();
        assert_eq!(ranges, [("ProfilerStep#5", 0), ("train_step", 1), ("ProfilerStep#6", 0), ("train_step", 1)]);
        let labels = &read.tracks.values().find_map(|track| track.process.as_ref()).unwrap().process_labels;
        assert!(labels.contains(&trace.gpu().to_string()), "{labels:?}");
    }
}

#[test]
fn files_are_what_was_written() {
    for (trace, bytes) in exported(Perfetto::to_dir) {
        assert_eq!(bytes, written(&trace));
    }
}
