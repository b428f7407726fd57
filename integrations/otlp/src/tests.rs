//! What is sent, decoded by OpenTelemetry's own types and held against the trace that it comes from, span by span.

use super::{
    ids::{Of, Parent},
    outbox::Request,
    run_trace::RunTrace,
    sampling::Sampler,
    settings::{GpuSpans, Protocol},
    span_writer::{Most, SpanWriter},
    spans::{self, Detailing},
};
use crate::{
    analysis::gpu_steps,
    export::samples::awkward_trace,
    report::Report,
    trace::{
        Counter, Detail, EventData, FieldData, FieldRange, Level, SpanId, Trace, Value, Work,
        sample::{at, gpu_trace, operations_trace, say},
    },
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value as Any},
    trace::v1::Span as Sent,
};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn detailing(trace: &Trace, gpu: GpuSpans) -> Detailing {
    Detailing {
        run: RunTrace::new(trace.metadata(), trace.start(), Parent::parse(PARENT), Sampler::default()),
        schedule: "a schedule".to_owned(),
        gpu,
        most_work: 1000,
        samples_per_step: None,
        text_limit: usize::MAX,
    }
}

/// What is sent of a window, by id.
fn sent_by(trace: &Trace, detailing: &Detailing) -> BTreeMap<Vec<u8>, Sent> {
    let mut requests = Vec::new();
    let mut put = |request: Request| requests.push(request);
    let mut writer = SpanWriter::new(&[], Most::of(Protocol::HttpProtobuf), &mut put);
    spans::write(trace, detailing, 7, &mut writer);
    writer.flush();
    let (mut spans, mut items) = (Vec::new(), 0);
    for request in requests {
        items += request.items;
        let mut decoded = ExportTraceServiceRequest::decode(&*request.body).unwrap();
        let scope = &mut decoded.resource_spans[0].scope_spans[0];
        assert_eq!(scope.scope.as_ref().unwrap().name, "kernspan");
        spans.append(&mut scope.spans);
    }
    assert_eq!(items, spans.len() as u64);
    let by_id: BTreeMap<_, _> = spans.iter().map(|span| (span.span_id.clone(), span.clone())).collect();
    assert_eq!(by_id.len(), spans.len(), "an id is there twice");
    by_id
}

fn sent(trace: &Trace, gpu: GpuSpans) -> BTreeMap<Vec<u8>, Sent> {
    sent_by(trace, &detailing(trace, gpu))
}

