use crate::{
    endpoint::Protocol,
    options::GpuSpans,
    run_trace::{RunTrace, Sampler},
    span_writer::{RequestLimits, SpanWriter},
    spans::{self, SpanOptions},
};
use kernspan::{
    Trace,
    analysis::Analysis,
    trace::{
        Timestamp, TraceContext,
        sample::{at, copies_trace, cut_both_ends, gpu_trace, set_context, set_previous},
    },
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use prost::Message;

const TRACE: u128 = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
const TRAIN: u64 = 0xa1;
const BACKWARD: u64 = 0xb2;

/// The sample, in which another layer sends `train_step` and `backward` of the first step, and does not sample
/// `train_step` of the second.
fn foreign_trace() -> Trace {
    let mut trace = gpu_trace();
    let mut put = |span, trace_id, span_id, sampled| {
        set_context(&mut trace, span, TraceContext::new(trace_id, span_id, sampled));
    };
    put(0, TRACE, TRAIN, true);
    put(2, TRACE, BACKWARD, true);
    put(3, 77, 78, false);
    trace
}

fn sent(trace: &Trace, gpu: GpuSpans, most_work: usize) -> Vec<Span> {
    let options = SpanOptions {
        run: RunTrace::new(trace.metadata(), at(0), None, None, Sampler::default()),
        schedule: String::new(),
        gpu,
        most_work,
        samples_per_step: None,
        text_limit: usize::MAX,
    };
    let mut requests = Vec::new();
    let mut done = |request| requests.push(request);
    let mut writer = SpanWriter::new(&[], RequestLimits::of(Protocol::HttpProtobuf), &mut done);
    spans::write(&Analysis::of(trace), &options, 0, &mut writer);
    writer.flush();
    let requests = requests.into_iter().map(|request| ExportTraceServiceRequest::decode(&*request.body).unwrap());
    let resources = requests.flat_map(|request| request.resource_spans);
    resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
}

fn is_under(span: &Span, parent: u64) -> bool {
    span.trace_id == TRACE.to_be_bytes() && span.parent_span_id == parent.to_be_bytes()
}

fn only<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let span = found.next().unwrap_or_else(|| panic!("no {name} in {:?}", names(spans)));
    assert!(found.next().is_none(), "several {name} in {:?}", names(spans));
    span
}

fn names(spans: &[Span]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

fn number(attributes: &[KeyValue], name: &str) -> Option<i64> {
    let value = attributes.iter().find(|attribute| attribute.key == name)?.value.as_ref()?.value.as_ref()?;
    if let Value::IntValue(number) = value { Some(*number) } else { None }
}

#[test]
fn what_another_sends_is_not_sent_again() {
    for gpu in [GpuSpans::Aggregate, GpuSpans::Kernels, GpuSpans::Off] {
        let spans = sent(&foreign_trace(), gpu, 100);
        assert!(!names(&spans).iter().any(|name| ["train_step", "backward"].contains(name)), "{:?}", names(&spans));
        assert!(is_under(only(&spans, "forward"), TRAIN));
        assert_eq!(names(&spans).iter().filter(|name| name.starts_with("step")).count(), 2);
    }
}

#[test]
fn kernels_are_in_the_spans_that_another_sends() {
    let spans = sent(&foreign_trace(), GpuSpans::Kernels, 100);
    let forward = only(&spans, "forward").span_id.clone();
    assert!(is_under(only(&spans, "Memcpy HtoD (Pageable -> Device)"), TRAIN), "{:?}", names(&spans));
    let gemms: Vec<_> = spans.iter().filter(|span| span.name == "gemm").collect();
    assert_eq!(gemms.len(), 2);
    assert!(gemms[0].trace_id == TRACE.to_be_bytes() && gemms[0].parent_span_id == forward);
    assert!(is_under(gemms[1], BACKWARD) && is_under(only(&spans, "node"), BACKWARD));
    // Work of no span is in the trace of the window.
    assert_ne!(only(&spans, "stray").trace_id, TRACE.to_be_bytes());
    let mut ids: Vec<_> = spans.iter().map(|span| &span.span_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), spans.len());
}

