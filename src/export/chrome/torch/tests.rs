//! Tests of the parts for TensorBoard's plugin.

use super::{DATA_LOADING, collective, steps_with_time};
use crate::{
    export::{
        chrome::{Flavor, flavor::Options, tests::Document},
        samples::{awkward_trace, ranks},
    },
    trace::{
        Attribution, SpanData, SpanId, Trace, TrackId, convention,
        sample::{at, gpu_trace, set_fields},
    },
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn written(trace: &Trace) -> Document {
    Document::with_options(trace, Options { flavor: Flavor::TorchTensorBoard, runtime_names: false })
}

fn names(events: &[&Value]) -> Vec<String> {
    events.iter().map(|event| event["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn all_calls_are_runtime_and_say_whose_they_are() {
    let trace = awkward_trace();
    let document = written(&trace);
    assert_eq!(document.of_category("runtime").len(), trace.api_calls().len());
    for category in ["cuda_driver", "cuda_runtime"] {
        assert_eq!(document.of_category(category).len(), 0);
    }
    let stray = document.of_category("kernel").into_iter().find(|kernel| kernel["name"] == "stray").unwrap();
    assert_eq!(stray["args"]["External id"], 0);
}

#[test]
fn only_what_the_stepping_thread_waits_for_is_loading() {
    let mut trace = gpu_trace();
    // `forward` of the first step loads, and what is in it reads; another thread loads in advance.
    set_fields(&mut trace, 1, &[(convention::INPUT, "load")]);
    set_fields(&mut trace, 2, &[(convention::INPUT, "read")]);
    trace.spans[2].parent = Some(SpanId::new(1));
    set_fields(&mut trace, 4, &[(convention::INPUT, "preprocess")]);
    trace.spans[4].track = TrackId::new(1);
    let spans = names(&written(&trace).of_category("cpu_op"));
    assert_eq!(spans, ["train_step", DATA_LOADING, "backward", "train_step", "forward", "backward"]);
}

#[test]
fn call_stacks_have_an_end() {
    let mut trace = gpu_trace();
    let span = trace.spans[0].clone();
    trace.spans.clear();
    for depth in 0..1000_usize {
        trace.spans.push(SpanData { parent: depth.checked_sub(1).map(SpanId::new), ..span.clone() });
    }
    let document = written(&trace);
    let stacks =
        document.of_category("cpu_op").into_iter().map(|span| span["args"]["Call stack"].as_str().unwrap().len());
    assert!(stacks.max().unwrap() <= 4096);
}

#[test]
fn driver_calls_may_have_the_names_of_the_runtime() {
    for flavor in [Flavor::Kineto, Flavor::TorchTensorBoard] {
        let document = Document::with_options(&gpu_trace(), Options { flavor, runtime_names: true });
        let calls = document.of_category(if flavor == Flavor::Kineto { "cuda_runtime" } else { "runtime" });
        let seen: BTreeSet<_> =
            calls.iter().map(|call| (call["name"].as_str(), call["args"]["driver name"].as_str())).collect();
        let expected = [
            (Some("cudaGraphLaunch"), Some("cuGraphLaunch")),
            (Some("cudaLaunchKernel"), Some("cuLaunchKernel")),
            (Some("cudaMemcpyAsync"), Some("cuMemcpyHtoDAsync")),
        ];
        assert_eq!(seen, expected.into());
    }
}

#[test]
fn steps_are_on_the_host_only() {
    let document = written(&gpu_trace());
    assert_eq!(names(&document.of_category("user_annotation")), ["ProfilerStep#5", "ProfilerStep#6"]);
    let on_gpu = names(&document.of_category("gpu_user_annotation"));
    assert!(on_gpu.contains(&"train_step".to_owned()) && !on_gpu.iter().any(|name| name.starts_with("ProfilerStep")));
}

#[test]
fn names_with_a_meaning_are_those_that_mean_it() {
    let mut trace = gpu_trace();
    trace.callsites[0].name = "ProfilerStep#first".into();
    trace.callsites[1].name = "data".into();
    let document = written(&trace);
    let seen: BTreeSet<_> = names(&document.of_category("cpu_op")).into_iter().collect();
    assert_eq!(seen, [DATA_LOADING, "ProfilerStep", "backward"].map(str::to_owned).into());
    assert_eq!(names(&document.of_category("gpu_user_annotation")), ["backward", "backward"]);
}

#[test]
fn spans_say_what_they_lie_in() {
    let mut trace = gpu_trace();
    trace.callsites[0].name = "train; step".into();
    trace.callsites[0].line = Some(4);
    trace.callsites[2].file = None;
    trace.backtraces.insert(SpanId::new(1), vec!["inner".to_owned(), "main".to_owned()]);
    let document = written(&trace);
    let stacks: Vec<_> = document.of_category("cpu_op").iter().map(|span| span["args"]["Call stack"].clone()).collect();
    let outer = "src/model.rs(4): train, step";
    assert_eq!(stacks[0], outer);
    assert_eq!(stacks[1], "inner;main");
    assert_eq!(stacks[2], format!("backward;{outer}"));
    assert_eq!(stacks[4], format!("src/model.rs(7): forward;{outer}"));
}

#[test]
fn modules_are_around_their_spans() {
    let mut trace = gpu_trace();
    for (span, path) in [(0, "model"), (1, "model.0"), (3, "model"), (4, "model.0"), (5, "model.1")] {
        set_fields(&mut trace, span, &[("op.module", path)]);
    }
    let document = written(&trace);
    let modules = document.of_category("python_function");
    assert_eq!(
        names(&modules),
        ["model", "model.0", "model", "model.0", "model.1"].map(|path| format!("nn.Module: {path}"))
    );
    let ids = |key: &str| modules.iter().map(|module| module["args"][key].clone()).collect::<Vec<_>>();
    assert_eq!(ids("Python module id"), [0, 1, 0, 1, 2]);
    // A module is the same one each time that it is called in the same.
    assert_eq!(ids("Python id"), [1, 2, 1, 2, 3]);
    assert_eq!(ids("Python parent id"), [json!(null), json!(1), json!(null), json!(1), json!(1)]);
    let events = document.events();
    for module in modules {
        let index = events.iter().position(|event| std::ptr::eq(event, module)).unwrap();
        let span = &events[index + 1];
        assert_eq!(span["cat"], "cpu_op");
        assert_eq!((&span["ts"], &span["dur"], &span["tid"]), (&module["ts"], &module["dur"], &module["tid"]));
    }
}

/// The ops that are around launches.
fn collectives(trace: &Trace) -> Vec<String> {
    let mut names = names(&written(trace).of_category("cpu_op"));
    names.retain(|name| name.starts_with("nccl:"));
    names
}

#[test]
fn launches_of_collectives_are_ops() {
    let [trace, _] = ranks();
    assert_eq!(collectives(&trace), ["nccl:all_reduce", "nccl:all_gather"].repeat(2));
    let document = written(&trace);
    let ops = document.of_category("cpu_op");
    let ids: BTreeSet<_> = ops.iter().map(|op| op["args"]["External id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), ops.len());
    let calls = document.of_category("runtime");
    for kernel in document.of_category("kernel").into_iter().filter(|kernel| kernel["tid"] == 9) {
        let call = calls.iter().find(|call| call["args"]["correlation"] == kernel["args"]["correlation"]).unwrap();
        let op = ops.iter().find(|op| op["args"]["External id"] == kernel["args"]["External id"]).unwrap();
        assert_eq!(call["args"]["External id"], kernel["args"]["External id"]);
        assert_eq!((&op["ts"], &op["dur"], &op["tid"]), (&call["ts"], &call["dur"], &call["tid"]));
    }
}

#[test]
fn launches_of_more_than_a_collective_are_not() {
    let [trace, _] = ranks();
    let mut graph = trace.clone();
    let (reduce, gather) = (graph.work.len() - 4, graph.work.len() - 3);
    graph.work[gather].call = graph.work[reduce].call;
    assert_eq!(collectives(&graph), ["nccl:all_reduce", "nccl:all_gather"]);
    let mut handed_off = trace.clone();
    handed_off.api_calls.iter_mut().for_each(|call| call.attribution = Attribution::HandedOff);
    assert!(collectives(&handed_off).is_empty());
    let mut own = trace;
    own.callsites[2].name = "nccl:all_reduce".into();
    assert_eq!(collectives(&own), ["nccl:all_reduce"; 2], "the spans themselves");
    assert!(!names(&written(&own).of_category("gpu_user_annotation")).contains(&"nccl:all_reduce".to_owned()));
}

#[test]
fn shapes_of_a_collective_have_types_or_are_left_out() {
    let mut trace = gpu_trace();
    trace.callsites[1].name = "nccl:all_reduce".into();
    set_fields(&mut trace, 1, &[("op.shape.input", "[8]")]);
    set_fields(&mut trace, 4, &[("op.shape.input", "[8]"), ("op.dtype.input", "f32")]);
    set_fields(&mut trace, 2, &[("op.shape.input", "[8]")]);
    let document = written(&trace);
    let dims: Vec<_> = document.of_category("cpu_op").iter().map(|op| op["args"].get("Input Dims").is_some()).collect();
    assert_eq!(dims, [false, false, true, false, true, false]);
}

#[test]
fn nothing_is_an_array_after_the_events() {
    let mut trace = gpu_trace();
    let metadata = crate::trace::Metadata { process: "a[0]".to_owned(), ..(*trace.metadata).clone() };
    trace.metadata = metadata.into();
    assert_eq!(written(&trace).0["traceName"], "a[0)#0");
}

#[test]
fn kernels_of_nccl_are_known_by_their_names() {
    for (kernel, name) in [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Some("nccl:all_reduce")),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", Some("nccl:all_reduce")),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", Some("nccl:reduce_scatter")),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(x)", Some("nccl:reduce")),
        ("ncclDevKernel_AllGather_RING_LL(x)", Some("nccl:all_gather")),
        ("ncclDevKernel_Broadcast_RING_LL(x)", Some("nccl:broadcast")),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", Some("nccl:send_recv")),
        ("ncclDevKernel_Generic_1(x)", None),
        ("all_reduce", None),
    ] {
        assert_eq!(collective(kernel), name, "{kernel}");
    }
}

#[test]
fn a_step_that_the_gpu_is_behind_has_no_time() {
    let mut trace = gpu_trace();
    assert_eq!(steps_with_time(&trace), [true, true]);
    trace.work.iter_mut().find(|work| work.start == at(50)).unwrap().end = at(300);
    assert_eq!(steps_with_time(&trace), [true, false]);
    trace.work.clear();
    assert_eq!(steps_with_time(&trace), [true, true]);
    trace.steps[1].end = trace.steps[1].start;
    assert_eq!(steps_with_time(&trace), [true, false]);
}