/// An attribute, written in a way that can be compared with what was meant.
fn say_value(value: &Any) -> String {
    match value {
        Any::StringValue(text) => format!("{text:?}"),
        Any::BoolValue(value) => value.to_string(),
        Any::IntValue(value) => format!("{value}"),
        Any::DoubleValue(value) => format!("{value}f"),
        Any::ArrayValue(array) => {
            let values = array.values.iter().map(|value| say_value(value.value.as_ref().unwrap()));
            format!("[{}]", values.collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}

fn attributes(attributes: &[KeyValue]) -> BTreeMap<&str, String> {
    let pairs = attributes.iter().map(|pair| {
        let value = pair.value.as_ref().and_then(|value| value.value.as_ref()).unwrap();
        (pair.key.as_str(), say_value(value))
    });
    let map: BTreeMap<_, _> = pairs.collect();
    assert_eq!(map.len(), attributes.len(), "a name is there twice: {attributes:?}");
    map
}

fn named<'a>(sent: &'a BTreeMap<Vec<u8>, Sent>, name: &str) -> Vec<&'a Sent> {
    sent.values().filter(|span| span.name == name).collect()
}

#[test]
fn the_tree_of_a_step_is_that_of_its_spans() {
    for trace in [gpu_trace(), awkward_trace(), operations_trace()] {
        let sent = sent(&trace, GpuSpans::Aggregate);
        let run = detailing(&trace, GpuSpans::Aggregate).run;
        // The stray kernel is in no step, so that there is a trace for the window as well.
        assert_eq!(sent.len(), trace.steps().len() + 1 + trace.spans().len());
        for step in trace.steps() {
            let home = run.step(step.number()).unwrap();
            let root = &sent[&home.root.to_bytes()[..]];
            assert_eq!(root.name, format!("step {}", step.number()));
            assert_eq!(
                (root.trace_id.as_slice(), root.parent_span_id.as_slice()),
                (&home.trace.to_bytes()[..], &[][..])
            );
            let times = (step.start().as_unix_nanos(), step.end().as_unix_nanos());
            assert_eq!((root.start_time_unix_nano, root.end_time_unix_nano), times);
            let [link] = &root.links[..] else { panic!("{:?}", root.links) };
            assert_eq!(
                (link.trace_id.as_slice(), link.span_id.as_slice()),
                (&run.trace.to_bytes()[..], &run.span.to_bytes()[..])
            );
        }
        for span in trace.spans() {
            let home = run.step(span.step().unwrap().number()).unwrap();
            let key = |id: SpanId| home.trace.span(Of::Span, id.index() as u64).to_bytes();
            let found = &sent[&key(span.id())[..]];
            assert_eq!((found.name.as_str(), found.kind), (span.name(), 1));
            let parent = span.parent().map_or(home.root.to_bytes(), |parent| key(parent.id()));
            assert_eq!(
                (found.trace_id.as_slice(), found.parent_span_id.as_slice()),
                (&home.trace.to_bytes()[..], &parent[..])
            );
            let times = (span.start().as_unix_nanos(), span.end().as_unix_nanos());
            assert_eq!((found.start_time_unix_nano, found.end_time_unix_nano), times);
            let found = attributes(&found.attributes);
            assert_eq!(found["thread.id"], span.track().thread().as_u64().to_string());
            assert_eq!(found["thread.name"], format!("{:?}", span.track().thread_name()));
            assert_eq!(found["kernspan.self_ns"], span.self_time().as_nanos().to_string());
        }
    }
}

#[test]
fn fields_keep_their_types() {
    let mut trace = gpu_trace();
    let text = Value::Str("snow ☃ in many words".into());
    let fields = [
        ("yes", Value::Bool(true)),
        ("negative", Value::I64(-3)),
        ("count", Value::U64(3)),
        ("huge", Value::U64(u64::MAX)),
        ("half", Value::F64(0.5)),
        ("text", text),
    ];
    say(&mut trace, 1, &fields);
    let limited = Detailing { text_limit: 6, ..detailing(&trace, GpuSpans::Off) };
    for (detailing, text) in [(detailing(&trace, GpuSpans::Off), "snow ☃ in many words"), (limited, "snow ")] {
        let sent = sent_by(&trace, &detailing);
        let forward =
            named(&sent, "forward").into_iter().find(|span| span.start_time_unix_nano == at(10).as_unix_nanos());
        let found = attributes(&forward.unwrap().attributes);
        let found: Vec<_> = fields.iter().map(|(name, _)| found[*name].as_str()).collect();
        assert_eq!(found, ["true", "-3", "3", "\"18446744073709551615\"", "0.5f", &format!("{text:?}")]);
    }
}

#[test]
fn a_step_says_how_the_gpu_spent_it() {
    let mut trace = gpu_trace();
    trace.losses.late = 3;
    trace.counters.push(Counter { name: "loss".into(), samples: vec![(at(10), 0.5), (at(20), 0.25)] });
    trace.counters.push(Counter { name: "samples".into(), samples: vec![(at(30), 8.0)] });
    let sent = sent(&trace, GpuSpans::Aggregate);
    let found = attributes(&named(&sent, "step 5")[0].attributes);
    let mut gpus = Vec::new();
    gpus.extend(gpu_steps(&trace));
    let usage = &gpus[0].usage;
    assert_eq!(found["gpu.busy_ns"], usage.busy.as_nanos().to_string());
    assert_eq!(found["gpu.idle_ns"], usage.idle.as_nanos().to_string());
    assert_eq!(found["gpu.utilization"], format!("{}f", usage.busy_percent() / 100.0));
    assert_eq!((found["gpu.kernel.count"].as_str(), found["gpu.copy.bytes"].as_str()), ("3", "4000"));
    assert_eq!(found["gpu.verdict"], format!("{:?}", usage.verdict.as_str()));
    assert_eq!(found["gpu.memory.peak"], gpus[0].peak_memory.unwrap().to_string());
    assert_eq!((found["kernspan.step.number"].as_str(), found["kernspan.step.phase"].as_str()), ("5", "\"record\""));
    assert_eq!(
        (found["kernspan.counter.loss"].as_str(), found["kernspan.schedule"].as_str()),
        ("0.25f", "\"a schedule\"")
    );
    // 8 in 100 µs.
    assert_eq!(found["kernspan.step.samples_per_second"], "80000f");
    assert_eq!((found["kernspan.lost"].as_str(), found["kernspan.lost.late"].as_str()), ("3", "3"));
    assert_eq!(found["kernspan.otlp.dropped_spans"], "7");
    // Nothing of a counter that had no value in the step.
    assert!(!attributes(&named(&sent, "step 6")[0].attributes).contains_key("kernspan.counter.loss"));
}

#[test]
fn spans_say_what_the_gpu_did_for_them() {
    let sent = sent(&gpu_trace(), GpuSpans::Aggregate);
    let of = |name| attributes(&named(&sent, name)[0].attributes);
    let numbers = |name, keys: &[&str]| {
        let found = of(name);
        keys.iter().map(|key| found.get(key).map(|value| value.parse::<u64>().unwrap())).collect::<Vec<_>>()
    };
    let keys = ["gpu.kernel.count", "gpu.busy_ns", "gpu.self_busy_ns", "gpu.copy.count", "gpu.copy.bytes"];
    // The copy of 4 µs, both `gemm`s of 20 and 30; what runs beside the second is in its time.
    assert_eq!(numbers("train_step", &keys), [Some(3), Some(54_000), Some(4_000), Some(1), Some(4000)]);
    assert_eq!(numbers("forward", &keys), [Some(1), Some(20_000), Some(20_000), None, None]);
    assert_eq!(numbers("backward", &keys), [Some(2), Some(30_000), Some(30_000), None, None]);
    assert_eq!(of("train_step")["gpu.kernel.top"], r#"["0.050 ms in 2 × gemm", "0.010 ms in 1 × node"]"#);
    let off = self::sent(&gpu_trace(), GpuSpans::Off);
    assert!(!attributes(&named(&off, "train_step")[0].attributes).contains_key("gpu.kernel.count"));
}

/// The report adds up time on each stream, a span here counts it once; kernels are kernels.
#[test]
fn counts_of_kernels_are_those_of_the_report() {
    for trace in [gpu_trace(), awkward_trace(), operations_trace()] {
        let sent = sent(&trace, GpuSpans::Aggregate);
        let count = |name: &str| {
            named(&sent, name)
                .iter()
                .map(|span| attributes(&span.attributes)["gpu.kernel.count"].parse::<u64>().unwrap())
                .sum::<u64>()
        };
        let kernels = |name: &str| {
            let below = |work: &Work<'_>| work.span().is_some_and(|span| span.stack().any(|span| span.name() == name));
            trace.work().filter(|work| work.kernel().is_some()).filter(below).count() as u64
        };
        for name in ["train_step", "forward", "backward"] {
            assert_eq!(count(name), kernels(name), "{name}");
        }
        assert!(Report::of([&trace]).kernels().rows().iter().map(|row| row.calls).sum::<u64>() >= count("train_step"));
    }
}

#[test]
fn every_piece_of_work_is_a_span_in_the_span_that_launched_it() {
    for trace in [gpu_trace(), awkward_trace(), operations_trace()] {
        let sent = sent(&trace, GpuSpans::Kernels);
        let run = detailing(&trace, GpuSpans::Kernels).run;
        assert_eq!(sent.len(), trace.steps().len() + 1 + trace.spans().len() + trace.work().len());
        for work in trace.work() {
            let home = work.step().map_or_else(|| run.window_ids(0), |step| run.step_ids(step.number()));
            let found = &sent[&home.trace.span(Of::Work, work.id().index() as u64).to_bytes()[..]];
            let owner = work.span().map_or(home.root, |span| home.trace.span(Of::Span, span.id().index() as u64));
            assert_eq!(
                (found.trace_id.as_slice(), found.parent_span_id.as_slice()),
                (&home.trace.to_bytes()[..], &owner.to_bytes()[..])
            );
            let times = (work.start().as_unix_nanos(), work.end().as_unix_nanos());
            assert_eq!((found.start_time_unix_nano, found.end_time_unix_nano), times);
            let said = attributes(&found.attributes);
            assert_eq!(said["gpu.start_ns"], times.0.to_string());
            assert_eq!(said["gpu.duration_ns"], (times.1 - times.0).to_string());
            assert_eq!(said["cuda.stream.id"], work.stream().number().to_string());
            assert_eq!(said["cuda.correlation_id"], work.correlation().to_string());
            assert_eq!(said["gpu.attribution"], format!("{:?}", work.attribution().as_str()));
            let device = trace.device(work.stream().device()).unwrap();
            assert_eq!(
                (&said["hw.id"], &said["cuda.device.index"]),
                (&format!("{:?}", device.uuid), &device.id.to_string())
            );
            assert_eq!(said.get("cuda.graph.id"), work.graph().map(|graph| graph.graph.to_string()).as_ref());
            match work.detail() {
                Detail::Kernel(kernel) => {
                    assert_eq!(said["cuda.kernel.name"], format!("{:?}", kernel.name));
                    assert_eq!(said["cuda.grid"], format!("{:?}", kernel.grid));
                    assert_eq!(said["cuda.block"], format!("{:?}", kernel.block));
                    assert!(kernel.name.contains(&found.name), "{} is not {}", found.name, kernel.name);
                }
                Detail::Copy(copy) => {
                    assert_eq!(
                        (said["cuda.memcpy.bytes"].as_str(), said["cuda.memcpy.kind"].as_str()),
                        ("4000", "\"HtoD\"")
                    );
                    assert_eq!(copy.bytes, 4000);
                    assert_eq!(found.name, work.name().to_string());
                }
                Detail::Fill(_) => assert_eq!(said["cuda.memset.bytes"], "64"),
            }
        }
    }
}

#[test]
fn what_was_fused_into_a_kernel_is_told() {
    let trace = operations_trace();
    let sent = sent(&trace, GpuSpans::Kernels);
    let fused = trace.work().find(|work| work.operations().len() == 3).unwrap();
    let found =
        sent.values().find(|span| span.start_time_unix_nano == fused.start().as_unix_nanos() && span.name == "gemm");
    let found = found.unwrap();
    assert_eq!(attributes(&found.attributes)["gpu.operations"], r#"["matmul", "add", "add"]"#);
    // `backward` is its parent; `train_step` had asked for a part of it, too.
    let others: Vec<_> = found.links.iter().map(|link| sent[&link.span_id].name.as_str()).collect();
    assert_eq!(others, ["train_step"]);
}

#[test]
fn what_is_too_much_is_folded_into_one_span() {
    let trace = gpu_trace();
    let sent = sent_by(&trace, &Detailing { most_work: 2, ..detailing(&trace, GpuSpans::Kernels) });
    // The two `gemm`s of each step took longest; the copy, the node and the fill are folded; the stray kernel is in a trace of its own.
    assert_eq!((named(&sent, "gemm").len(), named(&sent, "node").len(), named(&sent, "stray").len()), (4, 0, 1));
    let folded = named(&sent, "3 shorter kernels and copies");
    assert_eq!(folded.len(), 2);
    let first = folded.iter().find(|span| span.start_time_unix_nano == at(5).as_unix_nanos()).unwrap();
    assert_eq!(first.end_time_unix_nano, at(75).as_unix_nanos());
    let said = attributes(&first.attributes);
    let numbers = ["kernspan.folded", "gpu.kernel.count", "gpu.busy_ns", "gpu.copy.count", "gpu.copy.bytes"];
    assert_eq!(numbers.map(|key| said[key].as_str()), ["3", "1", "19000", "1", "4000"]);
}

#[test]
fn events_are_in_their_spans_and_errors_mark_them() {
    let mut trace = gpu_trace();
    let mut callsite = trace.callsites[0].clone();
    (callsite.level, callsite.fields) = (Level::Error, vec!["message".into(), "code".into()]);
    trace.callsites.push(callsite);
    let start = trace.fields.len() as u32;
    trace.fields.push(FieldData { index: 0, value: Value::Str("it broke".into()) });
    trace.fields.push(FieldData { index: 1, value: Value::I64(3) });
    let event = EventData {
        callsite: crate::trace::CallsiteId::new(trace.callsites.len() - 1),
        track: crate::trace::TrackId::new(0),
        span: Some(SpanId::new(1)),
        at: at(12),
        fields: FieldRange { start, len: 2 },
    };
    // One in `forward`, many in no span but in the second step.
    trace.events.push(event.clone());
    trace.events.extend((0..200).map(|_| EventData { span: None, at: at(150), ..event.clone() }));
    let sent = sent(&trace, GpuSpans::Off);
    let forward = named(&sent, "forward").into_iter().find(|span| !span.events.is_empty()).unwrap();
    assert_eq!(
        (forward.events[0].name.as_str(), forward.events[0].time_unix_nano),
        ("it broke", at(12).as_unix_nanos())
    );
    assert_eq!(attributes(&forward.events[0].attributes)["code"], "3");
    let status = forward.status.as_ref().unwrap();
    assert_eq!((status.code, status.message.as_str()), (2, "it broke"));
    let step = named(&sent, "step 6")[0];
    assert_eq!((step.events.len(), step.dropped_events_count), (128, 72));
    assert!(named(&sent, "train_step").iter().all(|span| span.status.is_none()));
}

#[test]
fn a_span_across_the_edge_of_a_step_is_linked() {
    let mut trace = gpu_trace();
    // The second step's `forward` was asked for by the first one's `train_step`.
    trace.spans[4].parent = Some(SpanId::new(0));
    let sent = sent(&trace, GpuSpans::Off);
    let run = detailing(&trace, GpuSpans::Off).run;
    let (first, second) = (run.step(5).unwrap(), run.step(6).unwrap());
    let forward = &sent[&second.trace.span(Of::Span, 4).to_bytes()[..]];
    assert_eq!(forward.parent_span_id, second.root.to_bytes());
    assert_eq!(forward.links[0].trace_id, first.trace.to_bytes());
    assert_eq!(forward.links[0].span_id, first.trace.span(Of::Span, 0).to_bytes());
}

#[test]
fn ranks_have_traces_of_their_own_and_agree_on_the_run() {
    let [first, second] = crate::export::samples::ranks();
    let runs = [&first, &second].map(|trace| detailing(trace, GpuSpans::Off).run);
    assert_eq!(runs[0].trace, runs[1].trace);
    assert_ne!(runs[0].span, runs[1].span);
    let ids = |trace| sent(trace, GpuSpans::Kernels).into_values().map(|span| span.trace_id).collect::<BTreeSet<_>>();
    assert!(ids(&first).is_disjoint(&ids(&second)));
    // Another process that is told that it is the second rank has the second rank's ids.
    assert_eq!(ids(&second), ids(&second.clone()));
}

#[test]
fn what_is_not_sampled_is_not_sent() {
    let trace = gpu_trace();
    let unsampled = Parent::parse(&PARENT.replace("-01", "-00"));
    let run = RunTrace::new(trace.metadata(), trace.start(), unsampled, Sampler::default());
    let sent = sent_by(&trace, &Detailing { run, ..detailing(&trace, GpuSpans::Kernels) });
    assert!(sent.is_empty());
}

#[test]
fn a_window_without_steps_or_gpus_is_one_trace() {
    let mut trace = gpu_trace();
    trace.steps.clear();
    trace.spans.iter_mut().for_each(|span| span.step = None);
    (trace.work, trace.waits) = (Vec::new(), Vec::new());
    trace.gpu = crate::trace::Gpu::Unavailable(crate::trace::GpuProblem::NoDevice);
    let sent = sent(&trace, GpuSpans::Aggregate);
    assert_eq!(sent.values().map(|span| &span.trace_id).collect::<BTreeSet<_>>().len(), 1);
    let root = named(&sent, "window 0")[0];
    let said = attributes(&root.attributes);
    assert_eq!(said["kernspan.gpu"], "\"GPU not recorded: the NVIDIA driver sees no device\"");
}

#[test]
fn requests_are_no_larger_than_collectors_take() {
    let mut trace = gpu_trace();
    let work = trace.work[1].clone();
    trace.work.extend((0..20_000).map(|_| work.clone()));
    let detailing = Detailing { most_work: usize::MAX, ..detailing(&trace, GpuSpans::Kernels) };
    for (protocol, most) in [(Protocol::HttpProtobuf, 8192), (Protocol::Grpc, 4096)] {
        let mut requests = Vec::new();
        let mut put = |request: Request| requests.push(request);
        let mut writer = SpanWriter::new(&[], Most::of(protocol), &mut put);
        spans::write(&trace, &detailing, 0, &mut writer);
        writer.flush();
        assert!(requests.iter().all(|request| request.items <= most && request.body.len() < 4 << 20));
        assert_eq!(requests.iter().map(|request| request.items).sum::<u64>(), 20_020);
    }
}
