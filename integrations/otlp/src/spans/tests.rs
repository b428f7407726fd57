//! Spans that are sent, decoded by OpenTelemetry's own types and compared with the trace.

mod gpu;
mod program;
mod steps;

use super::SpanOptions;
use crate::{
    endpoint::Protocol,
    ids::Parent,
    options::GpuSpans,
    request::Request,
    run_trace::{RunTrace, Sampler},
    span_writer::{RequestLimits, SpanWriter},
};
use kernspan::{Trace, analysis::Analysis};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value as Any},
    trace::v1::Span as Sent,
};
use prost::Message;
use std::collections::BTreeMap;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn options(trace: &Trace, gpu: GpuSpans) -> SpanOptions {
    SpanOptions {
        run: RunTrace::new(trace.metadata(), trace.start(), None, Parent::parse(PARENT), Sampler::default()),
        schedule: "a schedule".to_owned(),
        gpu,
        most_work: 1000,
        samples_per_step: None,
        text_limit: usize::MAX,
    }
}

/// The spans of a window, by id.
fn sent_with(trace: &Trace, options: &SpanOptions) -> BTreeMap<Vec<u8>, Sent> {
    let mut requests = Vec::new();
    let mut put = |request: Request| requests.push(request);
    let mut writer = SpanWriter::new(&[], RequestLimits::of(Protocol::HttpProtobuf), &mut put);
    super::write(&Analysis::of(trace), options, 7, &mut writer);
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
    sent_with(trace, &options(trace, gpu))
}

/// The value of an attribute as text, with its type.
fn value_text(value: &Any) -> String {
    match value {
        Any::StringValue(text) => format!("{text:?}"),
        Any::BoolValue(value) => value.to_string(),
        Any::IntValue(value) => format!("{value}"),
        Any::DoubleValue(value) => format!("{value}f"),
        Any::ArrayValue(array) => {
            let values = array.values.iter().map(|value| value_text(value.value.as_ref().unwrap()));
            format!("[{}]", values.collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}

fn attributes(attributes: &[KeyValue]) -> BTreeMap<&str, String> {
    let pairs = attributes.iter().map(|pair| {
        let value = pair.value.as_ref().and_then(|value| value.value.as_ref()).unwrap();
        (pair.key.as_str(), value_text(value))
    });
    let map: BTreeMap<_, _> = pairs.collect();
    assert_eq!(map.len(), attributes.len(), "a name is there twice: {attributes:?}");
    map
}

fn named<'a>(sent: &'a BTreeMap<Vec<u8>, Sent>, name: &str) -> Vec<&'a Sent> {
    sent.values().filter(|span| span.name == name).collect()
}