#[test]
fn what_is_too_much_is_folded_in_the_others_trace() {
    let spans = sent(&foreign_trace(), GpuSpans::Kernels, 1);
    let folded = spans.iter().find(|span| span.name.ends_with("shorter kernels and copies")).unwrap();
    assert!(is_under(folded, TRAIN));
    assert_eq!(number(&folded.attributes, "kernspan.folded"), Some(4));
}

#[test]
fn what_gpus_did_for_a_span_that_another_sends_is_a_span_in_it() {
    let spans = sent(&foreign_trace(), GpuSpans::Aggregate, 100);
    let parts: Vec<_> = spans.iter().filter(|span| span.name == "gpu").collect();
    assert_eq!(parts.len(), 2);
    let times = |span: &Span| [span.start_time_unix_nano, span.end_time_unix_nano].map(Timestamp::from_unix_nanos);
    assert!(is_under(parts[0], TRAIN) && times(parts[0]) == [at(5), at(9)]);
    assert_eq!(number(&parts[0].attributes, "gpu.copy.bytes"), Some(4000));
    assert!(is_under(parts[1], BACKWARD) && times(parts[1]) == [at(50), at(80)]);
    assert_eq!(number(&parts[1].attributes, "gpu.kernel.count"), Some(2));
    assert_eq!(number(&parts[1].attributes, "gpu.busy_ns"), Some(30_000));
    // A span that we send has the totals itself.
    assert_eq!(number(&only(&spans, "forward").attributes, "gpu.kernel.count"), Some(1));
}

#[test]
fn instances_of_a_span_share_what_gpus_did_for_it() {
    let mut trace = gpu_trace();
    for span in [1, 4] {
        set_context(&mut trace, span, TraceContext::new(TRACE, TRAIN, true));
    }
    // They are polls of one call; calls of a span that is kept are sent each by itself.
    set_previous(&mut trace, 4, 1);
    let spans = sent(&trace, GpuSpans::Aggregate, 100);
    let part = only(&spans, "gpu");
    assert!(is_under(part, TRAIN));
    assert_eq!(number(&part.attributes, "gpu.kernel.count"), Some(2));
    assert_eq!(part.end_time_unix_nano - part.start_time_unix_nano, 120_000);
    // Both steps are linked to that trace.
    for step in ["step 5", "step 6"] {
        assert_eq!(only(&spans, step).links.iter().filter(|link| link.trace_id == TRACE.to_be_bytes()).count(), 1);
    }
}

#[test]
fn a_step_leads_to_the_traces_in_it() {
    let spans = sent(&foreign_trace(), GpuSpans::Aggregate, 100);
    let links = &only(&spans, "step 5").links;
    assert_eq!(links.len(), 2);
    assert_eq!((&*links[1].trace_id, &*links[1].span_id), (&TRACE.to_be_bytes()[..], &TRAIN.to_be_bytes()[..]));
    assert_eq!(links[1].attributes[0].key, "kernspan.link");
    // A trace that is not sampled is not linked.
    assert_eq!(only(&spans, "step 6").links.len(), 1);

    let mut trace = copies_trace(40);
    for n in 0..40 {
        set_context(&mut trace, n, TraceContext::new(1 + n as u128, 1, true));
    }
    assert_eq!(only(&sent(&trace, GpuSpans::Off, 0), "step 5").links.len(), 1 + 32);
}

#[test]
fn a_span_that_nobody_could_ask_about_is_taken_for_anothers() {
    let mut trace = gpu_trace();
    set_context(&mut trace, 2, TraceContext::new(TRACE, BACKWARD, true));
    cut_both_ends(&mut trace, 0);
    let spans = sent(&trace, GpuSpans::Kernels, 100);
    // We send `train_step` of the second step.
    assert_eq!(names(&spans).iter().filter(|name| **name == "train_step").count(), 1);
    let root = only(&spans, "step 5").span_id.clone();
    let forward = spans.iter().find(|span| span.name == "forward").unwrap();
    assert_eq!((&forward.parent_span_id, forward.links.len()), (&root, 0));
    assert!(spans.iter().any(|span| span.name == "Memcpy HtoD (Pageable -> Device)" && span.parent_span_id == root));
    // If the span is known to have no context, we send it.
    set_context(&mut trace, 0, None);
    assert_eq!(names(&sent(&trace, GpuSpans::Off, 0)).iter().filter(|name| **name == "train_step").count(), 2);
}
