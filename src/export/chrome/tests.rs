//! Tests of the Chrome exporter.

use super::{
    Chrome,
    flavor::{Flavor, Options},
    write_document,
};
use crate::{
    analysis::Analysis,
    export::samples::{awkward_trace, exported},
    trace::{
        Gpu, GpuProblem, Operation, Trace,
        sample::{add_operations, gpu_trace, operations_trace, set_previous},
    },
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(super) struct Document(pub(super) Value);

impl Document {
    fn of(trace: &Trace) -> Self {
        Self::with_options(trace, Options::default())
    }

    pub(super) fn with_options(trace: &Trace, options: Options) -> Self {
        let mut out = Vec::new();
        write_document(&Analysis::of(trace), options, &mut out).unwrap();
        Self(serde_json::from_slice(&out).unwrap())
    }

    pub(super) fn events(&self) -> &[Value] {
        self.0["traceEvents"].as_array().unwrap()
    }

    pub(super) fn of_category(&self, category: &str) -> Vec<&Value> {
        self.events().iter().filter(|event| event["cat"] == category).collect()
    }

    /// The values of this key in metadata events of one kind, by row.
    fn metadata(&self, kind: &str, key: &str) -> BTreeMap<(i64, i64), Value> {
        let events = self.events().iter().filter(|event| event["ph"] == "M" && event["name"] == kind);
        events.map(|event| (row(event), event["args"][key].clone())).collect()
    }
}

fn row(event: &Value) -> (i64, i64) {
    (event["pid"].as_i64().unwrap(), event["tid"].as_i64().unwrap())
}

/// Start and end in nanoseconds.
fn extent(event: &Value) -> (u64, u64) {
    let nanos = |key: &str| (event[key].as_f64().unwrap() * 1e3).round() as u64;
    (nanos("ts"), nanos("ts") + nanos("dur"))
}

fn both() -> [(Trace, Document); 2] {
    [gpu_trace(), awkward_trace()].map(|trace| {
        let document = Document::of(&trace);
        (trace, document)
    })
}

#[test]
fn everything_is_there_once() {
    for (trace, document) in both() {
        let work: usize =
            ["kernel", "gpu_memcpy", "gpu_memset"].map(|cat| document.of_category(cat).len()).iter().sum();
        assert_eq!(work, trace.work().len());
        let calls: usize = ["cuda_driver", "cuda_runtime"].map(|cat| document.of_category(cat).len()).iter().sum();
        assert_eq!(calls, trace.api_calls().len());
        assert_eq!(document.of_category("cuda_sync").len(), trace.waits().len());
        assert_eq!(document.of_category("overhead").len(), trace.overheads().len());
        let memory = document.of_category("cpu_instant_event");
        assert_eq!(memory.iter().filter(|event| event["name"] == "[memory]").count(), trace.allocations().len());
    }
    let document = Document::of(&gpu_trace());
    assert_eq!(document.of_category("kernel").len(), 7);
    assert_eq!(document.of_category("gpu_memcpy").len(), 2);
    assert_eq!(document.of_category("gpu_memset").len(), 2);
    assert_eq!(document.of_category("gpu_user_annotation").len(), 10);
}

#[test]
fn operations_are_on_the_row_of_the_thread_that_reported_them() {
    let trace = operations_trace();
    let document = Document::of(&trace);
    let operations = document.of_category("operation");
    assert_eq!(operations.len(), trace.operations().len());
    assert!(operations.iter().all(|event| event["ph"] == "i" && event["s"] == "t" && row(event) == (1000, 1001)));
    let arguments = json!({
        "External id": 2, "span": "forward", "attribution": "handed off", "batch": 1, "Input Dims": [[8, 4]],
        "Input type": ["f32"], "op.shape.lhs": "[8, 4]", "op.dtype.lhs": "f32", "op.flops": 335_000_000
    });
    assert_eq!((&operations[0]["name"], &operations[0]["args"]), (&json!("matmul"), &arguments));
    let times = trace.operations().map(|call| call.at().since(trace.start()).as_nanos() as u64);
    let first = extent(document.of_category("user_annotation")[0]).0;
    let seen = operations.iter().map(|event| (event["ts"].as_f64().unwrap() * 1e3).round() as u64 - first);
    assert!(seen.eq(times));
    assert_eq!(
        (&operations[4]["name"], &operations[4]["args"]),
        (&json!("sync"), &json!({"attribution": "unattributed", "step": null}))
    );
}

#[test]
fn fields_of_operations_do_not_hide_other_arguments() {
    let mut trace = gpu_trace();
    let odd = Operation::new("a \"b\"").with("span", "mine").with("src", 7_u64).with("External id", f64::NAN);
    add_operations(&mut trace, &[(&odd.into(), Some(1), 0)], &[]);
    let document = Document::of(&trace);
    let [operation] = document.of_category("operation")[..] else { panic!() };
    let arguments = json!({
        "External id": 2, "span": "forward", "attribution": "handed off",
        "field.span": "mine", "src": 7, "field.External id": "NaN"
    });
    assert_eq!((&operation["name"], &operation["args"]), (&json!("a \"b\""), &arguments));
}

#[test]
fn kernels_say_which_operations_they_did() {
    let document = Document::of(&operations_trace());
    let kernels = document.of_category("kernel");
    let values = |key: &str| kernels.iter().map(|kernel| kernel["args"].get(key).cloned()).collect::<Vec<_>>();
    let (one, all) = (Some(json!("matmul")), Some(json!("matmul, add, add")));
    assert_eq!(values("ops"), [one.clone(), all.clone(), one, all, None, None, None]);
    let both = Some(json!("backward, train_step"));
    assert_eq!(values("spans"), [None, both.clone(), None, both, None, None, None]);
}

#[test]
fn the_header_says_what_the_gpus_are() {
    let document = Document::of(&gpu_trace()).0;
    let device = json!({
        "id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_109_880_320_u64, "computeMajor": 9, "computeMinor": 0,
        "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32,
        "sharedMemPerBlock": 49152, "numSms": 132, "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232_448,
        "sharedMemPerMultiprocessor": 233_472, "uuid": "GPU-0", "maxBlocksPerMultiprocessor": 32,
        "reservedSharedMemPerBlock": 1024, "clockRate": 1_980_000, "memoryClockRate": 3_201_000, "memoryBusWidth": 6144
    });
    assert_eq!(document["deviceProperties"], json!([device]));
    assert_eq!(document["cupti_version"], 130_001);
    assert_eq!(document["cuda_driver_version"], 13_000);
    assert_eq!(document["kernspan_gpu"], "GPU recorded by CUPTI 130001 from libcupti.so.13");
    assert_eq!(document["kernspan_attribution"], json!({"direct": 6, "handed_off": 4, "unattributed": 1}));
}

#[test]
fn the_header_says_why_there_is_no_gpu() {
    let trace = Trace { gpu: Gpu::Unavailable(GpuProblem::NoDevice), ..Trace::default() };
    let document = Document::of(&trace).0;
    assert_eq!(document["kernspan_gpu"], "GPU not recorded: the NVIDIA driver sees no device");
    assert_eq!(document["deviceProperties"], json!([]));
    assert!(document.get("cupti_version").is_none() && document.get("kernspan_attribution").is_none());
}

#[test]
fn kernels_have_what_pytorch_says_of_them() {
    let document = Document::of(&gpu_trace());
    let gemm = document.of_category("kernel")[0].clone();
    assert_eq!((row(&gemm), &gemm["name"], &gemm["dur"]), ((0, 7), &json!("gemm"), &json!(20.0)));
    let arguments = json!({
        "External id": 2, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": 2,
        "registers per thread": 74, "shared memory": 20480, "blocks per SM": 0.363636, "warps per SM": 1.454545,
        "grid": [8, 1, 6], "block": [128, 1, 1], "est. achieved occupancy %": 2
    });
    assert_eq!(gemm["args"], arguments);
    let node = document.of_category("kernel").into_iter().find(|kernel| kernel["name"] == "node").unwrap();
    assert_eq!((&node["args"]["graph id"], &node["args"]["graph node id"]), (&json!(3), &json!(34)));
    assert_eq!(node["args"]["attribution"], "handed off");
    let stray = document.of_category("kernel").into_iter().find(|kernel| kernel["name"] == "stray").unwrap();
    assert_eq!(stray["args"]["attribution"], "unattributed");
    assert!(stray["args"].get("External id").is_none());
}

#[test]
fn a_demangled_name_keeps_the_raw_one() {
    let document = Document::of(&awkward_trace());
    let kernels = document.of_category("kernel");
    let [named] = kernels.iter().filter(|kernel| kernel["args"].get("raw name").is_some()).collect::<Vec<_>>()[..]
    else {
        panic!("{kernels:?}")
    };
    assert_eq!(named["name"], "void \"gemm\"<float, 8>(float const*)");
    assert_eq!(named["args"]["raw name"], "_Z4gemmIfLi8EEvPKf");
    assert_eq!(named["ts"].as_f64().unwrap() - named["args"]["queued"].as_f64().unwrap(), 2.0);
}

#[test]
fn only_the_first_of_kernels_that_are_alike_has_the_raw_name() {
    let mut trace = awkward_trace();
    let again = trace.work[1].clone();
    trace.work.insert(2, again);
    let document = Document::of(&trace);
    let kernels = document.of_category("kernel");
    let has_raw_name: Vec<_> = kernels.iter().map(|kernel| kernel["args"].get("raw name").is_some()).collect();
    assert_eq!((&kernels[0]["name"], &has_raw_name[..2]), (&kernels[1]["name"], &[true, false][..]));
}

#[test]
fn copies_and_fills_say_how_much_and_how_fast() {
    let document = Document::of(&gpu_trace());
    let copy = document.of_category("gpu_memcpy")[0];
    assert_eq!(copy["name"], "Memcpy HtoD (Pageable -> Device)");
    let arguments = json!({
        "External id": 1, "device": 0, "context": 1, "stream": 7, "correlation": 1,
        "bytes": 4000, "memory bandwidth (GB/s)": 1.0
    });
    assert_eq!(copy["args"], arguments);
    let fill = document.of_category("gpu_memset")[0];
    assert_eq!((&fill["name"], &fill["args"]["bytes"]), (&json!("Memset (Device)"), &json!(64)));
    // On the row beside the one it overlaps, but of the same stream.
    assert_eq!((row(fill), &fill["args"]["stream"]), ((0, 10_000_008), &json!(8)));
}

#[test]
fn work_joins_its_call_and_its_span() {
    for (trace, document) in both() {
        let calls = document.of_category("cuda_driver");
        let by_correlation: HashMap<_, _> = calls.iter().map(|call| (&call["args"]["correlation"], call)).collect();
        assert_eq!(by_correlation.len(), calls.len());
        let spans = document.of_category("cpu_op");
        let by_id: HashMap<_, _> = spans.iter().map(|span| (&span["args"]["External id"], span)).collect();
        let kernels = document.of_category("kernel");
        for (kernel, work) in kernels.iter().zip(trace.work().filter(|work| work.kernel().is_some())) {
            let Some(call) = work.call() else { continue };
            let seen = by_correlation[&kernel["args"]["correlation"]];
            assert_eq!(seen["name"], call.name());
            assert_eq!(seen["args"]["External id"], kernel["args"]["External id"]);
            assert_eq!(by_id[&kernel["args"]["External id"]]["name"], work.span().unwrap().name());
        }
    }
}

#[test]
fn arrows_lead_from_calls_to_work() {
    for (trace, document) in both() {
        let flows = document.of_category("ac2g");
        let of = |phase: &str| flows.iter().copied().filter(|flow| flow["ph"] == phase).collect::<Vec<_>>();
        let (starts, ends) = (of("s"), of("f"));
        assert_eq!(ends.len(), trace.work().filter(|work| work.call().is_some()).count());
        let ids = |flows: &[&Value]| flows.iter().map(|flow| flow["id"].as_u64().unwrap()).collect::<BTreeSet<_>>();
        assert_eq!(ids(&starts), ids(&ends));
        assert_eq!(starts.len(), ids(&starts).len(), "an arrow that begins twice");
        assert!(ends.iter().all(|flow| flow["bp"] == "e"));
        let at = |flow: &Value| (row(flow), flow["ts"].to_string());
        let begins = |categories: &[&str]| {
            let events = categories.iter().flat_map(|category| document.of_category(category));
            events.map(at).collect::<BTreeSet<_>>()
        };
        let (calls, work) = (begins(&["cuda_driver", "cuda_runtime"]), begins(&["kernel", "gpu_memcpy", "gpu_memset"]));
        assert!(starts.into_iter().all(|flow| calls.contains(&at(flow))));
        assert!(ends.into_iter().all(|flow| work.contains(&at(flow))));
    }
}

#[test]
fn arrows_lead_from_each_enter_of_a_call_to_the_next() {
    let mut trace = gpu_trace();
    // The second `forward` continues the first.
    set_previous(&mut trace, 4, 1);
    let document = Document::of(&trace);
    let flows = document.of_category("call");
    let forward: Vec<_> = document.of_category("cpu_op").into_iter().filter(|op| op["name"] == "forward").collect();
    let at = |event: &Value| (row(event), event["ts"].to_string());
    assert_eq!(
        (flows.len(), &flows[0]["ph"], &flows[1]["ph"], &flows[1]["bp"]),
        (2, &"s".into(), &"f".into(), &"e".into())
    );
    assert_eq!((at(flows[0]), at(flows[1])), (at(forward[0]), at(forward[1])));
    assert_eq!((&flows[0]["id"], &flows[0]["name"]), (&flows[1]["id"], &flows[1]["name"]));
    let options = Options { flavor: Flavor::TorchTensorBoard, ..Options::default() };
    assert!(Document::with_options(&trace, options).of_category("call").is_empty(), "the plugin knows none");
}

#[test]
fn what_is_on_a_row_nests_and_the_outer_comes_first() {
    for (_, document) in both() {
        let mut rows: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for event in document.events().iter().filter(|event| event["ph"] == "X") {
            // Perfetto reads a negative number as 0.
            let (pid, tid) = row(event);
            rows.entry((pid.max(0), tid.max(0))).or_default().push((extent(event), &event["name"]));
        }
        for (row, mut events) in rows {
            events.sort_by_key(|((start, _), _)| *start);
            for (index, (left, outer)) in events.iter().enumerate() {
                for (right, inner) in &events[index + 1..] {
                    let nests = left.1 <= right.0 || right.1 <= left.1;
                    assert!(nests, "{inner} crosses {outer} on {row:?}");
                }
            }
        }
    }
}

#[test]
fn every_row_has_a_name() {
    for (_, document) in both() {
        let (threads, processes) =
            (document.metadata("thread_name", "name"), document.metadata("process_labels", "labels"));
        for event in document.events().iter().filter(|event| event["ph"] == "X") {
            assert!(threads.contains_key(&row(event)), "{event}");
            assert!(row(event).0 < 0 || processes.contains_key(&(row(event).0, 0)), "{event}");
        }
    }
    let document = Document::of(&gpu_trace());
    let threads = document.metadata("thread_name", "name");
    assert_eq!(threads[&(0, 7)], "stream 7 ");
    assert_eq!(threads[&(0, 10_000_008)], "stream 8 (overlap 1) ");
    assert_eq!(threads[&(0, 10_000_007)], "stream 7 sync");
    assert_eq!(document.metadata("process_labels", "labels")[&(0, 0)], "GPU 0");
    assert_eq!(document.metadata("process_sort_index", "sort_index")[&(0, 0)], 5_000_000);
}

#[test]
fn a_process_is_never_taken_for_a_gpu() {
    let document = Document::of(&awkward_trace());
    let labels = document.metadata("process_labels", "labels");
    let labels: Vec<_> = labels.values().map(|label| label.as_str().unwrap()).collect();
    assert_eq!(labels, ["GPU 0", "GPU 1", "CPU"]);
}

#[test]
fn waits_say_what_is_waited_for() {
    let document = Document::of(&awkward_trace());
    let waits = document.of_category("cuda_sync");
    let of = |kind: &str| *waits.iter().find(|wait| wait["args"]["cuda_sync_kind"] == kind).unwrap();
    let context = of("Context Sync");
    assert_eq!((context["pid"].as_i64(), &context["args"]["stream"]), (Some(0), &json!(-1)));
    assert_eq!(document.metadata("thread_name", "name")[&row(context)], "context 1 sync");
    let event = of("Stream Wait Event");
    assert_eq!((event["pid"].as_i64(), &event["args"]["wait_on_cuda_event_id"]), (Some(1), &json!(5)));
    let nowhere = of("Event Sync");
    assert_eq!((nowhere["pid"].as_i64(), &nowhere["args"]["device"]), (Some(-1), &json!(-1)));
}

#[test]
fn memory_that_is_freed_is_negative_and_says_when_it_is_not_known() {
    let document = Document::of(&awkward_trace());
    let memory: Vec<_> = document.of_category("cpu_instant_event");
    let bytes: Vec<_> = memory.iter().map(|event| event["args"]["Bytes"].as_i64().unwrap()).collect();
    assert_eq!(bytes, [4096, -4096, 4096, 0]);
    assert_eq!(memory[3]["args"]["Bytes unknown"], true);
    let first = json!({
        "External id": 2, "Device Type": 1, "Device Id": 0, "Addr": 0x7000_0000, "Bytes": 4096,
        "Total Allocated": 5096, "Total Reserved": (1 << 20), "Ev Idx": 0, "pooled": true
    });
    assert_eq!(memory[0]["args"], first);
}

#[test]
fn a_call_that_failed_says_so() {
    let document = Document::of(&awkward_trace());
    let call = document.of_category("cuda_runtime")[0];
    assert_eq!((&call["name"], &call["args"]["result"]), (&json!("cudaLaunchKernel"), &json!(700)));
    let others = document.of_category("cuda_driver");
    assert!(others.iter().all(|call| call["args"].get("result").is_none()));
}

#[test]
fn steps_and_spans_are_around_their_work() {
    let document = Document::of(&gpu_trace());
    let ranges = document.of_category("gpu_user_annotation");
    let step = ranges.iter().find(|range| range["name"] == "ProfilerStep#5").unwrap();
    assert_eq!((row(step), &step["dur"]), ((0, 7), &json!(75.0)));
    let span = ranges.iter().find(|range| range["name"] == "train_step").unwrap();
    assert_eq!((row(span), &span["args"]["External id"]), ((0, 7), &json!(1)));
}

#[test]
fn files_parse() {
    for (trace, text) in exported(Chrome::to_dir) {
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), Document::of(&trace).0);
    }
}
