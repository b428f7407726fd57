//! Steps, ranks and requests.

use super::{PARENT, attributes, named, options, sent, sent_with};
use crate::{
    endpoint::Protocol,
    ids::Parent,
    options::GpuSpans,
    request::Request,
    run_trace::{RunTrace, Sampler},
    span_writer::{RequestLimits, SpanWriter},
    spans::SpanOptions,
};
use kernspan::{
    analysis::Analysis,
    trace::{
        GpuProblem,
        sample::{add_counter, at, gpu_trace, losses_mut, ranks, remove_gpu, remove_steps, repeat_work},
    },
};
use std::collections::BTreeSet;

#[test]
fn a_step_says_how_the_gpu_spent_it() {
    let mut trace = gpu_trace();
    losses_mut(&mut trace).late = 3;
    add_counter(&mut trace, "loss", &[(at(10), 0.5), (at(20), 0.25)]);
    add_counter(&mut trace, "samples", &[(at(30), 8.0)]);
    let sent = sent(&trace, GpuSpans::Aggregate);
    let found = attributes(&named(&sent, "step 5")[0].attributes);
    let gpu = Analysis::of(&trace).gpu_steps()[0];
    let usage = gpu.usage;
    assert_eq!(found["gpu.busy_ns"], usage.busy.as_nanos().to_string());
    assert_eq!(found["gpu.idle_ns"], usage.idle.as_nanos().to_string());
    assert_eq!(found["gpu.utilization"], format!("{}f", usage.busy_percent() / 100.0));
    assert_eq!((found["gpu.kernel.count"].as_str(), found["gpu.copy.bytes"].as_str()), ("3", "4000"));
    assert_eq!(found["gpu.verdict"], format!("{:?}", usage.verdict.as_str()));
    assert_eq!(found["gpu.memory.peak"], gpu.peak_memory.unwrap().to_string());
    assert_eq!((found["kernspan.step.number"].as_str(), found["kernspan.step.phase"].as_str()), ("5", "\"record\""));
    assert_eq!(
        (found["kernspan.counter.loss"].as_str(), found["kernspan.schedule"].as_str()),
        ("0.25f", "\"a schedule\"")
    );
    // 8 samples in 100 µs.
    assert_eq!(found["kernspan.step.samples_per_second"], "80000f");
    assert_eq!((found["kernspan.lost"].as_str(), found["kernspan.lost.late"].as_str()), ("3", "3"));
    assert_eq!(found["kernspan.otlp.dropped_spans"], "7");
    // The counter has no value in this step.
    assert!(!attributes(&named(&sent, "step 6")[0].attributes).contains_key("kernspan.counter.loss"));
}

#[test]
fn ranks_have_traces_of_their_own_and_agree_on_the_run() {
    let [first, second] = ranks();
    let runs = [&first, &second].map(|trace| options(trace, GpuSpans::Off).run);
    assert_eq!(runs[0].trace, runs[1].trace);
    assert_ne!(runs[0].span, runs[1].span);
    let ids = |trace| sent(trace, GpuSpans::Kernels).into_values().map(|span| span.trace_id).collect::<BTreeSet<_>>();
    assert!(ids(&first).is_disjoint(&ids(&second)));
    // Ids depend on the rank, not on the process.
    assert_eq!(ids(&second), ids(&second.clone()));
}

#[test]
fn what_is_not_sampled_is_not_sent() {
    let trace = gpu_trace();
    let unsampled = Parent::parse(&PARENT.replace("-01", "-00"));
    let run = RunTrace::new(trace.metadata(), trace.start(), None, unsampled, Sampler::default());
    let sent = sent_with(&trace, &SpanOptions { run, ..options(&trace, GpuSpans::Kernels) });
    assert!(sent.is_empty());
}

#[test]
fn a_window_without_steps_or_gpus_is_one_trace() {
    let mut trace = gpu_trace();
    remove_steps(&mut trace);
    remove_gpu(&mut trace, GpuProblem::NoDevice);
    let sent = sent(&trace, GpuSpans::Aggregate);
    assert_eq!(sent.values().map(|span| &span.trace_id).collect::<BTreeSet<_>>().len(), 1);
    let root = named(&sent, "window 0")[0];
    let said = attributes(&root.attributes);
    assert_eq!(said["kernspan.gpu"], "\"GPU not recorded: the NVIDIA driver sees no device\"");
}

#[test]
fn requests_are_no_larger_than_collectors_take() {
    let mut trace = gpu_trace();
    repeat_work(&mut trace, 1, 20_000);
    let options = SpanOptions { most_work: usize::MAX, ..options(&trace, GpuSpans::Kernels) };
    for (protocol, most) in [(Protocol::HttpProtobuf, 8192), (Protocol::Grpc, 4096)] {
        let mut requests = Vec::new();
        let mut put = |request: Request| requests.push(request);
        let mut writer = SpanWriter::new(&[], RequestLimits::of(protocol), &mut put);
        super::super::write(&Analysis::of(&trace), &options, 0, &mut writer);
        writer.flush();
        assert!(requests.iter().all(|request| request.items <= most && request.body.len() < 4 << 20));
        assert_eq!(requests.iter().map(|request| request.items).sum::<u64>(), 20_020);
    }
}
